package dispatch_test

import (
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"laneway/internal/cron"
	"laneway/internal/dispatch"
	"laneway/internal/scheduler"
	"laneway/internal/store/sqlite"
	"laneway/internal/store/sqlite/sqlitetest"
)

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
		switch r.State { //nolint:exhaustive // the others are not counted
		case cron.RunOK:
			ok++
		case cron.RunMissed:
			missed += r.SlotCount
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

// After six hours without a process, a thousand jobs that fire each minute are resumed. Each runs once for its missed slots, and at most as
// many run at once as their lane has slots.
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
