package storetest

import (
	"laneway/internal/chat"
	"laneway/internal/store"
)

func joinTests() []test {
	return []test{
		{"JoinedMessageEndsMergedIntoTheLeader", joinedIsMerged},
		{"JoinSharesTheOutcomeOfAFailure", joinedFails},
		{"JoinLeavesOutWhatIsNotWaiting", joinLeavesOut},
		{"JoinToAnEndedRunIsFenced", joinToEnded},
		{"JoinNeedsTheClaim", joinNeedsTheClaim},
		{"JoinedMessageRunsAgainWithItsRun", joinedRunsAgain},
		{"JoinAcrossAnotherRun", joinAcrossAnotherRun},
		{"FilesOfTheMessagesOfARun", filesOfRun},
	}
}

func (w *world) join(c store.Claim, runID string, seqs ...int64) []int64 {
	w.Helper()
	entries := []chat.TranscriptEntry{{RunID: runID, Role: chat.RoleUser, Text: "and this"}}
	return try(w.st.Join(w.ctx, store.StartParams{Claim: c, RunID: runID, Lane: "main", Seqs: seqs, Transcript: entries})).ok(w)
}

func joinedIsMerged(w *world) {
	node, key := w.node(), w.key()
	c, run, _ := w.turn(node, key)
	id, a := w.acceptText(node, key)
	equal(w, "joined", w.join(c, run, a.Seq), []int64{a.Seq})
	m := w.row(id)
	equal(w, "state and run", []string{m.State, m.RunID}, []string{store.StateRunning, run})
	s := w.session(key)
	equal(w, "waiting", s.Waiting, 0)
	equal(w, "taken_seq", s.TakenSeq, a.Seq)
	tr := try(w.st.Transcript(w.ctx, store.TranscriptQuery{Session: key, RunID: run})).ok(w)
	equal(w, "transcript", len(tr.Entries), 1)
	f := w.finish(answered(c, run))
	equal(w, "released", f.Released, true)
	equal(w, "merged", idsOf(f.Merged), []string{id})
	equal(w, "merged into", w.ended(id, chat.OutcomeMerged).MergedInto, 1)
	w.ended(run, chat.OutcomeAnswered)
}

// The files of a run are those of its messages in order, including a joined one, and no others.
func filesOfRun(w *world) {
	node, key := w.node(), w.key()
	with := func(key chat.SessionKey, names ...string) (string, store.Accepted) {
		p := w.message(node, key)
		for _, name := range names {
			p.Message.Content.Attachments = append(p.Message.Content.Attachments, chat.Attachment{Name: name, MIMEType: "image/png", Path: "uploads/o/" + name, Size: 7})
		}
		return p.Message.ID, w.accept(p)
	}
	run, first := with(key, "one.png", "two.png")
	_, second := with(key)
	_, third := with(key, "three.png")
	c := claimOf(key, first)
	w.start(c, run, first.Seq, second.Seq, third.Seq)
	_, late := with(key, "late.png")
	w.join(c, run, late.Seq)
	waits, _ := with(key, "waits.png")
	other, _ := with(w.key(), "other.png")
	look := func(when string) {
		w.Helper()
		got := try(w.st.FilesOfRuns(w.ctx, key, []string{run, waits, other, "unknown"})).ok(w)
		names := map[string][]string{}
		for id, files := range got {
			for _, f := range files {
				equal(w, when, f, chat.Attachment{Name: f.Name, MIMEType: "image/png", Path: "uploads/o/" + f.Name, Size: 7})
				names[id] = append(names[id], f.Name)
			}
		}
		equal(w, when, names, map[string][]string{run: {"one.png", "two.png", "three.png", "late.png"}})
	}
	look("while it runs")
	w.finish(answered(c, run))
	look("after its end")
	got := try(w.st.FilesOfRuns(w.ctx, key, nil)).ok(w)
	equal(w, "of no run", len(got), 0)
}

func joinedFails(w *world) {
	node, key := w.node(), w.key()
	c, run, _ := w.turn(node, key)
	id, a := w.acceptText(node, key)
	w.join(c, run, a.Seq)
	w.finish(stopped(c, run))
	w.ended(id, chat.OutcomeStopped)
	w.ended(run, chat.OutcomeStopped)
}

func joinLeavesOut(w *world) {
	node, key := w.node(), w.key()
	c, run, seq := w.turn(node, key)
	id, a := w.acceptText(node, key)
	try(w.st.EndWaiting(w.ctx, store.EndParams{Session: key, Seqs: []int64{a.Seq}, Outcome: chat.OutcomeStopped})).ok(w)
	equal(w, "joined", len(w.join(c, run, seq, a.Seq, 99)), 0)
	tr := try(w.st.Transcript(w.ctx, store.TranscriptQuery{Session: key})).ok(w)
	equal(w, "transcript of an unknown session", len(tr.Entries), 0)
	w.ended(id, chat.OutcomeStopped)
}

func joinToEnded(w *world) {
	node, key := w.node(), w.key()
	c, run, _ := w.turn(node, key)
	id, a := w.acceptText(node, key)
	w.finish(answered(c, run))
	for _, runID := range []string{run, "unknown"} {
		try(w.st.Join(w.ctx, store.StartParams{Claim: c, RunID: runID, Lane: "main", Seqs: []int64{a.Seq}})).fails(w, chat.ErrFenced)
	}
	equal(w, "state", w.row(id).State, store.StateWaiting)
	w.start(c, id, a.Seq)
	p := stopped(c, id)
	p.StillRunning = true
	w.finish(p)
	equal(w, "a run that stops is active", w.session(key).ActiveRuns, []string{id})
	_, b := w.acceptText(node, key)
	try(w.st.Join(w.ctx, store.StartParams{Claim: c, RunID: id, Lane: "main", Seqs: []int64{b.Seq}})).fails(w, chat.ErrFenced)
	w.ok(w.st.EndStopping(w.ctx, c, id))
}

func joinNeedsTheClaim(w *world) {
	node, key := w.node(), w.key()
	c, run, _ := w.turn(node, key)
	id, a := w.acceptText(node, key)
	c.Epoch++
	try(w.st.Join(w.ctx, store.StartParams{Claim: c, RunID: run, Lane: "main", Seqs: []int64{a.Seq}})).fails(w, chat.ErrFenced)
	equal(w, "state", w.row(id).State, store.StateWaiting)
}

func joinedRunsAgain(w *world) {
	node, key := w.node(), w.key()
	c, run, seq := w.turn(node, key)
	id, a := w.acceptText(node, key)
	w.join(c, run, a.Seq)
	w.clock.advance(lease)
	next := w.node()
	taken := w.sweepOne(next, key)
	for _, m := range taken.Messages {
		equal(w, "run of the message", m.RunID, run)
	}
	equal(w, "messages", seqsOf(taken.Messages), []int64{seq, a.Seq})
	s := w.start(taken.Claim, run, seq, a.Seq)
	equal(w, "attempt", s.Attempt, 2)
	f := w.finish(answered(taken.Claim, run))
	equal(w, "merged", idsOf(f.Merged), []string{id})
	w.ended(run, chat.OutcomeAnswered)
}

// joinAcrossAnotherRun joins a message to a run that began before another run: the ranges of the two must not overlap, so the range of a run is that of its
// first messages.
func joinAcrossAnotherRun(w *world) {
	node, key := w.node(), w.key()
	p, q := w.message(node, key), w.message(node, key)
	p.RunLimit, q.RunLimit = 2, 2
	a, b := w.accept(p), w.accept(q)
	c := claimOf(key, a)
	w.start(c, p.Message.ID, a.Seq)
	w.start(c, q.Message.ID, b.Seq)
	r := w.message(node, key)
	r.RunLimit = 2
	joined := w.accept(r)
	equal(w, "joined", w.join(c, p.Message.ID, joined.Seq), []int64{joined.Seq})
	w.finish(answered(c, p.Message.ID))
	w.finish(answered(c, q.Message.ID))
	equal(w, "merged into", w.ended(r.Message.ID, chat.OutcomeMerged).MergedInto, a.Seq)
}
