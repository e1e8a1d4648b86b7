package dispatch_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"laneway/internal/cron"
	"laneway/internal/cron/schedule"
	"laneway/internal/dispatch"
)

// jobHarness is a harness whose jobs fire.
type jobHarness struct {
	*harness

	jobs cron.JobStore
	stop func()
}

// cronStore is a store that has jobs.
type cronStore = dispatch.Store

func openCron(t *testing.T, st cronStore, opts ...option) *jobHarness {
	t.Helper()
	return openWatched(t, st, nil, opts...)
}

// openWatched is openCron with a function that receives every cron event; may be nil.
func openWatched(t *testing.T, st cronStore, watch func(cron.Event), opts ...option) *jobHarness {
	t.Helper()
	h := &jobHarness{jobs: st}
	h.harness = build(t, st, append([]option{func(c *dispatch.Config) { c.Cron.Fires, c.Cron.Enabled = true, true }}, opts...)...)
	if watch != nil {
		h.d.SubscribeCron(watch, func() bool { return false })
	}
	h.start()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := h.d.RunCron(ctx); err != nil {
			t.Errorf("RunCron ended with %v", err)
		}
	}()
	h.stop = func() { cancel(); <-done }
	synctest.Wait()
	return h
}

func (h *jobHarness) close() {
	h.t.Helper()
	h.stop()
	h.harness.close()
}

// runs lists the ledger of a job, the oldest first.
func (h *jobHarness) runs(job string) []cron.Run {
	h.t.Helper()
	page, err := h.jobs.Runs(h.t.Context(), cron.RunFilter{JobID: job, IncludeActive: true, Ascending: true})
	if err != nil {
		h.t.Fatal(err)
	}
	return page.Runs
}

// put stores a job whose first fire is at next.
func (h *jobHarness) put(j cron.Job, change ...func(*cron.Job)) cron.Job {
	h.t.Helper()
	j.Owner, j.Principal, j.Agent, j.Enabled, j.Session = "gateway", "gateway", "main", true, cron.Isolated
	j.Retry, j.Timeout, j.PauseAfter = cron.DefaultRetry(), cron.DefaultTimeout, cron.DefaultPauseAfter
	j.Key, j.Name = j.ID, j.ID
	if j.Payload.Kind == "" {
		j.Payload.Kind = cron.PayloadAgentTurn
	}
	for _, f := range change {
		f(&j)
	}
	_, err := h.jobs.PutJob(h.t.Context(), cron.PutParams{Owner: j.Owner, Key: j.Key, Change: func(_ *cron.Job, now time.Time) (*cron.Job, error) {
		s, err := schedule.Compile(j.Schedule)
		if err != nil {
			return nil, err
		}
		fire, _ := j.Timetable(s).First(now)
		j.State.Next, j.State.NextRunAt, j.State.ActivatedAt, j.CreatedAt = fire.Slot, fire.At, now, now
		return &j, nil
	}})
	if err != nil {
		h.t.Fatal(err)
	}
	h.d.NudgeCron()
	return j
}

func everySecond(id, text string) cron.Job {
	return cron.Job{ID: id, Schedule: schedule.Spec{Kind: schedule.KindEvery, EveryMs: 1000}, Payload: cron.Payload{Text: text}}
}

func TestAJobFiresOnItsMillisecondAndOnce(t *testing.T) {
	inJobs(t, func(t *testing.T, h *jobHarness) {
		h.put(everySecond("tick", "hello"))
		time.Sleep(10*time.Second + 500*time.Millisecond)
		synctest.Wait()
		runs := h.runs("tick")
		ended := 0
		for _, r := range runs {
			if r.State != cron.RunOK {
				continue
			}
			ended++
			if late := r.StartedAt.Sub(r.ScheduledFor); late < 0 || late > 5*time.Millisecond {
				t.Errorf("run %s began %s after its slot", r.ID, late)
			}
			if r.Summary != "hello" || r.Attempt != 1 || len(r.Attempts) != 1 || r.Attempts[0].State != cron.AttemptOK {
				t.Errorf("run %s: %+v", r.ID, r)
			}
		}
		if ended != 10 {
			t.Errorf("%d runs have ended, want 10: %+v", ended, runs)
		}
	})
}

func TestAFailedRunIsTriedAgainAndThenAnError(t *testing.T) {
	inJobs(t, func(t *testing.T, h *jobHarness) {
		h.put(cron.Job{ID: "bad", Schedule: schedule.Spec{Kind: schedule.KindAt, At: time.Now().Add(time.Second)}, Payload: cron.Payload{Text: "fail"}})
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		runs := h.runs("bad")
		if len(runs) != 1 || runs[0].State != cron.RunError || len(runs[0].Attempts) != 4 {
			t.Fatalf("runs: %+v", runs)
		}
		for i, a := range runs[0].Attempts {
			if a.State != cron.AttemptError || a.Number != i+1 {
				t.Errorf("attempt %d: %+v", i+1, a)
			}
		}
		job, err := h.jobs.Job(t.Context(), "bad", "")
		if err != nil || job.Enabled || job.State.ConsecutiveErrors != 1 || job.State.RunCount != 1 {
			t.Errorf("the job is %+v (%v)", job, err)
		}
	})
}

func TestAFireWhileARunIsActiveIsSkipped(t *testing.T) {
	inJobs(t, func(t *testing.T, h *jobHarness) {
		h.put(everySecond("slow", "sleep 2500ms"))
		time.Sleep(7*time.Second + 200*time.Millisecond)
		synctest.Wait()
		var states []string
		for _, r := range h.runs("slow") {
			states = append(states, string(r.State)+string(r.Reason))
		}
		count := map[string]int{}
		for _, s := range states {
			count[s]++
		}
		if count["ok"] != 2 || count["skippedoverlap"] != 4 || count["running"] != 1 {
			t.Errorf("states: %v", states)
		}
	})
}

func TestABufferedFireStartsWhenTheActiveRunEnds(t *testing.T) {
	inJobs(t, func(t *testing.T, h *jobHarness) {
		h.put(everySecond("buf", "sleep 2500ms"), func(j *cron.Job) { j.Overlap = cron.OverlapBufferOne })
		time.Sleep(6*time.Second + 200*time.Millisecond)
		synctest.Wait()
		count := map[string]int{}
		for _, r := range h.runs("buf") {
			count[string(r.State)+string(r.Reason)]++
		}
		if count["ok"] != 2 || count["running"] != 1 || count["queued"] > 1 || count["skippedbuffer_full"] == 0 {
			t.Errorf("states: %v", count)
		}
		h.runner.mu.Lock()
		if h.runner.mostAll != 1 {
			t.Errorf("%d runs of the job at once", h.runner.mostAll)
		}
		h.runner.mu.Unlock()
	})
}

func TestCancelPreviousStopsTheOlderRun(t *testing.T) {
	inJobs(t, func(t *testing.T, h *jobHarness) {
		h.put(everySecond("new", "sleep 1h"), func(j *cron.Job) {
			j.Overlap, j.Schedule.EveryMs = cron.OverlapCancelPrevious, 5000
		})
		time.Sleep(21 * time.Second)
		synctest.Wait()
		count := map[string]int{}
		for _, r := range h.runs("new") {
			count[string(r.State)+string(r.Reason)]++
		}
		if count["cancelledreplaced"] != 3 || count["running"] != 1 {
			t.Errorf("states: %v", count)
		}
	})
}

// Two slots of an outage are caught up for a job that its first run removes. Subscribers receive both starts and both ends.
func TestEveryRunOfARemovedJobIsAStartedEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st, step := steppedStore(t)
		var mu sync.Mutex
		got := map[cron.Action]int{}
		h := openWatched(t, st, func(e cron.Event) {
			mu.Lock()
			defer mu.Unlock()
			if e.Job.ID == "tick" && e.Job.Owner == "gateway" {
				got[e.Action]++
			}
		})
		h.put(everySecond("tick", "hello"), func(j *cron.Job) {
			j.Schedule.EveryMs, j.DeleteAfter, j.Missed = 60_000, true, cron.MissedPolicy{Rule: cron.MissedFireAll, MaxCatchup: 2}
		})
		after(time.Second)
		step(150 * time.Second)
		after(5 * time.Second)
		mu.Lock()
		defer mu.Unlock()
		want(t, "runs that ended well", len(h.runs("tick")), 2)
		want(t, "started and finished", fmt.Sprint(got[cron.ActionStarted], got[cron.ActionFinished]), "2 2")
		h.close()
	})
}
