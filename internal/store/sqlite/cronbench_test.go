package sqlite

import (
	"context"
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
)

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

// BenchmarkFires covers the whole path of a fire: claimed, started, finished, with the ledger and the job. One claim feeds many workers.
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
