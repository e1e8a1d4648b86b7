package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/alecthomas/kong"
	"golang.org/x/term"

	"laneway/internal/wire"
)

func TestCountsHaveTheRightPlural(t *testing.T) {
	t.Parallel()
	for n, want := range map[int]string{0: "0 jobs", 1: "1 job", 2: "2 jobs"} {
		if got := count(n, "job"); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	if got, want := cronLine(testNow(), wire.StatusResult{}), "0 jobs, 0 running, backlog 0, switched off"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// named shows styles by name, so that the expectations are readable.
var named = strings.NewReplacer(styleReset, "<0>", styleBold, "<b>", styleDim, "<d>", styleItalic, "<i>", styleCode, "<c>")

func TestMarkdownIsShownInStyles(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"plain text\n":                  "plain text\n",
		"# Title\ntext\n":               "<b>Title<0>\ntext\n",
		"#hash\n":                       "#hash\n",
		"**bold** and *it*\n":           "<0><b>bold<0> and <0><i>it<0>\n",
		"a ** b * c\n":                  "a ** b * c\n",
		"2*3*4 = 24\n":                  "2*3*4 = 24\n",
		"`x**y` snake_case\n":           "<0><c>x**y<0> snake_case\n",
		"- one\n  * two\n-not\n":        "• one\n  • two\n-not\n",
		"> said\n":                      "<d>│ <0>said\n",
		"```go\na := *p\n```\nafter\n":  "<d>```go<0>\n<c>a := *p<0>\n<d>```<0>\nafter\n",
		"**open\nnext\n":                "<0><b>open<0>\nnext\n",
		"äöü **ß**\n":                   "äöü <0><b>ß<0>\n",
		"ends with *":                   "ends with *",
		"a \\*b\\* \\_c \\d\n":          "a *b* _c \\d\n",
		"ends with \\":                  "ends with \\",
		"https://a.example/*/b/*/c *d*": "https://a.example/*/b/*/c <0><i>d<0>",
		"**https://a.example/b**, c":    "<0><b>https://a.example/b<0>, c",
		"```\nunclosed":                 "<d>```<0>\n<c>unclosed<0>",
		"-":                             "-",
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

// A run of marks that neither begins nor ends a style is shown as it was written.
func TestMarksWithoutMeaningAreShown(t *testing.T) {
	t.Parallel()
	named := strings.NewReplacer(styleBold, "<b>", styleReset, "</>")
	for text, want := range map[string]string{
		"**a.**b":       "</><b>a.**b</>",
		"**مهم:**متن":   "</><b>مهم:**متن</>",
		"**ไทย:**ไทย x": "</><b>ไทย:**ไทย x</>",
		"a ** b *** c":  "a ** b *** c",
	} {
		m := markdown{}
		if got := named.Replace(m.write(text) + m.end()); got != want {
			t.Errorf("%s:\n got %q\nwant %q", text, got, want)
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
			shown := slices.Sorted(maps.Keys(has))
			if has["c"] { // Telegram shows code in no other style
				shown = []string{"c"}
			}
			out, text = append(out, fmt.Sprintf("%c%v", r, shown)), text[size:]
		}
		return out
	}
	tags, ends := map[string]string{"<b>": "b", "<i>": "i", "<s>": "s", "<code>": "c"}, map[string]string{"</b>": "b", "</i>": "i", "</s>": "s", "</code>": "c"}
	codes, reset := map[string]string{styleBold: "b", styleItalic: "i", styleStrike: "s", styleCode: "c"}, map[string]string{styleReset: ""}
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

// For any input, only markers are removed, no style remains open, and nothing is shown before it
// was written.
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

func TestEveryCommandHasAManualPage(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "man1")
	newBench("").run(t, exitOK, "__man", dir)
	for page, want := range map[string][]string{
		"laneway.1":          {".TH LANEWAY 1", ".BR laneway\\-cron (1)"},
		"laneway-cron-add.1": {".B laneway cron add", ".B \\-\\-every", "--cron"},
		"laneway-send.1":     {".I text", ".SH EXIT STATUS"},
	} {
		text, err := os.ReadFile(filepath.Join(dir, page))
		if err != nil {
			t.Fatal(err)
		}
		for _, part := range want {
			if part == "--cron" {
				part = `\-\-cron`
			}
			if !strings.Contains(string(text), part) {
				t.Errorf("%s lacks %q:\n%s", page, part, text)
			}
		}
		if strings.Contains(string(text), "__") {
			t.Errorf("%s names a hidden command", page)
		}
	}
	if testing.Short() {
		t.Skip("starts processes")
	}
	groff, err := exec.LookPath("groff")
	if err != nil {
		t.Skip("groff is not here to check the pages")
	}
	pages, err := filepath.Glob(filepath.Join(dir, "*.1"))
	if err != nil || len(pages) < 30 {
		t.Fatalf("%d pages: %v", len(pages), err)
	}
	if out, err := exec.CommandContext(t.Context(), groff, append([]string{"-man", "-Tutf8", "-ww", "-z"}, pages...)...).CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("groff: %v\n%s", err, out)
	}
}

// The table of a command line has only the command with which it begins. Help and errors must be
// the same as with the whole table.
func TestTheTableOfOneCommandAnswersAsTheWholeOneDoes(t *testing.T) {
	t.Parallel()
	whole := newTableBench(t, &commands{})
	lines := [][]string{{}, {"statu"}, {"--help"}, {"-q"}, {"--", "status"}, {"--no-notes", "status", "--help"}, {"status", "cron", "list"}, {"cron", "status"}}
	err := kong.Visit(whole.parser.Model, func(node kong.Visitable, next kong.Next) error {
		if n, ok := node.(*kong.Node); ok && n.Type == kong.CommandNode {
			words := strings.Fields(strings.TrimPrefix(n.Path(), "laneway "))
			for _, more := range [][]string{{"--help"}, {"--no-such-flag"}, {"one", "more", "word", "than", "any", "command"}, {"-q", "-h"}} {
				lines = append(lines, append(slices.Clip(words), more...))
			}
		}
		return next(nil)
	})
	if err != nil || len(lines) < 200 {
		t.Fatalf("%d command lines, %v", len(lines), err)
	}
	parts := map[reflect.Type]*tableBench{}
	for _, line := range lines {
		table := tableFor(line)
		part := parts[reflect.TypeOf(table)]
		if part == nil {
			part = newTableBench(t, table)
			parts[reflect.TypeOf(table)] = part
		}
		if got, want := part.answer(line), whole.answer(line); got != want {
			t.Errorf("laneway %s:\n%s\nwith the whole table:\n%s", strings.Join(line, " "), got, want)
		}
	}
	if len(parts) != len(whole.parser.Model.Children)+1 {
		t.Errorf("%d tables for %d commands", len(parts), len(whole.parser.Model.Children))
	}
}

// tableBench is a parser of one table and its output.
type tableBench struct {
	*bench
	parser *kong.Kong
}

func newTableBench(t *testing.T, table any) *tableBench {
	t.Helper()
	b := newBench("")
	parser, err := newParser(b.env, table)
	if err != nil {
		t.Fatal(err)
	}
	return &tableBench{b, parser}
}

// answer returns what the parser prints and returns for a command line; no command runs.
func (b *tableBench) answer(line []string) (text string) {
	b.stdout.Reset()
	b.stderr.Reset()
	defer func() {
		if stop, ok := recover().(exitNow); ok {
			text = "exits with " + strconv.Itoa(int(stop)) + "\n" + b.stdout.String() + b.stderr.String()
		}
	}()
	parsed, err := b.parser.Parse(line)
	if err != nil {
		return explainUsage(err, line).Error()
	}
	return "runs " + parsed.Command()
}

func TestMissedNamesSayWhatExists(t *testing.T) {
	t.Parallel()
	for command, want := range map[string]string{
		"cron get nosuch":             "there is no job nosuch; see laneway cron list --all",
		"cron get digst":              "there is no job digst; see laneway cron list --all; did you mean digest?",
		"cron why nosuch":             "there is no job nosuch; see laneway cron list --all",
		"cron runs digst":             "there is no job digst; see laneway cron list --all; did you mean digest?",
		"scheduler pause digst":       "there is no job digst; see laneway cron list --all; did you mean digest?",
		"scheduler status digst":      "there is no job digst; see laneway scheduler list; did you mean digest?",
		"sessions show absent":        "there is no session absent; see laneway sessions list",
		"sessions reset absent":       "there is no session absent; see laneway sessions list",
		"runs --lane mian":            "there is no lane mian; the lanes are main; did you mean main?",
		"pair dismiss nosuch":         "there is no request nosuch; see laneway pair list",
		"pair revoke nosuch":          "nosuch is not the number of a user; see laneway pair list",
		"status --url foo":            `"foo" is not the address of a gateway; write ws://127.0.0.1:18790, wss://HOST or HOST:PORT`,
		"status --url ws://foo:99999": `"ws://foo:99999" is not the address of a gateway; write ws://127.0.0.1:18790, wss://HOST or HOST:PORT`,
	} {
		t.Run(command, func(t *testing.T) {
			t.Parallel()
			b := newBench("")
			code := run(t.Context(), strings.Fields(command), b.env)
			if got := strings.TrimSpace(b.stderr.String()); code == exitOK || got != "laneway: "+want {
				t.Errorf("it prints %q, want %q", got, want)
			}
		})
	}
}

func TestTablesFitTheTerminal(t *testing.T) {
	t.Parallel()
	id := "01a20407-2faa-7889-a9cd-183379d0f483"
	rows := [][]string{
		{"NAME", "SCHEDULE", "STATE", "ID"},
		{"a name of several words", "at Sun 22 Nov 2026 16:12:49 UTC", "enabled", id},
		{"unbroken" + strings.Repeat("x", 60), "every 10s", "paused", id},
	}
	for _, width := range []int{120, 80, 60, 40, 20} {
		lines, hidden := fitted(rows, width)
		var whole strings.Builder
		for _, line := range lines {
			if n := total(widthsOf([][]string{line})); n > width {
				t.Errorf("%d columns: %q has %d", width, line, n)
			}
			whole.WriteString(strings.ReplaceAll(line[0], " ", ""))
		}
		if !strings.Contains(whole.String(), rows[2][0]) || !strings.Contains(whole.String(), "anameofseveralwords") {
			t.Errorf("%d columns: names are not complete: %q", width, lines)
		}
		if n := len(hidden); n > 0 != (width <= 40) {
			t.Errorf("%d columns: %q are hidden: %q", width, hidden, lines)
		}
	}
	if lines, _ := fitted(rows, 0); len(lines) != 3 || lines[1][3] != id {
		t.Errorf("without a terminal the table is changed: %q", lines)
	}
}

func TestShortenedIdsAreFoundAgain(t *testing.T) {
	t.Parallel()
	ids := []string{"01a20407-2faa-7889-a9cd-183379d0f483", "01a20407-2fc0-7443-8d85-380a78d200ed", "short"}
	list := func() ([]string, error) { return ids, nil }
	for _, id := range ids {
		if got, err := wholeID(shortID(id), list); err != nil || got != id {
			t.Errorf("%s is shortened to %s, which means %q, %v", id, shortID(id), got, err)
		}
	}
	if got, err := wholeID("01a…", list); err == nil {
		t.Errorf("two ids are %s", got)
	}
}

// tty is a terminal as wide as a number of columns.
type tty struct {
	width, row, column int
	rows               [][]rune // the second column of a wide character is 0
}

func (s *tty) Write(p []byte) (int, error) {
	for text := p; len(text) > 0; {
		if found := sequences.FindSubmatch(text); found != nil {
			n, _ := strconv.Atoi(string(found[1]))
			switch text = text[len(found[0]):]; string(found[2]) {
			case "A":
				s.row = max(0, s.row-max(n, 1))
			case "B":
				s.row += max(n, 1)
			case "C":
				s.column = min(s.column+max(n, 1), s.width-1)
			case "J":
				s.rows = s.rows[:min(s.row+1, len(s.rows))]
				if s.row < len(s.rows) {
					s.rows[s.row] = s.rows[s.row][:min(s.column, len(s.rows[s.row]))]
				}
			}
			continue
		}
		r, n := utf8.DecodeRune(text)
		switch text = text[n:]; r {
		case '\r':
			s.column = 0
		case '\n':
			s.row++
		default:
			s.put(r)
		}
	}
	return len(p), nil
}

func (s *tty) put(r rune) {
	columns := columnsOf(r)
	if s.column+columns > s.width {
		s.row, s.column = s.row+1, 0
	}
	for len(s.rows) <= s.row {
		s.rows = append(s.rows, nil)
	}
	for len(s.rows[s.row]) < s.column+columns {
		s.rows[s.row] = append(s.rows[s.row], ' ')
	}
	s.rows[s.row][s.column] = r
	if columns == 2 {
		s.rows[s.row][s.column+1] = 0
	}
	s.column += columns
}

func (s *tty) String() string {
	var b strings.Builder
	for _, row := range s.rows {
		b.WriteString(strings.TrimRight(strings.ReplaceAll(string(row), "\x00", ""), " ") + "\n")
	}
	return strings.TrimRight(b.String(), "\n")
}

// chunks reads one piece at a time, and ends after each.
type chunks struct{ next string }

func (p *chunks) Read(b []byte) (int, error) {
	n := copy(b, p.next)
	p.next = p.next[n:]
	if n == 0 {
		return 0, io.EOF
	}
	return n, nil
}

// Answers arrive while a line of wide characters, longer than the terminal, is typed and corrected.
func TestWideAndWrappedLinesStayWholeBelowAnswers(t *testing.T) {
	t.Parallel()
	const left, back = "\x1b[D", "\x7f"
	for _, columns := range []int{7, 8, 11, 12, 20, 80} {
		for seed := range 60 {
			dice := rand.New(rand.NewPCG(uint64(seed), uint64(columns)))
			screen, keys := &tty{width: columns}, &chunks{}
			terminal := term.NewTerminal(struct {
				io.Reader
				io.Writer
			}{keys, &lastLine{to: screen, width: func() int { return columns }}}, "")
			_ = terminal.SetSize(endless, 1)
			e := &editor{terminal: terminal, prompt: "\x1b[1m> \x1b[0m"}
			e.ready()
			var line []rune
			at, answers := 0, ""
			for range 40 {
				switch n := dice.IntN(10); {
				case n < 5:
					word := []rune([]string{"日本語", "ab", "한", "é", " ", "x", "ｆｕｌｌ"}[dice.IntN(7)])
					keys.next = string(word)
					line, at = slices.Insert(line, at, word...), at+len(word)
				case n < 7 && at > 0:
					keys.next, line, at = back, slices.Delete(line, at-1, at), at-1
				case n < 9 && at > 1: // with the cursor at its beginning, x/term takes the line for empty
					keys.next, at = left, at-1
				case len(line) > 0 && at > 0:
					e.above("答え of a job\n")
					answers += "答え of a job\r\n"
				}
				_, _ = terminal.ReadLine()
				want := &tty{width: columns}
				_, _ = want.Write([]byte(answers + "> " + string(line)))
				if screen.String() != want.String() {
					t.Fatalf("%d columns, seed %d, line %q:\n%s\nwant\n%s", columns, seed, string(line), screen, want)
				}
				cursor := &tty{width: columns}
				_, _ = cursor.Write([]byte(answers + "> " + string(line[:at])))
				if cursor.column == columns {
					cursor.row, cursor.column = cursor.row+1, 0
				}
				if [2]int{screen.row, screen.column} != [2]int{cursor.row, cursor.column} {
					t.Fatalf("%d columns, seed %d, line %q: the cursor is at %d:%d, want %d:%d", columns, seed, string(line), screen.row, screen.column, cursor.row, cursor.column)
				}
			}
		}
	}
}
