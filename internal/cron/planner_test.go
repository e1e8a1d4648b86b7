package cron

import (
	"slices"
	"testing"
	"time"

	"laneway/internal/cron/schedule"
)

// Runs that catch up wait for an active run: whatever the policy for missed slots allows waits, and overlap skips none of it.
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
		before := "" // the session of the active run
		if len(c.active) > 0 {
			before = "agent:main:cron:j:a"
		}
		verdicts := NewPlanner(schedule.NewCompiler(0), PlannerConfig{}).Decide(now.Add(45*time.Second), []DueJob{{Job: j, Active: c.active, Session: before, Running: len(c.active)}})
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
		shared := before != "" && c.overlap == OverlapSkip // the runs of a job that buffers share a session of their own
		for _, l := range v.Runs {
			if key := l.Run.SessionKey; key != v.Runs[0].Run.SessionKey || (key == before) != shared {
				t.Errorf("%s with %d active: a run catches up in %s, want one session for all, which is %q: %t", c.overlap, len(c.active), key, before, shared)
			}
		}
	}
}

// Two slots that one claim finds on time overlap each other as in two claims.
func TestSlotsOfOneClaimOverlapEachOther(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)
	for overlap, want := range map[OverlapPolicy][2]int{ // runs and skipped slots
		OverlapSkip: {1, 1}, OverlapBufferOne: {2, 0}, OverlapConcurrent: {2, 0}, OverlapCancelPrevious: {2, 0},
	} {
		j := Job{
			ID: "j", Owner: "ann", Agent: "main", Session: Isolated, Enabled: true, Overlap: overlap,
			Schedule: schedule.Spec{Kind: schedule.KindEvery, EveryMs: 1000}, State: JobState{Next: now.Add(-time.Second), NextRunAt: now.Add(-time.Second)},
		}
		v := NewPlanner(schedule.NewCompiler(0), PlannerConfig{}).Decide(now, []DueJob{{Job: j}})[0]
		if got := [2]int{len(v.Runs), len(v.Rows)}; got != want {
			t.Errorf("%s: %d runs and %d skipped slots, want %d and %d", overlap, got[0], got[1], want[0], want[1])
		}
		for _, row := range v.Rows {
			if row.State != RunSkipped || row.Reason != ReasonOverlap {
				t.Errorf("%s: %s, %s", overlap, row.State, row.Reason)
			}
		}
	}
}

// Jobs whose agent is missing: only slots beyond the catch-up window are missed.
func TestSlotsOfAMissingAgentAreMissedAfterTheCatchUpWindow(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)
	hourly := func(change func(j *Job)) Job {
		j := Job{
			ID: "j", Owner: "ann", Agent: "coder", Session: Isolated, Enabled: true, Schedule: schedule.Spec{Kind: schedule.KindCron, Expr: "0 * * * *", TZ: "UTC"},
			State: JobState{Next: now.Add(-3 * time.Hour), NextRunAt: now.Add(-3 * time.Hour), Fired: 4, ConsecutiveSkipped: 2},
		}
		change(&j)
		return j
	}
	at := schedule.Spec{Kind: schedule.KindAt, At: now.Add(-3 * time.Hour)}
	for name, c := range map[string]struct {
		change func(j *Job)
		missed int64
		next   time.Time // zero = no verdict, or the job has ended
		over   bool
	}{
		"an hour is the default":        {func(*Job) {}, 2, now.Add(-time.Hour), false},
		"a longer window":               {func(j *Job) { j.Missed.Window = 90 * time.Minute }, 2, now.Add(-time.Hour), false},
		"a window that has all of them": {func(j *Job) { j.Missed.Window = 3 * time.Hour }, 0, time.Time{}, false},
		"no window":                     {func(j *Job) { j.Missed.Window = NoWindow }, 0, time.Time{}, false},
		"an empty window":               {func(j *Job) { j.Missed.Window = EmptyWindow }, 3, now, false},
		"once, which waits":             {func(j *Job) { j.Schedule = at }, 0, time.Time{}, false},
		"once, within an hour":          {func(j *Job) { j.Schedule, j.Missed.Window = at, time.Hour }, 1, time.Time{}, true},
		"paused":                        {func(j *Job) { j.Pause = &Pause{At: now.Add(-4 * time.Hour)} }, 0, time.Time{}, false},
		"of the gateway":                {func(j *Job) { j.Owner = SystemOwner }, 0, time.Time{}, false},
	} {
		j := hourly(c.change)
		verdicts := NewPlanner(schedule.NewCompiler(0), PlannerConfig{}).GiveUp(now, []DueJob{{Job: j}})
		if c.missed == 0 {
			if len(verdicts) != 0 {
				t.Errorf("%s: %+v, want no verdict", name, verdicts)
			}
			continue
		}
		if len(verdicts) != 1 || len(verdicts[0].Rows) != 1 {
			t.Errorf("%s: %+v, want one row", name, verdicts)
			continue
		}
		v, row := verdicts[0], verdicts[0].Rows[0]
		if row.State != RunMissed || row.Reason != ReasonNoAgent || row.SlotCount != c.missed || !row.ScheduledFor.Equal(j.State.Next) {
			t.Errorf("%s: the row %+v, want %d slots", name, row, c.missed)
		}
		if !v.Next.Equal(c.next) || v.Disable != c.over || v.Fired != 4 || v.ConsecutiveSkipped != 2 || len(v.Runs) != 0 {
			t.Errorf("%s: %+v, want the next slot at %s, over %t", name, v, c.next, c.over)
		}
	}
}
