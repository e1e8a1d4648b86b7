package cron

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"laneway/internal/cron/schedule"
)

// matrixTable are the decisions of a claim after an outage: for a job that fires once (at) or each
// minute (every and cron, which must not differ), by its policy for missed slots. The first column
// of results is a job without an active run, whatever its policy for overlaps, and with one under
// concurrent. The second is a job with an active run under skip, the third under cancel_previous,
// the fourth under buffer_one. Runs that catch up wait for the active run.
//
// Slots are counted from 0, with which the outage began. fire_all catches up three; the window is
// an hour, and unlimited for at. A run is written as its trigger, a row without a run as state and
// reason, and an active run that was asked to stop as its reason.
const matrixTable = `
1s       | once      | skip      | schedule 0                                                                                   | skipped overlap 0                                                                            | replaced, schedule 0                                                                                   | schedule 0
1s       | once      | fire_once | schedule 0                                                                                   | skipped overlap 0                                                                            | replaced, schedule 0                                                                                   | schedule 0
1s       | once      | fire_all  | schedule 0                                                                                   | skipped overlap 0                                                                            | replaced, schedule 0                                                                                   | schedule 0
1s       | recurring | skip      | schedule 0                                                                                   | skipped overlap 0                                                                            | replaced, schedule 0                                                                                   | schedule 0
1s       | recurring | fire_once | schedule 0                                                                                   | skipped overlap 0                                                                            | replaced, schedule 0                                                                                   | schedule 0
1s       | recurring | fire_all  | schedule 0                                                                                   | skipped overlap 0                                                                            | replaced, schedule 0                                                                                   | schedule 0
10m40s   | once      | skip      | catchup 0                                                                                    | catchup 0                                                                                    | replaced, catchup 0                                                                                    | catchup 0
10m40s   | once      | fire_once | catchup 0                                                                                    | catchup 0                                                                                    | replaced, catchup 0                                                                                    | catchup 0
10m40s   | once      | fire_all  | catchup 0                                                                                    | catchup 0                                                                                    | replaced, catchup 0                                                                                    | catchup 0
10m40s   | recurring | skip      | missed policy 0-10                                                                           | missed policy 0-10                                                                           | missed policy 0-10                                                                                     | missed policy 0-10
10m40s   | recurring | fire_once | missed policy 0-9, catchup 10                                                                | missed policy 0-9, catchup 10                                                                | replaced, missed policy 0-9, catchup 10                                                                | missed policy 0-9, catchup 10
10m40s   | recurring | fire_all  | missed max_catchup 0-7, catchup 8, catchup 9, catchup 10                                     | missed max_catchup 0-7, catchup 8, catchup 9, catchup 10                                     | replaced, missed max_catchup 0-7, catchup 8, catchup 9, catchup 10                                     | missed max_catchup 0-7, catchup 8, catchup 9, catchup 10
72h0m40s | once      | skip      | catchup 0                                                                                    | catchup 0                                                                                    | replaced, catchup 0                                                                                    | catchup 0
72h0m40s | once      | fire_once | catchup 0                                                                                    | catchup 0                                                                                    | replaced, catchup 0                                                                                    | catchup 0
72h0m40s | once      | fire_all  | catchup 0                                                                                    | catchup 0                                                                                    | replaced, catchup 0                                                                                    | catchup 0
72h0m40s | recurring | skip      | missed window 0-4260, missed policy 4261-4320                                                | missed window 0-4260, missed policy 4261-4320                                                | missed window 0-4260, missed policy 4261-4320                                                          | missed window 0-4260, missed policy 4261-4320
72h0m40s | recurring | fire_once | missed window 0-4260, missed policy 4261-4319, catchup 4320                                  | missed window 0-4260, missed policy 4261-4319, catchup 4320                                  | replaced, missed window 0-4260, missed policy 4261-4319, catchup 4320                                  | missed window 0-4260, missed policy 4261-4319, catchup 4320
72h0m40s | recurring | fire_all  | missed window 0-4260, missed max_catchup 4261-4317, catchup 4318, catchup 4319, catchup 4320 | missed window 0-4260, missed max_catchup 4261-4317, catchup 4318, catchup 4319, catchup 4320 | replaced, missed window 0-4260, missed max_catchup 4261-4317, catchup 4318, catchup 4319, catchup 4320 | missed window 0-4260, missed max_catchup 4261-4317, catchup 4318, catchup 4319, catchup 4320`

// matrixCell is a cell of the table.
type matrixCell struct {
	down, kind string
	missed     MissedRule
	overlap    OverlapPolicy // "" = no active run
}

func readMatrix(t *testing.T) map[matrixCell]string {
	t.Helper()
	cells := map[matrixCell]string{}
	for line := range strings.Lines(strings.TrimSpace(matrixTable)) {
		f := strings.Split(line, "|")
		if len(f) != 7 {
			t.Fatalf("a line of the table has %d columns: %s", len(f), line)
		}
		for overlap, column := range map[OverlapPolicy]int{"": 3, OverlapConcurrent: 3, OverlapSkip: 4, OverlapCancelPrevious: 5, OverlapBufferOne: 6} {
			cells[matrixCell{strings.TrimSpace(f[0]), strings.TrimSpace(f[1]), MissedRule(strings.TrimSpace(f[2])), overlap}] = strings.TrimSpace(f[column])
		}
	}
	return cells
}

// TestTheResultsOfSlotsDuringAnOutageAreTheTable covers every kind of schedule, every policy for
// missed slots, and every policy for overlaps with and without an active run, after outages of a
// second, some minutes and three days.
func TestTheResultsOfSlotsDuringAnOutageAreTheTable(t *testing.T) {
	t.Parallel()
	table := readMatrix(t)
	for _, down := range []time.Duration{time.Second, 10*time.Minute + 40*time.Second, 72*time.Hour + 40*time.Second} {
		for _, kind := range []schedule.Kind{schedule.KindAt, schedule.KindEvery, schedule.KindCron} {
			for _, missed := range []MissedPolicy{{Rule: MissedSkip}, {Rule: MissedFireOnce}, {Rule: MissedFireAll, MaxCatchup: 3}} {
				for _, overlap := range []OverlapPolicy{OverlapSkip, OverlapConcurrent, OverlapBufferOne, OverlapCancelPrevious} {
					for _, active := range []bool{false, true} {
						checkMatrix(t, table, down, kind, missed, overlap, active)
					}
				}
			}
		}
	}
}

func checkMatrix(t *testing.T, table map[matrixCell]string, down time.Duration, kind schedule.Kind, missed MissedPolicy, overlap OverlapPolicy, active bool) {
	t.Helper()
	first := time.Date(2026, 3, 14, 9, 28, 0, 0, time.UTC)
	cell := matrixCell{down: down.String(), kind: "recurring", missed: missed.Rule}
	spec := schedule.Spec{Kind: kind, EveryMs: time.Minute.Milliseconds(), AnchorMs: first.Add(-time.Minute).UnixMilli()}
	switch kind {
	case schedule.KindAt:
		cell.kind, spec = "once", schedule.Spec{Kind: kind, At: first}
	case schedule.KindCron:
		spec = schedule.Spec{Kind: kind, Expr: "* * * * *", TZ: "UTC"}
	case schedule.KindEvery:
	}
	d := DueJob{Job: Job{
		ID: "j", Owner: "ann", Agent: "main", Session: Isolated, Enabled: true, Overlap: overlap, Missed: missed, Schedule: spec,
		State: JobState{Plan: Plan{Next: first, NextRunAt: first}, ActivatedAt: first.Add(-time.Minute)},
	}}
	if active {
		cell.overlap, d.Active, d.Running = overlap, []string{"busy"}, 1
	}
	v := NewPlanner(schedule.NewCompiler(0), PlannerConfig{}).Decide(first.Add(down), []DueJob{d})[0]
	want, known := table[cell]
	if got := matrixRow(v, first); got != want || !known {
		t.Errorf("%+v, %s: the verdict is %q, want %q", cell, kind, got, want)
	}
	next := first.Add(down).Truncate(time.Minute).Add(time.Minute)
	if recurs := kind != schedule.KindAt; v.Disable == recurs || (recurs && !v.Next.Equal(next)) {
		t.Errorf("%+v, %s: disabled %v, the next slot is %s, want %s", cell, kind, v.Disable, v.Next, next)
	}
}

// matrixRow formats a verdict as in the table.
func matrixRow(v Verdict, first time.Time) string {
	type row struct {
		at   time.Time
		text string
	}
	slot := func(at time.Time) string { return strconv.FormatInt(int64(at.Sub(first)/time.Minute), 10) }
	var rows []row
	for _, l := range v.Runs {
		rows = append(rows, row{l.Run.ScheduledFor, string(l.Run.Trigger) + " " + slot(l.Run.ScheduledFor)})
	}
	for _, r := range v.Rows {
		text := string(r.State) + " " + string(r.Reason) + " " + slot(r.ScheduledFor)
		if r.SlotCount > 1 {
			text += "-" + slot(r.SlotUntil)
			if want := int64(r.SlotUntil.Sub(r.ScheduledFor)/time.Minute) + 1; r.SlotCount != want {
				text += fmt.Sprintf(" counted as %d", r.SlotCount)
			}
		}
		rows = append(rows, row{r.ScheduledFor, text})
	}
	slices.SortFunc(rows, func(a, b row) int { return a.at.Compare(b.at) })
	words := make([]string, 0, len(rows)+1)
	if len(v.Cancel) > 0 {
		words = append(words, string(ReasonReplaced))
	}
	for _, r := range rows {
		words = append(words, r.text)
	}
	return strings.Join(words, ", ")
}

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

// TestAffectedSlotsAreWhatFiresOverBothChanges compares the changes of a preview with a list of the
// wall times that the zone drops and repeats, and their fires with those of claims.
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
		d := tt.Decide(DueSlot{Planned: fire.Slot, Now: fire.At})
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
