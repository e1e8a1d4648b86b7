package telegram

import (
	"html"
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"
	"unicode"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/extension"

	"laneway/internal/chat"
)

// letters returns the sequences of letters in a string.
func letters(s string) []string {
	return strings.FieldsFunc(s, func(r rune) bool { return !unicode.IsLetter(r) })
}

// missing returns the first of the words that text does not contain after the previous ones, "" if it contains them all in order.
func missing(words []string, text string) string {
	for _, word := range words {
		i := strings.Index(text, word)
		if i < 0 {
			return word
		}
		text = text[i+len(word):]
	}
	return ""
}

func joined(parts []chunk) string {
	var b strings.Builder
	for _, p := range parts {
		b.WriteString(p.plain)
	}
	return b.String()
}

var tags = regexp.MustCompile(`<[^>]*>`)

// checkWords checks that the parts have every word of the page that goldmark itself renders. If the Markdown has nothing that can hide a word
// (addresses, entities, names of languages, <br>), they must have every word of the input.
func checkWords(t *testing.T, markdown string, parts []chunk) {
	t.Helper()
	read, source := joined(parts), chat.CleanText(markdown)
	var page strings.Builder
	md := goldmark.New(goldmark.WithExtensions(extension.Strikethrough, extension.Table, extension.TaskList))
	if err := md.Convert([]byte(source), &page); err != nil {
		t.Fatal(err)
	}
	shown := []string{page.String()}
	if strings.Contains(page.String(), "</table>\n<h") { // text above a table may be below it on that page
		shown = strings.SplitAfter(page.String(), "\n")
	}
	for _, s := range shown {
		if word := missing(letters(html.UnescapeString(tags.ReplaceAllString(s, " "))), read); word != "" {
			t.Fatalf("%q is on the page of %q and not in %q", word, markdown, read)
		}
	}
	for _, hides := range []string{"[", "&", "```", "~~~", "br"} {
		if strings.Contains(strings.ToLower(source), hides) {
			return
		}
	}
	if word := missing(letters(source), read); word != "" {
		t.Fatalf("%q is in %q and not in %q", word, markdown, read)
	}
}

// writer writes Markdown in which each word occurs once and is meant to be read.
type writer struct {
	rng   *rand.Rand
	words []string
}

func (w *writer) word() string {
	n, word := len(w.words), []byte("w")
	for range 4 {
		word, n = append(word, byte('a'+n%26)), n/26
	}
	w.words = append(w.words, string(word))
	return string(word)
}

func (w *writer) inline(depth int) string {
	if depth == 0 {
		return w.word()
	}
	switch w.rng.IntN(10) {
	case 0:
		return "**" + w.inline(depth-1) + "**"
	case 1:
		return "*" + w.inline(depth-1) + "*"
	case 2:
		return "~~" + w.word() + "~~"
	case 3:
		return "`" + w.word() + " < " + w.word() + "`"
	case 4:
		return "[" + w.inline(depth-1) + "](https://example.org/?a&b)"
	case 5:
		return "[" + w.inline(depth-1) + "](/" + w.word() + ")"
	case 6:
		return "![" + w.word() + " " + w.word() + "](https://example.org/cat.png)"
	case 7:
		return "<https://" + w.word() + ".example.org>"
	case 8:
		return "<b>" + w.inline(depth-1) + "</b>\\" + w.word() + " {#" + w.word() + " ." + w.word() + "}"
	default:
		return w.inline(depth-1) + " " + w.inline(depth-1)
	}
}

// block returns one block that ends with a line break, nested at most depth times.
func (w *writer) block(depth int) string {
	if depth == 0 {
		return w.inline(2) + "\n" + w.inline(2) + "\n"
	}
	switch w.rng.IntN(8) {
	case 0:
		return "# " + w.inline(2) + "\n"
	case 1:
		return "```go\n" + w.word() + " **" + w.word() + "\n\n" + w.word() + "\n```\n"
	case 2:
		return "| " + w.inline(1) + " | " + w.inline(1) + " |\n|---|:-:|\n| " + w.inline(1) + " |\n| " + w.word() + " | " + w.word() + " | " + w.word() + " | " + w.word() + " |\n"
	case 3:
		return "<div>\n" + w.word() + "\n</div>\n"
	case 4:
		return indented("> ", "> ", w.block(depth-1)+"\n"+w.block(depth-1))
	case 5:
		return indented("- ", "  ", w.block(depth-1)+"\n"+w.block(depth-1))
	case 6:
		return indented("7. ", "   ", w.block(depth-1)+"\n"+w.block(depth-1))
	default:
		return indented(strings.Repeat("> ", 1+w.rng.IntN(60)), "", w.word()+"\n")
	}
}

// indented puts one prefix before the first line and another one before the further lines.
func indented(first, other, block string) string {
	lines := strings.Split(strings.TrimSuffix(block, "\n"), "\n")
	return first + strings.Join(lines, "\n"+other) + "\n"
}

// TestWordsSurvive: whatever markup a word is in, it is shown, after the words before it.
func TestWordsSurvive(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("long")
	}
	for i := range 2000 {
		w := &writer{rng: rand.New(rand.NewPCG(uint64(i), 4))}
		var b strings.Builder
		for range 1 + w.rng.IntN(5) {
			b.WriteString(w.block(w.rng.IntN(5)) + "\n")
		}
		read := joined(render(b.String()).chunks(20 + w.rng.IntN(200)))
		if word := missing(w.words, read); word != "" {
			t.Fatalf("text %d: %q is missing; %q became %q", i, word, b.String(), read)
		}
	}
}

// TestDeepTextIsRead: text that nests deeper than maxDepth is shown nevertheless.
func TestDeepTextIsRead(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("long")
	}
	for name, c := range map[string]struct{ in, want string }{
		"quotes":         {strings.Repeat("> ", 50) + "deep\n\nend", "deep end"},
		"lists":          {strings.Repeat("- ", 50) + "deep **bold**\n\nend", "deep bold end"},
		"lists, quotes":  {strings.Repeat("- > ", 50) + "a\n\nend", "a end"},
		"code in quotes": {strings.Repeat("> ", 50) + "    a **b**\n" + strings.Repeat("> ", 50) + "\n" + strings.Repeat("> ", 50) + "c", "a b c"},
		"table in lists": {strings.Repeat("- ", 50) + "a|b\n" + strings.Repeat("  ", 50) + "-|-\n" + strings.Repeat("  ", 50) + "c|d", "a b c d"},
		"pictures":       {"a " + strings.Repeat("![b", 200) + "c `d` <https://e.fg>" + strings.Repeat("](/h)", 200) + " i", "a bbb c d https e fg h h i"},
		"ten thousand":   {strings.Repeat(">", 10_000) + "deep", "deep"},
	} {
		read := joined(render(c.in).chunks(maxUnits))
		if word := missing(letters(c.want), read); word != "" {
			t.Errorf("%s: %q is missing in %q", name, word, chat.Cut(read, 500))
		}
	}
}

// TestExtraCellsAreRead: a row with more cells than its table has columns keeps them.
func TestExtraCellsAreRead(t *testing.T) {
	t.Parallel()
	d := render("> | a | b |\n> |---|---|\n> | c | d | e | f |\n> | g |")
	if want, got := "a | b\nc | d | e | f\ng | ", d.String(); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
