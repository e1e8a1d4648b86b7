package cli

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"golang.org/x/term"
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

// confirm asks a question on the terminal; any answer except y or yes means no.
func (env *environment) confirm(question string) (bool, error) {
	if _, err := fmt.Fprint(env.stderr, oneLine(question)+" [y/N] "); err != nil {
		return false, err
	}
	answer, err := bufio.NewReader(env.stdin).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return false, fmt.Errorf("reading the answer: %w", err)
	}
	return slices.Contains([]string{"y", "yes"}, strings.ToLower(strings.TrimSpace(answer))), nil
}

// screen is the input and output of a conversation: edited lines on a terminal, or plain lines of a pipe.
type screen interface {
	// readLine waits for the next line; io.EOF at the end of the input, which is Ctrl-D on a terminal. It is not called again after that.
	readLine() (string, error)
	// interrupts receives a value after Ctrl-C; several in quick succession count as one. nil = no interrupts.
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

func (p pipe) above(lines string) { _, _ = io.WriteString(p.Writer, lines) } //nolint:errcheck // a closed output ends the next read as well

func (p pipe) interrupts() <-chan struct{} { return nil }

// readLine returns the last line even without a newline at its end. A line longer than the limit of a message is an error.
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

// editor is the screen on a terminal. The prompt is written like any other text, never by the terminal itself: a line is read while answers
// arrive, and a prompt before each piece would split them.
type editor struct {
	terminal *term.Terminal
	fd       int
	before   *term.State
	prompt   string
	pressed  <-chan struct{}
}

// keyboard passes keys on, except Ctrl-C, which the line editor would treat as the end of the input, now and in each following read.
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

// newEditor switches the terminal to raw mode; close restores it. Tab completes words from the list.
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
	}{keyboard{c.in, pressed}, c.out}, "")
	if width, height, err := term.GetSize(fd); err == nil && width > 0 {
		_ = t.SetSize(width, height) //nolint:errcheck // a wrong width only wraps a long line in another place
	}
	t.History = history
	t.AutoCompleteCallback = func(line string, pos int, key rune) (string, int, bool) { return complete(line, pos, key, words()) }
	return &editor{terminal: t, fd: fd, before: before, prompt: prompt, pressed: pressed}, nil
}

func (e *editor) interrupts() <-chan struct{}    { return e.pressed }
func (e *editor) readLine() (string, error)      { return e.terminal.ReadLine() }
func (e *editor) Write(text []byte) (int, error) { return e.terminal.Write(text) }
func (e *editor) ready()                         { _, _ = e.terminal.Write([]byte(e.prompt)) }                      //nolint:errcheck // the next read fails then
func (e *editor) above(lines string)             { _, _ = e.terminal.Write([]byte("\r\x1b[K" + lines + e.prompt)) } //nolint:errcheck // as above
func (e *editor) close() error                   { return term.Restore(e.fd, e.before) }
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

// lineHistory is the typed lines, newest first for the terminal, stored in a file of the data directory.
type lineHistory struct {
	path  string // "" = in memory only
	lines []string
}

// maxHistory is the number of lines in the history.
const maxHistory = 500

// openHistory reads the file. A history that cannot be read counts as empty, and does not prevent the conversation.
func openHistory(path string) *lineHistory {
	h := &lineHistory{path: path}
	text, err := os.ReadFile(path) //nolint:gosec // the user's own data directory
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

// save rewrites the file with mode 0600: other accounts must not read what people write to an agent.
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
