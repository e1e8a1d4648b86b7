package telegram

import (
	"bytes"
	"html"
	"net/url"
	"slices"
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
		w.used[string(n.Destination)] = true
		w.link(string(n.Destination), func() { w.inlines(n, depth) })
	case *ast.Image:
		w.used[string(n.Destination)] = true
		w.picture(n, depth)
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
			w.used[string(n.Destination)] = true
			w.write(" (" + string(n.Destination) + ")")
		case *ast.Image:
			w.used[string(n.Destination)] = true
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

// link writes a link that Telegram opens; the address of any other link, and of one whose words cannot be a link or cannot be seen, is shown after its words.
func (w *walker) link(to string, label func()) {
	to = strings.TrimSpace(to)
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
	}
}

// picture writes a picture as a link to it. Inside of a link its address follows its words, because the link is more important.
func (w *walker) picture(n *ast.Image, depth int) {
	words := func() {
		if n.ChildCount() == 0 {
			w.write("picture")
		}
		w.inlines(n, depth)
	}
	if w.now.href == "" {
		w.link(string(n.Destination), words)
		return
	}
	words()
	if to := strings.TrimSpace(string(n.Destination)); to != "" && to != w.now.href {
		w.write(" (" + to + ")")
	}
}

// opens reports whether Telegram makes a link of an address. It drops others in silence: those with another scheme, and those whose host has no dot.
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
