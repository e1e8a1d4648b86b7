package storetest

import (
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"laneway/internal/chat"
	"laneway/internal/cron"
	"laneway/internal/store"
)

func transcriptTests() []test {
	return []test{
		{"EntriesReadBack", entriesReadBack},
		{"UnknownSessionIsEmpty", unknownSessionIsEmpty},
		{"AppendMakesTheSession", appendMakesTheSession},
		{"AReplyIsAppendedOnce", replyAppendedOnce},
		{"AReplyIsRefusedByASessionOfAnotherPrincipal", replyRefused},
		{"ForwardPages", forwardPages},
		{"BackwardPages", backwardPages},
		{"OnlyEntriesOfARun", onlyEntriesOfARun},
		{"StartAppendsOnce", startAppendsOnce},
		{"FinishAppends", finishAppends},
		{"ResetArchives", resetArchives},
		{"ResetIsIdempotent", resetIsIdempotent},
		{"ResetMakesTheSession", resetMakesTheSession},
		{"LateFinishWritesIntoTheArchive", lateFinish},
	}
}

func (w *world) transcript(q store.TranscriptQuery) store.Transcript {
	w.Helper()
	tr := try(w.st.Transcript(w.ctx, q)).ok(w)
	for i := 1; i < len(tr.Entries); i++ {
		if tr.Entries[i].Seq <= tr.Entries[i-1].Seq {
			w.Fatalf("entries are not in order: %+v", tr.Entries)
		}
	}
	return tr
}

func texts(entries []chat.TranscriptEntry) []string {
	var list []string
	for _, e := range entries {
		list = append(list, e.Text)
	}
	return list
}

// write appends n entries whose text is their number.
func (w *world) write(key chat.SessionKey, from, n int) {
	w.Helper()
	var entries []chat.TranscriptEntry
	for i := range n {
		entries = append(entries, chat.TranscriptEntry{Role: chat.RoleUser, Text: strconv.Itoa(from + i)})
	}
	try(w.st.AppendTranscript(w.ctx, key, "ann", entries)).ok(w)
}

func entriesReadBack(w *world) {
	node, key := w.node(), w.key()
	w.acceptText(node, key)
	in := []chat.TranscriptEntry{
		{RunID: "r", Role: chat.RoleUser, Text: "question", Sender: chat.Sender{ID: "1", Name: "Ann"}},
		{RunID: "r", Role: chat.RoleAssistant, Text: "answer", Tokens: 12, StopReason: "stop", Outside: true},
		{Role: chat.RoleSystem, Text: "", Command: true},
	}
	added := try(w.st.AppendTranscript(w.ctx, key, "ann", in)).ok(w)
	want := []chat.TranscriptEntry{in[0], in[1], in[2]}
	for i := range want {
		want[i].Seq, want[i].At = added[i].Seq, w.clock.now()
	}
	equal(w, "returned entries", utc(added), want)
	tr := w.transcript(store.TranscriptQuery{Session: key})
	equal(w, "entries", utc(tr.Entries), want)
	equal(w, "total and last", []int64{int64(tr.Total), tr.LastSeq}, []int64{3, added[2].Seq})
	equal(w, "transcript", tr.SessionID, w.session(key).SessionID)
	none := try(w.st.AppendTranscript(w.ctx, key, "ann", nil)).ok(w)
	equal(w, "nothing appended", len(none), 0)
}

func utc(entries []chat.TranscriptEntry) []chat.TranscriptEntry {
	list := append([]chat.TranscriptEntry(nil), entries...)
	for i := range list {
		list[i].At = list[i].At.UTC()
	}
	return list
}

func unknownSessionIsEmpty(w *world) {
	equal(w, "transcript", w.transcript(store.TranscriptQuery{Session: w.key()}), store.Transcript{})
}

func appendMakesTheSession(w *world) {
	key := w.key()
	w.write(key, 1, 2)
	s := w.session(key)
	equal(w, "principal and numbers", []any{s.Principal, s.LastSeq}, []any{"ann", int64(0)})
	equal(w, "owner", s.Owner, "")
	_, a := w.acceptText(w.node(), key)
	equal(w, "transcript", a.SessionID, s.SessionID)
	equal(w, "created by the message", a.Created, false)
}

func (w *world) reply(key chat.SessionKey, id, text string) store.ReplyParams {
	return store.ReplyParams{
		ID: id, Session: key, Principal: "ann", Own: true,
		Entry: chat.TranscriptEntry{RunID: "r", Role: chat.RoleAssistant, Text: text, Tokens: 3, StopReason: "stop"},
	}
}

func replyAppendedOnce(w *world) {
	key := w.key()
	first := try(w.st.AppendReply(w.ctx, w.reply(key, "a", "the answer"))).ok(w)
	equal(w, "owner of the session that it made", w.session(key).Principal, "ann")
	want := w.reply(key, "a", "the answer").Entry
	want.Seq, want.At = first.Entry.Seq, w.clock.now()
	equal(w, "entry", utc([]chat.TranscriptEntry{first.Entry})[0], want)
	second := try(w.st.AppendReply(w.ctx, w.reply(key, "b", "another"))).ok(w)
	w.clock.advance(time.Hour)
	again := func(when string) {
		w.Helper()
		got := try(w.st.AppendReply(w.ctx, w.reply(key, "a", "the answer"))).ok(w)
		equal(w, when, []any{got.Entry.Seq, got.Entry.At.UTC(), got.Principal}, []any{first.Entry.Seq, first.Entry.At.UTC(), "ann"})
	}
	again("the same one again")
	w.write(key, 1, 1)
	tr := w.transcript(store.TranscriptQuery{Session: key})
	equal(w, "entries", texts(tr.Entries), []string{"the answer", "another", "1"})
	equal(w, "numbers", []int64{tr.Entries[1].Seq, tr.LastSeq}, []int64{second.Entry.Seq, second.Entry.Seq + 1})

	try(w.st.ResetSession(w.ctx, store.ResetParams{Session: key, Principal: "ann", NewID: w.id("new")})).ok(w)
	again("after the transcript was archived")
	equal(w, "entries of the new one", len(w.transcript(store.TranscriptQuery{Session: key}).Entries), 0)
	try(w.st.DeleteSession(w.ctx, store.DeleteParams{Session: key})).ok(w)
	try(w.st.AppendReply(w.ctx, w.reply(key, "a", "the answer"))).ok(w)
	equal(w, "entries after the session was deleted", texts(w.transcript(store.TranscriptQuery{Session: key}).Entries), []string{"the answer"})
}

func replyRefused(w *world) {
	key := w.key()
	w.write(key, 1, 1) // it belongs to ann
	p := w.reply(key, "a", "the answer")
	p.Principal = "bob"
	try(w.st.AppendReply(w.ctx, p)).fails(w, chat.ErrSessionNotFound)
	equal(w, "entries", len(w.transcript(store.TranscriptQuery{Session: key}).Entries), 1)
	p.Own = false
	said := try(w.st.AppendReply(w.ctx, p)).ok(w)
	equal(w, "owner", []string{w.session(key).Principal, said.Principal}, []string{"ann", "ann"})
	p.Own = true
	try(w.st.AppendReply(w.ctx, p)).fails(w, chat.ErrSessionNotFound) // it exists, but they may not see it
}

func replyAtOnce(w *world) {
	key := w.key()
	w.write(key, 1, 1)
	seqs := make([]int64, racers)
	w.race(racers, func(st store.Store, i int) error {
		e, err := st.AppendReply(w.ctx, w.reply(key, strconv.Itoa(i%2), "answer "+strconv.Itoa(i%2)))
		seqs[i] = e.Entry.Seq
		return err
	})
	equal(w, "entries", len(w.transcript(store.TranscriptQuery{Session: key}).Entries), 3)
	for i, seq := range seqs {
		equal(w, "number", seq, seqs[i%2])
	}
}

func forwardPages(w *world) {
	key := w.key()
	w.write(key, 1, 3)
	w.write(key, 4, 2)
	all := w.transcript(store.TranscriptQuery{Session: key, FromStart: true})
	equal(w, "from the start", texts(all.Entries), []string{"1", "2", "3", "4", "5"})
	first := w.transcript(store.TranscriptQuery{Session: key, FromStart: true, Limit: 2})
	equal(w, "first page", texts(first.Entries), []string{"1", "2"})
	equal(w, "total and last of the whole", []int64{int64(first.Total), first.LastSeq}, []int64{5, all.Entries[4].Seq})
	after := first.Entries[1].Seq
	second := w.transcript(store.TranscriptQuery{Session: key, After: after, Limit: 2})
	equal(w, "second page", texts(second.Entries), []string{"3", "4"})
	after = second.Entries[1].Seq
	equal(w, "last page", texts(w.transcript(store.TranscriptQuery{Session: key, After: after, Limit: 2}).Entries), []string{"5"})
	after = all.Entries[4].Seq
	equal(w, "after the end", len(w.transcript(store.TranscriptQuery{Session: key, After: after}).Entries), 0)
}

func backwardPages(w *world) {
	key := w.key()
	w.write(key, 1, 5)
	for _, page := range []struct {
		limit, offset int
		want          []string
	}{
		{2, 0, []string{"4", "5"}},
		{2, 2, []string{"2", "3"}},
		{2, 4, []string{"1"}},
		{2, 5, nil},
		{0, 0, []string{"1", "2", "3", "4", "5"}},
		{9, 3, []string{"1", "2"}},
	} {
		q := store.TranscriptQuery{Session: key, Limit: page.limit, Offset: page.offset}
		tr := w.transcript(q)
		equal(w, fmt.Sprintf("page %+v", page), texts(tr.Entries), page.want)
		equal(w, "total", tr.Total, 5)
	}
	w.write(key, 6, 245)
	equal(w, "default limit", len(w.transcript(store.TranscriptQuery{Session: key}).Entries), 200)
}

func onlyEntriesOfARun(w *world) {
	key := w.key()
	try(w.st.AppendTranscript(w.ctx, key, "ann", []chat.TranscriptEntry{
		{RunID: "a", Role: chat.RoleUser, Text: "1"},
		{RunID: "b", Role: chat.RoleUser, Text: "2"},
		{Role: chat.RoleUser, Text: "3"},
		{RunID: "a", Role: chat.RoleAssistant, Text: "4"},
	})).ok(w)
	equal(w, "backwards", texts(w.transcript(store.TranscriptQuery{Session: key, RunID: "a"}).Entries), []string{"1", "4"})
	q := store.TranscriptQuery{Session: key, RunID: "a", FromStart: true, Limit: 1}
	equal(w, "forwards", texts(w.transcript(q).Entries), []string{"1"})
	equal(w, "of an unknown run", len(w.transcript(store.TranscriptQuery{Session: key, RunID: "c"}).Entries), 0)
}

func startAppendsOnce(w *world) {
	node, key := w.node(), w.key()
	id, a := w.acceptText(node, key)
	c := claimOf(key, a)
	p := store.StartParams{
		Claim: c, RunID: id, Lane: "main", Seqs: []int64{a.Seq},
		Transcript: []chat.TranscriptEntry{{RunID: id, Role: chat.RoleUser, Text: "question"}},
	}
	s := try(w.st.Start(w.ctx, p)).ok(w)
	equal(w, "entries of the start", texts(s.Entries), []string{"question"})
	equal(w, "time of the entry", s.Entries[0].At.UTC(), w.clock.now())
	w.finish(requeued(c, id))
	s = try(w.st.Start(w.ctx, p)).ok(w)
	equal(w, "attempt", s.Attempt, 2)
	equal(w, "entries of the second attempt", len(s.Entries), 0)
	w.clock.advance(lease)
	taken := w.sweepOne(w.node(), key)
	p.Claim = taken.Claim
	s = try(w.st.Start(w.ctx, p)).ok(w)
	equal(w, "entries after a takeover", len(s.Entries), 0)
	equal(w, "transcript", texts(w.transcript(store.TranscriptQuery{Session: key}).Entries), []string{"question"})
}

func finishAppends(w *world) {
	node, key := w.node(), w.key()
	c, id, _ := w.turn(node, key)
	w.write(key, 1, 1)
	w.clock.advance(time.Second)
	p := answered(c, id)
	p.Transcript = []chat.TranscriptEntry{{RunID: id, Role: chat.RoleAssistant, Text: "2"}, {RunID: id, Role: chat.RoleAssistant, Text: "3"}}
	f := w.finish(p)
	equal(w, "returned entries", texts(f.Entries), []string{"2", "3"})
	tr := w.transcript(store.TranscriptQuery{Session: key})
	equal(w, "transcript", texts(tr.Entries), []string{"1", "2", "3"})
	equal(w, "entries", utc(tr.Entries[1:]), utc(f.Entries))
	equal(w, "time", tr.Entries[2].At.UTC(), w.clock.now())
}

func resetArchives(w *world) {
	node, key := w.node(), w.key()
	w.write(key, 1, 2)
	waiting, _ := w.acceptText(node, key)
	w.ok(w.st.SetSession(w.ctx, key, "ann", store.SessionSettings{Notes: map[string]string{"model": "large"}}))
	old := w.session(key).SessionID
	s := try(w.st.ResetSession(w.ctx, store.ResetParams{Session: key, Principal: "bob", NewID: "new-transcript"})).ok(w)
	equal(w, "transcript and principal", []string{s.SessionID, s.Principal}, []string{"new-transcript", "ann"})
	tr := w.transcript(store.TranscriptQuery{Session: key})
	equal(w, "new transcript", []any{tr.SessionID, tr.Total, len(tr.Entries)}, []any{"new-transcript", 0, 0})
	equal(w, "messages are not touched", w.row(waiting).State, store.StateWaiting)
	w.write(key, 3, 1)
	equal(w, "new transcript", texts(w.transcript(store.TranscriptQuery{Session: key}).Entries), []string{"3"})
	archived := w.transcript(store.TranscriptQuery{Session: key, SessionID: old})
	equal(w, "archive", texts(archived.Entries), []string{"1", "2"})
	equal(w, "total of the archive", archived.Total, 2)
	equal(w, "current transcript", archived.SessionID, "new-transcript")
	none := w.transcript(store.TranscriptQuery{Session: key, SessionID: "unknown"})
	equal(w, "unknown transcript", len(none.Entries), 0)
	other := w.transcript(store.TranscriptQuery{Session: w.key(), SessionID: old})
	equal(w, "the archive of another session", len(other.Entries), 0)
}

func resetIsIdempotent(w *world) {
	key := w.key()
	w.write(key, 1, 1)
	for range 2 {
		try(w.st.ResetSession(w.ctx, store.ResetParams{Session: key, Principal: "ann", NewID: "second"})).ok(w)
	}
	w.write(key, 2, 1)
	s := try(w.st.ResetSession(w.ctx, store.ResetParams{Session: key, Principal: "ann", NewID: "second"})).ok(w)
	equal(w, "transcript", s.SessionID, "second")
	equal(w, "entries", texts(w.transcript(store.TranscriptQuery{Session: key}).Entries), []string{"2"})
}

func resetMakesTheSession(w *world) {
	key := w.key()
	s := try(w.st.ResetSession(w.ctx, store.ResetParams{Session: key, Principal: "ann", NewID: "first"})).ok(w)
	equal(w, "key, transcript and principal", []any{s.Key, s.SessionID, s.Principal}, []any{key, "first", "ann"})
	equal(w, "stored transcript", w.session(key).SessionID, "first")
}

func lateFinish(w *world) {
	node, key := w.node(), w.key()
	c, id, _ := w.turn(node, key)
	old := w.session(key).SessionID
	try(w.st.ResetSession(w.ctx, store.ResetParams{Session: key, Principal: "ann", NewID: "new-transcript"})).ok(w)
	w.write(key, 1, 1)
	p := answered(c, id)
	p.Transcript = []chat.TranscriptEntry{{RunID: id, Role: chat.RoleAssistant, Text: "late"}}
	f := w.finish(p)
	equal(w, "returned entries", texts(f.Entries), []string{"late"})
	equal(w, "new transcript", texts(w.transcript(store.TranscriptQuery{Session: key}).Entries), []string{"1"})
	archived := w.transcript(store.TranscriptQuery{Session: key, SessionID: old})
	equal(w, "archive", texts(archived.Entries), []string{"late"})
}

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

// summaryOfRun: a conversation that continues after an isolated run of a job is compacted like
// every other one.
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
