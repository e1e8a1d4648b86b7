package storetest

import (
	"encoding/json"
	"slices"
	"strings"
	"time"

	"laneway/internal/chat"
	"laneway/internal/store"
)

func turnListTests() []test {
	return []test{
		{"ATurnIsListedFromItsAcceptanceToItsEnd", turnFromAcceptanceToEnd},
		{"TurnsAreListedByWhatSelectsThem", turnsAreListed},
		{"PagesOfTurnsHaveEachOnce", turnPages},
		{"MessagesThatShareATurnAreOneRow", sharedTurnIsOneRow},
		{"ATurnIsFoundByEachOfItsMessages", turnIsFoundByItsMessages},
		{"AMessageThatEndsWithoutATurnIsListed", endedWithoutATurn},
	}
}

func (w *world) turns(f store.TurnFilter) []store.Turn {
	w.Helper()
	return try(w.st.Turns(w.ctx, f)).ok(w)
}

func (w *world) turnIDs(f store.TurnFilter) (ids []string) {
	w.Helper()
	for _, t := range w.turns(f) {
		ids = append(ids, t.ID)
	}
	return ids
}

func turnFromAcceptanceToEnd(w *world) {
	node, key := w.node(), w.key()
	p := w.message(node, key)
	p.Message.Content.Text, p.Message.Lane = strings.Repeat("ü", 300), "main"
	a := w.accept(p)
	id := p.Message.ID
	want := store.Turn{
		ID: id, Session: key, Seq: a.Seq, Lane: "main", Channel: p.Message.Channel, Text: strings.Repeat("ü", store.TaskText), Principal: p.Message.Principal,
		State: store.StateWaiting, Node: node, AcceptedAt: a.AcceptedAt,
	}
	equal(w, "that waits", w.turns(store.TurnFilter{}), []store.Turn{want})
	c := claimOf(key, a)
	started := w.start(c, id, a.Seq)
	want.State, want.Attempt, want.StartedAt = store.RunRunning, 1, started.StartedAt
	equal(w, "that runs", w.turns(store.TurnFilter{Which: store.TurnsRunning}), []store.Turn{want})
	child := w.spawn(c, id, id)
	w.spawned(child)
	tasks := w.turns(store.TurnFilter{ID: child.Accept.Message.ID})
	equal(w, "its sub-turn", []string{tasks[0].Parent, tasks[0].Root}, []string{id, id})
	w.ok(w.st.Yield(w.ctx, c, id, true))
	want.State = store.RunYielded
	equal(w, "that waits for its sub-turn", w.turns(store.TurnFilter{ID: id}), []store.Turn{want})
	w.stop(key, store.StopRun, id)
	want.State, want.StopBy = store.RunStopping, w.run(id).StopBy
	equal(w, "that stops", w.turns(store.TurnFilter{ID: id}), []store.Turn{want})
	end := stopped(c, id)
	end.Error, end.Detail, end.Usage = "It was stopped.", "the service's words", chat.Usage{InputTokens: 7, OutputTokens: 3, Model: "m", Provider: "p"}
	end.Asked = chat.Asked{Requests: 4, Limited: 2}
	ended := w.finish(end)
	want.State, want.Outcome, want.Reason, want.Error, want.Detail, want.Usage = store.StateDone, chat.OutcomeStopped, "stop", end.Error, end.Detail, end.Usage
	want.EndedAt, want.Asked = ended.EndedAt, end.Asked
	equal(w, "that has ended", w.turns(store.TurnFilter{Which: store.TurnsEnded}), []store.Turn{want})
	equal(w, "open ones", w.turnIDs(store.TurnFilter{Session: key}), nil)
}

func turnsAreListed(w *world) {
	node, key := w.node(), w.key()
	c, running, _ := w.turn(node, key)
	w.clock.advance(time.Second)
	p := w.message(node, key)
	p.Message.Principal, p.Message.Lane = "bob", "team"
	w.accept(p)
	waiting := p.Message.ID
	w.clock.advance(time.Second)
	other := w.key()
	oc, ended, _ := w.turn(node, other)
	w.clock.advance(time.Second)
	w.finish(answered(oc, ended))
	w.clock.advance(time.Second)
	lc, last, _ := w.turn(node, other)
	w.finish(stopped(lc, last))
	since := w.turns(store.TurnFilter{ID: last})[0].EndedAt
	equal(w, "open ones, the oldest first", w.turnIDs(store.TurnFilter{}), []string{running, waiting})
	equal(w, "the same by name", w.turnIDs(store.TurnFilter{Which: store.TurnsOpen}), []string{running, waiting})
	equal(w, "that run", w.turnIDs(store.TurnFilter{Which: store.TurnsRunning}), []string{running})
	equal(w, "that wait", w.turnIDs(store.TurnFilter{Which: store.TurnsWaiting}), []string{waiting})
	equal(w, "that have ended, the newest first", w.turnIDs(store.TurnFilter{Which: store.TurnsEnded}), []string{last, ended})
	equal(w, "with an outcome", w.turnIDs(store.TurnFilter{Which: store.TurnsEnded, Outcome: chat.OutcomeStopped}), []string{last})
	equal(w, "ended since", w.turnIDs(store.TurnFilter{Which: store.TurnsEnded, Since: since}), []string{last})
	equal(w, "ended before", w.turnIDs(store.TurnFilter{Which: store.TurnsEnded, Before: since}), []string{ended})
	equal(w, "of a principal", w.turnIDs(store.TurnFilter{Visible: "bob"}), []string{waiting})
	equal(w, "of a lane", w.turnIDs(store.TurnFilter{Lane: "team"}), []string{waiting})
	equal(w, "of a session", w.turnIDs(store.TurnFilter{Which: store.TurnsEnded, Session: other}), []string{last, ended})
	equal(w, "one", w.turnIDs(store.TurnFilter{ID: ended}), []string{ended})
	equal(w, "one that another principal owns", w.turnIDs(store.TurnFilter{ID: ended, Visible: "bob"}), nil)
	equal(w, "unknown", w.turnIDs(store.TurnFilter{ID: "unknown"}), nil)
	w.finish(answered(c, running))
}

func turnPages(w *world) {
	node := w.node()
	var open, ended []string
	for i := range 7 {
		id, _ := w.acceptText(node, w.key())
		open = append(open, id)
		c, run, _ := w.turn(node, w.key())
		w.finish(answered(c, run))
		ended = append(ended, run)
		if i%3 == 2 { // some have the same instant
			w.clock.advance(time.Second)
		}
	}
	for which, want := range map[string][]string{store.TurnsWaiting: open, store.TurnsEnded: ended} {
		var got []string
		f := store.TurnFilter{Which: which, Limit: 2}
		for {
			page := w.turns(f)
			for _, t := range page {
				got = append(got, t.ID)
				f.After = &store.TurnMark{At: t.AcceptedAt, ID: t.ID}
				if which == store.TurnsEnded {
					f.After.At = t.EndedAt
				}
			}
			if len(page) == 0 {
				break
			}
		}
		slices.Sort(got)
		slices.Sort(want)
		equal(w, which, got, want)
	}
}

func sharedTurnIsOneRow(w *world) {
	node, key := w.node(), w.key()
	first, a := w.acceptText(node, key)
	second, b := w.acceptText(node, key)
	equal(w, "while they wait", w.turnIDs(store.TurnFilter{}), []string{first, second})
	c := claimOf(key, a)
	w.start(c, second, a.Seq, b.Seq)
	equal(w, "while they run", w.turnIDs(store.TurnFilter{}), []string{second})
	w.finish(answered(c, second))
	equal(w, "when they have ended", w.turnIDs(store.TurnFilter{Which: store.TurnsEnded}), []string{second})
}

func turnIsFoundByItsMessages(w *world) {
	node, key := w.node(), w.key()
	var ids []string
	var seqs []int64
	var a store.Accepted
	for _, network := range []string{"4711", "4712"} {
		p := w.message(node, key)
		p.Message.Content.Network = network
		a = w.accept(p)
		seqs, ids = append(seqs, a.Seq), append(ids, p.Message.ID)
	}
	c := claimOf(key, a)
	w.start(c, ids[1], seqs...)
	for _, f := range []store.TurnFilter{{Message: ids[0]}, {Message: ids[1]}, {Message: ids[0], Session: key}, {Message: "4711", Session: key}, {Message: "4712", Session: key}} {
		equal(w, "the turn of "+f.Message, w.turnIDs(f), []string{ids[1]})
	}
	for _, f := range []store.TurnFilter{{Message: "4711"}, {Message: "4711", Session: w.key()}, {Message: "4711", Session: key, Visible: "bob"}} {
		equal(w, "not by "+f.Message, w.turnIDs(f), nil)
	}
	w.finish(answered(c, ids[1]))
	for range store.RecentMessages {
		w.acceptText(node, key)
	}
	equal(w, "of an older message", w.turnIDs(store.TurnFilter{Message: "4711", Session: key}), nil)
}

func endedWithoutATurn(w *world) {
	node, key := w.node(), w.key()
	id, _ := w.acceptText(node, key)
	w.stop(key, store.StopAll, "")
	list := w.turns(store.TurnFilter{Which: store.TurnsEnded})
	equal(w, "ended", w.turnIDs(store.TurnFilter{Which: store.TurnsEnded}), []string{id})
	equal(w, "how", []any{list[0].Outcome, list[0].Attempt, list[0].StartedAt}, []any{chat.OutcomeStopped, 0, time.Time{}})
}

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

// joinAcrossAnotherRun joins a message to a run that began before another run: the ranges of the
// two must not overlap, so the range of a run is that of its first messages.
func joinAcrossAnotherRun(w *world) {
	node, key := w.node(), w.key()
	p, q := w.message(node, key), w.message(node, key)
	p.Queue.MaxConcurrent, q.Queue.MaxConcurrent = 2, 2
	a, b := w.accept(p), w.accept(q)
	c := claimOf(key, a)
	w.start(c, p.Message.ID, a.Seq)
	w.start(c, q.Message.ID, b.Seq)
	r := w.message(node, key)
	r.Queue.MaxConcurrent = 2
	joined := w.accept(r)
	equal(w, "joined", w.join(c, p.Message.ID, joined.Seq), []int64{joined.Seq})
	w.finish(answered(c, p.Message.ID))
	w.finish(answered(c, q.Message.ID))
	equal(w, "merged into", w.ended(r.Message.ID, chat.OutcomeMerged).MergedInto, a.Seq)
}

func journalTests() []test {
	return []test{
		{"ARunWithoutCallsHasNoJournal", noJournal},
		{"RoundsComeBackAsTheyWereRecorded", roundsComeBack},
		{"ARepeatedRecordChangesNothing", repeatedRecords},
		{"RecordsNeedTheClaim", recordsNeedTheClaim},
		{"RecordsNeedARunningRun", recordsNeedARun},
		{"JoinedMessagesAreRecordedWithTheirRound", inputIsRecorded},
		{"TheJournalOutlivesATakeover", journalOutlivesTakeover},
		{"TheJournalOutlivesAnInterruption", journalOutlivesRequeue},
		{"TheJournalEndsWithItsRun", journalEnds},
		{"TheJournalIsPrunedWithItsRun", journalIsPruned},
	}
}

func round(number int, calls ...string) chat.Round {
	r := chat.Round{
		Number: number, Text: "I set it. \u00fc\"\\", Usage: chat.Usage{InputTokens: 7, OutputTokens: 3, Model: "m", Provider: "p"},
		Extra: json.RawMessage(`[{"type":"thinking"}]`), Results: make([]*chat.ToolResult, len(calls)),
	}
	for _, id := range calls {
		r.Calls = append(r.Calls, chat.ToolCall{ID: id, Name: "set", Args: `{"what":"` + id + `"}`})
	}
	return r
}

// asked is the row of a round, and result the row of the result of a call.
func (w *world) asked(r chat.Round) store.JournalRow {
	w.Helper()
	return try(store.AskedRow(r)).ok(w)
}

func (w *world) result(at store.CallRef, r chat.ToolResult) store.JournalRow {
	w.Helper()
	return try(store.ResultRow(at, r)).ok(w)
}

func (w *world) rounds(runID string) []store.Round {
	w.Helper()
	return try(w.st.Rounds(w.ctx, runID)).ok(w)
}

func noJournal(w *world) {
	_, run, _ := w.turn(w.node(), w.key())
	equal(w, "rounds", len(w.rounds(run)), 0)
	equal(w, "rounds of an unknown run", len(w.rounds("unknown")), 0)
}

func roundsComeBack(w *world) {
	c, run, _ := w.turn(w.node(), w.key())
	w.ok(w.st.Record(w.ctx, c, run, w.asked(round(1, "a", "b"))))
	equal(w, "without results", w.rounds(run), []store.Round{{Round: round(1, "a", "b")}})
	w.ok(w.st.Record(w.ctx, c, run, w.result(store.CallRef{Round: 1, Call: 1}, chat.ToolResult{Text: "no such time", IsError: true})))
	w.ok(w.st.Record(w.ctx, c, run, w.result(store.CallRef{Round: 1, Call: 0}, chat.ToolResult{Text: "15:00"})))
	w.ok(w.st.Record(w.ctx, c, run, w.asked(round(2, "c"))))
	first := round(1, "a", "b")
	first.Results = []*chat.ToolResult{{Text: "15:00"}, {Text: "no such time", IsError: true}}
	equal(w, "rounds", w.rounds(run), []store.Round{{Round: first}, {Round: round(2, "c")}})
}

// repeatedRecords covers a commit whose result was lost, and a defect that would record something
// else: the recorded row stays.
func repeatedRecords(w *world) {
	c, run, _ := w.turn(w.node(), w.key())
	for _, ids := range [][]string{{"a"}, {"a"}, {"x", "y"}} {
		w.ok(w.st.Record(w.ctx, c, run, w.asked(round(1, ids...))))
	}
	for _, text := range []string{"first", "first", "second"} {
		w.ok(w.st.Record(w.ctx, c, run, w.result(store.CallRef{Round: 1, Call: 0}, chat.ToolResult{Text: text})))
	}
	want := round(1, "a")
	want.Results[0] = &chat.ToolResult{Text: "first"}
	equal(w, "rounds", w.rounds(run), []store.Round{{Round: want}})
}

func recordsNeedTheClaim(w *world) {
	node, key := w.node(), w.key()
	c, run, _ := w.turn(node, key)
	other := w.key()
	otherClaim, _, _ := w.turn(node, other)
	wrong := []store.Claim{c, c, otherClaim}
	wrong[0].Epoch++
	wrong[1].Node = w.node()
	for _, claim := range wrong {
		w.fails(w.st.Record(w.ctx, claim, run, w.asked(round(1, "a"))), chat.ErrFenced)
		w.fails(w.st.Record(w.ctx, claim, run, w.result(store.CallRef{Round: 1, Call: 0}, chat.ToolResult{})), chat.ErrFenced)
	}
	equal(w, "rounds", len(w.rounds(run)), 0)
}

func recordsNeedARun(w *world) {
	c, run, _ := w.turn(w.node(), w.key())
	w.fails(w.st.Record(w.ctx, c, "unknown", w.asked(round(1, "a"))), chat.ErrFenced)
	end := stopped(c, run)
	end.StillRunning = true
	w.finish(end)
	w.fails(w.st.Record(w.ctx, c, run, w.asked(round(1, "a"))), chat.ErrFenced)
	w.fails(w.st.Record(w.ctx, c, run, w.result(store.CallRef{Round: 1, Call: 0}, chat.ToolResult{})), chat.ErrFenced)
	equal(w, "rounds", len(w.rounds(run)), 0)
}

func inputIsRecorded(w *world) {
	node, key := w.node(), w.key()
	c, run, _ := w.turn(node, key)
	_, a := w.acceptText(node, key)
	_, b := w.acceptText(node, key)
	w.ok(w.st.Record(w.ctx, c, run, w.asked(round(1, "a"))))
	w.ok(w.st.Record(w.ctx, c, run, w.result(store.CallRef{Round: 1, Call: 0}, chat.ToolResult{Text: "ok"})))
	p := store.StartParams{Claim: c, RunID: run, Lane: "main", Seqs: []int64{a.Seq, b.Seq}, Round: 1}
	joined := try(w.st.Join(w.ctx, p)).ok(w)
	equal(w, "joined", joined, []int64{a.Seq, b.Seq})
	joined = try(w.st.Join(w.ctx, p)).ok(w) // the result of the first was lost
	equal(w, "joined again", joined, []int64{a.Seq, b.Seq})
	equal(w, "input", w.rounds(run)[0].Input, []int64{a.Seq, b.Seq})
	equal(w, "result beside the input", w.rounds(run)[0].Results[0].Text, "ok")
}

func journalOutlivesTakeover(w *world) {
	key := w.key()
	c, run, seq := w.turn(w.node(), key)
	w.ok(w.st.Record(w.ctx, c, run, w.asked(round(1, "a"))))
	w.clock.advance(time.Minute)
	claim := w.sweepOne(w.node(), key).Claim
	w.fails(w.st.Record(w.ctx, c, run, w.result(store.CallRef{Round: 1, Call: 0}, chat.ToolResult{Text: "too late"})), chat.ErrFenced)
	try(w.st.Start(w.ctx, store.StartParams{Claim: claim, RunID: run, Lane: "main", Seqs: []int64{seq}})).ok(w)
	equal(w, "rounds", w.rounds(run), []store.Round{{Round: round(1, "a")}})
	w.ok(w.st.Record(w.ctx, claim, run, w.result(store.CallRef{Round: 1, Call: 0}, chat.ToolResult{Text: "done"})))
	equal(w, "result", w.rounds(run)[0].Results[0].Text, "done")
}

func journalOutlivesRequeue(w *world) {
	c, run, _ := w.turn(w.node(), w.key())
	w.ok(w.st.Record(w.ctx, c, run, w.asked(round(1, "a"))))
	w.finish(store.FinishParams{Claim: c, RunID: run, State: store.RunInterrupted, Cause: "draining", Requeue: true, Journal: true})
	equal(w, "rounds", len(w.rounds(run)), 1)
}

func journalEnds(w *world) {
	node := w.node()
	c, run, _ := w.turn(node, w.key())
	other, otherRun, _ := w.turn(node, w.key())
	w.ok(w.st.Record(w.ctx, c, run, w.asked(round(1, "a"))))
	w.ok(w.st.Record(w.ctx, other, otherRun, w.asked(round(1, "a"))))
	end := answered(c, run)
	end.Journal = true
	w.finish(end)
	equal(w, "rounds", len(w.rounds(run)), 0)
	equal(w, "rounds of another run", len(w.rounds(otherRun)), 1)
	w.ended(run, chat.OutcomeAnswered)
}

// journalIsPruned ends a run without removing its journal, as a process of an earlier version does.
func journalIsPruned(w *world) {
	c, run, _ := w.turn(w.node(), w.key())
	w.ok(w.st.Record(w.ctx, c, run, w.asked(round(1, "a"))))
	w.finish(answered(c, run))
	equal(w, "rounds", len(w.rounds(run)), 1)
	w.clock.advance(time.Hour)
	try(w.st.Prune(w.ctx, store.PruneParams{What: store.PruneMessages, Before: w.clock.now(), Limit: 100})).ok(w)
	try(w.st.RunByID(w.ctx, run)).fails(w, chat.ErrNotFound)
	equal(w, "rounds", len(w.rounds(run)), 0)
}
