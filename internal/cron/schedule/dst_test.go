package schedule

import (
	"testing"
	"time"
)

func TestHourlyJobsFollowRealTimeThroughTheFold(t *testing.T) {
	t.Parallel()
	loc, err := LoadZone("America/New_York")
	if err != nil {
		t.Fatal(err)
	}
	from := time.Date(2026, 11, 1, 0, 0, 0, 0, loc).Add(-1)
	to := time.Date(2026, 11, 2, 0, 0, 0, 0, loc)
	for expr, want := range map[string]int{"30 * * * *": 25, "0 * * * *": 25, "*/15 * * * *": 100, "*/30 * * * * *": 3000} {
		got := fires(t, mustCompile(t, cronSpec(expr, "America/New_York")), from, to)
		if len(got) != want {
			t.Errorf("%s: %d fires on the day of 25 hours, want %d", expr, len(got), want)
		}
		apart := got[1].Slot.Sub(got[0].Slot)
		for i := 1; i < len(got); i++ {
			if d := got[i].Slot.Sub(got[i-1].Slot); d != apart {
				t.Errorf("%s: %s between %s and %s, want %s", expr, d, got[i-1].Slot, got[i].Slot, apart)
			}
		}
	}
}

func TestDailyJobsLiveOnAfterTheFold(t *testing.T) {
	t.Parallel()
	from := at(t, "2026-10-31T23:59:59-04:00")
	to := at(t, "2026-11-04T00:00:00-05:00")
	for expr, want := range map[string][]string{
		"0 9 * * *":  {"2026-11-01T09:00:00-05:00", "2026-11-02T09:00:00-05:00", "2026-11-03T09:00:00-05:00"},
		"30 7 * * *": {"2026-11-01T07:30:00-05:00", "2026-11-02T07:30:00-05:00", "2026-11-03T07:30:00-05:00"},
	} {
		wantFires(t, expr, fires(t, mustCompile(t, cronSpec(expr, "America/New_York")), from, to), want...)
	}
}

func wantFires(t *testing.T, name string, got []Fire, want ...string) {
	t.Helper()
	if len(got) != len(want) {
		t.Errorf("%s: %d fires %v, want %v", name, len(got), got, want)
		return
	}
	for i, w := range want {
		if !got[i].Slot.Equal(at(t, w)) {
			t.Errorf("%s: fire %d at %s, want %s", name, i, got[i].Slot, w)
		}
	}
}

func TestFoldRuleChoosesAmongTheTwoTimes(t *testing.T) {
	t.Parallel()
	from, to := at(t, "2026-11-01T00:00:00-04:00"), at(t, "2026-11-01T12:00:00-05:00")
	const first, second = "2026-11-01T01:30:00-04:00", "2026-11-01T01:30:00-05:00"
	for rule, want := range map[FoldRule][]string{
		"": {first}, FoldFirst: {first}, FoldSecond: {second}, FoldBoth: {first, second},
	} {
		spec := cronSpec("30 1 * * *", "America/New_York")
		spec.Fold = rule
		got := fires(t, mustCompile(t, spec), from, to)
		wantFires(t, string(rule), got, want...)
		for i, f := range got {
			note := DSTOverlapFirst
			if want[i] == second {
				note = DSTOverlapSecond
			}
			if f.DST != note {
				t.Errorf("%s: note of %s is %q, want %q", rule, f.Slot, f.DST, note)
			}
		}
	}
}

func TestDailyJobInTheGapRunsAfterIt(t *testing.T) {
	t.Parallel()
	cases := []struct{ expr, tz, from, to, want string }{
		{"30 2 * * *", "America/New_York", "2026-03-08T00:00:00-05:00", "2026-03-09T00:00:00-04:00", "2026-03-08T03:00:00-04:00"},
		{"0 0 * * *", "America/Sao_Paulo", "2018-11-03T12:00:00-03:00", "2018-11-04T12:00:00-02:00", "2018-11-04T01:00:00-02:00"},
		{"15 2 * * *", "Australia/Lord_Howe", "2026-10-04T00:00:00+10:30", "2026-10-04T12:00:00+11:00", "2026-10-04T02:30:00+11:00"},
		{"0 0 * * *", "America/Santiago", "2026-09-05T12:00:00-04:00", "2026-09-06T12:00:00-03:00", "2026-09-06T01:00:00-03:00"},
		{"0 0 * * *", "America/Havana", "2026-03-07T12:00:00-05:00", "2026-03-08T12:00:00-04:00", "2026-03-08T01:00:00-04:00"},
		{"30 0 * * *", "Atlantic/Azores", "2026-03-28T12:00:00-01:00", "2026-03-29T12:00:00+00:00", "2026-03-29T01:00:00+00:00"},
		{"30 2 * * *", "Antarctica/Troll", "2026-03-28T12:00:00+00:00", "2026-03-29T12:00:00+02:00", "2026-03-29T03:00:00+02:00"},
		{"*/10 1-2 * * *", "Antarctica/Troll", "2026-03-29T00:55:00+00:00", "2026-03-29T12:00:00+02:00", "2026-03-29T03:00:00+02:00"},
		{"0 9 * * *", "Pacific/Apia", "2011-12-29T12:00:00-10:00", "2011-12-31T05:00:00+14:00", "2011-12-31T00:00:00+14:00"},
	}
	for _, c := range cases {
		spec := cronSpec(c.expr, c.tz)
		spec.Gap = GapRunAfter
		got := fires(t, mustCompile(t, spec), at(t, c.from), at(t, c.to))
		wantFires(t, c.tz+" "+c.expr, got, c.want)
		if len(got) == 1 && got[0].DST != DSTGapShifted {
			t.Errorf("%s %s: note %q, want %q", c.tz, c.expr, got[0].DST, DSTGapShifted)
		}
		spec.Gap = GapSkip
		skipping := mustCompile(t, spec)
		wantFires(t, c.tz+" "+c.expr+" skip", fires(t, skipping, at(t, c.from), at(t, c.to)))
		lost := skipping.Lost(at(t, c.from), at(t, c.to))
		wantFires(t, c.tz+" "+c.expr+" lost", lost, c.want)
	}
}

func TestSlotsOfOneGapJoinTheFireAfterIt(t *testing.T) {
	t.Parallel()
	spec := cronSpec("0,30 2,3 * * *", "America/New_York")
	from, to := at(t, "2026-03-08T00:00:00-05:00"), at(t, "2026-03-09T00:00:00-04:00")
	got := fires(t, mustCompile(t, spec), from, to)
	wantFires(t, "run_after", got, "2026-03-08T03:00:00-04:00", "2026-03-08T03:30:00-04:00")
	spec.Gap = GapSkip
	if lost := mustCompile(t, spec).Lost(from, to); len(lost) != 0 {
		t.Errorf("Lost = %v, but the instant after the gap fires anyway", lost)
	}
}

func TestJobsThatFollowRealTimeLoseNothingInTheGap(t *testing.T) {
	t.Parallel()
	s := mustCompile(t, cronSpec("30 * * * *", "America/New_York"))
	from, to := at(t, "2026-03-08T00:00:00-05:00"), at(t, "2026-03-09T00:00:00-04:00")
	if got := fires(t, s, from, to); len(got) != 23 {
		t.Errorf("%d fires on the day of 23 hours, want 23", len(got))
	}
	if lost := s.Lost(from, to); len(lost) != 0 {
		t.Errorf("Lost = %v, want none", lost)
	}
}

func TestRulesHaveDefaultsByTheHourField(t *testing.T) {
	t.Parallel()
	for expr, want := range map[string]struct {
		gap  GapRule
		fold FoldRule
	}{
		"30 2 * * *":       {GapRunAfter, FoldFirst},
		"0 8-18 * * *":     {GapRunAfter, FoldFirst},
		"@daily":           {GapRunAfter, FoldFirst},
		"*/5 * * * *":      {GapSkip, FoldBoth},
		"0 */2 * * *":      {GapSkip, FoldBoth},
		"0 8-18/2 * * *":   {GapSkip, FoldBoth},
		"@hourly":          {GapSkip, FoldBoth},
		"0 0 1,5/3 1 * *":  {GapSkip, FoldBoth},
		"15 30 4 * * *":    {GapRunAfter, FoldFirst},
		"0 0 1,13 1 1 MON": {GapRunAfter, FoldFirst},
	} {
		gap, fold := mustCompile(t, cronSpec(expr, "UTC")).Rules()
		if gap != want.gap || fold != want.fold {
			t.Errorf("%s: rules %s, %s, want %s, %s", expr, gap, fold, want.gap, want.fold)
		}
	}
}
