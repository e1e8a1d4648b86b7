package dispatch_test

import (
	"encoding/json"
	"testing"
	"testing/synctest"
	"time"

	"laneway/internal/cron"
)

// enable switches a job on or off.
func (h *jobHarness) enable(id, word string) {
	h.t.Helper()
	if _, err := h.d.CronUpdate(h.t.Context(), id, cron.Members{"enabled": json.RawMessage(word)}, "", operator()); err != nil {
		h.t.Fatalf("enabled %s: %v", word, err)
	}
	synctest.Wait()
}

func TestSwitchingAJobOffAndOnBeforeItsMomentKeepsItsRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := openCron(t, newStore())
		for _, kind := range []string{"at", "every"} {
			j := once("at", "hello", 1500*time.Millisecond)
			if kind == "every" {
				j = everySecond("every", "hello")
				j.Schedule.EveryMs, j.Schedule.AnchorMs = 10_000, time.Now().Add(1500*time.Millisecond).UnixMilli()
			}
			h.put(j)
			after(1200 * time.Millisecond)
			wantList(t, kind+" is claimed ahead", h.ahead(kind), []string{kind})
			h.enable(kind, "false")
			wantList(t, kind+" is switched off", append(h.ahead(kind), h.states(kind)...), nil)
			h.enable(kind, "true")
			after(200 * time.Millisecond)
			h.enable(kind, "false") // again, now that the slot is claimed again
			h.enable(kind, "true")
			after(2 * time.Second)
			wantList(t, kind+" is switched on again", h.states(kind), []string{"ok"})
			if r := h.runs(kind)[0]; !r.StartedAt.Equal(r.ScheduledFor) {
				t.Errorf("%s began %s after its moment", kind, r.StartedAt.Sub(r.ScheduledFor))
			}
		}
		h.close()
	})
}

func TestAPauseBehindAClaimedSlotRecordsTheSlotsThatPassed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := openCron(t, newStore())
		h.put(everySecond("tick", "hello"), func(j *cron.Job) {
			j.Schedule.EveryMs, j.Schedule.AnchorMs = 10_000, time.Now().Add(1500*time.Millisecond).UnixMilli()
		})
		after(1200 * time.Millisecond)
		wantList(t, "claimed ahead", h.ahead("tick"), []string{"tick"})
		if _, err := h.d.CronPause(t.Context(), "tick", "holidays", time.Time{}, operator()); err != nil {
			t.Fatal(err)
		}
		after(35 * time.Second)
		if _, err := h.d.CronResume(t.Context(), "tick", operator()); err != nil {
			t.Fatal(err)
		}
		wantList(t, "resumed", h.states("tick"), []string{"skipped paused x4"})
		after(10 * time.Second)
		wantList(t, "then", h.states("tick"), []string{"skipped paused x4", "ok"})
		h.close()
	})
}
