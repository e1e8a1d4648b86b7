package storetest

import (
	"time"

	"laneway/internal/chat"
	"laneway/internal/store"
	"laneway/internal/words"
)

// says adds one entry to a transcript, a second later than the one before.
func (w *world) says(key chat.SessionKey, principal, text string) {
	w.Helper()
	w.clock.advance(time.Second)
	try(w.st.AppendTranscript(w.ctx, key, principal, []chat.TranscriptEntry{{Role: chat.RoleUser, Text: text}})).ok(w)
}

func (w *world) search(text string, q store.SearchQuery) store.SearchResult {
	w.Helper()
	q.Words = try(words.Parse(text)).ok(w)
	return try(w.st.SearchTranscripts(w.ctx, q)).ok(w)
}

// finds expects the texts of the hits, and that the result is complete.
func (w *world) finds(text string, q store.SearchQuery, want ...string) {
	w.Helper()
	got := w.search(text, q)
	equal(w, "found by "+text, hitTexts(got.Hits), want)
	equal(w, "more than that", got.More, false)
}

func hitTexts(hits []store.Hit) (list []string) {
	for _, h := range hits {
		list = append(list, h.Entry.Text)
	}
	return list
}

func (w *world) index() int {
	w.Helper()
	return try(w.st.IndexTranscripts(w.ctx)).ok(w)
}

// beforeAndAfter checks with an empty index, with a complete one, and with one entry after the index.
func (w *world) beforeAndAfter(check func(when string)) {
	w.Helper()
	check("without an index")
	w.index()
	check("indexed")
	equal(w, "indexed again", w.index(), 0)
	w.says(w.key(), "carol", "something else")
	check("with an entry after the index")
}

// indexed counts the entries of the index; -1 when the engine has no such table.
func (w *world) indexed() int64 {
	w.Helper()
	table := map[string]string{"sqlite": "transcript_words_docsize", "postgres": "search_entries"}[w.st.Kind()]
	if table == "" {
		return -1
	}
	n, ok := w.h.Query(w.tb, "SELECT count(*) FROM "+table)[0][0].(int64)
	if !ok {
		w.Fatalf("the count is no number")
	}
	return n
}
