package storetest

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"laneway/internal/chat"
	"laneway/internal/store"
	"laneway/internal/words"
)

// modelEntry is an entry as searchModel expects it.
type modelEntry struct {
	key       chat.SessionKey
	principal string
	text      string
	at        time.Time
}

// searchModel applies random operations and compares each search with a list.
func searchModel(w *world) {
	rnd := rand.New(rand.NewPCG(23, 42)) //nolint:gosec // a repeatable test
	keys := []chat.SessionKey{w.key(), w.key(), w.key(), w.key()}
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
		}
		visible, word, limit := []string{"", "ann", "bob"}[rnd.IntN(3)], vocabulary[rnd.IntN(len(vocabulary))], []int{1, 7, 100}[rnd.IntN(3)]
		if rnd.IntN(2) == 0 {
			word += " " + vocabulary[rnd.IntN(len(vocabulary))]
		}
		query := try(words.Parse(word)).ok(w)
		var want []string
		for _, e := range slices.Backward(model) {
			if (visible == "" || visible == e.principal) && query.Finds(e.text) {
				want = append(want, e.text)
			}
		}
		got := w.search(word, store.SearchQuery{Visible: visible, Limit: limit})
		equal(w, fmt.Sprintf("step %d: %s of %q", step, word, visible), hitTexts(got.Hits), want[:min(len(want), limit)])
		equal(w, fmt.Sprintf("step %d: more of %s of %q", step, word, visible), got.More, len(want) > limit)
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
