package cron

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/adhocore/gronx"
	"github.com/google/go-cmp/cmp"
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

// The second judge is gronx itself, on a clock that is UTC and with seven fields.
func TestSearchAgreesWithGronxInUTC(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(7, 8))
	compared := 0
	for range 1500 {
		second := []string{"0", "*/17", "5,30-33", "59", "*"}[r.IntN(5)]
		expr := second + " " + randomExpression(r)
		parsed, err := parseExpr(expr)
		if err != nil {
			t.Fatalf("%s: %v", expr, err)
		}
		f, err := compile(parsed)
		if err != nil {
			t.Fatalf("%s: %v", expr, err)
		}
		start := time.Unix(1_700_000_000+r.Int64N(200_000_000), 0).UTC()
		want, err := gronx.NextTickAfter(expr+" *", start, false)
		if err != nil {
			continue // gronx gives up on rare dates; the walking judge covers those
		}
		compared++
		got, ok := f.next(wall(start.Unix()+1), wall(start.Unix()+reach))
		if !ok || int64(got) != want.Unix() {
			t.Errorf("%s after %s: %s, gronx says %s", expr, start, time.Unix(int64(got), 0).UTC(), want)
		}
	}
	if compared < 1200 {
		t.Errorf("only %d of 1500 expressions were compared", compared)
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

func TestPreviewIsWhatFires(t *testing.T) {
	t.Parallel()
	start := at(t, "2026-10-30T00:00:00Z")
	rapid.Check(t, func(t *rapid.T) {
		tt := drawTimetable(t)
		p := tt.Preview(start, 20)
		planned, ok := tt.First(start)
		for i, want := range p.Fires {
			if !ok || planned.Slot.UnixMilli() != want.ScheduledForMs || planned.At.UnixMilli() != want.FireAtMs {
				t.Fatalf("fire %d is %+v, the preview said %+v", i, planned, want)
			}
			d := tt.Decide(Claim{Planned: planned.Slot, Now: planned.At})
			if len(d.Runs) != 1 || d.Runs[0].Fire != planned || len(d.Missed) != 0 {
				t.Fatalf("claimed in time, %+v gives %+v", planned, d)
			}
			planned, ok = d.Next, d.More
		}
	})
}

func TestPreviewShowsLocalTimeAndTheReasonForAShift(t *testing.T) {
	t.Parallel()
	tt := Timetable{Schedule: mustCompile(t, cronSpec("30 2 * * *", "Europe/Berlin"))}
	got := tt.Preview(time.UnixMilli(1806105600000), 2)
	want := Preview{Timezone: "Europe/Berlin", Warnings: []string{}, Fires: []PreviewFire{
		{ScheduledForMs: 1806111000000, FireAtMs: 1806111000000, ISO: "2027-03-27T01:30:00.000Z", Local: "2027-03-27T02:30:00+01:00"},
		{ScheduledForMs: 1806195600000, FireAtMs: 1806195600000, ISO: "2027-03-28T01:00:00.000Z", Local: "2027-03-28T03:00:00+02:00", DST: DSTGapShifted},
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("preview (-want +got):\n%s", diff)
	}
}

func TestPreviewWarnsOfSurprises(t *testing.T) {
	t.Parallel()
	spec := cronSpec("30 2 * * *", "America/New_York")
	spec.Gap = GapSkip
	tt := Timetable{Schedule: mustCompile(t, spec)}
	p := tt.Preview(at(t, "2026-03-07T12:00:00-05:00"), 1)
	if len(p.Warnings) != 1 || p.Warnings[0] != "a slot before 2026-03-08 03:00 does not exist because the clock goes forward, and the rule is skip" {
		t.Errorf("warnings = %q", p.Warnings)
	}
	tt = Timetable{Schedule: mustCompile(t, cronSpec("0 9 */2 * 1", "UTC"))}
	if p = tt.Preview(noon, 1); len(p.Warnings) != 1 {
		t.Errorf("warnings of */2 beside a weekday = %q", p.Warnings)
	}
	tt = Timetable{Schedule: mustCompile(t, Spec{Kind: KindAt, At: noon})}
	if p = tt.Preview(noon, 5); len(p.Warnings) != 1 || len(p.Fires) != 0 || p.Timezone != "UTC" {
		t.Errorf("preview of an at that is over = %+v", p)
	}
}

func TestTimetableKeepsItsBounds(t *testing.T) {
	t.Parallel()
	tt := Timetable{
		Schedule: mustCompile(t, cronSpec("0 * * * *", "UTC")),
		StartsAt: at(t, "2026-11-20T15:00:00Z"), EndsAt: at(t, "2026-11-20T17:00:00Z"),
	}
	var got []Fire
	for f, ok := tt.First(noon); ok; f, ok = tt.Next(f.Slot) {
		got = append(got, f)
	}
	wantFires(t, "bounds", got, "2026-11-20T15:00:00Z", "2026-11-20T16:00:00Z", "2026-11-20T17:00:00Z")
	tt.MaxRuns = 2
	if p := tt.Preview(noon, 10); len(p.Fires) != 2 {
		t.Errorf("%d fires with two runs left", len(p.Fires))
	}
}

func TestTimetableCheckNamesTheBound(t *testing.T) {
	t.Parallel()
	hourly := mustCompile(t, cronSpec("0 * * * *", "UTC"))
	minutely := mustCompile(t, cronSpec("* * * * *", "UTC"))
	for name, c := range map[string]struct {
		tt       Timetable
		field    string
		reason   InvalidReason
		sentence string
	}{
		"negative jitter": {Timetable{Schedule: hourly, JitterMs: -1}, "jitterMs", InvalidRange, "0-3600000"},
		"long jitter":     {Timetable{Schedule: hourly, JitterMs: 3_600_001}, "jitterMs", InvalidRange, "0-3600000"},
		"wide jitter":     {Timetable{Schedule: minutely, JitterMs: 60_000}, "jitterMs", InvalidRange, "less than the 60000 ms"},
		"negative runs":   {Timetable{Schedule: hourly, MaxRuns: -1}, "maxRuns", InvalidRange, "negative"},
		"backwards":       {Timetable{Schedule: hourly, StartsAt: noon.Add(2 * time.Hour), EndsAt: noon.Add(time.Hour)}, "endsAtMs", InvalidRange, "before the start"},
		"over":            {Timetable{Schedule: hourly, EndsAt: noon.Add(time.Minute)}, "schedule", InvalidNever, "no fire is left"},
	} {
		refused(t, name, c.tt.Check(noon), c.field, c.reason, c.sentence)
	}
	for _, tt := range []Timetable{
		{Schedule: hourly, JitterMs: 3_599_999},
		{Schedule: minutely, JitterMs: 59_999},
		{Schedule: mustCompile(t, Spec{Kind: KindAt, At: noon.Add(-time.Minute)}), JitterMs: 3_600_000},
	} {
		if err := tt.Check(noon); err != nil {
			t.Errorf("%+v: %v", tt, err)
		}
	}
}

func TestAnAtOfTheLastMinuteStillFires(t *testing.T) {
	t.Parallel()
	tt := Timetable{Schedule: mustCompile(t, Spec{Kind: KindAt, At: noon.Add(-time.Minute)})}
	if f, ok := tt.First(noon); !ok || !f.Slot.Equal(noon.Add(-time.Minute)) {
		t.Errorf("First = %+v, %v", f, ok)
	}
	if f, ok := tt.First(noon.Add(time.Millisecond)); ok {
		t.Errorf("First = %+v after the minute of grace", f)
	}
}

func TestJitterIsTheSameInEveryRelease(t *testing.T) {
	t.Parallel()
	slot := time.UnixMilli(1803974400000)
	for _, c := range []struct {
		job  string
		max  int64
		want time.Duration
	}{{"a", 0, 0}, {"a", -5, 0}, {"a", 3_600_000, 2_444_081 * time.Millisecond}, {"b", 3_600_000, 798_040 * time.Millisecond}} {
		if got := Jitter(c.job, slot, c.max); got != c.want {
			t.Errorf("Jitter(%q, %d) = %d, want %d", c.job, c.max, got.Milliseconds(), c.want.Milliseconds())
		}
	}
}

func TestJitterSpreadsEvenly(t *testing.T) {
	t.Parallel()
	const most, slots = 9, 20000
	var seen [most + 1]int
	for i := range slots {
		j := Jitter("job", time.UnixMilli(int64(i)*60_000), most)
		if j < 0 || j > most*time.Millisecond || j%time.Millisecond != 0 {
			t.Fatalf("jitter %s is outside 0-%d ms", j, most)
		}
		seen[j.Milliseconds()]++
	}
	if least, top := slices.Min(seen[:]), slices.Max(seen[:]); least < 1800 || top > 2200 {
		t.Errorf("20000 slots fall unevenly on 10 values: %v", seen)
	}
}
