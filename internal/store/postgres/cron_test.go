package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"laneway/internal/chat"
	"laneway/internal/cron"
	"laneway/internal/cron/schedule"
	"laneway/internal/store"
	"laneway/internal/store/postgres"
	"laneway/internal/testpg"
)

// deadlocks counts the conflicts that the database had to resolve.
type deadlocks struct {
	slog.Handler

	n atomic.Int64
}

func (*deadlocks) Enabled(context.Context, slog.Level) bool { return true }

func (d *deadlocks) Handle(_ context.Context, r slog.Record) error {
	r.Attrs(func(a slog.Attr) bool {
		if strings.Contains(a.Value.String(), "40P01") {
			d.n.Add(1)
		}
		return true
	})
	return nil
}

// TestNoDeadlocksInASharedSession checks that claims, starts, finishes, cancellations and sweeps of
// jobs that share one session take their locks in one order, and that every run has one end.
func TestNoDeadlocksInASharedSession(t *testing.T) {
	t.Parallel()
	const jobs, rounds = 12, 20
	url := testpg.DB(t)
	seen := &deadlocks{Handler: slog.DiscardHandler}
	s := open(t, postgres.Config{URL: url, Logger: slog.New(seen)})
	defer func() { _ = s.Close() }()
	if err := s.Register(t.Context(), store.Node{ID: "n1", Lease: time.Hour}); err != nil {
		t.Fatal(err)
	}
	addJobs(t, url, jobs)
	p := cron.ClaimParams{Node: "n1", Limit: 5, Decide: decideShared}
	runs := make(chan cron.Launched, jobs*rounds)
	var claimers, workers errgroup.Group
	for range 3 {
		claimers.Go(func() error {
			for range rounds {
				c, err := s.Claim(t.Context(), p)
				if err != nil {
					return err
				}
				for _, l := range c.Launched {
					runs <- l
				}
			}
			return nil
		})
	}
	for n := range 4 {
		workers.Go(func() error {
			for l := range runs {
				if n == 0 {
					if _, err := s.CancelRuns(t.Context(), cron.CancelParams{RunID: l.Run.ID}); err != nil {
						return err
					}
				}
				if err := fire(t, s, l); err != nil && !errors.Is(err, chat.ErrFenced) {
					return err
				}
			}
			return nil
		})
	}
	if err := claimers.Wait(); err != nil {
		t.Error(err)
	}
	close(runs)
	if err := workers.Wait(); err != nil {
		t.Error(err)
	}
	if n := seen.n.Load(); n > 0 {
		t.Errorf("%d deadlocks", n)
	}
	if left := query(t, url, `SELECT state, count(*) FROM cron_run_logs WHERE finished_at IS NULL GROUP BY state`); len(left) > 0 {
		t.Errorf("runs without an end: %v", left)
	}
	if twice := query(t, url, `SELECT job_id FROM cron_run_logs GROUP BY job_id, scheduled_for HAVING count(*) > 1`); len(twice) > 0 {
		t.Errorf("slots with two runs: %v", twice)
	}
}

// decideShared is decideOnce with one session for all jobs, which are immediately due again.
func decideShared(now time.Time, due []cron.DueJob) []cron.Verdict {
	list := decideOnce(now, due)
	for i := range list {
		slot := due[i].Job.State.Next.Add(time.Millisecond)
		list[i].Next, list[i].NextRunAt = slot, slot
		list[i].Runs[0].Message.Session = chat.MainKey("main")
	}
	return list
}

// TestIdleClaimReadsTwoIndexEntries checks that a claim without due jobs reads neither table,
// independent of the number of jobs.
func TestIdleClaimReadsTwoIndexEntries(t *testing.T) {
	t.Parallel()
	s, url := cronStore(t)
	addJobs(t, url, 20_000)
	exec(t, url, `UPDATE cron_jobs SET next_run_at = 9999999999999`)
	exec(t, url, `VACUUM cron_jobs`)
	const read = `SELECT COALESCE(sum(seq_tup_read), 0)::bigint FROM pg_stat_user_tables WHERE relname IN ('cron_jobs', 'cron_run_logs')`
	exec(t, url, `SELECT pg_stat_reset()`)
	for range 10 {
		if c, err := s.Claim(t.Context(), claimParams()); err != nil || len(c.Jobs) > 0 {
			t.Fatalf("claimed %d jobs, %v", len(c.Jobs), err)
		}
	}
	if err := s.Close(); err != nil { // so that the server adds up the counters of its connections
		t.Fatal(err)
	}
	got := query(t, url, read)
	if n, ok := slices.Concat(got...)[0].(int64); !ok || n > 100 {
		t.Fatalf("%v rows were read one after the other", got)
	}
}

// BenchmarkFires covers the whole path of a fire: claim, start, finish with its ledger row and its
// job. Its rate is compared with that of earlier versions.
func BenchmarkFires(b *testing.B) {
	for _, workers := range []int{1, 16, 128} {
		b.Run(fmt.Sprintf("workers=%d", workers), func(b *testing.B) {
			s, url := cronStore(b)
			addJobs(b, url, b.N)
			exec(b, url, `VACUUM ANALYZE cron_jobs`)
			b.ReportAllocs()
			b.ResetTimer()
			fireAll(b, s, workers)
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "fires/s")
		})
	}
}

// fireAll claims every job, and concurrently starts and ends the runs with this many workers, as
// the gateway does.
func fireAll(b *testing.B, s *postgres.Store, workers int) {
	b.Helper()
	runs := make(chan cron.Launched, 1000)
	var group errgroup.Group
	for range workers {
		group.Go(func() error {
			for l := range runs {
				if err := fire(b, s, l); err != nil {
					return err
				}
			}
			return nil
		})
	}
	total := 0
	for {
		c, err := s.Claim(b.Context(), claimParams())
		if err != nil {
			b.Fatal(err)
		}
		for _, l := range c.Launched {
			runs <- l
		}
		total += len(c.Launched)
		if !c.More {
			break
		}
	}
	close(runs)
	if err := group.Wait(); err != nil || total != b.N {
		b.Fatalf("%d of %d fires, %v", total, b.N, err)
	}
}

func fire(tb testing.TB, s *postgres.Store, l cron.Launched) error {
	tb.Helper()
	c := store.Claim{Session: l.Message.Session, Node: "n1", Epoch: l.Epoch}
	_, err := s.Start(tb.Context(), store.StartParams{
		Claim: c, RunID: l.Message.ID, Lane: "cron", Seqs: []int64{l.Seq},
		Cron: &cron.AttemptStart{RunID: l.Run.ID, Attempt: 1, Node: "n1"},
	})
	if err != nil {
		return err
	}
	_, err = s.Finish(tb.Context(), store.FinishParams{
		Claim: c, RunID: l.Message.ID, State: store.RunOK, Outcome: chat.OutcomeAnswered,
		Cron: &cron.AttemptEnd{
			RunID: l.Run.ID, Attempt: cron.Attempt{Number: 1, State: cron.AttemptOK}, State: cron.RunOK, Summary: "done",
			Job: func(j cron.Job, r cron.Run, _ time.Time) *cron.Job {
				j.State.RunCount++
				j.State.LastRunAt, j.State.LastState, j.State.LastDuration = r.StartedAt, r.State, r.Duration
				return &j
			},
		},
	})
	return err
}

func cronStore(tb testing.TB) (*postgres.Store, string) {
	tb.Helper()
	url := testpg.DB(tb)
	s := open(tb, postgres.Config{URL: url})
	tb.Cleanup(func() {
		if err := s.Close(); err != nil {
			tb.Error(err)
		}
	})
	if err := s.Register(tb.Context(), store.Node{ID: "n1", Lease: 24 * time.Hour}); err != nil {
		tb.Fatal(err)
	}
	return s, url
}

// addJobs creates jobs that have been due for a second.
func addJobs(tb testing.TB, url string, n int) {
	tb.Helper()
	parts, err := cron.EncodeParts(cron.Job{
		Schedule: schedule.Spec{Kind: schedule.KindEvery, EveryMs: 60_000, AnchorMs: 0},
		Payload:  cron.Payload{Kind: cron.PayloadAgentTurn, Text: strings.Repeat("write the digest ", 10)},
		Retry:    cron.DefaultRetry(), Timeout: cron.DefaultTimeout,
	})
	if err != nil {
		tb.Fatal(err)
	}
	exec(tb, url, fmt.Sprintf(`INSERT INTO cron_jobs (id, owner, key, name, kind, schedule, payload, delivery, alert, policy, next_slot, next_run_at)
		SELECT md5(i::text), 'gateway', 'key ' || i, 'job ' || i, 'every', '%s', '%s', '%s', '%s', '%s', due, due
		FROM generate_series(1, %d) i, (SELECT (date_part('epoch', now()) * 1000)::bigint - 1000 AS due) t`, parts.Schedule, parts.Payload, parts.Delivery, parts.Alert, parts.Policy, n))
}

func claimAll(tb testing.TB, s *postgres.Store) []cron.Launched {
	tb.Helper()
	var all []cron.Launched
	for {
		c, err := s.Claim(tb.Context(), claimParams())
		if err != nil {
			tb.Fatal(err)
		}
		all = append(all, c.Launched...)
		if !c.More {
			return all
		}
	}
}

func claimParams() cron.ClaimParams {
	return cron.ClaimParams{Node: "n1", Limit: 500, Decide: decideOnce}
}

// decideOnce fires each job once, and plans the next fire in the distant future.
func decideOnce(_ time.Time, due []cron.DueJob) []cron.Verdict {
	list := make([]cron.Verdict, 0, len(due))
	for _, d := range due {
		slot := d.Job.State.Next
		id := cron.RunID(cron.TriggerSchedule, d.Job.ID, slot)
		key := chat.SessionKey{Agent: "main", Rest: fmt.Sprintf("cron:%s:schedule-%d", d.Job.ID, slot.UnixMilli())}
		list = append(list, cron.Verdict{
			JobID: d.Job.ID, Fired: d.Job.State.Fired + 1,
			Plan: cron.Plan{Next: time.UnixMilli(9_999_999_999_999), NextRunAt: time.UnixMilli(9_999_999_999_999)},
			Runs: []cron.Launch{{
				Run: cron.Run{
					ID: id, JobID: d.Job.ID, JobName: d.Job.Name, JobKey: d.Job.Key, Owner: d.Job.Owner, Agent: "main", Lane: "cron",
					ScheduledFor: slot, Trigger: cron.TriggerSchedule, FireAt: slot,
				},
				Message: chat.Message{
					ID: id, Session: key, Lane: "cron", Principal: d.Job.Owner, Channel: "cron",
					Content: chat.Content{Text: d.Job.Payload.Text},
				},
			}},
		})
	}
	return list
}
