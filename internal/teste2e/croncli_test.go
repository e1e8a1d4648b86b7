package teste2e

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"laneway/internal/testrun"
)

// The test uses all commands of the documentation on a job, with the real binary.
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
		run(0, `"expr": "0 9 \* \* 1-5"`, "cron", "get", "dg", "--json")
		run(0, `(?s)\d{4}-\d\d-\d\d.*\n.*\n`, "cron", "next", "--cron", "0 9 * * 1-5", "--tz", "Europe/Berlin", "-n", "3")
		run(0, `.`, "cron", "edit", "digest", `{"schedule":{"kind":"cron","expr":"30 9 * * 1-5"}}`)
		run(0, `(?s)"expr": "30 9 \* \* 1-5".*"tz": "Europe/Berlin"`, "cron", "get", "digest", "--json")
		run(0, `(?s)schedule +30 9 \* \* 1-5 Europe/Berlin\n.*answers to +-\nowner +gateway\n.*\n\nthe digest\n$`, "cron", "get", "digest")
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
		testrun.Eventually(t, "the slow run is cancelled", func() bool {
			return o.Count("SELECT count(*) FROM cron_run_logs WHERE job_name = 'slow' AND state = 'cancelled'") == 1
		})
		run(0, `digest .*ok`, "cron", "runs", "digest")
		now := time.Now().UTC()
		run(0, `.`, "cron", "backfill", "digest", "--from", now.AddDate(0, 0, -8).Format(time.RFC3339), "--to", now.AddDate(0, 0, -1).Format(time.RFC3339), "--dry-run")
		if n := o.Count("SELECT count(*) FROM cron_run_logs WHERE trigger = 'backfill'"); n != 0 {
			t.Errorf("a dry run made %d entries", n)
		}
		run(0, `.`, "cron", "backfill", "digest", "--from", now.AddDate(0, 0, -8).Format(time.RFC3339), "--to", now.AddDate(0, 0, -1).Format(time.RFC3339))
		testrun.Eventually(t, "the backfill has run", func() bool {
			return o.Count("SELECT count(*) FROM cron_run_logs WHERE trigger = 'backfill' AND state = 'ok'") == 5
		})
		run(0, `digest +30 9`, "scheduler", "list")
		run(0, `(?s)digest`, "scheduler", "status", "digest")
		run(0, `.`, "scheduler", "pause", "digest")
		run(0, `.`, "scheduler", "resume", "digest")
		run(0, `^the digest\n$`, "scheduler", "run", "digest", "--wait")
		run(0, `.`, "scheduler", "run", "system:retention", "--wait")
		run(0, `MiB given back to the disk`, "scheduler", "run", "system:compaction", "--wait")
		run(1, `built-in`, "cron", "rm", "system:retention")
		exportAndImport(t, run)
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

// exportAndImport removes the three jobs and restores them from the output of export, as YAML and as lines of JSON.
func exportAndImport(t *testing.T, run func(code int, pattern string, args ...string) string) {
	t.Helper()
	run(0, `.`, "cron", "edit", "digest", `{"payload":{"kind":"agentTurn","message":"  the digest\n\n- yes: \"no\" # 0x1F\n\tend\n"},"description":"2027-03-01"}`)
	written := func(name, text string) string {
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	asYAML, asJSON := run(0, `(?m)^    everyMs: 86400000$`, "cron", "export"), run(0, `"name":"digest"`, "cron", "export", "--json")
	for name, text := range map[string]string{"jobs.yaml": asYAML, "jobs.jsonl": asJSON} {
		for _, job := range []string{"digest", "slow", "broken"} {
			run(0, `.`, "cron", "rm", job)
		}
		run(1, `.`, "cron", "get", "digest")
		for _, broken := range []struct{ text, says string }{
			{strings.Replace(asYAML, "30 9 * * 1-5", "61 9 * * 1-5", 1), `line \d+ of .*schedule.expr: .*nothing was changed`},
			{asYAML + "  colour: red\n", `line \d+ of .*colour is no member of a job; nothing was changed`},
			{asYAML + "- name: [\n", `line \d+.*nothing was changed`},
			{asYAML + "  name: twice\n", `already defined at line \d+.*nothing was changed`},
			{asJSON + "{\"name\":\n", `line 4 is no job.*nothing was changed`},
			{"name: digest\n", `no list of jobs.*nothing was changed`},
		} {
			run(1, `(?s)`+broken.says, "cron", "import", written("broken", broken.text))
		}
		if list := run(0, ``, "cron", "export", "--json"); list != "" {
			t.Errorf("refused files left %s", list)
		}
		run(0, `^3 jobs`, "cron", "import", written(name, text))
		run(0, `^3 jobs`, "cron", "import", written(name, text))
		if got := sortedLines(run(0, `.`, "cron", "export", "--json")); got != sortedLines(asJSON) {
			t.Errorf("after the import of %s the jobs are\n%s\nwant\n%s", name, got, sortedLines(asJSON))
		}
	}
}

func sortedLines(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// The answer of a job is in the transcript of the session; invalid sessions are refused.
func TestTheCommandLineDeliversToTheSessionThatItNames(t *testing.T) {
	onBothStores(t, func(t *testing.T, database string) {
		g := Install(t, database, cronConfig)
		g.Start()
		ctx := withTimeout(t, time.Minute)
		do := func(args ...string) (string, int) {
			t.Helper()
			out, errs, code := g.CLI(ctx, "", append([]string{"cron"}, args...)...)
			return out + errs, code
		}
		for session, text := range map[string]string{"agent:main:main": "for main", "agent:main:web:direct:anna": "for anna"} {
			if out, code := do("add", "--name", text, "--every", "24h", "--message", text, "--deliver", "web:"+session); code != 0 {
				t.Fatalf("cron add ended with %d: %s", code, out)
			}
			if out, code := do("run", text, "--wait"); code != 0 {
				t.Fatalf("cron run ended with %d: %s", code, out)
			}
			o, c := OpenOracle(t, g, database), connect(t, g)
			testrun.Eventually(t, "the answer is recorded as delivered", func() bool {
				return o.Count("SELECT count(*) FROM cron_run_logs WHERE job_name = '"+text+"' AND delivery = 'delivered'") == 1
			})
			if got := historyOf(t, c, session); !strings.Contains(got, "assistant: "+text+"\n") {
				t.Errorf("the transcript of %s: %q", session, got)
			}
		}
		for _, c := range []struct{ target, want string }{
			{"web:agent:main", "--deliver: web needs a session key"}, {"web:agent:nosuch:main", "there is no agent"}, {"telegram", "--deliver: telegram needs the id of a chat"},
		} {
			if out, code := do("add", "--name", "lost", "--every", "24h", "--message", "lost", "--deliver", c.target); code != 1 || !strings.Contains(out, c.want) {
				t.Errorf("--deliver %s ended with %d: %s, want %s", c.target, code, out, c.want)
			}
		}
	})
}
