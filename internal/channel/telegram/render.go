package telegram

import (
	"bytes"
	"fmt"
	"html"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	east "github.com/yuin/goldmark/extension/ast"
	"github.com/yuin/goldmark/parser"
	rhtml "github.com/yuin/goldmark/renderer/html"
	"github.com/yuin/goldmark/text"
	"github.com/yuin/goldmark/util"
	"golang.org/x/text/unicode/norm"

	"laneway/internal/chat"
)

// style is the formatting of a piece of text. Styles are compared as values, so two neighbors with
// the same style become one piece. The fields are in the order in which their tags nest.
type style struct {
	quote bool
	pre   bool
	lang  string // of pre
	href  string
	bold, italic, strike,
	code bool
}

// piece is text in one style, from the end of the previous piece to its own end, a byte offset.
type piece struct {
	end int
	style
}

// border is how suitable a place is for a split.
type border int

const (
	borderLine  border = iota + 1 // between lines of one block
	borderBlock                   // between blocks
)

// document is a rendered answer: the text that people see, its pieces, and the borders where it may
// be split, by byte offset.
type document struct {
	text    string
	pieces  []piece
	borders map[int]border
}

// render turns Markdown into a document of what Telegram can show. What it cannot show (tables,
// headings, pictures, lists) becomes text with the same words. Every input is valid: what is not
// Markdown is text.
func render(markdown string) *document {
	src := []byte(chat.CleanText(markdown))
	md := goldmark.New(goldmark.WithExtensions(extension.Strikethrough, extension.Table, marks{}), goldmark.WithParserOptions(parser.WithInlineParsers(
		util.Prioritized(boxParser{extension.NewTaskCheckBoxParser()}, 0), util.Prioritized(addressParser{}, 480))))
	w := newWalker(src)
	defined := &definitions{Context: parser.NewContext()}
	w.blocks(md.Parser().Parse(text.NewReader(src), parser.WithContext(defined)), 0)
	w.unused(defined.all)
	return w.finish()
}

// definitions keeps each address that a text defines for links: of two under one name, goldmark
// keeps the first only.
type definitions struct {
	parser.Context

	all []parser.Reference
}

// AddReference implements parser.Context.
func (d *definitions) AddReference(r parser.Reference) {
	d.all = append(d.all, r)
	d.Context.AddReference(r)
}

// unused writes the addresses that are defined for links and that no link uses: Markdown hides
// them.
func (w *walker) unused(defined []parser.Reference) {
	for _, r := range defined {
		if w.used[string(r.Destination())] {
			continue
		}
		w.due(borderLine)
		w.write(string(r.Label()) + ": " + w.address(r.Destination()))
	}
}

// plain returns a document of the unchanged text, without parsing Markdown.
func plain(s string) *document {
	w := newWalker(nil)
	w.write(chat.CleanText(s))
	return w.finish()
}

// String returns the visible text.
func (d *document) String() string { return d.text }

// walker writes a tree of Markdown as a document. It has a method for each kind of node.
type walker struct {
	src  []byte
	doc  *document
	text strings.Builder // of the document
	now  style
	// gap is the separator before the next text: a line or a block.
	gap border
	// indent goes before every line of a nested list.
	indent string
	// used are the addresses of links and pictures.
	used map[string]bool
}

func newWalker(src []byte) *walker {
	return &walker{src: src, doc: &document{borders: map[int]border{}}, used: map[string]bool{}}
}

// finish returns the document that was written.
func (w *walker) finish() *document {
	w.doc.text = w.text.String()
	return w.doc
}

// maxDepth is the depth to which nested blocks are followed, and styles four times as deep; deeper
// text is shown without its structure.
const maxDepth = 32

// write adds text in the current style, with the separator that is due.
func (w *walker) write(s string) {
	if s == "" {
		return
	}
	if w.gap != 0 && w.text.Len() > 0 {
		between := style{quote: w.now.quote && w.lastQuoted()}
		w.add(strings.Repeat("\n", int(w.gap)), between)
		w.doc.borders[w.text.Len()] = w.gap
	}
	w.gap = 0
	w.add(s, w.now)
}

func (w *walker) lastQuoted() bool {
	n := len(w.doc.pieces)
	return n > 0 && w.doc.pieces[n-1].quote
}

func (w *walker) add(s string, st style) {
	if st.code || st.pre {
		st.bold, st.italic, st.strike, st.href = false, false, false, ""
	}
	if st.pre {
		st.code = false
	}
	w.text.WriteString(s)
	if n := len(w.doc.pieces); n > 0 && w.doc.pieces[n-1].style == st {
		w.doc.pieces[n-1].end = w.text.Len()
		return
	}
	w.doc.pieces = append(w.doc.pieces, piece{end: w.text.Len(), style: st})
}

// due requests a separator before the next text.
func (w *walker) due(b border) { w.gap = max(w.gap, b) }

// with runs f in a changed style.
func (w *walker) with(change func(*style), f func()) {
	before := w.now
	change(&w.now)
	f()
	w.now = before
}

func (w *walker) blocks(parent ast.Node, depth int) {
	for n := parent.FirstChild(); n != nil; n = n.NextSibling() {
		w.block(n, depth)
	}
}

func (w *walker) block(n ast.Node, depth int) {
	if depth > maxDepth {
		w.flat(n)
		return
	}
	switch n := n.(type) {
	case *ast.Heading:
		if t, ok := n.PreviousSibling().(*east.Table); !ok || !strayed(n, t) {
			w.heading(n, depth)
		}
	case *ast.Blockquote:
		w.due(borderBlock)
		w.with(func(s *style) { s.quote = true }, func() { w.blocks(n, depth+1) })
		w.due(borderBlock)
	case *ast.FencedCodeBlock:
		w.code(w.lines(n), string(n.Language(w.src)))
	case *ast.CodeBlock:
		w.code(w.lines(n), "")
	case *ast.List:
		w.list(n, depth)
	case *ast.ThematicBreak:
		w.due(borderBlock)
		w.write("———")
		w.due(borderBlock)
	case *ast.HTMLBlock:
		w.due(borderBlock)
		w.write(strings.TrimRight(w.lines(n), "\n"))
		w.due(borderBlock)
	case *east.Table:
		if h, ok := n.NextSibling().(*ast.Heading); ok && strayed(h, n) {
			w.heading(h, depth)
		}
		w.table(n)
	case *ast.TextBlock:
		w.inlines(n, depth)
		w.due(borderLine)
	default: // a paragraph
		w.due(borderBlock)
		w.inlines(n, depth)
		w.due(borderBlock)
	}
}

func (w *walker) heading(n *ast.Heading, depth int) {
	w.due(borderBlock)
	w.with(func(s *style) { s.bold = true }, func() { w.inlines(n, depth) })
	w.due(borderBlock)
}

// strayed reports whether a heading came before the table that the parser puts before it: lines
// right above a table that end with a line of dashes become a heading after it.
func strayed(h *ast.Heading, t *east.Table) bool {
	return h.Lines().Len() > 0 && t.FirstChild() != nil && h.Lines().At(0).Start < t.FirstChild().Pos()
}

// flat writes a block that nests too deep: the paragraphs, tables and code in it one below the
// other. It is not recursive, so it works at any depth.
func (w *walker) flat(top ast.Node) {
	each(top, func(n ast.Node) bool {
		switch n.(type) {
		case *ast.Blockquote, *ast.List, *ast.ListItem:
			return true
		}
		w.due(borderLine)
		w.block(n, 0)
		w.due(borderLine)
		return false
	}, func(ast.Node) {})
}

// each visits a tree in the order of its text: enter before the children of a node, which are left
// out when it returns false, and leave after them otherwise.
func each(top ast.Node, enter func(ast.Node) bool, leave func(ast.Node)) {
	n := top
	for {
		if enter(n) && n.FirstChild() != nil {
			n = n.FirstChild()
			continue
		}
		for n != top && n.NextSibling() == nil {
			n = n.Parent()
			leave(n)
		}
		if n == top {
			return
		}
		n = n.NextSibling()
	}
}

func (w *walker) lines(n ast.Node) string {
	var b strings.Builder
	if n.Type() == ast.TypeInline || n.Lines() == nil {
		return ""
	}
	for i := range n.Lines().Len() {
		line := n.Lines().At(i)
		b.Write(line.Value(w.src))
	}
	if h, ok := n.(*ast.HTMLBlock); ok && h.HasClosure() {
		b.Write(h.ClosureLine.Value(w.src))
	}
	return b.String()
}

func (w *walker) code(code, lang string) {
	w.due(borderBlock)
	if strings.TrimSpace(code) == "" {
		return
	}
	w.with(func(s *style) { s.pre, s.lang = true, cleanLang(lang) }, func() {
		lines := strings.SplitAfter(strings.TrimRight(code, "\n"), "\n")
		for i, line := range lines {
			w.write(line)
			if i < len(lines)-1 {
				w.doc.borders[w.text.Len()] = borderLine
			}
		}
	})
	w.due(borderBlock)
}

// cleanLang returns the name of a language if it is valid, otherwise "".
func cleanLang(s string) string {
	s = chat.Cut(s, 32)
	if strings.ContainsFunc(s, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("+-_.#", r)
	}) {
		return ""
	}
	return s
}

func (w *walker) list(l *ast.List, depth int) {
	nested := w.indent != "" || depth > 0 && l.Parent().Kind() == ast.KindListItem
	if nested {
		w.due(borderLine)
	} else {
		w.due(borderBlock)
	}
	outer, number := w.indent, l.Start
	for item := l.FirstChild(); item != nil; item = item.NextSibling() {
		mark := "• "
		if l.IsOrdered() {
			mark = fmt.Sprintf("%d. ", number)
			number++
		}
		w.due(borderLine)
		w.write(outer + mark)
		w.indent = outer + "  "
		w.item(item, depth+1)
		w.due(borderLine)
	}
	w.indent = outer
	if !nested {
		w.due(borderBlock)
	}
}

// item writes the blocks after a bullet: the first on the same line, the further ones below.
func (w *walker) item(item ast.Node, depth int) {
	for n := item.FirstChild(); n != nil; n = n.NextSibling() {
		first := n == item.FirstChild()
		switch n.(type) {
		case *ast.Paragraph, *ast.TextBlock:
			if !first {
				w.due(borderLine)
				w.write(w.indent)
			}
			w.inlines(n, depth)
			w.due(borderLine)
		default:
			if first {
				w.due(borderLine)
			}
			w.block(n, depth)
		}
	}
}

// table writes a table as text of fixed width: Telegram has no tables.
func (w *walker) table(t *east.Table) {
	var rows [][]string
	var widths []int
	for row := t.FirstChild(); row != nil; row = row.NextSibling() {
		var cells []string
		for cell := row.FirstChild(); cell != nil; cell = cell.NextSibling() {
			inner := newWalker(w.src)
			inner.used = w.used
			inner.inlines(cell, 0)
			d := inner.finish()
			cells = append(cells, strings.ReplaceAll(d.addressed(0, len(d.text)), "\n", " "))
			if i := len(cells) - 1; i == len(widths) {
				widths = append(widths, 0)
			}
			widths[len(cells)-1] = max(widths[len(cells)-1], utf8.RuneCountInString(cells[len(cells)-1]))
		}
		if more := w.beyond(row); more != "" {
			cells = append(cells, more)
		}
		rows = append(rows, cells)
	}
	var b strings.Builder
	for _, cells := range rows {
		for i, cell := range cells {
			if i > 0 {
				b.WriteString(" | ")
			}
			b.WriteString(cell)
			if i < len(cells)-1 {
				b.WriteString(strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell)))
			}
		}
		b.WriteByte('\n')
	}
	w.code(b.String(), "")
}

// beyond returns the text of a row after the last column of its table, "" if none. Other Markdown
// renderers drop it.
func (w *walker) beyond(row ast.Node) string {
	cell := row.LastChild()
	if cell == nil || cell.Lines().Len() == 0 {
		return ""
	}
	rest, _, _ := bytes.Cut(w.src[cell.Lines().At(0).Stop:], []byte("\n"))
	return strings.Trim(string(rest), "| \t\r")
}

func (w *walker) inlines(parent ast.Node, depth int) {
	for n := parent.FirstChild(); n != nil; n = n.NextSibling() {
		w.inline(n, depth+1)
	}
}

func (w *walker) inline(n ast.Node, depth int) {
	if depth > 4*maxDepth {
		w.leaves(n)
		return
	}
	switch n := n.(type) {
	case *ast.Text:
		w.write(w.unescape(n.Value(w.src), n.IsRaw()))
		if n.SoftLineBreak() || n.HardLineBreak() {
			w.newline()
		}
	case *ast.String:
		w.write(w.unescape(n.Value, n.IsRaw() || n.IsCode()))
	case *ast.Emphasis:
		w.with(func(s *style) { s.bold, s.italic = s.bold || n.Level > 1, s.italic || n.Level == 1 }, func() { w.inlines(n, depth) })
	case *east.Strikethrough:
		w.with(func(s *style) { s.strike = true }, func() { w.inlines(n, depth) })
	case *ast.CodeSpan:
		w.with(func(s *style) { s.code = true }, func() { w.codeSpan(n) })
	case *ast.Link:
		w.link(w.address(n.Destination), func() { w.inlines(n, depth) })
	case *ast.Image:
		w.picture(n, w.address(n.Destination), depth)
	case *ast.AutoLink:
		w.write(string(n.Label(w.src)))
	case *ast.RawHTML:
		w.rawHTML(n)
	case *east.TaskCheckBox:
		w.write(map[bool]string{true: "☑ ", false: "☐ "}[n.IsChecked])
	default:
		w.inlines(n, depth)
	}
}

// leaves writes an inline that nests too deep without its structure: its text in order, and the
// addresses of its links.
func (w *walker) leaves(top ast.Node) {
	each(top, func(n ast.Node) bool {
		if n.FirstChild() != nil && n.Kind() != ast.KindCodeSpan {
			return true
		}
		w.inline(n, 0)
		return false
	}, func(n ast.Node) {
		switch n := n.(type) {
		case *ast.Link:
			w.write(" (" + w.address(n.Destination) + ")")
		case *ast.Image:
			w.write(" (" + w.address(n.Destination) + ")")
		}
	})
}

// address returns the address of a link or a picture: its escapes are resolved.
func (w *walker) address(destination []byte) string {
	w.used[string(destination)] = true
	return strings.TrimSpace(w.unescape(destination, false))
}

func (w *walker) newline() {
	w.write("\n")
	w.doc.borders[w.text.Len()] = borderLine
	if w.indent != "" {
		w.write(w.indent)
	}
}

func (w *walker) codeSpan(n *ast.CodeSpan) {
	for c := n.FirstChild(); c != nil; c = c.NextSibling() {
		if t, ok := c.(*ast.Text); ok {
			w.write(strings.ReplaceAll(string(t.Value(w.src)), "\n", " "))
		}
	}
}

// link writes a link that Telegram opens; the address of any other link, and of one whose words
// cannot be a link or cannot be seen, is shown after its words.
func (w *walker) link(to string, label func()) {
	before, pieces := w.text.Len(), len(w.doc.pieces)
	if opens(to) {
		w.with(func(s *style) { s.href = to }, label)
	} else {
		label()
	}
	words := w.text.String()[min(before, w.text.Len()):]
	linked := slices.ContainsFunc(w.doc.pieces[max(0, pieces-1):], func(p piece) bool { return p.href == to && p.end > before })
	switch {
	case strings.TrimFunc(words, invisible) == "":
		w.write(to)
	case !linked && to != "" && strings.TrimSpace(words) != to:
		w.write(" (" + to + ")")
	case linked:
		if host := hostOf(to); misnames(words, host) {
			w.write(" (" + host + ")")
		}
	}
}

// hostOf is the host of an address that Telegram opens.
func hostOf(to string) string {
	u, err := url.Parse(to)
	if err != nil {
		return ""
	}
	return u.Hostname()
}

var (
	hostInText    = regexp.MustCompile(`[\p{L}\p{N}\p{M}_-]+(?:\.[\p{L}\p{N}\p{M}_-]+)+`)
	addressInText = regexp.MustCompile(`(?i)[a-z][a-z\d+.-]*:[\\/]{2,}([^\s\\/?#]+)`)
	pathInText    = regexp.MustCompile(`(://[^\s/?#]+)[/?#]\S*`)
)

// misnames reports whether a text names a host that is not the given one. Characters that cannot be
// seen do not count, and characters that look like a dot are one. A name in another script than the
// host is another one, even when both are the same in the end: the host is then shown twice.
func misnames(text, host string) bool {
	if plain, err := url.PathUnescape(text); err == nil {
		text = plain
	}
	likeDots := strings.NewReplacer("\u3002", ".", "\u0701", ".", "\u0702", ".", "\ua4f8", ".")
	text = likeDots.Replace(chat.Visible(norm.NFKC.String(text)))
	text = pathInText.ReplaceAllString(text, "$1") // the name of a file looks like a host
	named := hostInText.FindAllString(text, -1)
	for _, m := range addressInText.FindAllStringSubmatch(text, -1) {
		at := m[1][strings.LastIndexByte(m[1], '@')+1:]
		if inner, ok := strings.CutPrefix(at, "["); ok {
			at, _, _ = strings.Cut(inner, "]")
		} else {
			at, _, _ = strings.Cut(at, ":")
		}
		named = append(named, at)
	}
	same := func(name string) string {
		return strings.TrimSuffix(strings.TrimPrefix(strings.ToLower(name), "www."), ".")
	}
	return slices.ContainsFunc(named, func(name string) bool { return same(name) != same(host) })
}

// picture writes a picture as a link to it. Inside of a link its address follows its words, because
// the link is more important.
func (w *walker) picture(n *ast.Image, to string, depth int) {
	words := func() {
		if n.ChildCount() == 0 {
			w.write("picture")
		}
		w.inlines(n, depth)
	}
	if w.now.href == "" {
		w.link(to, words)
		return
	}
	words()
	if to != "" && to != w.now.href {
		w.write(" (" + to + ")")
	}
}

// opens reports whether Telegram makes a link of an address. It drops others in silence: those with
// another scheme, and those whose host has no dot.
func opens(to string) bool {
	if len(to) > 2000 || len(escape(to)) > maxMarkBytes/2 || strings.ContainsFunc(to, func(r rune) bool { return r <= ' ' || r == '"' || r == '<' || r == '>' }) {
		return false
	}
	u, err := url.Parse(to)
	switch {
	case err != nil:
		return false
	case strings.EqualFold(u.Scheme, "tg"):
		return u.Host != ""
	case strings.EqualFold(u.Scheme, "https"), strings.EqualFold(u.Scheme, "http"):
		host := u.Hostname()
		return strings.Contains(host, ":") || strings.Contains(strings.Trim(host, "."), ".")
	default:
		return false
	}
}

func (w *walker) rawHTML(n *ast.RawHTML) {
	var b strings.Builder
	for i := range n.Segments.Len() {
		segment := n.Segments.At(i)
		b.Write(segment.Value(w.src))
	}
	if tag := strings.ToLower(strings.Trim(b.String(), "</ >")); tag == "br" {
		w.newline()
		return
	}
	w.write(b.String())
}

// unescape resolves the escapes of Markdown: \* and &amp;.
func (w *walker) unescape(raw []byte, literal bool) string {
	if literal || !bytes.ContainsAny(raw, `\&`) {
		return string(raw)
	}
	var b bytes.Buffer
	out := bufWriter{&b}
	rhtml.DefaultWriter.Write(out, raw)
	return html.UnescapeString(b.String())
}

// bufWriter adapts a buffer to the writer that goldmark requires.
type bufWriter struct{ *bytes.Buffer }

// Available implements util.BufWriter of goldmark.
func (bufWriter) Available() int { return 4096 }

// Buffered returns 0: nothing is buffered here.
func (bufWriter) Buffered() int { return 0 }

// Flush does nothing.
func (bufWriter) Flush() error { return nil }

// marks is the extension of goldmark for * and ~ next to Chinese, Japanese and Korean characters.
// CommonMark decides by white space and punctuation whether a mark opens or closes, and these
// languages have no spaces between words, so that a mark after a full stop would close nothing.
// [chat.Flanks] is the rule. Text without such characters is read as before. The page and the
// terminal have the same rule; testdata/marks.json has their common cases.
type marks struct{}

// Extend implements goldmark.Extender.
func (marks) Extend(m goldmark.Markdown) {
	m.Parser().AddOptions(parser.WithInlineParsers(
		util.Prioritized(markParser{chars: "*_", longest: 0, node: func(n int) ast.Node { return ast.NewEmphasis(n) }}, 490),
		util.Prioritized(markParser{chars: "~", longest: 2, node: func(int) ast.Node { return east.NewStrikethrough() }}, 490),
	))
}

// markParser reads runs of one of its characters, of at most longest (0 = any), as marks. Its marks
// open and close nodes.
type markParser struct {
	chars   string
	longest int
	node    func(consumes int) ast.Node
}

// Trigger implements parser.InlineParser.
func (p markParser) Trigger() []byte { return []byte(p.chars) }

// Parse implements parser.InlineParser.
func (p markParser) Parse(_ ast.Node, block text.Reader, pc parser.Context) ast.Node {
	before := block.PrecendingCharacter()
	line, segment := block.PeekLine()
	d := parser.ScanDelimiter(line, before, 1, p)
	if d == nil || p.longest > 0 && (d.OriginalLength > p.longest || before == rune(d.Char)) {
		return nil
	}
	if d.Char != '_' { // _ is a letter of names, so its rule stays
		after := ' '
		if d.OriginalLength < len(line) {
			after, _ = utf8.DecodeRune(line[d.OriginalLength:])
		}
		d.CanOpen, d.CanClose = chat.Flanks(before, after)
	}
	d.Segment = segment.WithStop(segment.Start + d.OriginalLength)
	block.Advance(d.OriginalLength)
	pc.PushDelimiter(d)
	return d
}

// IsDelimiter implements parser.DelimiterProcessor.
func (p markParser) IsDelimiter(b byte) bool { return b == p.chars[0] || b == p.chars[len(p.chars)-1] }

// CanOpenCloser implements parser.DelimiterProcessor.
func (markParser) CanOpenCloser(opener, closer *parser.Delimiter) bool {
	return opener.Char == closer.Char
}

// OnMatch implements parser.DelimiterProcessor.
func (p markParser) OnMatch(consumes int) ast.Node { return p.node(consumes) }

// boxParser reads the box of a task. One that white space does not follow is the word of a link: an
// item that links to the site X is not a task.
type boxParser struct{ parser.InlineParser }

// Parse implements parser.InlineParser.
func (p boxParser) Parse(parent ast.Node, block text.Reader, pc parser.Context) ast.Node {
	if line, _ := block.PeekLine(); len(line) > len("[x]") && !util.IsSpace(line[len("[x]")]) {
		return nil
	}
	return p.InlineParser.Parse(parent, block, pc)
}

// addressParser reads an address that stands alone as text without marks: the underscores of
// /__init__.py and the asterisks of /web/*/page are parts of it. A mark after which the address
// does not continue ends it.
type addressParser struct{}

// Trigger implements parser.InlineParser.
func (addressParser) Trigger() []byte { return []byte{':'} }

// Parse implements parser.InlineParser.
func (addressParser) Parse(_ ast.Node, block text.Reader, _ parser.Context) ast.Node {
	line, segment := block.PeekLine()
	ahead := bytes.TrimRightFunc(block.Source()[:segment.Start], func(r rune) bool { return r < utf8.RuneSelf && unicode.IsLetter(r) })
	if !bytes.HasPrefix(line, []byte("://")) || len(ahead) == segment.Start {
		return nil
	}
	opened := ahead[len(bytes.TrimRight(ahead, "*_~")):]
	end, depth := len("://"), 0
scan:
	for end < len(line) {
		r, size := utf8.DecodeRune(line[end:])
		switch {
		case strings.ContainsRune("*_~", r):
			rest := bytes.TrimLeft(line[end:], "*_~")
			size = len(line) - end - len(rest)
			if len(opened) > 0 && bytes.Equal(line[end:end+size], opened) || len(rest) == 0 || !partOfAddress(rest[0]) {
				break scan
			}
		case r == '(':
			depth++
		case r == ')' && depth > 0:
			depth--
		case r <= ' ', strings.ContainsRune("<>\"`[]|\\^{})", r), r >= utf8.RuneSelf && !unicode.IsLetter(r) && !unicode.IsDigit(r) && !unicode.IsMark(r):
			break scan
		}
		end += size
	}
	block.Advance(end)
	n := ast.NewString(bytes.ReplaceAll(line[:end], []byte("&amp;"), []byte("&")))
	n.SetRaw(true)
	return n
}

// partOfAddress reports whether a character after a mark says that the mark is part of an address.
func partOfAddress(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("/.?=&%#-+", c) >= 0
}
