package storetest

import (
	"time"

	"laneway/internal/chat"
	"laneway/internal/cron"
	"laneway/internal/store"
)

// repeatTests repeat operations with the same parameters, as a caller does after an unknown commit.
func repeatTests() []test {
	return []test{
		{"StartReturnsTheFirstResult", startRepeated},
		{"LaterAttemptReturnsTheFirstResult", laterStartRepeated},
		{"JoinReturnsTheFirstResult", joinRepeated},
		{"FinishReturnsTheFirstResult", finishRepeated(func(c store.Claim, run string) store.FinishParams { return answered(c, run) })},
		{"FailureReturnsTheFirstResult", finishRepeated(func(c store.Claim, run string) store.FinishParams {
			return store.FinishParams{Claim: c, RunID: run, State: store.RunFailed, Outcome: chat.OutcomeFailed, Cause: "model"}
		})},
		{"RequeueReturnsTheFirstResult", finishRepeated(requeued)},
		{"StillRunningReturnsTheFirstResult", finishRepeated(func(c store.Claim, run string) store.FinishParams {
			p := stopped(c, run)
			p.StillRunning = true
			return p
		})},
		{"FinishAfterTheReleaseReturnsTheFirstResult", finishRepeatedAfterRelease},
		{"FinishAfterEndStoppingReturnsTheFirstResult", stoppedRepeatedAfterItsEnd},
		{"FinishOfAnotherAnswerIsFenced", otherAnswerIsFenced},
		{"RequeueAfterATakeoverIsFenced", requeueAfterTakeover},
		{"EndOfAnAttemptIsWrittenOnce", attemptRepeated(cron.RunOK)},
		{"RetryOfAnAttemptIsWrittenOnce", attemptRepeated(cron.RunRetrying)},
		{"RequeueOfAnAttemptIsWrittenOnce", attemptRepeated(cron.RunQueued)},
	}
}

func startRepeated(w *world) {
	node, key := w.node(), w.key()
	_, first := w.acceptText(node, key)
	lead, a := w.acceptText(node, key)
	w.ok(w.st.SetSession(w.ctx, key, "ann", store.SessionSettings{Notes: map[string]string{"model": "x"}}))
	p := store.StartParams{
		Claim: claimOf(key, a), RunID: lead, Lane: "main", Seqs: []int64{first.Seq, a.Seq},
		Transcript: []chat.TranscriptEntry{{RunID: lead, Role: chat.RoleUser, Text: "one"}, {RunID: lead, Role: chat.RoleUser, Text: "two"}},
	}
	w.startTwice(p)
	w.finish(answered(p.Claim, lead))
}

func laterStartRepeated(w *world) {
	node, key := w.node(), w.key()
	c, id, seq := w.turn(node, key)
	w.finish(requeued(c, id))
	w.startTwice(store.StartParams{
		Claim: c, RunID: id, Lane: "main", Seqs: []int64{seq}, Transcript: []chat.TranscriptEntry{{RunID: id, Role: chat.RoleUser, Text: "hello"}},
	})
	w.finish(answered(c, id))
}

// startTwice starts a run and repeats the call a second later.
func (w *world) startTwice(p store.StartParams) {
	w.Helper()
	first := try(w.st.Start(w.ctx, p)).ok(w)
	before := w.picture(p.Session, p.RunID)
	w.clock.advance(time.Second)
	again := try(w.st.Start(w.ctx, p)).ok(w)
	equal(w, "result of the repetition", again, first)
	equal(w, "the store after the repetition", w.picture(p.Session, p.RunID), before)
}

func joinRepeated(w *world) {
	node, key := w.node(), w.key()
	c, run, _ := w.turn(node, key)
	_, one := w.acceptText(node, key)
	_, two := w.acceptText(node, key)
	first := w.join(c, run, one.Seq, two.Seq)
	before := w.picture(key, run)
	w.clock.advance(time.Second)
	equal(w, "result of the repetition", w.join(c, run, one.Seq, two.Seq), first)
	equal(w, "the store after the repetition", w.picture(key, run), before)
	w.finish(answered(c, run))
}

// repeatableEnd adds to p everything that a Finish can write.
func repeatableEnd(p store.FinishParams) store.FinishParams {
	p.Usage = chat.Usage{InputTokens: 3, OutputTokens: 4, Model: "m", Provider: "p"}
	p.Preview = "an answer"
	p.Transcript = []chat.TranscriptEntry{
		{RunID: p.RunID, Role: chat.RoleAssistant, Text: "an answer"}, {RunID: p.RunID, Role: chat.RoleSystem, Text: "a note"},
	}
	if p.Requeue { // nothing is sent before the end
		return p
	}
	p.Outgoing = []store.Outgoing{{Session: p.Session, N: 1, Kind: store.KindReply, Text: "an answer", Target: chat.Target{Channel: "web", ChatID: "1"}}}
	return p
}

// finishRepeated makes a test: a run of two messages ends with the parameters from end, another message waits, and the call is repeated.
func finishRepeated(end func(c store.Claim, run string) store.FinishParams) func(w *world) {
	return func(w *world) {
		node, key := w.node(), w.key()
		_, first := w.acceptText(node, key)
		lead, a := w.acceptText(node, key)
		c := claimOf(key, a)
		w.start(c, lead, first.Seq, a.Seq)
		w.acceptText(node, key)
		p := repeatableEnd(end(c, lead))
		w.finishTwice(p)
		if p.StillRunning {
			w.ok(w.st.EndStopping(w.ctx, c, lead))
		}
	}
}

// finishTwice ends a run and repeats the call a second later.
func (w *world) finishTwice(p store.FinishParams) {
	w.Helper()
	first := w.finish(p)
	before := w.picture(p.Session, p.RunID)
	w.clock.advance(time.Second)
	again := w.finish(p)
	if p.StillRunning { // the run has not ended yet
		again.EndedAt = first.EndedAt
	}
	equal(w, "result of the repetition", again, first)
	equal(w, "the store after the repetition", w.picture(p.Session, p.RunID), before)
}

func finishRepeatedAfterRelease(w *world) {
	node, key := w.node(), w.key()
	c, id, _ := w.turn(node, key)
	p := repeatableEnd(answered(c, id))
	w.finishTwice(p)
	w.clock.advance(lease)
	next := w.node()
	_, a := w.acceptText(next, key)
	equal(w, "owner", a.Owner, next)
	f := w.finish(p)
	equal(w, "released", f.Released, true)
	equal(w, "entries", len(f.Entries), 2)
}

func stoppedRepeatedAfterItsEnd(w *world) {
	node, key := w.node(), w.key()
	c, id, _ := w.turn(node, key)
	p := repeatableEnd(stopped(c, id))
	p.StillRunning = true
	w.finish(p)
	w.ok(w.st.EndStopping(w.ctx, c, id))
	before := w.picture(key, id)
	f := w.finish(p)
	equal(w, "entries", len(f.Entries), 2)
	equal(w, "the store after the repetition", w.picture(key, id), before)
}

func otherAnswerIsFenced(w *world) {
	node, key := w.node(), w.key()
	c, id, _ := w.turn(node, key)
	p := repeatableEnd(answered(c, id))
	w.finish(p)
	before := w.picture(key, id)
	p.Transcript[0].Text = "another answer"
	try(w.st.Finish(w.ctx, p)).fails(w, chat.ErrFenced)
	equal(w, "the store after a refused finish", w.picture(key, id), before)
}

// requeueAfterTakeover: a takeover leaves the run in the same state as a requeue, except for the cause.
func requeueAfterTakeover(w *world) {
	node, key := w.node(), w.key()
	c, id, _ := w.turn(node, key)
	w.clock.advance(lease)
	w.sweepOne(w.node(), key)
	p := requeued(c, id)
	p.Cause = ""
	try(w.st.Finish(w.ctx, p)).fails(w, chat.ErrFenced)
}

// attemptRepeated makes a test: the end of the attempt of a cron run is repeated. It changes ledger and job once.
func attemptRepeated(state cron.RunState) func(w *world) {
	return func(w *world) {
		node := w.node()
		j := w.job(nil)
		l := w.due(node)
		changes := 0
		p := w.ending(w.begin(l), l.Message.ID, state, func(e *cron.AttemptEnd) {
			e.NextAttempt = w.clock.now().Add(time.Hour)
			e.Job = func(old cron.Job, r cron.Run, now time.Time) *cron.Job {
				changes++
				next, _ := old.After(r, now)
				return next
			}
		})
		first := w.finish(p)
		before, job, wanted := w.ledger(l.Run.ID), w.stored(j.ID), changes
		w.clock.advance(time.Second)
		equal(w, "result of the repetition", w.finish(p), first)
		equal(w, "ledger", w.ledger(l.Run.ID), before)
		equal(w, "job", w.stored(j.ID), job)
		equal(w, "changes of the job", changes, wanted)
	}
}
