package storetest

import (
	"time"

	"laneway/internal/chat"
	"laneway/internal/cron"
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

// cancelKeepsItsReason: the process that runs the cancelled run gets a stop, not always with its reason; the row has the reason.
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
			return nil, nil //nolint:nilnil // removes the job
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
