package cli

import (
	"regexp"
	"strings"
)

// Escape sequences of the styles that a terminal with colours shows.
const (
	styleReset  = "\x1b[0m"
	styleBold   = "\x1b[1m"
	styleDim    = "\x1b[2m"
	styleItalic = "\x1b[3m"
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
	code   bool
	title  bool // the line is a heading
	last   byte // of the line so far; 0 = none
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
	if m.bold || m.italic || m.code || m.title || m.fenced {
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
	m.inLine, m.last = true, 0
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
	case c == '*' && !m.code:
		return m.star(out, last)
	default:
		m.show(out, c)
	}
	return true
}

// star handles * and **: they begin a style before a word and end it after one, and are literal between spaces.
func (m *markdown) star(out *strings.Builder, last bool) bool {
	if len(m.held) < 3 && !last && strings.Trim(m.held, "*") == "" {
		return false
	}
	marker := len(m.held) - len(strings.TrimLeft(m.held, "*"))
	style, next := &m.italic, byte(' ')
	if marker = min(marker, 2); marker == 2 {
		style = &m.bold
	}
	if len(m.held) > marker {
		next = m.held[marker]
	}
	begins, ends := !*style && next != ' ' && next != '\n' && !wordByte(m.last), *style && m.last != ' ' && m.last != 0
	if begins || ends {
		m.toggle(out, style, marker)
		return true
	}
	for range marker {
		m.show(out, '*')
	}
	return true
}

// wordByte reports whether a character belongs to a word or a number: a marker after one is a multiplication, or part of a name.
func wordByte(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == ')' || c == ']'
}

func (m *markdown) toggle(out *strings.Builder, style *bool, marker int) {
	*style = !*style
	m.held = m.held[marker:]
	out.WriteString(styleReset)
	if m.bold || m.title {
		out.WriteString(styleBold)
	}
	if m.italic {
		out.WriteString(styleItalic)
	}
	if m.code {
		out.WriteString(styleCode)
	}
}

func (m *markdown) show(out *strings.Builder, c byte) {
	out.WriteByte(c)
	m.held, m.last = m.held[1:], c
}

func (m *markdown) endLine(out *strings.Builder) {
	if m.bold || m.italic || m.code || m.title || m.fenced {
		out.WriteString(styleReset)
	}
	m.bold, m.italic, m.code, m.title, m.inLine = false, false, false, false, false
	m.show(out, '\n')
}
