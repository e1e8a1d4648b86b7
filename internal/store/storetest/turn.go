package storetest

import (
	"strings"
	"time"

	"laneway/internal/chat"
	"laneway/internal/cron"
	"laneway/internal/store"
)

func turnTests() []test {
	return []test{
		{"OneMessageFromAcceptToAnswer", oneMessage},
		{"BatchIsMergedIntoTheLeader", batchIsMerged},
		{"BatchWithoutAnAnswerSharesTheOutcome", batchFails},
		{"LeaderIsTheMessageWithTheRunsID", leaderByID},
		{"StartLeavesOutWhatHasEnded", startLeavesOutEnded},
		{"StartWritesTheEntriesOfWhatItTook", startWritesTaken},
		{"StartOfNothingWritesNothing", startOfNothing},
		{"FinishAgainIsFenced", finishAgain},
		{"RequeueWaitsAgain", requeueWaitsAgain},
		{"OwnershipStaysWhileSomethingWaits", ownershipStays},
		{"OutOfOrderFinishesMoveDoneOverTheGap", outOfOrder},
		{"StartedAtFollowsTheMessages", startedAtFollows},
		{"StillRunningKeepsTheSession", stillRunning},
		{"EndStoppingTwiceIsFine", endStoppingTwice},
		{"SessionRemembersTheLastRun", sessionRemembers},
		{"NotesReachTheTurn", notesReachTheTurn},
		{"FailureKeepsWhatTheServiceWrote", failureKeepsDetail},
	}
}

// failureKeepsDetail: the detail is only in the run; lists of sessions do not show it.
func failureKeepsDetail(w *world) {
	node, key := w.node(), w.key()
	id, a := w.acceptText(node, key)
	c := claimOf(key, a)
	w.start(c, id, a.Seq)
	p := answered(c, id)
	p.State, p.Outcome, p.Cause, p.Error, p.Transcript = store.RunFailed, chat.OutcomeFailed, string(chat.FailBadRequest), "It was not accepted.", nil
	p.Detail = "model 'x' not found"
	w.finish(p)
	got := w.run(id)
	equal(w, "error and detail", []string{got.Error, got.Detail}, []string{p.Error, p.Detail})
	equal(w, "error of the session", w.session(key).LastError, p.Error)
}

func oneMessage(w *world) {
	node, key := w.node(), w.key()
	id, a := w.acceptText(node, key)
	c := claimOf(key, a)
	w.clock.advance(time.Second)
	s := w.start(c, id, a.Seq)
	equal(w, "attempt", s.Attempt, 1)
	equal(w, "crashes", s.Crashes, 0)
	equal(w, "started", s.StartedAt, w.clock.now())
	equal(w, "transcript", s.SessionID, a.SessionID)
	equal(w, "principal", s.Principal, "ann")
	equal(w, "running message", w.row(id).State, store.StateRunning)
	row := w.session(key)
	equal(w, "active runs", row.ActiveRuns, []string{id})
	equal(w, "numbers", []int64{row.LastSeq, row.TakenSeq, row.DoneSeq}, []int64{1, 1, 0})
	w.clock.advance(time.Second)
	p := answered(c, id)
	p.Usage = chat.Usage{InputTokens: 10, OutputTokens: 5, Model: "m", Provider: "p"}
	f := w.finish(p)
	equal(w, "ended", f.EndedAt, w.clock.now())
	equal(w, "released", f.Released, true)
	m := w.ended(id, chat.OutcomeAnswered)
	equal(w, "run of the message", m.RunID, id)
	equal(w, "run", w.run(id), store.Run{
		ID: id, Session: key, SeqFrom: 1, SeqTo: 1, Lane: "main", Owner: node, Epoch: 1, Attempt: 1, State: store.RunOK,
		QueuedAt: a.AcceptedAt, StartedAt: s.StartedAt, EndedAt: f.EndedAt, Usage: p.Usage,
	})
	row = w.session(key)
	equal(w, "numbers", []int64{row.LastSeq, row.TakenSeq, row.DoneSeq}, []int64{1, 1, 1})
	equal(w, "owner", row.Owner, "")
	equal(w, "active runs", len(row.ActiveRuns), 0)
	equal(w, "unfinished", w.unfinished(), 0)
}

func batchIsMerged(w *world) {
	node, key := w.node(), w.key()
	first, a := w.acceptText(node, key)
	second, _ := w.acceptText(node, key)
	lead, _ := w.acceptText(node, key)
	c := claimOf(key, a)
	s := w.start(c, lead, 1, 2, 3)
	equal(w, "started", s.Seqs, []int64{1, 2, 3})
	f := w.finish(answered(c, lead))
	equal(w, "merged", idsOf(f.Merged), []string{first, second})
	for _, id := range []string{first, second} {
		m := w.ended(id, chat.OutcomeMerged)
		equal(w, "merged into", m.MergedInto, 3)
		equal(w, "run", m.RunID, lead)
	}
	w.ended(lead, chat.OutcomeAnswered)
	r := w.run(lead)
	equal(w, "range", []int64{r.SeqFrom, r.SeqTo}, []int64{1, 3})
}

func batchFails(w *world) {
	node, key := w.node(), w.key()
	first, a := w.acceptText(node, key)
	lead, _ := w.acceptText(node, key)
	c := claimOf(key, a)
	w.start(c, lead, 1, 2)
	f := w.finish(store.FinishParams{
		Claim: c, RunID: lead, State: store.RunFailed, Outcome: chat.OutcomeFailed, Cause: "timeout", Error: "the turn took too long",
	})
	equal(w, "merged", len(f.Merged), 0)
	for _, id := range []string{first, lead} {
		equal(w, "reason", w.ended(id, chat.OutcomeFailed).Reason, "timeout")
	}
	r := w.run(lead)
	equal(w, "state, cause and error", []string{r.State, r.Cause, r.Error}, []string{store.RunFailed, "timeout", "the turn took too long"})
}

func leaderByID(w *world) {
	node, key := w.node(), w.key()
	lead, a := w.acceptText(node, key)
	second, _ := w.acceptText(node, key)
	c := claimOf(key, a)
	w.start(c, lead, 1, 2)
	f := w.finish(answered(c, lead))
	equal(w, "merged", idsOf(f.Merged), []string{second})
	w.ended(lead, chat.OutcomeAnswered)
	equal(w, "merged into", w.ended(second, chat.OutcomeMerged).MergedInto, 1)
}

func startLeavesOutEnded(w *world) {
	node, key := w.node(), w.key()
	_, a := w.acceptText(node, key)
	w.acceptText(node, key)
	lead, _ := w.acceptText(node, key)
	c := claimOf(key, a)
	try(w.st.EndWaiting(w.ctx, store.EndParams{Session: key, Seqs: []int64{1}, Outcome: chat.OutcomeStopped})).ok(w)
	equal(w, "started", w.start(c, lead, 1, 2, 3, 4).Seqs, []int64{2, 3})
	s := try(w.st.Start(w.ctx, store.StartParams{Claim: c, RunID: w.id("run"), Lane: "main", Seqs: []int64{2, 3}})).ok(w)
	equal(w, "messages of another run", len(s.Seqs), 0)
}

// startWritesTaken starts and joins batches of which another call has ended a message: its entry
// belongs to no turn of these.
func startWritesTaken(w *world) {
	node, key := w.node(), w.key()
	id, a := w.acceptText(node, key)
	for range 4 {
		w.acceptText(node, key)
	}
	for _, seq := range []int64{1, 4} {
		w.endWaiting(key, seq)
	}
	entry := func(text string) chat.TranscriptEntry {
		return chat.TranscriptEntry{RunID: id, Role: chat.RoleUser, Text: text}
	}
	p := store.StartParams{
		Claim: claimOf(key, a), RunID: id, Lane: "main", Seqs: []int64{1, 2, 3}, EntrySeqs: []int64{1, 1, 2, 2, 3},
		Transcript: []chat.TranscriptEntry{entry("before 1"), entry("1"), entry("before 2"), entry("2"), entry("3")},
	}
	equal(w, "entries of the start", texts(try(w.st.Start(w.ctx, p)).ok(w).Entries), []string{"before 2", "2", "3"})
	equal(w, "entries of its repetition", texts(try(w.st.Start(w.ctx, p)).ok(w).Entries), []string{"before 2", "2", "3"})
	p.Seqs, p.EntrySeqs, p.Transcript = []int64{4, 5}, []int64{4, 5}, []chat.TranscriptEntry{entry("4"), entry("5")}
	equal(w, "joined", try(w.st.Join(w.ctx, p)).ok(w), []int64{5})
	equal(w, "transcript", texts(w.transcript(store.TranscriptQuery{Session: key, Limit: many}).Entries), []string{"before 2", "2", "3", "5"})
}

func startOfNothing(w *world) {
	node, key := w.node(), w.key()
	id, a := w.acceptText(node, key)
	w.acceptText(node, key)
	c := claimOf(key, a)
	try(w.st.Stop(w.ctx, store.StopParams{Session: key, Scope: store.StopOne, By: "ann", Reason: "stop"})).ok(w)
	s := try(w.st.Start(w.ctx, store.StartParams{
		Claim: c, RunID: id, Lane: "main", Seqs: []int64{a.Seq}, Transcript: []chat.TranscriptEntry{{Role: chat.RoleUser, Text: "hello"}},
	})).ok(w)
	equal(w, "started", len(s.Seqs), 0)
	try(w.st.RunByID(w.ctx, id)).fails(w, chat.ErrNotFound)
	tr := try(w.st.Transcript(w.ctx, store.TranscriptQuery{Session: key})).ok(w)
	equal(w, "transcript", len(tr.Entries), 0)
	w.ended(id, chat.OutcomeStopped)
}

func finishAgain(w *world) {
	node, key := w.node(), w.key()
	c, id, _ := w.turn(node, key)
	w.acceptText(node, key)
	w.finish(answered(c, id))
	p := answered(c, id)
	p.State, p.Outcome = store.RunFailed, chat.OutcomeFailed
	p.Transcript = []chat.TranscriptEntry{{Role: chat.RoleAssistant, Text: "late"}}
	try(w.st.Finish(w.ctx, p)).fails(w, chat.ErrFenced)
	w.ended(id, chat.OutcomeAnswered)
	equal(w, "state", w.run(id).State, store.RunOK)
	tr := try(w.st.Transcript(w.ctx, store.TranscriptQuery{Session: key})).ok(w)
	equal(w, "transcript", len(tr.Entries), 0)
}

func requeueWaitsAgain(w *world) {
	node, key := w.node(), w.key()
	first, a := w.acceptText(node, key)
	lead, _ := w.acceptText(node, key)
	c := claimOf(key, a)
	w.start(c, lead, 1, 2)
	p := requeued(c, lead)
	p.Transcript = []chat.TranscriptEntry{{RunID: lead, Role: chat.RoleAssistant, Text: "half an ans"}}
	f := w.finish(p)
	equal(w, "released", f.Released, false)
	for _, id := range []string{first, lead} {
		m := w.row(id)
		equal(w, "state", m.State, store.StateWaiting)
		equal(w, "outcome", m.Outcome, "")
	}
	r := w.run(lead)
	equal(w, "state and cause", []string{r.State, r.Cause}, []string{store.RunInterrupted, "draining"})
	s := w.session(key)
	equal(w, "waiting", s.Waiting, 2)
	equal(w, "done_seq", s.DoneSeq, 0)
	equal(w, "owner", s.Owner, node)
	w.clock.advance(time.Second)
	again := w.start(c, lead, 1, 2)
	equal(w, "attempt", again.Attempt, 2)
	equal(w, "crashes", again.Crashes, 0)
	equal(w, "started", again.StartedAt, w.clock.now())
	f = w.finish(answered(c, lead))
	equal(w, "released", f.Released, true)
	equal(w, "merged", idsOf(f.Merged), []string{first})
}

func ownershipStays(w *world) {
	node, other, key := w.node(), w.node(), w.key()
	c, id, _ := w.turn(node, key)
	next, a := w.acceptText(node, key)
	f := w.finish(answered(c, id))
	equal(w, "released", f.Released, false)
	equal(w, "owner", w.session(key).Owner, node)
	w.start(c, next, a.Seq)
	equal(w, "released", w.finish(answered(c, next)).Released, true)
	_, b := w.acceptText(other, key)
	if !b.Mine || b.Epoch != a.Epoch+1 {
		w.Fatalf("a released session was not taken with a new epoch: %+v", b)
	}
}

func outOfOrder(w *world) {
	node, key := w.node(), w.key()
	var ids []string
	var c store.Claim
	for range 3 {
		p := w.message(node, key)
		p.Queue.MaxConcurrent = 3
		a := w.accept(p)
		c = claimOf(key, a)
		ids = append(ids, p.Message.ID)
		w.start(c, p.Message.ID, a.Seq)
		w.clock.advance(time.Millisecond)
	}
	equal(w, "active runs", w.session(key).ActiveRuns, ids)
	for _, step := range []struct {
		run, done int64
		released  bool
	}{{2, 0, false}, {3, 0, false}, {1, 3, true}} {
		f := w.finish(answered(c, ids[step.run-1]))
		equal(w, "released", f.Released, step.released)
		equal(w, "done_seq", w.session(key).DoneSeq, step.done)
	}
}

func startedAtFollows(w *world) {
	node, key := w.node(), w.key()
	p, q := w.message(node, key), w.message(node, key)
	p.Queue.MaxConcurrent, q.Queue.MaxConcurrent = 2, 2
	a, b := w.accept(p), w.accept(q)
	c := claimOf(key, a)
	w.clock.advance(time.Second)
	later := w.start(c, q.Message.ID, b.Seq)
	w.clock.advance(time.Second)
	earlier := w.start(c, p.Message.ID, a.Seq)
	if earlier.StartedAt.After(later.StartedAt) {
		w.Fatalf("message 1 started at %v, message 2 at %v", earlier.StartedAt, later.StartedAt)
	}
	equal(w, "stored start", w.run(p.Message.ID).StartedAt, earlier.StartedAt)
	w.clock.advance(time.Second)
	w.finish(requeued(c, p.Message.ID))
	again := w.start(c, p.Message.ID, a.Seq)
	if again.StartedAt.Before(later.StartedAt) {
		w.Fatalf("the second attempt started at %v, before %v", again.StartedAt, later.StartedAt)
	}
	w.finish(answered(c, q.Message.ID))
	w.finish(answered(c, p.Message.ID))
}

func stillRunning(w *world) {
	node, other, key := w.node(), w.node(), w.key()
	c, id, _ := w.turn(node, key)
	p := stopped(c, id)
	p.StillRunning = true
	f := w.finish(p)
	equal(w, "released", f.Released, false)
	w.ended(id, chat.OutcomeStopped)
	r := w.run(id)
	equal(w, "state", r.State, store.RunStopping)
	equal(w, "ended", r.EndedAt.IsZero(), true)
	equal(w, "unfinished", w.unfinished(), 0)
	_, a := w.acceptText(other, key)
	if a.Mine || a.Owner != node {
		w.Fatalf("a stopping session changed hands: %+v", a)
	}
	try(w.st.Finish(w.ctx, answered(c, id))).fails(w, chat.ErrFenced)
	w.clock.advance(time.Second)
	w.ok(w.st.EndStopping(w.ctx, c, id))
	r = w.run(id)
	equal(w, "state", r.State, store.RunStopped)
	equal(w, "ended", r.EndedAt, w.clock.now())
	equal(w, "owner while a message waits", w.session(key).Owner, node)
}

func endStoppingTwice(w *world) {
	node, key := w.node(), w.key()
	c, id, _ := w.turn(node, key)
	p := stopped(c, id)
	p.StillRunning = true
	w.finish(p)
	w.ok(w.st.EndStopping(w.ctx, c, id))
	ended := w.run(id).EndedAt
	equal(w, "owner", w.session(key).Owner, "")
	w.clock.advance(time.Second)
	w.ok(w.st.EndStopping(w.ctx, c, id))
	equal(w, "end", w.run(id).EndedAt, ended)
	c2, running, _ := w.turn(node, key)
	w.ok(w.st.EndStopping(w.ctx, c, id))
	equal(w, "a run of the next owner", w.run(running).State, store.RunRunning)
	w.finish(answered(c2, running))
}

func sessionRemembers(w *world) {
	node, key := w.node(), w.key()
	c, id, _ := w.turn(node, key)
	p := answered(c, id)
	p.Usage = chat.Usage{InputTokens: 100, OutputTokens: 20}
	p.Preview = strings.Repeat("é", 300)
	w.finish(p)
	s := w.session(key)
	equal(w, "last run and state", []string{s.LastRunID, s.LastState, s.LastError}, []string{id, store.RunOK, ""})
	equal(w, "tokens", s.TotalTokens, 120)
	equal(w, "preview", s.Preview, strings.Repeat("é", 100))
	c, id, _ = w.turn(node, key)
	w.finish(store.FinishParams{Claim: c, RunID: id, State: store.RunFailed, Outcome: chat.OutcomeFailed, Cause: "auth", Error: "the key was refused"})
	s = w.session(key)
	equal(w, "last run", []string{s.LastRunID, s.LastState, s.LastCause, s.LastError}, []string{id, store.RunFailed, "auth", "the key was refused"})
}

func notesReachTheTurn(w *world) {
	node, key := w.node(), w.key()
	w.ok(w.st.SetSession(w.ctx, key, "ann", store.SessionSettings{Notes: map[string]string{"model": "large"}}))
	w.ok(w.st.SetSession(w.ctx, key, "ann", store.SessionSettings{Notes: map[string]string{"gone": "x"}}))
	w.ok(w.st.SetSession(w.ctx, key, "ann", store.SessionSettings{Notes: map[string]string{"gone": ""}}))
	id, a := w.acceptText(node, key)
	equal(w, "notes", w.start(claimOf(key, a), id, a.Seq).Notes, map[string]string{"model": "large"})
}

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

// finishRepeated makes a test: a run of two messages ends with the parameters from end, another
// message waits, and the call is repeated.
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

// requeueAfterTakeover: a takeover leaves the run in the same state as a requeue, except for the
// cause.
func requeueAfterTakeover(w *world) {
	node, key := w.node(), w.key()
	c, id, _ := w.turn(node, key)
	w.clock.advance(lease)
	w.sweepOne(w.node(), key)
	p := requeued(c, id)
	p.Cause = ""
	try(w.st.Finish(w.ctx, p)).fails(w, chat.ErrFenced)
}

// attemptRepeated makes a test: the end of the attempt of a cron run is repeated. It changes ledger
// and job once.
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
