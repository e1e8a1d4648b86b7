package telegram

import (
	"bytes"
	"html"
	"strings"

	"github.com/yuin/goldmark/ast"
	east "github.com/yuin/goldmark/extension/ast"
	rhtml "github.com/yuin/goldmark/renderer/html"
)

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
		w.link(string(n.Destination), func() { w.inlines(n, depth) })
	case *ast.Image:
		w.link(string(n.Destination), func() {
			if n.ChildCount() == 0 {
				w.write("picture")
			}
			w.inlines(n, depth)
		})
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

// leaves writes an inline that nests too deep without its structure: its text in order, and the addresses of its links.
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
			w.write(" (" + string(n.Destination) + ")")
		case *ast.Image:
			w.write(" (" + string(n.Destination) + ")")
		}
	})
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

// link writes a link that Telegram opens; the address of any other link is shown after its text.
func (w *walker) link(to string, label func()) {
	to = strings.TrimSpace(to)
	before := w.text.Len()
	if opens(to) {
		w.with(func(s *style) { s.href = to }, label)
	} else {
		label()
	}
	switch {
	case w.text.Len() == before:
		w.write(to)
	case !opens(to) && to != "":
		w.write(" (" + to + ")")
	}
}

func opens(to string) bool {
	if len(to) > 2000 || strings.ContainsFunc(to, func(r rune) bool { return r <= ' ' || r == '"' || r == '<' || r == '>' }) {
		return false
	}
	for _, scheme := range []string{"https://", "http://", "tg://", "mailto:"} {
		if rest, found := strings.CutPrefix(strings.ToLower(to), scheme); found {
			return rest != ""
		}
	}
	return false
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
