package cron

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"laneway/internal/cron/schedule"
)

// matrixTable are the decisions of a claim after an outage: for a job that fires once (at) or each minute (every and cron, which must not differ), by its
// policy for missed slots. The first column of results is a job without an active run, whatever its policy for overlaps, and with one under concurrent. The
// second is a job with an active run under skip, the third under cancel_previous, the fourth under buffer_one. Runs that catch up wait for the active run.
//
// Slots are counted from 0, with which the outage began. fire_all catches up three; the window is an hour, and unlimited for at. A run is written as its
// trigger, a row without a run as state and reason, and an active run that was asked to stop as its reason.
const matrixTable = `
1s       | once      | skip      | schedule 0                                                                                   | skipped overlap 0                                                                            | replaced, schedule 0                                                                                   | schedule 0
1s       | once      | fire_once | schedule 0                                                                                   | skipped overlap 0                                                                            | replaced, schedule 0                                                                                   | schedule 0
1s       | once      | fire_all  | schedule 0                                                                                   | skipped overlap 0                                                                            | replaced, schedule 0                                                                                   | schedule 0
1s       | recurring | skip      | schedule 0                                                                                   | skipped overlap 0                                                                            | replaced, schedule 0                                                                                   | schedule 0
1s       | recurring | fire_once | schedule 0                                                                                   | skipped overlap 0                                                                            | replaced, schedule 0                                                                                   | schedule 0
1s       | recurring | fire_all  | schedule 0                                                                                   | skipped overlap 0                                                                            | replaced, schedule 0                                                                                   | schedule 0
10m40s   | once      | skip      | catchup 0                                                                                    | catchup 0                                                                                    | replaced, catchup 0                                                                                    | catchup 0
10m40s   | once      | fire_once | catchup 0                                                                                    | catchup 0                                                                                    | replaced, catchup 0                                                                                    | catchup 0
10m40s   | once      | fire_all  | catchup 0                                                                                    | catchup 0                                                                                    | replaced, catchup 0                                                                                    | catchup 0
10m40s   | recurring | skip      | missed policy 0-10                                                                           | missed policy 0-10                                                                           | missed policy 0-10                                                                                     | missed policy 0-10
10m40s   | recurring | fire_once | missed policy 0-9, catchup 10                                                                | missed policy 0-9, catchup 10                                                                | replaced, missed policy 0-9, catchup 10                                                                | missed policy 0-9, catchup 10
10m40s   | recurring | fire_all  | missed max_catchup 0-7, catchup 8, catchup 9, catchup 10                                     | missed max_catchup 0-7, catchup 8, catchup 9, catchup 10                                     | replaced, missed max_catchup 0-7, catchup 8, catchup 9, catchup 10                                     | missed max_catchup 0-7, catchup 8, catchup 9, catchup 10
72h0m40s | once      | skip      | catchup 0                                                                                    | catchup 0                                                                                    | replaced, catchup 0                                                                                    | catchup 0
72h0m40s | once      | fire_once | catchup 0                                                                                    | catchup 0                                                                                    | replaced, catchup 0                                                                                    | catchup 0
72h0m40s | once      | fire_all  | catchup 0                                                                                    | catchup 0                                                                                    | replaced, catchup 0                                                                                    | catchup 0
72h0m40s | recurring | skip      | missed window 0-4260, missed policy 4261-4320                                                | missed window 0-4260, missed policy 4261-4320                                                | missed window 0-4260, missed policy 4261-4320                                                          | missed window 0-4260, missed policy 4261-4320
72h0m40s | recurring | fire_once | missed window 0-4260, missed policy 4261-4319, catchup 4320                                  | missed window 0-4260, missed policy 4261-4319, catchup 4320                                  | replaced, missed window 0-4260, missed policy 4261-4319, catchup 4320                                  | missed window 0-4260, missed policy 4261-4319, catchup 4320
72h0m40s | recurring | fire_all  | missed window 0-4260, missed max_catchup 4261-4317, catchup 4318, catchup 4319, catchup 4320 | missed window 0-4260, missed max_catchup 4261-4317, catchup 4318, catchup 4319, catchup 4320 | replaced, missed window 0-4260, missed max_catchup 4261-4317, catchup 4318, catchup 4319, catchup 4320 | missed window 0-4260, missed max_catchup 4261-4317, catchup 4318, catchup 4319, catchup 4320`

// matrixCell is a cell of the table.
type matrixCell struct {
	down, kind string
	missed     MissedRule
	overlap    OverlapPolicy // "" = no active run
}

func readMatrix(t *testing.T) map[matrixCell]string {
	t.Helper()
	cells := map[matrixCell]string{}
	for line := range strings.Lines(strings.TrimSpace(matrixTable)) {
		f := strings.Split(line, "|")
		if len(f) != 7 {
			t.Fatalf("a line of the table has %d columns: %s", len(f), line)
		}
		for overlap, column := range map[OverlapPolicy]int{"": 3, OverlapConcurrent: 3, OverlapSkip: 4, OverlapCancelPrevious: 5, OverlapBufferOne: 6} {
			cells[matrixCell{strings.TrimSpace(f[0]), strings.TrimSpace(f[1]), MissedRule(strings.TrimSpace(f[2])), overlap}] = strings.TrimSpace(f[column])
		}
	}
	return cells
}

// TestTheResultsOfSlotsDuringAnOutageAreTheTable covers every kind of schedule, every policy for missed slots, and every policy for overlaps with and without
// an active run, after outages of a second, some minutes and three days.
func TestTheResultsOfSlotsDuringAnOutageAreTheTable(t *testing.T) {
	t.Parallel()
	table := readMatrix(t)
	for _, down := range []time.Duration{time.Second, 10*time.Minute + 40*time.Second, 72*time.Hour + 40*time.Second} {
		for _, kind := range []schedule.Kind{schedule.KindAt, schedule.KindEvery, schedule.KindCron} {
			for _, missed := range []MissedPolicy{{Rule: MissedSkip}, {Rule: MissedFireOnce}, {Rule: MissedFireAll, MaxCatchup: 3}} {
				for _, overlap := range []OverlapPolicy{OverlapSkip, OverlapConcurrent, OverlapBufferOne, OverlapCancelPrevious} {
					for _, active := range []bool{false, true} {
						checkMatrix(t, table, down, kind, missed, overlap, active)
					}
				}
			}
		}
	}
}

func checkMatrix(t *testing.T, table map[matrixCell]string, down time.Duration, kind schedule.Kind, missed MissedPolicy, overlap OverlapPolicy, active bool) {
	t.Helper()
	first := time.Date(2026, 3, 14, 9, 28, 0, 0, time.UTC)
	cell := matrixCell{down: down.String(), kind: "recurring", missed: missed.Rule}
	spec := schedule.Spec{Kind: kind, EveryMs: time.Minute.Milliseconds(), AnchorMs: first.Add(-time.Minute).UnixMilli()}
	switch kind {
	case schedule.KindAt:
		cell.kind, spec = "once", schedule.Spec{Kind: kind, At: first}
	case schedule.KindCron:
		spec = schedule.Spec{Kind: kind, Expr: "* * * * *", TZ: "UTC"}
	case schedule.KindEvery:
	}
	d := DueJob{Job: Job{
		ID: "j", Owner: "ann", Agent: "main", Session: Isolated, Enabled: true, Overlap: overlap, Missed: missed, Schedule: spec,
		State: JobState{Plan: Plan{Next: first, NextRunAt: first}, ActivatedAt: first.Add(-time.Minute)},
	}}
	if active {
		cell.overlap, d.Active, d.Running = overlap, []string{"busy"}, 1
	}
	v := NewPlanner(schedule.NewCompiler(0), PlannerConfig{}).Decide(first.Add(down), []DueJob{d})[0]
	want, known := table[cell]
	if got := matrixRow(v, first); got != want || !known {
		t.Errorf("%+v, %s: the verdict is %q, want %q", cell, kind, got, want)
	}
	next := first.Add(down).Truncate(time.Minute).Add(time.Minute)
	if recurs := kind != schedule.KindAt; v.Disable == recurs || (recurs && !v.Next.Equal(next)) {
		t.Errorf("%+v, %s: disabled %v, the next slot is %s, want %s", cell, kind, v.Disable, v.Next, next)
	}
}

// matrixRow formats a verdict as in the table.
func matrixRow(v Verdict, first time.Time) string {
	type row struct {
		at   time.Time
		text string
	}
	slot := func(at time.Time) string { return strconv.FormatInt(int64(at.Sub(first)/time.Minute), 10) }
	var rows []row
	for _, l := range v.Runs {
		rows = append(rows, row{l.Run.ScheduledFor, string(l.Run.Trigger) + " " + slot(l.Run.ScheduledFor)})
	}
	for _, r := range v.Rows {
		text := string(r.State) + " " + string(r.Reason) + " " + slot(r.ScheduledFor)
		if r.SlotCount > 1 {
			text += "-" + slot(r.SlotUntil)
			if want := int64(r.SlotUntil.Sub(r.ScheduledFor)/time.Minute) + 1; r.SlotCount != want {
				text += fmt.Sprintf(" counted as %d", r.SlotCount)
			}
		}
		rows = append(rows, row{r.ScheduledFor, text})
	}
	slices.SortFunc(rows, func(a, b row) int { return a.at.Compare(b.at) })
	words := make([]string, 0, len(rows)+1)
	if len(v.Cancel) > 0 {
		words = append(words, string(ReasonReplaced))
	}
	for _, r := range rows {
		words = append(words, r.text)
	}
	return strings.Join(words, ", ")
}
