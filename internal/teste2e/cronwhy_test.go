package teste2e

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"laneway/internal/testrun"
)

// The slots are one that ran, one during a kill, one during a pause, and a moment without a slot.
func TestTheCommandLineSaysWhyASlotRanOrNot(t *testing.T) {
	NeedsProcesses(t)
	onBothStores(t, func(t *testing.T, database string) {
		g := Install(t, database, "cluster: {lease: 3s, heartbeat: 500ms, sweep: 200ms}\nagents: {main: {runner: echo}}\ndrain_timeout: 2s\n")
		g.Start()
		run := func(args ...string) string {
			t.Helper()
			out, errs, code := g.CLI(t.Context(), "", append([]string{"cron"}, args...)...)
			if code != 0 {
				t.Fatalf("cron %v: %d\n%s%s", args, code, out, errs)
			}
			return out
		}
		why := func(job string, at time.Time, word, text string) {
			t.Helper()
			out := run("why", job, at.UTC().Format("2006-01-02T15:04:05Z"))
			if first, rest, _ := strings.Cut(out, "\n"); !strings.HasSuffix(first, "  "+word) || !strings.Contains(rest, text) {
				t.Errorf("why %s at %s prints\n%swant %s: %s", job, at, out, word, text)
			}
		}
		run("add", "--name", "ping", "--every", "1s", "--missed", "skip", "--message", "ping")
		run("add", "--name", "new year", "--cron", "0 0 1 1 *", "--tz", "UTC", "--message", "hello")
		var ran struct {
			Entries []struct{ ScheduledForMs int64 }
		}
		testrun.Eventually(t, "a run has ended", func() bool {
			return json.Unmarshal([]byte(run("runs", "ping", "--json")), &ran) == nil && len(ran.Entries) > 0
		})
		why("ping", time.UnixMilli(ran.Entries[len(ran.Entries)-1].ScheduledForMs), "ran", "It ran at ")
		why("new year", time.Date(time.Now().Year()+1, 1, 1, 12, 34, 0, 0, time.UTC), "not in the schedule", "It is no slot of the schedule. The nearest slots are ")

		g.Kill()
		killed := time.Now()
		testrun.Eventually(t, "slots pass while no process is there", func() bool { return time.Since(killed) > 4*time.Second })
		g.Start()
		testrun.Eventually(t, "the slots of the outage are decided", func() bool {
			return strings.Contains(run("runs", "ping"), "missed")
		})
		why("ping", killed.Add(2*time.Second), "missed", "No replica fired jobs from ")

		run("pause", "ping", "--note", "holidays")
		why("ping", time.Now().Add(2*time.Second), "paused", "(holidays)")
	})
}
