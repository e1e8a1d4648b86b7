package sqlite

import (
	"context"
	"errors"
	"testing"
	"time"

	"laneway/internal/cron"
	"laneway/internal/store/sqlstore"
)

// lossy is an engine that commits an Update whose result is lost. It then tries it again, or returns an error.
type lossy struct {
	sqlstore.Engine

	lose, again bool
}

var errNoAnswer = errors.New("no answer")

func (e *lossy) Update(ctx context.Context, doing string, change func(ctx context.Context, tx sqlstore.Tx) error) error {
	err := e.Engine.Update(ctx, doing, change)
	if err != nil || !e.lose {
		return err
	}
	e.lose = false
	if !e.again {
		return errNoAnswer
	}
	return e.Engine.Update(ctx, doing, func(ctx context.Context, tx sqlstore.Tx) error { return change(ctx, repeated{tx}) })
}

// repeated is a transaction after one that may have been committed.
type repeated struct{ sqlstore.Tx }

func (repeated) Repeated() bool { return true }

// TestLaunchesWhoseCommitGotNoAnswerAreHandedOutOnce matters because this process owns their sessions, so no other process would submit them.
func TestLaunchesWhoseCommitGotNoAnswerAreHandedOutOnce(t *testing.T) {
	t.Parallel()
	for name, again := range map[string]bool{"by the next claim": false, "by the next try of the claim": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, now := withJobs(t, 3)
			db := &lossy{Engine: engine{s}, lose: true, again: again}
			jobs := sqlstore.New(db).Cron
			*now = now.Add(time.Minute)
			claim := func() ([]cron.Launched, error) {
				c, err := jobs.Claim(t.Context(), cron.ClaimParams{Node: "node", Decide: fire})
				return c.Launched, err
			}
			list, err := claim()
			if !again {
				if !errors.Is(err, errNoAnswer) {
					t.Fatalf("the claim returned %v", err)
				}
				list, err = claim()
			}
			if err != nil || len(list) != 3 {
				t.Fatalf("%d launches were handed out (%v), want 3", len(list), err)
			}
			for _, l := range list {
				if !l.Mine || l.Owner != "node" || l.Seq != 1 || l.Epoch != 1 {
					t.Errorf("handed out %+v", l)
				}
			}
			if more, err := claim(); err != nil || len(more) > 0 {
				t.Errorf("%d launches were handed out again (%v)", len(more), err)
			}
		})
	}
}

// failing is an engine whose Update fails once, after a number of successful ones.
type failing struct {
	sqlstore.Engine

	after int
}

func (e *failing) Update(ctx context.Context, doing string, change func(ctx context.Context, tx sqlstore.Tx) error) error {
	if e.after--; e.after == -1 {
		return errNoAnswer
	}
	return e.Engine.Update(ctx, doing, change)
}

// TestRunsOfAClaimWhoseLaterPartFailsComeWithTheNextClaim matters because the first part has committed them, but the caller of a failed claim launches nothing.
func TestRunsOfAClaimWhoseLaterPartFailsComeWithTheNextClaim(t *testing.T) {
	t.Parallel()
	s, now := withJobs(t, 3)
	jobs := sqlstore.New(&failing{Engine: engine{s}, after: 1}).Cron
	*now = now.Add(time.Minute)
	if _, err := jobs.Claim(t.Context(), cron.ClaimParams{Node: "node", Decide: fire}); !errors.Is(err, errNoAnswer) {
		t.Fatalf("the claim returned %v", err)
	}
	for _, want := range []int{3, 0} {
		c, err := jobs.Claim(t.Context(), cron.ClaimParams{Node: "node", Decide: fire})
		if err != nil || len(c.Launched) != want {
			t.Errorf("the next claim handed out %d launches (%v), want %d", len(c.Launched), err, want)
		}
	}
}

// TestRunsByHandWhoseCommitGotNoAnswerComeWithTheNextClaim matters because the next try of the call finds that the run exists, and launches nothing.
func TestRunsByHandWhoseCommitGotNoAnswerComeWithTheNextClaim(t *testing.T) {
	t.Parallel()
	s, _ := withJobs(t, 1)
	jobs := sqlstore.New(&lossy{Engine: engine{s}, lose: true, again: true}).Cron
	out, err := jobs.EnqueueRuns(t.Context(), cron.EnqueueParams{Node: "node", JobID: "job-0000000", Make: func(d cron.DueJob, now time.Time) ([]cron.Launch, error) {
		return []cron.Launch{launchOf(&d.Job, cron.TriggerManual, now)}, nil
	}})
	if err != nil || len(out.Launched) > 0 || len(out.Existing) != 1 {
		t.Fatalf("the call made %+v (%v)", out, err)
	}
	for _, want := range []int{1, 0} {
		c, err := jobs.Claim(t.Context(), cron.ClaimParams{Node: "node", Decide: fire})
		if err != nil || len(c.Launched) != want {
			t.Errorf("the claim handed out %d launches (%v), want %d", len(c.Launched), err, want)
		}
	}
}
