package cron

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"laneway/internal/cron/schedule"
	"laneway/internal/cron/schedule/zonetest"
)

// Runs that catch up wait for an active run: whatever the policy for missed slots allows waits, and
// overlap skips none of it.
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
			State: JobState{Plan: Plan{Next: now.Add(-10 * time.Minute), NextRunAt: now.Add(-10 * time.Minute)}},
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
			Schedule: schedule.Spec{Kind: schedule.KindEvery, EveryMs: 1000}, State: JobState{Plan: Plan{Next: now.Add(-time.Second), NextRunAt: now.Add(-time.Second)}},
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
			State: JobState{Plan: Plan{Next: now.Add(-3 * time.Hour), NextRunAt: now.Add(-3 * time.Hour)}, Fired: 4, ConsecutiveSkipped: 2},
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

// twoReleases are planners of an older and a newer release of the rules of America/Vancouver: the
// newer one has no winter time.
func twoReleases(t *testing.T) (older, newer *Planner) {
	t.Helper()
	return releases(t, "PST8PDT,M3.2.0,M11.1.0", "<-07>7")
}

func releases(t *testing.T, olderRule, newerRule string) (older, newer *Planner) {
	t.Helper()
	planner := func(release, rule string) *Planner {
		t.Setenv("ZONEINFO", zonetest.Write(t, release, map[string]string{"America/Vancouver": rule}))
		return NewPlanner(schedule.NewCompiler(0), PlannerConfig{})
	}
	return planner("2026a", olderRule), planner("2026f", newerRule)
}

// planned is a job in Vancouver whose next fire after a moment was found by a planner.
func planned(t *testing.T, p *Planner, expr string, after time.Time) Job {
	t.Helper()
	j := Job{ID: "j", Owner: "ann", Agent: "main", Session: Isolated, Enabled: true, Overlap: OverlapConcurrent, Schedule: schedule.Spec{Kind: schedule.KindCron, Expr: expr, TZ: "America/Vancouver"}}
	table, err := p.Timetable(j)
	if err != nil {
		t.Fatal(err)
	}
	first, ok := table.Next(after)
	if !ok {
		t.Fatalf("%s does not fire", expr)
	}
	j.State = JobState{Plan: table.PlanOf(first), ActivatedAt: after}
	return j
}

// claim decides about the next slot of a job when it is due.
func claim(t *testing.T, p *Planner, j Job, late time.Duration) (Job, Verdict) {
	t.Helper()
	v := p.Decide(j.State.NextRunAt.Add(late), []DueJob{{Job: j}})[0]
	if v.Invalid != "" || v.Disable {
		t.Fatalf("the job ends: %+v", v)
	}
	return j.Decided(v, 0), v
}

func TestTwoZoneReleasesFireNoLocalTimeTwice(t *testing.T) { //nolint:paralleltest // ZONEINFO belongs to the process
	summer, winter := "PST8PDT,M3.2.0,M11.1.0", "<-07>7"
	localTimesFireOnce(t, time.Date(2026, 12, 7, 0, 0, 0, 0, time.UTC), summer, winter)
	localTimesFireOnce(t, time.Date(2026, 12, 7, 0, 0, 0, 0, time.UTC), winter, summer)
	localTimesFireOnce(t, time.Date(2027, 3, 11, 0, 0, 0, 0, time.UTC), summer, "PST8")
	localTimesFireOnce(t, time.Date(2027, 3, 11, 0, 0, 0, 0, time.UTC), "PST8", summer)
	localTimesFireOnce(t, time.Date(2026, 10, 29, 0, 0, 0, 0, time.UTC), summer, winter)
	localTimesFireOnce(t, time.Date(2026, 10, 29, 0, 0, 0, 0, time.UTC), winter, summer)
}

// localTimesFireOnce checks that jobs of two processes with different rules fire each local time
// once, whichever of them claims and plans.
func localTimesFireOnce(t *testing.T, begin time.Time, olderRule, newerRule string) {
	t.Helper()
	older, newer := releases(t, olderRule, newerRule)
	for seed := range uint64(60) {
		dice := rand.New(rand.NewPCG(seed, 1))
		for expr, perDay := range map[string]int{"0 9 * * *": 1, "30 9,15 * * *": 2, "0 0 * * *": 1, "15 30 23 * * *": 1, "30 2 * * *": 1, "30 1 * * *": 1} {
			j := planned(t, older, expr, begin)
			walls := map[time.Time]bool{}
			for range 12 {
				wall, fired := j.State.NextWall, 0
				for fired == 0 {
					if dice.IntN(2) == 0 {
						if plan, ok := newer.Replan(j, j.State.NextRunAt.Add(-time.Duration(dice.IntN(180))*time.Minute)); ok {
							j.State.Plan = plan
						}
					}
					p := []*Planner{older, newer}[dice.IntN(2)]
					var v Verdict
					j, v = claim(t, p, j, 0)
					fired = len(v.Runs)
				}
				if walls[wall] || fired != 1 || !j.State.NextWall.After(wall) {
					t.Fatalf("seed %d, %s: %d runs for %s, then %s", seed, expr, fired, wall, j.State.NextWall)
				}
				walls[wall] = true
			}
			days := map[string]int{}
			for at := range walls {
				days[at.Format(time.DateOnly)]++
			}
			for day := begin.Add(24 * time.Hour); day.Before(begin.Add(time.Duration(12/perDay-2) * 24 * time.Hour)); day = day.Add(24 * time.Hour) {
				if n := days[day.Format(time.DateOnly)]; n != perDay {
					t.Fatalf("seed %d, %s: %d fires on %s, want %d", seed, expr, n, day.Format(time.DateOnly), perDay)
				}
			}
		}
	}
}

func TestRepeatingJobsFollowRealTimeUnderTwoReleases(t *testing.T) { //nolint:paralleltest // ZONEINFO belongs to the process
	older, newer := twoReleases(t)
	dice := rand.New(rand.NewPCG(7, 7))
	for expr, every := range map[string]time.Duration{"*/15 * * * *": 15 * time.Minute, "0 * * * *": time.Hour} {
		j := planned(t, newer, expr, time.Date(2026, 12, 7, 0, 1, 0, 0, time.UTC))
		for range 100 {
			before := j.State.Next
			if plan, ok := newer.Replan(j, before.Add(-time.Minute)); ok {
				j.State.Plan = plan
			}
			var v Verdict
			if j, v = claim(t, []*Planner{older, newer}[dice.IntN(2)], j, 0); len(v.Runs) != 1 || !j.State.Next.Equal(before.Add(every)) {
				t.Fatalf("%s: after %s comes %s, %d runs", expr, before, j.State.Next, len(v.Runs))
			}
		}
	}
}

// The right moment, 16:00 UTC, has passed when a newer release is there: the slot fires once as it
// was planned, at 17:00 UTC, also late.
func TestPassedSlotFiresOnceAsPlanned(t *testing.T) { //nolint:paralleltest // ZONEINFO belongs to the process
	older, newer := twoReleases(t)
	day := func(d, h, m int) time.Time { return time.Date(2026, 12, d, h, m, 0, 0, time.UTC) }
	j := planned(t, older, "0 9 * * *", day(10, 15, 0))
	if plan, ok := newer.Replan(j, day(10, 15, 59)); !ok || !plan.Next.Equal(day(10, 16, 0)) || plan.ZoneRelease != "2026f" || !plan.NextWall.Equal(j.State.NextWall) {
		t.Errorf("before the right moment: %+v, %t", plan, ok)
	}
	if plan, ok := newer.Replan(j, day(10, 16, 0)); ok {
		t.Errorf("after the right moment the plan became %+v", plan)
	}
	for _, late := range []time.Duration{0, time.Second, 20 * time.Second, 30 * time.Minute} {
		after, v := claim(t, newer, j, late)
		if len(v.Runs) != 1 || !v.Runs[0].Run.ScheduledFor.Equal(day(10, 17, 0)) || len(v.Rows) != 0 || !after.State.Next.Equal(day(11, 16, 0)) {
			t.Errorf("%s late: runs %+v, rows %+v, next %s", late, v.Runs, v.Rows, after.State.Next)
		}
	}
	skips := j
	skips.Missed = MissedPolicy{Rule: MissedSkip}
	if _, v := claim(t, newer, skips, time.Hour); len(v.Runs) != 0 || len(v.Rows) != 1 || v.Rows[0].State != RunMissed {
		t.Errorf("a job that skips missed slots: runs %+v, rows %+v", v.Runs, v.Rows)
	}
}

// A slot whose right moment is later moves there instead of firing an hour early.
func TestNewerReleaseMovesSlotsInsteadOfFiringEarly(t *testing.T) { //nolint:paralleltest // ZONEINFO belongs to the process
	newer, older := twoReleases(t) // 2026a plays the newer rules: its winter time is an hour behind
	newer.compiler, older.compiler = withRelease(t, "2026g", "PST8PDT,M3.2.0,M11.1.0"), withRelease(t, "2026f", "<-07>7")
	j := planned(t, older, "0 9 * * *", time.Date(2026, 12, 10, 15, 0, 0, 0, time.UTC))
	after, v := claim(t, newer, j, 0)
	if want := time.Date(2026, 12, 10, 17, 0, 0, 0, time.UTC); len(v.Runs) != 0 || !after.State.Next.Equal(want) || after.State.ZoneRelease != "2026g" {
		t.Errorf("%d runs, then %+v", len(v.Runs), after.State.Plan)
	}
	if _, v := claim(t, newer, after, 0); len(v.Runs) != 1 {
		t.Errorf("%d runs at the right moment", len(v.Runs))
	}
}

func withRelease(t *testing.T, release, rule string) *schedule.Compiler {
	t.Helper()
	t.Setenv("ZONEINFO", zonetest.Write(t, release, map[string]string{"America/Vancouver": rule}))
	return schedule.NewCompiler(0)
}

func TestJitterKeepsItsDelayUnderNewerRules(t *testing.T) { //nolint:paralleltest // ZONEINFO belongs to the process
	older, newer := twoReleases(t)
	j := planned(t, older, "0 9 * * *", time.Date(2026, 12, 10, 0, 0, 0, 0, time.UTC))
	j.JitterMs = (20 * time.Minute).Milliseconds()
	right := time.Date(2026, 12, 10, 16, 0, 0, 0, time.UTC)
	plan, ok := newer.Replan(j, right.Add(-time.Hour))
	if want := right.Add(Jitter(j.ID, right, j.JitterMs)); !ok || !plan.Next.Equal(right) || !plan.NextRunAt.Equal(want) {
		t.Errorf("the plan is %+v, want the start %s", plan, want)
	}
}

func TestResumedJobFiresNoLocalTimeAgain(t *testing.T) { //nolint:paralleltest // ZONEINFO belongs to the process
	older, newer := twoReleases(t)
	j := planned(t, newer, "0 9 * * *", time.Date(2026, 12, 10, 15, 0, 0, 0, time.UTC))
	j, v := claim(t, newer, j, 0) // 9:00 has run at 16:00 UTC
	if len(v.Runs) != 1 {
		t.Fatalf("%d runs", len(v.Runs))
	}
	paused := j.State.Next.Add(-24*time.Hour + 10*time.Minute)
	j.Pause, j.State.NextRunAt = &Pause{At: paused, Until: paused.Add(10 * time.Minute)}, paused.Add(10*time.Minute)
	j, v = claim(t, older, j, 0)
	if want := time.Date(2026, 12, 11, 17, 0, 0, 0, time.UTC); !j.State.Next.Equal(want) || len(v.Rows) != 0 {
		t.Errorf("resumed for %s with rows %+v, want %s", j.State.Next, v.Rows, want)
	}
}

// A backfill follows the rules of the process and leaves the plan alone.
func TestBackfillFollowsThePresentRules(t *testing.T) { //nolint:paralleltest // ZONEINFO belongs to the process
	older, newer := twoReleases(t)
	j := planned(t, older, "0 9 * * *", time.Date(2026, 12, 10, 0, 0, 0, 0, time.UTC))
	table, err := newer.Timetable(j)
	if err != nil {
		t.Fatal(err)
	}
	fires, _ := table.Between(time.Date(2026, 12, 8, 0, 0, 0, 0, time.UTC), time.Date(2026, 12, 10, 0, 0, 0, 0, time.UTC), 10)
	runs := newer.Backfill(DueJob{Job: j}, fires, false)
	if len(runs) != 2 || runs[0].Run.ScheduledFor.Hour() != 16 || runs[1].Run.ScheduledFor.Hour() != 16 {
		t.Errorf("the backfill runs %+v", runs)
	}
}

// 9:00 ran at 17:00 UTC by the older rules; the newer ones have it at 16:00.
func TestWhyNamesTheChangeOfTheRules(t *testing.T) { //nolint:paralleltest // ZONEINFO belongs to the process
	older, newer := twoReleases(t)
	j := planned(t, older, "0 9 * * *", time.Date(2026, 12, 10, 0, 0, 0, 0, time.UTC))
	j.CreatedAt = j.State.ActivatedAt
	ran := j.State.Next
	j, v := claim(t, newer, j, 0)
	row := v.Runs[0].Run
	row.State, row.StartedAt, row.Delivery = RunOK, ran, DeliveryDone
	table, err := newer.Timetable(j)
	if err != nil {
		t.Fatal(err)
	}
	e := Evidence{Job: &j, Timetable: &table, Rows: []Run{row}, Now: ran.Add(time.Hour), Zone: table.Schedule.Location()}
	const sentence = "by other clock rules of America/Vancouver (the present ones are those of 2026f), and kept its moment."
	if x := Explain(ran, e); x.Why != WhyRan || !strings.HasSuffix(x.Text, sentence) {
		t.Errorf("the run: %s: %s", x.Why, x.Text)
	}
	if x := Explain(ran.Add(-time.Hour), e); x.Why != WhyClock || !strings.HasPrefix(x.Text, "The slot was planned at Thu 10 Dec 10:00 "+sentence) {
		t.Errorf("the right moment: %s: %s", x.Why, x.Text)
	}
}

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

// TestABackfillRepeatsWhatDidNotEndWell checks the rule on random ledgers: a new run has an unused
// trigger of its slot, and a backfill that is active, or that succeeded, is not repeated, except a
// successful one with force.
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

func TestOverlapPolicyDecidesByActiveAndWaitingRuns(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		policy           OverlapPolicy
		active, buffered int
		action           OverlapAction
		reason           Reason
	}{
		{OverlapSkip, 0, 0, ActionRun, ReasonNone},
		{OverlapSkip, 1, 0, ActionSkip, ReasonOverlap},
		{"", 1, 0, ActionSkip, ReasonOverlap},
		{"later", 1, 0, ActionSkip, ReasonOverlap},
		{OverlapConcurrent, 9, 0, ActionRun, ReasonNone},
		{OverlapConcurrent, 10, 0, ActionSkip, ReasonOverlap},
		{OverlapBufferOne, 0, 0, ActionRun, ReasonNone},
		{OverlapBufferOne, 1, 0, ActionBuffer, ReasonNone},
		{OverlapBufferOne, 1, 1, ActionSkip, ReasonBufferFull},
		{OverlapBufferOne, 0, 1, ActionSkip, ReasonBufferFull},
		{OverlapCancelPrevious, 0, 0, ActionRun, ReasonNone},
		{OverlapCancelPrevious, 3, 1, ActionReplace, ReasonNone},
	} {
		action, reason := c.policy.Decide(c.active, c.buffered)
		if action != c.action || reason != c.reason {
			t.Errorf("%q.Decide(%d, %d) = %s, %q, want %s, %q", c.policy, c.active, c.buffered, action, reason, c.action, c.reason)
		}
	}
	refused(t, "unknown", OverlapPolicy("later").Check(), "overlap", schedule.InvalidChoice, "skip, concurrent, buffer_one and cancel_previous")
}

func TestRetryWaitsTwiceAsLongEachTime(t *testing.T) {
	t.Parallel()
	r := DefaultRetry()
	r.Retries = 10
	for n, seconds := range []int64{2, 4, 8, 16, 30, 30, 30, 30, 30, 30} {
		want := time.Duration(seconds) * time.Second
		for random, factor := range map[float64]float64{0: 0.75, 0.5: 1, math.Nextafter(1, 0): 1.25} {
			got, ok := r.Delay(n+1, func() float64 { return random })
			if off := math.Abs(float64(got) - float64(want)*factor); !ok || off > 1e3 {
				t.Errorf("Delay(%d) with %v = %s, want %s", n+1, random, got, time.Duration(float64(want)*factor))
			}
		}
	}
	for _, n := range []int{-1, 0, 11, math.MaxInt} {
		if d, ok := r.Delay(n, func() float64 { return 0 }); ok {
			t.Errorf("Delay(%d) = %s, want none", n, d)
		}
	}
	if d, ok := (Retry{Base: time.Second, Max: time.Second}).Delay(1, func() float64 { return 0 }); ok {
		t.Errorf("without retries Delay(1) = %s", d)
	}
}

func TestSettingsAreBounded(t *testing.T) {
	t.Parallel()
	good := Job{Retry: DefaultRetry(), Timeout: DefaultTimeout, PauseAfter: DefaultPauseAfter}
	if err := good.CheckSettings(); err != nil {
		t.Fatalf("defaults: %v", err)
	}
	for field, edit := range map[string]func(*Job){
		"overlap":              func(j *Job) { j.Overlap = "no" },
		"missed.policy":        func(j *Job) { j.Missed.Rule = "no" },
		"missed.maxCatchup":    func(j *Job) { j.Missed.MaxCatchup = 101 },
		"missed.windowSeconds": func(j *Job) { j.Missed.Window = MaxWindow + 1 },
		"retry.maxRetries":     func(j *Job) { j.Retry.Retries = 11 },
		"retry.baseMs":         func(j *Job) { j.Retry.Base = 99 * time.Millisecond },
		"retry.maxMs":          func(j *Job) { j.Retry.Max = time.Second },
		"timeoutSeconds":       func(j *Job) { j.Timeout = MaxTimeout + 1 },
		"pauseAfterFailures":   func(j *Job) { j.PauseAfter = -1 },
		"description":          func(j *Job) { j.Description = fmt.Sprintf("%2001d", 1) },
	} {
		bad := good
		edit(&bad)
		err := bad.CheckSettings()
		reason := schedule.InvalidRange
		if field == "overlap" || field == "missed.policy" {
			reason = schedule.InvalidChoice
		}
		refused(t, field, err, field, reason, field)
	}
}

func TestRunIDsCanBeTakenApart(t *testing.T) {
	t.Parallel()
	slot := time.UnixMilli(1803895260000).UTC()
	id := RunID(TriggerManual, "019c2a7e-41d0-7c2b-9a55-7be0c1d2e3f4", slot)
	if id != "manual:019c2a7e-41d0-7c2b-9a55-7be0c1d2e3f4:1803895260000" {
		t.Errorf("RunID = %s", id)
	}
	trigger, job, at, err := ParseRunID(id)
	if err != nil || trigger != TriggerManual || job != "019c2a7e-41d0-7c2b-9a55-7be0c1d2e3f4" || !at.Equal(slot) {
		t.Errorf("ParseRunID = %s, %s, %s, %v", trigger, job, at, err)
	}
	for _, bad := range []string{"", "manual", "manual:a", "often:a:1", "manual::1", "manual:a:b:1", "manual:a:01", "manual:a:+1", "manual:a:1x"} {
		if _, _, _, err := ParseRunID(bad); err == nil {
			t.Errorf("ParseRunID(%q) is accepted", bad)
		}
	}
}

func TestStatesAreActiveOrFinal(t *testing.T) {
	t.Parallel()
	active := map[RunState]bool{RunQueued: true, RunRunning: true, RunRetrying: true}
	for _, s := range []RunState{RunQueued, RunRunning, RunRetrying, RunOK, RunError, RunSkipped, RunMissed, RunCancelled, RunInterrupted} {
		if s.Active() != active[s] || s.Final() == active[s] || !s.Valid() {
			t.Errorf("%s: active %v, final %v, valid %v", s, s.Active(), s.Final(), s.Valid())
		}
	}
	if RunState("done").Valid() || Reason("because").Valid() || Trigger("often").Valid() {
		t.Error("an unknown word is valid")
	}
	if !ReasonGap.Valid() || !ReasonNone.Valid() || TriggerManual.Planned() || TriggerBackfill.Planned() || !TriggerCatchup.Planned() {
		t.Error("a known word is misread")
	}
}

func TestAJobGivesItsTimetable(t *testing.T) {
	t.Parallel()
	j := Job{ID: "j", JitterMs: 5, MaxRuns: 2, EndsAt: noon, State: JobState{Fired: 1}, Enabled: true}
	s := mustCompile(t, cronSpec("0 * * * *", "UTC"))
	want := Timetable{Schedule: s, JobID: "j", JitterMs: 5, MaxRuns: 2, Fired: 1, EndsAt: noon}
	if got := j.Timetable(s); got != want {
		t.Errorf("Timetable = %+v, want %+v", got, want)
	}
	if !j.MayFire() {
		t.Error("an enabled job may not fire")
	}
	j.Pause = &Pause{Note: "holidays"}
	if j.MayFire() {
		t.Error("a paused job may fire")
	}
}
