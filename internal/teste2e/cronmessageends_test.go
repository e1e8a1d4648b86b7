package teste2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"laneway/internal/testpg"
	"laneway/internal/testrun"
)

// Runs of jobs wait in sessions with long turns, and each operation of a session ends them. Clients of every replica receive one finished
// event for each run.
func TestARunThatAMessageOperationEndsIsAnEvent(t *testing.T) {
	t.Parallel()
	const config = cronConfig + "queue: {cap: 2, drop: old}\n"
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		messageEndsAreEvents(t, "", Install(t, "", config))
	})
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		database := testpg.DB(t)
		messageEndsAreEvents(t, database, Install(t, database, config), Install(t, database, config))
	})
}

func messageEndsAreEvents(t *testing.T, database string, all ...*Gateway) {
	t.Helper()
	heard, clients := watchCron(t, all)
	c, last := clients[0], clients[len(clients)-1]
	operations := map[string]func(session, id, run string){
		"abort": func(session, id, run string) {
			object(t, c, "chat.abort", map[string]any{"sessionKey": session, "runId": run})
		},
		"stopall": func(session, id, _ string) { say(t, last, session, "stop"+id, "/stopall") },
		"drop": func(session, id, _ string) {
			for i := range 2 {
				say(t, last, session, fmt.Sprint("drops", i, id), "hello")
			}
		},
		"interrupt": func(session, id, _ string) {
			object(t, c, "chat.send", map[string]any{"sessionKey": session, "message": "hello", "idempotencyKey": "cuts" + id, "queueMode": "interrupt"})
		},
		"reset":  func(session, _, _ string) { object(t, c, "sessions.reset", map[string]any{"key": session}) },
		"delete": func(session, _, _ string) { object(t, c, "sessions.delete", map[string]any{"key": session}) },
	}
	o := OpenOracle(t, all[0], database)
	var want []string
	for name, end := range operations {
		session := "agent:main:" + name
		say(t, c, session, "long"+name, "sleep 10m")
		testrun.Eventually(t, "the turn runs", func() bool {
			return o.Count("SELECT count(*) FROM runs WHERE state = 'running' AND session_key = '"+session+"'") == 1
		})
		job := addJob(t, c, name, every(time.Hour), map[string]any{"sessionTarget": "session:" + session})
		run := runByHand(t, last, job.ID)
		want = append(want, run)
		end(session, name, run)
	}
	slices.Sort(want)
	over := func() []string {
		return o.Rows("SELECT id FROM cron_run_logs WHERE state = 'cancelled' AND reason = 'stopped' AND started_at IS NULL ORDER BY id")
	}
	defer func() {
		if t.Failed() {
			t.Logf("the ledger:\n%s", strings.Join(o.Rows("SELECT job_name, id, state, reason, started_at FROM cron_run_logs WHERE owner <> 'system' ORDER BY job_name"), "\n"))
		}
	}()
	testrun.Eventually(t, "the runs end without having begun", func() bool { return slices.Equal(over(), want) })
	for i := range all {
		deadline := time.Now().Add(3 * time.Second)
		for !slices.Equal(heard[i].finished(), want) && time.Now().Before(deadline) {
			pause(50 * time.Millisecond)
		}
		if got := heard[i].finished(); !slices.Equal(got, want) {
			t.Errorf("clients of replica %d got the ends\n%s\nthe ledger has\n%s", i, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
}
