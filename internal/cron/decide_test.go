package cron

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"laneway/internal/cron/schedule"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// at reads an instant for a test.
func at(tb testing.TB, text string) time.Time {
	tb.Helper()
	got, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		tb.Fatalf("test instant: %v", err)
	}
	return got
}

func mustCompile(tb testing.TB, s schedule.Spec) schedule.Schedule {
	tb.Helper()
	sched, err := schedule.Compile(s)
	if err != nil {
		tb.Fatalf("Compile(%+v): %v", s, err)
	}
	return sched
}

func cronSpec(expr, tz string) schedule.Spec {
	return schedule.Spec{Kind: schedule.KindCron, Expr: expr, TZ: tz}
}

var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

func refused(t *testing.T, name string, err error, field string, reason schedule.InvalidReason, sentence string) {
	t.Helper()
	var got *schedule.InvalidError
	if !errors.As(err, &got) || !errors.Is(err, schedule.ErrInvalid) {
		t.Errorf("%s: err = %v, want an InvalidError", name, err)
		return
	}
	if got.Field != field || got.Reason != reason || !strings.Contains(got.Error(), sentence) {
		t.Errorf("%s: %s (field %s, reason %s), want %q in it (field %s, reason %s)",
			name, got, got.Field, got.Reason, sentence, field, reason)
	}
}

func wantFires(t *testing.T, name string, got []schedule.Fire, want ...string) {
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

func describe(d Decision) string {
	var parts []string
	for _, r := range d.Runs {
		parts = append(parts, fmt.Sprintf("%s %s", r.Trigger, r.Slot.Format("02T15:04:05")))
	}
	for _, m := range d.Missed {
		parts = append(parts, fmt.Sprintf("missed %s %d %s-%s", m.Reason, m.Count, m.First.Format("02T15:04:05"), m.Last.Format("02T15:04:05")))
	}
	if d.More {
		parts = append(parts, "next "+d.Next.Slot.Format("02T15:04:05"))
	}
	return strings.Join(parts, "; ")
}

func TestDecideSettlesEverySlotThatPassed(t *testing.T) {
	t.Parallel()
	hourly := cronSpec("0 * * * *", "UTC")
	second := schedule.Spec{Kind: schedule.KindEvery, EveryMs: 1000}
	for _, c := range []struct {
		name         string
		spec         schedule.Spec
		planned, now string
		policy       MissedPolicy
		edit         func(*Timetable)
		want         string
	}{
		{
			"a slot ahead is planned", hourly, "2026-11-20T12:00:00Z", "2026-11-20T11:59:59.2Z",
			MissedPolicy{},
			nil,
			"schedule 20T12:00:00; next 20T13:00:00",
		},
		{
			"a slot that is a little late is planned, whatever the policy", hourly, "2026-11-20T12:00:00Z", "2026-11-20T12:00:30Z",
			MissedPolicy{Rule: MissedSkip},
			nil,
			"schedule 20T12:00:00; next 20T13:00:00",
		},
		{
			"slots within two ticks all run", second, "2026-11-20T12:00:00Z", "2026-11-20T12:00:02Z",
			MissedPolicy{},
			nil,
			"schedule 20T12:00:00; schedule 20T12:00:01; schedule 20T12:00:02; next 20T12:00:03",
		},
		{
			"fire once runs the newest", hourly, "2026-11-20T09:00:00Z", "2026-11-20T12:10:00Z",
			MissedPolicy{},
			nil,
			"catchup 20T12:00:00; missed window 3 20T09:00:00-20T11:00:00; next 20T13:00:00",
		},
		{
			"fire once with a wide window", hourly, "2026-11-20T09:00:00Z", "2026-11-20T12:10:00Z",
			MissedPolicy{Window: 24 * time.Hour},
			nil,
			"catchup 20T12:00:00; missed policy 3 20T09:00:00-20T11:00:00; next 20T13:00:00",
		},
		{
			"a planned fire is the one of fire once", hourly, "2026-11-20T09:00:00Z", "2026-11-20T12:00:03Z",
			MissedPolicy{Window: 90 * time.Minute},
			nil,
			"schedule 20T12:00:00; missed window 2 20T09:00:00-20T10:00:00; missed policy 1 20T11:00:00-20T11:00:00; next 20T13:00:00",
		},
		{
			"the edge of the window is inside", hourly, "2026-11-20T10:00:00Z", "2026-11-20T11:40:00Z",
			MissedPolicy{Window: 40 * time.Minute},
			nil,
			"catchup 20T11:00:00; missed window 1 20T10:00:00-20T10:00:00; next 20T12:00:00",
		},
		{
			"past the edge of the window nothing runs", hourly, "2026-11-20T10:00:00Z", "2026-11-20T11:40:00.001Z",
			MissedPolicy{Window: 40 * time.Minute},
			nil,
			"missed window 2 20T10:00:00-20T11:00:00; next 20T12:00:00",
		},
		{
			"skip runs nothing that was missed", hourly, "2026-11-20T09:00:00Z", "2026-11-20T12:10:00Z",
			MissedPolicy{Rule: MissedSkip, Window: NoWindow},
			nil,
			"missed policy 4 20T09:00:00-20T12:00:00; next 20T13:00:00",
		},
		{
			"an empty window", hourly, "2026-11-20T11:00:00Z", "2026-11-20T12:10:00Z",
			MissedPolicy{Window: EmptyWindow},
			nil,
			"missed window 2 20T11:00:00-20T12:00:00; next 20T13:00:00",
		},
		{
			"fire all runs the newest, oldest first", hourly, "2026-11-20T02:00:00Z", "2026-11-20T12:10:00Z",
			MissedPolicy{Rule: MissedFireAll, MaxCatchup: 3, Window: 8 * time.Hour},
			nil,
			"catchup 20T10:00:00; catchup 20T11:00:00; catchup 20T12:00:00; missed window 3 20T02:00:00-20T04:00:00; " +
				"missed max_catchup 5 20T05:00:00-20T09:00:00; next 20T13:00:00",
		},
		{
			"fire all beside a planned fire", hourly, "2026-11-20T09:00:00Z", "2026-11-20T12:00:01Z",
			MissedPolicy{Rule: MissedFireAll, MaxCatchup: 2, Window: NoWindow},
			nil,
			"catchup 20T10:00:00; catchup 20T11:00:00; schedule 20T12:00:00; missed max_catchup 1 20T09:00:00-20T09:00:00; next 20T13:00:00",
		},
		{
			"three days of a job of one second", second, "2026-11-17T12:00:00Z", "2026-11-20T12:00:00Z",
			MissedPolicy{},
			nil,
			"schedule 20T12:00:00; missed window 255600 17T12:00:00-20T10:59:59; missed policy 3600 20T11:00:00-20T11:59:59; next 20T12:00:01",
		},
		{
			"an at always runs",
			schedule.Spec{Kind: schedule.KindAt, At: at(t, "2026-11-17T12:00:00Z")},
			"2026-11-17T12:00:00Z", "2026-11-20T12:00:00Z",
			MissedPolicy{},
			nil,
			"catchup 17T12:00:00",
		},
		{
			"an at is planned when it is a second late",
			schedule.Spec{Kind: schedule.KindAt, At: at(t, "2026-11-20T12:00:00Z")},
			"2026-11-20T12:00:00Z", "2026-11-20T12:00:01Z",
			MissedPolicy{},
			nil,
			"schedule 20T12:00:00",
		},
		{
			"the last of max runs", hourly, "2026-11-20T12:00:00Z", "2026-11-20T12:00:00Z",
			MissedPolicy{},
			func(tt *Timetable) { tt.MaxRuns, tt.Fired = 5, 4 },
			"schedule 20T12:00:00",
		},
		{
			"no more than max runs are caught up", hourly, "2026-11-20T09:00:00Z", "2026-11-20T12:10:00Z",
			MissedPolicy{Rule: MissedFireAll, Window: NoWindow},
			func(tt *Timetable) { tt.MaxRuns, tt.Fired = 5, 3 },
			"catchup 20T11:00:00; catchup 20T12:00:00; missed max_catchup 2 20T09:00:00-20T10:00:00",
		},
		{
			"max runs used up", hourly, "2026-11-20T12:00:00Z", "2026-11-20T12:00:00Z",
			MissedPolicy{},
			func(tt *Timetable) { tt.MaxRuns, tt.Fired = 5, 5 },
			"",
		},
		{
			"the end is reached", hourly, "2026-11-20T09:00:00Z", "2026-11-20T12:10:00Z",
			MissedPolicy{Window: NoWindow},
			func(tt *Timetable) { tt.EndsAt = at(t, "2026-11-20T11:00:00Z") },
			"catchup 20T11:00:00; missed policy 2 20T09:00:00-20T10:00:00",
		},
		{
			"a stored slot that the schedule forgot still runs", hourly, "2026-11-20T11:30:00Z", "2026-11-20T11:30:01Z",
			MissedPolicy{},
			nil,
			"schedule 20T11:30:00; next 20T12:00:00",
		},
		{
			"a stored slot that the schedule forgot is not lost in an outage", hourly, "2026-11-20T11:30:00Z", "2026-11-20T12:10:00Z",
			MissedPolicy{},
			nil,
			"catchup 20T12:00:00; missed policy 1 20T11:30:00-20T11:30:00; next 20T13:00:00",
		},
	} {
		tt := Timetable{Schedule: mustCompile(t, c.spec), JobID: "j"}
		if c.edit != nil {
			c.edit(&tt)
		}
		d := tt.Decide(DueSlot{Planned: at(t, c.planned), Now: at(t, c.now), Policy: c.policy})
		if got := describe(d); got != c.want {
			t.Errorf("%s:\ngot  %s\nwant %s", c.name, got, c.want)
		}
	}
}

func TestDecideReportsSlotsThatAGapSwallowed(t *testing.T) {
	t.Parallel()
	spec := cronSpec("30 2 * * *", "America/New_York")
	spec.Gap = schedule.GapSkip
	tt := Timetable{Schedule: mustCompile(t, spec)}
	planned := at(t, "2026-03-09T02:30:00-04:00")
	d := tt.Decide(DueSlot{Planned: planned, Previous: at(t, "2026-03-07T02:30:00-05:00"), Now: planned})
	wantFires(t, "lost", d.Lost, "2026-03-08T03:00:00-04:00")
	d = tt.Decide(DueSlot{Planned: planned.AddDate(0, 0, 1), Previous: planned, Now: planned.AddDate(0, 0, 1)})
	wantFires(t, "lost the day after", d.Lost)
}

func TestDecideMarksLateRuns(t *testing.T) {
	t.Parallel()
	planned := at(t, "2026-11-17T12:00:00Z")
	tt := Timetable{Schedule: mustCompile(t, schedule.Spec{Kind: schedule.KindAt, At: planned})}
	d := tt.Decide(DueSlot{Planned: planned, Now: planned.Add(72 * time.Hour)})
	if len(d.Runs) != 1 || d.Runs[0].Late != 72*time.Hour {
		t.Errorf("runs = %+v, want one that is 72 h late", d.Runs)
	}
	if d = tt.Decide(DueSlot{Planned: planned, Now: planned.Add(-time.Second)}); d.Runs[0].Late != 0 {
		t.Errorf("a run claimed early is %s late", d.Runs[0].Late)
	}
}

// drawTimetable draws schedules whose slots are close enough to be enumerated, with a jitter below
// their distance.
func drawTimetable(t *rapid.T) Timetable {
	zone := rapid.SampledFrom([]string{"UTC", "America/New_York", "Australia/Lord_Howe", "+05:30"}).Draw(t, "zone")
	expr := rapid.SampledFrom([]string{
		"*/7 * * * *", "0 * * * *", "30 2 * * *", "0,15 1-3 * * *", "0 9 * * 1-5", "*/20 * 1-3 * * *", "0 0 L * *",
	}).Draw(t, "expr")
	spec, jitter := cronSpec(expr, zone), int64(19_999)
	if rapid.Bool().Draw(t, "every") {
		spec = schedule.Spec{Kind: schedule.KindEvery, EveryMs: rapid.Int64Range(1000, 90_000_000).Draw(t, "everyMs")}
		jitter = min(jitter, spec.EveryMs-1)
	}
	s, err := schedule.Compile(spec)
	if err != nil {
		t.Fatal(err)
	}
	return Timetable{Schedule: s, JobID: "job", JitterMs: rapid.Int64Range(0, jitter).Draw(t, "jitter")}
}

func TestDecisionsAccountForEverySlotOnce(t *testing.T) {
	t.Parallel()
	start := at(t, "2026-10-30T00:00:00Z")
	rapid.Check(t, func(t *rapid.T) {
		tt := drawTimetable(t)
		policy := MissedPolicy{
			Rule:       rapid.SampledFrom([]MissedRule{MissedSkip, MissedFireOnce, MissedFireAll}).Draw(t, "rule"),
			MaxCatchup: rapid.IntRange(1, 5).Draw(t, "max"),
			Window:     rapid.SampledFrom([]time.Duration{NoWindow, EmptyWindow, time.Minute, time.Hour, 30 * time.Hour}).Draw(t, "window"),
		}
		first, ok := tt.Next(start)
		if !ok {
			t.Fatal("no first fire")
		}
		now, planned := first.At, first.Slot
		var settled int64
		for range 6 {
			now = now.Add(time.Duration(rapid.Int64Range(0, int64(40*time.Hour)).Draw(t, "pause")))
			d := tt.Decide(DueSlot{Planned: planned, Now: now, Policy: policy})
			last := time.Time{}
			for _, r := range d.Runs {
				if !r.Slot.After(last) || r.At.After(now) {
					t.Fatalf("run %+v is out of order or early at %s", r, now)
				}
				last = r.Slot
			}
			settled += int64(len(d.Runs))
			for _, m := range d.Missed {
				settled += m.Count
			}
			if !d.More || !d.Next.At.After(now) || !d.Next.Slot.After(planned) {
				t.Fatalf("next %+v does not follow %s at %s", d.Next, planned, now)
			}
			if want := tt.Schedule.Count(start, d.Next.Slot) - 1; settled != want {
				t.Fatalf("%d slots are settled, the plan has %d before %s", settled, want, d.Next.Slot)
			}
			planned = d.Next.Slot
			now = d.Next.At
		}
	})
}

func TestBetweenListsTheSlotsOfABackfill(t *testing.T) {
	t.Parallel()
	tt := Timetable{Schedule: mustCompile(t, cronSpec("0 9 * * *", "UTC")), MaxRuns: 1, Fired: 1}
	got, total := tt.Between(at(t, "2026-11-01T09:00:00Z"), at(t, "2026-11-11T09:00:00Z"), 3)
	if total != 10 {
		t.Errorf("total = %d, want 10", total)
	}
	wantFires(t, "fires", got, "2026-11-02T09:00:00Z", "2026-11-03T09:00:00Z", "2026-11-04T09:00:00Z")
	span, ok := tt.Span(ReasonPaused, at(t, "2026-11-01T09:00:00Z"), at(t, "2026-11-11T08:59:59Z"))
	want := MissedSpan{Reason: ReasonPaused, First: at(t, "2026-11-02T09:00:00Z"), Last: at(t, "2026-11-10T09:00:00Z"), Count: 9}
	if !ok || !span.First.Equal(want.First) || !span.Last.Equal(want.Last) || span.Count != want.Count || span.Reason != want.Reason {
		t.Errorf("Span = %+v, %v, want %+v", span, ok, want)
	}
	if _, ok := tt.Span(ReasonPaused, at(t, "2026-11-01T09:00:00Z"), at(t, "2026-11-01T12:00:00Z")); ok {
		t.Error("an empty span is reported")
	}
}

func BenchmarkDecide(b *testing.B) {
	hourly := Timetable{Schedule: mustCompile(b, cronSpec("0 * * * *", "America/New_York")), JobID: "j", JitterMs: 1000}
	planned := noon.Truncate(time.Hour)
	b.Run("in time", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if d := hourly.Decide(DueSlot{Planned: planned, Now: planned}); !d.More {
				b.Fatal("no next")
			}
		}
	})
	second := Timetable{Schedule: mustCompile(b, cronSpec("* * * * * *", "America/New_York")), JobID: "j"}
	b.Run("three days late, each second", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if d := second.Decide(DueSlot{Planned: planned.AddDate(0, 0, -3), Now: planned}); !d.More {
				b.Fatal("no next")
			}
		}
	})
}
