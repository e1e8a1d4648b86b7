package telegram

import (
	"bytes"
	"encoding/json"
	"errors"
	"html"
	"math/rand/v2"
	"os"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/extension"

	"laneway/internal/chat"
	"laneway/internal/testrun"
	"laneway/internal/testtelegram"
)

func TestRender(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ in, want string }{
		"plain":           {"hello", "hello"},
		"escapes":         {"1 < 2 & 3 > 2 \"q\" \\*no\\* &amp; &lt;b&gt; &copy;", "1 &lt; 2 &amp; 3 &gt; 2 &quot;q&quot; *no* &amp; &lt;b&gt; ©"},
		"styles":          {"**bold** *italic* ~~gone~~ `code`", "<b>bold</b> <i>italic</i> <s>gone</s> <code>code</code>"},
		"nested":          {"**a *b* `c` d**", "<b>a <i>b</i> </b><code>c</code><b> d</b>"},
		"paragraphs":      {"one\n\ntwo\nthree", "one\n\ntwo\nthree"},
		"heading":         {"# Title\ntext", "<b>Title</b>\n\ntext"},
		"link":            {"[site](https://example.org/?a=1&b=2)", `<a href="https://example.org/?a=1&amp;b=2">site</a>`},
		"other link":      {"[file](javascript:alert(1)) [x](/relative)", "file (javascript:alert(1)) x (/relative)"},
		"code in link":    {"[`x`](https://example.org)", "<code>x</code> (https://example.org)"},
		"part code":       {"[see `x`](https://example.org)", `<a href="https://example.org">see </a><code>x</code>`},
		"two of one":      {"[a](https://example.org) [`b`](https://example.org)", `<a href="https://example.org">a</a> <code>b</code> (https://example.org)`},
		"invisible link":  {"x [\u200b](https://example.org)", "x <a href=\"https://example.org\">\u200b</a>https://example.org"},
		"mail":            {"[us](mailto:a@example.org)", "us (mailto:a@example.org)"},
		"no dot in host":  {"[here](http://localhost:8080/x)", "here (http://localhost:8080/x)"},
		"person":          {"[Anna](tg://user?id=7)", `<a href="tg://user?id=7">Anna</a>`},
		"bold link":       {"**see [*x*](https://example.org)**", `<b>see </b><a href="https://example.org"><b><i>x</i></b></a>`},
		"link to link":    {"[![a cat](https://example.org/cat.png)](https://example.org)", `<a href="https://example.org">a cat (https://example.org/cat.png)</a>`},
		"link in table":   {"| a |\n|---|\n| [b](https://example.org) |", "<pre>a\nb (https://example.org)</pre>"},
		"reference":       {"see [it][1]\n\n[1]: https://example.org\n[2]: https://unused.example", "see <a href=\"https://example.org\">it</a>\n\n2: https://unused.example"},
		"autolink":        {"<https://example.org>", "https://example.org"},
		"picture":         {"![a cat](https://example.org/cat.png)", `<a href="https://example.org/cat.png">a cat</a>`},
		"fence":           {"```go\nx := 1 < 2\n\ny\n```\nafter", "<pre><code class=\"language-go\">x := 1 &lt; 2\n\ny</code></pre>\n\nafter"},
		"odd language":    {"```<script>\nx\n```", "<pre>x</pre>"},
		"list":            {"- a\n- b\n  - c\n    more\n\n1. x\n2. y", "• a\n• b\n  • c\n    more\n\n1. x\n2. y"},
		"tasks":           {"- [x] done\n- [ ] open", "• ☑ done\n• ☐ open"},
		"link like a box": {"- [x](https://example.org) y\n- [ ]", `• <a href="https://example.org">x</a> y` + "\n• ☐ "},
		"quote":           {"> one\n>\n> two\n\nafter", "<blockquote>one\n\ntwo</blockquote>\n\nafter"},
		"quote in quote":  {"> a\n> > b", "<blockquote>a\n\nb</blockquote>"},
		"code in quote":   {"> ```\n> x\n> ```", "<blockquote><pre>x</pre></blockquote>"},
		"table":           {"| a | long |\n|---|---|\n| b | c |", "<pre>a | long\nb | c</pre>"},
		"text, table":     {"intro\n| a |\n|---|\n| b |\n---\nend", "<b>intro</b>\n\n<pre>a\nb</pre>\n\nend"},
		"rule":            {"a\n\n---\n\nb", "a\n\n———\n\nb"},
		"html":            {"<div>x</div>\n\na <b>c</b> d<br>e", "&lt;div&gt;x&lt;/div&gt;\n\na &lt;b&gt;c&lt;/b&gt; d\ne"},
		"unfinished":      {"**bold and `code", "**bold and `code"},
		"open fence":      {"```py\nprint(1", "<pre><code class=\"language-py\">print(1</code></pre>"},
	} {
		d := render(c.in)
		if got := d.html(0, len(d.text)); got != c.want {
			t.Errorf("%s:\n got %q\nwant %q", name, got, c.want)
		}
	}
}

func TestSplitPrefersBorders(t *testing.T) {
	t.Parallel()
	block := strings.Repeat("word ", 300) // 1500 units
	for name, c := range map[string]struct {
		in    string
		parts int
		ends  string // of the first part, without white space
	}{
		"between blocks":     {block + "END\n\n" + block + "END\n\n" + block + "END", 2, "END"},
		"between lines":      {strings.Repeat(strings.Repeat("x", 99)+"\n", 60), 2, "x"},
		"between words":      {strings.Repeat("word ", 1500), 2, "word"},
		"a word of no end":   {strings.Repeat("x", 9000), 3, "x"},
		"emoji count double": {strings.Repeat("😀", 4096), 2, "😀"},
	} {
		parts := render(c.in).chunks(maxUnits)
		if len(parts) != c.parts || !strings.HasSuffix(strings.TrimSpace(parts[0].plain), c.ends) {
			t.Errorf("%s: %d parts, the first ends with %q", name, len(parts), parts[0].plain[max(0, len(parts[0].plain)-20):])
		}
	}
}

func TestSplitReopensFences(t *testing.T) {
	t.Parallel()
	parts := render("before\n\n```go\n" + strings.Repeat("x := 1 // <tag>\n", 600) + "```\nafter").chunks(maxUnits)
	if len(parts) < 3 {
		t.Fatalf("%d parts", len(parts))
	}
	for i, p := range parts {
		opens, closes := strings.Count(p.html, `<pre><code class="language-go">`), strings.Count(p.html, "</code></pre>")
		if opens != 1 || closes != 1 {
			t.Errorf("part %d opens %d fences and closes %d", i, opens, closes)
		}
	}
	if !strings.HasPrefix(parts[0].plain, "before") || !strings.HasSuffix(parts[len(parts)-1].plain, "after") {
		t.Error("the text around the fence is gone")
	}
}

// TestPlainFormKeepsEveryAddress: the form without tags has the address of each link after its
// words, at any place of the markup.
func TestPlainFormKeepsEveryAddress(t *testing.T) {
	t.Parallel()
	for name, markdown := range map[string]string{
		"link": "[a](%)", "bold": "**[a](%)**", "in bold": "[**a** b](%)", "heading": "# [a](%)", "list": "- [a](%)", "quote": "> [a](%)", "table": "| a |\n|---|\n| [a](%) |",
		"picture": "![a](%)", "picture without words": "![](%)", "picture in a link": "[![a](%)](https://other.example)", "link around a picture": "[![a](https://other.example)](%)",
		"reference": "[a][1]\n\n[1]: %", "unused reference": "a\n\n[1]: %", "autolink": "<%>", "visible": "%", "code": "[`a`](%)", "strike": "~~[a](%)~~", "html": `<a href="%">a</a>`,
		"fence": "```\n[a](%)\n```", "deep": strings.Repeat("> ", 40) + "[a](%)", "nested styles": strings.Repeat("*a **", 80) + "[a](%)", "invisible": "[\u200b](%)", "footnote": "a[^1]\n\n[^1]: %",
		"defined twice": "[1]: https://other.example\n[1]: %\n\na [1]", "defined in a quotation": "> [1]: %\n\na", "word like a box": "- [x](%)", "box": "- [ ] [a](%)", "in an alt text": "![a [b](%) c](https://other.example)",
	} {
		for _, to := range []string{"https://x.example/a?b=1&c=(2)", "tg://user?id=7", "mailto:a@x.example", "ftp://x.example/a", "http://localhost/a", "https://x.example/__init__.py", "https://x.example/web/*/a/*/~~b~~/c"} {
			d := render(strings.ReplaceAll(markdown, "%", to))
			if got := d.addressed(0, len(d.text)); !strings.Contains(got, to) {
				t.Errorf("%s: %s is not in %q", name, to, got)
			}
			if got := d.html(0, len(d.text)); !strings.Contains(got, escape(to)) {
				t.Errorf("%s: %s is not in %q", name, to, got)
			}
		}
	}
	for _, markdown := range []string{"[a](%)", "![a](%)", "[a][1]\n\n[1]: %", "a\n\n[1]: %"} {
		d := render(strings.ReplaceAll(markdown, "%", `https://x.example/a\_b\(c\)?d=1&amp;e=2&copy=3`))
		if got, want := d.addressed(0, len(d.text)), "https://x.example/a_b(c)?d=1&e=2&copy=3"; !strings.Contains(got, want) {
			t.Errorf("%q: %s is not in %q", markdown, want, got)
		}
	}
	d := render("[one](https://one.example)[two *x*](https://two.example) [https://three.example](https://three.example)")
	if got, want := d.addressed(0, len(d.text)), "one (https://one.example)two x (https://two.example) https://three.example"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestNothingToSend(t *testing.T) {
	t.Parallel()
	for _, in := range []string{"", " \n\n ", "```\n```", "```\n\n\n\n```", "\u200b"} {
		if parts := render(in).chunks(maxUnits); len(parts) != 0 {
			t.Errorf("%q: %d parts", in, len(parts))
		}
	}
}

// checkParts checks what must be true for every input: Telegram accepts each part, the joined parts
// are the document, and they have every word that the input has for its readers. It returns the
// number of parts.
func checkParts(t *testing.T, markdown string, limit int) int {
	t.Helper()
	d := render(markdown)
	whole := d.String()
	if !utf8.ValidString(whole) {
		t.Fatalf("the document is not UTF-8: %q", whole)
	}
	rest, parts := whole, d.chunks(limit)
	for i, p := range parts {
		plain, entities, nested, err := testtelegram.ParseHTML(p.html)
		switch {
		case err != nil:
			t.Fatalf("part %d of %q: %v in %q", i, markdown, err, p.html)
		case nested != "":
			t.Fatalf("part %d of %q: %s in %q", i, markdown, nested, p.html)
		case plain != p.plain:
			t.Fatalf("part %d of %q reads %q with tags and %q without", i, markdown, plain, p.plain)
		case len(entities) > testtelegram.MaxEntities || testtelegram.EntityBytes(entities) > testtelegram.MaxEntityBytes:
			t.Fatalf("part %d of %q has %d entities with %d bytes", i, markdown, len(entities), testtelegram.EntityBytes(entities))
		case testtelegram.Units(plain) > limit && utf8.RuneCountInString(plain) > 1:
			t.Fatalf("part %d has %d units, %d are allowed", i, testtelegram.Units(plain), limit)
		}
		at := strings.Index(rest, p.plain)
		if at < 0 || strings.TrimFunc(rest[:at], invisible) != "" {
			t.Fatalf("part %d of %q is not what comes next: %q before %q", i, markdown, p.plain, rest)
		}
		rest = rest[at+len(p.plain):]
	}
	if strings.TrimFunc(rest, invisible) != "" {
		t.Fatalf("%q is missing at the end of %q", rest, markdown)
	}
	checkWords(t, markdown, parts)
	return len(parts)
}

// randomMarkdown puts pieces of Markdown, words and odd characters together.
func randomMarkdown(rng *rand.Rand) string {
	pieces := []string{
		"**", "*", "_", "~~", "`", "```", "```go\n", "\n", "\n\n", "> ", "- ", "1. ", "# ", "| a | b |\n|---|---|\n| c | d |\n", "[", "](", ")",
		"https://example.org/a?b=c&d", "<b>", "</b>", "<", ">", "&", "&lt;", "\\", "word", " ", "    ", "😀", "é", "日本語", "\u200b", "\x00", "\xff", "\t",
		"---\n", "![x](y)", "<!-- c -->", "<br>", "[x] ", "\"", "~~~\n", "a\u0301", "\u202e", "👩‍👩‍👧",
	}
	var b strings.Builder
	for range rng.IntN(60) {
		b.WriteString(strings.Repeat(pieces[rng.IntN(len(pieces))], 1+rng.IntN(3)))
	}
	return b.String()
}

func TestManyTexts(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("long")
	}
	texts := testrun.Size(1000, 1_000_000)
	rng := rand.New(rand.NewPCG(uint64(texts), 7))
	most := 0
	for i := range texts {
		if i%10 != 0 {
			checkParts(t, randomMarkdown(rng), 1+rng.IntN(80))
			continue
		}
		// The limit of Telegram, and text beyond it.
		text := randomMarkdown(rng) + "x\n"
		text = strings.Repeat(text, maxUnits*(1+rng.IntN(2))/testtelegram.Units(text)+1)
		most = max(most, checkParts(t, text, maxUnits))
	}
	if most < 3 {
		t.Errorf("the longest document had %d parts at the real limit", most)
	}
}

func FuzzParts(f *testing.F) {
	f.Add("**bold** `code` [x](https://example.org)\n```go\nx\n```\n> quote", 10)
	f.Add("| a | b |\n|---|---|\n| c | d |", 3)
	f.Add(strings.Repeat("> ", 50)+"deep", 5)
	f.Add("😀😀😀", 1)
	f.Fuzz(func(t *testing.T, markdown string, limit int) {
		// Every limit that the fuzzer generates is mapped to a valid one, so no input is skipped.
		limit = 1 + ((limit-1)%maxUnits+maxUnits)%maxUnits
		checkParts(t, markdown[:min(len(markdown), 1<<14)], limit)
	})
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"update_id":1,"message":{"message_id":1,"date":1,"chat":{"id":7,"type":"private"},"text":"x"}}`))
	f.Add([]byte(`{"update_id":1,"callback_query":{"id":"1","from":{"id":7},"message":null}}`))
	f.Add([]byte(`{"update_id":1,"message":null}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		u, err := decode(raw)
		if err == nil && u.id <= 0 {
			t.Fatalf("an update without a number was read: %q", raw)
		}
	})
}

func FuzzUnits(f *testing.F) {
	f.Add("@bot hello", 0, 4)
	f.Add("😀@bot", 2, 4)
	f.Fuzz(func(t *testing.T, s string, offset, length int) {
		part := units(s, offset, length)
		if !strings.Contains(s, part) {
			t.Fatalf("%q is no part of %q", part, s)
		}
	})
}

// TestRenderingCostsNoMoreThanTheText: the work for an answer grows linearly from 64 KiB to 1 MiB.
// It is measured in allocated bytes, because time would measure the machine.
func TestRenderingCostsNoMoreThanTheText(t *testing.T) { //nolint:paralleltest // counts what is allocated
	if testing.Short() {
		t.Skip("long")
	}
	for name, unit := range map[string]string{
		"lines of code":    "x := 1 // <tag>\n",
		"lines of text":    "A line of an answer.\n",
		"paragraphs":       "A paragraph with **bold** and `code` and [a link](https://example.org).\n\n",
		"items of a list":  "- an *item*\n",
		"rows of a table":  "| a | b |\n",
		"words of no text": "word ",
	} {
		before := map[string]string{"lines of code": "```go\n", "rows of a table": "| a | b |\n|---|---|\n"}[name]
		cost := func(size int) uint64 {
			in := before + strings.Repeat(unit, size/len(unit))
			var from, to runtime.MemStats
			runtime.ReadMemStats(&from)
			render(in).chunks(maxUnits)
			runtime.ReadMemStats(&to)
			return to.TotalAlloc - from.TotalAlloc
		}
		cost(1 << 10)
		if small, large := cost(1<<16), cost(1<<20); large > 24*small {
			t.Errorf("%s: 64 KiB take %d KiB and 1 MiB takes %d KiB", name, small>>10, large>>10)
		}
	}
}

// TestMarksNextToIdeographs: the cases are shared with the page and the terminal.
func TestMarksNextToIdeographs(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile("testdata/marks.json")
	if err != nil {
		t.Fatal(err)
	}
	var cases []struct{ Markdown, Shown string }
	if err := json.Unmarshal(data, &cases); err != nil || len(cases) < 20 {
		t.Fatalf("%d cases: %v", len(cases), err)
	}
	for _, c := range cases {
		d := render(c.Markdown)
		if got := strings.ReplaceAll(d.html(0, len(d.text)), "&quot;", `"`); got != c.Shown {
			t.Errorf("%s:\n got %s\nwant %s", c.Markdown, got, c.Shown)
		}
	}
}

// TestMarksWithoutIdeographsAreUnchanged compares with goldmark alone.
func TestMarksWithoutIdeographsAreUnchanged(t *testing.T) {
	t.Parallel()
	standard := goldmark.New(goldmark.WithExtensions(extension.Strikethrough))
	ours := goldmark.New(goldmark.WithExtensions(extension.Strikethrough, marks{}))
	rng := rand.New(rand.NewPCG(5, 5))
	for range testrun.Size(3000, 300_000) {
		src := []byte(strings.ReplaceAll(randomMarkdown(rng)+"**a.**b *(c)*d ~~e~~", "日本語", "é"))
		var want, got bytes.Buffer
		if err := errors.Join(standard.Convert(src, &want), ours.Convert(src, &got)); err != nil || want.String() != got.String() {
			t.Fatalf("%q:\n got %q\nwant %q, %v", src, got.String(), want.String(), err)
		}
	}
}

// letters returns the sequences of letters in a string.
func letters(s string) []string {
	return strings.FieldsFunc(s, func(r rune) bool { return !unicode.IsLetter(r) })
}

// missing returns the first of the words that text does not contain after the previous ones, "" if
// it contains them all in order.
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

// checkWords checks that the parts have every word of the page that goldmark itself renders. If the
// Markdown has nothing that can hide a word (addresses, entities, names of languages, <br>), they
// must have every word of the input.
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

// When the map of chats is full, entries without a cooldown make space for new chats, and a running
// cooldown stays.
func TestACooldownOutlivesAFullMemory(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter()
		l.cool(1, time.Hour)
		for id := int64(2); id < 2*maxChats; id++ {
			l.spare(id, false)
		}
		if d := l.cooldown(1); d != time.Hour {
			t.Errorf("the cooldown is %s, want 1h", d)
		}
		if n := len(l.chats); n > maxChats {
			t.Errorf("%d chats are remembered, the bound is %d", n, maxChats)
		}
		for id := int64(2); id < 2*maxChats; id++ {
			l.cool(id, time.Minute)
		}
		if n := len(l.chats); n > maxChats {
			t.Errorf("%d cooldowns are remembered, the bound is %d", n, maxChats)
		}
	})
}

// A cooldown of the bot applies to calls for every chat and for no chat; a cooldown of a chat
// applies to its calls alone. The longer one counts.
func TestCooldowns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter()
		want := func(chat int64, d time.Duration) {
			t.Helper()
			if got := l.cooldown(chat); got != d {
				t.Errorf("the cooldown for %d is %s, want %s", chat, got, d)
			}
		}
		l.cool(1, 30*time.Second)
		l.cool(1, 10*time.Second)
		want(1, 30*time.Second)
		want(2, 0)
		want(anyChat, 0)
		l.cool(anyChat, 20*time.Second)
		want(1, 30*time.Second)
		want(2, 20*time.Second)
		want(anyChat, 20*time.Second)
		if l.spare(2, false) {
			t.Error("a sign goes out during the cooldown of the bot")
		}
		if delay, global := l.try(2); delay != 20*time.Second || !global {
			t.Errorf("a message waits %s, global = %v", delay, global)
		}
		time.Sleep(30 * time.Second)
		want(1, 0)
		if delay, _ := l.try(1); delay != 0 {
			t.Errorf("after the cooldown a message waits %s", delay)
		}
	})
}

// A reader of a link sees which host it opens when its words name another one.
func TestLinksThatNameAnotherHostShowTheirOwn(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"bank.example", "https://bank.example", "BANK.EXAMPLE", "www.bank.example", "bank.example.", "bank.example:443", "https://bank.example/a?b", "bank\u200b.example", "ba\u00adnk.exa\u2060mple",
		"bank\uff0eexample", "bank\u3002example", "bank\uff61example", "bank\u2024example", "bank%2eexample", "https%3A%2F%2Fbank.example", "https://evil.example@bank.example", "https://bank.example@evil.example",
		"evil.example and bank.example", "bücher.example", "b\u0430nk.example", "evil.example.bank.example", "https://intranet", "mail@bank.example", "ｂａｎｋ.example", "evi\u04cf.example", "http://2130706433",
	} {
		if !misnames(text, "evil.example") {
			t.Errorf("%q hides the host", text)
		}
	}
	for text, host := range map[string]string{
		"evil.example": "evil.example", "EVIL.example": "www.evil.example", "www.evil.example": "evil.example.", "https://evil.example:8080/a": "evil.example", "read this": "evil.example",
		"100 % sure": "evil.example", "anna@evil.example": "evil.example", "http://[::1]:80/": "::1",
	} {
		if misnames(text, host) {
			t.Errorf("%q does not hide %s", text, host)
		}
	}
	for in, want := range map[string]string{
		"[bank.example](https://evil.example/a)":        `<a href="https://evil.example/a">bank.example</a> (evil.example)`,
		"[see **bank.example**](https://evil.example)":  `<a href="https://evil.example">see <b>bank.example</b></a> (evil.example)`,
		"![bank.example](https://evil.example/cat.png)": `<a href="https://evil.example/cat.png">bank.example</a> (evil.example)`,
		"[evil.example](https://evil.example/a)":        `<a href="https://evil.example/a">evil.example</a>`,
	} {
		var got strings.Builder
		for _, c := range render(in).chunks(maxUnits) {
			got.WriteString(c.html)
		}
		if got.String() != want {
			t.Errorf("%s becomes %s, want %s", in, got.String(), want)
		}
	}
}
