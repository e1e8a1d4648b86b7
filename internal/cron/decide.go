package cron

import (
	"cmp"
	"slices"
	"time"

	"laneway/internal/cron/schedule"
)

const (
	// tickSlack is how late a claim may be before it counts as an outage: two ticks of the loop.
	// Every slot within it runs separately.
	tickSlack = 2 * time.Second
	// newestSlack is how late the newest slot may be and still be the planned fire, whatever was
	// missed before it: the time that a burst of due jobs or a restart may take.
	newestSlack = 30 * time.Second
	// mostAtOnce bounds the runs of one decision.
	mostAtOnce = MaxMaxCatchup
)

// DueSlot is the next slot of a job at the moment at which a replica claims it.
type DueSlot struct {
	// Planned is the slot of the stored next fire.
	Planned time.Time
	// Previous is the slot decided before or, for the first one, the moment the schedule was
	// activated. It is used only as the start of the search for slots that a gap skipped; zero
	// disables the search before Planned.
	Previous time.Time
	// Wall is the wall time that Planned stands for, if the zone rules of another release have
	// planned it; else zero.
	Wall time.Time
	// Now is the database's clock.
	Now    time.Time
	Policy MissedPolicy
}

// PlannedRun is one slot that runs.
type PlannedRun struct {
	schedule.Fire
	Trigger Trigger       // schedule, or catchup for a slot that was missed
	Late    time.Duration // how long after Fire.At it was claimed, never negative
	Series  string        // isolated runs with the same series share a session, so that they run one after the other; "" = a session of its own
}

// MissedSpan is a range of slots that do not run, for one entry in the ledger. First and Last are
// slots in the range; Count is at least 1.
type MissedSpan struct {
	Reason      Reason
	First, Last time.Time
	Count       int64
}

// Decision is the outcome for every slot from the planned one up to now. Runs are oldest first;
// each slot is counted once, as run or as missed. Lost are gaps of daylight saving in which the
// rule skip dropped a slot, by the first instant after the gap. Next is the slot to plan if More is
// true.
type Decision struct {
	Runs   []PlannedRun
	Missed []MissedSpan
	Lost   []schedule.Fire
	Next   schedule.Fire
	More   bool
}

// Decide decides all due slots: the planned one and those that have passed since. A short delay is
// not an outage: slots up to two seconds late all run as planned. After an outage the newest slot
// still counts as planned when it is at most 30 s late. Of the others as many run as the policy
// allows, with trigger catchup, and the rest is counted in at most two spans. The work is bounded,
// whatever the length of the outage.
func (t Timetable) Decide(c DueSlot) Decision {
	if t.MaxRuns > 0 && t.Fired >= t.MaxRuns {
		return Decision{}
	}
	planned, known := t.plannedFire(c.Planned)
	after := planned.Slot.Add(-1) // the slots of the schedule from here on are undecided
	if !c.Wall.IsZero() {
		after = t.Schedule.Reached(c.Planned, c.Wall)
	}
	stray := !known || !planned.Slot.After(after)
	cut := t.cut(c, planned, after)
	d := t.duePart(c, planned, stray, after, cut)
	if stray && !slices.ContainsFunc(d.Runs, func(r PlannedRun) bool { return r.Slot.Equal(planned.Slot) }) {
		stray := MissedSpan{Reason: ReasonPolicy, First: planned.Slot, Last: planned.Slot, Count: 1}
		d.Missed = append([]MissedSpan{stray}, d.Missed...)
	}
	t.Fired += len(d.Runs)
	d.Next, d.More = t.Next(cut)
	if c.Previous.IsZero() {
		c.Previous = c.Planned
	}
	d.Lost = t.Schedule.Lost(c.Previous, cut)
	return d
}

// plannedFire is the stored slot with its jitter and note. It reports false for a slot that the
// schedule does not contain, which happens when a country changed its clocks after the slot was
// planned. Such a slot is decided as well.
func (t Timetable) plannedFire(slot time.Time) (schedule.Fire, bool) {
	fire, ok := t.Next(slot.Add(-1))
	if ok && fire.Slot.Equal(slot) {
		return fire, true
	}
	return schedule.Fire{Slot: slot, At: slot.Add(Jitter(t.JobID, slot, t.JitterMs))}, false
}

// cut is the last instant up to which this claim decides every slot. Slots are decided in order:
// one whose jitter has not passed holds back the later ones.
func (t Timetable) cut(c DueSlot, planned schedule.Fire, after time.Time) time.Time {
	if planned.At.After(c.Now) {
		return later(planned.Slot, after)
	}
	cut := later(later(planned.Slot, after), c.Now.Add(-time.Duration(t.JitterMs)*time.Millisecond))
	for range int(MaxJitter / time.Second) {
		next, ok := t.Schedule.Next(cut)
		if !ok || t.ended(next.Slot) {
			break
		}
		if next.Slot.Add(Jitter(t.JobID, next.Slot, t.JitterMs)).After(c.Now) {
			break
		}
		cut = next.Slot
	}
	return cut
}

// duePart decides about the planned slot, which is a stray if it isn't one of the slots in (after,
// cut], and about these slots.
func (t Timetable) duePart(c DueSlot, planned schedule.Fire, stray bool, after, cut time.Time) Decision {
	others := t.count(after, cut)
	if !stray {
		others--
	}
	late := c.Now.Sub(planned.At)
	if late <= newestSlack && others == 0 {
		return Decision{Runs: []PlannedRun{{Fire: planned, Trigger: TriggerSchedule, Late: max(0, late)}}}
	}
	if late <= tickSlack && others < mostAtOnce && !after.Before(planned.Slot.Add(-1)) {
		fires := append([]schedule.Fire{planned}, t.newest(later(planned.Slot, after), cut, int(others))...)
		return Decision{Runs: runs(fires[:min(len(fires), t.remaining())], TriggerSchedule, c.Now)}
	}
	var strays []schedule.Fire
	if stray {
		strays = append(strays, planned)
	}
	return t.afterOutage(c, strays, after, cut)
}

// remaining is how many more fires the job has.
func (t Timetable) remaining() int {
	if t.MaxRuns == 0 {
		return mostAtOnce + 1
	}
	return max(0, t.MaxRuns-t.Fired)
}

// afterOutage applies the policy to the slots in (after, cut], and to a slot that is not one of
// them.
func (t Timetable) afterOutage(c DueSlot, strays []schedule.Fire, after, cut time.Time) Decision {
	var regular []PlannedRun
	policy := c.Policy.For(t.Schedule.Kind())
	last := t.newest(after, cut, 1)
	switch {
	case len(last) == 1 && c.Now.Sub(last[0].At) <= newestSlack:
		regular = runs(last, TriggerSchedule, c.Now)
		cut = last[0].Slot.Add(-1)
	case len(strays) == 1 && c.Now.Sub(strays[0].At) <= newestSlack:
		regular, strays = runs(strays, TriggerSchedule, c.Now), nil
	}
	inside := after
	if policy.Window != NoWindow {
		inside = later(after, c.Now.Add(-policy.Window-1))
		strays = slices.DeleteFunc(strays, func(f schedule.Fire) bool { return !f.Slot.After(c.Now.Add(-policy.Window - 1)) })
	}
	inside = earlier(inside, cut)
	most := min(policy.wanted(len(regular)), t.remaining()-len(regular))
	chosen := t.newest(inside, cut, most)
	rest := cut
	if len(chosen) > 0 {
		rest = chosen[0].Slot.Add(-1)
	}
	reason := ReasonPolicy
	if policy.Rule == MissedFireAll {
		reason = ReasonMaxCatchup
	}
	if len(chosen) < most {
		chosen = append(strays, chosen...)
	}
	d := Decision{Runs: append(runs(chosen, TriggerCatchup, c.Now), regular...)}
	slices.SortFunc(d.Runs, func(a, b PlannedRun) int { return a.Slot.Compare(b.Slot) })
	if span, ok := t.Span(ReasonWindow, after, inside); ok {
		d.Missed = append(d.Missed, span)
	}
	if span, ok := t.Span(reason, inside, rest); ok {
		d.Missed = append(d.Missed, span)
	}
	return d
}

// wanted is how many missed slots the rule runs. Fire once means one run in total, and a planned
// one is enough.
func (p MissedPolicy) wanted(regular int) int {
	switch p.Rule {
	case MissedFireOnce:
		return 1 - regular
	case MissedFireAll:
		return p.MaxCatchup
	case MissedSkip:
	}
	return 0
}

func runs(fires []schedule.Fire, trigger Trigger, now time.Time) []PlannedRun {
	out := make([]PlannedRun, 0, len(fires))
	for _, f := range fires {
		out = append(out, PlannedRun{Fire: f, Trigger: trigger, Late: max(0, now.Sub(f.At))})
	}
	return out
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// Span counts the slots in (after, until] for one entry of the ledger; it reports false when no
// slot exists. A resumed job uses it with reason paused.
func (t Timetable) Span(reason Reason, after, until time.Time) (MissedSpan, bool) {
	count := t.count(after, until)
	if count == 0 {
		return MissedSpan{}, false
	}
	t.MaxRuns = 0
	first, _ := t.Next(after)
	return MissedSpan{Reason: reason, First: first.Slot, Last: t.newest(after, until, 1)[0].Slot, Count: count}, true
}

// Between lists the fires with slots in (after, until], oldest first, at most limit of them, and
// the number of all. A backfill uses it.
func (t Timetable) Between(after, until time.Time, limit int) (fires []schedule.Fire, total int64) {
	t.MaxRuns = 0
	total = t.count(after, until)
	for int64(len(fires)) < min(total, int64(limit)) {
		fire, ok := t.Next(after)
		if !ok {
			break
		}
		fires = append(fires, fire)
		after = fire.Slot
	}
	return fires, total
}

// newest lists the last n fires with slots in (after, until], oldest first. It finds the first one
// by counting, and so needs no backward search.
func (t Timetable) newest(after, until time.Time, n int) []schedule.Fire {
	if n <= 0 || t.count(after, until) == 0 {
		return nil
	}
	low, high := after.UnixMilli(), until.UnixMilli()
	if t.count(after, until) > int64(n) {
		for high-low > 1 {
			middle := low + (high-low)/2
			if t.count(time.UnixMilli(middle), until) >= int64(n) {
				low = middle
			} else {
				high = middle
			}
		}
	}
	fires, _ := t.Between(time.UnixMilli(low), until, n)
	return fires
}

// MissedRule decides which of the slots that passed while no process could fire still run.
type MissedRule string

// The rules for missed slots.
const (
	MissedSkip     MissedRule = "skip"      // no slot
	MissedFireOnce MissedRule = "fire_once" // the newest inside the window; the default
	MissedFireAll  MissedRule = "fire_all"  // the newest MaxCatchup inside the window, oldest first
)

// Bounds and defaults of a [MissedPolicy].
const (
	DefaultMaxCatchup = 10
	MaxMaxCatchup     = 100
	DefaultWindow     = time.Hour
	MaxWindow         = 30 * 24 * time.Hour
)

// Special values of [MissedPolicy.Window].
const (
	NoWindow    time.Duration = -1 // no slot is too old
	EmptyWindow time.Duration = 1  // every missed slot is too old; the meaning of zero seconds on the wire
)

// MissedPolicy is the rule with its numbers. The zero value means the defaults.
type MissedPolicy struct {
	Rule MissedRule // "" is fire_once
	// MaxCatchup bounds fire_all, 1 to 100. 0 means 10.
	MaxCatchup int
	// Window is the maximum age of a slot that still runs, up to 30 days. 0 is the default: no
	// limit for an at, an hour otherwise. See [NoWindow], [EmptyWindow].
	Window time.Duration
}

// For fills in the defaults for a kind of schedule. An at has only one slot, which always runs, so
// skip does not apply to it.
func (p MissedPolicy) For(k schedule.Kind) MissedPolicy {
	if p.Rule == "" || (k == schedule.KindAt && p.Rule == MissedSkip) {
		p.Rule = MissedFireOnce
	}
	p.MaxCatchup = cmp.Or(p.MaxCatchup, DefaultMaxCatchup)
	if p.Window == 0 {
		p.Window = DefaultWindow
		if k == schedule.KindAt {
			p.Window = NoWindow
		}
	}
	return p
}

// Check refuses an unknown rule and numbers out of bounds with an [*InvalidError].
func (p MissedPolicy) Check() error {
	switch p.Rule {
	case "", MissedSkip, MissedFireOnce, MissedFireAll:
	default:
		return schedule.NewInvalid("missed.policy", schedule.InvalidChoice, "%s is not known; the policies are skip, fire_once and fire_all", schedule.Excerpt(string(p.Rule)))
	}
	if p.MaxCatchup < 0 || p.MaxCatchup > MaxMaxCatchup {
		return schedule.NewInvalid("missed.maxCatchup", schedule.InvalidRange, "%d is out of range 1-%d", p.MaxCatchup, MaxMaxCatchup)
	}
	if p.Window != NoWindow && (p.Window < 0 || p.Window > MaxWindow) {
		return schedule.NewInvalid("missed.windowSeconds", schedule.InvalidRange, "%d is out of range 0-%d", int64(p.Window/time.Second), int64(MaxWindow/time.Second))
	}
	return nil
}

// OverlapPolicy decides what a fire does while a run of the same job is active.
type OverlapPolicy string

// The overlap policies.
const (
	OverlapSkip           OverlapPolicy = "skip"            // the fire is recorded as skipped; the default
	OverlapConcurrent     OverlapPolicy = "concurrent"      // it runs concurrently, up to MaxConcurrent
	OverlapBufferOne      OverlapPolicy = "buffer_one"      // one fire waits for the end, further ones are skipped
	OverlapCancelPrevious OverlapPolicy = "cancel_previous" // the older runs are cancelled, this one runs
)

// MaxConcurrent bounds the active runs of one job under the policy concurrent.
const MaxConcurrent = 10

// Check refuses an unknown policy with an [*InvalidError]. Empty is skip.
func (p OverlapPolicy) Check() error {
	switch p {
	case "", OverlapSkip, OverlapConcurrent, OverlapBufferOne, OverlapCancelPrevious:
		return nil
	}
	return schedule.NewInvalid("overlap", schedule.InvalidChoice,
		"%s is not known; the policies are skip, concurrent, buffer_one and cancel_previous", schedule.Excerpt(string(p)))
}

// OverlapAction is the action for one fire.
type OverlapAction string

// The actions.
const (
	ActionRun     OverlapAction = "run"     // start it
	ActionSkip    OverlapAction = "skip"    // record it as skipped, with the reason
	ActionBuffer  OverlapAction = "buffer"  // hold it until the active run has ended
	ActionReplace OverlapAction = "replace" // cancel the earlier runs, reason replaced, and start it
)

// Decide decides about one fire of a job. active counts its runs that run, wait for a retry or wait
// for a lane; buffered counts the fires that this policy holds back. The reason is set for
// [ActionSkip] only. An unknown policy counts as skip.
func (p OverlapPolicy) Decide(active, buffered int) (OverlapAction, Reason) {
	if active+buffered == 0 {
		return ActionRun, ReasonNone
	}
	switch p {
	case OverlapConcurrent:
		if active+buffered < MaxConcurrent {
			return ActionRun, ReasonNone
		}
	case OverlapBufferOne:
		if buffered == 0 {
			return ActionBuffer, ReasonNone
		}
		return ActionSkip, ReasonBufferFull
	case OverlapCancelPrevious:
		return ActionReplace, ReasonNone
	case OverlapSkip:
	}
	return ActionSkip, ReasonOverlap
}
