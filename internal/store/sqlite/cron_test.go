package sqlite

import (
	"context"
	"fmt"
	"testing"
	"time"

	"laneway/internal/chat"
	"laneway/internal/cron"
	"laneway/internal/store"
)

// startOfTime is the clock of these tests.
const startOfTime = 1_700_000_000_000

// withJobs is a store with jobs that are due in one minute, and its clock.
func withJobs(t *testing.T, jobs int) (*Store, *time.Time) {
	t.Helper()
	now := time.UnixMilli(startOfTime)
	s := openAt(t, migrated(t), func() time.Time { return now })
	register(t, s, "node")
	fillJobs(t, s, jobs, now.Add(time.Minute))
	return s, &now
}

func claimed(t *testing.T, s *Store, decide func(time.Time, []cron.DueJob) []cron.Verdict) cron.Claimed {
	t.Helper()
	c, err := s.Claim(t.Context(), cron.ClaimParams{Node: "node", Decide: decide})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// everythingOfCron calls every operation of cron at least once.
func everythingOfCron(t *testing.T, s *Store, clock *time.Time) {
	t.Helper()
	ctx := t.Context()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(s.Register(ctx, store.Node{ID: "node", Lease: time.Hour}))
	for i := range 4 {
		j := minutely(fmt.Sprintf("job-%d", i), clock.Add(time.Minute))
		_, err := s.PutJob(ctx, cron.PutParams{
			Owner: j.Owner, Key: j.Key, MaxOfOwner: 10, MaxTotal: 10, Audit: &cron.Audit{Who: "ann", Verb: "add"},
			Change: func(*cron.Job, time.Time) (*cron.Job, error) { return &j, nil },
		})
		must(err)
	}
	change := func(id string, fn func(j *cron.Job)) {
		t.Helper()
		_, err := s.ChangeJob(ctx, cron.ChangeParams{ID: id, CancelActive: true, Change: func(j cron.Job, _ time.Time) (*cron.Job, error) {
			fn(&j)
			return &j, nil
		}})
		must(err)
	}
	change("job-0", func(j *cron.Job) { j.Key = "another" })
	change("job-0", func(j *cron.Job) { j.State.LastError = "x" })
	*clock = clock.Add(2 * time.Minute)
	c := claimed(t, s, fire)
	if len(c.Launched) != 4 {
		t.Fatalf("launched %d runs, want 4", len(c.Launched))
	}
	must(fireThrough(ctx, s, c.Launched[0]))
	retried := c.Launched[1]
	must(failed(ctx, s, retried, *clock))
	*clock = clock.Add(time.Second)
	if again := claimed(t, s, fire); len(again.Launched) != 5 {
		t.Fatalf("launched %d runs, want the retry and the slots since", len(again.Launched))
	}
	_, err := s.EnqueueRuns(ctx, cron.EnqueueParams{Node: "node", JobID: "job-2", Make: func(d cron.DueJob, now time.Time) ([]cron.Launch, error) {
		return []cron.Launch{launchOf(&d.Job, cron.TriggerManual, now)}, nil
	}})
	must(err)
	for _, p := range []cron.CancelParams{{RunID: retried.Run.ID}, {JobID: "job-2"}} {
		_, err = s.CancelRuns(ctx, p)
		must(err)
	}
	*clock = clock.Add(2 * time.Minute)
	claimed(t, s, func(now time.Time, due []cron.DueJob) []cron.Verdict {
		all := fire(now, due)
		for i := range all {
			all[i].Cancel, all[i].Runs = due[i].Active, nil
			all[i].Rows = []cron.Run{{State: cron.RunSkipped, Reason: cron.ReasonOverlap, ScheduledFor: due[i].Job.State.Next}}
		}
		all[0].Invalid = "not understood"
		return all
	})
	yes := true
	for _, by := range []string{"", "updatedAt", "name", "id"} {
		for _, f := range []cron.JobFilter{{SortBy: by}, {SortBy: by, Descending: true, Query: "o", Enabled: &yes}} {
			_, err = s.Jobs(ctx, f)
			must(err)
		}
	}
	for _, f := range []cron.RunFilter{{}, {JobID: "job-1"}, {Visible: "gateway"}, {RunID: retried.Run.ID}, {Query: "x"}} {
		for _, up := range []bool{true, false} {
			f.Ascending, f.IncludeActive, f.Limit = up, true, 10
			_, err = s.Runs(ctx, f)
			must(err)
		}
	}
	_, err = s.Job(ctx, "job-1", "")
	must(err)
	_, err = s.Run(ctx, retried.Run.ID, "")
	must(err)
	_, err = s.Summary(ctx, "")
	must(err)
	n, err := s.Prune(ctx, store.PruneParams{What: store.PruneLedger, Before: clock.Add(time.Hour), Keep: 1})
	must(err)
	if n == 0 {
		t.Fatal("nothing was pruned")
	}
	_, err = s.ChangeJob(ctx, cron.ChangeParams{ID: "job-3", Change: func(cron.Job, time.Time) (*cron.Job, error) {
		return nil, nil //nolint:nilnil // removes the job
	}})
	must(err)
}

// failed starts a run and ends its attempt so that it is retried one second after now.
func failed(ctx context.Context, s *Store, l cron.Launched, now time.Time) error {
	c := store.Claim{Session: l.Message.Session, Node: l.Owner, Epoch: l.Epoch}
	_, err := s.Start(ctx, store.StartParams{Claim: c, RunID: l.Message.ID, Lane: "cron", Seqs: []int64{l.Seq}, Cron: &cron.AttemptStart{RunID: l.Run.ID}})
	if err != nil {
		return err
	}
	_, err = s.Finish(ctx, store.FinishParams{
		Claim: c, RunID: l.Message.ID, State: store.RunFailed, Outcome: chat.OutcomeFailed,
		Cron: &cron.AttemptEnd{RunID: l.Run.ID, State: cron.RunRetrying, NextAttempt: now.Add(time.Second), Error: "backend answered 503"},
	})
	return err
}
