package cron

import (
	"fmt"
	"time"

	"laneway/internal/cron/schedule"
)

// MaxPreview is the most fires in one preview.
const MaxPreview = 100

// PreviewFire is one coming fire for a person: the slot and the moment of starting
// in Unix milliseconds, the latter also in UTC and in the schedule's zone.
type PreviewFire struct {
	ScheduledForMs int64            `json:"scheduledForMs"`
	FireAtMs       int64            `json:"fireAtMs"`
	ISO            string           `json:"iso"`
	Local          string           `json:"local"`
	DST            schedule.DSTNote `json:"dst,omitempty"`
}

// Preview is the answer to "when will it fire?". Lists are empty, never nil.
type Preview struct {
	Timezone string        `json:"timezone"`
	Fires    []PreviewFire `json:"fires"`
	Warnings []string      `json:"warnings"`
}

// Preview lists the next n fires after an instant, 1 to 100, by [Timetable.Next],
// which also decides the real ones. A preview of a schedule that is no job yet
// leaves JobID and JitterMs empty. Warnings are sentences about what may surprise.
func (t Timetable) Preview(after time.Time, n int) Preview {
	zone := t.Schedule.Zone()
	if zone == "" {
		zone = "UTC"
	}
	p := Preview{Timezone: zone, Fires: []PreviewFire{}, Warnings: []string{}}
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
	if t.Schedule.JoinsDayFields() {
		out = append(out, "a day field that begins with * does not count as restricted, so day of month and day of week must both match")
	}
	return out
}
