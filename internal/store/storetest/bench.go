package storetest

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"laneway/internal/chat"
	"laneway/internal/cron"
	"laneway/internal/cron/schedule"
	"laneway/internal/store"
	"laneway/internal/words"
)

// BenchCron measures the loop of package cron on a store, with the store's own clock: the lateness
// of runs in their lane when ten jobs fire per second and run to their end (one operation is one
// fire), and when ten thousand are due in the same moment (one operation is one such burst). large
// adds lists with a million runs in the ledger.
func BenchCron(b *testing.B, open Opener, large bool) {
	b.Helper()
	b.Run("late/jobs_per_second=10", func(b *testing.B) { benchLate(b, open) })
	b.Run("burst/jobs=10000", func(b *testing.B) { benchBurst(b, open, 10_000) })
	b.Run("list/jobs=10000", func(b *testing.B) { benchLists(b, open, 10_000, cron.MaxOutcomes) })
	if large {
		b.Run("list/jobs=10000/rows=1000000", func(b *testing.B) { benchLists(b, open, 10_000, 100) })
	}
}

// benchLists reads pages of a hundred jobs, each with runs rows in the ledger, and the history and
// the past of one job.
func benchLists(b *testing.B, open Opener, jobs, runs int) {
	b.Helper()
	w, _ := bench(b, open)
	long := w.storeNow().Add(24 * time.Hour).Truncate(10 * time.Second)
	w.putAll(jobs, func(i int) cron.Job {
		j := w.everyTenSeconds(i, long.Add(time.Duration(i)*time.Second))
		j.Payload.Text, j.Description = strings.Repeat("Look at the queue and say what waits. ", 8), strings.Repeat("A description of the job. ", 4)
		j.Delivery = cron.Delivery{Mode: cron.DeliverAnnounce, Channel: "telegram", To: strconv.Itoa(i)}
		return j
	})
	w.h.Exec(b, `INSERT INTO cron_run_logs (id, job_id, owner, scheduled_for, trigger, state, finished_at, duration_ms)
		WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < `+strconv.Itoa(runs)+`)
		SELECT 'schedule:' || id || ':' || i, id, owner, next_run_at / 1000 + i * 100000, 'schedule', 'ok', next_run_at / 1000 + i * 100000, 7 FROM cron_jobs, n`)
	w.h.Exec(b, `ANALYZE`) // a store that has grown to this size has statistics
	for _, tt := range []struct {
		name string
		f    cron.JobFilter
	}{
		{"next", cron.JobFilter{}},
		{"name", cron.JobFilter{SortBy: "name"}},
		{"query", cron.JobFilter{Query: "OB 77"}},
		{"query=Ü", cron.JobFilter{Query: "Ü"}},
		{"failing", cron.JobFilter{SortBy: "failing", Descending: true}},
		{"late", cron.JobFilter{Condition: cron.JobsLate}},
		{"target", cron.JobFilter{Target: "77"}},
		{"dashboard", cron.JobFilter{Counts: true, Outcomes: cron.MaxOutcomes}},
	} {
		b.Run(tt.name, func(b *testing.B) {
			tt.f.Limit, tt.f.WithoutPayload = 100, true
			for range b.N {
				try(w.cron().Jobs(w.ctx, tt.f)).ok(w)
			}
		})
	}
	id := try(w.cron().Jobs(w.ctx, cron.JobFilter{Limit: 1, WithoutPayload: true})).ok(w).Jobs[0].ID
	half := try(w.cron().Runs(w.ctx, cron.RunFilter{JobID: id, IncludeActive: true, Limit: runs / 2})).ok(w).Runs
	middle := half[len(half)-1].ScheduledFor
	for _, tt := range []struct {
		name string
		f    cron.RunFilter
	}{
		{"history", cron.RunFilter{JobID: id, IncludeActive: true, Limit: 20}},
		{"history of all", cron.RunFilter{IncludeActive: true, Limit: 20}},
		{"explain", cron.RunFilter{JobID: id, IncludeActive: true, Until: middle, Limit: 50}},
	} {
		b.Run(tt.name, func(b *testing.B) {
			for range b.N {
				try(w.cron().Runs(w.ctx, tt.f)).ok(w)
			}
		})
	}
}

// bench is a store with one node that lives longer than any benchmark.
func bench(b *testing.B, open Opener) (*world, string) {
	b.Helper()
	w := &world{reporter: b, tb: b, ctx: b.Context(), clock: newClock(), ids: &atomic.Int64{}}
	w.h = open(b, nil)
	w.st = w.h.Open()
	node := w.id("node")
	w.ok(w.st.Register(w.ctx, store.Node{ID: node, Lease: 24 * time.Hour}))
	return w, node
}

// stage implements cron.House and cron.RunnerObserver. It records when runs are launched, and
// passes them on.
type stage struct {
	cron.NopRunnerObserver

	launch func(l cron.Launched)
	enough chan struct{} // closed when want runs were launched

	mu     sync.Mutex
	want   int
	late   []time.Duration
	claims int
}

// Launch implements cron.House.
func (s *stage) Launch(_ context.Context, l cron.Launched) { s.launch(l) }

// Claimed implements cron.House.
func (s *stage) Claimed(context.Context, cron.Claimed) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.claims++
}

// Fired implements cron.RunnerObserver.
func (s *stage) Fired(_ cron.Trigger, late time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.late = append(s.late, late); len(s.late) == s.want {
		close(s.enough)
	}
}

// report reports how late the runs were launched.
func (s *stage) report(b *testing.B) {
	b.Helper()
	slices.Sort(s.late)
	in := func(p int) float64 {
		return float64(s.late[min(len(s.late)*p/100, len(s.late)-1)].Microseconds()) / 1000
	}
	b.ReportMetric(in(50), "late-p50-ms")
	b.ReportMetric(in(99), "late-p99-ms")
	b.ReportMetric(in(100), "late-max-ms")
}

// turnLoop runs the loop of cron until enough runs have fired.
func (w *world) turnLoop(s *stage, node string) {
	w.Helper()
	r := try(cron.NewRunner(cron.RunnerConfig{Node: func() string { return node }}, w.cron(), cron.NewPlanner(schedule.NewCompiler(0), cron.PlannerConfig{}), s, s, nil)).ok(w)
	ctx, cancel := context.WithCancel(w.ctx)
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	<-s.enough
	cancel()
	w.ok(<-ended)
}

// everyTenSeconds is a job whose slots all jobs share.
func (w *world) everyTenSeconds(i int, first time.Time) cron.Job {
	j := w.draft()
	j.ID, j.Key, j.Name = "job-"+strconv.Itoa(i), "key "+strconv.Itoa(i), "job "+strconv.Itoa(i)
	j.Schedule = schedule.Spec{Kind: schedule.KindEvery, EveryMs: 10_000}
	j.Missed, j.Overlap = cron.MissedPolicy{Rule: cron.MissedFireOnce}, cron.OverlapConcurrent
	j.State.Next, j.State.NextRunAt, j.State.ActivatedAt = first, first, first.Add(-time.Minute)
	return j
}

func (w *world) putAll(n int, job func(i int) cron.Job) {
	w.Helper()
	var group errgroup.Group
	group.SetLimit(64)
	for i := range n {
		group.Go(func() error {
			_, err := w.cron().PutJob(w.ctx, putParams(job(i)))
			return err
		})
	}
	w.ok(group.Wait())
}

// storeNow is the store's clock, by which jobs become due.
func (w *world) storeNow() time.Time {
	w.Helper()
	now := try(w.st.Now(w.ctx)).ok(w)
	return now.UTC()
}

func benchLate(b *testing.B, open Opener) {
	b.Helper()
	w, node := bench(b, open)
	start := w.storeNow().Truncate(time.Second).Add(2 * time.Second)
	w.putAll(10, func(i int) cron.Job {
		anchor := start.Add(time.Duration(i) * 100 * time.Millisecond)
		j := w.everyTenSeconds(i, anchor)
		j.Schedule.EveryMs, j.Schedule.AnchorMs = 1000, anchor.UnixMilli()
		return j
	})
	var turns errgroup.Group
	s := &stage{want: b.N, enough: make(chan struct{})}
	s.launch = func(l cron.Launched) { turns.Go(func() error { return w.runThrough(l) }) }
	b.ResetTimer()
	w.turnLoop(s, node)
	w.ok(turns.Wait())
	s.report(b)
}

// runThrough is a turn of cron without an agent.
func (w *world) runThrough(l cron.Launched) error {
	c := claimOfRun(l)
	_, err := w.st.Start(w.ctx, store.StartParams{
		Claim: c, RunID: l.Message.ID, Lane: "cron", Seqs: []int64{l.Seq}, Cron: &cron.AttemptStart{RunID: l.Run.ID, Attempt: 1, Node: l.Owner},
	})
	if err != nil {
		return err
	}
	p := answered(c, l.Message.ID)
	p.Cron = &cron.AttemptEnd{
		RunID: l.Run.ID, State: cron.RunOK, Attempt: cron.Attempt{Number: 1, State: cron.AttemptOK}, Delivery: cron.DeliveryNotRequested,
		Job: func(old cron.Job, r cron.Run, now time.Time) *cron.Job { next, _ := old.After(r, now); return next },
	}
	_, err = w.st.Finish(w.ctx, p)
	return err
}

func benchBurst(b *testing.B, open Opener, jobs int) {
	b.Helper()
	all := &stage{}
	for range b.N {
		b.StopTimer()
		w, node := bench(b, open)
		long := w.storeNow().Add(24 * time.Hour).Truncate(10 * time.Second)
		w.putAll(jobs, func(i int) cron.Job { return w.everyTenSeconds(i, long) })
		slot := strconv.FormatInt(w.storeNow().Truncate(10*time.Second).Add(20*time.Second).UnixMilli(), 10)
		w.h.Exec(b, "UPDATE cron_jobs SET next_slot = "+slot+", next_run_at = "+slot)
		s := &stage{want: jobs, enough: make(chan struct{}), launch: func(cron.Launched) {}}
		b.StartTimer()
		w.turnLoop(s, node)
		all.late, all.claims = append(all.late, s.late[:jobs]...), all.claims+s.claims
	}
	all.report(b)
	b.ReportMetric(float64(all.claims)/float64(b.N), "claims/burst")
}

// BenchSearch measures the search over this many messages in a thousand sessions, which are written
// once: the cost of indexing, the size of the index, the duration of searches, and the cost of the
// index for turns.
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

// corpus are messages with the word frequencies of a language: the n-th most common word occurs 1/n
// as often as the first.
type corpus struct {
	*world

	rnd  *rand.Rand
	zipf *rand.Zipf
	keys []chat.SessionKey
}

// vocabulary is the number of different words.
const vocabulary = 100_000

func newCorpus(w *world, messages int) *corpus {
	rnd := rand.New(rand.NewPCG(1, 2)) // a repeatable benchmark
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

// single are the durations of twenty commits that each add fifty messages, which is one transaction
// on both stores.
func (c *corpus) single() (took []time.Duration) {
	for range 20 {
		c.write(50)
		elapsed := stopwatch()
		c.index()
		took = append(took, elapsed())
	}
	return took
}

// commits measures the cost for turns of an index that is updated periodically: pairs of blocks of
// turns that write newMessages messages. Nothing is indexed during the first block of a pair;
// during the second one a commit indexes the messages of the first. So the ratio of their times is
// the cost of a turn and the indexing of its own two messages together, in units of a turn that is
// not indexed.
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

// turns are the durations of n consecutive turns, and the number of those that began before done
// became true.
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

// endless measures pairs of blocks of 300 turns: nothing is indexed during the first one, and the
// index is written without a pause during the second one.
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
	began := time.Now()                                      // wall time of a benchmark
	return func() time.Duration { return time.Since(began) } // wall time of a benchmark
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
