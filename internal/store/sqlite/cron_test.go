package sqlite

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"laneway/internal/chat"
	"laneway/internal/cron"
	"laneway/internal/store"
	"laneway/internal/store/storetest"
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

func count(t *testing.T, s *Store, text string, args ...any) int64 {
	t.Helper()
	return storetest.Query(t, outside(t, s.path), text, args...)[0][0].(int64)
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
	n, err := s.Prune(ctx, cron.PruneParams{Before: clock.Add(time.Hour), Keep: 1})
	must(err)
	if n == 0 {
		t.Fatal("nothing was pruned")
	}
	_, err = s.ChangeJob(ctx, cron.ChangeParams{ID: "job-3", Change: func(cron.Job, time.Time) (*cron.Job, error) {
		return nil, nil //nolint:nilnil // removes the job
	}})
	must(err)
}

// failed starts a run and ends its attempt so that it is tried again one second after now.
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

// TestAStolenMessageIDStopsNothingElse: clients choose the ids of their messages, so a client may use the one of a later run.
func TestAStolenMessageIDStopsNothingElse(t *testing.T) {
	t.Parallel()
	s, now := withJobs(t, 2)
	stolen := cron.RunID(cron.TriggerSchedule, "job-0000000", now.Add(time.Minute))
	if _, err := s.Accept(t.Context(), message("node", "room", stolen)); err != nil {
		t.Fatal(err)
	}
	*now = now.Add(time.Minute)
	c := claimed(t, s, fire)
	if len(c.Launched) != 1 || c.Launched[0].Run.JobID != "job-0000001" {
		t.Fatalf("launched %+v, want the other job's run alone", c.Launched)
	}
	r, err := s.Run(t.Context(), stolen, "")
	if err != nil || r.State != cron.RunError || !strings.Contains(r.Error, "another message has the name") || r.FinishedAt.IsZero() {
		t.Errorf("the run of the stolen id: %+v (%v), want an error that says so", r, err)
	}
	if left := count(t, s, `SELECT count(*) FROM sessions WHERE key LIKE '%:cron:job-0000000:%'`); left != 0 {
		t.Errorf("%d sessions were made for it, want none", left)
	}
	*now = now.Add(time.Minute)
	if c := claimed(t, s, fire); len(c.Launched) != 2 {
		t.Errorf("launched %d runs in the next minute, want both", len(c.Launched))
	}
}

func TestARunInASharedSessionLeavesItsSettings(t *testing.T) {
	t.Parallel()
	s, now := withJobs(t, 1)
	p := message("node", "room", "m")
	p.RunLimit = 3
	if _, err := s.Accept(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	*now = now.Add(time.Minute)
	c := claimed(t, s, func(at time.Time, due []cron.DueJob) []cron.Verdict {
		all := fire(at, due)
		all[0].Runs[0].Message.Session = p.Message.Session
		return all
	})
	after, err := s.Session(t.Context(), p.Message.Session, "")
	if err != nil {
		t.Fatal(err)
	}
	l := c.Launched[0]
	if after.RunLimit != 3 || after.Lane != "main" || after.Waiting != 2 || l.Seq != 2 || l.Behind != 1 || !l.Mine {
		t.Errorf("session %+v, launched %+v: want limit 3, lane main, and the run second in the queue", after, l)
	}
}

func TestPruneTakesWhatTheRunHadForItself(t *testing.T) {
	t.Parallel()
	s, now := withJobs(t, 2)
	*now = now.Add(time.Minute)
	c := claimed(t, s, fire)
	for _, l := range c.Launched {
		if err := fireThrough(t.Context(), s, l); err != nil {
			t.Fatal(err)
		}
	}
	kept := c.Launched[1].Message.Session // another message follows in it
	p := message("node", kept.Rest, "m")
	if _, err := s.Accept(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	*now = now.Add(time.Minute)
	n, err := s.Prune(t.Context(), cron.PruneParams{Before: *now})
	if err != nil || n != 2 {
		t.Fatalf("pruned %d rows (%v), want 2", n, err)
	}
	for text, want := range map[string]int64{
		`SELECT count(*) FROM cron_run_logs`: 0, `SELECT count(*) FROM runs`: 0, `SELECT count(*) FROM inbox`: 1,
		`SELECT count(*) FROM sessions`: 1, `SELECT count(*) FROM tombstones`: 0, `SELECT count(DISTINCT session_key) FROM transcript`: 1,
	} {
		if got := count(t, s, text); got != want {
			t.Errorf("%s: got %d, want %d", text, got, want)
		}
	}
	if _, err := s.Session(t.Context(), kept, ""); err != nil {
		t.Errorf("the session in which a person writes: %v", err)
	}
}

// TestAFailedClaimLeavesNothing: a claim writes many rows, and a panic in the middle takes all of them back.
func TestAFailedClaimLeavesNothing(t *testing.T) {
	t.Parallel()
	s, now := withJobs(t, 3)
	*now = now.Add(time.Minute)
	_, err := s.Claim(t.Context(), cron.ClaimParams{Node: "node", Decide: func(at time.Time, due []cron.DueJob) []cron.Verdict {
		all := fire(at, due)
		all[1].Runs[0].Message.Content.Options.Params = map[string]any{"no JSON": func() {}}
		return all
	}})
	if err == nil {
		t.Fatal("a message that cannot be encoded was accepted")
	}
	if rows := count(t, s, `SELECT (SELECT count(*) FROM inbox) + (SELECT count(*) FROM cron_run_logs) + (SELECT count(*) FROM sessions)`); rows != 0 {
		t.Errorf("%d rows are left of the failed claim, want none", rows)
	}
	if c := claimed(t, s, fire); len(c.Launched) != 3 {
		t.Errorf("launched %d runs after it, want all 3", len(c.Launched))
	}
}

// TestTextsThatCannotBeReadSurviveAChange: to pause a broken job must not destroy what could be repaired.
func TestTextsThatCannotBeReadSurviveAChange(t *testing.T) {
	t.Parallel()
	s, now := withJobs(t, 1)
	const broken = `{"kind":"lunar","phase":"full"}`
	if _, err := outside(t, s.path).Exec(`UPDATE cron_jobs SET schedule = ?`, broken); err != nil {
		t.Fatal(err)
	}
	_, err := s.ChangeJob(t.Context(), cron.ChangeParams{ID: "job-0000000", Change: func(j cron.Job, _ time.Time) (*cron.Job, error) {
		if j.Invalid == "" || j.MayFire() {
			t.Errorf("the job does not say that it cannot be understood: %+v", j)
		}
		j.Pause = &cron.Pause{By: "ann", At: *now}
		return &j, nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	if got := storetest.Query(t, outside(t, s.path), `SELECT schedule FROM cron_jobs`)[0][0]; got != broken {
		t.Errorf("the schedule is now %v, want it as it was", got)
	}
}

// TestAStartReadsTheJobOfItsRun: the job is as it is read by itself, and a start whose job is gone has none.
func TestAStartReadsTheJobOfItsRun(t *testing.T) {
	t.Parallel()
	s, now := withJobs(t, 2)
	*now = now.Add(time.Minute)
	list := claimed(t, s, fire).Launched
	if _, err := s.ChangeJob(t.Context(), cron.ChangeParams{ID: list[1].Run.JobID, Change: func(cron.Job, time.Time) (*cron.Job, error) {
		return nil, nil //nolint:nilnil // removes the job
	}}); err != nil {
		t.Fatal(err)
	}
	start := func(l cron.Launched) *cron.Job {
		started, err := s.Start(t.Context(), store.StartParams{
			Claim: store.Claim{Session: l.Message.Session, Node: l.Owner, Epoch: l.Epoch}, RunID: l.Message.ID, Lane: "cron", Seqs: []int64{l.Seq},
			Cron: &cron.AttemptStart{RunID: l.Run.ID, Attempt: 1, Node: l.Owner},
		})
		if err != nil {
			t.Fatal(err)
		}
		return started.Job
	}
	got := start(list[0])
	want, err := s.Job(t.Context(), list[0].Run.JobID, "")
	if err != nil || got == nil {
		t.Fatalf("the start has the job %v (%v)", got, err)
	}
	if diff := cmp.Diff(want, *got); diff != "" {
		t.Errorf("the job of the start differs (- by itself, + with the start):\n%s", diff)
	}
	if got.State.Queued != 1 || got.State.RunningAt.IsZero() {
		t.Errorf("the job has %d runs, the first since %v, want the one that has started", got.State.Queued, got.State.RunningAt)
	}
	if gone := start(list[1]); gone != nil {
		t.Errorf("the start of a run whose job is removed has the job %+v", gone)
	}
}
