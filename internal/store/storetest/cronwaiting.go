package storetest

import (
	"errors"
	"sync/atomic"
	"time"

	"laneway/internal/chat"
	"laneway/internal/cron"
	"laneway/internal/store"
)

func cronWaitingTests() []test {
	return []test{
		{"AChangeAndAStartAgreeWhoWasFirst", changeAgainstStart},
		{"AChangeMeetsAClaim", changeAgainstClaim},
		{"WaitingFiresEndWithAPause", pauseEndsWaiting},
	}
}

// changeAgainstStart removes a job while its due run starts: the run starts, or it ends as cancelled.
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
