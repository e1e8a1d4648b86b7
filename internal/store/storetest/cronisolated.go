package storetest

import (
	"time"

	"laneway/internal/chat"
	"laneway/internal/cron"
	"laneway/internal/store"
)

// cronIsolatedTests check that a run in a session of its own consists of a session, a message and a run like all others, so the tests of those also cover it.
func cronIsolatedTests() []test {
	return []test{
		{"IsARunAMessageAndASession", isolatedReads},
		{"IsDeletedAndKept", isolatedDelete},
	}
}

func entry(role, text, runID string) chat.TranscriptEntry {
	return chat.TranscriptEntry{RunID: runID, Role: role, Text: text, Tokens: len(text)}
}

// beginSaying starts a launched run with entries of the transcript.
func (w *world) beginSaying(l cron.Launched, entries ...chat.TranscriptEntry) (store.Claim, store.Started) {
	w.Helper()
	c := claimOfRun(l)
	s := try(w.st.Start(w.ctx, store.StartParams{
		Claim: c, RunID: l.Message.ID, Lane: "cron", Seqs: []int64{l.Seq}, Cron: w.attempt(l.Message.ID, c.Node), Transcript: entries,
	})).ok(w)
	return c, s
}

func (w *world) entriesOf(key chat.SessionKey) []chat.TranscriptEntry {
	w.Helper()
	tr := try(w.st.Transcript(w.ctx, store.TranscriptQuery{Session: key, FromStart: true})).ok(w)
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
	equal(w, "the ended run", []any{r.State, r.EndedAt, r.Usage}, []any{store.RunOK, w.clock.now(), p.Usage})
	s = w.session(key)
	equal(w, "the ended session", []any{s.Owner, s.DoneSeq, s.Waiting, s.LastRunID, s.LastState, s.Preview, s.TotalTokens, s.UpdatedAt, len(s.ActiveRuns)},
		[]any{"", int64(1), 0, id, store.RunOK, "it is", 7, w.clock.now(), 0})
	entries := w.entriesOf(key)
	equal(w, "transcript", textsOf(entries), []string{"user: work", "assistant: it is done", "system: a note"})
	equal(w, "times", []time.Time{entries[0].At, entries[2].At}, []time.Time{began, w.clock.now()})
	equal(w, "tokens", entries[1].Tokens, len("it is done"))
}

func isolatedDelete(w *world) {
	node := w.node()
	w.job(nil)
	l := w.due(node)
	c, _ := w.beginSaying(l, entry(chat.RoleUser, "work", l.Message.ID))
	try(w.st.DeleteSession(w.ctx, store.DeleteParams{Session: l.Message.Session})).fails(w, chat.ErrConflict)
	w.endRun(c, l.Message.ID, cron.RunOK, nil)
	out := try(w.st.DeleteSession(w.ctx, store.DeleteParams{Session: l.Message.Session, KeepTranscript: true})).ok(w)
	equal(w, "deleted", []any{out.Deleted, out.Kept}, []any{true, l.SessionID})
	try(w.st.Session(w.ctx, l.Message.Session, "")).fails(w, chat.ErrSessionNotFound)
	tr := try(w.st.Transcript(w.ctx, store.TranscriptQuery{Session: l.Message.Session, SessionID: l.SessionID})).ok(w)
	equal(w, "kept", textsOf(tr.Entries), []string{"user: work"})
	equal(w, "the ledger", w.ledger(l.Run.ID).State, cron.RunOK)
	_, a := w.acceptText(node, l.Message.Session)
	equal(w, "a new session of the key", []any{a.Seq, a.Epoch, a.Created}, []any{int64(2), l.Epoch + 1, true})
}
