package schedule

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestEveryKeepsItsGrid(t *testing.T) {
	t.Parallel()
	s := mustCompile(t, Spec{Kind: KindEvery, EveryMs: 5000, AnchorMs: 1803895200123})
	from := time.UnixMilli(1803895200123)
	f, ok := s.Next(from.Add(-time.Hour))
	if !ok || !f.Slot.Equal(from) {
		t.Fatalf("the first fire is %s, want the anchor", f.Slot)
	}
	for k := range int64(17280) {
		if got := (f.Slot.UnixMilli() - 1803895200123); got != k*5000 {
			t.Fatalf("slot %d is %d ms after the anchor, want %d", k, got, k*5000)
		}
		f, _ = s.Next(f.Slot.Add(time.Duration(k%4999) * time.Millisecond))
	}
}

func TestEveryNeverOverflows(t *testing.T) {
	t.Parallel()
	s := mustCompile(t, Spec{Kind: KindEvery, EveryMs: 315_360_000_000, AnchorMs: latestAt().UnixMilli()})
	after := time.Date(9995, 1, 1, 0, 0, 0, 0, time.UTC)
	for f, ok := s.Next(after); ok; f, ok = s.Next(after) {
		if !f.Slot.After(after) || f.Slot.Year() > 9999 {
			t.Fatalf("Next(%s) = %s", after, f.Slot)
		}
		after = f.Slot
	}
	for _, extreme := range []time.Time{time.Unix(math.MaxInt64/2, 0), time.Unix(math.MinInt64/2, 0), {}} {
		if f, ok := s.Next(extreme); ok && !f.Slot.After(extreme) {
			t.Errorf("Next(%s) = %s", extreme, f.Slot)
		}
	}
}

func TestNextEndsWithTheYear9999(t *testing.T) {
	t.Parallel()
	s := mustCompile(t, cronSpec("0 0 1 1 *", "UTC"))
	if f, ok := s.Next(time.Date(9998, 6, 1, 0, 0, 0, 0, time.UTC)); !ok || f.Slot.Year() != 9999 {
		t.Errorf("Next in 9998 = %s, %v", f.Slot, ok)
	}
	if f, ok := s.Next(time.Date(9999, 6, 1, 0, 0, 0, 0, time.UTC)); ok {
		t.Errorf("Next in 9999 = %s, want none", f.Slot)
	}
	if f, ok := s.Next(time.Date(1969, 6, 1, 0, 0, 0, 5, time.UTC)); !ok || !f.Slot.Equal(time.Unix(0, 0)) {
		t.Errorf("Next in 1969 = %s, %v, want 1970", f.Slot, ok)
	}
	var zero Schedule
	if _, ok := zero.Next(noon); ok || zero.Count(noon, noon.AddDate(1, 0, 0)) != 0 {
		t.Error("the zero schedule fires")
	}
}

func TestRareExpressionsAreFound(t *testing.T) {
	t.Parallel()
	s := mustCompile(t, cronSpec("0 0 29 2 */7", "UTC")) // 29 February on a Sunday
	if f, ok := s.Next(at(t, "2088-03-01T00:00:00Z")); !ok || !f.Slot.Equal(at(t, "2128-02-29T00:00:00Z")) {
		t.Errorf("Next = %s, %v, want 2128-02-29", f.Slot, ok)
	}
	_, err := Check(cronSpec("0 0 29 2 */7", "UTC"), at(t, "2040-01-01T00:00:00Z"), Rules{})
	refused(t, "rare", err, "schedule.expr", InvalidNever, "within eight years")
	s, err = Check(cronSpec("0 0 29 2 *", "UTC"), at(t, "2096-02-29T00:00:00Z"), Rules{})
	if err != nil {
		t.Fatal(err)
	}
	if f, _ := s.Next(at(t, "2096-02-29T00:00:00Z")); !f.Slot.Equal(at(t, "2104-02-29T00:00:00Z")) {
		t.Errorf("Next = %s, want 2104-02-29", f.Slot)
	}
}

func TestNextIsLaterAndCountAgrees(t *testing.T) {
	t.Parallel()
	zones := allZones()
	known := NewCompiler(0)
	rapid.Check(t, func(t *rapid.T) {
		seed := rapid.Uint64().Draw(t, "seed")
		expr := randomExpression(rand.New(rand.NewPCG(seed, 1)))
		spec := Spec{
			Kind: KindCron, Expr: expr, TZ: rapid.SampledFrom(zones).Draw(t, "zone"),
			Gap:  rapid.SampledFrom([]GapRule{"", GapRunAfter, GapSkip}).Draw(t, "gap"),
			Fold: rapid.SampledFrom([]FoldRule{"", FoldFirst, FoldSecond, FoldBoth}).Draw(t, "fold"),
		}
		s, err := known.Compile(spec)
		if err != nil {
			t.Fatal(err)
		}
		start := time.Unix(rapid.Int64Range(-1e9, 5e9).Draw(t, "start"), rapid.Int64Range(0, 999_999_999).Draw(t, "nanos"))
		after := start
		for n := int64(1); n <= 40; n++ {
			f, ok := s.Next(after)
			if !ok {
				break
			}
			if !f.Slot.After(after) {
				t.Fatalf("%s %s: Next(%s) = %s", spec.TZ, expr, after, f.Slot)
			}
			if c := s.Count(start, f.Slot); c != n {
				t.Fatalf("%s %s: Count(%s, %s) = %d, want %d", spec.TZ, expr, start, f.Slot, c, n)
			}
			after = f.Slot
		}
	})
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

func BenchmarkNext(b *testing.B) {
	for _, expr := range []string{"0 9 * * 1-5", "*/15 * * * *", "* * * * * *", "30 3 L * *", "0 9 * * 1#1", "0 0 29 2 *"} {
		s := mustCompile(b, cronSpec(expr, "America/New_York"))
		b.Run(expr, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, ok := s.Next(noon); !ok {
					b.Fatal("no fire")
				}
			}
		})
	}
}

func TestQuietHoursEndOnTheWallClock(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ hours, zone, now, end string }{
		{"22:00-7:00", "Europe/Berlin", "2026-07-01T19:59:59Z", ""},
		{"22:00-7:00", "Europe/Berlin", "2026-07-01T20:00:00Z", "2026-07-02T05:00:00Z"},
		{"22:00-7:00", "Europe/Berlin", "2026-07-02T04:59:59Z", "2026-07-02T05:00:00Z"},
		{"22:00-7:00", "Europe/Berlin", "2026-07-02T05:00:00Z", ""},
		{"22:00-7:00", "Europe/Berlin", "2026-10-24T20:00:00Z", "2026-10-25T06:00:00Z"}, // the clock goes back
		{"12:30-14:00", "UTC", "2026-07-01T12:29:59Z", ""},
		{"12:30-14:00", "UTC", "2026-07-01T12:30:00Z", "2026-07-01T14:00:00Z"},
		{"0-24", "UTC", "2026-07-01T12:30:00Z", "an error"},
		{"23-24", "UTC", "2026-12-31T23:30:00Z", "2027-01-01T00:00:00Z"},
		{"22-25", "UTC", "2026-12-31T23:30:00Z", "an error"},
		{"22.30 – 6", "+02:00", "2026-07-01T20:30:00Z", "2026-07-02T04:00:00Z"},
	} {
		q, err := ParseQuiet(c.hours, c.zone)
		if (err != nil) != (c.end == "an error") {
			t.Errorf("%s: %v, want %q", c.hours, err, c.end)
		}
		if err != nil {
			continue
		}
		now, err := time.Parse(time.RFC3339, c.now)
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		if end, quiet := q.Ends(now); quiet {
			got = end.UTC().Format(time.RFC3339)
		}
		if got != c.end {
			t.Errorf("%s %s at %s: it ends %q, want %q", c.hours, c.zone, c.now, got, c.end)
		}
	}
}
