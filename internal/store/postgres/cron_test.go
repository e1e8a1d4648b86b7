package postgres_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"laneway/internal/chat"
	"laneway/internal/cron"
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

// TestNoDeadlocksInASharedSession checks that claims, starts, finishes, cancellations and sweeps of jobs that share one session take their locks in one order,
// and that every run has one end.
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

// TestIdleClaimReadsTwoIndexEntries checks that a claim without due jobs reads neither table, independent of the number of jobs.
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
