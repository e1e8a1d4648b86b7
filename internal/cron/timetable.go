package cron

import (
	"time"

	"laneway/internal/cron/schedule"
)

// MaxJitter is the longest jitter.
const MaxJitter = time.Hour

// Timetable is the schedule of one job with everything that decides its fires. It is a value; copies are independent. Zero bounds are unlimited.
type Timetable struct {
	Schedule schedule.Schedule
	// JobID spreads the jitter: two jobs with one schedule fire at different moments, one job always at the same.
	JobID string
	// JitterMs delays each fire by 0 to JitterMs, see [Jitter].
	JitterMs int64
	// StartsAt and EndsAt bound the slots, both inclusive.
	StartsAt, EndsAt time.Time
	// MaxRuns is the number of planned fires after which the job ends, and Fired how many there were: runs with trigger schedule and catchup.
	MaxRuns, Fired int
}

// Next is the first fire whose slot is strictly later than after, inside the bounds, with its jitter. It reports false when the job has no further fire.
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

// First is the first fire of a job that is created or resumed now. It is [Timetable.Next], except that an at which is at most 60 s old still fires.
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

// undecided is the instant after which the slots begin that are not decided: the planned one and those that follow it.
func (t Timetable) undecided(p Plan) time.Time {
	if !t.foreign(p) {
		return p.Next.Add(-1)
	}
	return t.Schedule.Reached(p.Next.Add(-time.Second), p.NextWall.Add(-time.Second))
}

// Free is the instant from which a job may fire that is planned again now, given its plan before: now, or later if the rules of another release have planned it.
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

// Check validates the settings related to a schedule, for a job that is written now: jitter 0 to one hour and less than the distance of the next two fires,
// starts before ends, runs not negative, and a fire inside the bounds. Errors are [*InvalidError].
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

// Jitter is the delay of one slot of one job: a whole number of milliseconds in 0..maxMs, evenly distributed, the same on every replica and in every release. A
// maxMs of 0 or less means no delay.
func Jitter(jobID string, slot time.Time, maxMs int64) time.Duration {
	if maxMs <= 0 {
		return 0
	}
	// FNV-1a over the id and the slot. Its low bits are weak, and the remainder below uses exactly those, so the result is mixed once more.
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
