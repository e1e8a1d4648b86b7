package cli

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// named shows styles by name, so that the expectations are readable.
var named = strings.NewReplacer(styleReset, "<0>", styleBold, "<b>", styleDim, "<d>", styleItalic, "<i>", styleCode, "<c>")

func TestMarkdownIsShownInStyles(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"plain text\n":                 "plain text\n",
		"# Title\ntext\n":              "<b>Title<0>\ntext\n",
		"#hash\n":                      "#hash\n",
		"**bold** and *it*\n":          "<0><b>bold<0> and <0><i>it<0>\n",
		"a ** b * c\n":                 "a ** b * c\n",
		"2*3*4 = 24\n":                 "2*3*4 = 24\n",
		"`x**y` snake_case\n":          "<0><c>x**y<0> snake_case\n",
		"- one\n  * two\n-not\n":       "• one\n  • two\n-not\n",
		"> said\n":                     "<d>│ <0>said\n",
		"```go\na := *p\n```\nafter\n": "<d>```go<0>\n<c>a := *p<0>\n<d>```<0>\nafter\n",
		"**open\nnext\n":               "<0><b>open<0>\nnext\n",
		"äöü **ß**\n":                  "äöü <0><b>ß<0>\n",
		"ends with *":                  "ends with *",
		"```\nunclosed":                "<d>```<0>\n<c>unclosed<0>",
		"-":                            "-",
	} {
		m := markdown{}
		if got := named.Replace(m.write(text) + m.end()); got != want {
			t.Errorf("%q\ngot  %q\nwant %q", text, got, want)
		}
		m = markdown{} // the result is the same for pieces of any size
		var pieces strings.Builder
		for i := range len(text) {
			pieces.WriteString(m.write(text[i : i+1]))
		}
		pieces.WriteString(m.end())
		if got := named.Replace(pieces.String()); got != want {
			t.Errorf("%q in pieces\ngot  %q\nwant %q", text, got, want)
		}
	}
}

// TestMarksNextToIdeographsInTerminal: the cases are shared with Telegram and the page.
func TestMarksNextToIdeographsInTerminal(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile("../channel/telegram/testdata/marks.json")
	if err != nil {
		t.Fatal(err)
	}
	var cases []struct {
		Markdown, Shown string
		Unclosed        bool // the terminal, which does not wait for the end of the line, shows the style up to there
	}
	if err := json.Unmarshal(data, &cases); err != nil || len(cases) < 20 {
		t.Fatalf("%d cases: %v", len(cases), err)
	}
	// styled returns each character with the styles that it has.
	styled := func(text string, on, off map[string]string) (out []string) {
		has := map[string]bool{}
	next:
		for text != "" {
			for code, style := range on {
				if rest, found := strings.CutPrefix(text, code); found {
					has[style], text = true, rest
					continue next
				}
			}
			for code, style := range off {
				if rest, found := strings.CutPrefix(text, code); found {
					delete(has, style)
					if style == "" {
						clear(has)
					}
					text = rest
					continue next
				}
			}
			r, size := utf8.DecodeRuneInString(text)
			out, text = append(out, fmt.Sprintf("%c%v", r, slices.Sorted(maps.Keys(has)))), text[size:]
		}
		return out
	}
	tags, ends := map[string]string{"<b>": "b", "<i>": "i", "<s>": "s"}, map[string]string{"</b>": "b", "</i>": "i", "</s>": "s"}
	codes, reset := map[string]string{styleBold: "b", styleItalic: "i", styleStrike: "s"}, map[string]string{styleReset: ""}
	for _, c := range cases {
		if c.Unclosed {
			continue
		}
		m := markdown{}
		var got strings.Builder
		for i := range len(c.Markdown) {
			got.WriteString(m.write(c.Markdown[i : i+1]))
		}
		got.WriteString(m.end())
		if shown, want := styled(got.String(), codes, reset), styled(c.Shown, tags, ends); !slices.Equal(shown, want) {
			t.Errorf("%s:\n got %q\nwant %q", c.Markdown, shown, want)
		}
	}
}

// For any input, only markers are removed, no style remains open, and nothing is shown before it was written.
func FuzzMarkdown(f *testing.F) {
	for _, text := range []string{"# a *b* **c** `d`\n- e\n", "***\n```\n*\n```x", "* * *\n>>>\n", "**", "a*b**c***d"} {
		f.Add(text)
	}
	styles := regexp.MustCompile("\x1b\\[[0-9;]*m")
	markers := strings.NewReplacer("*", "", "~", "", "#", "", "`", "", ">", "", "│", "", "•", "", "-", "", "+", "", " ", "", "\n", "")
	f.Fuzz(func(t *testing.T, text string) {
		if strings.ContainsAny(text, "\x1b│•") {
			t.Skip("what plain never lets through, and our own markers")
		}
		m := markdown{}
		got := m.write(text) + m.end()
		if bare := styles.ReplaceAllString(got, ""); markers.Replace(bare) != markers.Replace(text) {
			t.Errorf("%q became %q", text, bare)
		}
		if all := styles.FindAllString(got, -1); len(all) > 0 && all[len(all)-1] != styleReset {
			t.Errorf("%q leaves a style open: %q", text, got)
		}
	})
}
