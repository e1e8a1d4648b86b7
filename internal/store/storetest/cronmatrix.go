package storetest

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"laneway/internal/cron"
	"laneway/internal/cron/schedule"
)

// cronMatrixTests are the whole table of the results of slots during an outage: every kind of schedule, every policy for missed slots, every
// policy for overlaps with and without an active run, after outages of a second, some minutes and three days. What is written down here is the ledger,
// row by row, by the planner that also fires in production.
func cronMatrixTests() []test {
	return []test{
		{"DownForASecond", func(w *world) { downFor(w, time.Second) }},
		{"DownForTenMinutes", func(w *world) { downFor(w, 10*time.Minute+40*time.Second) }},
		{"DownForThreeDays", func(w *world) { downFor(w, 72*time.Hour+40*time.Second) }},
	}
}

// matrixTable is the ledger after an outage: of a job that fires once (at) or each minute (every and cron, which must not differ), by its policy
// for missed slots. The first column of results is a job with no active run, whatever its policy for overlaps, and with one under concurrent;
// the second is one with an active run under skip, the third under cancel_previous, the fourth under buffer_one. What catches up waits behind the active run.
//
// Slots are counted from 0, with which the outage began. fire_all catches up three; the window is an hour, and none for at. A run is named by its trigger,
// a row without a run by state and reason, and the active run by its reason when it was asked to stop.
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

// matrixCell is a place of the table.
type matrixCell struct {
	down, kind string
	missed     cron.MissedRule
	overlap    cron.OverlapPolicy // "" = no run is active
}

func readMatrix(w *world) map[matrixCell]string {
	w.Helper()
	cells := map[matrixCell]string{}
	for line := range strings.Lines(strings.TrimSpace(matrixTable)) {
		f := strings.Split(line, "|")
		if len(f) != 7 {
			w.Fatalf("a line of the table has %d columns: %s", len(f), line)
		}
		for overlap, column := range map[cron.OverlapPolicy]int{
			"": 3, cron.OverlapConcurrent: 3, cron.OverlapSkip: 4, cron.OverlapCancelPrevious: 5, cron.OverlapBufferOne: 6,
		} {
			cells[matrixCell{strings.TrimSpace(f[0]), strings.TrimSpace(f[1]), cron.MissedRule(strings.TrimSpace(f[2])), overlap}] = strings.TrimSpace(f[column])
		}
	}
	return cells
}

// matrixEntry is a job in a place of the table.
type matrixEntry struct {
	cell matrixCell
	job  cron.Job
	busy string // id of the active run
}

func downFor(w *world, down time.Duration) {
	node := w.node()
	w.clock.advance(w.clock.now().Truncate(interval).Add(interval).Sub(w.clock.now())) // so that both kinds of recurring jobs fire on the minute
	all := w.matrix(node, down)
	first := w.clock.now().Add(interval)
	w.clock.advance(interval + down)
	planner := cron.NewPlanner(schedule.NewCompiler(0), cron.PlannerConfig{})
	node = w.node()
	for more := true; more; {
		c, err := w.cron().Claim(w.ctx, cron.ClaimParams{Node: node, Limit: many, Decide: planner.Decide})
		w.ok(err)
		more = c.More
	}
	table := readMatrix(w)
	next := first.Add(down).Truncate(interval).Add(interval)
	for _, e := range all {
		want, known := table[e.cell]
		if got := w.matrixRow(e, first); got != want || !known {
			w.Errorf("%+v: the ledger says %q, want %q", e.cell, got, want)
		}
		after := w.stored(e.job.ID)
		if recurs := e.cell.kind == "recurring"; after.Enabled != recurs || (recurs && !after.State.Next.Equal(next)) {
			w.Errorf("%+v: enabled %v, the next slot is %s, want %s", e.cell, after.Enabled, after.State.Next, next)
		}
	}
}

// matrix makes a job for every place of the table.
func (w *world) matrix(node string, down time.Duration) (all []matrixEntry) {
	w.Helper()
	add := func(kind schedule.Kind, missed cron.MissedPolicy, overlap cron.OverlapPolicy) {
		cell := matrixCell{down: down.String(), kind: "recurring", missed: missed.Rule}
		if kind == schedule.KindAt {
			cell.kind = "once"
		}
		all = append(all, matrixEntry{cell: cell, job: w.matrixJob(kind, missed, overlap)})
		cell.overlap = overlap
		j := w.matrixJob(kind, missed, overlap)
		l := w.byHand(node, j)
		w.begin(l)
		all = append(all, matrixEntry{cell: cell, job: j, busy: l.Run.ID})
	}
	for _, kind := range []schedule.Kind{schedule.KindAt, schedule.KindEvery, schedule.KindCron} {
		for _, missed := range []cron.MissedPolicy{{Rule: cron.MissedSkip}, {Rule: cron.MissedFireOnce}, {Rule: cron.MissedFireAll, MaxCatchup: 3}} {
			for _, overlap := range []cron.OverlapPolicy{cron.OverlapSkip, cron.OverlapConcurrent, cron.OverlapBufferOne, cron.OverlapCancelPrevious} {
				add(kind, missed, overlap)
			}
		}
	}
	return all
}

func (w *world) matrixJob(kind schedule.Kind, missed cron.MissedPolicy, overlap cron.OverlapPolicy) cron.Job {
	w.Helper()
	return w.job(func(j *cron.Job) {
		j.Missed, j.Overlap = missed, overlap
		switch kind {
		case schedule.KindAt:
			w.firesAt(j, schedule.Spec{Kind: kind, At: w.clock.now().Add(interval)})
		case schedule.KindCron:
			w.firesAt(j, schedule.Spec{Kind: kind, Expr: "* * * * *", TZ: "UTC"})
		case schedule.KindEvery:
		}
	})
}

// matrixRow is the history of a job as the table writes it.
func (w *world) matrixRow(e matrixEntry, first time.Time) string {
	w.Helper()
	var words []string
	list := w.history(e.job.ID)
	slices.SortFunc(list, func(a, b cron.Run) int { return a.ScheduledFor.Compare(b.ScheduledFor) })
	for _, r := range list {
		slot := strconv.FormatInt(int64(r.ScheduledFor.Sub(first)/interval), 10)
		if r.SlotCount > 1 {
			slot += "-" + strconv.FormatInt(int64(r.SlotUntil.Sub(first)/interval), 10)
			if want := int64(r.SlotUntil.Sub(r.ScheduledFor)/interval) + 1; r.SlotCount != want {
				slot += fmt.Sprintf(" counted as %d", r.SlotCount)
			}
		}
		switch {
		case r.ID == e.busy && r.Reason != "":
			words = append(words, string(r.Reason))
		case r.ID == e.busy:
		case r.State == cron.RunQueued:
			words = append(words, string(r.Trigger)+" "+slot)
		default:
			words = append(words, string(r.State)+" "+string(r.Reason)+" "+slot)
		}
	}
	return strings.Join(words, ", ")
}
