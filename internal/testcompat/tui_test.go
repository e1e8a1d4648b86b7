//go:build compat

package testcompat

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// terminal is OpenClaw's terminal interface in a separate tmux server.
type terminal struct {
	t      *testing.T
	socket string
}

func openTerminal(t *testing.T, o *openClaw, session string) *terminal {
	t.Helper()
	if _, err := exec.LookPath("tmux"); err != nil {
		t.Fatalf("there is no tmux: %v", err)
	}
	term := &terminal{t, filepath.Join(t.TempDir(), fmt.Sprintf("tmux-%d", time.Now().UnixNano()))}
	line := []string{"new-session", "-d", "-s", "tui", "-x", "150", "-y", "60", "--", node(o.dir), o.program, "tui", "--session", session}
	cmd := exec.Command("tmux", append([]string{"-S", term.socket}, append(line, o.flags()...)...)...)
	cmd.Env = slices.Concat(o.env, []string{"LANG=C.UTF-8", "SHELL=/bin/sh"})
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("starting a terminal: %v\n%s", err, out)
	}
	t.Cleanup(term.close)
	term.shows("connected | idle", 1)
	return term
}

func (x *terminal) tmux(args ...string) string {
	x.t.Helper()
	cmd := exec.Command("tmux", append([]string{"-S", x.socket}, args...)...)
	cmd.Env = append(os.Environ(), "LANG=C.UTF-8")
	out, err := cmd.CombinedOutput()
	if err != nil {
		x.t.Fatalf("tmux %v: %v\n%s", args, err, out)
	}
	return string(out)
}

func (x *terminal) screen() string { return x.tmux("capture-pane", "-p", "-t", "tui") }

func (x *terminal) says(text string) {
	x.t.Helper()
	x.tmux("send-keys", "-t", "tui", "-l", text)
	x.tmux("send-keys", "-t", "tui", "Enter")
}

// insists is says for a prompt during an answer. The terminal keeps a prompt in its input line
// until the previous one is acknowledged; a person who types faster presses Enter again.
func (x *terminal) insists(text string) {
	x.t.Helper()
	x.tmux("send-keys", "-t", "tui", "-l", text)
	if !eventually(x.t, 30*time.Second, func() bool { return strings.Contains(x.input(), text) }) {
		x.t.Fatalf("%q cannot be typed:\n%s", text, x.screen())
	}
	taken := func() bool {
		if strings.Contains(x.input(), text) {
			x.tmux("send-keys", "-t", "tui", "Enter")
			return false
		}
		return true
	}
	if !eventually(x.t, 10*time.Second, taken) {
		x.t.Fatalf("%q is still in the input line:\n%s", text, x.screen())
	}
}

// input returns the content of the input line, between the last two rules of the screen.
func (x *terminal) input() string {
	lines := strings.Split(x.screen(), "\n")
	var rules []int
	for i, line := range lines {
		if strings.HasPrefix(line, "────") {
			rules = append(rules, i)
		}
	}
	if len(rules) < 2 {
		x.t.Fatalf("there is no input line:\n%s", x.screen())
	}
	return strings.Join(lines[rules[len(rules)-2]+1:rules[len(rules)-1]], " ")
}

// shows waits until a string is on the screen often enough. The agent echoes every message, so an
// answered message is there twice.
func (x *terminal) shows(text string, times int) {
	x.t.Helper()
	if !eventually(x.t, 90*time.Second, func() bool { return strings.Count(x.screen(), text) >= times }) {
		x.t.Fatalf("%q is not %d times on the screen:\n%s", text, times, x.screen())
	}
}

func (x *terminal) close() {
	cmd := exec.Command("tmux", "-S", x.socket, "kill-server")
	if out, err := cmd.CombinedOutput(); err != nil && !strings.Contains(string(out), "no server") {
		x.t.Errorf("ending the terminal: %v\n%s", err, out)
	}
}

const long = " which streams slowly enough that there is time to do something else before its end is reached by the gateway at last"

func TestOpenClawTerminal(t *testing.T) {
	onBothStores(t, func(t *testing.T, database string) {
		dir := clients(t)
		g := begin(t, database, "")
		o := commandLine(t, g, dir, "openclaw")
		x := openTerminal(t, o, "agent:main:tui")

		x.says("alpha" + strings.Repeat(long, 4) + " omega")
		x.shows("alpha", 2)
		x.insists("bravo prompt")
		x.insists("charlie prompt")
		if strings.Count(x.screen(), "omega") != 1 {
			t.Errorf("the first answer was over before the third prompt was taken:\n%s", x.screen())
		}
		x.shows("charlie prompt", 2)
		screen := x.screen()
		if a, b, c := strings.LastIndex(screen, "alpha"), strings.LastIndex(screen, "bravo prompt"), strings.LastIndex(screen, "charlie prompt"); a > b || b > c {
			t.Errorf("the answers are out of order:\n%s", screen)
		}
		x.shows("connected | idle", 1)

		x.says("delta" + long)
		x.shows("delta", 2)
		x.says("/stop")
		x.shows("run aborted", 1)
		x.says("echo" + long)
		x.shows("echo", 2)
		x.tmux("send-keys", "-t", "tui", "Escape")
		x.shows("run aborted", 2)
		x.says("/model no-such-model")
		x.insists("foxtrot prompt")
		x.shows("foxtrot prompt", 2)

		x.close()
		g.Kill()
		g.Start()
		o = commandLine(t, g, dir, "openclaw")
		x = openTerminal(t, o, "agent:main:tui")
		x.shows("charlie prompt", 2)
		x.shows("foxtrot prompt", 2)
		x.says("/reset")
		if !eventually(t, 30*time.Second, func() bool { return !strings.Contains(x.screen(), "charlie prompt") }) {
			t.Errorf("the transcript is still there after /reset:\n%s", x.screen())
		}
		x.says("golf prompt")
		x.shows("golf prompt", 2)
	})
}
