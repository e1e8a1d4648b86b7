//go:build compat

package testcompat

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

const (
	// presetSlow identifies the processes of that command.
	presetSlow = "tail -f /dev/null --sleep-interval=27"
	// presetTold is what a second attempt reads.
	presetTold = "attempt 2: the first one ended when the gateway stopped"
	// presetHistory precedes a transcript.
	presetHistory = "The conversation before this message, as JSON"
)

// again returns the cells of the table about three processes of the gateway. The first one ends by SIGTERM, the second one by SIGKILL while the agent runs a command. With
// minute, the second process starts in a later minute than the first conversation.
func (p *presetRun) again(minute bool) []string {
	p.t.Helper()
	const session, said = "agent:main:again", "the first word is cherry"
	lost := false
	look := func() {
		for line := range strings.Lines(p.g.Output()) {
			if strings.Contains(line, "an agent does not continue its session") {
				lost = true
				p.t.Log(line)
			}
		}
	}
	p.cli("send", "--session", session, said)
	began := time.Now().Truncate(time.Minute)
	p.g.Signal(syscall.SIGTERM)
	if took, code := p.g.WaitExit(presetWait); code != 0 {
		p.t.Errorf("the gateway ended with %d after %s", code, took)
	}
	if minute {
		eventually(p.t, presetWait, func() bool { return time.Now().Truncate(time.Minute) != began })
	}
	p.g.Start()
	slow := make(chan struct{})
	go func() {
		defer close(slow)
		_, _, _ = p.g.CLI(p.ctx, "", "send", "--session", session, "--timeout", "10m", presetSlowOrder)
	}()
	answered := false
	if !eventually(p.t, presetWait, func() bool {
		if !answered {
			answered = p.answer(session, true)
		}
		return len(commandsWith(p.t, presetSlow)) > 0
	}) {
		p.t.Fatalf("the command does not run\n%s", p.g.Output())
	}
	p.g.Kill()
	look()
	p.g.Start()
	<-slow
	told := eventually(p.t, presetWait, func() bool { return p.asked(presetTold) })
	if left := commandsWith(p.t, presetSlow); len(left) > 0 {
		p.t.Errorf("the command of the first attempt still runs beside the second one: %d processes", len(left))
	}
	if out := p.cli("send", "--session", session, "which word was it?"); !strings.Contains(out, "The word is apple.") {
		p.t.Errorf("turn three: %s", out)
	}
	if !p.asked(said) {
		p.t.Error("turn three does not have the first one")
	}
	look()
	return []string{yes(!lost && !p.asked(presetHistory)), yes(told)}
}

// commandsWith returns the processes whose command line contains a string.
func commandsWith(t *testing.T, text string) (pids []string) {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err == nil && bytes.Contains(bytes.ReplaceAll(raw, []byte{0}, []byte(" ")), []byte(text)) {
			pids = append(pids, filepath.Base(filepath.Dir(file)))
		}
	}
	return pids
}
