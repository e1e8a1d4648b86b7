package storetest

import (
	"time"

	"laneway/internal/chat"
	"laneway/internal/cron"
	"laneway/internal/store"
)

func cronRetryTests() []test {
	return []test{
		{"RetryIsARow", retryIsARow},
		{"RetrySurvivesReopening", retrySurvivesReopening},
		{"RacersMakeOneAttempt", racersMakeOneAttempt},
		{"RetriesCountForTheLimit", retriesCountForTheLimit},
		{"RetryOutlivesItsJob", retryOutlivesItsJob},
	}
}

// failOnce ends the first attempt of a due run so that the next one is due after the wait.
func (w *world) failOnce(node string, wait time.Duration) cron.Launched {
	w.Helper()
	l := w.due(node)
	w.failAgain(l, wait)
	return l
}

func (w *world) failAgain(l cron.Launched, wait time.Duration) {
	w.Helper()
	w.endRun(w.begin(l), l.Message.ID, cron.RunRetrying, func(e *cron.AttemptEnd) { e.NextAttempt = w.clock.now().Add(wait) })
}

func retryIsARow(w *world) {
	node := w.node()
	w.job(nil)
	l := w.failOnce(node, 2*time.Second)
	r := w.ledger(l.Run.ID)
	equal(w, "retrying", []any{r.State, r.NextAttempt, r.FinishedAt.IsZero(), r.Attempt, r.Error, r.ErrorClass},
		[]any{cron.RunRetrying, w.clock.now().Add(2 * time.Second), true, 1, "backend answered 503", "overloaded"})
	w.ended(l.Message.ID, chat.OutcomeFailed)
	equal(w, "nothing waits", w.unfinished(), 0)
	w.clock.advance(1999 * time.Millisecond)
	equal(w, "launched before its time", len(w.claimDue(node).Launched), 0)
	w.clock.advance(time.Millisecond)
	again := w.launchOne(node)
	equal(w, "message of the second attempt", []any{again.Message.ID, again.Message.Session, again.Message.Content.Text, again.Message.Lane, again.Run.ID, again.Mine},
		[]any{l.Run.ID + "/2", l.Message.Session, "work", "cron", l.Run.ID, true})
	r = w.ledger(l.Run.ID)
	equal(w, "queued", []any{r.State, r.NextAttempt.IsZero(), r.Attempt}, []any{cron.RunQueued, true, 1})
	first := r.StartedAt
	w.failAgain(again, 4*time.Second)
	w.clock.advance(4 * time.Second)
	third := w.launchOne(node)
	equal(w, "message of the third attempt", third.Message.ID, l.Run.ID+"/3")
	w.clock.advance(time.Second)
	w.endRun(w.begin(third), third.Message.ID, cron.RunOK, nil)
	r = w.ledger(l.Run.ID)
	equal(w, "at the end", []any{r.State, r.Attempt, r.StartedAt, r.Duration, r.Error, r.NextAttempt.IsZero()},
		[]any{cron.RunOK, 3, first, w.clock.now().Sub(first), "", true})
	var states []cron.AttemptState
	for i, a := range r.Attempts {
		equal(w, "number of the attempt", a.Number, i+1)
		states = append(states, a.State)
	}
	equal(w, "attempts", states, []cron.AttemptState{cron.AttemptError, cron.AttemptError, cron.AttemptOK})
}

func retrySurvivesReopening(w *world) {
	node := w.node()
	w.job(nil)
	l := w.failOnce(node, 20*time.Second)
	before := w.ledger(l.Run.ID)
	w.st = w.h.Reopen()
	equal(w, "ledger", w.ledger(l.Run.ID), before)
	w.clock.advance(20 * time.Second)
	node = w.node()
	again := w.launchOne(node)
	equal(w, "message", again.Message.ID, l.Run.ID+"/2")
	w.endRun(w.begin(again), again.Message.ID, cron.RunOK, nil)
}

func racersMakeOneAttempt(w *world) {
	node := w.node()
	w.job(nil)
	l := w.failOnce(node, 2*time.Second)
	w.clock.advance(2 * time.Second)
	var launched [racers][]cron.Launched
	w.race(racers, func(st store.Store, i int) error {
		c, err := w.cronOf(st).Claim(w.ctx, cron.ClaimParams{Node: node, Limit: many, Decide: decide})
		launched[i] = c.Launched
		return err
	})
	total := 0
	for _, list := range launched {
		total += len(list)
	}
	equal(w, "launched", total, 1)
	equal(w, "messages", w.unfinished(), 1)
	equal(w, "message", w.row(l.Run.ID+"/2").State, store.StateWaiting)
}

func retriesCountForTheLimit(w *world) {
	node := w.node()
	for range 5 {
		w.job(nil)
	}
	w.pass(interval, node)
	for _, l := range w.claimDue(node).Launched {
		w.failAgain(l, time.Second)
	}
	w.clock.advance(time.Second)
	total := 0
	for range 5 {
		c := try(w.cron().Claim(w.ctx, cron.ClaimParams{Node: node, Limit: 2, Decide: decide})).ok(w)
		if len(c.Launched) > 2 {
			w.Fatalf("%d runs were launched with a limit of 2", len(c.Launched))
		}
		total += len(c.Launched)
		if !c.More {
			break
		}
	}
	equal(w, "launched", total, 5)
}

func retryOutlivesItsJob(w *world) {
	node := w.node()
	j := w.job(nil)
	l := w.failOnce(node, time.Second)
	try(w.cron().ChangeJob(w.ctx, cron.ChangeParams{ID: j.ID, Change: func(cron.Job, time.Time) (*cron.Job, error) {
		return nil, nil //nolint:nilnil // removes the job
	}})).ok(w)
	w.clock.advance(time.Second)
	again := w.launchOne(node)
	started := w.start(claimOfRun(again), again.Message.ID, again.Seq)
	equal(w, "the job of the start", started.Job, nil)
	w.endRun(claimOfRun(again), again.Message.ID, cron.RunOK, nil)
	equal(w, "ledger", w.ledger(l.Run.ID).State, cron.RunOK)
}
