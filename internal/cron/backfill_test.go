package cron

import (
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestARunIDOfARepeatedBackfillIsTakenApart(t *testing.T) {
	t.Parallel()
	slot := time.UnixMilli(1_803_974_400_000).UTC()
	for n := 1; n < 12; n++ {
		id := RunID(BackfillTrigger(n), "job-1", slot)
		trigger, job, at, err := ParseRunID(id)
		if err != nil || trigger != BackfillTrigger(n) || job != "job-1" || !at.Equal(slot) || trigger.Kind() != TriggerBackfill || trigger.Planned() {
			t.Errorf("%s is %s %s %s (%v)", id, trigger, job, at, err)
		}
	}
	for _, id := range []string{
		"backfill:1:j:5", "backfill:0:j:5", "backfill:-2:j:5", "backfill:02:j:5", "backfill:+2:j:5", "backfill::j:5", "backfill:x:j:5", "schedule:2:j:5",
		"manual:2:j:5", "backfill:2::5", "backfill:2:j", "backfill:2:j:05", "backfill:2:3:j:5", "backfill:99999999999999999999:j:5",
	} {
		if trigger, job, _, err := ParseRunID(id); err == nil {
			t.Errorf("%s is taken for the run %s of %s", id, trigger, job)
		}
	}
}

// TestABackfillRepeatsWhatDidNotEndWell checks the rule on random ledgers: a new run has an unused trigger of its slot, and a backfill that is active, or that
// succeeded, is not repeated, except a successful one with force.
func TestABackfillRepeatsWhatDidNotEndWell(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		slots := []time.Time{time.UnixMilli(1), time.UnixMilli(2)}
		var ran []SlotRun
		have := map[Trigger]RunState{}
		triggers := []Trigger{TriggerSchedule, TriggerCatchup, TriggerManual, TriggerBackfill, BackfillTrigger(2), BackfillTrigger(7)}
		states := []RunState{RunQueued, RunRunning, RunRetrying, RunOK, RunError, RunSkipped, RunMissed, RunCancelled, RunInterrupted}
		for _, trigger := range rapid.SliceOfDistinct(rapid.SampledFrom(triggers), rapid.ID).Draw(t, "triggers") {
			state := rapid.SampledFrom(states).Draw(t, "state")
			have[trigger] = state
			ran = append(ran, SlotRun{slots[0], trigger, state}, SlotRun{slots[1], trigger, RunError})
		}
		force := rapid.Bool().Draw(t, "force")
		got, exists := NextBackfill(ran, slots[0], force)
		well, active := false, false
		for trigger, state := range have {
			well = well || state == RunOK
			active = active || (state.Active() && strings.HasPrefix(string(trigger), "backfill"))
		}
		if _, taken := have[got]; taken && !exists {
			t.Fatalf("%s is there already", got)
		}
		if want := active || (well && !force); exists != want {
			t.Fatalf("exists is %t, want %t: %v", exists, want, have)
		}
		if got.Kind() != TriggerBackfill || !got.Valid() {
			t.Fatalf("the trigger is %s", got)
		}
	})
}
