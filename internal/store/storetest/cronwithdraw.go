package storetest

import (
	"errors"
	"sync/atomic"
	"time"

	"laneway/internal/chat"
	"laneway/internal/cron"
	"laneway/internal/store"
)

func cronAheadTests() []test {
	return []test{
		{"NotSeenBeforeItsMoment", aheadIsNotSeen},
		{"WithdrawnByAChange", func(w *world) {
			withdrawnBy(w, func(_, id string) { w.alter(id, func(j *cron.Job) { j.Revision = "r2" }) })
		}},
		{"WithdrawnByARunByHand", func(w *world) {
			withdrawnBy(w, func(node, id string) {
				l := w.byHand(node, w.stored(id))
				w.endRun(w.begin(l), l.Message.ID, cron.RunOK, nil)
			})
		}},
		{"WithdrawnByTheEndOfItsNode", func(w *world) {
			withdrawnBy(w, func(node, _ string) {
				n, err := w.cron().ReleaseClaims(w.ctx, node)
				w.ok(err)
				equal(w, "handed back", n, 1)
			})
		}},
		{"AChangeAndAStartAgreeWhoWasFirst", changeAgainstStart},
		{"AChangeMeetsAClaim", changeAgainstClaim},
		{"WaitingFiresEndWithAPause", pauseEndsWaiting},
	}
}

// claimAhead claims the slots of the next 400 ms.
func (w *world) claimAhead(st store.Store, node string) ([]cron.Launched, error) {
	c, err := w.cronOf(st).Claim(w.ctx, cron.ClaimParams{Node: node, LookAhead: 400 * time.Millisecond, Limit: many, Decide: decide})
	return c.Launched, err
}

// aheadOfOne is a job of one fire that is claimed 400 ms ahead.
func (w *world) aheadOfOne(node string) (cron.Job, cron.Launched) {
	w.Helper()
	j := w.job(func(j *cron.Job) { j.MaxRuns = 1 })
	w.pass(interval-400*time.Millisecond, node)
	list, err := w.claimAhead(w.st, node)
	w.ok(err)
	equal(w, "claimed", len(list), 1)
	return j, list[0]
}

func aheadIsNotSeen(w *world) {
	node := w.node()
	j, l := w.aheadOfOne(node)
	equal(w, "the job", w.stored(j.ID), j)
	equal(w, "its history", len(w.history(j.ID)), 0)
	_, err := w.cron().CancelRuns(w.ctx, cron.CancelParams{RunID: l.Run.ID})
	w.fails(err, chat.ErrNotFound)
	w.pass(400*time.Millisecond, node)
	equal(w, "at its moment", []any{w.stored(j.ID).Enabled, len(w.history(j.ID))}, []any{false, 1})
}

// withdrawnBy: nothing is left of the claim, a Start of it is fenced, and the slot is claimed again and starts once.
func withdrawnBy(w *world, change func(node, id string)) {
	node := w.node()
	j, l := w.aheadOfOne(node)
	change(node, j.ID)
	_, err := w.st.Session(w.ctx, l.Message.Session, "")
	w.fails(err, chat.ErrSessionNotFound)
	_, err = w.st.Start(w.ctx, store.StartParams{Claim: claimOfRun(l), RunID: l.Message.ID, Seqs: []int64{l.Seq}, Lane: "cron"})
	w.fails(err, chat.ErrFenced)
	now := w.stored(j.ID)
	equal(w, "the plan", []any{now.Enabled, now.State.Next, now.State.NextRunAt, now.State.Fired}, []any{true, j.State.Next, j.State.NextRunAt, 0})
	w.pass(400*time.Millisecond, node)
	again := w.launchOne(node)
	equal(w, "the same run under another epoch", []any{again.Run.ID, again.Epoch > l.Epoch, again.Seq > l.Seq}, []any{l.Run.ID, true, true})
	_, err = w.st.Start(w.ctx, store.StartParams{Claim: claimOfRun(l), RunID: l.Message.ID, Seqs: []int64{l.Seq}, Lane: "cron"})
	w.fails(err, chat.ErrFenced)
	w.endRun(w.begin(again), again.Message.ID, cron.RunOK, nil)
}

// changeAgainstStart removes a job while its run starts: either it has started, or it never does.
func changeAgainstStart(w *world) {
	node := w.node()
	for range 20 {
		j, l := w.aheadOfOne(node)
		var started, fenced atomic.Int64
		w.race(2, func(st store.Store, i int) error {
			if i == 0 {
				_, err := w.cronOf(st).ChangeJob(w.ctx, cron.ChangeParams{ID: j.ID, EndWaiting: cron.ReasonRemoved, Change: func(cron.Job, time.Time) (*cron.Job, error) { return nil, nil }})
				return err
			}
			s, err := st.Start(w.ctx, store.StartParams{
				Claim: claimOfRun(l), RunID: l.Message.ID, Seqs: []int64{l.Seq}, Lane: "cron", Cron: &cron.AttemptStart{RunID: l.Run.ID, Attempt: 1, Node: node},
			})
			if errors.Is(err, chat.ErrFenced) {
				fenced.Add(1)
				return nil
			}
			started.Add(int64(len(s.Seqs)))
			return err
		})
		equal(w, "started, or fenced", started.Load()+fenced.Load(), 1)
		equal(w, "rows of a run that has started", int64(len(w.history(j.ID))), started.Load())
		if started.Load() > 0 {
			w.endRun(claimOfRun(l), l.Message.ID, cron.RunOK, nil)
		}
	}
}

// changeAgainstClaim removes jobs while their slots are claimed: nothing of them is left to start.
func changeAgainstClaim(w *world) {
	node := w.node()
	for range 20 {
		j := w.job(nil)
		w.pass(interval-400*time.Millisecond, node)
		w.race(2, func(st store.Store, i int) error {
			if i == 0 {
				_, err := w.claimAhead(st, node)
				return err
			}
			_, err := w.cronOf(st).ChangeJob(w.ctx, cron.ChangeParams{ID: j.ID, EndWaiting: cron.ReasonRemoved, Change: func(cron.Job, time.Time) (*cron.Job, error) { return nil, nil }})
			return err
		})
		page, err := w.cron().Runs(w.ctx, cron.RunFilter{JobID: j.ID, IncludeActive: true, Ahead: true})
		w.ok(err)
		equal(w, "rows of a job that is gone", len(page.Runs), 0)
		equal(w, "messages", w.unfinished(), 0)
	}
}

// pauseEndsWaiting: a fire whose moment has come and that has not begun ends with a pause, and does not count.
func pauseEndsWaiting(w *world) {
	node := w.node()
	j := w.job(func(j *cron.Job) { j.MaxRuns = 1 })
	l := w.due(node)
	hand := w.byHand(node, j)
	c, err := w.cron().ChangeJob(w.ctx, cron.ChangeParams{ID: j.ID, EndWaiting: cron.ReasonPaused, Change: func(j cron.Job, now time.Time) (*cron.Job, error) {
		j.Pause = &cron.Pause{Note: "x", By: "ann", At: now}
		return &j, nil
	}})
	w.ok(err)
	equal(w, "ended", []any{len(c.Ended), c.Ended[0].RunID}, []any{1, l.Run.ID})
	row := w.ledger(l.Run.ID)
	equal(w, "ledger", []any{row.State, row.Reason}, []any{cron.RunCancelled, cron.ReasonPaused})
	equal(w, "the job", []any{c.Job.Enabled, c.Job.State.Fired}, []any{true, 0})
	equal(w, "what was asked for by hand goes on", w.ledger(hand.Run.ID).State, cron.RunQueued)
}
