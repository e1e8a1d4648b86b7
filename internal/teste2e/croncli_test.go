package teste2e

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// TestTheCommandLineLooksAfterJobs goes through the life of a job with the commands that the documents show, on the real binary.
func TestTheCommandLineLooksAfterJobs(t *testing.T) {
	onBothStores(t, func(t *testing.T, database string) {
		g := Install(t, database, cronConfig)
		g.Start()
		ctx := withTimeout(t, 4*time.Minute)
		run := func(code int, pattern string, args ...string) string {
			t.Helper()
			out, errs, got := g.CLI(ctx, "", args...)
			if got != code || !regexp.MustCompile(pattern).MatchString(out+errs) {
				t.Fatalf("laneway %q ended with %d and printed %q %q, want %d and %s", args, got, out, errs, code, pattern)
			}
			return out
		}
		run(0, `digest`, "cron", "add", "--name", "digest", "--cron", "0 9 * * 1-5", "--tz", "Europe/Berlin", "--message", "the digest", "--key", "dg")
		run(0, `digest`, "cron", "add", "--name", "digest", "--cron", "0 9 * * 1-5", "--tz", "Europe/Berlin", "--message", "the digest", "--key", "dg") // changes nothing
		run(0, `slow`, "cron", "add", "--name", "slow", "--every", "24h", "--message", "sleep 10m", "--overlap", "concurrent", "--retries", "0")
		run(0, `broken`, "cron", "add", "--name", "broken", "--every", "24h", "--message", "fail refusal")
		if out := run(0, `digest +0 9 \* \* 1-5 Europe/Berlin +enabled +in `, "cron", "list"); strings.Count(out, "digest") != 1 {
			t.Errorf("the list: %s", out)
		}
		run(0, `"expr": "0 9 \* \* 1-5"`, "cron", "get", "dg")
		run(0, `(?s)\d{4}-\d\d-\d\d.*\n.*\n`, "cron", "next", "--cron", "0 9 * * 1-5", "--tz", "Europe/Berlin", "-n", "3")
		run(0, `.`, "cron", "edit", "digest", `{"schedule":{"kind":"cron","expr":"30 9 * * 1-5"}}`)
		run(0, `(?s)"expr": "30 9 \* \* 1-5".*"tz": "Europe/Berlin"`, "cron", "get", "digest")
		run(0, `.`, "cron", "pause", "digest", "--note", "holidays")
		run(0, `digest .* paused `, "cron", "list", "--all")
		run(0, `.`, "cron", "resume", "digest")
		run(0, `digest .* enabled `, "cron", "list")
		run(0, `^the digest\n$`, "cron", "run", "digest", "--wait")
		run(1, `the run ended as error`, "cron", "run", "broken", "--wait")
		run(0, `^manual:`, "cron", "run", "slow")
		run(0, `slow +.*(running|queued)`, "cron", "runs", "slow", "--active")
		run(0, `^1 runs? ends?`, "cron", "cancel", "slow", "--reason", "wrong text")
		o := OpenOracle(t, g, database)
		eventually(t, "the slow run is cancelled", 10*time.Second, func() bool {
			return o.Count("SELECT count(*) FROM cron_run_logs WHERE job_name = 'slow' AND state = 'cancelled'") == 1
		})
		run(0, `digest .*ok`, "cron", "runs", "digest")
		now := time.Now().UTC()
		run(0, `.`, "cron", "backfill", "digest", "--from", now.AddDate(0, 0, -8).Format(time.RFC3339), "--to", now.AddDate(0, 0, -1).Format(time.RFC3339), "--dry-run")
		if n := o.Count("SELECT count(*) FROM cron_run_logs WHERE trigger = 'backfill'"); n != 0 {
			t.Errorf("a dry run made %d entries", n)
		}
		run(0, `.`, "cron", "backfill", "digest", "--from", now.AddDate(0, 0, -8).Format(time.RFC3339), "--to", now.AddDate(0, 0, -1).Format(time.RFC3339))
		eventually(t, "the backfill has run", 20*time.Second, func() bool {
			return o.Count("SELECT count(*) FROM cron_run_logs WHERE trigger = 'backfill' AND state = 'ok'") == 5
		})
		run(0, `digest +30 9`, "scheduler", "list")
		run(0, `(?s)digest`, "scheduler", "status", "digest")
		run(0, `.`, "scheduler", "pause", "digest")
		run(0, `.`, "scheduler", "resume", "digest")
		run(0, `^the digest\n$`, "scheduler", "run", "digest", "--wait")
		run(0, `.`, "scheduler", "run", "system:retention", "--wait")
		run(1, `built-in`, "cron", "rm", "system:retention")
		exported := filepath.Join(t.TempDir(), "jobs.jsonl")
		if err := os.WriteFile(exported, []byte(run(0, `digest`, "cron", "export")), 0o600); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"digest", "slow", "broken"} {
			run(0, `.`, "cron", "rm", name)
		}
		run(1, `.`, "cron", "get", "digest")
		run(0, `^3 jobs`, "cron", "import", exported)
		run(0, `^3 jobs`, "cron", "import", exported)
		run(0, `digest +30 9 \* \* 1-5 Europe/Berlin`, "cron", "list")
		if n := o.Count("SELECT count(*) FROM cron_jobs WHERE owner <> 'system'"); n != 3 {
			t.Errorf("%d jobs after two imports of three", n)
		}
		if n := o.Count("SELECT count(*) FROM cron_run_logs WHERE owner <> 'system'"); n != 9 {
			t.Errorf("%d entries of the ledger, want the 4 runs by hand and 5 of the backfill", n)
		}
		o.Check(cronLease)
	})
}
