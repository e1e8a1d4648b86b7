package telegram

import (
	"cmp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxUnits is the longest text of one message in UTF-16 units, counted without its tags.
const maxUnits = 4096

// minUnits is the smallest length of messages when Telegram finds them too long although they keep maxUnits.
const minUnits = 256

// chunk is one message: the same text with tags and without, and the offset in the document after it.
type chunk struct {
	html, plain string
	to          int
}

// chunks splits a document into messages: at a border of blocks if one is near enough, otherwise of lines, then of words, then
// between any two characters. Styles that continue are closed and opened again. The joined plain text is the document, without parts
// of only white space, which Telegram refuses.
func (d *document) chunks(limit int) []chunk { return d.chunksFrom(0, limit) }

// chunksFrom splits what begins at an offset.
func (d *document) chunksFrom(from, limit int) []chunk {
	whole := d.text
	var out []chunk
	for from < len(whole) {
		to := d.cut(whole, from, limit)
		if part := whole[from:to]; strings.TrimFunc(part, invisible) != "" {
			out = append(out, chunk{html: d.html(from, to), plain: part, to: to})
		}
		from = to
	}
	return out
}

// invisible reports whether Telegram treats a character as empty.
func invisible(r rune) bool { return unicode.IsSpace(r) || r == '\u200b' || r == '\u2060' }

// cut returns the end of the message that begins at from.
func (d *document) cut(whole string, from, limit int) int {
	hard := advance(whole, from, limit)
	if hard == len(whole) {
		return hard
	}
	near := from + (hard-from)/2 // a border before this would make a message too short
	line := 0
	for at := hard; at > near; at-- {
		switch d.borders[at] {
		case borderBlock:
			return at
		case borderLine:
			line = max(line, at)
		}
	}
	if line > 0 {
		return line
	}
	if i := strings.LastIndexFunc(whole[near:hard], unicode.IsSpace); i >= 0 {
		_, size := utf8.DecodeRuneInString(whole[near+i:])
		return near + i + size
	}
	return hard
}

// advance returns the offset after as many characters, starting at from, as fit into limit units; at least one.
func advance(s string, from, limit int) int {
	units := 0
	for i, r := range s[from:] {
		n := 1
		if r > 0xFFFF {
			n = 2
		}
		if units+n > limit && i > 0 {
			return from + i
		}
		units += n
	}
	return len(s)
}

// html returns the part of a document between two offsets with its tags.
func (d *document) html(from, to int) string {
	var b strings.Builder
	var open style
	first, _ := slices.BinarySearchFunc(d.pieces, from+1, func(p piece, at int) int { return cmp.Compare(p.end, at) })
	for _, p := range d.pieces[first:] {
		if from >= to {
			break
		}
		end := min(p.end, to)
		turn(&b, open, p.style)
		b.WriteString(escape(d.text[from:end]))
		open, from = p.style, end
	}
	turn(&b, open, style{})
	return b.String()
}

// tag is one open element.
type tag struct{ begin, end string }

// tags returns the elements of a style, the outermost first.
func (s style) tags() []tag {
	var t []tag
	add := func(on bool, begin, end string) {
		if on {
			t = append(t, tag{begin, end})
		}
	}
	add(s.quote, "<blockquote>", "</blockquote>")
	add(s.pre && s.lang == "", "<pre>", "</pre>")
	add(s.pre && s.lang != "", `<pre><code class="language-`+escape(s.lang)+`">`, "</code></pre>")
	add(s.href != "", `<a href="`+escape(s.href)+`">`, "</a>")
	add(s.bold, "<b>", "</b>")
	add(s.italic, "<i>", "</i>")
	add(s.strike, "<s>", "</s>")
	add(s.code, "<code>", "</code>")
	return t
}

// turn closes the elements that the next style does not have, the innermost first, and opens those that it adds.
func turn(b *strings.Builder, from, to style) {
	old, next := from.tags(), to.tags()
	same := 0
	for same < len(old) && same < len(next) && old[same] == next[same] {
		same++
	}
	for i := len(old) - 1; i >= same; i-- {
		b.WriteString(old[i].end)
	}
	for _, t := range next[same:] {
		b.WriteString(t.begin)
	}
}

// escape replaces the characters with a meaning in Telegram's HTML, which supports only these entities.
func escape(s string) string {
	if !strings.ContainsAny(s, "&<>\"") {
		return s
	}
	var b strings.Builder
	b.Grow(len(s) + 16)
	for i := range len(s) {
		switch s[i] {
		case '&':
			b.WriteString("&amp;")
		case '<':
			b.WriteString("&lt;")
		case '>':
			b.WriteString("&gt;")
		case '"':
			b.WriteString("&quot;")
		default:
			b.WriteByte(s[i])
		}
	}
	return b.String()
}
