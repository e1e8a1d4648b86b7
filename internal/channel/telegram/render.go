package telegram

import (
	"bytes"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	east "github.com/yuin/goldmark/extension/ast"
	"github.com/yuin/goldmark/parser"
	"github.com/yuin/goldmark/text"

	"laneway/internal/chat"
)

// style is the formatting of a piece of text. Styles are compared as values, so two neighbors with the same style become one piece. The fields are in
// the order in which their tags nest.
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

// document is a rendered answer: the text that people see, its pieces, and the borders where it may be split, by byte offset.
type document struct {
	text    string
	pieces  []piece
	borders map[int]border
}

// render turns Markdown into a document of what Telegram can show. What it cannot show (tables, headings, pictures, lists) becomes text with the same
// words. Every input is valid: what is not Markdown is text.
func render(markdown string) *document {
	src := []byte(chat.CleanText(markdown))
	md := goldmark.New(goldmark.WithExtensions(extension.Strikethrough, extension.Table, extension.TaskList, marks{}))
	w := newWalker(src)
	defined := parser.NewContext()
	w.blocks(md.Parser().Parse(text.NewReader(src), parser.WithContext(defined)), 0)
	w.unused(defined.References())
	return w.finish()
}

// unused writes the addresses that are defined for links and that no link uses: Markdown hides them.
func (w *walker) unused(defined []parser.Reference) {
	for _, r := range defined {
		to := string(r.Destination())
		if w.used[to] {
			continue
		}
		w.due(borderLine)
		w.write(string(r.Label()) + ": " + to)
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

// maxDepth is the depth to which nested blocks are followed, and styles four times as deep; deeper text is shown without its structure.
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

// strayed reports whether a heading came before the table that the parser puts before it: lines right above a table that end with a line
// of dashes become a heading after it.
func strayed(h *ast.Heading, t *east.Table) bool {
	return h.Lines().Len() > 0 && t.FirstChild() != nil && h.Lines().At(0).Start < t.FirstChild().Pos()
}

// flat writes a block that nests too deep: the paragraphs, tables and code in it one below the other. It is not recursive, so it works at any depth.
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

// each visits a tree in the order of its text: enter before the children of a node, which are left out when it returns false, and leave
// after them otherwise.
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

// beyond returns the text of a row after the last column of its table, "" if none. Other Markdown renderers drop it.
func (w *walker) beyond(row ast.Node) string {
	cell := row.LastChild()
	if cell == nil || cell.Lines().Len() == 0 {
		return ""
	}
	rest, _, _ := bytes.Cut(w.src[cell.Lines().At(0).Stop:], []byte("\n"))
	return strings.Trim(string(rest), "| \t\r")
}
