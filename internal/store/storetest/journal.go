package storetest

import (
	"encoding/json"
	"time"

	"laneway/internal/chat"
	"laneway/internal/store"
)

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

// repeatedRecords covers a commit whose result was lost, and a defect that would record something else: the recorded row stays.
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
