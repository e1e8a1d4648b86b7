package cli

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/term"
	"golang.org/x/text/width"

	"laneway/internal/chat"
)

// console is a terminal: keys are read from one file, text is written to the other.
type console struct{ in, out *os.File }

// openConsole returns nil when one of the two is not a terminal.
func openConsole(in, out *os.File) *console {
	if !term.IsTerminal(int(in.Fd())) || !term.IsTerminal(int(out.Fd())) {
		return nil
	}
	return &console{in: in, out: out}
}

// confirm asks a question, and returns an error that says refused unless the answer is yes.
func (env *environment) confirm(question, refused string) error {
	if _, err := fmt.Fprint(env.stderr, oneLine(question)+" [y/N] "); err != nil {
		return err
	}
	answer, err := bufio.NewReader(env.stdin).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("reading the answer: %w", err)
	}
	if !slices.Contains([]string{"y", "yes"}, strings.ToLower(strings.TrimSpace(answer))) {
		return errors.New(refused)
	}
	return nil
}

// screen is the input and output of a conversation: edited lines on a terminal, or plain lines of a
// pipe.
type screen interface {
	// readLine waits for the next line; io.EOF at the end of the input, which is Ctrl-D on a
	// terminal. It is not called again after that.
	readLine() (string, error)
	// interrupts receives a value after Ctrl-C; several in quick succession count as one. nil = no
	// interrupts.
	interrupts() <-chan struct{}
	io.Writer
	// ready shows that the next line is expected.
	ready()
	// above shows lines above the line that is being typed, while the next one is expected.
	above(lines string)
}

// pipe is the screen without a terminal: no prompt, no editing.
type pipe struct {
	lines *bufio.Reader
	io.Writer
}

func (p pipe) ready() {}

func (p pipe) above(lines string) { _, _ = io.WriteString(p.Writer, lines) } // a closed output ends the next read as well

func (p pipe) interrupts() <-chan struct{} { return nil }

// readLine returns the last line even without a newline at its end. A line longer than the limit of
// a message is an error.
func (p pipe) readLine() (string, error) {
	var line []byte
	for {
		part, more, err := p.lines.ReadLine()
		if err != nil {
			return string(line), err
		}
		line = append(line, part...)
		if len(line) > maxMessage {
			return "", fmt.Errorf("a line of the input is longer than %d bytes; send it in parts", maxMessage)
		}
		if !more {
			return string(line), nil
		}
	}
}

// editor is the screen on a terminal. The prompt is written like any other text, never by the
// terminal itself: a line is read while answers arrive, and a prompt before each piece would split
// them.
//
// The lines are edited by golang.org/x/term, because answers are written while a line is typed, in
// pieces that are no whole lines, and to any terminal. peterh/liner cannot write while it reads;
// reeflective/readline reads from one global stream and asks the terminal for the place of the
// cursor between typed keys. What x/term lacks is the width of characters and the place of the
// prompt: [lastLine] draws for it.
type editor struct {
	terminal *term.Terminal
	fd       int
	before   *term.State
	prompt   string
	pressed  <-chan struct{}
}

// keyboard passes keys on, except Ctrl-C, which the line editor would treat as the end of the
// input, now and in each following read.
type keyboard struct {
	from    io.Reader
	pressed chan<- struct{}
}

// hint sends at most one pending value and does not block.
func hint(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

const ctrlC = 0x03

// Read implements [io.Reader].
func (k keyboard) Read(p []byte) (int, error) {
	for {
		n, err := k.from.Read(p)
		kept := p[:0]
		for _, key := range p[:n] {
			if key == ctrlC {
				hint(k.pressed)
				continue
			}
			kept = append(kept, key)
		}
		if len(kept) > 0 || err != nil {
			return len(kept), err
		}
	}
}

// newEditor switches the terminal to raw mode; close restores it. Tab completes words from the
// list.
func newEditor(c *console, history *lineHistory, prompt string, words func() []string) (*editor, error) {
	fd := int(c.in.Fd())
	before, err := term.MakeRaw(fd)
	if err != nil {
		return nil, fmt.Errorf("switching the terminal to raw mode: %w", err)
	}
	pressed := make(chan struct{}, 1)
	t := term.NewTerminal(struct {
		io.Reader
		io.Writer
	}{keyboard{c.in, pressed}, &lastLine{to: c.out, width: func() int { width, _, _ := term.GetSize(fd); return width }}}, "")
	_ = t.SetSize(endless, 1)
	t.History = history
	t.AutoCompleteCallback = func(line string, pos int, key rune) (string, int, bool) { return complete(line, pos, key, words()) }
	return &editor{terminal: t, fd: fd, before: before, prompt: prompt, pressed: pressed}, nil
}

func (e *editor) interrupts() <-chan struct{}    { return e.pressed }
func (e *editor) readLine() (string, error)      { return e.terminal.ReadLine() }
func (e *editor) Write(text []byte) (int, error) { return e.terminal.Write(text) }
func (e *editor) ready()                         { _, _ = e.terminal.Write([]byte(e.prompt)) }                      // the next read fails then
func (e *editor) above(lines string)             { _, _ = e.terminal.Write([]byte("\r\x1b[K" + lines + e.prompt)) } // as above
func (e *editor) close() error                   { return term.Restore(e.fd, e.before) }

// endless is the width of the terminal for the line editor, which then never wraps a line.
const endless = 1 << 20

// lastLine draws the last, unfinished line of a terminal, with the prompt and what is typed. What
// is written to it takes each character for one column of an endless line. lastLine knows the
// columns that each takes and where the terminal wraps, and draws from the first character that has
// changed.
type lastLine struct {
	to     io.Writer
	width  func() int // of the terminal; 0 = unknown
	glyphs []glyph
	at     int    // the cursor, in glyphs
	begun  []byte // an incomplete character or sequence
}

// glyph is a character, or a sequence that takes no column.
type glyph struct {
	text    string
	columns int
}

// sequences matches a sequence of a terminal at the beginning of a text.
var sequences = regexp.MustCompile("^\x1b(?:\\[([0-9;?]*)([@-~])|\\][^\x07\x1b]*(?:\x07|\x1b\\\\)|[^\\[\\]])")

// mostBegun bounds an incomplete sequence.
const mostBegun = 4096

// Write implements [io.Writer].
func (l *lastLine) Write(p []byte) (int, error) {
	d := drawing{width: l.width(), shown: slices.Clone(l.glyphs), at: l.at}
	if d.width < 2 {
		d.width = 80
	}
	text := slices.Concat(l.begun, p)
	l.begun = nil
	for len(text) > 0 {
		n := l.take(text, &d)
		if n == 0 {
			l.begun = text
			break
		}
		text = text[n:]
	}
	d.show(l.glyphs, l.at)
	_, err := l.to.Write(d.out)
	return len(p), err
}

// take applies the first character or sequence of a text and returns its length, 0 if it is not
// complete.
func (l *lastLine) take(text []byte, d *drawing) int {
	switch text[0] {
	case '\r':
		l.at = 0
		return 1
	case '\n':
		end := len(l.glyphs)
		for end > 0 && l.glyphs[end-1].text == " " { // what was erased may take rows
			end--
		}
		d.show(l.glyphs[:end], end)
		d.out = append(d.out, "\r\n"...)
		l.glyphs, l.at, d.shown, d.at = nil, 0, nil, 0
		return 1
	case '\x1b':
		return l.sequence(text, d)
	}
	if !utf8.FullRune(text) && len(text) < utf8.UTFMax {
		return 0
	}
	r, n := utf8.DecodeRune(text)
	l.put(glyph{string(r), columnsOf(r)})
	return n
}

func (l *lastLine) sequence(text []byte, d *drawing) int {
	found := sequences.FindSubmatch(text)
	if found == nil {
		if len(text) < mostBegun {
			return 0
		}
		return 1
	}
	n, _ := strconv.Atoi(string(found[1]))
	final := string(found[2])
	switch final {
	case "C":
		l.at = min(l.at+max(n, 1), len(l.glyphs))
	case "D":
		l.at = max(l.at-max(n, 1), 0)
	case "K":
		l.glyphs = l.glyphs[:l.at]
	case "J", "H": // the whole screen is cleared
		d.out = append(d.out, found[0]...)
		l.glyphs, l.at, d.shown, d.at = nil, 0, nil, 0
	default:
		l.put(glyph{string(found[0]), 0})
	}
	return len(found[0])
}

func (l *lastLine) put(g glyph) {
	if l.at < len(l.glyphs) {
		l.glyphs[l.at] = g
	} else {
		l.glyphs = append(l.glyphs, g)
	}
	l.at++
}

// columnsOf returns how many columns a character takes.
func columnsOf(r rune) int {
	switch {
	case unicode.In(r, unicode.Mn, unicode.Me, unicode.Cf):
		return 0
	case width.LookupRune(r).Kind() == width.EastAsianWide, width.LookupRune(r).Kind() == width.EastAsianFullwidth:
		return 2
	}
	return 1
}

// drawing is the output that changes what a terminal shows of the last line.
type drawing struct {
	out   []byte
	width int
	shown []glyph
	at    int
}

// show changes the line and the place of the cursor.
func (d *drawing) show(glyphs []glyph, at int) {
	same := 0
	for same < min(len(glyphs), len(d.shown)) && glyphs[same] == d.shown[same] {
		same++
	}
	if same < max(len(glyphs), len(d.shown)) {
		d.move(d.shown, d.at, same)
		if same < len(d.shown) {
			d.out = append(d.out, "\x1b[J"...)
		}
		for _, g := range glyphs[same:] {
			d.out = append(d.out, g.text...)
		}
		if _, column := d.place(glyphs, len(glyphs)); column == 0 && same < len(glyphs) {
			d.out = append(d.out, " \r"...) // the terminal wraps a full line only with the next character
		}
		d.at = len(glyphs)
	}
	d.move(glyphs, d.at, at)
	d.shown, d.at = slices.Clone(glyphs), at
}

// move moves the cursor between two glyphs.
func (d *drawing) move(glyphs []glyph, from, to int) {
	fromRow, fromColumn := d.place(glyphs, from)
	row, column := d.place(glyphs, to)
	switch {
	case row < fromRow:
		d.out = fmt.Appendf(d.out, "\x1b[%dA", fromRow-row)
	case row > fromRow:
		d.out = fmt.Appendf(d.out, "\x1b[%dB", row-fromRow)
	case column == fromColumn:
		return
	}
	if d.out = append(d.out, '\r'); column > 0 {
		d.out = fmt.Appendf(d.out, "\x1b[%dC", column)
	}
}

// place returns where a glyph begins.
func (d *drawing) place(glyphs []glyph, at int) (row, column int) {
	for _, g := range glyphs[:at] {
		if column+g.columns > d.width {
			row, column = row+1, 0
		}
		column += g.columns
	}
	if column == d.width {
		row, column = row+1, 0
	}
	return row, column
}

func complete(line string, pos int, key rune, words []string) (completed string, at int, ok bool) {
	if key != '\t' || pos != len(line) || !strings.HasPrefix(line, "/") {
		return "", 0, false
	}
	common := ""
	for _, word := range words {
		switch {
		case !strings.HasPrefix(word, line):
		case common == "":
			common = word
		default:
			common = commonPrefix(common, word)
		}
	}
	if len(common) <= len(line) {
		return "", 0, false
	}
	return common, len(common), true
}

func commonPrefix(a, b string) string {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return a[:n]
}

// lineHistory is the typed lines, newest first for the terminal, stored in a file of the data
// directory.
type lineHistory struct {
	path  string // "" = in memory only
	lines []string
}

// maxHistory is the number of lines in the history.
const maxHistory = 500

// openHistory reads the file. A history that cannot be read counts as empty, and does not prevent
// the conversation.
func openHistory(path string) *lineHistory {
	h := &lineHistory{path: path}
	text, err := os.ReadFile(path) // the user's own data directory
	if err != nil {
		return h
	}
	for line := range strings.Lines(string(text)) {
		h.remember(strings.TrimSuffix(line, "\n"))
	}
	return h
}

// Add adds a line, unless it is blank or repeats the last one.
func (h *lineHistory) Add(line string) {
	if h.remember(line) && h.path != "" {
		h.save()
	}
}

func (h *lineHistory) remember(line string) bool {
	if strings.TrimSpace(line) == "" || len(h.lines) > 0 && h.lines[len(h.lines)-1] == line {
		return false
	}
	h.lines = append(h.lines, line)
	h.lines = h.lines[max(0, len(h.lines)-maxHistory):]
	return true
}

// save rewrites the file with mode 0600: other accounts must not read what people write to an
// agent.
func (h *lineHistory) save() {
	text := strings.Join(h.lines, "\n") + "\n"
	if err := os.WriteFile(h.path, []byte(text), 0o600); err != nil && !errors.Is(err, os.ErrNotExist) {
		h.path = "" // the file cannot be written; no second attempt
	}
}

// Len returns the number of lines.
func (h *lineHistory) Len() int { return len(h.lines) }

// At returns a line, 0 = the newest.
func (h *lineHistory) At(i int) string { return h.lines[len(h.lines)-1-i] }

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

// markdown converts the Markdown of an answer to terminal styles while the answer grows. It shows
// each character as soon as its meaning is known, and holds back at most a marker. It supports
// headings, lists, quotations, code, bold and italic text; everything else is unchanged. A style
// ends with its line, so that an unmatched marker affects at most one line.
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
	scheme int    // how much of :// was shown; all of it = in an address
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
	case c == '\\' && !m.code:
		if len(m.held) == 1 && !last {
			return false
		}
		if len(m.held) > 1 && strings.IndexByte("*_~`\\", m.held[1]) >= 0 {
			m.held = m.held[1:]
		}
		m.show(out, m.held[0])
	case (c == '*' || c == '~') && !m.code:
		return m.marks(out, last)
	default:
		m.show(out, c)
	}
	return true
}

// marks handles a run of * or ~ as [chat.Flanks] says: *, ** and *** are italic, bold and both, ~~
// is struck through. A run that neither opens nor closes a style is shown, and one after a letter
// or digit of ASCII opens none before a character of these scripts: it is a multiplication, or part
// of a name.
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
	opens = opens && (!wordRune(before) || after >= wide)
	if m.scheme == len("://") && (wordRune(after) || after == '/') { // part of the address
		opens, closes = false, false
	}
	for run > 0 {
		style, n := m.nextStyle(mark, run, opens, closes)
		if style == nil {
			n = run // a part of a run has no other meaning than the whole
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

// nextStyle returns the style that the first marks of a run begin or end, and how many marks that
// takes; nil if none.
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

// wide is the first character of the scripts that need no spaces between words.
const wide = 0x1100

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
	switch {
	case c <= ' ' || c == '<' || c == '>' || c == '"' || c == ')':
		m.scheme = 0
	case m.scheme == len("://"):
	case c == "://"[m.scheme]:
		m.scheme++
	default:
		m.scheme = 0
	}
}

func (m *markdown) endLine(out *strings.Builder) {
	if m.bold || m.italic || m.strike || m.code || m.title || m.fenced {
		out.WriteString(styleReset)
	}
	m.bold, m.italic, m.strike, m.code, m.title, m.inLine = false, false, false, false, false, false
	m.show(out, '\n')
}
