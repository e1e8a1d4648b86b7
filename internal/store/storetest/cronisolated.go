package storetest

import (
	"slices"
	"strings"
	"time"

	"laneway/internal/chat"
	"laneway/internal/cron"
	"laneway/internal/store"
)

// cronIsolatedTests are about runs in sessions of their own: whatever form a store keeps them in, they are sessions, messages and runs as all others.
func cronIsolatedTests() []test {
	return []test{
		{"IsARunAMessageAndASession", isolatedReads},
		{"GoesOnWhenItIsSpokenTo", isolatedIsSpokenTo},
		{"IsSpokenToWhileItRuns", isolatedIsSpokenToWhileItRuns},
		{"HasOneNameEverywhere", isolatedNames},
		{"StopsWhileItRuns", isolatedStops},
		{"IsTakenOverWithACrash", isolatedTakeover},
		{"IsTakenOverUntilItIsDead", isolatedDies},
		{"LeavesNoCrashAfterACleanEnd", isolatedCleanEnd},
		{"IsDeletedAndKept", isolatedDelete},
		{"KeepsTextsAsTheyAre", isolatedTexts},
		{"SendsItsAnswer", isolatedAnswer},
		{"RefusesAnotherClaim", isolatedFence},
		{"AsksForSubTurns", isolatedSpawns},
		{"WaitsForSubTurns", isolatedYields},
	}
}

func entry(role, text, runID string) chat.TranscriptEntry {
	return chat.TranscriptEntry{RunID: runID, Role: role, Text: text, Tokens: len(text)}
}

// beginSaying starts a launched run with entries of the transcript.
func (w *world) beginSaying(l cron.Launched, entries ...chat.TranscriptEntry) (store.Claim, store.Started) {
	w.Helper()
	c := claimOfRun(l)
	s, err := w.st.Start(w.ctx, store.StartParams{
		Claim: c, RunID: l.Message.ID, Lane: "cron", Seqs: []int64{l.Seq}, Cron: w.attempt(l.Message.ID, c.Node), Transcript: entries,
	})
	w.ok(err)
	return c, s
}

func (w *world) entriesOf(key chat.SessionKey) []chat.TranscriptEntry {
	w.Helper()
	tr, err := w.st.Transcript(w.ctx, store.TranscriptQuery{Session: key, FromStart: true})
	w.ok(err)
	equal(w, "total", tr.Total, len(tr.Entries))
	return tr.Entries
}

func textsOf(list []chat.TranscriptEntry) []string {
	var texts []string
	for _, e := range list {
		texts = append(texts, e.Role+": "+e.Text)
	}
	return texts
}

func isolatedReads(w *world) {
	node := w.node()
	j := w.job(nil)
	l := w.due(node)
	key, id := l.Message.Session, l.Message.ID
	equal(w, "launched", []any{l.Seq, l.Mine, l.Owner, l.Behind}, []any{int64(1), true, node, 0})

	m := w.row(id)
	equal(w, "the message that waits", []any{m.Session, m.Seq, m.State, m.Principal, m.Channel, m.Lane, m.Content.Text, m.AcceptedAt, m.RunID},
		[]any{key, int64(1), store.StateWaiting, j.Principal, "cron", "cron", "work", l.Run.ClaimedAt, ""})
	equal(w, "unfinished", w.unfinished(), 1)
	waiting, total, err := w.st.PendingInputs(w.ctx, key, 0, many)
	w.ok(err)
	equal(w, "pending", append(idsOf(waiting), literal(int64(total))), []string{id, "1"})
	s := w.session(key)
	equal(w, "the session that waits", []any{s.Owner, s.Epoch, s.LastSeq, s.TakenSeq, s.DoneSeq, s.Waiting, s.SessionID, s.Principal, s.RunLimit},
		[]any{node, l.Epoch, int64(1), int64(0), int64(0), 1, l.SessionID, j.Principal, 1})

	w.clock.advance(time.Second)
	began := w.clock.now()
	c, started := w.beginSaying(l, entry(chat.RoleUser, "work", id))
	equal(w, "started", []any{started.Seqs, started.Attempt, started.SessionID, started.Principal, started.StartedAt, len(started.Notes)},
		[]any{[]int64{1}, 1, l.SessionID, j.Principal, began, 0})
	equal(w, "the first entry", []any{started.Entries[0].Seq, started.Entries[0].At}, []any{int64(1), began})
	r := w.run(id)
	equal(w, "the run", []any{r.Session, r.SeqFrom, r.SeqTo, r.Owner, r.Epoch, r.Attempt, r.Crashes, r.State, r.StartedAt, r.QueuedAt},
		[]any{key, int64(1), int64(1), node, c.Epoch, 1, 0, store.RunRunning, began, l.Run.ClaimedAt})
	equal(w, "its message", []any{w.row(id).State, w.row(id).RunID}, []any{store.StateRunning, id})
	equal(w, "active", w.session(key).ActiveRuns, []string{id})

	w.clock.advance(time.Second)
	p := w.ending(c, id, cron.RunOK, func(e *cron.AttemptEnd) {
		e.Usage = chat.Usage{InputTokens: 3, OutputTokens: 4, Model: "m", Provider: "p"}
	})
	p.Usage, p.Preview, p.Transcript = p.Cron.Usage, "it is", []chat.TranscriptEntry{entry(chat.RoleAssistant, "it is done", id), entry(chat.RoleSystem, "a note", id)}
	f := w.finish(p)
	equal(w, "finished", []any{f.Released, f.EndedAt, f.Entries[0].Seq, f.Entries[1].Seq}, []any{true, w.clock.now(), int64(2), int64(3)})
	w.ended(id, chat.OutcomeAnswered)
	r = w.run(id)
	equal(w, "the run that is over", []any{r.State, r.EndedAt, r.Usage}, []any{store.RunOK, w.clock.now(), p.Usage})
	s = w.session(key)
	equal(w, "the session that is over", []any{s.Owner, s.DoneSeq, s.Waiting, s.LastRunID, s.LastState, s.Preview, s.TotalTokens, s.UpdatedAt, len(s.ActiveRuns)},
		[]any{"", int64(1), 0, id, store.RunOK, "it is", 7, w.clock.now(), 0})
	entries := w.entriesOf(key)
	equal(w, "transcript", textsOf(entries), []string{"user: work", "assistant: it is done", "system: a note"})
	equal(w, "times", []time.Time{entries[0].At, entries[2].At}, []time.Time{began, w.clock.now()})
	equal(w, "tokens", entries[1].Tokens, len("it is done"))
	w.readsPages(key, l.SessionID, id)
	w.isListed(key)
}

// readsPages reads the transcript of three entries in pieces.
func (w *world) readsPages(key chat.SessionKey, sessionID, runID string) {
	w.Helper()
	for _, page := range []struct {
		q    store.TranscriptQuery
		want []string
	}{
		{store.TranscriptQuery{Limit: 1}, []string{"system: a note"}},
		{store.TranscriptQuery{Limit: 1, Offset: 1}, []string{"assistant: it is done"}},
		{store.TranscriptQuery{After: 1}, []string{"assistant: it is done", "system: a note"}},
		{store.TranscriptQuery{SessionID: sessionID, RunID: runID, FromStart: true, Limit: 1}, []string{"user: work"}},
		{store.TranscriptQuery{MaxChars: 2, FromStart: true, Limit: 1}, []string{"user: wor"}},
		{store.TranscriptQuery{SessionID: "another", FromStart: true}, nil},
		{store.TranscriptQuery{RunID: "another", FromStart: true}, nil},
	} {
		page.q.Session = key
		tr, err := w.st.Transcript(w.ctx, page.q)
		w.ok(err)
		equal(w, "a page of the transcript", textsOf(tr.Entries), page.want)
	}
}

// isListed finds the session in lists of sessions, and not in those without runs of jobs.
func (w *world) isListed(key chat.SessionKey) {
	w.Helper()
	for _, f := range []store.SessionFilter{
		{},
		{ByLastMessage: true},
		{Agent: key.Agent, Search: strings.ToUpper(key.Rest)},
		{Search: "it is", ActiveSince: w.clock.now()},
	} {
		list, total, err := w.st.ListSessions(w.ctx, f)
		w.ok(err)
		equal(w, "listed", []any{len(list), total, list[0].Key}, []any{1, 1, key})
		equal(w, "as it is read", list[0], w.session(key))
	}
	for _, f := range []store.SessionFilter{{NoRuns: true}, {Visible: "another"}, {ActiveSince: w.clock.now().Add(time.Millisecond)}, {Search: "nothing"}} {
		list, total, err := w.st.ListSessions(w.ctx, f)
		w.ok(err)
		equal(w, "not listed", []any{len(list), total}, []any{0, 0})
	}
}

func isolatedIsSpokenTo(w *world) {
	node := w.node()
	w.job(nil)
	l := w.due(node)
	c, _ := w.beginSaying(l, entry(chat.RoleUser, "work", l.Message.ID))
	p := w.ending(c, l.Message.ID, cron.RunOK, nil)
	p.Transcript = []chat.TranscriptEntry{entry(chat.RoleAssistant, "done", l.Message.ID)}
	w.finish(p)
	id, a := w.acceptText(node, l.Message.Session)
	equal(w, "the next message", []any{a.Seq, a.Epoch, a.Mine, a.Created, a.SessionID, a.Principal}, []any{int64(2), l.Epoch + 1, true, false, l.SessionID, "ann"})
	s, err := w.st.Start(w.ctx, store.StartParams{
		Claim: claimOf(l.Message.Session, a), RunID: id, Lane: "main", Seqs: []int64{2}, Transcript: []chat.TranscriptEntry{entry(chat.RoleUser, "and now?", id)},
	})
	w.ok(err)
	equal(w, "its entry", s.Entries[0].Seq, int64(3))
	equal(w, "transcript", textsOf(w.entriesOf(l.Message.Session)), []string{"user: work", "assistant: done", "user: and now?"})
	w.finish(answered(claimOf(l.Message.Session, a), id))
	equal(w, "the run of the job", []any{w.run(l.Message.ID).State, w.ledger(l.Run.ID).State}, []any{store.RunOK, cron.RunOK})
}

func isolatedIsSpokenToWhileItRuns(w *world) {
	node := w.node()
	w.job(nil)
	l := w.due(node)
	c, _ := w.beginSaying(l, entry(chat.RoleUser, "work", l.Message.ID))
	_, a := w.acceptText(node, l.Message.Session)
	equal(w, "the message behind it", []any{a.Seq, a.Epoch, a.Owner, a.Mine}, []any{int64(2), l.Epoch, node, true})
	p := w.ending(c, l.Message.ID, cron.RunOK, nil)
	p.Transcript = []chat.TranscriptEntry{entry(chat.RoleAssistant, "done", l.Message.ID)}
	f := w.finish(p)
	equal(w, "released", f.Released, false)
	equal(w, "the answer", f.Entries[0].Seq, int64(2))
	equal(w, "the ledger", w.ledger(l.Run.ID).State, cron.RunOK)
}

// isolatedNames: the names of its message are in use, whatever session another message is for.
func isolatedNames(w *world) {
	node := w.node()
	w.job(nil)
	l := w.due(node)
	p := w.message(node, w.key())
	p.Message.ID = l.Message.ID
	_, err := w.st.Accept(w.ctx, p)
	w.fails(err, chat.ErrKeyReused)
	p = w.message(node, w.key())
	p.Message.Dedupe, p.Message.ParamsHash = l.Message.Dedupe, ""
	a, err := w.st.Accept(w.ctx, p)
	w.ok(err)
	equal(w, "the same key", []any{a.Duplicate, a.Existing.MessageID}, []any{true, l.Message.ID})
	w.endRun(w.begin(l), l.Message.ID, cron.RunOK, nil)
}

func isolatedStops(w *world) {
	node, other := w.node(), w.node()
	w.job(nil)
	w.pass(interval, node, other)
	l := w.launchOne(node)
	c, _ := w.beginSaying(l)
	st, err := w.st.Stop(w.ctx, store.StopParams{Session: l.Message.Session, Scope: store.StopAll, By: "ann", Reason: "stop"})
	w.ok(err)
	equal(w, "stopped", st.Running, []store.RunningRun{{RunID: l.Message.ID, Node: node}})
	beat := w.beat(node)
	equal(w, "the run of the node", beat.Runs, []string{l.Message.ID})
	equal(w, "its owner is asked", beat.Stops, []store.StopRequest{{Session: l.Message.Session, RunID: l.Message.ID, By: "ann"}})
	w.endRun(c, l.Message.ID, cron.RunCancelled, nil)
	equal(w, "the ledger", w.ledger(l.Run.ID).State, cron.RunCancelled)
	w.ended(l.Message.ID, chat.OutcomeStopped)
}

func isolatedTakeover(w *world) {
	first := w.node()
	w.job(nil)
	l := w.due(first)
	c, _ := w.beginSaying(l, entry(chat.RoleUser, "work", l.Message.ID))
	w.clock.advance(time.Minute)
	second := w.node()
	_, err := w.st.Finish(w.ctx, w.ending(c, l.Message.ID, cron.RunOK, nil))
	w.fails(err, chat.ErrFenced)
	taken := w.sweepOne(second, l.Message.Session)
	equal(w, "taken", []any{taken.Epoch, taken.Node, idsOf(taken.Messages), taken.Runs[l.Message.ID].Crashes}, []any{l.Epoch + 1, second, []string{l.Message.ID}, 1})
	equal(w, "the ledger waits", w.ledger(l.Run.ID).State, cron.RunQueued)
	_, err = w.st.Finish(w.ctx, w.ending(c, l.Message.ID, cron.RunOK, nil))
	w.fails(err, chat.ErrFenced)
	s := w.start(taken.Claim, l.Message.ID, 1)
	equal(w, "attempt", []int{s.Attempt, s.Crashes}, []int{2, 1})
	w.endRun(taken.Claim, l.Message.ID, cron.RunOK, nil)
	equal(w, "transcript", textsOf(w.entriesOf(l.Message.Session)), []string{"user: work"})
	attempts := w.ledger(l.Run.ID).Attempts
	equal(w, "attempts", []any{len(attempts), attempts[0].State, attempts[0].Node}, []any{2, cron.AttemptInterrupted, first})
}

func isolatedDies(w *world) {
	w.job(nil)
	node := w.node()
	l := w.due(node)
	claim := w.begin(l)
	for crashes := 1; crashes <= store.MaxCrashes; crashes++ {
		w.clock.advance(time.Minute)
		taken := w.sweepOne(w.node(), l.Message.Session)
		equal(w, "crashes", taken.Runs[l.Message.ID].Crashes, crashes)
		claim = taken.Claim
		w.start(claim, l.Message.ID, 1)
	}
	w.endRun(claim, l.Message.ID, cron.RunOK, nil)
}

func isolatedCleanEnd(w *world) {
	first, second := w.node(), w.node()
	w.job(nil)
	w.pass(interval, first, second)
	l := w.launchOne(first)
	w.beginSaying(l)
	w.ok(w.st.Unregister(w.ctx, first))
	taken := w.sweepOne(second, l.Message.Session)
	equal(w, "crashes", taken.Runs[l.Message.ID].Crashes, 0)
	s := w.start(taken.Claim, l.Message.ID, 1)
	equal(w, "attempt", s.Attempt, 2)
	w.endRun(taken.Claim, l.Message.ID, cron.RunOK, nil)
}

func isolatedDelete(w *world) {
	node := w.node()
	w.job(nil)
	l := w.due(node)
	c, _ := w.beginSaying(l, entry(chat.RoleUser, "work", l.Message.ID))
	_, err := w.st.DeleteSession(w.ctx, store.DeleteParams{Session: l.Message.Session})
	w.fails(err, chat.ErrConflict)
	w.endRun(c, l.Message.ID, cron.RunOK, nil)
	out, err := w.st.DeleteSession(w.ctx, store.DeleteParams{Session: l.Message.Session, KeepTranscript: true})
	w.ok(err)
	equal(w, "deleted", []any{out.Deleted, out.Kept}, []any{true, l.SessionID})
	_, err = w.st.Session(w.ctx, l.Message.Session, "")
	w.fails(err, chat.ErrSessionNotFound)
	tr, err := w.st.Transcript(w.ctx, store.TranscriptQuery{Session: l.Message.Session, SessionID: l.SessionID})
	w.ok(err)
	equal(w, "kept", textsOf(tr.Entries), []string{"user: work"})
	equal(w, "the ledger", w.ledger(l.Run.ID).State, cron.RunOK)
	_, a := w.acceptText(node, l.Message.Session)
	equal(w, "a new session of the key", []any{a.Seq, a.Epoch, a.Created}, []any{int64(2), l.Epoch + 1, true})
}

func isolatedTexts(w *world) {
	node := w.node()
	texts := []string{`"quoted" \ and {braces}, [too]`, "ünïcode 🙂\n\ttabs", strings.Repeat("long ", 100_000), "'); DROP TABLE runs; --"}
	for i, text := range texts {
		w.job(func(j *cron.Job) { j.Payload.Text = text })
		l := w.due(node)
		equal(w, "the message", w.row(l.Message.ID).Content.Text, text)
		e := entry(chat.RoleUser, text, l.Message.ID)
		e.Sender, e.StopReason, e.Command = chat.Sender{ID: "1", Name: text[:10]}, "stop", i%2 == 0
		c, _ := w.beginSaying(l, e)
		p := w.ending(c, l.Message.ID, cron.RunOK, func(a *cron.AttemptEnd) { a.Summary = text })
		p.Transcript = []chat.TranscriptEntry{entry(chat.RoleAssistant, text, l.Message.ID)}
		w.finish(p)
		got := w.entriesOf(l.Message.Session)
		equal(w, "texts", []string{got[0].Text, got[1].Text}, []string{text, text})
		equal(w, "the rest", []any{got[0].Sender, got[0].StopReason, got[0].Command, got[1].Command}, []any{e.Sender, "stop", i%2 == 0, false})
		for _, j := range w.jobIDs(cron.JobFilter{Limit: many}) {
			w.alter(j, func(j *cron.Job) { j.Enabled, j.State.Next, j.State.NextRunAt = false, time.Time{}, time.Time{} })
		}
	}
}

// isolatedAnswer: the outgoing messages of the end are there with it, once.
func isolatedAnswer(w *world) {
	node := w.node()
	w.job(nil)
	l := w.due(node)
	c, _ := w.beginSaying(l)
	p := w.ending(c, l.Message.ID, cron.RunOK, nil)
	p.Outgoing = []store.Outgoing{{Session: l.Message.Session, Kind: store.KindReply, Target: chat.Target{Channel: "web", ChatID: "1"}, Text: "done", Principal: "ann"}}
	w.finish(p)
	w.finish(p)
	list, err := w.st.ClaimOutgoing(w.ctx, node, []string{"web"}, many)
	w.ok(err)
	equal(w, "sent", []any{len(list), list[0].RunID, list[0].Epoch, list[0].Text}, []any{1, l.Message.ID, l.Epoch, "done"})
	w.ok(w.st.Delivered(w.ctx, node, list[0].ID, "provider-1"))
	r := w.ledger(l.Run.ID)
	equal(w, "the ledger", []any{r.Delivery, r.ProviderMessageID}, []any{cron.DeliveryDone, "provider-1"})
}

// isolatedFence: nothing but the claim of its owner starts or ends a run.
func isolatedFence(w *world) {
	node, other := w.node(), w.node()
	w.job(nil)
	w.pass(interval, node, other)
	l := w.launchOne(node)
	wrong := []store.Claim{
		{Session: l.Message.Session, Node: other, Epoch: l.Epoch},
		{Session: l.Message.Session, Node: node, Epoch: l.Epoch + 1},
		{Session: l.Message.Session, Node: node, Epoch: l.Epoch - 1},
		{Session: w.key(), Node: node, Epoch: l.Epoch},
	}
	before := w.ledger(l.Run.ID)
	for _, c := range wrong {
		_, err := w.st.Start(w.ctx, store.StartParams{Claim: c, RunID: l.Message.ID, Lane: "cron", Seqs: []int64{1}, Cron: &cron.AttemptStart{RunID: l.Run.ID, Attempt: 1, Node: c.Node}})
		w.fails(err, chat.ErrFenced)
	}
	equal(w, "the row of the ledger", w.ledger(l.Run.ID), before)
	c, _ := w.beginSaying(l)
	before = w.ledger(l.Run.ID)
	for _, wrong := range wrong {
		p := w.ending(c, l.Message.ID, cron.RunOK, nil)
		p.Claim = wrong
		_, err := w.st.Finish(w.ctx, p)
		w.fails(err, chat.ErrFenced)
	}
	equal(w, "the row of the ledger", w.ledger(l.Run.ID), before)
	if !slices.Contains(w.session(l.Message.Session).ActiveRuns, l.Message.ID) {
		w.Errorf("the run does not run any more")
	}
	w.endRun(c, l.Message.ID, cron.RunOK, nil)
}
