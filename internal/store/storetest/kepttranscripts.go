package storetest

import (
	"strings"

	"laneway/internal/chat"
	"laneway/internal/store"
)

func keptTests() []test {
	return []test{
		{"StaysWithItsOwner", keptStaysWithOwner},
		{"SurvivesTheNextOwner", keptSurvivesNextOwner},
	}
}

// kept creates a session of ann with an archive, deletes it, and returns the ids of the transcripts that the deletion kept: the archived and the current one.
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
