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

// console is a terminal: keys come from one file, text goes to the other.
type console struct{ in, out *os.File }

// openConsole returns nil when one of the two is no terminal.
func openConsole(in, out *os.File) *console {
	if !term.IsTerminal(int(in.Fd())) || !term.IsTerminal(int(out.Fd())) {
		return nil
	}
	return &console{in: in, out: out}
}

// confirm asks a question on the terminal; anything but y or yes is a no.
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

// screen is where a conversation is read and written: an edited line on a terminal, or plain lines of a pipe.
type screen interface {
	// readLine waits for the next line; io.EOF at the end of the input, which is Ctrl-D on a terminal. It is not called again after that.
	readLine() (string, error)
	// interrupts has a value after Ctrl-C; several that come quickly are one. nil = there are none.
	interrupts() <-chan struct{}
	io.Writer
	// ready shows that the next line is awaited.
	ready()
}

// pipe is the screen without a terminal: no prompt, no editing.
type pipe struct {
	lines *bufio.Reader
	io.Writer
}

func (p pipe) ready() {}

func (p pipe) interrupts() <-chan struct{} { return nil }

// readLine returns the last line even when no newline ends it. A line longer than a message may be is an error.
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

// editor is the screen on a terminal. The prompt is written like any other text, never by the terminal itself: the line is
// awaited while answers still arrive, and a prompt in front of each piece would split them.
type editor struct {
	terminal *term.Terminal
	fd       int
	before   *term.State
	prompt   string
	pressed  <-chan struct{}
}

// keyboard passes keys on, but Ctrl-C, which the line editor would take for the end of the input, now and at each following read.
type keyboard struct {
	from    io.Reader
	pressed chan<- struct{}
}

// hint asks once, however often it is called, and never waits.
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

// newEditor switches the terminal to raw mode; close switches it back. Tab completes words from the list.
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
func (e *editor) ready()                         { _, _ = e.terminal.Write([]byte(e.prompt)) } //nolint:errcheck // the next read fails then
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

// lineHistory is what was typed, newest first for the terminal, kept in a file of the data directory.
type lineHistory struct {
	path  string // "" = kept in memory only
	lines []string
}

// maxHistory is how many lines are kept.
const maxHistory = 500

// openHistory reads the file. A history that cannot be read is an empty one, and does not prevent the conversation.
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

// Add keeps a line; blank ones and repetitions of the last are left out.
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

// save writes the file anew with mode 0600: other accounts must not read what people write to an agent.
func (h *lineHistory) save() {
	text := strings.Join(h.lines, "\n") + "\n"
	if err := os.WriteFile(h.path, []byte(text), 0o600); err != nil && !errors.Is(err, os.ErrNotExist) {
		h.path = "" // the file cannot be written; no second attempt
	}
}

// Len is the number of lines.
func (h *lineHistory) Len() int { return len(h.lines) }

// At is a line, 0 = the newest.
func (h *lineHistory) At(i int) string { return h.lines[len(h.lines)-1-i] }
