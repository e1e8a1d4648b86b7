package storetest

import (
	"errors"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"laneway/internal/chat"
	"laneway/internal/cron"
	"laneway/internal/cron/schedule"
	"laneway/internal/store"
)

func cronCancelTests() []test {
	return []test{
		{"QueuedRunEndsAtOnce", cancelQueued},
		{"RetryingRunEndsAtOnce", cancelRetrying},
		{"RunningRunIsAskedToStop", cancelRunning},
		{"TheEndKeepsTheReasonOfTheCancellation", cancelKeepsItsReason},
		{"RunThatIsOverStaysAsItIs", cancelOver},
		{"AllRunsOfAJob", cancelAllOfAJob},
		{"NoPrincipalCancelsRunsOfOthers", cancelOfOthers},
		{"RemovalTakesTheRunsAlong", removalCancels},
		{"RunAfterATakeoverIsCancelled", cancelAfterTakeover},
		{"StopOutlivesTheNodeThatRanIt", stopOutlivesItsNode},
		{"StopOfARunningMessageLeavesTheRow", stopRunning},
	}
}

func (w *world) cancel(p cron.CancelParams) []cron.CancelledRun {
	w.Helper()
	c := try(w.cron().CancelRuns(w.ctx, p)).ok(w)
	ids := make([]string, 0, len(c.Runs))
	for _, r := range c.Runs {
		ids = append(ids, r.RunID)
	}
	equal(w, "ids of what was cancelled", c.IDs, ids)
	return c.Runs
}

func cancelQueued(w *world) {
	node := w.node()
	j := w.job(nil)
	l := w.due(node)
	list := w.cancel(cron.CancelParams{
		RunID: l.Run.ID, Reason: cron.ReasonStopped, Note: "wrong text", By: "ann",
		Audit: &cron.Audit{Who: "ann", Verb: "cancel", Object: l.Run.ID},
	})
	equal(w, "cancelled", list, []cron.CancelledRun{{
		RunID: l.Run.ID, JobID: j.ID, MessageID: l.Message.ID, Session: l.Message.Session, Seq: l.Seq,
	}})
	r := w.ledger(l.Run.ID)
	equal(w, "ledger", []any{r.State, r.Reason, r.FinishedAt, r.Attempt}, []any{cron.RunCancelled, cron.ReasonStopped, w.clock.now(), 0})
	w.ended(l.Message.ID, chat.OutcomeStopped)
	equal(w, "started after that", w.start(claimOfRun(l), l.Message.ID, l.Seq).Seqs, nil)
	equal(w, "audit rows", len(w.audits()), len(w.h.Query(w.tb, "SELECT 1")))
	equal(w, "cancelled again", len(w.cancel(cron.CancelParams{RunID: l.Run.ID, Reason: cron.ReasonStopped, Audit: &cron.Audit{Who: "x"}})), 0)
	equal(w, "audit rows after nothing was done", len(w.audits()), 1)
	equal(w, "next fire", len(w.due(node).Message.ID) > 0, true)
}

func cancelRetrying(w *world) {
	node := w.node()
	w.job(nil)
	l := w.failOnce(node, time.Second)
	list := w.cancel(cron.CancelParams{RunID: l.Run.ID, Reason: cron.ReasonStopped, By: "ann"})
	equal(w, "cancelled", []any{len(list), list[0].Running}, []any{1, false})
	r := w.ledger(l.Run.ID)
	equal(w, "ledger", []any{r.State, r.Reason, r.NextAttempt.IsZero(), len(r.Attempts)}, []any{cron.RunCancelled, cron.ReasonStopped, true, 1})
	equal(w, "error of its last attempt", []any{r.Error, r.ErrorClass}, []any{"backend answered 503", "overloaded"})
	w.pass(10*time.Second, node)
	equal(w, "tried again", len(w.claimDue(node).Launched), 0)
	l = w.failOnce(node, time.Second)
	w.cancel(cron.CancelParams{RunID: l.Run.ID, Note: "not needed any more", By: "ann"})
	equal(w, "error with a note", w.ledger(l.Run.ID).Error, "not needed any more")
}

func cancelRunning(w *world) {
	node := w.node()
	j := w.job(nil)
	l := w.due(node)
	c := w.begin(l)
	list := w.cancel(cron.CancelParams{JobID: j.ID, Reason: cron.ReasonStopped, By: "ann"})
	equal(w, "cancelled", list, []cron.CancelledRun{{
		RunID: l.Run.ID, JobID: j.ID, MessageID: l.Message.ID, Session: l.Message.Session, Seq: l.Seq, Running: true, Node: node,
	}})
	equal(w, "still running", w.ledger(l.Run.ID).State, cron.RunRunning)
	stops := w.beat(node).Stops
	equal(w, "stops that the node is told", stops, []store.StopRequest{{Session: l.Message.Session, RunID: l.Message.ID, By: "ann"}})
	w.endRun(c, l.Message.ID, cron.RunCancelled, nil)
	r := w.ledger(l.Run.ID)
	equal(w, "ledger", []any{r.State, r.Reason, r.Attempts[0].State}, []any{cron.RunCancelled, cron.ReasonStopped, cron.AttemptCancelled})
}

// cancelKeepsItsReason: the process that runs the cancelled run gets a stop, not always with its
// reason; the row has the reason.
func cancelKeepsItsReason(w *world) {
	node := w.node()
	j := w.job(nil)
	l := w.due(node)
	c := w.begin(l)
	w.cancel(cron.CancelParams{JobID: j.ID, Reason: cron.ReasonReplaced, Note: "a newer one came", By: "cron"})
	w.endRun(c, l.Message.ID, cron.RunCancelled, func(e *cron.AttemptEnd) { e.Reason, e.Error = cron.ReasonStopped, "the turn was stopped" })
	r := w.ledger(l.Run.ID)
	equal(w, "ledger", []any{r.State, r.Reason, r.Error}, []any{cron.RunCancelled, cron.ReasonReplaced, "a newer one came"})
	l = w.due(node)
	c = w.begin(l)
	w.cancel(cron.CancelParams{JobID: j.ID, By: "ann"})
	w.endRun(c, l.Message.ID, cron.RunCancelled, func(e *cron.AttemptEnd) { e.Error = "the turn was stopped" })
	equal(w, "error without a note", w.ledger(l.Run.ID).Error, "the turn was stopped")
	l = w.failOnce(node, time.Second)
	w.clock.advance(time.Second)
	w.begin(w.launchOne(node))
	r = w.ledger(l.Run.ID)
	equal(w, "error while the second attempt runs", []any{r.Error, r.ErrorClass, r.Attempts[0].Error}, []any{"", "", "backend answered 503"})
}

func cancelOver(w *world) {
	node := w.node()
	w.job(nil)
	l := w.due(node)
	w.endRun(w.begin(l), l.Message.ID, cron.RunOK, nil)
	before := w.ledger(l.Run.ID)
	equal(w, "cancelled", len(w.cancel(cron.CancelParams{RunID: l.Run.ID, Reason: cron.ReasonStopped})), 0)
	equal(w, "ledger", w.ledger(l.Run.ID), before)
	try(w.cron().CancelRuns(w.ctx, cron.CancelParams{RunID: "schedule:nothing:1", Reason: cron.ReasonStopped})).fails(w, chat.ErrNotFound)
	equal(w, "of a job without runs", len(w.cancel(cron.CancelParams{JobID: l.Run.JobID, Reason: cron.ReasonStopped})), 0)
	try(w.cron().CancelRuns(w.ctx, cron.CancelParams{JobID: "nothing", Reason: cron.ReasonStopped})).fails(w, chat.ErrNotFound)
}

func cancelAllOfAJob(w *world) {
	node := w.node()
	j := w.job(func(j *cron.Job) { j.Overlap = cron.OverlapConcurrent })
	other := w.job(nil)
	otherRun := w.byHand(node, other)
	var runs []cron.Launched
	for range 3 {
		w.clock.advance(time.Millisecond)
		runs = append(runs, w.byHand(node, j))
	}
	c := w.begin(runs[1])
	list := w.cancel(cron.CancelParams{JobID: j.ID, Reason: cron.ReasonStopped, By: "ann"})
	running := map[string]bool{}
	for _, r := range list {
		running[r.RunID] = r.Running
	}
	equal(w, "cancelled", running, map[string]bool{runs[0].Run.ID: false, runs[1].Run.ID: true, runs[2].Run.ID: false})
	equal(w, "run of another job", w.ledger(otherRun.Run.ID).State, cron.RunQueued)
	w.endRun(c, runs[1].Message.ID, cron.RunCancelled, nil)
}

func cancelOfOthers(w *world) {
	node := w.node()
	j := w.job(nil)
	l := w.due(node)
	try(w.cron().CancelRuns(w.ctx, cron.CancelParams{RunID: l.Run.ID, Visible: "bob", Reason: cron.ReasonStopped})).fails(w, chat.ErrNotFound)
	try(w.cron().CancelRuns(w.ctx, cron.CancelParams{JobID: j.ID, Visible: "bob", Reason: cron.ReasonStopped})).fails(w, chat.ErrNotFound)
	equal(w, "ledger", w.ledger(l.Run.ID).State, cron.RunQueued)
	p := try(w.cron().Runs(w.ctx, cron.RunFilter{Visible: "bob", IncludeActive: true, Limit: many})).ok(w)
	equal(w, "runs that bob sees", []int{len(p.Runs), p.Total}, []int{0, 0})
}

func removalCancels(w *world) {
	node := w.node()
	j := w.job(func(j *cron.Job) { j.Overlap = cron.OverlapConcurrent })
	running := w.due(node)
	c := w.begin(running)
	queued := w.due(node)
	removed := try(w.cron().ChangeJob(w.ctx, cron.ChangeParams{
		ID: j.ID, CancelActive: true, CancelReason: cron.ReasonRemoved, By: "ann",
		Change: func(cron.Job, time.Time) (*cron.Job, error) {
			return nil, nil // removes the job
		},
	})).ok(w)
	equal(w, "ended", len(removed.Ended), 2)
	r := w.ledger(queued.Run.ID)
	equal(w, "queued run", []any{r.State, r.Reason}, []any{cron.RunCancelled, cron.ReasonRemoved})
	w.ended(queued.Message.ID, chat.OutcomeStopped)
	equal(w, "stop is told", w.beat(node).Stops[0].RunID, running.Message.ID)
	w.endRun(c, running.Message.ID, cron.RunCancelled, func(e *cron.AttemptEnd) { e.Reason = cron.ReasonRemoved })
	equal(w, "running run", w.ledger(running.Run.ID).Reason, cron.ReasonRemoved)
}

func cancelAfterTakeover(w *world) {
	dead := w.node()
	w.job(nil)
	l := w.due(dead)
	w.begin(l)
	w.clock.advance(lease + time.Second)
	w.sweepOne(w.node(), l.Message.Session)
	list := w.cancel(cron.CancelParams{RunID: l.Run.ID, Reason: cron.ReasonStopped, By: "ann"})
	equal(w, "cancelled", []any{len(list), list[0].Running}, []any{1, false})
	r := w.ledger(l.Run.ID)
	equal(w, "ledger", []any{r.State, r.Reason, r.Attempt}, []any{cron.RunCancelled, cron.ReasonStopped, 1})
	w.ended(l.Message.ID, chat.OutcomeStopped)
}

// stopOutlivesItsNode: a node that takes over a run with a stop request ends it without running it.
func stopOutlivesItsNode(w *world) {
	dead := w.node()
	w.job(nil)
	l := w.due(dead)
	w.begin(l)
	w.cancel(cron.CancelParams{RunID: l.Run.ID, Reason: cron.ReasonStopped, By: "ann"})
	w.clock.advance(lease + time.Second)
	node := w.node()
	taken := w.sweepOne(node, l.Message.Session)
	equal(w, "queued", w.ledger(l.Run.ID).State, cron.RunQueued)
	s := w.start(taken.Claim, l.Message.ID, l.Seq)
	equal(w, "who asked", s.StopBy, "ann")
	w.endRun(taken.Claim, l.Message.ID, cron.RunCancelled, nil)
	r := w.ledger(l.Run.ID)
	equal(w, "ledger", []any{r.State, r.Reason}, []any{cron.RunCancelled, cron.ReasonStopped})
}

func stopRunning(w *world) {
	node := w.node()
	w.job(nil)
	l := w.due(node)
	c := w.begin(l)
	s := try(w.st.Stop(w.ctx, store.StopParams{Session: l.Message.Session, Scope: store.StopAll, By: "ann", Reason: "stop"})).ok(w)
	equal(w, "asked to stop", s.Running, []store.RunningRun{{RunID: l.Message.ID, Node: node}})
	equal(w, "ledger", w.ledger(l.Run.ID).State, cron.RunRunning)
	p := w.ending(c, l.Message.ID, cron.RunCancelled, nil)
	p.StillRunning = true
	w.finish(p)
	r := w.ledger(l.Run.ID)
	equal(w, "ledger after the end", []any{r.State, r.Reason}, []any{cron.RunCancelled, cron.ReasonStopped})
	w.ok(w.st.EndStopping(w.ctx, c, l.Message.ID))
}

func cronWaitingTests() []test {
	return []test{
		{"AChangeAndAStartAgreeWhoWasFirst", changeAgainstStart},
		{"AChangeMeetsAClaim", changeAgainstClaim},
		{"WaitingFiresEndWithAPause", pauseEndsWaiting},
	}
}

// changeAgainstStart removes a job while its due run starts: the run starts, or it ends as
// cancelled.
func changeAgainstStart(w *world) {
	node := w.node()
	for range 20 {
		j := w.job(func(j *cron.Job) { j.MaxRuns = 1 })
		l := w.due(node)
		var started atomic.Int64
		w.race(2, func(st store.Store, i int) error {
			if i == 0 {
				return w.remove(st, j.ID)
			}
			s, err := st.Start(w.ctx, store.StartParams{
				Claim: claimOfRun(l), RunID: l.Message.ID, Seqs: []int64{l.Seq}, Lane: "cron", Cron: &cron.AttemptStart{RunID: l.Run.ID, Attempt: 1, Node: node},
			})
			if errors.Is(err, chat.ErrFenced) {
				return nil
			}
			started.Add(int64(len(s.Seqs)))
			return err
		})
		row := w.ledger(l.Run.ID)
		if started.Load() > 0 {
			equal(w, "started", row.State, cron.RunRunning)
			w.endRun(claimOfRun(l), l.Message.ID, cron.RunOK, nil)
			continue
		}
		equal(w, "cancelled", []any{row.State, row.Reason}, []any{cron.RunCancelled, cron.ReasonRemoved})
	}
}

// remove removes a job with its waiting runs.
func (w *world) remove(st store.Store, id string) error {
	_, err := w.cronOf(st).ChangeJob(w.ctx, cron.ChangeParams{ID: id, EndWaiting: cron.ReasonRemoved, Change: func(cron.Job, time.Time) (*cron.Job, error) { return nil, nil }})
	return err
}

// changeAgainstClaim removes jobs while their slots are claimed: no run of them is left to start.
func changeAgainstClaim(w *world) {
	node := w.node()
	for range 20 {
		j := w.job(nil)
		w.pass(interval, node)
		w.race(2, func(st store.Store, i int) error {
			if i == 0 {
				_, err := w.cronOf(st).Claim(w.ctx, cron.ClaimParams{Node: node, Limit: many, Decide: decide})
				return err
			}
			return w.remove(st, j.ID)
		})
		for _, r := range w.history(j.ID) {
			equal(w, "a row of a removed job", []any{r.State, r.Reason}, []any{cron.RunCancelled, cron.ReasonRemoved})
		}
		equal(w, "messages", w.unfinished(), 0)
	}
}

// pauseEndsWaiting: a due fire that has not begun ends with a pause, and does not count.
func pauseEndsWaiting(w *world) {
	node := w.node()
	j := w.job(func(j *cron.Job) { j.MaxRuns = 1 })
	l := w.due(node)
	hand := w.byHand(node, j)
	c := try(w.cron().ChangeJob(w.ctx, cron.ChangeParams{ID: j.ID, EndWaiting: cron.ReasonPaused, Change: func(j cron.Job, now time.Time) (*cron.Job, error) {
		j.Pause = &cron.Pause{Note: "x", By: "ann", At: now}
		return &j, nil
	}})).ok(w)
	equal(w, "ended", []any{len(c.Ended), c.Ended[0].RunID}, []any{1, l.Run.ID})
	row := w.ledger(l.Run.ID)
	equal(w, "ledger", []any{row.State, row.Reason}, []any{cron.RunCancelled, cron.ReasonPaused})
	equal(w, "the job", []any{c.Job.Enabled, c.Job.State.Fired}, []any{true, 0})
	equal(w, "a manual run continues", w.ledger(hand.Run.ID).State, cron.RunQueued)
}

func cronRaceTests() []test {
	return []test{
		{"CancelAgainstStart", cancelAgainstStart},
		{"EditsAgainstEnds", editsAgainstEnds},
		{"EditsAgainstClaims", editsAgainstClaims},
		{"RunsByHandOfOneMoment", runsByHandOfOneMoment},
		{"CancelsOfOneRun", cancelsOfOneRun},
	}
}

// together runs two operations concurrently, each with a handle of its own.
func (w *world) together(one, other func(st store.Store) error) {
	w.Helper()
	second := w.h.Open()
	var group errgroup.Group
	begin := make(chan struct{})
	group.Go(func() error { <-begin; return one(w.st) })
	group.Go(func() error { <-begin; return other(second) })
	close(begin)
	w.ok(group.Wait())
}

// cancelAgainstStart: a run that is cancelled while it starts either never ran or has a stop
// request.
func cancelAgainstStart(w *world) {
	node := w.node()
	j := w.job(func(j *cron.Job) { j.Overlap = cron.OverlapConcurrent })
	for range 20 {
		w.clock.advance(time.Millisecond)
		l := w.byHand(node, j)
		c := claimOfRun(l)
		var began store.Started
		var ended []cron.CancelledRun
		w.together(func(st store.Store) (err error) {
			began, err = st.Start(w.ctx, store.StartParams{
				Claim: c, RunID: l.Message.ID, Lane: "cron", Seqs: []int64{l.Seq},
				Cron: &cron.AttemptStart{RunID: l.Run.ID, Attempt: 1, Node: node},
			})
			return err
		}, func(st store.Store) (err error) {
			c, err := w.cronOf(st).CancelRuns(w.ctx, cron.CancelParams{RunID: l.Run.ID, Reason: cron.ReasonStopped, By: "ann"})
			ended = c.Runs
			return err
		})
		equal(w, "cancelled", len(ended), 1)
		equal(w, "asked to stop exactly when it began", ended[0].Running, len(began.Seqs) == 1)
		if ended[0].Running {
			equal(w, "who asked", w.run(l.Message.ID).StopBy, "ann")
			w.endRun(c, l.Message.ID, cron.RunCancelled, nil)
		}
		w.ended(l.Message.ID, chat.OutcomeStopped)
		r := w.ledger(l.Run.ID)
		equal(w, "ledger", []any{r.State, r.Reason}, []any{cron.RunCancelled, cron.ReasonStopped})
	}
}

// editsAgainstEnds: neither an edit nor the end of a run overwrites the changes of the other.
func editsAgainstEnds(w *world) {
	const n = 16
	node := w.node()
	j := w.job(func(j *cron.Job) { j.Overlap, j.MaxRuns = cron.OverlapConcurrent, 1 })
	var ends []store.FinishParams
	for range n {
		w.clock.advance(time.Millisecond)
		l := w.byHand(node, j)
		ends = append(ends, w.ending(w.begin(l), l.Message.ID, cron.RunOK, func(e *cron.AttemptEnd) {
			e.Job = func(old cron.Job, _ cron.Run, _ time.Time) *cron.Job {
				old.State.RunCount++
				return &old
			}
		}))
	}
	w.race(2*n, func(st store.Store, i int) error {
		if i < n {
			_, err := st.Finish(w.ctx, ends[i])
			return err
		}
		_, err := w.cronOf(st).ChangeJob(w.ctx, cron.ChangeParams{ID: j.ID, Change: func(old cron.Job, _ time.Time) (*cron.Job, error) {
			old.MaxRuns++
			return &old, nil
		}})
		return err
	})
	after := w.stored(j.ID)
	equal(w, "ends and edits", []int{int(after.State.RunCount), after.MaxRuns, after.State.Queued}, []int{n, n + 1, 0})
}

// editsAgainstClaims: in either order, the plan of an edit is kept.
func editsAgainstClaims(w *world) {
	node := w.node()
	var jobs []cron.Job
	for range 20 {
		jobs = append(jobs, w.job(nil))
	}
	w.pass(interval, node)
	at := w.clock.now().Add(time.Hour)
	for _, j := range jobs {
		w.together(func(st store.Store) error {
			_, err := w.cronOf(st).Claim(w.ctx, cron.ClaimParams{Node: node, Limit: 2, Decide: decide})
			return err
		}, func(st store.Store) error {
			_, err := w.cronOf(st).ChangeJob(w.ctx, cron.ChangeParams{ID: j.ID, Change: func(old cron.Job, _ time.Time) (*cron.Job, error) {
				old.Revision, old.State.Next, old.State.NextRunAt = "r2", at, at
				return &old, nil
			}})
			return err
		})
		after := w.stored(j.ID)
		equal(w, "plan", []any{after.Revision, after.State.Next, after.State.NextRunAt}, []any{"r2", at, at})
		equal(w, "fired as often as it has rows", after.State.Fired, len(w.history(j.ID)))
	}
}

func runsByHandOfOneMoment(w *world) {
	node := w.node()
	j := w.job(nil)
	var made, existing [racers]int
	w.race(racers, func(st store.Store, i int) error {
		e, err := w.cronOf(st).EnqueueRuns(w.ctx, cron.EnqueueParams{
			Node: node, JobID: j.ID, Make: func(d cron.DueJob, now time.Time) ([]cron.Launch, error) {
				return []cron.Launch{launch(d.Job, cron.TriggerManual, schedule.Fire{Slot: now, At: now})}, nil
			},
		})
		made[i], existing[i] = len(e.Launched), len(e.Existing)
		return err
	})
	sum := func(list [racers]int) (n int) {
		for _, v := range list {
			n += v
		}
		return n
	}
	equal(w, "made and existing", []int{sum(made), sum(existing)}, []int{1, racers - 1})
	equal(w, "messages", w.unfinished(), 1)
}

func cancelsOfOneRun(w *world) {
	node := w.node()
	w.job(nil)
	l := w.due(node)
	var ended [racers]int
	w.race(racers, func(st store.Store, i int) error {
		c, err := w.cronOf(st).CancelRuns(w.ctx, cron.CancelParams{
			RunID: l.Run.ID, Reason: cron.ReasonStopped, Audit: &cron.Audit{Who: "ann", Verb: "cancel", Object: l.Run.ID},
		})
		ended[i] = len(c.Runs)
		return err
	})
	total := 0
	for _, n := range ended {
		total += n
	}
	equal(w, "cancelled", total, 1)
	if w.h.Query != nil {
		equal(w, "audit rows", len(w.audits()), 1)
	}
}
