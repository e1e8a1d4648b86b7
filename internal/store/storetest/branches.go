package storetest

import (
	"fmt"
	"strings"
	"sync"

	"laneway/internal/chat"
	"laneway/internal/store"
)

func branchTests() []test {
	return []test{
		{"ABranchHasTheEntriesOfItsParentWithoutACopy", branchReads},
		{"ABranchKeepsTheSummaryBeforeIt", branchSummary},
		{"ABranchOfWhatIsGoneIsNotAccepted", branchOfGone},
		{"ADeletionLeavesWhatBranchesNeed", branchesOutliveParent},
		{"ADeletionRemovesBranchesWhenItIsToldTo", branchesGoWithParent},
		{"AKeptTranscriptHasItsBranches", branchOfKept},
		{"BranchesCountAsSessionsOfTheirPrincipal", branchesCount},
		{"ADeletionAndABranchAtOnceLoseNothing", branchRace},
	}
}

// branchOff accepts the first message of a new session that branches off another one after an
// entry, and writes entries to it.
func (w *world) branchOff(parent chat.SessionKey, seq int64, lines ...string) chat.SessionKey {
	w.Helper()
	key := chat.SessionKey{Agent: "main", Rest: "api:" + w.uuid()}
	p := w.message(w.node(), key)
	p.Message.Branch = &chat.Branch{Session: parent, SessionID: w.session(parent).SessionID, Seq: seq}
	equal(w, "created", w.accept(p).Created, true)
	again := try(w.st.Accept(w.ctx, p)).ok(w)
	equal(w, "the same message again", again.Duplicate, true)
	w.lines(key, lines...)
	return key
}

// lines appends entries.
func (w *world) lines(key chat.SessionKey, lines ...string) {
	w.Helper()
	for _, line := range lines {
		try(w.st.AppendTranscript(w.ctx, key, "ann", []chat.TranscriptEntry{{Role: chat.RoleUser, Text: line, RunID: "run of " + line}})).ok(w)
	}
}

// reads expects the entries of a transcript, for each way of reading it.
func (w *world) reads(key chat.SessionKey, want string) {
	w.Helper()
	equal(w, "entries of "+key.String(), w.readAs("", key, ""), want)
	all := w.transcript(store.TranscriptQuery{Session: key})
	equal(w, "total", all.Total, len(strings.Fields(want)))
	for i, e := range all.Entries {
		one := w.transcript(store.TranscriptQuery{Session: key, Offset: len(all.Entries) - 1 - i, Limit: 1})
		equal(w, "one entry", one.Entries, []chat.TranscriptEntry{e})
		equal(w, "the last number", one.LastSeq, all.LastSeq)
		next := w.transcript(store.TranscriptQuery{Session: key, After: e.Seq, Limit: 1})
		equal(w, "the next ones", next.Entries, all.Entries[i+1:min(i+2, len(all.Entries))])
		before := w.transcript(store.TranscriptQuery{Session: key, Before: e.Seq + 1, Limit: 2, NoCount: true})
		equal(w, "the ones before", before.Entries, all.Entries[max(0, i-1):i+1])
		equal(w, "without a count", []any{before.Total, before.LastSeq >= all.LastSeq}, []any{0, true})
		equal(w, "of its run", w.transcript(store.TranscriptQuery{Session: key, RunID: e.RunID}).Entries, []chat.TranscriptEntry{e})
	}
}

func (w *world) rowsOf(key chat.SessionKey) int {
	w.Helper()
	return len(w.h.Query(w.tb, `SELECT 1 FROM transcript WHERE session_key = '`+key.String()+`'`))
}

func branchReads(w *world) {
	parent := w.key()
	w.lines(parent, "a", "b", "c", "d")
	child := w.branchOff(parent, 2)
	w.reads(child, "a b")
	plain := w.key()
	w.lines(plain, "a", "b")
	for _, silent := range []chat.SessionKey{plain, w.branchOff(parent, 2)} { // the last entry is shown to nobody
		whole := w.transcript(store.TranscriptQuery{Session: silent})
		try(w.st.AppendTranscript(w.ctx, silent, "ann", []chat.TranscriptEntry{{Role: chat.RoleAssistant, StopReason: chat.StopSilent}})).ok(w)
		equal(w, "with the silent entry", w.transcript(store.TranscriptQuery{Session: silent}).Total, len(whole.Entries)+1)
		for _, q := range []store.TranscriptQuery{{}, {FromStart: true}, {Before: 99}} {
			q.Session, q.Shown = silent, true
			shown := w.transcript(q)
			equal(w, "shown", texts(shown.Entries), texts(whole.Entries))
			equal(w, "the total that is shown", shown.Total, len(whole.Entries))
		}
	}
	equal(w, "its own rows", w.rowsOf(child), 0)
	w.lines(child, "x", "y")
	w.lines(parent, "e")
	w.reads(child, "a b x y")
	grandchild := w.branchOff(child, 3, "z")
	sibling := w.branchOff(parent, 2, "s")
	w.reads(parent, "a b c d e")
	w.reads(child, "a b x y")
	w.reads(grandchild, "a b x z")
	w.reads(sibling, "a b s")
	equal(w, "own rows", []int{w.rowsOf(child), w.rowsOf(grandchild), w.rowsOf(sibling)}, []int{2, 1, 1})
	equal(w, "branches", w.transcript(store.TranscriptQuery{Session: grandchild}).Branches, 2)
	equal(w, "of the first transcript", w.transcript(store.TranscriptQuery{Session: parent}).Branches, 0)
	equal(w, "cut", texts(w.transcript(store.TranscriptQuery{Session: grandchild, MaxBytes: 1}).Entries), []string{"z"})
	try(w.st.ResetSession(w.ctx, store.ResetParams{Session: parent, Principal: "ann", NewID: w.id("second")})).ok(w)
	try(w.st.ResetSession(w.ctx, store.ResetParams{Session: grandchild, Principal: "ann", NewID: w.id("second")})).ok(w)
	w.reads(child, "a b x y")
	w.lines(grandchild, "again")
	w.reads(grandchild, "again")
	w.st = w.h.Reopen()
	w.reads(sibling, "a b s")
}

func branchSummary(w *world) {
	parent := w.key()
	w.lines(parent, "a", "b", "c")
	id := w.session(parent).SessionID
	first, _, err := w.st.AppendSummary(w.ctx, summaryOf(parent, id, "of a and b", 1, 2))
	w.ok(err)
	w.lines(parent, "d")
	before, after := w.branchOff(parent, 3), w.branchOff(parent, 5)
	equal(w, "of a branch before it", w.summed(before).Summary, chat.TranscriptEntry{})
	equal(w, "of a branch after it", w.summed(after).Summary, first)
	equal(w, "of a branch of that", w.summed(w.branchOff(after, w.lastOf(after, "x"))).Summary, first)
	_, _, err = w.st.AppendSummary(w.ctx, summaryOf(parent, id, "of all", 1, 5))
	w.ok(err)
	equal(w, "after another summary of the parent", w.summed(after).Summary, first)
	own, added, err := w.st.AppendSummary(w.ctx, summaryOf(after, w.session(after).SessionID, "its own", 1, 5))
	w.ok(err)
	equal(w, "added", added, true)
	equal(w, "its own", w.summed(after).Summary, own)
	try(w.st.DeleteSession(w.ctx, store.DeleteParams{Session: parent})).ok(w)
	equal(w, "its own, after the deletion", w.summed(after).Summary, own)
}

// lastOf writes a line and returns its number.
func (w *world) lastOf(key chat.SessionKey, line string) int64 {
	w.Helper()
	w.lines(key, line)
	return w.transcript(store.TranscriptQuery{Session: key}).LastSeq
}

func branchOfGone(w *world) {
	parent, other := w.key(), w.key()
	w.lines(parent, "a", "b")
	w.lines(other, "a")
	id := w.session(parent).SessionID
	try(w.st.DeleteSession(w.ctx, store.DeleteParams{Session: parent})).ok(w)
	for name, at := range map[string]chat.Branch{
		"of a deleted session":          {Session: parent, SessionID: id, Seq: 1},
		"of an entry that is not there": {Session: other, SessionID: w.session(other).SessionID, Seq: 2},
		"of another transcript":         {Session: other, SessionID: id, Seq: 1},
	} {
		p := w.message(w.node(), w.key())
		p.Message.Branch = &at
		try(w.st.Accept(w.ctx, p)).fails(w, chat.ErrNotFound)
		_, err := w.st.Session(w.ctx, p.Message.Session, "")
		if err == nil {
			w.Errorf("a branch %s made a session", name)
		}
	}
}

func branchesOutliveParent(w *world) {
	first := w.key()
	w.lines(first, "a", "b")
	parent := w.branchOff(first, 1, "p", "needle", "r", "s")
	early, late, last := w.branchOff(parent, 2, "early"), w.branchOff(parent, 4, "late"), w.branchOff(parent, 3)
	w.index()
	expect := func(keys ...chat.SessionKey) {
		w.Helper()
		want := map[chat.SessionKey]string{early: "a p early", late: "a p needle r late", last: "a p needle", parent: "a p needle r s"}
		for _, key := range keys {
			w.reads(key, want[key])
		}
	}
	expect(early, late, last, parent)
	w.finds("needle", store.SearchQuery{}, "needle")
	remove := func(key chat.SessionKey) {
		w.Helper()
		out := try(w.st.DeleteSession(w.ctx, store.DeleteParams{Session: key})).ok(w)
		equal(w, "deleted", out.Deleted, true)
		equal(w, "rows that are left", w.rowsOf(key), 0)
		equal(w, "its branch", len(w.h.Query(w.tb, `SELECT 1 FROM branches WHERE session_key = '`+key.String()+`' OR parent_key = '`+key.String()+`'`)), 0)
		w.index()
	}
	remove(parent)
	expect(early, late, last)
	w.finds("needle", store.SearchQuery{}, "needle")
	remove(late)
	expect(early, last)
	w.finds("needle", store.SearchQuery{}, "needle")
	remove(first)
	expect(early, last)
	remove(last)
	expect(early)
	w.finds("needle", store.SearchQuery{})
	equal(w, "branches", len(w.h.Query(w.tb, `SELECT 1 FROM branches`)), 0)
	remove(early)
	equal(w, "rows", len(w.h.Query(w.tb, `SELECT 1 FROM transcript`)), 0)
}

func branchesGoWithParent(w *world) {
	parent := w.key()
	w.lines(parent, "a", "b")
	child := w.branchOff(parent, 1, "c")
	grandchild, other := w.branchOff(child, 2), w.key()
	w.lines(other, "o")
	try(w.st.DeleteSession(w.ctx, store.DeleteParams{Session: parent, Branches: true})).ok(w)
	for _, key := range []chat.SessionKey{parent, child, grandchild} {
		try(w.st.Session(w.ctx, key, "")).fails(w, chat.ErrSessionNotFound)
		equal(w, "rows", w.rowsOf(key), 0)
	}
	w.reads(other, "o")
	equal(w, "branches", len(w.h.Query(w.tb, `SELECT 1 FROM branches`)), 0)
}

func branchOfKept(w *world) {
	parent := w.key()
	w.lines(parent, "a", "b")
	child := w.branchOff(parent, 1, "c")
	grandchild, id := w.branchOff(child, 2, "d"), w.session(child).SessionID
	for _, key := range []chat.SessionKey{child, parent} {
		try(w.st.DeleteSession(w.ctx, store.DeleteParams{Session: key, KeepTranscript: key == child})).ok(w)
		w.reads(grandchild, "a c d")
		equal(w, "the kept one", w.readAs("ann", child, id), "a c")
	}
}

func branchesCount(w *world) {
	parent := w.key()
	w.lines(parent, "a")
	_, before := w.list(store.SessionFilter{Visible: "ann", Named: true})
	w.branchOff(parent, 1)
	w.branchOff(parent, 1)
	_, after := w.list(store.SessionFilter{Visible: "ann", Named: true})
	equal(w, "more", after-before, 2)
}

// branchRace deletes a session while messages branch off it: each branch has its entries, or is
// refused.
func branchRace(w *world) {
	const many = 8
	parent, node := w.key(), w.node()
	w.lines(parent, "a", "b", "c")
	id := w.session(parent).SessionID
	var (
		keys [many]chat.SessionKey
		errs [many + 1]error
		all  sync.WaitGroup
	)
	for i := range many {
		keys[i] = chat.SessionKey{Agent: "main", Rest: "api:" + w.uuid()}
		p := w.message(node, keys[i])
		p.Message.Branch = &chat.Branch{Session: parent, SessionID: id, Seq: int64(i%3 + 1)}
		all.Go(func() { _, errs[i] = w.st.Accept(w.ctx, p) })
	}
	all.Go(func() { _, errs[many] = w.st.DeleteSession(w.ctx, store.DeleteParams{Session: parent}) })
	all.Wait()
	w.ok(errs[many])
	for i, key := range keys {
		if errs[i] != nil {
			w.fails(errs[i], chat.ErrNotFound)
			continue
		}
		w.reads(key, strings.Join([]string{"a", "b", "c"}[:i%3+1], " "))
	}
	equal(w, fmt.Sprint("rows of ", parent), w.rowsOf(parent), 0)
}

func keptTests() []test {
	return []test{
		{"StaysWithItsOwner", keptStaysWithOwner},
		{"SurvivesTheNextOwner", keptSurvivesNextOwner},
	}
}

// kept creates a session of ann with an archive, deletes it, and returns the ids of the transcripts
// that the deletion kept: the archived and the current one.
func (w *world) kept(key chat.SessionKey) (archived, current string) {
	w.Helper()
	w.write(key, 1, 1)
	archived, current = w.session(key).SessionID, w.id("second")
	try(w.st.ResetSession(w.ctx, store.ResetParams{Session: key, Principal: "ann", NewID: current})).ok(w)
	w.write(key, 2, 1)
	deleted := try(w.st.DeleteSession(w.ctx, store.DeleteParams{Session: key, KeepTranscript: true})).ok(w)
	equal(w, "kept", deleted, store.Deleted{Deleted: true, Kept: current})
	return archived, current
}

// readAs is a transcript as read by a principal; "" reads without a restriction.
func (w *world) readAs(visible string, key chat.SessionKey, id string) string {
	w.Helper()
	tr := w.transcript(store.TranscriptQuery{Session: key, SessionID: id, Visible: visible})
	forward := w.transcript(store.TranscriptQuery{Session: key, SessionID: id, Visible: visible, FromStart: true})
	equal(w, "forwards", texts(forward.Entries), texts(tr.Entries))
	equal(w, "total", tr.Total, len(tr.Entries))
	return strings.Join(texts(tr.Entries), " ")
}

func keptStaysWithOwner(w *world) {
	key := w.key()
	archived, current := w.kept(key)
	look := func(when string, want map[string]string) {
		w.Helper()
		for who, text := range want {
			equal(w, when+", the current one, as "+who, w.readAs(who, key, current), text)
			equal(w, when+", the archived one, as "+who, w.readAs(who, key, archived), map[string]string{"2": "1"}[text])
		}
	}
	look("without a session", map[string]string{"": "2", "ann": "2", "bob": ""})
	equal(w, "no session", w.transcript(store.TranscriptQuery{Session: key}).Total, 0)

	try(w.st.AppendTranscript(w.ctx, key, "bob", []chat.TranscriptEntry{{Role: chat.RoleUser, Text: "3"}})).ok(w)
	own := w.session(key).SessionID
	look("with a session of bob", map[string]string{"": "2", "ann": "2", "bob": ""})
	try(w.st.ResetSession(w.ctx, store.ResetParams{Session: key, Principal: "bob", NewID: w.id("third")})).ok(w)
	look("after a reset by bob", map[string]string{"": "2", "ann": "2", "bob": ""})
	equal(w, "what bob has archived himself", w.readAs("bob", key, own), "3")
	try(w.st.DeleteSession(w.ctx, store.DeleteParams{Session: key, KeepTranscript: true})).ok(w)
	look("after bob has kept his", map[string]string{"": "2", "ann": "2", "bob": ""})
	equal(w, "what bob has kept, as bob", w.readAs("bob", key, own), "3")
	equal(w, "what bob has kept, as ann", w.readAs("ann", key, own), "")
}

func keptSurvivesNextOwner(w *world) {
	key := w.key()
	archived, current := w.kept(key)
	try(w.st.AppendTranscript(w.ctx, key, "bob", []chat.TranscriptEntry{{Role: chat.RoleUser, Text: "3"}})).ok(w)
	own := w.session(key).SessionID
	try(w.st.DeleteSession(w.ctx, store.DeleteParams{Session: key})).ok(w)
	equal(w, "what bob has deleted", w.readAs("", key, own), "")
	equal(w, "what ann has kept", []string{w.readAs("ann", key, archived), w.readAs("ann", key, current)}, []string{"1", "2"})
	w.write(key, 4, 1) // it belongs to ann again
	equal(w, "what ann has kept, with a new session", w.readAs("ann", key, current), "2")
	try(w.st.DeleteSession(w.ctx, store.DeleteParams{Session: key})).ok(w)
	equal(w, "after ann has deleted everything", []string{w.readAs("", key, archived), w.readAs("", key, current)}, []string{"", ""})
}
