package cron

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"laneway/internal/cron/schedule"
)

// MaxJitter is the longest jitter.
const MaxJitter = time.Hour

// Bounds of [Timetable.NotAfter].
const (
	leastUseful = time.Hour
	mostUseful  = 24 * time.Hour
)

// Timetable is the schedule of one job with everything that decides its fires. It is a value;
// copies are independent. Zero bounds are unlimited.
type Timetable struct {
	Schedule schedule.Schedule
	// JobID spreads the jitter: two jobs with one schedule fire at different moments, one job
	// always at the same.
	JobID string
	// JitterMs delays each fire by 0 to JitterMs, see [Jitter].
	JitterMs int64
	// StartsAt and EndsAt bound the slots, both inclusive.
	StartsAt, EndsAt time.Time
	// MaxRuns is the number of planned fires after which the job ends, and Fired how many there
	// were: runs with trigger schedule and catchup.
	MaxRuns, Fired int
}

// Next is the first fire whose slot is strictly later than after, inside the bounds, with its
// jitter. It reports false when the job has no further fire.
func (t Timetable) Next(after time.Time) (schedule.Fire, bool) {
	if t.MaxRuns > 0 && t.Fired >= t.MaxRuns {
		return schedule.Fire{}, false
	}
	if !t.StartsAt.IsZero() && after.Before(t.StartsAt) {
		after = t.StartsAt.Add(-1)
	}
	fire, ok := t.Schedule.Next(after)
	if !ok || t.ended(fire.Slot) {
		return schedule.Fire{}, false
	}
	fire.At = fire.Slot.Add(Jitter(t.JobID, fire.Slot, t.JitterMs))
	return fire, true
}

// NotAfter is until when an answer that is made now is sent: the next slot, but at least an hour
// and at most a day.
func (t Timetable) NotAfter(now time.Time) time.Time {
	until := now.Add(mostUseful)
	if next, ok := t.Next(now); ok && next.Slot.Before(until) {
		until = next.Slot
	}
	return later(until, now.Add(leastUseful))
}

// First is the first fire of a job that is created or resumed now. It is [Timetable.Next], except
// that an at which is at most 60 s old still fires.
func (t Timetable) First(now time.Time) (schedule.Fire, bool) {
	if t.Schedule.Kind() == schedule.KindAt {
		return t.Next(now.Add(-schedule.AtGrace - 1))
	}
	return t.Next(now)
}

// PlanOf is a fire as it is stored; zero for the zero Fire.
func (t Timetable) PlanOf(f schedule.Fire) Plan {
	if f.Slot.IsZero() {
		return Plan{}
	}
	return Plan{Next: f.Slot, NextRunAt: f.At, NextWall: t.Schedule.Wall(f), ZoneRelease: t.Schedule.Release()}
}

// foreign reports whether the rules of another release have planned a slot.
func (t Timetable) foreign(p Plan) bool {
	return !p.NextWall.IsZero() && p.ZoneRelease != t.Schedule.Release()
}

// undecided is the instant after which the slots begin that are not decided: the planned one and
// those that follow it.
func (t Timetable) undecided(p Plan) time.Time {
	if !t.foreign(p) {
		return p.Next.Add(-1)
	}
	return t.Schedule.Reached(p.Next.Add(-time.Second), p.NextWall.Add(-time.Second))
}

// Free is the instant from which a job may fire that is planned again now, given its plan before:
// now, or later if the rules of another release have planned it.
func (t Timetable) Free(before Plan, now time.Time) time.Time {
	if t.foreign(before) {
		now = later(now, t.undecided(before))
	}
	return now
}

func (t Timetable) ended(slot time.Time) bool { return !t.EndsAt.IsZero() && slot.After(t.EndsAt) }

// count is the number of slots in (after, until] inside the bounds of time.
func (t Timetable) count(after, until time.Time) int64 {
	if !t.StartsAt.IsZero() && after.Before(t.StartsAt) {
		after = t.StartsAt.Add(-1)
	}
	if t.ended(until) {
		until = t.EndsAt
	}
	return t.Schedule.Count(after, until)
}

// Check validates the settings related to a schedule, for a job that is written now: jitter 0 to
// one hour and less than the distance of the next two fires, starts before ends, runs not negative,
// and a fire inside the bounds. Errors are [*InvalidError].
func (t Timetable) Check(now time.Time) error {
	switch {
	case t.JitterMs < 0 || t.JitterMs > MaxJitter.Milliseconds():
		return schedule.NewInvalid("jitterMs", schedule.InvalidRange, "%d is out of range 0-%d", t.JitterMs, MaxJitter.Milliseconds())
	case t.MaxRuns < 0:
		return schedule.NewInvalid("maxRuns", schedule.InvalidRange, "%d is negative; leave it out for no limit", t.MaxRuns)
	case !t.EndsAt.IsZero() && !t.StartsAt.IsZero() && t.EndsAt.Before(t.StartsAt):
		return schedule.NewInvalid("endsAtMs", schedule.InvalidRange, "the end %s is before the start %s", schedule.ISO(t.EndsAt), schedule.ISO(t.StartsAt))
	}
	first, ok := t.First(now)
	switch {
	case !ok && t.ended(now):
		return schedule.NewInvalid("endsAtMs", schedule.InvalidNever, "no fire is left: the end %s has passed", schedule.ISO(t.EndsAt))
	case !ok:
		return schedule.NewInvalid("schedule", schedule.InvalidNever, "no fire is left: the schedule has none within the bounds of the job")
	}
	second, ok := t.Schedule.Next(first.Slot)
	if apart := second.Slot.Sub(first.Slot); ok && t.JitterMs >= apart.Milliseconds() {
		return schedule.NewInvalid("jitterMs", schedule.InvalidRange, "%d must be less than the %d ms between the next two fires",
			t.JitterMs, apart.Milliseconds())
	}
	return nil
}

// Jitter is the delay of one slot of one job: a whole number of milliseconds in 0..maxMs, evenly
// distributed, the same on every replica and in every release. A maxMs of 0 or less means no delay.
func Jitter(jobID string, slot time.Time, maxMs int64) time.Duration {
	if maxMs <= 0 {
		return 0
	}
	// FNV-1a over the id and the slot. Its low bits are weak, and the remainder below uses exactly
	// those, so the result is mixed once more.
	const offset, prime = 14695981039346656037, 1099511628211
	h := uint64(offset)
	for i := range len(jobID) {
		h = (h ^ uint64(jobID[i])) * prime
	}
	for ms, i := uint64(slot.UnixMilli()), 0; i < 8; i++ {
		h = (h ^ (ms >> (8 * i) & 0xff)) * prime
	}
	h = (h ^ h>>30) * 0xbf58476d1ce4e5b9
	h = (h ^ h>>27) * 0x94d049bb133111eb
	h ^= h >> 31
	return time.Duration(h%uint64(maxMs+1)) * time.Millisecond //nolint:gosec // the remainder is at most maxMs
}

// MaxPreview is the most fires in one preview.
const MaxPreview = 100

// A preview shows at most this many clock changes, within this period.
const (
	changesReach = 400 * 24 * time.Hour
	maxChanges   = 4
)

// PreviewFire is one coming fire in a preview: the slot and the start in Unix milliseconds, the
// latter also in UTC and in the schedule's zone.
type PreviewFire struct {
	ScheduledForMs int64            `json:"scheduledForMs"`
	FireAtMs       int64            `json:"fireAtMs"`
	ISO            string           `json:"iso"`
	Local          string           `json:"local"`
	DST            schedule.DSTNote `json:"dst,omitempty"`
}

// PreviewChange is a clock change that moves, drops or repeats slots: its effect on the first of
// them and the rule, also as a sentence.
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

// Preview lists the next n fires after an instant, 1 to 100, by [Timetable.Next], which also
// decides the real ones. For a schedule without a job, JobID and JitterMs are empty. Warnings are
// sentences about surprising behaviour.
func (t Timetable) Preview(after time.Time, n int) Preview {
	zone := cmp.Or(t.Schedule.Zone(), "UTC")
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

// Surprises are those of the schedule of a job that has just been written, see
// [schedule.Schedule.Surprises], and why its answers cannot arrive.
func (j Job) Surprises() []string {
	var out []string
	if s, err := schedule.Compile(j.Schedule); err == nil {
		out = s.Surprises(j.UpdatedAt)
	}
	if j.Unserved != "" {
		out = append(out, j.Unserved)
	}
	return out
}
