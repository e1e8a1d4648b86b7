package cli

import (
	"bytes"
	"errors"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"
)

// openPTY opens a pair of pseudo terminals: what is written to keyboard is typed on the terminal.
func openPTY(t *testing.T) (keyboard, terminal *os.File) {
	t.Helper()
	keyboard, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.IoctlSetPointerInt(int(keyboard.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	number, err := unix.IoctlGetInt(int(keyboard.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	terminal, err = os.OpenFile("/dev/pts/"+strconv.Itoa(number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	return keyboard, terminal
}

// watch collects the output of the terminal and closes seen[i] when wants[i] has appeared after
// wants[i-1].
func watch(keyboard *os.File, wants []string) (seen []chan struct{}, screen *strings.Builder, over chan struct{}) {
	screen, over = &strings.Builder{}, make(chan struct{})
	for range wants {
		seen = append(seen, make(chan struct{}))
	}
	go func() {
		defer close(over)
		buffer, next, from := make([]byte, 4096), 0, 0
		for {
			n, err := keyboard.Read(buffer)
			screen.Write(buffer[:n])
			for next < len(wants) {
				i := strings.Index(screen.String()[from:], wants[next])
				if i < 0 {
					break
				}
				from += i + len(wants[next])
				close(seen[next])
				next++
			}
			if err != nil { // the other end was closed
				return
			}
		}
	}()
	return seen, screen, over
}

func TestChatOnATerminal(t *testing.T) {
	t.Parallel()
	keyboard, terminal := openPTY(t)
	b := newBench("", "LANEWAY_URL", startGateway(t, &echoBackend{}), "HOME", t.TempDir(), "NO_COLOR", "1")
	b.env.dial, b.env.stdout = dialAs("", 0), terminal
	b.env.terminal = &console{in: terminal, out: terminal}
	seen, screen, over := watch(keyboard, []string{"> ", "first line\r\n", "> "})
	ended := make(chan int, 1)
	go func() { ended <- run(t.Context(), []string{"chat", "--history", "0"}, b.env) }()
	<-seen[0]
	// The line is corrected while it is typed, so its echo does not contain the whole text; the
	// answer does.
	if _, err := keyboard.WriteString("first lime\x7f\x7fne\r"); err != nil {
		t.Fatal(err)
	}
	<-seen[1]
	<-seen[2]
	if _, err := keyboard.WriteString("/q\t\r"); err != nil {
		t.Fatal(err)
	}
	if code := <-ended; code != exitOK {
		t.Errorf("ended with %d: %s", code, b.stderr.String())
	}
	if err := terminal.Close(); err != nil {
		t.Error(err)
	}
	<-over
	if !strings.Contains(screen.String(), "/quit") {
		t.Errorf("the command was not completed: %q", screen.String())
	}
	if err := keyboard.Close(); err != nil {
		t.Error(err)
	}
}

func TestTablesFitATerminalOfAnyWidth(t *testing.T) {
	t.Parallel()
	variables := map[string]string{"LANEWAY_URL": startGateway(t, &echoBackend{}), "LANEWAY_TOKEN": "right", "HOME": t.TempDir()}
	for _, width := range []int{80, 60, 40} {
		for _, args := range [][]string{{"runs"}, {"questions", "list"}, {"tasks", "list"}, {"status"}, {"agents", "detect"}} {
			keyboard, terminal := openPTY(t)
			if err := unix.IoctlSetWinsize(int(terminal.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Col: uint16(width), Row: 24}); err != nil {
				t.Fatal(err)
			}
			_, screen, over := watch(keyboard, nil)
			var stderr bytes.Buffer
			code := Run(t.Context(), args, Options{Stdin: terminal, Stdout: terminal, Stderr: &stderr, LookupEnv: func(name string) (string, bool) { v, set := variables[name]; return v, set }})
			if err := terminal.Close(); err != nil {
				t.Error(err)
			}
			<-over
			if err := keyboard.Close(); err != nil {
				t.Error(err)
			}
			if code != exitOK || screen.Len() == 0 {
				t.Errorf("%q ends with %d: %s", args, code, stderr.String())
			}
			for line := range strings.SplitSeq(screen.String(), "\r\n") {
				if n := utf8.RuneCountInString(line); n > width {
					t.Errorf("%d columns: a line of %q has %d: %q", width, args, n, line)
				}
			}
		}
	}
}

// Before, one key press was read again with each following line: it stopped the answer, and then
// ended the conversation.
func TestCtrlCOnATerminalStopsTheAnswerOnly(t *testing.T) {
	t.Parallel()
	keyboard, terminal := openPTY(t)
	b := newBench("", "HOME", t.TempDir(), "NO_COLOR", "1")
	b.env.stdout = terminal
	b.env.terminal = &console{in: terminal, out: terminal}
	wants := []string{"> ", "hang\r\nha", "Stopped.\r\n> ", "still here\r\nstill here\r\n> "}
	seen, screen, over := watch(keyboard, wants)
	ended := make(chan int, 1)
	go func() { ended <- run(t.Context(), []string{"chat", "--history", "0"}, b.env) }()
	for i, typed := range []string{"hang\r", "\x03", "still here\r", "\x03"} {
		select {
		case <-seen[i]:
		case <-time.After(10 * time.Second):
			t.Fatalf("%q did not appear: %q", wants[i], screen.String())
		}
		if _, err := keyboard.WriteString(typed); err != nil {
			t.Fatal(err)
		}
	}
	if code := <-ended; code != exitOK || len(b.gateway.aborted) != 1 {
		t.Errorf("ended with %d after %d stops: %s", code, len(b.gateway.aborted), b.stderr.String())
	}
	// The current read ends with a line; until then the terminal stays open.
	_, err := keyboard.WriteString("\n")
	if err := errors.Join(err, terminal.Close()); err != nil {
		t.Error(err)
	}
	<-over
	if err := keyboard.Close(); err != nil {
		t.Error(err)
	}
}
