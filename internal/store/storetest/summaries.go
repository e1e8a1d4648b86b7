package storetest

import (
	"errors"
	"sync"

	"laneway/internal/chat"
	"laneway/internal/cron"
	"laneway/internal/store"
)

func summaryTests() []test {
	return []test{
		{"ASummaryNamesItsRows", summaryNamesRows},
		{"ASummaryIsAddedOnce", summaryIsAddedOnce},
		{"OneOfManyWritersAddsASummary", oneWriterSums},
		{"ALaterSummaryIsTheNewest", laterSummary},
		{"AResetEndsTheSummary", resetEndsSummary},
		{"ADeletionEndsTheSummary", deletionEndsSummary},
		{"TheSessionOfARunHasASummary", summaryOfRun},
	}
}

// spoken creates a session with lines and returns its transcript.
func (w *world) spoken(key chat.SessionKey, lines ...string) store.Transcript {
	w.Helper()
	var entries []chat.TranscriptEntry
	for _, line := range lines {
		entries = append(entries, chat.TranscriptEntry{Role: chat.RoleUser, Text: line})
	}
	try(w.st.AppendTranscript(w.ctx, key, "anna", entries)).ok(w)
	return w.summed(key)
}

// summed reads a transcript with its summary.
func (w *world) summed(key chat.SessionKey) store.Transcript {
	w.Helper()
	return try(w.st.Transcript(w.ctx, store.TranscriptQuery{Session: key, Summary: true})).ok(w)
}

func summaryOf(key chat.SessionKey, id, text string, from, to int64) store.SummaryParams {
	return store.SummaryParams{Session: key, SessionID: id, RunID: "r", Text: text, Tokens: 5, Covers: chat.SeqRange{From: from, To: to}, Outside: true}
}

func summaryNamesRows(w *world) {
	key := w.key()
	before := w.spoken(key, "a", "b", "c")
	equal(w, "a summary of a new session", before.Summary, chat.TranscriptEntry{})
	e, added, err := w.st.AppendSummary(w.ctx, summaryOf(key, before.SessionID, script, 1, 2))
	w.ok(err)
	equal(w, "added", added, true)
	after := w.summed(key)
	equal(w, "summary", after.Summary, e)
	equal(w, "rows", len(after.Entries), 4)
	equal(w, "the row", after.Entries[3], e)
	equal(w, "its parts", []any{e.Seq, e.Role, e.StopReason, e.Tokens, e.Covers, e.RunID, e.Outside}, []any{int64(4), chat.RoleSystem, "summary", 5, chat.SeqRange{From: 1, To: 2}, "r", true})
	equal(w, "other rows", after.Entries[0].Covers, chat.SeqRange{})
	w.st = w.h.Reopen()
	equal(w, "after a restart", w.summed(key).Summary, e)
	tr := try(w.st.Transcript(w.ctx, store.TranscriptQuery{Session: key})).ok(w)
	equal(w, "a summary that was not requested", tr.Summary, chat.TranscriptEntry{})
}

func summaryIsAddedOnce(w *world) {
	key := w.key()
	id := w.spoken(key, "a", "b", "c").SessionID
	for i, p := range []store.SummaryParams{
		summaryOf(key, id, "one", 1, 2), summaryOf(key, id, "one", 1, 2), summaryOf(key, id, "shorter", 1, 1), summaryOf(key, "other", "other", 1, 3),
		summaryOf(w.key(), id, "no session", 1, 3),
	} {
		_, added, err := w.st.AppendSummary(w.ctx, p)
		w.ok(err)
		equal(w, p.Text, added, i < 3) // the run of the newest summary receives it again
	}
	other := summaryOf(key, id, "another run", 1, 2)
	other.RunID = "q"
	_, added, err := w.st.AppendSummary(w.ctx, other)
	w.ok(err)
	equal(w, "another run", added, false)
	tr := w.summed(key)
	equal(w, "rows", len(tr.Entries), 4)
	equal(w, "summary", tr.Summary.Text, "one")
}

func oneWriterSums(w *world) {
	key := w.key()
	id := w.spoken(key, "a", "b", "c").SessionID
	const writers = 8
	var group sync.WaitGroup
	faults, added := make([]error, writers), make([]bool, writers)
	for i := range writers {
		st := w.h.Open()
		p := summaryOf(key, id, "sum", 1, 2)
		p.RunID = w.id("run")
		group.Go(func() { _, added[i], faults[i] = st.AppendSummary(w.ctx, p) })
	}
	group.Wait()
	w.ok(errors.Join(faults...))
	n := 0
	for _, yes := range added {
		if yes {
			n++
		}
	}
	equal(w, "writers that added", n, 1)
	equal(w, "rows", len(w.summed(key).Entries), 4)
}

func laterSummary(w *world) {
	key := w.key()
	id := w.spoken(key, "a", "b", "c").SessionID
	for to := int64(1); to <= 3; to++ {
		_, added, err := w.st.AppendSummary(w.ctx, summaryOf(key, id, "sum", 1, to))
		w.ok(err)
		equal(w, "added", added, true)
	}
	tr := w.summed(key)
	equal(w, "summary", tr.Summary.Covers, chat.SeqRange{From: 1, To: 3})
	equal(w, "rows", len(tr.Entries), 6)
}

func resetEndsSummary(w *world) {
	key := w.key()
	id := w.spoken(key, "a", "b").SessionID
	_, _, err := w.st.AppendSummary(w.ctx, summaryOf(key, id, "sum", 1, 2))
	w.ok(err)
	try(w.st.ResetSession(w.ctx, store.ResetParams{Session: key, Principal: "anna", NewID: w.id("t")})).ok(w)
	tr := w.summed(key)
	equal(w, "summary of the new transcript", tr.Summary, chat.TranscriptEntry{})
	archived := try(w.st.Transcript(w.ctx, store.TranscriptQuery{Session: key, SessionID: id, Summary: true})).ok(w)
	equal(w, "rows of the old transcript", len(archived.Entries), 3)
	equal(w, "summary of the old transcript", archived.Summary, chat.TranscriptEntry{})
	_, added, err := w.st.AppendSummary(w.ctx, summaryOf(key, id, "late", 1, 3))
	w.ok(err)
	equal(w, "a summary of the old transcript is added", added, false)
	_, added, err = w.st.AppendSummary(w.ctx, summaryOf(key, tr.SessionID, "new", 4, 4))
	w.ok(err)
	equal(w, "a summary of the new one is added", added, true)
}

func deletionEndsSummary(w *world) {
	key := w.key()
	id := w.spoken(key, "a", "b").SessionID
	_, _, err := w.st.AppendSummary(w.ctx, summaryOf(key, id, "sum", 1, 2))
	w.ok(err)
	try(w.st.DeleteSession(w.ctx, store.DeleteParams{Session: key})).ok(w)
	_, added, err := w.st.AppendSummary(w.ctx, summaryOf(key, id, "late", 1, 3))
	w.ok(err)
	equal(w, "a summary of the deleted session is added", added, false)
	tr := w.spoken(key, "c")
	equal(w, "summary of the session after it", tr.Summary, chat.TranscriptEntry{})
	_, added, err = w.st.AppendSummary(w.ctx, summaryOf(key, id, "later", 1, 3))
	w.ok(err)
	equal(w, "a summary of the deleted session is added to the one after it", added, false)
}

// summaryOfRun: a conversation that continues after an isolated run of a job is compacted like every other one.
func summaryOfRun(w *world) {
	node := w.node()
	w.job(nil)
	l := w.due(node)
	c, started := w.beginSaying(l, entry(chat.RoleUser, "work", l.Message.ID))
	p := w.ending(c, l.Message.ID, cron.RunOK, nil)
	p.Transcript = []chat.TranscriptEntry{entry(chat.RoleAssistant, "done", l.Message.ID)}
	w.finish(p)
	equal(w, "a summary that is not there", w.summed(l.Message.Session).Summary, chat.TranscriptEntry{})
	e, added, err := w.st.AppendSummary(w.ctx, summaryOf(l.Message.Session, started.SessionID, "sum", 1, 2))
	w.ok(err)
	equal(w, "added", added, true)
	tr := w.summed(l.Message.Session)
	equal(w, "summary", tr.Summary, e)
	equal(w, "transcript", textsOf(tr.Entries), []string{"user: work", "assistant: done", "system: sum"})
	equal(w, "the run", w.run(l.Message.ID).State, store.RunOK)
}
