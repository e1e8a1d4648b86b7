package testrun

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/creack/pty"
)

// Terminal is a command on a pseudo terminal, as a person uses it. Close ends it.
type Terminal struct {
	cmd  *exec.Cmd
	tty  *os.File
	done chan struct{} // the command has closed the terminal

	mu      sync.Mutex
	written []byte
	seen    int // how much of the shown text Await has passed
}

// escapes are the sequences with which a line editor moves the cursor and clears a line; rewritten
// is a line that begins again.
var (
	escapes   = regexp.MustCompile(`\x1b\[[0-9;?]*[A-Za-z]`)
	rewritten = regexp.MustCompile(`(?m)^.*\r`)
)

// shown returns the lines of the terminal, without its width and height.
func (t *Terminal) shown() string {
	text := strings.ReplaceAll(escapes.ReplaceAllString(string(t.written), ""), "\r\n", "\n")
	return rewritten.ReplaceAllString(text, "")
}

// OpenTerminal starts a command on a terminal of 24 lines and 108 columns.
func OpenTerminal(cmd *exec.Cmd) (*Terminal, error) {
	tty, err := pty.StartWithSize(cmd, &pty.Winsize{Rows: 24, Cols: 108})
	if err != nil {
		return nil, fmt.Errorf("starting %s on a terminal: %w", cmd.Path, err)
	}
	t := &Terminal{cmd: cmd, tty: tty, done: make(chan struct{})}
	go t.read()
	return t, nil
}

// read collects the output until the command has ended.
func (t *Terminal) read() {
	defer close(t.done)
	part := make([]byte, 4096)
	for {
		n, err := t.tty.Read(part)
		t.mu.Lock()
		t.written = append(t.written, part[:n]...)
		t.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// Type types text; \r is the Enter key.
func (t *Terminal) Type(text string) error {
	_, err := io.WriteString(t.tty, text)
	return err
}

// Await waits until the output has a match after what was awaited before.
func (t *Terminal) Await(ctx context.Context, pattern *regexp.Regexp) error {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		t.mu.Lock()
		shown := t.shown()
		t.seen = min(t.seen, len(shown)) // a line may have begun again
		rest := shown[t.seen:]
		at := pattern.FindStringIndex(rest)
		if at != nil {
			t.seen += at[1]
		}
		t.mu.Unlock()
		if at != nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("the terminal does not show %s: %q: %w", pattern, rest, ctx.Err())
		}
	}
}

// Shown returns the output so far.
func (t *Terminal) Shown() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.shown()
}

// Leave presses Ctrl-D and waits for the end of the command.
func (t *Terminal) Leave() error {
	err := t.Type("\x04")
	<-t.done
	return errors.Join(err, t.cmd.Wait(), t.tty.Close())
}
