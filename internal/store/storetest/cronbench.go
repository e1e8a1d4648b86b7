package storetest

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"laneway/internal/cron"
	"laneway/internal/cron/schedule"
	"laneway/internal/store"
)

// BenchCron measures the loop of package cron on a store, with the store's own clock: the lateness of runs in their lane when ten jobs fire per second and run
// to their end (one operation is one fire), and when ten thousand are due in the same moment (one operation is one such burst). large adds lists with a million
// runs in the ledger.
func BenchCron(b *testing.B, open Opener, large bool) {
	b.Helper()
	b.Run("late/jobs_per_second=10", func(b *testing.B) { benchLate(b, open) })
	b.Run("burst/jobs=10000", func(b *testing.B) { benchBurst(b, open, 10_000) })
	b.Run("list/jobs=10000", func(b *testing.B) { benchLists(b, open, 10_000, cron.MaxOutcomes) })
	if large {
		b.Run("list/jobs=10000/rows=1000000", func(b *testing.B) { benchLists(b, open, 10_000, 100) })
	}
}

// benchLists reads pages of a hundred jobs, each with runs rows in the ledger, and the history and the past of one job.
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

// stage implements cron.House and cron.RunnerObserver. It records when runs are launched, and passes them on.
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
