package dispatch_test

import (
	"context"
	"encoding/json"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"laneway/internal/chat"
	"laneway/internal/cron"
	"laneway/internal/cron/schedule"
	"laneway/internal/dispatch"
	"laneway/internal/scheduler"
	"laneway/internal/store"
	"laneway/internal/store/sqlite"
	"laneway/internal/store/sqlite/sqlitetest"
)

// operator is the owner of the jobs of these tests.
func operator() chat.Caller {
	return chat.Caller{Principal: "gateway", Scopes: []string{chat.ScopeAdmin}}
}

// states returns the entries of a job's history as state, reason and number of slots, the oldest
// first.
func (h *jobHarness) states(job string) []string {
	h.t.Helper()
	var out []string
	for _, r := range h.runs(job) {
		word := string(r.State)
		if r.Reason != "" {
			word += " " + string(r.Reason)
		}
		if r.SlotCount > 1 {
			word += fmt.Sprintf(" x%d", r.SlotCount)
		}
		out = append(out, word)
	}
	return out
}

func (h *jobHarness) job(id string) cron.Job {
	h.t.Helper()
	j, err := h.jobs.Job(h.t.Context(), id, "")
	if err != nil {
		h.t.Fatal(err)
	}
	return j
}

// after advances the clock and waits until all work that becomes due has ended.
func after(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func once(id, text string, in time.Duration) cron.Job {
	return cron.Job{ID: id, Schedule: schedule.Spec{Kind: schedule.KindAt, At: time.Now().Add(in)}, Payload: cron.Payload{Text: text}}
}

// enable enables or disables a job.
func (h *jobHarness) enable(id, word string) {
	h.t.Helper()
	if _, err := h.d.Jobs.Update(h.t.Context(), id, cron.Members{"enabled": json.RawMessage(word)}, "", operator()); err != nil {
		h.t.Fatalf("enabled %s: %v", word, err)
	}
	synctest.Wait()
}

func TestACancelledRunEndsAtOnceAndIsNotTriedAgain(t *testing.T) {
	inJobs(t, func(t *testing.T, h *jobHarness) {
		h.put(once("running", "sleep 1h", time.Second))
		h.put(once("waiting", "hello", 2*time.Second))
		after(3 * time.Second)
		wantList(t, "before", append(h.states("running"), h.states("waiting")...), []string{"running", "queued"})
		for _, id := range []string{"waiting", "running"} {
			ids, err := h.d.Jobs.Cancel(t.Context(), cron.CancelParams{JobID: id, Note: "not needed"}, operator())
			if err != nil || len(ids) != 1 {
				t.Fatalf("cancelling %s: %v (%v)", id, ids, err)
			}
		}
		after(100 * time.Millisecond)
		wantList(t, "at once", append(h.states("running"), h.states("waiting")...), []string{"cancelled stopped", "cancelled stopped"})
		h.put(once("failing", "fail", time.Second))
		after(1500 * time.Millisecond)
		wantList(t, "waits for its next attempt", h.states("failing"), []string{"retrying"})
		if _, err := h.d.Jobs.Cancel(t.Context(), cron.CancelParams{RunID: h.runs("failing")[0].ID}, operator()); err != nil {
			t.Fatal(err)
		}
		after(10 * time.Minute)
		wantList(t, "ten minutes later", append(h.states("running"), append(h.states("waiting"), h.states("failing")...)...),
			[]string{"cancelled stopped", "cancelled stopped", "cancelled stopped"})
		ids, err := h.d.Jobs.Cancel(t.Context(), cron.CancelParams{JobID: "failing"}, operator())
		if err != nil || len(ids) != 0 {
			t.Errorf("cancelling a job that rests: %v (%v)", ids, err)
		}
		if _, err := h.d.Jobs.Cancel(t.Context(), cron.CancelParams{RunID: "schedule:none:1"}, operator()); err == nil {
			t.Error("an unknown run was cancelled")
		}
	}, lanes(1))
}

// slowClaims needs time for each job that it claims, as a database does.
type slowClaims struct {
	*sqlite.Store

	each time.Duration
}

// Claim implements cron.JobStore.
func (s slowClaims) Claim(ctx context.Context, p cron.ClaimParams) (cron.Claimed, error) {
	c, err := s.Store.Claim(ctx, p)
	time.Sleep(time.Duration(len(c.Jobs)) * s.each)
	return c, err
}

func TestABurstStartsAsFastAsItIsClaimed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := newStore(t)
		h := &jobHarness{jobs: st}
		h.harness = open(t, slowClaims{st, time.Millisecond}, lanes(1200), func(c *dispatch.Config) { c.Cron.Fires, c.Cron.Enabled = true, true })
		const jobs = 1200 // more than one claim takes
		for i := range jobs {
			h.put(once(fmt.Sprintf("burst-%d", i), "hello", 12*time.Second))
		}
		h.put(everySecond("tick", "hello"))
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- h.d.Jobs.Run(ctx) }()
		after(11 * time.Second)
		for id, patch := range map[string]cron.Members{
			"burst-1": {"enabled": []byte("false")}, "burst-2": {"name": []byte(`"renamed"`)}, "burst-3": {"schedule": []byte(`{"kind":"at","at":"2001-01-01T00:00:00Z"}`)},
		} {
			if _, err := h.d.Jobs.Update(t.Context(), id, patch, "", operator()); err != nil {
				t.Fatal(err)
			}
		}
		if err := h.d.Jobs.Remove(t.Context(), "burst-4", false, operator()); err != nil {
			t.Fatal(err)
		}
		after(3 * time.Second) // the claims of the burst take 1.2 s
		page, err := st.Runs(t.Context(), cron.RunFilter{IncludeActive: true})
		if err != nil {
			t.Fatal(err)
		}
		ok := 0
		for _, r := range page.Runs {
			if r.State != cron.RunOK {
				continue
			}
			ok++
			if late := r.StartedAt.Sub(r.ScheduledFor); late < 0 || late > jobs*time.Millisecond+time.Second { // the duration of the claims, and a tick
				t.Errorf("%s began %s after its slot", r.ID, late)
			}
		}
		if ok < jobs-3+12 {
			t.Errorf("%d runs of %d have ended", ok, jobs)
		}
		wantList(t, "switched off, renamed, moved and removed a moment before",
			append(append(h.states("burst-1"), h.states("burst-2")...), append(h.states("burst-3"), h.states("burst-4")...)...), []string{"ok"})
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		h.harness.close()
	})
}

func TestTheHistoryOfAJobHasItsChanges(t *testing.T) {
	inJobs(t, func(t *testing.T, h *jobHarness) {
		h.put(once("digest", "hello", time.Hour))
		if _, err := h.d.Jobs.Pause(t.Context(), "digest", "holidays", time.Time{}, operator()); err != nil {
			t.Fatal(err)
		}
		paused := time.Now()
		after(time.Minute)
		if _, err := h.d.Jobs.Resume(t.Context(), "digest", operator()); err != nil {
			t.Fatal(err)
		}
		changes := func(by chat.Caller, f cron.RunFilter) (verbs []string) {
			f.JobID, f.Limit, f.Changes = "digest", 1, true
			page, err := h.d.Jobs.Ledger(t.Context(), f, by)
			if err != nil {
				t.Fatal(err)
			}
			for _, c := range page.Changes {
				verbs = append(verbs, c.Verb+" by "+c.Who)
			}
			return verbs
		}
		wantList(t, "changes, the newest first", changes(operator(), cron.RunFilter{}), []string{"cron.resume by gateway", "cron.pause by gateway"})
		wantList(t, "since the pause", changes(operator(), cron.RunFilter{Since: paused.Add(time.Second)}), []string{"cron.resume by gateway"})
		wantList(t, "for a principal that does not see the job", changes(chat.Caller{Principal: "lab", Own: true}, cron.RunFilter{}), nil)
	})
}

func TestRunningJobIsListedOnce(t *testing.T) {
	inJobs(t, func(t *testing.T, h *jobHarness) {
		h.put(once("running", "sleep 1h", time.Second))
		time.Sleep(10 * time.Second)
		list, waits, err := h.d.Turns(t.Context(), store.TurnFilter{})
		if err != nil {
			t.Fatal(err)
		}
		want(t, "turns", len(list), 1)
		for id, w := range waits {
			if w.Cause == chat.WaitRetry {
				t.Errorf("%s runs and waits for its next attempt", id)
			}
		}
	})
}

// steppedStore returns a store whose clock can be set.
func steppedStore(t *testing.T) (st *sqlite.Store, step func(time.Duration)) {
	t.Helper()
	var shift atomic.Int64
	st = sqlitetest.Open(t, sqlite.Config{Now: func() time.Time { return time.Now().Add(time.Duration(shift.Load())) }})
	return st, func(d time.Duration) { shift.Add(int64(d)) }
}

// slotsOnce fails when a slot has two entries, or a run started twice.
func (h *jobHarness) slotsOnce(job string) (ok, missed int64) {
	h.t.Helper()
	seen := map[int64]bool{}
	for _, r := range h.runs(job) {
		if seen[r.ScheduledFor.UnixMilli()] {
			h.t.Errorf("the slot %s has two entries", r.ScheduledFor)
		}
		seen[r.ScheduledFor.UnixMilli()] = true
		switch r.State {
		case cron.RunOK:
			ok++
		case cron.RunMissed:
			missed += r.SlotCount
		default: // the others are not counted
		}
	}
	return ok, missed
}

func TestAClockThatIsSetForwardIsCaughtUpByThePolicy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st, step := steppedStore(t)
		h := openCron(t, st)
		h.put(everySecond("tick", "hello"), func(j *cron.Job) { j.Schedule.EveryMs = 60_000 })
		after(2*time.Minute + 30*time.Second)
		before, _ := h.slotsOnce("tick")
		step(time.Hour)
		after(5 * time.Second)
		ok, missed := h.slotsOnce("tick")
		if ok != before+1 || missed != 59 {
			t.Errorf("%d runs and %d missed slots for the hour, want 1 and 59", ok-before, missed)
		}
		after(2 * time.Minute)
		if later, same := h.slotsOnce("tick"); later != ok+2 || same != missed {
			t.Errorf("then %d runs in two minutes, and %d missed", later-ok, same-missed)
		}
		h.close()
	})
}

func TestAClockThatIsSetBackFiresNoSlotTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st, step := steppedStore(t)
		h := openCron(t, st)
		h.put(everySecond("tick", "hello"), func(j *cron.Job) { j.Schedule.EveryMs = 60_000 })
		after(10*time.Minute + 30*time.Second)
		before, _ := h.slotsOnce("tick")
		step(-time.Hour)
		after(59 * time.Minute)
		if ok, missed := h.slotsOnce("tick"); ok != before || missed != 0 {
			t.Errorf("%d runs and %d missed slots while the hour comes a second time", ok-before, missed)
		}
		after(3 * time.Minute)
		if ok, missed := h.slotsOnce("tick"); ok != before+2 || missed != 0 {
			t.Errorf("afterwards %d runs, %d missed", ok-before, missed)
		}
		h.close()
	})
}

// After six hours without a process, a thousand jobs that fire each minute are resumed. Each runs
// once for its missed slots, and at most as many run at once as their lane has slots.
func TestJobsThatWereDownForHoursComeBackBoundedAndSpread(t *testing.T) {
	if testing.Short() {
		t.Skip("long")
	}
	synctest.Test(t, func(t *testing.T) {
		const jobs, lane = 1_000, 20
		st, step := steppedStore(t)
		h := openCron(t, st, func(c *dispatch.Config) {
			c.Lanes = []scheduler.Lane{{Name: "main", Limit: lane}, {Name: "cron", Limit: lane}}
		})
		for i := range jobs {
			h.put(everySecond(fmt.Sprintf("job-%d", i), "sleep 1s"), func(j *cron.Job) { j.Schedule.EveryMs = 3_600_000 })
		}
		synctest.Wait()
		step(6 * time.Hour)
		after(2*jobs/lane*time.Second + 10*time.Second)
		perSecond := map[int64]int{}
		for i := range jobs {
			id := fmt.Sprintf("job-%d", i)
			ok, missed := h.slotsOnce(id)
			if ok != 1 || missed != 5 {
				t.Fatalf("%s: %d runs and %d missed slots, want 1 and 5", id, ok, missed)
			}
			for _, r := range h.runs(id) {
				if !r.StartedAt.IsZero() {
					perSecond[r.StartedAt.Unix()]++
				}
			}
		}
		peak := 0
		for _, n := range perSecond {
			peak = max(peak, n)
		}
		if peak > 2*lane {
			t.Errorf("%d runs began within a second; the lane has slots for %d that take a second", peak, lane)
		}
		t.Logf("%d jobs caught up, at most %d starts in a second", jobs, peak)
		h.close()
	})
}
