package storetest

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"laneway/internal/chat"
	"laneway/internal/cron"
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

// beforeAndAfter checks with an empty index, with a complete one, and with one entry after the
// index.
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

func searchTests() []test {
	return []test{
		{"FindsTheNewestFirst", searchNewestFirst},
		{"ShowsTheExcerpt", searchExcerpt},
		{"FindsAnyLanguage", searchLanguages},
		{"GoesOnBehindItsBounds", searchGoesOn},
		{"APrunedRunLeavesTheIndex", searchPruned},
		{"TheGatewaysOwnJobsAreNotFound", searchNotSystem},
		{"AnOwnerOfManySessionsFindsThemAll", searchManySessions},
		{"ASummaryHidesNoRow", searchSummaries},
		{"TheIndexChangesNoResult", searchModel},
		{"IndexersAtOnceIndexEachEntryOnce", searchIndexersAtOnce},
	}
}

func searchNewestFirst(w *world) {
	one, two := w.key(), w.key()
	w.says(one, "ann", "The invoice is 4711.")
	w.says(two, "bob", "No invoices, thanks.")
	w.clock.advance(time.Second)
	letter := chat.TranscriptEntry{RunID: "r1", Role: chat.RoleAssistant, Text: "A letter."}
	try(w.st.AppendTranscript(w.ctx, one, "ann", []chat.TranscriptEntry{letter})).ok(w)
	letter.Seq, letter.At = 2, w.clock.now()
	w.says(one, "ann", "INVOICE paid")
	w.beforeAndAfter(func(string) {
		w.finds("invoice", store.SearchQuery{}, "INVOICE paid", "No invoices, thanks.", "The invoice is 4711.")
		w.finds("invoice 4711", store.SearchQuery{}, "The invoice is 4711.")
		w.finds("nothing", store.SearchQuery{})
		equal(w, "hits", w.search("letter", store.SearchQuery{}).Hits, []store.Hit{
			{Session: one, SessionID: w.session(one).SessionID, Principal: "ann", Entry: letter},
		})
		limited := w.search("invoice", store.SearchQuery{Limit: 2})
		equal(w, "two", hitTexts(limited.Hits), []string{"INVOICE paid", "No invoices, thanks."})
		equal(w, "more", limited.More, true)
		equal(w, "back", limited.Back, limited.Hits[1].Entry.At)
	})
}

func searchExcerpt(w *world) {
	key := w.key()
	w.says(key, "ann", strings.Repeat("before ", 200)+"the\nneedle "+strings.Repeat("after ", 200))
	w.beforeAndAfter(func(string) {
		text := w.search("needle", store.SearchQuery{Excerpt: 60}).Hits[0].Entry.Text
		if !strings.Contains(text, "the needle after") || len(text) > 60+2*len("…") {
			w.Fatalf("the excerpt is %q", text)
		}
	})
}

func searchLanguages(w *world) {
	key := w.key()
	for _, text := range []string{"Im Café", "明日東京都に行きます", "สวัสดีครับ", "Привет, как дела?", "한국어로"} {
		w.says(key, "ann", text)
	}
	w.beforeAndAfter(func(string) {
		for query, want := range map[string]string{"CAFE": "Im Café", "京都": "明日東京都に行きます", "都": "明日東京都に行きます", "สวัสดี": "สวัสดีครับ", "привет": "Привет, как дела?", "한국": "한국어로"} {
			w.finds(query, store.SearchQuery{}, want)
		}
	})
}

// searchGoesOn: what a bound excludes is found by a search that continues at Back.
func searchGoesOn(w *world) {
	key := w.key()
	big := strings.Repeat("filler ", 160_000) // more than a megabyte
	const entries = 20
	for i := range entries {
		w.says(key, "ann", fmt.Sprintf("needle%02d %s", i, big))
	}
	w.says(key, "ann", "small")
	pages := func(when string) {
		w.Helper()
		q, seen := store.SearchQuery{Excerpt: 8}, map[int64]bool{}
		for page := 0; ; page++ {
			if page > entries {
				w.Fatalf("%s: the search does not get further back", when)
			}
			out := w.search("filler", q)
			for _, h := range out.Hits {
				seen[h.Entry.Seq] = true
			}
			if !out.More {
				break
			}
			q.Until = out.Back
		}
		equal(w, when, len(seen), entries)
	}
	pages("without an index")
	w.index()
	pages("indexed")
}

// searchSummaries: a word of the first row is in each later summary. The search finds the row, and
// no summary takes its place among the hits.
func searchSummaries(w *world) {
	key := w.key()
	w.says(key, "ann", "The code is needle.")
	id := w.session(key).SessionID
	const summaries = store.DefaultHits + 10
	for i := range int64(summaries) {
		w.says(key, "ann", "something else")
		p := summaryOf(key, id, "They said needle.", 1, 2*i+1)
		p.RunID = w.id("run")
		_, added, err := w.st.AppendSummary(w.ctx, p)
		w.ok(err)
		equal(w, "added", added, true)
	}
	w.beforeAndAfter(func(string) {
		w.finds("needle", store.SearchQuery{}, "The code is needle.")
		w.finds("needle", store.SearchQuery{Session: key}, "The code is needle.")
	})
	if n := w.indexed(); n >= 0 {
		equal(w, "entries of the index", n, int64(1+summaries)) // without the last entry
	}
}

func searchPruned(w *world) {
	node := w.node()
	w.job(nil)
	l := w.due(node)
	p := w.ending(w.begin(l), l.Message.ID, cron.RunOK, nil)
	p.Transcript = []chat.TranscriptEntry{{RunID: p.RunID, Role: chat.RoleAssistant, Text: "needle of a run"}}
	w.finish(p)
	w.finds("needle", store.SearchQuery{}, "needle of a run")
	w.index()
	w.finds("needle", store.SearchQuery{}, "needle of a run")
	equal(w, "gone", w.prune(store.PruneParams{Before: w.clock.now().Add(time.Second), Limit: many}), 1)
	w.finds("needle", store.SearchQuery{})
	if n := w.indexed(); n > 0 {
		w.Fatalf("%d entries are left in the index", n)
	}
}

func searchNotSystem(w *world) {
	w.says(w.key(), cron.SystemOwner, "needle of a built-in job")
	w.says(w.key(), "ann", "needle")
	w.beforeAndAfter(func(string) { w.finds("needle", store.SearchQuery{}, "needle") })
}

func searchManySessions(w *world) {
	const sessions = 130
	var want []string
	for i := range sessions {
		text := fmt.Sprintf("needle number%03d", i)
		want = append(want, text)
		w.says(w.key(), "ann", text)
		w.says(w.key(), "bob", "needle of bob")
	}
	slices.Reverse(want)
	w.beforeAndAfter(func(string) {
		equal(w, "of ann", hitTexts(w.search("needle", store.SearchQuery{Visible: "ann", Limit: 100}).Hits), want[:100])
		w.finds("number000", store.SearchQuery{Visible: "ann"}, "needle number000")
	})
}

// modelEntry is an entry as searchModel expects it.
type modelEntry struct {
	key       chat.SessionKey
	principal string
	text      string
	at        time.Time
}

// searchModel applies random operations and compares each search with a list.
func searchModel(w *world) {
	rnd := rand.New(rand.NewPCG(23, 42)) // a repeatable test
	keys := []chat.SessionKey{w.key(), w.key(), w.key(), {Agent: "other", Rest: w.id("room")}}
	owners := map[chat.SessionKey]string{}
	vocabulary := []string{"alpha", "alphabet", "beta", "gamma", "delta", "Ünder", "京都", "do"}
	var model []modelEntry
	removed := func(key chat.SessionKey) {
		model = slices.DeleteFunc(model, func(e modelEntry) bool { return e.key == key })
		delete(owners, key)
	}
	for step := range 400 {
		key := keys[rnd.IntN(len(keys))]
		switch n := rnd.IntN(20); {
		case n < 10:
			owner := cmp.Or(owners[key], []string{"ann", "bob"}[rnd.IntN(2)])
			text := fmt.Sprint(vocabulary[rnd.IntN(len(vocabulary))], " ", vocabulary[rnd.IntN(len(vocabulary))], " ", step)
			w.says(key, owner, text)
			owners[key] = owner
			model = append(model, modelEntry{key, owner, text, w.clock.now()})
		case n < 12:
			w.index()
		case n == 12 && owners[key] != "":
			try(w.st.ResetSession(w.ctx, store.ResetParams{Session: key, Principal: owners[key], NewID: w.id("transcript")})).ok(w)
		case n == 13:
			try(w.st.DeleteSession(w.ctx, store.DeleteParams{Session: key, KeepTranscript: rnd.IntN(2) == 0})).ok(w)
			removed(key)
		case n == 14 && owners[key] != "":
			to := map[string]string{"ann": "bob", "bob": "ann"}[owners[key]]
			w.ok(w.st.GiveSession(w.ctx, key, owners[key], to))
			owners[key] = to
			for i := range model {
				if model[i].key == key {
					model[i].principal = to
				}
			}
		}
		visible, word, limit := []string{"", "ann", "bob"}[rnd.IntN(3)], vocabulary[rnd.IntN(len(vocabulary))], []int{1, 7, 100}[rnd.IntN(3)]
		if rnd.IntN(2) == 0 {
			word += " " + vocabulary[rnd.IntN(len(vocabulary))]
		}
		query := try(words.Parse(word)).ok(w)
		q := store.SearchQuery{Visible: visible, Limit: limit}
		switch rnd.IntN(6) {
		case 0:
			q.Session = key
		case 1:
			q.Agent = key.Agent
		case 2:
			q.Since = w.clock.now().Add(-time.Minute)
		case 3:
			q.Until = w.clock.now().Add(-time.Minute)
		}
		var want []string
		for _, e := range slices.Backward(model) {
			fits := (q.Session == chat.SessionKey{} || q.Session == e.key) && (q.Agent == "" || q.Agent == e.key.Agent) &&
				!e.at.Before(q.Since) && (q.Until.IsZero() || !e.at.After(q.Until))
			if fits && (visible == "" || visible == e.principal) && query.Finds(e.text) {
				want = append(want, e.text)
			}
		}
		got := w.search(word, q)
		equal(w, fmt.Sprintf("step %d: %s by %+v", step, word, q), hitTexts(got.Hits), want[:min(len(want), limit)])
		equal(w, fmt.Sprintf("step %d: more of %s by %+v", step, word, q), got.More, len(want) > limit)
	}
}

func searchIndexersAtOnce(w *world) {
	var keys []chat.SessionKey
	for range 10 {
		keys = append(keys, w.key())
	}
	var all sync.WaitGroup
	for _, st := range []store.Store{w.st, w.h.Open()} {
		all.Go(func() {
			for range 30 {
				if _, err := st.IndexTranscripts(w.ctx); err != nil {
					w.Errorf("indexing: %v", err)
				}
			}
		})
	}
	for i := range 40 {
		for _, key := range keys {
			try(w.st.AppendTranscript(w.ctx, key, "ann", []chat.TranscriptEntry{{Role: chat.RoleUser, Text: fmt.Sprint("needle ", i)}})).ok(w)
		}
		if i%8 == 7 {
			try(w.st.DeleteSession(w.ctx, store.DeleteParams{Session: keys[i/8]})).ok(w)
		}
	}
	all.Wait()
	w.index()
	var want int64
	for i, key := range keys {
		n := 40
		if i < 5 { // deleted after its 8 * (i+1)th entry
			n -= 8 * (i + 1)
		}
		want += int64(n)
		if n > 0 {
			equal(w, "entries of "+key.String(), len(w.search("needle", store.SearchQuery{Session: key, Limit: 100}).Hits), n)
		}
	}
	if got := w.indexed(); got >= 0 && got != want {
		w.Fatalf("the index has %d entries, want %d", got, want)
	}
}
