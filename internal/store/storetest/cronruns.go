package storetest

import (
	"strings"
	"time"

	"laneway/internal/chat"
	"laneway/internal/cron"
	"laneway/internal/cron/schedule"
	"laneway/internal/store"
)

func cronRunTests() []test {
	return []test{
		{"GoesFromQueuedToOK", fromQueuedToOK},
		{"StartTwiceIsOneAttempt", startTwice},
		{"FencedEndChangesNeitherRowNorJob", fencedEnd},
		{"EndChangesTheCountersOfTheJob", func(w *world) { endChangesTheJob(w, func(*cron.Job, time.Time) {}) }},
		{"EndChangesTheJob", func(w *world) {
			endChangesTheJob(w, func(j *cron.Job, at time.Time) {
				j.Pause, j.AutoDisabled = &cron.Pause{Note: "failed too often", By: "cron", At: at}, true
				j.State.Next, j.State.NextRunAt = time.Time{}, time.Time{}
			})
		}},
		{"JobIsRemovedAfterItsRun", removedAfterRun},
		{"TakeoverQueuesTheRunAgain", takeoverQueues},
		{"CleanStopQueuesTheRunAgain", cleanStopQueues},
		{"DrainQueuesTheRunAgain", drainQueues},
		{"SummaryIsCutAtACharacter", summaryIsCut},
		{"DeliveryIsAStatusOfItsOwn", deliveryStatus},
		{"FailedDeliveryLeavesTheRunOK", failedDelivery},
		{"UnsentAnswerSaysWhy", unsentAnswer},
		{"AddressThatIsGonePausesTheDelivery", addressGone},
		{"AnswerWithALostPartIsNotDelivered", lostPart},
		{"AddressThatIsGoneOfAChangedJob", addressGoneOfAChangedJob},
		{"AddressThatIsGoneByAStaleNode", addressGoneByAStaleNode},
		{"NoticeIsNotTheAnswer", noticeIsNotTheAnswer},
		{"RunSurvivesReopening", runSurvivesReopening},
	}
}

func fromQueuedToOK(w *world) {
	node := w.node()
	j := w.job(nil)
	l := w.due(node)
	w.clock.advance(30 * time.Millisecond)
	c := claimOfRun(l)
	started := w.start(c, l.Message.ID, l.Seq)
	equal(w, "the job of the start", *started.Job, w.stored(j.ID))
	equal(w, "its runs", []any{started.Job.State.Queued, started.Job.State.RunningAt.UTC()}, []any{1, w.clock.now()})
	began := w.clock.now()
	r := w.ledger(l.Run.ID)
	equal(w, "running", []any{r.State, r.Attempt, r.StartedAt, r.FinishedAt.IsZero(), r.Node}, []any{cron.RunRunning, 1, began, true, node})
	w.clock.advance(6190 * time.Millisecond)
	w.endRun(c, l.Message.ID, cron.RunOK, func(e *cron.AttemptEnd) {
		e.Summary, e.SuppressedBy = "3 items", "no-reply"
		e.Usage = chat.Usage{InputTokens: 1 << 33, OutputTokens: 7, Model: "m", Provider: "p"}
	})
	r = w.ledger(l.Run.ID)
	equal(w, "over", []any{r.State, r.FinishedAt, r.Duration, r.Summary, r.SuppressedBy, r.Delivery, r.Reason},
		[]any{cron.RunOK, w.clock.now(), 6190 * time.Millisecond, "3 items", "no-reply", cron.DeliveryNotRequested, cron.ReasonNone})
	equal(w, "usage", []any{r.InputTokens, r.OutputTokens, r.Model, r.Provider}, []any{int64(1 << 33), int64(7), "m", "p"})
	equal(w, "attempts", r.Attempts, []cron.Attempt{{Number: 1, State: cron.AttemptOK, StartedAt: began, FinishedAt: w.clock.now(), Node: node}})
	equal(w, "run row", w.run(l.Message.ID).State, store.RunOK)
	w.ended(l.Message.ID, chat.OutcomeAnswered)
	try(w.cron().Run(w.ctx, l.Run.ID, "bob")).fails(w, chat.ErrNotFound)
	try(w.cron().Run(w.ctx, "nothing", "")).fails(w, chat.ErrNotFound)
}

func startTwice(w *world) {
	node := w.node()
	w.job(nil)
	l := w.due(node)
	p := store.StartParams{
		Claim: claimOfRun(l), RunID: l.Message.ID, Lane: "cron", Seqs: []int64{l.Seq},
		Cron: &cron.AttemptStart{RunID: l.Run.ID, Attempt: 1, Node: node},
	}
	for range 2 { // the result of the first call was lost
		s := try(w.st.Start(w.ctx, p)).ok(w)
		equal(w, "started", s.Seqs, p.Seqs)
		w.clock.advance(time.Second)
	}
	r := w.ledger(l.Run.ID)
	equal(w, "attempts", []int{r.Attempt, len(r.Attempts)}, []int{1, 1})
	w.endRun(p.Claim, l.Message.ID, cron.RunOK, nil)
}

func fencedEnd(w *world) {
	node := w.node()
	j := w.job(nil)
	l := w.due(node)
	c := w.begin(l)
	p := w.ending(c, l.Message.ID, cron.RunOK, func(e *cron.AttemptEnd) {
		e.Job = func(cron.Job, cron.Run, time.Time) *cron.Job { return nil }
	})
	before, job := w.ledger(l.Run.ID), w.stored(j.ID)
	for _, stale := range []store.Claim{
		{Session: c.Session, Node: c.Node, Epoch: c.Epoch - 1},
		{Session: c.Session, Node: c.Node, Epoch: c.Epoch + 1},
		{Session: c.Session, Node: w.node(), Epoch: c.Epoch},
	} {
		p.Claim = stale
		try(w.st.Finish(w.ctx, p)).fails(w, chat.ErrFenced)
	}
	equal(w, "ledger", w.ledger(l.Run.ID), before)
	equal(w, "job", w.stored(j.ID), job)
	p.Claim = c
	p.Cron.Job = nil
	w.finish(p)
	over := w.ledger(l.Run.ID)
	p.State, p.Outcome, p.Cron.State, p.Cron.Error = store.RunFailed, chat.OutcomeFailed, cron.RunError, "too late"
	try(w.st.Finish(w.ctx, p)).fails(w, chat.ErrFenced)
	equal(w, "ledger after it had ended", w.ledger(l.Run.ID), over)
}

// endChangesTheJob: the changes by the end of a run reach the job, whether they are the counters
// alone (for which an engine may have a shorter statement) or more.
func endChangesTheJob(w *world, more func(j *cron.Job, at time.Time)) {
	node := w.node()
	j := w.job(nil)
	l := w.due(node)
	c := w.begin(l)
	before := w.stored(j.ID)
	equal(w, "running since", before.State.RunningAt.UTC(), w.clock.now())
	w.clock.advance(time.Second)
	at := w.clock.now()
	changed := func(j *cron.Job) {
		s := &j.State
		s.RunCount, s.ErrorCount, s.ConsecutiveErrors, s.ConsecutiveSkipped = 1, 2, 3, 4
		s.LastRunAt, s.LastAlertAt, s.LastDuration = at.Add(time.Minute), at.Add(time.Hour), 7*time.Millisecond
		s.LastState, s.LastError, s.LastErrorClass, s.LastDelivery, s.LastDeliveryError = cron.RunError, "a", "b", "c", "d"
		more(j, at)
	}
	w.endRun(c, l.Message.ID, cron.RunError, func(e *cron.AttemptEnd) {
		e.Job = func(old cron.Job, r cron.Run, now time.Time) *cron.Job {
			equal(w, "job", []any{old.ID, old.Revision, old.State.Next}, []any{j.ID, j.Revision, before.State.Next})
			equal(w, "run", []any{r.ID, r.State, r.Error, r.ErrorClass, r.FinishedAt.UTC(), r.Duration, len(r.Attempts), now.UTC()},
				[]any{l.Run.ID, cron.RunError, "backend answered 503", "overloaded", w.clock.now(), time.Second, 1, w.clock.now()})
			changed(&old)
			return &old
		}
	})
	want := before
	changed(&want)
	want.State.Queued, want.State.RunningAt = 0, time.Time{}
	after := w.stored(j.ID)
	want.Revision, want.UpdatedAt = after.Revision, after.UpdatedAt
	equal(w, "the whole job", after, want)
}

func removedAfterRun(w *world) {
	node := w.node()
	j := w.job(func(j *cron.Job) {
		w.firesAt(j, schedule.Spec{Kind: schedule.KindAt, At: w.clock.now().Add(interval)})
		j.DeleteAfter = true
	})
	l := w.due(node)
	gone := func(e *cron.AttemptEnd) { e.Job = func(cron.Job, cron.Run, time.Time) *cron.Job { return nil } }
	c := w.begin(l)
	w.endRun(c, l.Message.ID, cron.RunRetrying, func(e *cron.AttemptEnd) {
		gone(e)
		e.NextAttempt = w.clock.now().Add(time.Second)
	})
	equal(w, "kept while it is tried again", w.stored(j.ID).ID, j.ID)
	w.clock.advance(time.Second)
	again := w.launchOne(node)
	w.endRun(w.begin(again), again.Message.ID, cron.RunOK, gone)
	try(w.cron().Job(w.ctx, j.ID, "")).fails(w, chat.ErrNotFound)
	equal(w, "history", []any{w.ledger(l.Run.ID).State, w.ledger(l.Run.ID).JobName}, []any{cron.RunOK, j.Name})
}

// interrupted checks a run whose process has died, and lets another attempt succeed.
func (w *world) interrupted(l cron.Launched, taken taken) {
	w.Helper()
	r := w.ledger(l.Run.ID)
	equal(w, "queued again", []any{r.State, r.FinishedAt.IsZero()}, []any{cron.RunQueued, true})
	equal(w, "message", idsOf(taken.Messages), []string{l.Message.ID})
	first := r.StartedAt
	w.clock.advance(time.Second)
	w.start(taken.Claim, l.Message.ID, l.Seq)
	r = w.ledger(l.Run.ID)
	equal(w, "running again", []any{r.State, r.Attempt, r.Node, r.StartedAt}, []any{cron.RunRunning, 2, taken.Node, first})
	w.endRun(taken.Claim, l.Message.ID, cron.RunOK, nil)
	r = w.ledger(l.Run.ID)
	equal(w, "row at the end", []any{r.State, len(r.Attempts), r.Duration}, []any{cron.RunOK, 2, w.clock.now().Sub(first)})
	equal(w, "attempts", []any{r.Attempts[0].Number, r.Attempts[0].State, r.Attempts[1].Number, r.Attempts[1].State},
		[]any{1, cron.AttemptInterrupted, 2, cron.AttemptOK})
}

func takeoverQueues(w *world) {
	dead := w.node()
	w.job(nil)
	l := w.due(dead)
	c := w.begin(l)
	w.clock.advance(lease + time.Second)
	node := w.node()
	late := w.ending(c, l.Message.ID, cron.RunOK, nil)
	taken := w.sweepOne(node, l.Message.Session)
	try(w.st.Finish(w.ctx, late)).fails(w, chat.ErrFenced)
	w.interrupted(l, taken)
}

func cleanStopQueues(w *world) {
	gone := w.node()
	w.job(nil)
	l := w.due(gone)
	w.begin(l)
	node := w.node()
	w.ok(w.st.Unregister(w.ctx, gone))
	w.interrupted(l, w.sweepOne(node, l.Message.Session))
}

func drainQueues(w *world) {
	old := w.node()
	j := w.job(nil)
	l := w.due(old)
	c := w.begin(l)
	w.endRun(c, l.Message.ID, cron.RunQueued, func(e *cron.AttemptEnd) {
		e.Job = func(cron.Job, cron.Run, time.Time) *cron.Job {
			w.Errorf("a run that continues called for the job")
			return nil
		}
	})
	equal(w, "job", w.stored(j.ID).State.Queued, 1)
	node := w.node()
	w.ok(w.st.Unregister(w.ctx, old))
	w.interrupted(l, w.sweepOne(node, l.Message.Session))
}

func summaryIsCut(w *world) {
	node := w.node()
	w.job(nil)
	for _, over := range []int{-4, -1, 0, 1, 2, 3, 4} {
		text := strings.Repeat("日本👩", 1600)
		text += strings.Repeat("x", 16_384+over-len(text)-3) + "日"
		l := w.due(node)
		w.endRun(w.begin(l), l.Message.ID, cron.RunOK, func(e *cron.AttemptEnd) { e.Summary = text })
		equal(w, "summary", w.ledger(l.Run.ID).Summary, chat.Cut(text, 16_384))
	}
}

// replied ends a run successfully with one outgoing reply and claims the reply.
func (w *world) replied(node string) (cron.Launched, store.Outgoing) {
	w.Helper()
	l := w.due(node)
	p := w.ending(w.begin(l), l.Message.ID, cron.RunOK, func(e *cron.AttemptEnd) { e.Delivery = cron.DeliveryUnknown })
	p.Outgoing = []store.Outgoing{{
		Kind: store.KindReply, Text: "answer", Session: l.Message.Session, Target: chat.Target{Channel: "web", ChatID: "1"},
		ExpiresAt: w.clock.now().Add(time.Hour),
	}}
	w.finish(p)
	return l, w.claimOne(node)
}

func deliveryStatus(w *world) {
	node := w.node()
	w.job(nil)
	l, o := w.replied(node)
	equal(w, "before it is sent", w.ledger(l.Run.ID).Delivery, cron.DeliveryUnknown)
	try(w.st.Delivered(w.ctx, store.DeliveredParams{Node: node, ID: o.ID, ProviderID: "provider-7"})).ok(w)
	r := w.ledger(l.Run.ID)
	equal(w, "delivered", []any{r.State, r.Delivery, r.ProviderMessageID, r.DeliveryError}, []any{cron.RunOK, cron.DeliveryDone, "provider-7", ""})
}

// lostPart: when one part of an answer was lost, possibly lost or expired, a later part that
// arrives does not make the answer delivered.
func lostPart(w *world) {
	node := w.node()
	j := w.job(nil)
	for _, c := range []struct {
		name   string
		lose   func(o store.Outgoing)
		want   cron.DeliveryStatus
		reason string
	}{
		{"failed", func(o store.Outgoing) {
			w.undelivered(store.UndeliveredParams{Node: node, ID: o.ID, Error: "blocked", Permanent: true})
		}, cron.DeliveryNot, "blocked"},
		{"perhaps failed", func(o store.Outgoing) {
			w.undelivered(store.UndeliveredParams{Node: node, ID: o.ID, Error: "timeout", Permanent: true, MaybeSent: true})
		}, cron.DeliveryUnknown, "timeout"},
	} {
		l := w.due(node)
		p := w.ending(w.begin(l), l.Message.ID, cron.RunOK, func(e *cron.AttemptEnd) {
			e.Delivery, e.Job = cron.DeliveryUnknown, func(old cron.Job, r cron.Run, now time.Time) *cron.Job {
				next, _ := old.After(r, now)
				return next
			}
		})
		for n := range 2 {
			p.Outgoing = append(p.Outgoing, store.Outgoing{N: n, Kind: store.KindReply, Text: "part", Session: l.Message.Session, Target: chat.Target{Channel: "web", ChatID: "1"}})
		}
		w.finish(p)
		c.lose(w.claimOne(node))
		try(w.st.Delivered(w.ctx, store.DeliveredParams{Node: node, ID: w.claimOne(node).ID, ProviderID: "provider-8"})).ok(w)
		r := w.ledger(l.Run.ID)
		equal(w, c.name, []any{r.Delivery, r.DeliveryError, r.ProviderMessageID}, []any{c.want, c.reason, "provider-8"})
		st := w.stored(j.ID).State
		equal(w, "job after "+c.name, []any{st.LastDelivery, st.LastDeliveryError}, []any{c.want, c.reason})
	}
}

func failedDelivery(w *world) {
	node := w.node()
	w.job(nil)
	l, o := w.replied(node)
	w.undelivered(store.UndeliveredParams{Node: node, ID: o.ID, Error: "429", RetryIn: time.Second})
	equal(w, "while it is tried again", w.ledger(l.Run.ID).Delivery, cron.DeliveryUnknown)
	w.clock.advance(time.Second)
	o = w.claimOne(node)
	w.undelivered(store.UndeliveredParams{Node: node, ID: o.ID, Error: "403: bot was blocked", Permanent: true})
	r := w.ledger(l.Run.ID)
	equal(w, "failed", []any{r.State, r.Delivery, r.DeliveryError}, []any{cron.RunOK, cron.DeliveryNot, "403: bot was blocked"})
	w.endLate(node)
}

// endLate lets a reply expire.
func (w *world) endLate(node string) {
	w.Helper()
	l, o := w.replied(node)
	w.undelivered(store.UndeliveredParams{Node: node, ID: o.ID, Error: "timeout", RetryIn: time.Minute})
	w.clock.advance(2 * time.Hour)
	late := w.claimOne(w.node())
	equal(w, "expired", late.Expired, true)
	r := w.ledger(l.Run.ID)
	equal(w, "not delivered", []any{r.State, r.Delivery, r.DeliveryError != ""}, []any{cron.RunOK, cron.DeliveryNot, true})
}

func noticeIsNotTheAnswer(w *world) {
	node := w.node()
	w.job(nil)
	l := w.due(node)
	p := w.ending(w.begin(l), l.Message.ID, cron.RunError, nil)
	p.Outgoing = []store.Outgoing{{Kind: store.KindNotice, Text: "it failed", Target: chat.Target{Channel: "web", ChatID: "1"}}}
	w.finish(p)
	try(w.st.Delivered(w.ctx, store.DeliveredParams{Node: node, ID: w.claimOne(node).ID, ProviderID: "provider-8"})).ok(w)
	r := w.ledger(l.Run.ID)
	equal(w, "delivery", []any{r.Delivery, r.ProviderMessageID}, []any{cron.DeliveryNotRequested, ""})
}

func runSurvivesReopening(w *world) {
	node := w.node()
	j := w.job(nil)
	l := w.due(node)
	w.endRun(w.begin(l), l.Message.ID, cron.RunError, func(e *cron.AttemptEnd) { e.Error, e.Attempt.Error, e.Summary = script, script, script })
	before := w.ledger(l.Run.ID)
	w.st = w.h.Reopen()
	equal(w, "ledger", w.ledger(l.Run.ID), before)
	equal(w, "list", w.history(j.ID), []cron.Run{before})
	equal(w, "error", []string{before.Error, before.Attempts[0].Error, before.Summary}, []string{script, script, script})
}

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
		return nil, nil // removes the job
	}})).ok(w)
	w.clock.advance(time.Second)
	again := w.launchOne(node)
	started := w.start(claimOfRun(again), again.Message.ID, again.Seq)
	equal(w, "the job of the start", started.Job, nil)
	w.endRun(claimOfRun(again), again.Message.ID, cron.RunOK, nil)
	equal(w, "ledger", w.ledger(l.Run.ID).State, cron.RunOK)
}
