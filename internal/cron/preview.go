package cron

import (
	"fmt"
	"strings"
	"time"

	"laneway/internal/cron/schedule"
)

// MaxPreview is the most fires in one preview.
const MaxPreview = 100

// A preview shows at most this many clock changes, within this period.
const (
	changesReach = 400 * 24 * time.Hour
	maxChanges   = 4
)

// PreviewFire is one coming fire in a preview: the slot and the start in Unix milliseconds, the latter also in UTC and in the schedule's zone.
type PreviewFire struct {
	ScheduledForMs int64            `json:"scheduledForMs"`
	FireAtMs       int64            `json:"fireAtMs"`
	ISO            string           `json:"iso"`
	Local          string           `json:"local"`
	DST            schedule.DSTNote `json:"dst,omitempty"`
}

// PreviewChange is a clock change that moves, drops or repeats slots: its effect on the first of them and the rule, also as a sentence.
type PreviewChange struct {
	AtMs  int64         `json:"atMs"`
	Kind  string        `json:"kind"` // gap or overlap, like the member of the job with the rule
	Rule  string        `json:"rule"`
	Wall  string        `json:"wall"`
	Slots int64         `json:"slots"`
	Fires []PreviewFire `json:"fires"`
	Text  string        `json:"text"`
}

// Preview is the answer to "when will it fire?". Lists are empty, never nil.
type Preview struct {
	Timezone string          `json:"timezone"`
	Fires    []PreviewFire   `json:"fires"`
	Affected []PreviewChange `json:"affected"`
	Warnings []string        `json:"warnings"`
}

// Preview lists the next n fires after an instant, 1 to 100, by [Timetable.Next], which also decides the real ones. For a schedule without a job, JobID and
// JitterMs are empty. Warnings are sentences about surprising behaviour.
func (t Timetable) Preview(after time.Time, n int) Preview {
	zone := t.Schedule.Zone()
	if zone == "" {
		zone = "UTC"
	}
	p := Preview{Timezone: zone, Fires: []PreviewFire{}, Affected: t.affected(after), Warnings: []string{}}
	from := after
	for range min(max(n, 1), MaxPreview) {
		fire, ok := t.Next(from)
		if !ok {
			break
		}
		p.Fires = append(p.Fires, previewFire(fire, t.Schedule.Location()))
		from, t.Fired = fire.Slot, t.Fired+1
	}
	p.Warnings = append(p.Warnings, t.warnings(after, from, len(p.Fires))...)
	return p
}

// affected lists the next clock changes that affect slots inside the bounds.
func (t Timetable) affected(after time.Time) []PreviewChange {
	out := []PreviewChange{}
	loc := t.Schedule.Location()
	for _, c := range t.Schedule.Changes(after, after.Add(changesReach), maxChanges) {
		p := PreviewChange{AtMs: c.At.UnixMilli(), Kind: "gap", Rule: string(c.Gap), Wall: c.Wall.Format("2006-01-02T15:04:05"), Slots: c.Slots, Fires: []PreviewFire{}}
		if c.Fold != "" {
			p.Kind, p.Rule = "overlap", string(c.Fold)
		}
		slot := c.At
		if len(c.Fires) > 0 {
			slot = c.Fires[0].Slot
		}
		if slot.Before(t.StartsAt) {
			continue
		}
		if t.ended(slot) || t.MaxRuns > 0 && int64(t.Fired)+t.count(after, slot.Add(-1)) >= int64(t.MaxRuns) {
			break
		}
		for _, f := range c.Fires {
			f.At = f.Slot.Add(Jitter(t.JobID, f.Slot, t.JitterMs))
			p.Fires = append(p.Fires, previewFire(f, loc))
		}
		p.Text = p.sentence(c, loc)
		out = append(out, p)
	}
	return out
}

// sentence describes the effect of the change on the first slot.
func (p PreviewChange) sentence(c schedule.ClockChange, loc *time.Location) string {
	clock := func(t time.Time) string {
		if t.Second() == 0 {
			return t.Format("15:04")
		}
		return t.Format("15:04:05")
	}
	var times []string
	for _, f := range c.Fires {
		at := f.Slot.In(loc)
		times = append(times, clock(at)+at.Format(" -07:00"))
	}
	what := c.Wall.Format("Mon 2 Jan 2006 ") + clock(c.Wall)
	does, comes := " does", " comes"
	if c.Slots > 1 {
		what, does, comes = what+fmt.Sprintf(" and %d more", c.Slots-1), " do", " come"
	}
	switch {
	case c.Gap != "" && len(times) == 0:
		return what + does + " not exist that day: no run (skip)"
	case c.Gap != "":
		return what + does + " not exist that day: one run at " + times[0] + " (run after)"
	case len(times) == 2:
		return what + comes + " twice that day: runs at " + times[0] + " and again at " + times[1] + " (" + p.Rule + ")"
	default:
		return what + comes + " twice that day: runs once, at " + strings.Join(times, "") + " (" + p.Rule + ")"
	}
}

func previewFire(f schedule.Fire, loc *time.Location) PreviewFire {
	local := "2006-01-02T15:04:05-07:00"
	if loc == time.UTC {
		local = "2006-01-02T15:04:05Z"
	}
	if f.At.Nanosecond() != 0 {
		local = local[:19] + ".000" + local[19:]
	}
	return PreviewFire{
		ScheduledForMs: f.Slot.UnixMilli(), FireAtMs: f.At.UnixMilli(),
		ISO: schedule.ISO(f.At), Local: f.At.In(loc).Format(local), DST: f.DST,
	}
}

func (t Timetable) warnings(after, until time.Time, fires int) []string {
	var out []string
	if fires == 0 {
		return append(out, "there is no further fire")
	}
	for _, lost := range t.Schedule.Lost(after, until) {
		out = append(out, fmt.Sprintf("a slot before %s does not exist because the clock goes forward, and the rule is skip",
			lost.Slot.In(t.Schedule.Location()).Format("2006-01-02 15:04")))
	}
	return append(out, t.Schedule.Surprises(after)...)
}

// Surprises are those of the schedule of a job that has just been written, see [schedule.Schedule.Surprises].
func (j Job) Surprises() []string {
	s, err := schedule.Compile(j.Schedule)
	if err != nil {
		return nil
	}
	return s.Surprises(j.UpdatedAt)
}
