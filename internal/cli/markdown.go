package cli

import (
	"regexp"
	"strings"
	"unicode/utf8"

	"laneway/internal/chat"
)

// Escape sequences of the styles that a terminal with colours shows.
const (
	styleReset  = "\x1b[0m"
	styleBold   = "\x1b[1m"
	styleDim    = "\x1b[2m"
	styleItalic = "\x1b[3m"
	styleStrike = "\x1b[9m"
	styleCode   = "\x1b[36m" // cyan
	stylePrompt = "\x1b[1;36m"
	styleFault  = "\x1b[31m" // red
)

// markdown converts the Markdown of an answer to terminal styles while the answer grows. It shows each character as soon as its meaning is
// known, and holds back at most a marker. It supports headings, lists, quotations, code, bold and italic text; everything else is
// unchanged. A style ends with its line, so that an unmatched marker affects at most one line.
type markdown struct {
	held   string // not shown yet, because the next character decides its meaning
	inLine bool   // the beginning of the line has been decided
	fenced bool   // between two lines of backquotes
	bold   bool
	italic bool
	strike bool
	code   bool
	title  bool   // the line is a heading
	last   string // the last character of the line so far, "" = none
}

// lineStart matches everything that may still become the marker of a line.
var lineStart = regexp.MustCompile("^ {0,12}(#{0,6}|[-*+]|>|`{1,2})$")

// write returns the output for more text.
func (m *markdown) write(text string) string {
	var out strings.Builder
	for i := range len(text) {
		m.held += text[i : i+1]
		m.decide(&out, false)
	}
	return out.String()
}

// end returns what was held back, and ends every style.
func (m *markdown) end() string {
	var out strings.Builder
	m.decide(&out, true)
	if m.bold || m.italic || m.strike || m.code || m.title || m.fenced {
		out.WriteString(styleReset)
	}
	*m = markdown{}
	return out.String()
}

func (m *markdown) decide(out *strings.Builder, last bool) {
	for m.held != "" {
		if !m.inLine {
			if !last && (lineStart.MatchString(m.held) || fence.MatchString(m.held) && !strings.HasSuffix(m.held, "\n")) {
				return
			}
			m.begin(out)
			continue
		}
		if !m.step(out, last) {
			return
		}
	}
}

var (
	heading   = regexp.MustCompile(`^ {0,12}#{1,6} `)
	listItem  = regexp.MustCompile(`^( {0,12})[-*+] `)
	quotation = regexp.MustCompile(`^ {0,12}> ?`)
	fence     = regexp.MustCompile("^ {0,12}```")
)

// begin writes the marker of a line.
func (m *markdown) begin(out *strings.Builder) {
	m.inLine, m.last = true, ""
	if fence.MatchString(m.held) {
		line, newline := strings.CutSuffix(m.held, "\n")
		out.WriteString(styleDim + line + styleReset)
		if newline {
			out.WriteByte('\n')
		}
		m.fenced, m.inLine, m.held = !m.fenced, false, ""
		return
	}
	if m.fenced {
		out.WriteString(styleCode)
		return
	}
	switch {
	case heading.MatchString(m.held):
		m.held = m.held[len(heading.FindString(m.held)):]
		m.title = true
		out.WriteString(styleBold)
	case listItem.MatchString(m.held):
		m.held = listItem.ReplaceAllString(m.held, "$1• ")
	case quotation.MatchString(m.held):
		m.held = m.held[len(quotation.FindString(m.held)):]
		out.WriteString(styleDim + "│ " + styleReset)
	}
}

// step writes one character or handles one marker; false = the next character decides.
func (m *markdown) step(out *strings.Builder, last bool) bool {
	c := m.held[0]
	switch {
	case c == '\n':
		m.endLine(out)
	case m.fenced:
		m.show(out, c)
	case c == '`':
		m.toggle(out, &m.code, 1)
	case (c == '*' || c == '~') && !m.code:
		return m.marks(out, last)
	default:
		m.show(out, c)
	}
	return true
}

// marks handles a run of * or ~ as [chat.Flanks] says: *, ** and *** are italic, bold and both, ~~ is struck through. A run that neither opens nor closes a style is
// shown, and one after a letter or digit of ASCII opens none: it is a multiplication, or part of a name.
func (m *markdown) marks(out *strings.Builder, last bool) bool {
	mark := m.held[:1]
	run := len(m.held) - len(strings.TrimLeft(m.held, mark))
	if !last && (run == len(m.held) || !utf8.FullRuneInString(m.held[run:])) {
		return false
	}
	before, after := ' ', ' '
	if m.last != "" {
		before, _ = utf8.DecodeRuneInString(m.last)
	}
	if run < len(m.held) {
		after, _ = utf8.DecodeRuneInString(m.held[run:])
	}
	opens, closes := chat.Flanks(before, after)
	opens = opens && !wordRune(before)
	for run > 0 {
		style, n := m.nextStyle(mark, run, opens, closes)
		if style == nil {
			n = 1
			if mark == "~" {
				n = run
			}
			for range n {
				m.show(out, mark[0])
			}
		} else {
			m.toggle(out, style, n)
		}
		run -= n
	}
	m.last = mark
	return true
}

// nextStyle returns the style that the first marks of a run begin or end, and how many marks that takes; nil if none.
func (m *markdown) nextStyle(mark string, run int, opens, closes bool) (style *bool, n int) {
	switch {
	case mark == "~" && run == 2 && (m.strike && closes || !m.strike && opens):
		return &m.strike, 2
	case mark == "~":
		return nil, 0
	case closes && m.bold && run >= 2:
		return &m.bold, 2
	case closes && m.italic:
		return &m.italic, 1
	case opens && !m.bold && run >= 2:
		return &m.bold, 2
	case opens && !m.italic && run != 2:
		return &m.italic, 1
	default:
		return nil, 0
	}
}

// wordRune reports whether a character belongs to a word or a number of ASCII.
func wordRune(r rune) bool {
	return r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z'
}

func (m *markdown) toggle(out *strings.Builder, style *bool, marker int) {
	*style = !*style
	m.held, m.last = m.held[marker:], m.held[marker-1:marker]
	out.WriteString(styleReset)
	if m.bold || m.title {
		out.WriteString(styleBold)
	}
	if m.italic {
		out.WriteString(styleItalic)
	}
	if m.strike {
		out.WriteString(styleStrike)
	}
	if m.code {
		out.WriteString(styleCode)
	}
}

func (m *markdown) show(out *strings.Builder, c byte) {
	out.WriteByte(c)
	m.held = m.held[1:]
	if utf8.RuneStart(c) {
		m.last = ""
	}
	m.last += string([]byte{c})
}

func (m *markdown) endLine(out *strings.Builder) {
	if m.bold || m.italic || m.strike || m.code || m.title || m.fenced {
		out.WriteString(styleReset)
	}
	m.bold, m.italic, m.strike, m.code, m.title, m.inLine = false, false, false, false, false, false
	m.show(out, '\n')
}
