package teste2e

import (
	"fmt"
	"testing"
	"time"

	"laneway/internal/testrun"
)

// backfillAnswer is the result of cron.backfill.
type backfillAnswer struct {
	Enqueued, Existing int
	Fires              []struct{ RunID, Action string }
}

// TestASlotIsBackfilledAgain backfills two slots whose runs fail until the payload is changed, and once more with force.
func TestASlotIsBackfilledAgain(t *testing.T) {
	if testing.Short() {
		t.Skip("long")
	}
	onBothStores(t, func(t *testing.T, database string) {
		g := Install(t, database, cronConfig)
		g.Start()
		c, o := connect(t, g), OpenOracle(t, g, database)
		j := addJob(t, c, "hourly", map[string]any{"kind": "cron", "expr": "0 * * * *"}, saying("fail refusal"))
		last := time.Now().Truncate(time.Hour)
		slots := []int64{last.Add(-time.Hour).UnixMilli(), last.UnixMilli()}
		backfill := func(force, dry bool) (a backfillAnswer) {
			t.Helper()
			params := map[string]any{"id": j.ID, "fromMs": slots[0], "toMs": slots[1], "force": force, "dryRun": dry}
			if err := c.Into(&a, "cron.backfill", params); err != nil || len(a.Fires) != 2 {
				t.Fatalf("%+v: %v", a, err)
			}
			return a
		}
		judge := func(what string, a backfillAnswer, trigger, action string) {
			t.Helper()
			for i, f := range a.Fires {
				if want := fmt.Sprintf("%s:%s:%d", trigger, j.ID, slots[i]); f.RunID != want || f.Action != action {
					t.Errorf("%s: slot %d is %s %s, want %s %s", what, i, f.Action, f.RunID, action, want)
				}
			}
		}
		ended := func(trigger, state string) {
			t.Helper()
			testrun.Eventually(t, "the runs of "+trigger+" end as "+state, func() bool {
				return o.Count("SELECT count(*) FROM cron_run_logs WHERE job_id = '"+j.ID+"' AND trigger = '"+trigger+"' AND state = '"+state+"'") == 2
			})
		}
		judge("the first backfill", backfill(false, false), "backfill", "enqueue")
		ended("backfill", "error")
		judge("what a second one would do", backfill(false, true), "backfill:2", "enqueue")
		judge("a second one after errors", backfill(false, false), "backfill:2", "enqueue")
		ended("backfill:2", "error")
		object(t, c, "cron.update", map[string]any{"id": j.ID, "patch": saying("sleep 1s")})
		judge("a third one", backfill(false, false), "backfill:3", "enqueue")
		judge("one more while it runs, with force", backfill(true, false), "backfill:3", "exists")
		ended("backfill:3", "ok")
		judge("one after a good end", backfill(false, false), "backfill:3", "exists")
		judge("the same as a dry run", backfill(false, true), "backfill:3", "exists")
		judge("with force", backfill(true, false), "backfill:4", "enqueue")
		ended("backfill:4", "ok")
		readersOfTheTrigger(t, c, j.ID, slots[1])
		o.Check(cronLease)
	})
}

// readersOfTheTrigger looks at a repeated backfill through everything that shows a run. The number is part of the id and of no closed set.
func readersOfTheTrigger(t *testing.T, c *Client, job string, slot int64) {
	t.Helper()
	run := fmt.Sprintf("backfill:2:%s:%d", job, slot)
	var list struct {
		Entries []struct{ RunID, Trigger, Outcome, SessionKey string }
		Total   int
	}
	if err := c.Into(&list, "cron.runs", map[string]any{"runId": run, "extended": true}); err != nil {
		t.Fatal(err)
	}
	if len(list.Entries) != 1 || list.Entries[0].RunID != run || list.Entries[0].Trigger != "backfill" || list.Entries[0].Outcome != "error" {
		t.Errorf("cron.runs of %s: %+v", run, list)
	}
	if err := c.Into(&list, "cron.runs", map[string]any{"id": job, "extended": true}); err != nil {
		t.Fatal(err)
	}
	if list.Total != 8 {
		t.Errorf("the ledger has %d runs, want 8", list.Total)
	}
	sessions := map[string]bool{}
	for _, e := range list.Entries {
		sessions[e.SessionKey] = true
	}
	if len(sessions) != 4 {
		t.Errorf("four backfills of two runs each ran in %d sessions", len(sessions))
	}
	var cancelled struct{ Cancelled []string }
	if err := c.Into(&cancelled, "cron.cancel", map[string]any{"runId": run}); err != nil || len(cancelled.Cancelled) != 0 {
		t.Errorf("cancelling what has ended: %+v %v", cancelled, err)
	}
}

// Doctor and the oracle took the runs of a backfill that wait in one session for a queue beyond its cap.
func TestABackfillThatWaitsIsNoQueueBeyondItsCap(t *testing.T) {
	onBothStores(t, func(t *testing.T, database string) {
		g := Install(t, database, cronConfig)
		g.Start()
		c, o := connect(t, g), OpenOracle(t, g, database)
		const runs = 40 // more than any queue here has places
		j := addJob(t, c, "hourly", map[string]any{"kind": "cron", "expr": "0 * * * *"}, saying("sleep 1h"))
		last := time.Now().Truncate(time.Hour)
		var a backfillAnswer
		err := c.Into(&a, "cron.backfill", map[string]any{"id": j.ID, "fromMs": last.Add((1 - runs) * time.Hour).UnixMilli(), "toMs": last.UnixMilli()})
		if err != nil || a.Enqueued != runs {
			t.Fatalf("%d enqueued, want %d: %v", a.Enqueued, runs, err)
		}
		if n := o.Count("SELECT count(*) FROM inbox WHERE state = 'waiting'"); n < runs-1 {
			t.Fatalf("%d messages wait, want at least %d", n, runs-1)
		}
		o.Check(cronLease)
	})
}
