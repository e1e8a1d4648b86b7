package teste2e

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"
	"time"
)

// TestAHundredSessionsShareTheProcessesOfAnAgent: all are answered, twenty at a time, by never more than eight processes, and the status shows these with their memory.
func TestAHundredSessionsShareTheProcessesOfAnAgent(t *testing.T) {
	const sessions, most = 100, 8
	program := copyOfSelf(t)
	g := Install(t, "", fmt.Sprintf("agents: {main: {runner: acp, command: [%q], max_processes: %d, env: {%s: http}}}\nlanes: {main: 20}\n", program, most, acpVariable))
	g.Start()
	w, c := watch(t, g), mustDial(t, g, nil)
	watching, done := make(chan struct{}), make(chan int)
	go func() {
		highest := 0
		for {
			highest = max(highest, processesOf(t, program))
			select {
			case <-watching:
				done <- highest
				return
			case <-time.After(5 * time.Millisecond):
			}
		}
	}()
	for n := range sessions {
		say(t, c, fmt.Sprintf("agent:main:crowd-%d", n), fmt.Sprintf("crowd-%d", n), "token")
	}
	answered := 0
	for n := range sessions {
		if end := w.await(t, fmt.Sprintf("crowd-%d", n)); end.state == "final" && end.text != "" {
			answered++
		}
	}
	close(watching)
	if highest := <-done; answered != sessions || highest > most || highest < 2 {
		t.Errorf("%d of %d sessions were answered, by up to %d processes, want at most %d", answered, sessions, highest, most)
	}
	out, fault, code := g.CLI(withTimeout(t, 20*time.Second), "", "status")
	row := regexp.MustCompile(`(?m)^main +(\d+) +8 +[\d.]+ MiB +(\d+)\s*$`).FindStringSubmatch(out)
	if code != 0 || row == nil {
		t.Fatalf("%d %s\n%s", code, fault, out)
	}
	living, evicted := parsed(t, row[1]), parsed(t, row[2])
	if living > most || evicted < sessions-most {
		t.Errorf("the status shows %d processes, and %d that were evicted", living, evicted)
	}
}

func parsed(t *testing.T, text string) int {
	t.Helper()
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// copyOfSelf is the test binary under a name of its own, so that its processes can be counted.
func copyOfSelf(t *testing.T) string {
	t.Helper()
	self := ownBinary(t)
	raw, err := os.ReadFile(self)
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(t.TempDir(), "agent")
	if err := os.WriteFile(program, raw, 0o700); err != nil {
		t.Fatal(err)
	}
	return program
}
