package storetest

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"laneway/internal/chat"
	"laneway/internal/store"
	"laneway/internal/words"
)

// BenchSearch measures the search over this many messages in a thousand sessions, which are written once: the cost of indexing, the size of the index, the
// duration of searches, and the cost of the index for turns.
func BenchSearch(b *testing.B, open Opener, messages int) {
	b.Helper()
	b.Run(fmt.Sprintf("messages=%d", messages), func(b *testing.B) {
		w, node := bench(b, open)
		elapsed := stopwatch()
		c := newCorpus(w, messages)
		writing := elapsed()
		elapsed = stopwatch()
		equal(w, "indexed", w.index(), messages)
		indexing, size := elapsed(), c.size()
		c.write(min(messages, newMessages))
		behind := c.searches(40)["all"]
		elapsed = stopwatch()
		w.index()
		commit, one := elapsed(), c.single()
		took := map[string][]time.Duration{}
		for b.Loop() { // this runs the function once, independent of the number of searches
			for name, list := range c.searches(1) {
				took[name] = append(took[name], list...)
			}
		}
		b.ReportMetric(float64(writing.Microseconds())/float64(messages), "write-us/message")
		b.ReportMetric(float64(indexing.Microseconds())/float64(messages), "index-us/message")
		b.ReportMetric(size/float64(messages), "index-B/message")
		b.ReportMetric(float64(commit.Milliseconds()), "commit-ms")
		b.ReportMetric(quantile(one, 0.5), "batch-ms")
		b.ReportMetric(quantile(behind, 0.95), "behind-p95-ms")
		for name, list := range took {
			if name != "all" {
				b.ReportMetric(quantile(list, 0.95), name+"-p95-ms")
			}
		}
		b.ReportMetric(quantile(took["all"], 0.5), "p50-ms")
		b.ReportMetric(quantile(took["all"], 0.95), "p95-ms")
		b.ReportMetric(quantile(took["all"], 1), "max-ms")
		c.commits(b, node)
		c.endless(b, node, min(messages, 20_000))
	})
}

// newMessages is the number of messages of five minutes at ten per second.
const newMessages = 3000

// corpus are messages with the word frequencies of a language: the n-th most common word occurs 1/n as often as the first.
type corpus struct {
	*world

	rnd  *rand.Rand
	zipf *rand.Zipf
	keys []chat.SessionKey
}

// vocabulary is the number of different words.
const vocabulary = 100_000

func newCorpus(w *world, messages int) *corpus {
	rnd := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // a repeatable benchmark
	c := &corpus{world: w, rnd: rnd, zipf: rand.NewZipf(rnd, 1.07, 2, vocabulary)}
	for range 1000 {
		c.keys = append(c.keys, w.key())
	}
	c.write(messages)
	return c
}

// write adds messages of some forty words, in batches of a hundred per session.
func (c *corpus) write(messages int) {
	for i := 0; messages > 0; i++ {
		n := min(messages, 100)
		entries := make([]chat.TranscriptEntry, n)
		for j := range entries {
			entries[j] = chat.TranscriptEntry{Role: chat.RoleUser, Text: c.text()}
		}
		try(c.st.AppendTranscript(c.ctx, c.keys[i%len(c.keys)], fmt.Sprint("principal-", i%len(c.keys)/10), entries)).ok(c)
		messages -= n
	}
}

func (c *corpus) text() string {
	var text strings.Builder
	for range 20 + c.rnd.IntN(40) {
		text.WriteString(wordOf(c.zipf.Uint64()))
		text.WriteByte(' ')
	}
	return text.String()
}

// wordOf is a word of some four to nine letters; no word is the beginning of another one.
func wordOf(n uint64) string {
	var word []byte
	for n += 100; n > 0; n /= 20 {
		word = append(word, "bcdfghjklmnprstvwxyz"[n%20], "aeiou"[n%5])
	}
	return string(word)
}

// size is the size of the index in bytes.
func (c *corpus) size() float64 {
	query := map[string]string{
		"sqlite":   `SELECT (SELECT sum(length(block)) FROM transcript_words_data) + (SELECT 16 * count(*) FROM transcript_words_docsize)`,
		"postgres": `SELECT pg_total_relation_size('search_entries') + pg_total_relation_size('search_transcripts') + pg_total_relation_size('search_progress')`,
	}[c.st.Kind()]
	n, ok := c.h.Query(c.tb, query)[0][0].(int64)
	if !ok {
		c.Fatalf("the size is no number")
	}
	return float64(n)
}

// searches makes n searches of each kind and returns their durations, by kind and together.
func (c *corpus) searches(n int) map[string][]time.Duration {
	common := func(most uint64) string { return wordOf(c.rnd.Uint64N(most)) }
	took := map[string][]time.Duration{}
	for name, query := range map[string]func() (string, store.SearchQuery){
		"common": func() (string, store.SearchQuery) { return common(10), store.SearchQuery{} },
		"rare": func() (string, store.SearchQuery) {
			return wordOf(vocabulary/2 + c.rnd.Uint64N(vocabulary/2)), store.SearchQuery{}
		},
		"two":    func() (string, store.SearchQuery) { return common(200) + " " + common(2000), store.SearchQuery{} },
		"begins": func() (string, store.SearchQuery) { return wordOf(c.zipf.Uint64())[:3], store.SearchQuery{} },
		"session": func() (string, store.SearchQuery) {
			return wordOf(c.zipf.Uint64()), store.SearchQuery{Session: c.keys[77]}
		},
		"own": func() (string, store.SearchQuery) {
			return wordOf(c.zipf.Uint64()), store.SearchQuery{Visible: "principal-7"}
		},
	} {
		for range n {
			text, q := query()
			var err error
			q.Words = try(words.Parse(text)).ok(c)
			elapsed := stopwatch()
			_, err = c.st.SearchTranscripts(c.ctx, q)
			took[name] = append(took[name], elapsed())
			c.ok(err)
		}
		took["all"] = append(took["all"], took[name]...)
	}
	return took
}

// quantile is in milliseconds.
func quantile(list []time.Duration, q float64) float64 {
	slices.Sort(list)
	i := min(int(math.Ceil(q*float64(len(list)))), len(list)) - 1
	return float64(list[max(i, 0)].Microseconds()) / 1000
}

// single are the durations of twenty commits that each add fifty messages, which is one transaction on both stores.
func (c *corpus) single() (took []time.Duration) {
	for range 20 {
		c.write(50)
		elapsed := stopwatch()
		c.index()
		took = append(took, elapsed())
	}
	return took
}

// commits measures the cost for turns of an index that is updated periodically: pairs of blocks of turns that write newMessages messages. Nothing is indexed
// during the first block of a pair; during the second one a commit indexes the messages of the first. So the ratio of their times is the cost of a turn and the
// indexing of its own two messages together, in units of a turn that is not indexed.
func (c *corpus) commits(b *testing.B, node string) {
	b.Helper()
	var ratios []float64
	var without, beside []time.Duration
	for range 5 {
		c.index()
		one, _ := c.turns(node, newMessages/2, nil)
		var done atomic.Bool
		var indexed sync.WaitGroup
		indexed.Go(func() {
			defer done.Store(true)
			if _, err := c.st.IndexTranscripts(c.ctx); err != nil {
				c.Errorf("indexing: %v", err)
			}
		})
		two, during := c.turns(node, newMessages/2, &done)
		indexed.Wait()
		without, beside = append(without, one...), append(beside, two[:during]...)
		ratios = append(ratios, sum(two).Seconds()/sum(one).Seconds())
	}
	slices.Sort(ratios)
	b.ReportMetric(ratios[len(ratios)/2], "commit-turn-ratio")
	b.ReportMetric(quantile(without, 0.5), "turn-p50-ms")
	b.ReportMetric(quantile(without, 0.95), "turn-p95-ms")
	b.ReportMetric(quantile(without, 1), "turn-max-ms")
	b.ReportMetric(quantile(beside, 0.5), "commit-turn-p50-ms")
	b.ReportMetric(quantile(beside, 0.95), "commit-turn-p95-ms")
	b.ReportMetric(quantile(beside, 1), "commit-turn-max-ms")
	b.ReportMetric(float64(len(beside))/5, "commit-turns")
}

// turns are the durations of n consecutive turns, and the number of those that began before done became true.
func (c *corpus) turns(node string, n int, done *atomic.Bool) (took []time.Duration, during int) {
	key := c.key()
	for range n {
		if done != nil && !done.Load() {
			during++
		}
		question, answer := c.text(), c.text()
		one := stopwatch()
		c.ok(c.durableTurn(node, key, question, answer))
		took = append(took, one())
	}
	return took, during
}

func sum(list []time.Duration) (total time.Duration) {
	for _, d := range list {
		total += d
	}
	return total
}

// endless measures pairs of blocks of 300 turns: nothing is indexed during the first one, and the index is written without a pause during the second one.
func (c *corpus) endless(b *testing.B, node string, indexing int) {
	b.Helper()
	var ratios []float64
	var longest time.Duration
	for range 5 {
		without, _ := c.turns(node, 300, nil)
		stop, indexed := make(chan struct{}), sync.WaitGroup{}
		c.write(indexing) // so that there are entries to index during the whole block
		indexed.Go(func() { c.indexUntil(stop) })
		with, _ := c.turns(node, 300, nil)
		close(stop)
		indexed.Wait()
		longest = max(longest, slices.Max(with))
		ratios = append(ratios, sum(with).Seconds()/sum(without).Seconds())
	}
	slices.Sort(ratios)
	b.ReportMetric(ratios[len(ratios)/2], "endless-turn-ratio")
	b.ReportMetric(float64(longest.Microseconds())/1000, "endless-turn-max-ms")
}

func (c *corpus) indexUntil(stop <-chan struct{}) {
	ctx, cancel := context.WithCancel(c.ctx)
	defer cancel()
	go func() { // ends with this function
		select {
		case <-stop:
			cancel()
		case <-ctx.Done():
		}
	}()
	for ctx.Err() == nil {
		if _, err := c.st.IndexTranscripts(ctx); err != nil && ctx.Err() == nil {
			c.Errorf("indexing: %v", err)
			return
		}
	}
}

// stopwatch starts a measurement; the function that it returns is the time since then.
func stopwatch() func() time.Duration {
	began := time.Now()                                      //nolint:forbidigo // wall time of a benchmark
	return func() time.Duration { return time.Since(began) } //nolint:forbidigo // wall time of a benchmark
}

// durableTurn is the cost of a message and its answer in the store.
func (w *world) durableTurn(node string, key chat.SessionKey, text, answer string) error {
	p := w.message(node, key)
	id := p.Message.ID
	p.Message.Content.Text = text
	a, err := w.st.Accept(w.ctx, p)
	if err != nil {
		return err
	}
	c := claimOf(key, a)
	question := []chat.TranscriptEntry{{RunID: id, Role: chat.RoleUser, Text: p.Message.Content.Text}}
	start := store.StartParams{Claim: c, RunID: id, Lane: "main", Seqs: []int64{a.Seq}, Transcript: question}
	if _, err := w.st.Start(w.ctx, start); err != nil {
		return err
	}
	end := answered(c, id)
	end.Transcript = []chat.TranscriptEntry{{RunID: id, Role: chat.RoleAssistant, Text: answer}}
	end.Outgoing = []store.Outgoing{{
		Session: key, Kind: store.KindReply, Text: answer, Target: chat.Target{Channel: "web", ChatID: key.Rest},
	}}
	_, err = w.st.Finish(w.ctx, end)
	return err
}
