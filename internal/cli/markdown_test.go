package cli

import (
	"regexp"
	"strings"
	"testing"
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

// For any input, only markers are removed, no style remains open, and nothing is shown before it was written.
func FuzzMarkdown(f *testing.F) {
	for _, text := range []string{"# a *b* **c** `d`\n- e\n", "***\n```\n*\n```x", "* * *\n>>>\n", "**", "a*b**c***d"} {
		f.Add(text)
	}
	styles := regexp.MustCompile("\x1b\\[[0-9;]*m")
	markers := strings.NewReplacer("*", "", "#", "", "`", "", ">", "", "│", "", "•", "", "-", "", "+", "", " ", "", "\n", "")
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
