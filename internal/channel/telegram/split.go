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

// minUnits is the smallest length of messages when Telegram finds them too long although they keep
// maxUnits.
const minUnits = 256

// maxMarks is the largest number of entities of a message: Telegram drops further ones in silence.
// maxMarkBytes is the most that its addresses and languages may have together, some less than the
// 9,500 bytes after which Telegram refuses a message. Both are halved at most maxHalvings times
// when Telegram still finds them too many.
const (
	maxMarks     = 100
	maxMarkBytes = 9000
	maxHalvings  = 3
)

// limits bound one message.
type limits struct {
	units    int // of text
	halvings int // of maxMarks and maxMarkBytes
}

// chunk is one message: its text with tags, "" if it goes without them, and the text alone; and
// where the reply continues after it, see [progress].
type chunk struct {
	html, plain string
	upTo        int
	within      int
}

// chunks splits a document into messages: at a border of blocks if one is near enough, otherwise of
// lines, then of words, then between any two characters. Styles that continue are closed and opened
// again. The joined plain text is the document, without parts of only white space, which Telegram
// refuses.
func (d *document) chunks(units int) []chunk { return d.chunksFrom(0, limits{units: units}) }

// chunksFrom splits what begins at an offset.
func (d *document) chunksFrom(from int, most limits) []chunk {
	whole := d.text
	var out []chunk
	for from < len(whole) {
		to := d.cut(whole, from, most)
		if part := whole[from:to]; strings.TrimFunc(part, invisible) != "" {
			out = append(out, chunk{html: d.html(from, to), plain: part, upTo: to})
		}
		from = to
	}
	return out
}

// rest returns the messages of a reply that have not arrived: first the part that Telegram refused
// with tags, and then the formatted one.
func (d *document) rest(done progress) []chunk {
	most := limits{units: cmp.Or(done.Limit, maxUnits), halvings: done.Halvings}
	if done.PlainTo <= done.UpTo {
		return d.chunksFrom(done.UpTo, most)
	}
	to := min(done.PlainTo, len(d.text))
	text := d.addressed(min(done.UpTo, to), to)
	out := lines(text).chunksFrom(min(done.Within, len(text)), most)
	for i := range out {
		out[i].html, out[i].within, out[i].upTo = "", out[i].upTo, done.UpTo
		if i == len(out)-1 {
			out[i].within, out[i].upTo = 0, to
		}
	}
	return append(out, d.chunksFrom(to, most)...)
}

// addressed returns a part of a document without tags: the address of each link follows its words.
func (d *document) addressed(from, to int) string {
	var b, label strings.Builder
	href := ""
	end := func() {
		b.WriteString(label.String())
		if href != "" && strings.TrimSpace(label.String()) != href {
			b.WriteString(" (" + href + ")")
		}
		label.Reset()
	}
	for _, p := range d.pieces[d.pieceAt(from):] {
		if from >= to {
			break
		}
		if p.href != href {
			end()
			href = p.href
		}
		stop := min(p.end, to)
		label.WriteString(d.text[from:stop])
		from = stop
	}
	end()
	return b.String()
}

// lines returns a document of text without tags whose lines are the places for a split.
func lines(text string) *document {
	d := &document{text: text, pieces: []piece{{end: len(text)}}, borders: map[int]border{}}
	for i := range len(text) {
		if text[i] == '\n' {
			d.borders[i+1] = borderLine
		}
	}
	return d
}

// pieceAt returns the index of the piece that has the byte at an offset.
func (d *document) pieceAt(offset int) int {
	i, _ := slices.BinarySearchFunc(d.pieces, offset+1, func(p piece, at int) int { return cmp.Compare(p.end, at) })
	return i
}

// invisible reports whether Telegram treats a character as empty.
func invisible(r rune) bool { return unicode.IsSpace(r) || r == '\u200b' || r == '\u2060' }

// cut returns the end of the message that begins at from.
func (d *document) cut(whole string, from int, most limits) int {
	hard := d.marked(from, advance(whole, from, most.units), most.halvings)
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

// advance returns the offset after as many characters, starting at from, as fit into limit units;
// at least one.
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

// marked returns the offset, at most to, up to which the styles of a message that begins at from
// keep the limits of entities; it is after from.
func (d *document) marked(from, to, halvings int) int {
	marks, size := 0, 0
	var last style
	start := from
	for _, p := range d.pieces[d.pieceAt(from):] {
		if start >= to {
			return to
		}
		more, bytes := p.cost(last)
		marks, size = marks+more, size+bytes
		if start > from && (marks > maxMarks>>halvings || size > maxMarkBytes>>halvings) {
			return start
		}
		start, last = p.end, p.style
	}
	return to
}

// cost returns how many entities and bytes of addresses and languages a piece adds to a message
// after a piece of another style. Telegram divides entities that overlap, so every piece has its
// own, except for the link and the quotation that it continues.
func (s style) cost(last style) (marks, size int) {
	for _, on := range []bool{s.bold, s.italic, s.strike, s.code, s.pre, s.pre && s.lang != "", s.quote && !last.quote, s.href != "" && s.href != last.href} {
		if on {
			marks++
		}
	}
	if s.href != last.href {
		size += len(escape(s.href))
	}
	return marks, size + len(s.lang)
}

// html returns the part of a document between two offsets with its tags.
func (d *document) html(from, to int) string {
	var b strings.Builder
	var open style
	for _, p := range d.pieces[d.pieceAt(from):] {
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

// turn closes the elements that the next style does not have, the innermost first, and opens those
// that it adds.
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

// escape replaces the characters with a meaning in Telegram's HTML, which supports only these
// entities.
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
