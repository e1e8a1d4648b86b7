package storetest

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"laneway/internal/chat"
	"laneway/internal/cron"
	"laneway/internal/cron/schedule"
	"laneway/internal/store"
)

func cronLedgerTests() []test {
	return []test{
		{"FiltersOfRuns", filtersOfRuns},
		{"OrderedByThePlannedTime", runsByPlannedTime},
		{"EndsOfRunsMoveNoPage", endsMoveNoPage},
		{"ReadingMovesNothing", readingMovesNothing},
		{"SummaryCounts", summaryCounts},
		{"PruneByAge", pruneByAge},
		{"PruneByCount", pruneByCount},
		{"PrunedRunLeavesNoMessage", prunedRun},
	}
}

func (w *world) runIDs(f cron.RunFilter) []string {
	w.Helper()
	p := try(w.cron().Runs(w.ctx, f)).ok(w)
	var ids []string
	for _, r := range p.Runs {
		ids = append(ids, r.ID)
	}
	return ids
}

// ran fires the only job n times and ends each run successfully.
func (w *world) ran(node string, n int) []cron.Launched {
	w.Helper()
	var list []cron.Launched
	for range n {
		l := w.due(node)
		w.endRun(w.begin(l), l.Message.ID, cron.RunOK, nil)
		list = append(list, l)
	}
	return list
}

func filtersOfRuns(w *world) {
	node := w.node()
	j := w.job(func(j *cron.Job) { j.Agent = "other" })
	bob := w.job(func(j *cron.Job) { j.Owner, j.Enabled, j.Name = "bob", false, "Bericht ÜBER alles" })
	good := w.due(node)
	w.endRun(w.begin(good), good.Message.ID, cron.RunOK, func(e *cron.AttemptEnd) { e.Summary, e.Delivery = "3 Items 100%", cron.DeliveryNot })
	bad := w.due(node)
	w.endRun(w.begin(bad), bad.Message.ID, cron.RunError, nil)
	gone := w.due(node)
	w.cancel(cron.CancelParams{RunID: gone.Run.ID, Reason: cron.ReasonStopped})
	busy := w.due(node)
	w.begin(busy)
	w.pass(interval, node)
	skipped := w.claimDue(node).Recorded[0]
	hers := w.byHand(node, bob)
	w.endRun(w.begin(hers), hers.Message.ID, cron.RunOK, nil)
	over := []string{good.Run.ID, bad.Run.ID, gone.Run.ID, skipped.ID, hers.Run.ID}
	for name, tt := range map[string]struct {
		f    cron.RunFilter
		want []string
	}{
		"finished":  {cron.RunFilter{}, over},
		"all":       {cron.RunFilter{IncludeActive: true}, append([]string{busy.Run.ID}, over...)},
		"job":       {cron.RunFilter{JobID: bob.ID}, over[4:]},
		"run":       {cron.RunFilter{RunID: bad.Run.ID}, over[1:2]},
		"owner":     {cron.RunFilter{Visible: "ann"}, over[:4]},
		"agent":     {cron.RunFilter{Agent: "other"}, over[:4]},
		"states":    {cron.RunFilter{States: []cron.RunState{cron.RunError, cron.RunSkipped}}, []string{bad.Run.ID, skipped.ID}},
		"delivery":  {cron.RunFilter{Deliveries: []cron.DeliveryStatus{cron.DeliveryNot}}, over[:1]},
		"error":     {cron.RunFilter{Query: "BACKEND answered"}, over[1:2]},
		"summary":   {cron.RunFilter{Query: "items 100%"}, over[:1]},
		"name":      {cron.RunFilter{Query: "bericht"}, over[4:]},
		"wildcards": {cron.RunFilter{Query: "3%100"}, nil},
		"since":     {cron.RunFilter{JobID: j.ID, Since: bad.Run.ScheduledFor.Add(-time.Second)}, over[1:4]},
		"until":     {cron.RunFilter{JobID: j.ID, Until: bad.Run.ScheduledFor.Add(time.Second)}, over[:2]},
		"unknown":   {cron.RunFilter{JobID: "nothing"}, nil},
	} {
		tt.f.Limit = many
		got := w.runIDs(tt.f)
		slices.Sort(got)
		want := slices.Sorted(slices.Values(tt.want))
		equal(w, "runs by "+name, got, want)
	}
}

// runsByPlannedTime: the run that was planned first is the last of a list, even when it ends last
// or has not ended; runs planned at the same time are ordered by id.
func runsByPlannedTime(w *world) {
	node := w.node()
	apart := func(j *cron.Job) { j.Enabled = false }
	a, b := w.job(apart), w.job(apart)
	var list []cron.Launched
	for _, j := range []cron.Job{a, b, a, b, a} {
		w.pass(time.Minute, node)
		list = append(list, w.byHand(node, j))
	}
	twin := w.byHand(node, b) // planned at the same time as the last one
	first, busy, waiting, late, early := list[0], list[1], list[2], list[3], list[4]
	slow := w.begin(first)
	w.begin(busy)
	for _, l := range []cron.Launched{twin, early, late} {
		w.pass(time.Minute, node)
		w.endRun(w.begin(l), l.Message.ID, cron.RunOK, nil)
	}
	w.pass(time.Minute, node)
	w.endRun(slow, first.Message.ID, cron.RunOK, nil)
	last := []string{early.Run.ID, twin.Run.ID}
	slices.Sort(last)
	oldest := []string{first.Run.ID, late.Run.ID, last[0], last[1]}
	all := []string{first.Run.ID, busy.Run.ID, waiting.Run.ID, late.Run.ID, last[0], last[1]}
	for _, tt := range []struct {
		name string
		f    cron.RunFilter
		want []string
	}{
		{"finished", cron.RunFilter{}, oldest},
		{"all", cron.RunFilter{IncludeActive: true}, all},
		{"active", cron.RunFilter{States: []cron.RunState{cron.RunRunning, cron.RunQueued}}, all[1:3]},
		{"some", cron.RunFilter{States: []cron.RunState{cron.RunQueued, cron.RunOK}}, slices.Delete(slices.Clone(all), 1, 2)},
		{"job", cron.RunFilter{JobID: a.ID}, []string{first.Run.ID, early.Run.ID}},
		{"job, all", cron.RunFilter{JobID: a.ID, IncludeActive: true}, []string{first.Run.ID, waiting.Run.ID, early.Run.ID}},
		{"owner", cron.RunFilter{Visible: a.Owner}, oldest},
		{"owner, all", cron.RunFilter{Visible: a.Owner, IncludeActive: true}, all},
		{"agent", cron.RunFilter{Agent: a.Agent}, oldest},
		{"query", cron.RunFilter{Query: "NAME of"}, oldest},
		{"query, all", cron.RunFilter{Query: "NAME of", IncludeActive: true}, all},
		{"since", cron.RunFilter{Since: late.Run.ScheduledFor}, oldest[1:]},
		{"until", cron.RunFilter{Until: late.Run.ScheduledFor, IncludeActive: true}, all[:4]},
	} {
		tt.f.Limit, tt.f.Ascending = many, true
		equal(w, tt.name+", oldest first", w.runIDs(tt.f), tt.want)
		newest := slices.Clone(tt.want)
		slices.Reverse(newest)
		tt.f.Ascending = false
		equal(w, tt.name+", newest first", w.runIDs(tt.f), newest)
		var paged []string
		for tt.f.Limit = 1; tt.f.Offset < len(newest); tt.f.Offset++ {
			p := try(w.cron().Runs(w.ctx, tt.f)).ok(w)
			equal(w, tt.name+", total", p.Total, len(newest))
			for _, r := range p.Runs {
				paged = append(paged, r.ID)
			}
		}
		equal(w, tt.name+", page by page", paged, newest)
	}
}

// endsMoveNoPage: a run that ends between two page reads does not move any run from one page to the
// other.
func endsMoveNoPage(w *world) {
	node := w.node()
	j := w.job(func(j *cron.Job) { j.Enabled = false })
	var want []string
	var list []cron.Launched
	for range 6 {
		w.pass(time.Minute, node)
		l := w.byHand(node, j)
		list, want = append(list, l), append(want, l.Run.ID)
	}
	slices.Reverse(want)
	var got []string
	for i, l := range []cron.Launched{list[5], list[4], list[3]} {
		got = append(got, w.runIDs(cron.RunFilter{IncludeActive: true, Limit: 2, Offset: 2 * i})...)
		w.endRun(w.begin(l), l.Message.ID, cron.RunOK, nil)
	}
	equal(w, "the pages", got, want)
}

func readingMovesNothing(w *world) {
	w.node()
	j := w.job(nil)
	w.clock.advance(10 * interval)
	for range 20 {
		w.jobIDs(cron.JobFilter{Limit: many})
		w.history(j.ID)
		try(w.cron().Summary(w.ctx, "")).ok(w)
	}
	equal(w, "job", w.stored(j.ID), j)
	equal(w, "ledger", len(w.history(j.ID)), 0)
}

func summaryCounts(w *world) {
	node := w.node()
	j := w.job(nil)
	w.job(func(j *cron.Job) { j.Enabled = false })
	w.job(func(j *cron.Job) {
		j.Pause, j.State.Next, j.State.NextRunAt = &cron.Pause{By: "ann", At: w.clock.now()}, time.Time{}, time.Time{}
	})
	w.job(func(j *cron.Job) { j.Owner, j.Enabled = "bob", false })
	check := func(when, visible string, want cron.Summary) {
		got := try(w.cron().Summary(w.ctx, visible)).ok(w)
		if got.OldestDue < 0 {
			got.OldestDue = -1
		}
		got.NextWake = got.NextWake.UTC()
		equal(w, "summary "+when, got, want)
	}
	check("at first", "", cron.Summary{Jobs: 4, Paused: 1, OldestDue: -1, NextWake: j.State.Next})
	check("of bob", "bob", cron.Summary{Jobs: 1, OldestDue: -1, NextWake: time.Time{}.UTC()})
	w.pass(interval+2*time.Second, node)
	check("when a job is due", "ann", cron.Summary{Jobs: 3, Paused: 1, Backlog: 1, OldestDue: 2 * time.Second, NextWake: j.State.Next})
	l := w.launchOne(node)
	w.clock.advance(time.Second)
	next := j.State.Next.Add(interval)
	check("when a run waits", "ann", cron.Summary{Jobs: 3, Paused: 1, Backlog: 1, OldestDue: 3 * time.Second, NextWake: next})
	c := w.begin(l)
	check("when it runs", "ann", cron.Summary{Jobs: 3, Paused: 1, Running: 1, OldestDue: -1, NextWake: next})
	w.endRun(c, l.Message.ID, cron.RunOK, nil)
	check("when it has ended", "ann", cron.Summary{Jobs: 3, Paused: 1, OldestDue: -1, NextWake: next})
}

func (w *world) prune(p store.PruneParams) int {
	w.Helper()
	p.What = store.PruneLedger
	return try(w.st.Prune(w.ctx, p)).ok(w)
}

func pruneByAge(w *world) {
	node := w.node()
	j := w.job(nil)
	list := w.ran(node, 6)
	active := w.due(node)
	before := list[4].Run.ScheduledFor // the first four ended earlier
	equal(w, "gone with a limit", w.prune(store.PruneParams{Before: before, Limit: 3}), 3)
	equal(w, "gone after that", w.prune(store.PruneParams{Before: before, Limit: 3}), 1)
	equal(w, "gone at last", w.prune(store.PruneParams{Before: before, Limit: 3}), 0)
	equal(w, "left", w.runIDs(cron.RunFilter{JobID: j.ID, Ascending: true, Limit: many}), []string{list[4].Run.ID, list[5].Run.ID})
	equal(w, "gone of all", w.prune(store.PruneParams{Before: w.clock.now().Add(time.Hour), Limit: many}), 2)
	equal(w, "what has not ended", w.ledger(active.Run.ID).State, cron.RunQueued)
}

func pruneByCount(w *world) {
	node := w.node()
	a := w.job(nil)
	list := w.ran(node, 5)
	b := w.job(func(j *cron.Job) { j.Enabled = false })
	other := w.byHand(node, b)
	w.endRun(w.begin(other), other.Message.ID, cron.RunOK, nil)
	equal(w, "gone without bounds", w.prune(store.PruneParams{Limit: many}), 0)
	equal(w, "gone", w.prune(store.PruneParams{Keep: 2, Limit: many}), 3)
	equal(w, "left", w.runIDs(cron.RunFilter{JobID: a.ID, Ascending: true, Limit: many}), []string{list[3].Run.ID, list[4].Run.ID})
	equal(w, "left of the other job", w.runIDs(cron.RunFilter{JobID: b.ID, Limit: many}), []string{other.Run.ID})
}

func prunedRun(w *world) {
	node := w.node()
	w.job(nil)
	l := w.failOnce(node, time.Second)
	w.clock.advance(time.Second)
	again := w.launchOne(node)
	w.endRun(w.begin(again), again.Message.ID, cron.RunOK, nil)
	id, _ := w.acceptText(node, l.Message.Session)
	lone := w.due(node) // its session gets no other message
	c, _ := w.beginSaying(lone, entry(chat.RoleUser, "work", lone.Message.ID))
	w.endRun(c, lone.Message.ID, cron.RunOK, nil)
	equal(w, "gone", w.prune(store.PruneParams{Before: w.clock.now().Add(time.Second), Limit: many}), 2)
	try(w.st.Session(w.ctx, lone.Message.Session, "")).fails(w, chat.ErrSessionNotFound)
	equal(w, "its transcript", w.entriesOf(lone.Message.Session), nil)
	equal(w, "tombstones", w.h.Query(w.tb, "SELECT 1 FROM tombstones"), nil)
	try(w.cron().Run(w.ctx, l.Run.ID, "")).fails(w, chat.ErrNotFound)
	for _, messageID := range []string{l.Message.ID, again.Message.ID} {
		try(w.st.MessageByID(w.ctx, messageID)).fails(w, chat.ErrNotFound)
		try(w.st.RunByID(w.ctx, messageID)).fails(w, chat.ErrNotFound)
	}
	equal(w, "other messages of the session", w.row(id).State, store.StateWaiting)
}

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

// decided is one job of the table with the runs that were active before the claim, and the
// decision.
type decided struct {
	name    string
	job     cron.Job
	before  []cron.Run
	verdict cron.Verdict
}

// decisionsAreStored claims every kind of schedule with every policy for missed slots, every policy
// for overlaps and every state of an earlier run, with this lateness and this many concurrent
// claimers. It checks that the ledger and the job contain exactly the decision.
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

// lines are the rows without the columns that the store sets, in a fixed order. The reason of a run
// that continues is left out, because it is the reason of a stop request.
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
