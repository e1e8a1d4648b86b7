package cron

import (
	"slices"
	"testing"
	"time"

	"laneway/internal/cron/schedule"
)

// Catching up behind a run that is still active: whatever the policy for missed slots lets run waits, and overlap skips none of it.
func TestCatchingUpWaitsBehindAnActiveRunWhateverTheOverlapPolicy(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		overlap   OverlapPolicy
		active    []string
		runs      int
		skipped   int
		reason    Reason
		cancelled int
	}{
		{OverlapSkip, nil, 5, 0, "", 0},
		{OverlapSkip, []string{"a"}, 5, 0, "", 0},
		{OverlapBufferOne, nil, 5, 0, "", 0}, // one after the other, in one session
		{OverlapBufferOne, []string{"a"}, 5, 0, "", 0},
		{OverlapBufferOne, []string{"a", "b"}, 5, 0, "", 0},
		{OverlapConcurrent, []string{"a"}, 5, 0, "", 0},
		{OverlapCancelPrevious, []string{"a"}, 5, 0, "", 1},
	} {
		j := Job{
			ID: "j", Owner: "ann", Agent: "main", Session: Isolated, Enabled: true, Overlap: c.overlap,
			Schedule: schedule.Spec{Kind: schedule.KindEvery, EveryMs: 60_000}, Missed: MissedPolicy{Rule: MissedFireAll, MaxCatchup: 5},
			State: JobState{Next: now.Add(-10 * time.Minute), NextRunAt: now.Add(-10 * time.Minute)},
		}
		verdicts := NewPlanner(schedule.NewCompiler(0), PlannerConfig{}).Decide(now.Add(45*time.Second), []DueJob{{Job: j, Active: c.active, Running: len(c.active)}})
		if len(verdicts) != 1 {
			t.Fatalf("%d verdicts", len(verdicts))
		}
		v := verdicts[0]
		skipped := slices.DeleteFunc(slices.Clone(v.Rows), func(r Run) bool { return r.State != RunSkipped })
		if len(v.Runs) != c.runs || len(skipped) != c.skipped || len(v.Cancel) != c.cancelled {
			t.Errorf("%s with %d active: %d run, %d skipped, %d cancelled, want %d, %d, %d", c.overlap, len(c.active), len(v.Runs), len(skipped), len(v.Cancel), c.runs, c.skipped, c.cancelled)
		}
		for _, r := range skipped {
			if r.Reason != c.reason || r.Trigger != TriggerCatchup {
				t.Errorf("%s: skipped with %s by %s", c.overlap, r.Reason, r.Trigger)
			}
		}
		if !slices.IsSortedFunc(v.Runs, func(a, b Launch) int { return a.Run.ScheduledFor.Compare(b.Run.ScheduledFor) }) {
			t.Errorf("%s: the oldest is not first", c.overlap)
		}
	}
}
