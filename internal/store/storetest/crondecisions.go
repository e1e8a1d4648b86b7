package storetest

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"laneway/internal/cron"
	"laneway/internal/cron/schedule"
	"laneway/internal/store"
)

func cronDecisionTests() []test {
	return []test{
		{"InTime", func(w *world) { decisionsAreStored(w, 300*time.Millisecond, 1) }},
		{"TenMinutesLate", func(w *world) { decisionsAreStored(w, 10*time.Minute, 1) }},
		{"ThreeDaysLate", func(w *world) { decisionsAreStored(w, 72*time.Hour, 1) }},
		{"TenMinutesLateWithRacers", func(w *world) { decisionsAreStored(w, 10*time.Minute, racers) }},
		{"CancelPreviousMakesRoom", cancelPrevious},
		{"LastFireEndsTheJob", lastFire},
		{"RetryCountsAsActive", retryCountsAsActive},
		{"EditWhileDueMovesTheFire", editWhileDue},
	}
}

// decided is one job of the table with the runs that were active before the claim, and the decision.
type decided struct {
	name    string
	job     cron.Job
	before  []cron.Run
	verdict cron.Verdict
}

// decisionsAreStored claims every kind of schedule with every policy for missed slots, every policy for overlaps and every state of an earlier run, with this
// lateness and this many concurrent claimers. It checks that the ledger and the job contain exactly the decision.
func decisionsAreStored(w *world, late time.Duration, claimers int) {
	table := w.decisionTable()
	w.clock.advance(interval + late)
	node := w.node()
	var mu sync.Mutex
	verdicts := map[string]cron.Verdict{}
	note := func(now time.Time, due []cron.DueJob) []cron.Verdict {
		all := decide(now, due)
		mu.Lock()
		defer mu.Unlock()
		for _, v := range all {
			verdicts[v.JobID] = v
		}
		return all
	}
	var told, launched, recorded atomic.Int64
	claim := func(st store.Store, _ int) error {
		for more := true; more; {
			c, err := w.cronOf(st).Claim(w.ctx, cron.ClaimParams{Node: node, Limit: 50, Decide: note})
			if err != nil {
				return err
			}
			more = c.More
			told.Add(int64(len(c.Jobs)))
			launched.Add(int64(len(c.Launched)))
			recorded.Add(int64(len(c.Recorded)))
		}
		return nil
	}
	w.race(claimers, claim)
	w.ok(claim(w.st, 0)) // jobs that every racer skipped because another one had locked them
	runs, rows := 0, 0
	for _, d := range table {
		d.verdict = verdicts[d.job.ID]
		runs += len(d.verdict.Runs)
		rows += len(d.verdict.Rows)
		w.isStored(d)
	}
	equal(w, "jobs decided", len(verdicts), len(table))
	equal(w, "told, launched and recorded", []int64{told.Load(), launched.Load(), recorded.Load()}, []int64{int64(len(table)), int64(runs), int64(rows)})
	equal(w, "launched at all", runs > 0, true)
}

func (w *world) isStored(d decided) {
	w.Helper()
	v, after := d.verdict, w.stored(d.job.ID)
	equal(w, d.name, lines(w.history(d.job.ID)), lines(d.want()))
	got := []any{after.State.Next, after.State.NextRunAt, after.State.Fired, after.Enabled, after.State.ConsecutiveSkipped}
	equal(w, "job after "+d.name, got, []any{v.Next.UTC(), v.NextRunAt.UTC(), v.Fired, !v.Disable, v.ConsecutiveSkipped})
}

// decisionTable creates one job for each combination.
func (w *world) decisionTable() []decided {
	w.Helper()
	node := w.node()
	states := []cron.RunState{"", cron.RunQueued, cron.RunRunning}
	var table []decided
	for _, kind := range []schedule.Kind{schedule.KindAt, schedule.KindEvery, schedule.KindCron} {
		for _, missed := range []cron.MissedPolicy{
			{Rule: cron.MissedSkip}, {Rule: cron.MissedFireOnce}, {Rule: cron.MissedFireAll, MaxCatchup: 3}, {Rule: cron.MissedFireOnce, Window: cron.NoWindow},
		} {
			for _, policy := range []cron.OverlapPolicy{cron.OverlapSkip, cron.OverlapConcurrent, cron.OverlapBufferOne, cron.OverlapCancelPrevious} {
				for _, state := range states {
					table = append(table, w.decisionJob(node, kind, missed, policy, state))
				}
			}
		}
	}
	return table
}

func (w *world) decisionJob(node string, kind schedule.Kind, missed cron.MissedPolicy, policy cron.OverlapPolicy, state cron.RunState) decided {
	w.Helper()
	d := decided{name: fmt.Sprintf("%s, missed %v, overlap %s, active %q", kind, missed, policy, state)}
	d.job = w.job(func(j *cron.Job) {
		j.Missed, j.Overlap = missed, policy
		switch kind {
		case schedule.KindAt:
			w.firesAt(j, schedule.Spec{Kind: kind, At: w.clock.now().Add(interval)})
		case schedule.KindCron:
			w.firesAt(j, schedule.Spec{Kind: kind, Expr: "* * * * *", TZ: "Europe/Berlin"})
		case schedule.KindEvery:
		}
	})
	if state != "" {
		l := w.byHand(node, d.job)
		if state == cron.RunRunning {
			w.begin(l)
		}
		d.before = []cron.Run{w.ledger(l.Run.ID)}
	}
	return d
}

// byHand creates a manual run of a job.
func (w *world) byHand(node string, j cron.Job) cron.Launched {
	w.Helper()
	e := try(w.cron().EnqueueRuns(w.ctx, cron.EnqueueParams{Node: node, JobID: j.ID, Make: func(d cron.DueJob, now time.Time) ([]cron.Launch, error) {
		return []cron.Launch{launch(d.Job, cron.TriggerManual, schedule.Fire{Slot: now, At: now})}, nil
	}})).ok(w)
	return e.Launched[0]
}

// want are the expected rows of the ledger after the verdict.
func (d decided) want() []cron.Run {
	var list []cron.Run
	for _, r := range d.before {
		if slices.Contains(d.verdict.Cancel, r.ID) && r.State == cron.RunQueued {
			r.State, r.Reason = cron.RunCancelled, cron.ReasonReplaced
		}
		list = append(list, r)
	}
	for _, l := range d.verdict.Runs {
		list = append(list, l.Run)
	}
	return append(list, d.verdict.Rows...)
}

// lines are the rows without the columns that the store sets, in a fixed order. The reason of a run that continues is left out, because it is the reason of a
// stop request.
func lines(list []cron.Run) []string {
	var out []string
	for _, r := range list {
		if r.State == cron.RunRunning {
			r.Reason = ""
		}
		out = append(out, strings.Join([]string{
			r.ID, string(r.State), string(r.Reason), strconv.FormatInt(r.SlotCount, 10), stamp(r.ScheduledFor), stamp(r.SlotUntil), stamp(r.FireAt), r.JobKey, r.SessionKey,
		}, " "))
	}
	slices.Sort(out)
	return out
}

func stamp(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.UTC().Format(time.RFC3339Nano)
}

func cancelPrevious(w *world) {
	node := w.node()
	j := w.job(func(j *cron.Job) { j.Overlap = cron.OverlapCancelPrevious })
	first := w.due(node)
	w.pass(interval, node)
	c := w.claimDue(node)
	equal(w, "cancelled", c.Cancelled, []cron.CancelledRun{{
		RunID: first.Run.ID, JobID: j.ID, MessageID: first.Message.ID, Session: first.Message.Session, Seq: first.Seq,
	}})
	row := w.ledger(first.Run.ID)
	equal(w, "ledger", []any{row.State, row.Reason, row.FinishedAt}, []any{cron.RunCancelled, cron.ReasonReplaced, w.clock.now()})
	w.ended(first.Message.ID, "stopped")
	second := c.Launched[0]
	claim := w.begin(second)
	w.pass(interval, node)
	c = w.claimDue(node)
	equal(w, "asked to stop", c.Cancelled, []cron.CancelledRun{{
		RunID: second.Run.ID, JobID: j.ID, MessageID: second.Message.ID, Session: second.Message.Session, Seq: second.Seq, Running: true, Node: node,
	}})
	equal(w, "stop is told", w.beat(node).Stops[0].RunID, second.Message.ID)
	equal(w, "runs until its turn ends", w.ledger(second.Run.ID).State, cron.RunRunning)
	w.endRun(claim, second.Message.ID, cron.RunCancelled, func(e *cron.AttemptEnd) { e.Reason = cron.ReasonReplaced })
	row = w.ledger(second.Run.ID)
	equal(w, "ledger after it ended", []any{row.State, row.Reason}, []any{cron.RunCancelled, cron.ReasonReplaced})
}

func lastFire(w *world) {
	node := w.node()
	j := w.job(func(j *cron.Job) { j.MaxRuns = 2 })
	for range 2 {
		l := w.due(node)
		w.endRun(w.begin(l), l.Message.ID, cron.RunOK, nil)
	}
	after := w.stored(j.ID)
	equal(w, "ended", []any{after.Enabled, after.State.Next.IsZero(), after.State.NextRunAt.IsZero(), after.State.Fired}, []any{false, true, true, 2})
	w.clock.advance(10 * interval)
	equal(w, "launched after that", len(w.claimDue(w.node()).Launched), 0)
}

func retryCountsAsActive(w *world) {
	node := w.node()
	w.job(nil)
	l := w.due(node)
	w.endRun(w.begin(l), l.Message.ID, cron.RunRetrying, func(e *cron.AttemptEnd) { e.NextAttempt = w.clock.now().Add(time.Hour) })
	w.pass(interval, node)
	c := w.claimDue(node)
	equal(w, "launched and recorded", []int{len(c.Launched), len(c.Recorded)}, []int{0, 1})
	equal(w, "skipped", []any{c.Recorded[0].State, c.Recorded[0].Reason}, []any{cron.RunSkipped, cron.ReasonOverlap})
}

// editWhileDue: an edit of a due job moves its fire; the claim uses the edited job.
func editWhileDue(w *world) {
	node := w.node()
	j := w.job(nil)
	l := w.due(node)
	claim := w.begin(l)
	w.pass(interval, node)
	at := w.clock.now().Add(time.Hour)
	w.alter(j.ID, func(j *cron.Job) { j.Revision, j.State.Next, j.State.NextRunAt = "r2", at, at })
	c := w.claimDue(node)
	equal(w, "launched and recorded", []int{len(c.Launched), len(c.Recorded)}, []int{0, 0})
	var seen string
	w.endRun(claim, l.Message.ID, cron.RunOK, func(e *cron.AttemptEnd) {
		e.Job = func(old cron.Job, _ cron.Run, _ time.Time) *cron.Job {
			seen = old.Revision
			old.State.RunCount++
			return &old
		}
	})
	equal(w, "revision that the end of the run counts on", seen, "r2")
	after := w.stored(j.ID)
	equal(w, "the edit is kept", []any{after.Revision, after.State.Next, after.State.NextRunAt, after.State.RunCount}, []any{"r2", at, at, int64(1)})
}
