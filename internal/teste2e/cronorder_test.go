package teste2e

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"laneway/internal/testrun"
)

// TestRunsAreListedByThePlannedTime: of two runs the one that was planned later comes first, while the other one runs and also when that ends last.
func TestRunsAreListedByThePlannedTime(t *testing.T) {
	onBothStores(t, func(t *testing.T, database string) {
		g := Install(t, database, cronConfig)
		g.Start()
		c, o := connect(t, g), OpenOracle(t, g, database)
		long, short := addJob(t, c, "long", every(time.Hour), saying("sleep 2s")), addJob(t, c, "short", every(time.Hour), saying("done"))
		state := func(job, state string) {
			t.Helper()
			testrun.Eventually(t, "the run is "+state, func() bool {
				return o.Count("SELECT count(*) FROM cron_run_logs WHERE job_id = '"+job+"' AND state = '"+state+"'") == 1
			})
		}
		run := func(job string) { object(t, c, "cron.run", map[string]any{"id": job, "mode": "force"}) }
		listed := func(params map[string]any) (jobs []string) {
			t.Helper()
			var list struct {
				Entries []struct {
					JobID, RunID   string
					ScheduledForMs int64
				}
			}
			if err := c.Into(&list, "cron.runs", params); err != nil {
				t.Fatal(err)
			}
			for _, e := range list.Entries {
				jobs = append(jobs, e.JobID)
				if e.RunID != fmt.Sprintf("manual:%s:%d", e.JobID, e.ScheduledForMs) {
					t.Errorf("the entry %+v is that of another run", e)
				}
			}
			return jobs
		}
		run(long.ID)
		state(long.ID, "running")
		run(short.ID)
		state(short.ID, "ok")
		newest := []string{short.ID, long.ID}
		all := map[string]any{"includeActive": true, "extended": true}
		if got := listed(all); !slices.Equal(got, newest) {
			t.Errorf("while the first runs: %q, want %q", got, newest)
		}
		state(long.ID, "ok")
		if got := listed(map[string]any{"extended": true}); !slices.Equal(got, newest) {
			t.Errorf("newest first: %q, want %q", got, newest)
		}
		oldest := []string{long.ID, short.ID}
		if got := listed(map[string]any{"extended": true, "sortDir": "asc"}); !slices.Equal(got, oldest) {
			t.Errorf("oldest first: %q, want %q", got, oldest)
		}
		var paged []string
		for offset := range 2 {
			paged = append(paged, listed(map[string]any{"extended": true, "limit": 1, "offset": offset})...)
		}
		if !slices.Equal(paged, newest) {
			t.Errorf("page by page: %q, want %q", paged, newest)
		}
	})
}
