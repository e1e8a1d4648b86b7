package acp_test

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"laneway/internal/agent"
	"laneway/internal/agent/acp"
	"laneway/internal/agent/agenttest"
	"laneway/internal/chat"
	"laneway/internal/testrun"
)

func TestAProcessThatIsNotUsedEnds(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	runner := open(t, script{Script: agenttest.Script{Repeat: true}, Dir: dir}, acp.Config{Idle: 20 * time.Millisecond})
	for _, text := range []string{"one", "two"} {
		if got, err := run(t, runner, request("a", "run-"+text, text)); err != nil || got.Text != text {
			t.Fatalf("got %q and %v", got.Text, err)
		}
		testrun.Eventually(t, "no process is left", func() bool { _, living := starts(t, dir); return len(living) == 0 })
	}
	if all, _ := starts(t, dir); len(all) != 2 {
		t.Errorf("started %d times, want a second start after the idle time", len(all))
	}
}

func TestProcessesAreBounded(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	runner := open(t, script{Script: agenttest.Script{Repeat: true}, Dir: dir, Closes: true}, acp.Config{MaxProcesses: 2})
	for _, session := range []string{"a", "b", "a", "c", "a"} { // c replaces b
		if _, err := run(t, runner, request(session, "run", session)); err != nil {
			t.Fatal(err)
		}
		if _, living := starts(t, dir); len(living) > 2 {
			t.Errorf("%d processes live", len(living))
		}
	}
	if all, _ := starts(t, dir); !slices.Equal(all, []string{"agent:main:a", "agent:main:b", "agent:main:c"}) {
		t.Errorf("started for %q, want the process that was idle the longest to be replaced", all)
	}
}

func TestWhileAllProcessesWorkATurnWaits(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	runner := open(t, script{Script: agenttest.Script{Hang: true}, Dir: dir}, acp.Config{MaxProcesses: 1})
	var group sync.WaitGroup
	begin := func(session string) (end context.CancelFunc, steps chan string) {
		ctx, cancel := context.WithCancel(t.Context())
		steps = make(chan string, 10)
		group.Go(func() {
			defer close(steps)
			_, err := runner.Run(ctx, request(session, "run-"+session, session), func(e agent.Event) {
				if e.Tool != nil {
					steps <- e.Tool.Phase + " " + e.Tool.Name
				}
			})
			if !errors.Is(err, context.Canceled) {
				t.Errorf("the turn of %s: got %v", session, err)
			}
		})
		return cancel, steps
	}
	const waiting = "Waiting: all 1 processes of this agent are at work"
	endA, _ := begin("a")
	testrun.Eventually(t, "the first turn runs", func() bool { return len(prompts(t, dir)) == 1 })
	endB, ofB := begin("b")
	if got := <-ofB; got != "start "+waiting {
		t.Errorf("the second turn shows %q", got)
	}
	endC, ofC := begin("c")
	<-ofC
	endD, ofD := begin("d")
	<-ofD
	sub := request("sub", "run-sub", "sub")
	sub.Awaited = true
	_, err := run(t, runner, sub)
	if failed, ok := errors.AsType[*agent.Error](err); !ok || failed.Reason != chat.FailOverloaded || !failed.Retryable {
		t.Errorf("got %v, want overloaded", err)
	}
	endC() // it stops waiting
	<-ofC
	endA()
	if got := <-ofB; got != "result "+waiting {
		t.Errorf("the second turn shows %q", got)
	}
	ran := func(want ...string) func() bool {
		return func() bool { all, _ := starts(t, dir); return slices.Equal(all, want) }
	}
	testrun.Eventually(t, "the second turn runs", ran("agent:main:a", "agent:main:b"))
	endB()
	if got := <-ofD; got != "result "+waiting {
		t.Errorf("the last turn shows %q", got)
	}
	testrun.Eventually(t, "the last turn runs", ran("agent:main:a", "agent:main:b", "agent:main:d"))
	endD()
	group.Wait()
}

func TestAHundredSessionsShareEightProcesses(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	runner := open(t, script{Script: agenttest.Script{Repeat: true}, Dir: dir}, acp.Config{MaxProcesses: 8})
	var group sync.WaitGroup
	most := 0
	for n := range 100 {
		session := strconv.Itoa(n)
		group.Go(func() {
			if got, err := run(t, runner, request(session, "run", session)); err != nil || got.Text != session {
				t.Errorf("session %s: got %q and %v", session, got.Text, err)
			}
		})
	}
	done := make(chan struct{})
	go func() { group.Wait(); close(done) }()
	for ended := false; !ended; {
		select {
		case <-done:
			ended = true
		default:
			_, living := starts(t, dir)
			most = max(most, len(living))
		}
	}
	if all := runner.Processes(); most > 8 || all.Living > 8 || all.Most != 8 || all.Evicted < 92 || runtime.GOOS == "linux" && all.Memory < int64(all.Living)<<20 {
		t.Errorf("%d processes lived at once, and %+v", most, all)
	}
}

// The agent closes its output and keeps running.
func TestAMuteProcessEnds(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	runner := open(t, script{Script: agenttest.Script{Repeat: true}, Dir: dir, Mutes: true}, acp.Config{})
	if got, err := run(t, runner, request("a", "run", "one")); err != nil || got.Text != "one" {
		t.Fatalf("got %q and %v", got.Text, err)
	}
	testrun.Eventually(t, "no process is left", func() bool { _, living := starts(t, dir); return len(living) == 0 })
}
