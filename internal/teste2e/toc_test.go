package teste2e

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"laneway/internal/testmodel"
	"laneway/internal/testrun"
)

var tocFact = regexp.MustCompile(`fact\d`)

func ofToc(call testmodel.Call) bool {
	return strings.HasPrefix(call.System, "You keep the table of contents")
}

// The built-in job summarises old conversations; the gateway is killed in the middle, and one conversation is deleted.
func TestWhatWasSaidIsSummarisedThroughAKill(t *testing.T) {
	NeedsProcesses(t)
	onBothStores(t, func(t *testing.T, database string) {
		model := testmodel.Start(t)
		var hang atomic.Bool
		model.Answer(func(call testmodel.Call) testmodel.Reply {
			if !ofToc(call) {
				return testmodel.Reply{Pieces: []string{"Noted."}}
			}
			var all strings.Builder
			for _, m := range call.Messages {
				all.WriteString(m.Content)
			}
			facts := slices.Compact(tocFact.FindAllString(all.String(), -1))
			if hang.Load() && slices.Contains(facts, "fact2") {
				return testmodel.Reply{HangFirst: true}
			}
			return testmodel.Reply{Pieces: []string{"They spoke of " + strings.Join(facts, " ") + "."}}
		})
		g := Install(t, database, fmt.Sprintf(`
agents:
  main: {runner: openai, model: test, base_url: "%s/v1", tools: "off"}
history: {summary_agent: main}
cron: {timezone: Europe/Berlin}
cluster: {lease: 3s, heartbeat: 500ms}
`, model.URL()))
		g.Start()
		w, c := watch(t, g), mustDial(t, g, nil)
		o, db := OpenOracle(t, g, database), writable(t, g, database)
		monday := time.Now().UTC().AddDate(0, 0, -(int(time.Now().UTC().Weekday())+6)%7-70).Truncate(24 * time.Hour).Add(12 * time.Hour)
		for i, days := range []int{0, 1, 8} { // two of one week, one of the next
			id := fmt.Sprintf("old%d", i+1)
			say(t, c, "agent:main:"+id, id, fmt.Sprintf("Remember fact%d.", i+1))
			w.await(t, id)
			execute(t, db, fmt.Sprintf("UPDATE transcript SET at = %d + seq WHERE session_key = 'agent:main:%s'", monday.AddDate(0, 0, days).UnixMilli(), id))
		}
		say(t, c, "agent:main:today", "today", "fact9 is of today.")
		w.await(t, "today")
		cli := func(args ...string) string {
			t.Helper()
			out, errs, code := g.CLI(withTimeout(t, time.Minute), "", args...)
			if code != 0 {
				t.Fatalf("%v ended with %d: %s", args, code, errs)
			}
			return out
		}

		hang.Store(true)
		cli("scheduler", "run", "system:rollup-month")
		testrun.Eventually(t, "the model summarises the second day", func() bool {
			return slices.ContainsFunc(model.Calls(), ofToc) && o.Count("SELECT count(*) FROM toc_parts") == 1
		})
		g.Kill()
		hang.Store(false)
		g.Start()
		testrun.Eventually(t, "the run has ended", func() bool {
			return o.Count("SELECT count(*) FROM cron_run_logs WHERE job_name = 'summaries of each month' AND state = 'ok'") == 1
		})
		if twice := o.Rows("SELECT day, made FROM toc_parts WHERE made <> 1 UNION ALL SELECT period, made FROM toc_nodes WHERE made <> 1"); len(twice) > 0 {
			t.Errorf("made more than once, or not: %v", twice)
		}
		if days, weeks := o.Count("SELECT count(*) FROM toc_parts"), o.Count("SELECT count(*) FROM toc_nodes WHERE level = 'week'"); days != 3 || weeks != 2 {
			t.Errorf("%d days and %d weeks, want 3 and 2", days, weeks)
		}
		if out := cli("toc"); strings.Count(out, "They spoke of") != 3 || !strings.Contains(out, "agent:main:old1\n    They spoke of fact1.") || strings.Contains(out, "fact9") {
			t.Errorf("laneway toc shows\n%s", out)
		}
		if out := cli("toc", "week", "--json"); !strings.Contains(out, "They spoke of fact1 fact2.") || !strings.Contains(out, "They spoke of fact3.") {
			t.Errorf("laneway toc week shows\n%s", out)
		}
		if out := cli("toc", "month"); !strings.Contains(out, "fact1") {
			t.Errorf("laneway toc month shows\n%s", out)
		}
		cli("sessions", "delete", "old1", "--yes")
		for _, level := range []string{"day", "week", "month"} {
			if out := cli("toc", level); strings.Contains(out, "fact1") {
				t.Errorf("after the deletion laneway toc %s shows\n%s", level, out)
			}
		}
		cli("scheduler", "run", "system:rollup-month", "--wait")
		if out := cli("toc", "week"); strings.Contains(out, "fact1") || !strings.Contains(out, "fact2") || !strings.Contains(out, "fact3") {
			t.Errorf("after the next run laneway toc week shows\n%s", out)
		}
		if _, errs, code := g.CLI(withTimeout(t, time.Minute), "", "toc", "--from", "yesterday"); code == 0 || !strings.Contains(errs, "a day is named as 2026-03-14") {
			t.Errorf("a wrong day ended with %d: %s", code, errs)
		}
		o.Check(3 * time.Second)
	})
}
