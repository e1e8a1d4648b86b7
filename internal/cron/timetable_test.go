package cron

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"laneway/internal/cron/schedule"
)

func TestPreviewIsWhatFires(t *testing.T) {
	t.Parallel()
	start := at(t, "2026-10-30T00:00:00Z")
	rapid.Check(t, func(t *rapid.T) {
		tt := drawTimetable(t)
		p := tt.Preview(start, 20)
		planned, ok := tt.First(start)
		for i, want := range p.Fires {
			if !ok || planned.Slot.UnixMilli() != want.ScheduledForMs || planned.At.UnixMilli() != want.FireAtMs {
				t.Fatalf("fire %d is %+v, the preview had %+v", i, planned, want)
			}
			d := tt.Decide(DueSlot{Planned: planned.Slot, Now: planned.At})
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
	got.Affected = nil // see TestPreviewSaysWhatClockChangesDoToSlots
	want := Preview{Timezone: "Europe/Berlin", Warnings: []string{}, Fires: []PreviewFire{
		{ScheduledForMs: 1806111000000, FireAtMs: 1806111000000, ISO: "2027-03-27T01:30:00.000Z", Local: "2027-03-27T02:30:00+01:00"},
		{ScheduledForMs: 1806195600000, FireAtMs: 1806195600000, ISO: "2027-03-28T01:00:00.000Z", Local: "2027-03-28T03:00:00+02:00", DST: schedule.DSTGapShifted},
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("preview (-want +got):\n%s", diff)
	}
}

func TestPreviewWarnsOfSurprises(t *testing.T) {
	t.Parallel()
	spec := cronSpec("30 2 * * *", "America/New_York")
	spec.Gap = schedule.GapSkip
	tt := Timetable{Schedule: mustCompile(t, spec)}
	p := tt.Preview(at(t, "2026-03-07T12:00:00-05:00"), 1)
	if len(p.Warnings) != 1 || p.Warnings[0] != "a slot before 2026-03-08 03:00 does not exist because the clock goes forward, and the rule is skip" {
		t.Errorf("warnings = %q", p.Warnings)
	}
	tt = Timetable{Schedule: mustCompile(t, cronSpec("0 9 */2 * 1", "UTC"))}
	if p = tt.Preview(noon, 1); len(p.Warnings) != 1 {
		t.Errorf("warnings of */2 beside a weekday = %q", p.Warnings)
	}
	tt = Timetable{Schedule: mustCompile(t, schedule.Spec{Kind: schedule.KindAt, At: noon})}
	if p = tt.Preview(noon, 5); len(p.Warnings) != 1 || len(p.Fires) != 0 || p.Timezone != "UTC" {
		t.Errorf("preview of an at that has passed = %+v", p)
	}
}

func TestTimetableKeepsItsBounds(t *testing.T) {
	t.Parallel()
	tt := Timetable{
		Schedule: mustCompile(t, cronSpec("0 * * * *", "UTC")),
		StartsAt: at(t, "2026-11-20T15:00:00Z"), EndsAt: at(t, "2026-11-20T17:00:00Z"),
	}
	var got []schedule.Fire
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
		reason   schedule.InvalidReason
		sentence string
	}{
		"negative jitter": {Timetable{Schedule: hourly, JitterMs: -1}, "jitterMs", schedule.InvalidRange, "0-3600000"},
		"long jitter":     {Timetable{Schedule: hourly, JitterMs: 3_600_001}, "jitterMs", schedule.InvalidRange, "0-3600000"},
		"wide jitter":     {Timetable{Schedule: minutely, JitterMs: 60_000}, "jitterMs", schedule.InvalidRange, "less than the 60000 ms"},
		"negative runs":   {Timetable{Schedule: hourly, MaxRuns: -1}, "maxRuns", schedule.InvalidRange, "negative"},
		"backwards":       {Timetable{Schedule: hourly, StartsAt: noon.Add(2 * time.Hour), EndsAt: noon.Add(time.Hour)}, "endsAtMs", schedule.InvalidRange, "before the start"},
		"ended":           {Timetable{Schedule: hourly, EndsAt: noon.Add(-time.Minute)}, "endsAtMs", schedule.InvalidNever, "has passed"},
		"over":            {Timetable{Schedule: hourly, EndsAt: noon.Add(time.Minute)}, "schedule", schedule.InvalidNever, "no fire is left"},
	} {
		refused(t, name, c.tt.Check(noon), c.field, c.reason, c.sentence)
	}
	for _, tt := range []Timetable{
		{Schedule: hourly, JitterMs: 3_599_999},
		{Schedule: minutely, JitterMs: 59_999},
		{Schedule: mustCompile(t, schedule.Spec{Kind: schedule.KindAt, At: noon.Add(-time.Minute)}), JitterMs: 3_600_000},
	} {
		if err := tt.Check(noon); err != nil {
			t.Errorf("%+v: %v", tt, err)
		}
	}
}

func TestAnAtOfTheLastMinuteStillFires(t *testing.T) {
	t.Parallel()
	tt := Timetable{Schedule: mustCompile(t, schedule.Spec{Kind: schedule.KindAt, At: noon.Add(-time.Minute)})}
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

func TestAnswersAreSentUntilTheNextSlot(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 7, 1, 7, 0, 1, 0, time.UTC)
	for name, c := range map[string]struct {
		expr    string
		maxRuns int
		want    time.Duration
	}{
		"each minute":         {"* * * * *", 0, time.Hour},
		"each three hours":    {"0 */3 * * *", 0, 2*time.Hour - time.Second},
		"each week":           {"0 9 * * MON", 0, 24 * time.Hour},
		"it has no more runs": {"* * * * *", 1, 24 * time.Hour},
	} {
		s, err := schedule.Compile(schedule.Spec{Kind: schedule.KindCron, Expr: c.expr, TZ: "UTC"})
		if err != nil {
			t.Fatal(err)
		}
		if got := (Timetable{Schedule: s, MaxRuns: c.maxRuns, Fired: c.maxRuns}).NotAfter(now).Sub(now); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}
