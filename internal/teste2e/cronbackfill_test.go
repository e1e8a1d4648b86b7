package teste2e

import (
	"testing"
	"time"
)

// backfillAnswer is the result of cron.backfill.
type backfillAnswer struct {
	Enqueued, Existing int
	Fires              []struct{ RunID, Action string }
}

// Before, doctor and the oracle reported the waiting runs of a backfill in one session as a queue above its cap.
func TestABackfillThatWaitsIsNoQueueBeyondItsCap(t *testing.T) {
	onBothStores(t, func(t *testing.T, database string) {
		g := Install(t, database, cronConfig)
		g.Start()
		c, o := connect(t, g), OpenOracle(t, g, database)
		const runs = 40 // more than the cap of any queue here
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
