package teste2e

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"laneway/internal/testpg"
	"laneway/internal/testrun"
)

// The server crashes repeatedly while messages are accepted, started, run and ended. Each client repeats unaccepted messages with the same
// key. Every message is answered and every started job succeeds at its first attempt, because an unavailable database must not end a turn.
func TestADatabaseThatCrashesAtAnyPointFailsNoTurn(t *testing.T) {
	t.Parallel()
	server := testpg.Private(t, testpg.ServerConfig{})
	g := Install(t, server.URL(), "cluster: {lease: 10s, heartbeat: 500ms, sweep: 200ms}\nqueue: {cap: 50}\nagents: {main: {runner: echo, script: true}}\n").AtOnce()
	g.Start()
	c := connect(t, g)
	for i := range 5 {
		addJob(t, c, fmt.Sprintf("tick-%d", i), every(time.Second), saying("sleep 20ms"))
	}
	rounds, people := testrun.Size(6, 200), 12
	for round := range rounds {
		var talks sync.WaitGroup
		for person := range people {
			talks.Go(func() {
				key := fmt.Sprintf("m-%d-%d", round, person)
				params := map[string]any{"sessionKey": fmt.Sprintf("agent:main:p%d", person), "message": "sleep 20ms", "idempotencyKey": key}
				for {
					if _, err := c.Call("chat.send", params, 20*time.Second); err == nil {
						return
					}
					if t.Context().Err() != nil {
						return
					}
				}
			})
		}
		pause(time.Duration(rand.IntN(80)) * time.Millisecond)
		if err := server.Restart(t.Context(), true); err != nil {
			t.Fatal(err)
		}
		talks.Wait()
	}
	o := OpenOracle(t, g, server.URL())
	testrun.Eventually(t, "every message has an outcome", func() bool {
		return o.Count("SELECT count(*) FROM inbox WHERE outcome IS NOT NULL AND message_id LIKE 'm-%'") == rounds*people
	})
	if bad := o.Rows("SELECT message_id, outcome, reason FROM inbox WHERE outcome <> 'answered' AND message_id LIKE 'm-%'"); len(bad) > 0 {
		t.Errorf("%d of %d messages were not answered: %s", len(bad), rounds*people, strings.Join(bad, "; "))
	}
	testrun.Eventually(t, "a job has run", func() bool { return o.Count("SELECT count(*) FROM cron_run_logs WHERE state = 'ok'") > 0 })
	if bad := o.Rows("SELECT id, state, attempt, error FROM cron_run_logs WHERE state IN ('error', 'interrupted', 'retrying') OR attempt > 1"); len(bad) > 0 {
		t.Errorf("runs of jobs failed: %s", strings.Join(bad, "; "))
	}
	o.Check(10 * time.Second)
}
