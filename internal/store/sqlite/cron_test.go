package sqlite

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"laneway/internal/chat"
	"laneway/internal/cron"
	"laneway/internal/cron/schedule"
	"laneway/internal/store"
	"laneway/internal/store/sqlstore"
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
		return nil, nil // removes the job
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

// minutely is a job that fires each minute, first at anchor.
func minutely(id string, anchor time.Time) cron.Job {
	return cron.Job{
		ID: id, Key: "key of " + id, Name: "name of " + id, Owner: "gateway", Principal: "gateway", Agent: "main", Lane: cron.DefaultLane, Session: "isolated",
		Schedule: schedule.Spec{Kind: schedule.KindEvery, EveryMs: 60_000, AnchorMs: anchor.UnixMilli()},
		Payload:  cron.Payload{Kind: cron.PayloadAgentTurn, Text: "Write the digest"}, Delivery: cron.Delivery{Mode: cron.DeliverNone},
		Retry: cron.DefaultRetry(), Timeout: cron.DefaultTimeout, Enabled: true, CreatedAt: anchor, UpdatedAt: anchor,
		State: cron.JobState{Plan: cron.Plan{Next: anchor, NextRunAt: anchor}, ActivatedAt: anchor},
	}
}

// fire is the verdict of a job that runs at its slot, whatever else runs.
func fire(_ time.Time, due []cron.DueJob) []cron.Verdict {
	var all []cron.Verdict
	for _, d := range due {
		slot := d.Job.State.Next
		next := slot.Add(time.Duration(d.Job.Schedule.EveryMs) * time.Millisecond)
		all = append(all, cron.Verdict{
			JobID: d.Job.ID, Plan: cron.Plan{Next: next, NextRunAt: next}, Fired: d.Job.State.Fired + 1,
			Runs: []cron.Launch{launchOf(&d.Job, cron.TriggerSchedule, slot)},
		})
	}
	return all
}

func launchOf(j *cron.Job, trigger cron.Trigger, slot time.Time) cron.Launch {
	id := cron.RunID(trigger, j.ID, slot)
	return cron.Launch{
		Run: cron.Run{
			ID: id, State: cron.RunQueued, Trigger: trigger, ScheduledFor: slot, FireAt: slot, JobID: j.ID, JobName: j.Name, JobKey: j.Key,
			Owner: j.Owner, Agent: j.Agent, Lane: j.Lane,
		},
		Message: chat.Message{
			Session: chat.SessionKey{Agent: j.Agent, Rest: "cron:" + j.ID + ":" + string(trigger) + "-" + strconv.FormatInt(slot.UnixMilli(), 10)},
			ID:      id, Principal: j.Owner, Lane: j.Lane, Channel: "cron", Content: chat.Content{Text: j.Payload.Text, System: true},
		},
	}
}

// fillJobs stores n jobs that are due at anchor.
func fillJobs(tb testing.TB, s *Store, n int, anchor time.Time) {
	tb.Helper()
	var group errgroup.Group
	group.SetLimit(64) // the writer combines these
	for i := range n {
		group.Go(func() error {
			j := minutely(fmt.Sprintf("job-%07d", i), anchor)
			_, err := s.PutJob(tb.Context(), cron.PutParams{Owner: j.Owner, Key: j.Key, Change: func(*cron.Job, time.Time) (*cron.Job, error) { return &j, nil }})
			return err
		})
	}
	if err := group.Wait(); err != nil {
		tb.Fatal(err)
	}
}

// BenchmarkFires covers the whole path of a fire: claimed, started, finished, with the ledger and
// the job. One claim feeds many workers.
func BenchmarkFires(b *testing.B) {
	for _, workers := range []int{1, 32, 128} {
		b.Run(fmt.Sprintf("workers=%d", workers), func(b *testing.B) {
			var clock atomic.Int64
			clock.Store(1_700_000_000_000)
			s := openAt(b, migrated(b), func() time.Time { return time.UnixMilli(clock.Load()) })
			register(b, s, "node")
			const jobs = 500
			fillJobs(b, s, jobs, time.UnixMilli(clock.Load()).Add(time.Minute))
			b.ReportAllocs()
			b.ResetTimer()
			queue := make(chan cron.Launched, 2*jobs)
			var group sync.WaitGroup
			for range workers {
				group.Go(func() {
					for l := range queue {
						if err := fireThrough(b.Context(), s, l); err != nil {
							b.Error(err)
						}
					}
				})
			}
			for fired := 0; fired < b.N; {
				clock.Add(time.Minute.Milliseconds())
				if err := s.Register(b.Context(), store.Node{ID: "node", Lease: time.Hour}); err != nil {
					b.Fatal(err)
				}
				c, err := s.Claim(b.Context(), cron.ClaimParams{Node: "node", Limit: min(jobs, b.N-fired), Decide: fire})
				if err != nil {
					b.Fatal(err)
				}
				for _, l := range c.Launched {
					queue <- l
				}
				fired += len(c.Launched)
			}
			close(queue)
			group.Wait()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "fires/s")
		})
	}
}

// startOf and finishOf are the start and the successful end of a run.
func startOf(l *cron.Launched) *store.StartParams {
	return &store.StartParams{
		Claim: store.Claim{Session: l.Message.Session, Node: l.Owner, Epoch: l.Epoch}, RunID: l.Message.ID, Lane: "cron", Seqs: []int64{l.Seq},
		Cron:       &cron.AttemptStart{RunID: l.Run.ID, Attempt: 1, Node: l.Owner},
		Transcript: []chat.TranscriptEntry{{Role: chat.RoleUser, Text: l.Message.Content.Text}},
	}
}

func finishOf(l *cron.Launched) *store.FinishParams {
	return &store.FinishParams{
		Claim: store.Claim{Session: l.Message.Session, Node: l.Owner, Epoch: l.Epoch}, RunID: l.Message.ID, State: store.RunOK,
		Outcome: chat.OutcomeAnswered, Preview: "done", Transcript: []chat.TranscriptEntry{{Role: chat.RoleAssistant, Text: "done"}},
		Cron: &cron.AttemptEnd{
			RunID: l.Run.ID, State: cron.RunOK, Attempt: cron.Attempt{State: cron.AttemptOK}, Summary: "done", Delivery: cron.DeliveryNotRequested,
			Job: func(old cron.Job, r cron.Run, _ time.Time) *cron.Job {
				old.State.RunCount++
				old.State.LastRunAt, old.State.LastState, old.State.LastDuration = r.StartedAt, r.State, r.Duration
				return &old
			},
		},
	}
}

// fireThrough starts and finishes one run.
func fireThrough(ctx context.Context, s *Store, l cron.Launched) error {
	if _, err := s.Start(ctx, *startOf(&l)); err != nil {
		return err
	}
	_, err := s.Finish(ctx, *finishOf(&l))
	return err
}

// lossy is an engine that commits an Update whose result is lost. It then tries it again, or
// returns an error.
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

// TestLaunchesWhoseCommitGotNoAnswerAreHandedOutOnce matters because this process owns their
// sessions, so no other process would submit them.
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

// TestRunsOfAClaimWhoseLaterPartFailsComeWithTheNextClaim matters because the first part has
// committed them, but the caller of a failed claim launches nothing.
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

// TestRunsByHandWhoseCommitGotNoAnswerComeWithTheNextClaim matters because the next try of the call
// finds that the run exists, and launches nothing.
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
