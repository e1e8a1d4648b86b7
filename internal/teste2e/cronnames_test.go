package teste2e

import (
	"regexp"
	"strings"
	"testing"
	"time"
)

// Before, a second laneway cron add under a name made a second job, which also fired, and edit accepted only JSON.
func TestANameIdentifiesAJobOnTheCommandLine(t *testing.T) {
	onBothStores(t, func(t *testing.T, database string) {
		g := Install(t, database, cronConfig)
		g.Start()
		ctx := withTimeout(t, 2*time.Minute)
		run := func(code int, pattern string, args ...string) string {
			t.Helper()
			out, errs, got := g.CLI(ctx, "", args...)
			if got != code || !regexp.MustCompile(pattern).MatchString(out+errs) {
				t.Fatalf("laneway %q ended with %d and printed %q %q, want %d and %s", args, got, out, errs, code, pattern)
			}
			return out
		}
		first, _, _ := strings.Cut(run(0, `tea, next`, "cron", "add", "--every", "1h", "--name", "tea", "--message", "tea"), " ")
		run(1, `a job has the name tea: `+first+` every 1h, enabled, next .*nothing was changed; --replace changes it, --new makes a second one\n$`,
			"cron", "add", "--every", "2h", "--name", "tea", "--message", "tea")
		run(1, `--replace changes it`, "cron", "add", "--every", "1h", "--name", "tea", "--message", "tea")
		run(0, `^`+first+` tea, next`, "cron", "add", "--every", "2h", "--name", "tea", "--message", "green tea", "--replace")
		run(0, `(?s)"message": "green tea".*"everyMs": 7200000`, "cron", "get", "tea", "--json")
		second, _, _ := strings.Cut(run(0, `tea, next`, "cron", "add", "--every", "2h", "--name", "tea", "--message", "tea", "--new"), " ")
		if first == second {
			t.Fatal("--new made no second job")
		}
		run(1, `2 jobs have the name tea: `+first+`.*`+second, "cron", "add", "--every", "2h", "--name", "tea", "--message", "tea", "--replace")
		run(1, `2 jobs are called tea; give the id: .*`+second, "cron", "pause", "tea")
		run(0, `removed`, "cron", "rm", second)

		out := run(0, `tea changed\n$`, "cron", "edit", "tea", "--cron", "30 9 * * 1-5", "--tz", "Europe/Berlin", "--message", "black tea")
		for _, want := range []string{
			"message: green tea → black tea\n", "schedule: every 2h → 30 9 * * 1-5 Europe/Berlin\n",
			"next fires (Europe/Berlin):\n  ",
		} {
			if !strings.Contains(out, want) {
				t.Errorf("no %q in\n%s", want, out)
			}
		}
		run(0, `(?s)schedule: .*next fires \(Asia/Tokyo\).*tea changed`, "cron", "edit", "tea", "--tz", "Asia/Tokyo")
		run(0, `tea is as you want it already`, "cron", "edit", "tea", "--tz", "Asia/Tokyo")
		run(0, `(?s)"expr": "30 9 \* \* 1-5".*"tz": "Asia/Tokyo"`, "cron", "get", "tea", "--json")
		run(1, `--cron: `, "cron", "edit", "tea", "--cron", "99 * * * *")
		run(2, `say what to change`, "cron", "edit", "tea")
		run(2, `not both`, "cron", "edit", "tea", "{}", "--message", "x")
		if n := OpenOracle(t, g, database).Count("SELECT count(*) FROM cron_jobs WHERE owner <> 'system'"); n != 1 {
			t.Errorf("%d jobs are left, want 1", n)
		}
	})
}
