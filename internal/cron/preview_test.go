package cron

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"laneway/internal/cron/schedule"
)

func TestPreviewSaysWhatClockChangesDoToSlots(t *testing.T) {
	t.Parallel()
	from := at(t, "2026-11-20T12:00:00Z")
	for _, c := range []struct {
		zone, expr string
		gap        schedule.GapRule
		fold       schedule.FoldRule
		want       []string
	}{
		{zone: "Europe/Berlin", expr: "30 2 * * *", want: []string{
			"Sun 28 Mar 2027 02:30 does not exist that day: one run at 03:00 +02:00 (run after)",
			"Sun 31 Oct 2027 02:30 comes twice that day: runs once, at 02:30 +02:00 (first)",
		}},
		{zone: "Europe/Berlin", expr: "30 2 * * *", gap: schedule.GapSkip, fold: schedule.FoldSecond, want: []string{
			"Sun 28 Mar 2027 02:30 does not exist that day: no run (skip)",
			"Sun 31 Oct 2027 02:30 comes twice that day: runs once, at 02:30 +01:00 (second)",
		}},
		{zone: "America/New_York", expr: "15,45 1,2 * * *", fold: schedule.FoldBoth, want: []string{
			"Sun 14 Mar 2027 02:15 and 1 more do not exist that day: one run at 03:00 -04:00 (run after)",
			"Sun 7 Nov 2027 01:15 and 1 more come twice that day: runs at 01:15 -04:00 and again at 01:15 -05:00 (both)",
		}},
		{zone: "Australia/Lord_Howe", expr: "45 1,2 * * *", want: []string{
			"Sun 4 Apr 2027 01:45 comes twice that day: runs once, at 01:45 +11:00 (first)",
		}},
		{zone: "Australia/Lord_Howe", expr: "0 * * * *", want: []string{"Sun 3 Oct 2027 02:00 does not exist that day: no run (skip)"}},
		{zone: "Africa/Casablanca", expr: "30 2 * * *"}, // its clock does not change any more since 2026
		{zone: "America/Santiago", expr: "0 0 * * 0", want: []string{"Sun 5 Sep 2027 00:00 does not exist that day: one run at 01:00 -03:00 (run after)"}},
		{zone: "Asia/Kolkata", expr: "30 2 * * *"},
		{zone: "Europe/Berlin", expr: "0 9 * * *"},
		{zone: "Europe/Berlin", expr: "*/20 * * * *"}, // its interval stays the same in real time
		{zone: "Europe/Berlin", expr: "*/20 * * * *", gap: schedule.GapRunAfter, fold: schedule.FoldFirst, want: []string{
			"Sun 28 Mar 2027 02:00 and 2 more do not exist that day: one run at 03:00 +02:00 (run after)",
			"Sun 31 Oct 2027 02:00 and 2 more come twice that day: runs once, at 02:00 +02:00 (first)",
		}},
		{zone: "Europe/Berlin", expr: "0 */2 * * *", want: []string{ // its interval changes
			"Sun 28 Mar 2027 02:00 does not exist that day: no run (skip)",
			"Sun 31 Oct 2027 02:00 comes twice that day: runs at 02:00 +02:00 and again at 02:00 +01:00 (both)",
		}},
	} {
		spec := cronSpec(c.expr, c.zone)
		spec.Gap, spec.Fold = c.gap, c.fold
		var got []string
		for _, a := range (Timetable{Schedule: mustCompile(t, spec)}).Preview(from, 1).Affected {
			got = append(got, a.Text)
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s in %s, gap %q, fold %q (-want +got):\n%s", c.expr, c.zone, c.gap, c.fold, diff)
		}
	}
}

func TestClockChangesOutsideTheBoundsOfAJobAreNotShown(t *testing.T) {
	t.Parallel()
	s := mustCompile(t, cronSpec("30 2 * * *", "Europe/Berlin"))
	from := at(t, "2026-11-20T12:00:00Z")
	for name, c := range map[string]struct {
		tt   Timetable
		want int
	}{
		"no bounds":                   {Timetable{Schedule: s}, 2},
		"starts after the first":      {Timetable{Schedule: s, StartsAt: at(t, "2027-03-28T01:00:01Z")}, 1},
		"starts with it":              {Timetable{Schedule: s, StartsAt: at(t, "2027-03-28T01:00:00Z")}, 2},
		"ends before the second":      {Timetable{Schedule: s, EndsAt: at(t, "2027-10-31T00:29:59Z")}, 1},
		"ends with it":                {Timetable{Schedule: s, EndsAt: at(t, "2027-10-31T00:30:00Z")}, 2},
		"its runs end the day before": {Timetable{Schedule: s, MaxRuns: 127}, 0},
		"its last run is the first":   {Timetable{Schedule: s, MaxRuns: 128}, 1},
	} {
		if got := c.tt.Preview(from, 1).Affected; len(got) != c.want {
			t.Errorf("%s: %d changes, want %d: %+v", name, len(got), c.want, got)
		}
	}
	if got := (Timetable{Schedule: s}).Preview(at(t, "2027-10-31T00:30:00Z"), 1).Affected; len(got) != 2 || got[0].Kind != "gap" {
		t.Errorf("after the first 02:30 of October: %+v, want the gap of the next spring first", got)
	}
	spec := cronSpec("30 2 * * *", "Europe/Berlin")
	spec.Fold = schedule.FoldBoth
	if got := (Timetable{Schedule: mustCompile(t, spec)}).Preview(at(t, "2027-10-31T00:30:00Z"), 1).Affected; len(got) != 3 || len(got[0].Fires) != 1 || got[0].Fires[0].DST != schedule.DSTOverlapSecond {
		t.Errorf("between both 02:30 of October: %+v, want the second one first", got)
	}
}

// TestAffectedSlotsAreWhatFiresOverBothChanges compares the changes of a preview with a list of the wall times that the zone drops and repeats, and their fires
// with those of claims.
func TestAffectedSlotsAreWhatFiresOverBothChanges(t *testing.T) {
	t.Parallel()
	zones := []string{"Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Africa/Casablanca", "America/Santiago", "Asia/Kolkata"}
	var seen [2]int
	rapid.Check(t, func(t *rapid.T) {
		zone := rapid.SampledFrom(zones).Draw(t, "zone")
		minute, hour := rapid.IntRange(0, 11).Draw(t, "minute")*5, rapid.IntRange(0, 3).Draw(t, "hour")
		spec := cronSpec(fmt.Sprintf("%d,59 %d * * *", minute, hour), zone)
		spec.Gap = rapid.SampledFrom([]schedule.GapRule{schedule.GapRunAfter, schedule.GapSkip}).Draw(t, "gap")
		spec.Fold = rapid.SampledFrom([]schedule.FoldRule{schedule.FoldFirst, schedule.FoldSecond, schedule.FoldBoth}).Draw(t, "fold")
		s, err := schedule.Compile(spec)
		if err != nil {
			t.Fatal(err)
		}
		tt := Timetable{Schedule: s, JobID: "job", JitterMs: rapid.Int64Range(0, 30_000).Draw(t, "jitter")}
		from := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC).AddDate(0, 0, rapid.IntRange(0, 1000).Draw(t, "day"))
		got := tt.Preview(from, 1).Affected

		fired := claims(tt, from)
		var want []PreviewChange
		for end := from.In(s.Location()); ; {
			if _, end = end.ZoneBounds(); end.IsZero() || end.After(from.Add(changesReach)) {
				break
			}
			if c, ok := changeAt(end, hour, minute, spec, fired); ok {
				want = append(want, c)
				seen[min(1, len(c.Kind)-len("gap"))]++
			}
		}
		for i := range got {
			got[i].Text = ""
		}
		if diff := cmp.Diff(want, slices.Clip(got)); len(want)+len(got) > 0 && diff != "" {
			t.Fatalf("%+v (-want +got):\n%s", spec, diff)
		}
	})
	if seen[0] == 0 || seen[1] == 0 {
		t.Errorf("%d gaps and %d overlaps were drawn", seen[0], seen[1])
	}
}

// claims are the fires of 400 days, each claimed in time.
func claims(tt Timetable, from time.Time) []PreviewFire {
	var out []PreviewFire
	for fire, ok := tt.First(from); ok && !fire.Slot.After(from.Add(changesReach)); {
		d := tt.Decide(Claim{Planned: fire.Slot, Now: fire.At})
		out = append(out, previewFire(d.Runs[0].Fire, tt.Schedule.Location()))
		fire, ok = d.Next, d.More
	}
	return out
}

// changeAt finds the wall times of a job in each minute around a change of the zone.
func changeAt(change time.Time, hour, minute int, spec schedule.Spec, fired []PreviewFire) (PreviewChange, bool) {
	out := PreviewChange{AtMs: change.UnixMilli(), Kind: "gap", Rule: string(spec.Gap), Fires: []PreviewFire{}}
	count := func(wall time.Time) (n int) { // how often the zone shows it
		for _, at := range []time.Time{change.Add(-time.Second), change} {
			_, offset := at.Zone()
			if instant := wall.Add(-time.Duration(offset) * time.Second); instant.In(change.Location()).Format(time.DateTime) == wall.Format(time.DateTime) && instant.Before(change) == at.Before(change) {
				n++
			}
		}
		return n
	}
	_, offset := change.Zone()
	middle := change.UTC().Add(time.Duration(offset) * time.Second)
	for wall := middle.Add(-3 * time.Hour); wall.Before(middle.Add(3 * time.Hour)); wall = wall.Add(time.Minute) {
		n := count(wall)
		if n == 1 || wall.Hour() != hour || wall.Minute() != minute && wall.Minute() != 59 {
			continue
		}
		if out.Slots++; out.Slots > 1 {
			continue
		}
		out.Wall = wall.Format("2006-01-02T15:04:05")
		if n == 2 {
			out.Kind, out.Rule = "overlap", string(spec.Fold)
		}
		for _, f := range fired {
			slot := time.UnixMilli(f.ScheduledForMs).In(change.Location())
			if n == 2 && slot.Format("2006-01-02T15:04:05") == out.Wall || n == 0 && f.DST == schedule.DSTGapShifted && slot.Equal(change) {
				out.Fires = append(out.Fires, f)
			}
		}
	}
	return out, out.Slots > 0
}
