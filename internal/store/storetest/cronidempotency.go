package storetest

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"laneway/internal/chat"
	"laneway/internal/cron"
	"laneway/internal/cron/schedule"
	"laneway/internal/store"
)

func cronAnswerTests() []test {
	return []test{
		{"AddOnceWritesOnce", addOnce},
		{"RunOnceMakesOneRun", runOnce},
		{"ARunThatDidNotStartIsAnAnswer", notRunOnce},
		{"ATakenMomentIsNoAnswer", takenMoment},
		{"BackfillOnceFillsInOnce", backfillOnce},
		{"CancelOnceSparesLaterRuns", cancelOnce},
		{"OtherParamsWithTheKeyChangeNothing", cronKeyReused},
		{"ARefusedChangeIsNotKept", cronRefusalIsNotKept},
		{"AddsAtOnceMakeOneJob", addsAtOnce},
	}
}

// everywhere repeats a call through a second handle, and after a restart.
func (w *world) everywhere(again func(st cron.JobStore)) {
	w.Helper()
	again(w.cronOf(w.h.Open()))
	w.st = w.h.Reopen()
	again(w.cron())
}

func addOnce(w *world) {
	j := w.draft()
	p := putParams(j)
	p.IdempotencyKey, p.Audit = keyOf("ann", "cron.add", "k1"), &chat.Audit{Who: "ann", Verb: "1-add", Object: j.ID}
	first := try(w.cron().PutJob(w.ctx, p)).ok(w)
	equal(w, "made and repeated", []bool{first.Created, first.Repeated}, []bool{true, false})
	w.alter(j.ID, func(j *cron.Job) { j.Description, j.Revision = "of another edit", "r2" })
	try(w.cron().ChangeJob(w.ctx, cron.ChangeParams{ID: j.ID, Change: func(cron.Job, time.Time) (*cron.Job, error) {
		return nil, nil //nolint:nilnil // removes the job
	}})).ok(w)
	w.everywhere(func(st cron.JobStore) {
		again := try(st.PutJob(w.ctx, p)).ok(w)
		equal(w, "repeated", []bool{again.Created, again.Repeated}, []bool{true, true})
		equal(w, "the job as it was answered", again.Job, first.Job)
		try(st.Job(w.ctx, j.ID, "")).fails(w, chat.ErrNotFound)
	})
	equal(w, "rows of the log", len(w.audits()), 1)
}

// manual requests a run as a caller does.
func manual(node, job string, o *chat.IdempotencyKey) cron.EnqueueParams {
	return cron.EnqueueParams{
		Node: node, JobID: job, New: true, IdempotencyKey: o, Audit: &chat.Audit{Who: "ann", Verb: "run", Object: job},
		Make: func(d cron.DueJob, now time.Time) ([]cron.Launch, error) {
			if len(d.Active) > 0 {
				return nil, fmt.Errorf("asking: %w", cron.NotRunError("already-running"))
			}
			return []cron.Launch{launch(d.Job, cron.TriggerManual, schedule.Fire{Slot: now, At: now})}, nil
		},
	}
}

func runOnce(w *world) {
	j := w.job(nil)
	p := manual(w.node(), j.ID, keyOf("ann", "cron.run", "k1"))
	first := try(w.cron().EnqueueRuns(w.ctx, p)).ok(w)
	l := first.Launched[0]
	equal(w, "ids", first.IDs, []string{l.Run.ID})
	w.endRun(w.begin(l), l.Message.ID, cron.RunOK, nil)
	w.clock.advance(time.Second)
	w.everywhere(func(st cron.JobStore) {
		again := try(st.EnqueueRuns(w.ctx, p)).ok(w)
		equal(w, "repeated", again, cron.Enqueued{IDs: first.IDs})
	})
	equal(w, "runs", len(w.history(j.ID)), 1)
	equal(w, "rows of the log", len(w.audits()), 1)
	p.IdempotencyKey.Key = "k2"
	second := try(w.cron().EnqueueRuns(w.ctx, p)).ok(w)
	equal(w, "made under another key", len(second.Launched), 1)
}

func notRunOnce(w *world) {
	node := w.node()
	j := w.job(nil)
	l := w.due(node)
	p := manual(node, j.ID, keyOf("ann", "cron.run", "k1"))
	first := try(w.cron().EnqueueRuns(w.ctx, p)).ok(w)
	equal(w, "answer", first, cron.Enqueued{Job: first.Job, NotRun: "already-running"})
	w.endRun(w.begin(l), l.Message.ID, cron.RunOK, nil)
	again := try(w.cron().EnqueueRuns(w.ctx, p)).ok(w)
	equal(w, "repeated", again, cron.Enqueued{NotRun: "already-running"})
	equal(w, "runs", len(w.history(j.ID)), 1)
}

func takenMoment(w *world) {
	node := w.node()
	j := w.job(nil)
	l := w.byHand(node, j)
	w.endRun(w.begin(l), l.Message.ID, cron.RunOK, nil)
	p := manual(node, j.ID, keyOf("ann", "cron.run", "k1"))
	try(w.cron().EnqueueRuns(w.ctx, p)).fails(w, chat.ErrConflict)
	equal(w, "runs", len(w.history(j.ID)), 1)
	w.clock.advance(time.Millisecond)
	e := try(w.cron().EnqueueRuns(w.ctx, p)).ok(w)
	equal(w, "made a moment later", len(e.Launched), 1)
}

func backfillOnce(w *world) {
	node := w.node()
	j := w.job(nil)
	good := w.due(node)
	w.endRun(w.begin(good), good.Message.ID, cron.RunOK, nil)
	slots := []time.Time{good.Run.ScheduledFor.Add(-interval), good.Run.ScheduledFor}
	p := cron.EnqueueParams{
		Node: node, JobID: j.ID, IdempotencyKey: keyOf("ann", "cron.backfill", "k1"), Slots: slots,
		Make: func(d cron.DueJob, _ time.Time) ([]cron.Launch, error) {
			var list []cron.Launch
			for _, slot := range slots {
				list = append(list, backfillOf(d, slot, false))
			}
			return list, nil
		},
	}
	first := try(w.cron().EnqueueRuns(w.ctx, p)).ok(w)
	ids := []string{cron.RunID(cron.TriggerBackfill, j.ID, slots[0]), cron.RunID(cron.TriggerBackfill, j.ID, slots[1])}
	equal(w, "asked for and existing", [][]string{first.IDs, first.Existing}, [][]string{ids, ids[1:]})
	slots = append(slots, good.Run.ScheduledFor.Add(-2*interval)) // slots that a changed schedule would have
	w.everywhere(func(st cron.JobStore) {
		again := try(st.EnqueueRuns(w.ctx, p)).ok(w)
		equal(w, "repeated", again, cron.Enqueued{IDs: ids, Existing: ids[1:]})
	})
	equal(w, "runs", len(w.history(j.ID)), 2)
}

func cancelOnce(w *world) {
	node := w.node()
	j := w.job(nil)
	first := w.due(node)
	p := cron.CancelParams{JobID: j.ID, IdempotencyKey: keyOf("ann", "cron.cancel", "k1"), Audit: &chat.Audit{Who: "ann", Verb: "cancel", Object: j.ID}}
	equal(w, "cancelled", len(w.cancel(p)), 1)
	second := w.byHand(node, j)
	w.everywhere(func(st cron.JobStore) {
		again := try(st.CancelRuns(w.ctx, p)).ok(w)
		equal(w, "repeated", again, cron.Cancelled{IDs: []string{first.Run.ID}})
	})
	equal(w, "the later run", w.ledger(second.Run.ID).State, cron.RunQueued)
	equal(w, "rows of the log", len(w.audits()), 1)
	p.IdempotencyKey.Key = "k2"
	equal(w, "cancelled under another key", len(w.cancel(p)), 1)
}

func cronKeyReused(w *world) {
	node := w.node()
	j := w.job(nil)
	other := func(method string) *chat.IdempotencyKey {
		o := keyOf("ann", method, "k1")
		o.Hash = "other"
		return o
	}
	put := putParams(w.draft())
	put.IdempotencyKey = keyOf("ann", "cron.add", "k1")
	try(w.cron().PutJob(w.ctx, put)).ok(w)
	l := w.byHand(node, j)
	w.clock.advance(time.Millisecond)
	run := manual(node, j.ID, keyOf("ann", "cron.run", "k1"))
	try(w.cron().EnqueueRuns(w.ctx, run)).ok(w)
	cancel := cron.CancelParams{RunID: l.Run.ID, IdempotencyKey: keyOf("ann", "cron.cancel", "k1")}
	w.cancel(cancel)
	w.clock.advance(time.Millisecond)
	l = w.byHand(node, j)

	put = putParams(w.draft())
	put.IdempotencyKey = other("cron.add")
	try(w.cron().PutJob(w.ctx, put)).fails(w, chat.ErrKeyReused)
	run.IdempotencyKey = other("cron.run")
	try(w.cron().EnqueueRuns(w.ctx, run)).fails(w, chat.ErrKeyReused)
	cancel.RunID, cancel.IdempotencyKey = l.Run.ID, other("cron.cancel")
	try(w.cron().CancelRuns(w.ctx, cancel)).fails(w, chat.ErrKeyReused)
	page := try(w.cron().Jobs(w.ctx, cron.JobFilter{})).ok(w)
	equal(w, "jobs", page.Total, 2)
	equal(w, "runs", len(w.history(j.ID)), 2)
	equal(w, "the run that was to be cancelled", w.ledger(l.Run.ID).State, cron.RunQueued)
}

func cronRefusalIsNotKept(w *world) {
	refused := errors.New("not now")
	put := putParams(w.draft())
	change := put.Change
	put.IdempotencyKey = keyOf("ann", "cron.add", "k1")
	put.Change = func(*cron.Job, time.Time) (*cron.Job, error) { return nil, refused }
	try(w.cron().PutJob(w.ctx, put)).fails(w, refused)
	put.Change = change
	made := try(w.cron().PutJob(w.ctx, put)).ok(w)
	equal(w, "made", made.Created, true)
	cancel := cron.CancelParams{JobID: "nothing", IdempotencyKey: keyOf("ann", "cron.cancel", "k1")}
	for range 2 {
		try(w.cron().CancelRuns(w.ctx, cancel)).fails(w, chat.ErrNotFound)
	}
}

func addsAtOnce(w *world) {
	const callers = 8
	o := keyOf("ann", "cron.add", "k1")
	base := w.draft()
	other := w.h.Open()
	made, errs := make([]cron.PutResult, callers), make([]error, callers)
	var all sync.WaitGroup
	for i := range callers {
		st, j := []store.Store{w.st, other}[i%2], base
		j.ID, j.Key = fmt.Sprintf("job-%d", i), fmt.Sprintf("key-%d", i)
		all.Go(func() {
			p := putParams(j)
			p.IdempotencyKey = o
			made[i], errs[i] = w.cronOf(st).PutJob(w.ctx, p)
		})
	}
	all.Wait()
	first := 0
	for i := range callers {
		w.ok(errs[i])
		equal(w, "job", made[i].Job.ID, made[0].Job.ID)
		if !made[i].Repeated {
			first++
		}
	}
	equal(w, "calls that made it", first, 1)
	page := try(w.cron().Jobs(w.ctx, cron.JobFilter{})).ok(w)
	equal(w, "jobs", page.Total, 1)
}
