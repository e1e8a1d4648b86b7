package cron

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"laneway/internal/chat"
	"laneway/internal/cron/schedule"
)

// Why is the answer to "why did this slot run, or not run?". The set is closed.
type Why string

// The values.
const (
	WhyRan         Why = "ran"
	WhyFailed      Why = "failed"
	WhyRunning     Why = "running"
	WhyRetrying    Why = "retrying"
	WhyWaiting     Why = "waiting" // for its lane, its session or the claim
	WhySkipped     Why = "skipped" // overlap, budget, a full buffer
	WhyPaused      Why = "paused"
	WhyMissed      Why = "missed"       // decided later, by the policy of the job
	WhyNoReplica   Why = "no replica"   // no process has fired jobs since before the slot
	WhyHeld        Why = "held"         // the gateway is held
	WhyCancelled   Why = "cancelled"    // by a person, by a newer run, or with its job
	WhyInterrupted Why = "interrupted"  // its process died
	WhyInvalid     Why = "invalid"      // the row of the job cannot be decoded
	WhyClock       Why = "clock change" // daylight saving dropped the wall time
	WhyUnplanned   Why = "not in the schedule"
	WhyMadeLater   Why = "made later"
	WhyChanged     Why = "changed since" // the schedule has changed since
	WhyDisabled    Why = "disabled"
	WhyEnded       Why = "ended" // the end of the job, or its number of runs
	WhyRemoved     Why = "removed"
	WhyForgotten   Why = "older than the history"
	WhyNotDue      Why = "not due yet"
	WhyUnknown     Why = "unknown" // a defect
)

// Act is a part of a cure that a client can offer as one action.
type Act string

// The actions.
const (
	ActResume   Act = "resume"   // cron.resume, or cron.toggle of a disabled job
	ActRun      Act = "run"      // cron.run
	ActBackfill Act = "backfill" // cron.backfill of the slot
	ActEdit     Act = "edit"     // cron.update
	ActRuns     Act = "runs"     // runs.list: the runs that occupy the lane
)

// Cure is the remedy in an explanation. The zero value means that no action is needed.
type Cure struct {
	Text string // a phrase that names the command or the setting
	Acts []Act
}

// Explanation is the outcome of one slot and its reason.
type Explanation struct {
	// Slot is the slot, or the requested moment when no slot is there.
	Slot  time.Time
	Why   Why
	Text  string // one sentence with figures
	Cure  Cure
	RunID string // the row of the ledger; "" when none exists
	// Before and After are the nearest slots when the moment is not a slot; zero when no such slot
	// exists.
	Before, After time.Time
	// Changes of the job since the slot, newest first.
	Changes []JobChange
}

// Sentence is the text, followed by the cure as its second line.
func (x Explanation) Sentence() string {
	if x.Cure.Text == "" {
		return x.Text
	}
	return x.Text + "\nWhat to do: " + x.Cure.Text
}

// JobChange is a change of a job in the audit log.
type JobChange struct {
	At   time.Time
	Who  string
	Verb string // cron.update, cron.pause, …
}

// Outage is a time during which no process fired jobs; a zero Until means that it continues.
type Outage struct{ From, Until time.Time }

// Evidence is the input of an explanation.
type Evidence struct {
	// Job is the current job; nil when it was removed. Timetable is nil when it cannot be computed.
	Job       *Job
	Timetable *Timetable
	// Rows are the ledger rows whose slots include the moment, in any order.
	Rows []Run
	// Outages that include the moment or are later, oldest first.
	Outages []Outage
	// Changes of the job since the moment, newest first.
	Changes []JobChange
	Now     time.Time
	// Kept is how far back the retention of the ledger reaches; zero = unlimited.
	Kept time.Time
	Held bool
	// Zone is the time zone of the times in sentences.
	Zone *time.Location
	// Ref names the job in commands if its name does not, because others have it; "" = its name.
	Ref string
}

// After is the end of the period that a moment stands for: 9:00 means that minute, and a time with
// seconds means that second.
func After(at time.Time) time.Time {
	if at.Second() == 0 && at.Nanosecond() == 0 {
		return at.Add(time.Minute)
	}
	return at.Truncate(time.Second).Add(time.Second)
}

// Explain explains the outcome of the slot at a moment, see [After]. It is pure.
func Explain(at time.Time, e Evidence) Explanation {
	x := Explanation{Slot: at, Changes: e.Changes}
	if row, ok := e.row(at); ok {
		x.RunID = row.ID
		if row.SlotCount <= 1 {
			x.Slot = row.ScheduledFor
		} else if slot, ok := e.slotIn(at); ok {
			x.Slot = slot
		}
		x.Why, x.Text, x.Cure = e.ofRow(row)
		if e.otherRules(row) {
			x.Text += " The slot was planned by other clock rules of " + e.rules() + ", and kept its moment."
		}
		if e.Job == nil { // no command finds it any more
			x.Cure = Cure{}
		}
		return x
	}
	slot, planned := e.slotIn(at)
	if planned {
		x.Slot = slot
	}
	x.Why, x.Text, x.Cure = e.withoutRow(x.Slot, planned)
	if x.Why == WhyUnplanned || x.Why == WhyClock {
		x.Before, x.After = e.nearest(at)
		if near := e.both(x.Before, x.After); near != "" {
			x.Text += " " + near
		}
	}
	return x
}

// row is the most specific ledger row for a moment: a row of one slot before one of many, a planned
// run before a manual one.
func (e Evidence) row(at time.Time) (Run, bool) {
	rank := func(r Run) int {
		switch {
		case r.SlotCount > 1:
			return 2
		case !r.Trigger.Planned():
			return 1
		}
		return 0
	}
	var found []Run
	for _, r := range e.Rows {
		last := r.ScheduledFor
		if r.SlotCount > 1 {
			last = r.SlotUntil
		}
		if r.ScheduledFor.Before(After(at)) && !last.Before(at) {
			found = append(found, r)
		}
	}
	if len(found) == 0 {
		return Run{}, false
	}
	return slices.MinFunc(found, func(a, b Run) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), a.ScheduledFor.Compare(b.ScheduledFor))
	}), true
}

// slotIn is the first slot of the schedule in the period of a moment.
func (e Evidence) slotIn(at time.Time) (time.Time, bool) {
	if e.Timetable == nil {
		return time.Time{}, false
	}
	fire, ok := e.Timetable.Schedule.Next(at.Add(-1))
	return fire.Slot, ok && fire.Slot.Before(After(at))
}

// Newest returns the newest slot of the job that has passed, or the next one when none has passed
// since the job was made. Without a slot it returns now.
func (e Evidence) Newest() time.Time {
	before, after := e.nearest(e.Now)
	switch {
	case e.Job != nil && !before.After(e.Job.CreatedAt) && !after.IsZero():
		return after
	case before.IsZero():
		return e.Now
	}
	return before
}

// nearest are the slots around a moment.
func (e Evidence) nearest(at time.Time) (before, after time.Time) {
	if e.Timetable == nil {
		return before, after
	}
	if last := e.Timetable.newest(at.Add(-nearestSearch), at, 1); len(last) == 1 {
		before = last[0].Slot
	}
	if next, ok := e.Timetable.Schedule.Next(at); ok && !e.Timetable.ended(next.Slot) {
		after = next.Slot
	}
	return before, after
}

// nearestSearch is how far back the previous slot is searched.
const nearestSearch = 400 * 24 * time.Hour

func (e Evidence) both(before, after time.Time) string {
	switch {
	case before.IsZero() && after.IsZero():
		return ""
	case before.IsZero():
		return "The next slot is " + e.when(after) + "."
	case after.IsZero():
		return "The previous slot is " + e.when(before) + "."
	}
	return "The nearest slots are " + e.when(before) + " and " + e.when(after) + "."
}

// withoutRow explains a moment without a row in the ledger.
func (e Evidence) withoutRow(slot time.Time, planned bool) (why Why, text string, cure Cure) {
	j := e.Job
	switch {
	case j == nil:
		return WhyRemoved, "The job was removed, and the ledger has no slot at that time.", Cure{}
	case j.Invalid != "":
		return WhyInvalid, "The stored job cannot be understood: " + sentence(j.Invalid), Cure{"correct the job with laneway cron edit, or make a new one; this shows it: " + e.command("get", "--json"), []Act{ActEdit}}
	case !slot.After(j.CreatedAt): // an interval starts with the job and fires first at its end
		return WhyMadeLater, "The job was made at " + e.when(j.CreatedAt) + "." + e.next(), Cure{}
	case !planned:
		return e.unplanned(slot)
	case slot.After(e.Now):
		return e.coming(slot)
	case !e.Kept.IsZero() && slot.Before(e.Kept):
		return WhyForgotten, "The ledger keeps its rows since " + e.when(e.Kept) + " only.", Cure{Text: "raise cron.retention"}
	}
	return e.passed(slot)
}

// next is a sentence about the next slot, or "".
func (e Evidence) next() string {
	if e.Timetable == nil || !e.Job.MayFire() {
		return ""
	}
	fire, ok := e.Timetable.Schedule.Next(e.Now)
	if !ok {
		return ""
	}
	return " The next slot is " + e.when(fire.Slot) + "."
}

// unplanned explains a moment that is not a slot of the current schedule.
func (e Evidence) unplanned(at time.Time) (why Why, text string, cure Cure) {
	if t := e.Timetable; t != nil {
		for _, lost := range t.Schedule.Lost(at.Add(-24*time.Hour), at.Add(24*time.Hour)) {
			if apart := lost.Slot.Sub(at).Abs(); apart <= 2*time.Hour {
				return WhyClock, "The clock went forward at " + e.when(lost.Slot) + " and the wall time did not exist; the job skips such slots.", Cure{"let such slots run after the gap: " + e.command("edit", "--dst-gap run_after"), []Act{ActEdit}}
			}
		}
	}
	if c, ok := e.changed(at); ok {
		return WhyChanged, "The present schedule has no slot at this time; it was changed at " + e.when(c.At) + " by " + c.Who + ".", Cure{}
	}
	return WhyUnplanned, "The schedule has no slot at this time.", Cure{}
}

// changed is the oldest edit of the job after a moment. The schedule may have been different before
// it.
func (e Evidence) changed(at time.Time) (JobChange, bool) {
	if e.Job == nil || !e.Job.State.ActivatedAt.After(at) {
		return JobChange{}, false
	}
	for _, c := range slices.Backward(e.Changes) {
		if c.Verb == "cron.update" || c.Verb == "cron.add" {
			return c, true
		}
	}
	return JobChange{}, false
}

// stopped explains why a job has no planned fire; "" when it has one.
func (e Evidence) stopped(slot time.Time) (why Why, text string, cure Cure) {
	switch j := e.Job; {
	case j.Pause != nil && !j.Pause.At.After(later(slot, e.Now)):
		text = "The job has been paused since " + e.when(j.Pause.At)
		if j.Pause.By != "" {
			text += " by " + j.Pause.By
		}
		if j.Pause.Note != "" {
			text += " (" + j.Pause.Note + ")"
		}
		return WhyPaused, text + ".", Cure{"resume the job: " + e.command("resume", ""), []Act{ActResume}}
	case j.AutoDisabled:
		return WhyDisabled, fmt.Sprintf("The job was switched off after %d failures in a row: %s", j.State.ConsecutiveErrors, sentence(j.State.LastError)), Cure{"correct the cause, then switch the job on: " + e.command("resume", ""), []Act{ActResume}}
	case e.Timetable != nil && e.Timetable.ended(slot):
		verb := "ended"
		if j.EndsAt.After(e.Now) {
			verb = "ends"
		}
		return WhyEnded, "The job " + verb + " at " + e.when(j.EndsAt) + ".", Cure{}
	case j.Spent():
		return WhyEnded, fmt.Sprintf("The job has had its %d runs.", j.MaxRuns), Cure{}
	case !j.Enabled:
		return WhyDisabled, "The job is disabled" + e.by("cron.update") + ".", Cure{"switch the job on: " + e.command("edit", `'{"enabled":true}'`), []Act{ActResume}}
	}
	return "", "", Cure{}
}

// by is the author of the newest change of a kind.
func (e Evidence) by(verb string) string {
	for _, c := range e.Changes {
		if c.Verb == verb {
			return ", last changed at " + e.when(c.At) + " by " + c.Who
		}
	}
	return ""
}

func (e Evidence) coming(slot time.Time) (why Why, text string, cure Cure) {
	if why, text, cure = e.stopped(slot); why != "" {
		return why, text, cure
	}
	return WhyNotDue, "It is due in " + lasting(slot.Sub(e.Now)) + ".", Cure{}
}

// passed explains a slot of the schedule that has passed and has no row.
func (e Evidence) passed(slot time.Time) (why Why, text string, cure Cure) {
	j := e.Job
	if why, text, cure = e.stopped(slot); why != "" {
		return why, text, cure
	}
	if o, ok := e.outage(slot); ok && o.Until.IsZero() {
		return WhyNoReplica, "No replica has fired jobs since " + e.when(o.From) + ".", Cure{Text: "start a gateway with the role cron; it decides about the slot by the policy of the job"}
	}
	if e.Held {
		return WhyHeld, "The gateway is held, so no job starts.", Cure{Text: "end the hold: laneway release"}
	}
	if r, ok := e.sameSlot(slot); ok {
		return WhyClock, "The slot was planned at " + e.when(r.ScheduledFor) + " by other clock rules of " + e.rules() + ", and kept its moment.", Cure{}
	}
	if c, ok := e.changed(slot); ok {
		return WhyChanged, "The schedule was changed at " + e.when(c.At) + " by " + c.Who + "; under the one before this was perhaps no slot.", Cure{}
	}
	if !slot.After(j.State.ActivatedAt) {
		return WhyMadeLater, "The schedule is in force since " + e.when(j.State.ActivatedAt) + ".", Cure{}
	}
	if !j.State.Next.After(slot) {
		return WhyWaiting, "It has been due for " + lasting(e.Now.Sub(slot)) + " and is not claimed yet.", Cure{Text: "laneway status shows whether jobs are claimed"}
	}
	return WhyUnknown, "The ledger has no row for this slot, and nothing explains it.", Cure{Text: "keep a copy of the database and report this with the log of the gateway"}
}

// widestRules bounds how far a slot is from where other rules of its zone have planned it.
const widestRules = 3 * time.Hour

// otherRules reports whether a row is of a slot that the present rules of the zone do not have,
// although the schedule is the same.
func (e Evidence) otherRules(r Run) bool {
	if e.Job == nil || e.Timetable == nil || e.Timetable.Schedule.Release() == "" || r.SlotCount > 1 || !r.Trigger.Planned() || r.Reason == ReasonGap {
		return false
	}
	fire, ok := e.Timetable.Schedule.Next(r.ScheduledFor.Add(-1))
	return !e.Job.State.ActivatedAt.After(r.ScheduledFor) && (!ok || !fire.Slot.Equal(r.ScheduledFor))
}

// sameSlot is the row of a slot that other rules of the zone have planned at another moment.
func (e Evidence) sameSlot(slot time.Time) (Run, bool) {
	for _, r := range e.Rows {
		if r.ScheduledFor.Sub(slot).Abs() <= widestRules && e.otherRules(r) {
			return r, true
		}
	}
	return Run{}, false
}

// rules names the zone of the job and the release of its rules.
func (e Evidence) rules() string {
	s := e.Timetable.Schedule
	return s.Location().String() + " (the present ones are those of " + s.Release() + ")"
}

// outage is the outage during which a slot became due.
func (e Evidence) outage(slot time.Time) (Outage, bool) {
	for _, o := range e.Outages {
		if !o.From.After(slot.Add(tickSlack)) && (o.Until.IsZero() || o.Until.After(slot)) {
			return o, true
		}
	}
	return Outage{}, false
}

// SlotsOf are the slots in a range that are explained one by one: those of the schedule and those
// of ledger rows, oldest first.
func (e Evidence) SlotsOf(from, until time.Time, most int) []time.Time {
	var slots []time.Time
	if e.Timetable != nil {
		fires, _ := e.Timetable.Between(from.Add(-1), until, most)
		for _, f := range fires {
			slots = append(slots, f.Slot)
		}
	}
	for _, r := range e.Rows {
		if !r.ScheduledFor.Before(from) && !r.ScheduledFor.After(until) && r.SlotCount <= 1 {
			slots = append(slots, r.ScheduledFor)
		}
	}
	slices.SortFunc(slots, time.Time.Compare)
	slots = slices.CompactFunc(slots, time.Time.Equal)
	return slots[:min(len(slots), most)]
}

// ofRow explains a row of the ledger.
func (e Evidence) ofRow(r Run) (why Why, text string, cure Cure) {
	switch r.State {
	case RunOK:
		return WhyRan, e.ran(r) + ", and " + delivered(r) + ".", Cure{}
	case RunError:
		return WhyFailed, e.ran(r) + " and failed: " + sentence(cmp.Or(r.Error, r.ErrorClass, "the reason is not known")), Cure{"correct the cause, then run it again: " + e.command("run", "") + "; all attempts: " + e.command("runs", ""), []Act{ActRun}}
	case RunInterrupted:
		return WhyInterrupted, e.ran(r) + ", and its process ended before it did: " + sentence(cmp.Or(r.Error, "it is not run again")), Cure{"run it again: " + e.command("run", ""), []Act{ActRun}}
	case RunRunning:
		return WhyRunning, fmt.Sprintf("It has been running since %s (attempt %d) on %s.", e.clock(r.StartedAt), max(r.Attempt, 1), cmp.Or(r.Node, "a replica")), Cure{}
	case RunRetrying:
		return WhyRetrying, fmt.Sprintf("Attempt %d failed (%s); the next one is at %s.", r.Attempt, strings.TrimSuffix(sentence(cmp.Or(r.Error, r.ErrorClass, "the reason is not known")), "."), e.clock(r.NextAttempt)), Cure{}
	case RunQueued:
		return WhyWaiting, fmt.Sprintf("It was claimed at %s and waits for its lane (%s) or its session.", e.clock(r.ClaimedAt), cmp.Or(r.Lane, DefaultLane)), Cure{"laneway status shows who fills the lane", []Act{ActRuns}}
	case RunSkipped:
		return e.skipped(r)
	case RunMissed:
		return e.missed(r)
	case RunCancelled:
		return cancelled(r)
	}
	return WhyUnknown, "The ledger has the state " + string(r.State) + ".", Cure{}
}

// ran is when a run ran, without final punctuation.
func (e Evidence) ran(r Run) string {
	if r.StartedAt.IsZero() {
		return "It did not start"
	}
	text := "It ran at " + e.clock(r.StartedAt)
	if late := r.StartedAt.Sub(r.FireAt); !r.FireAt.IsZero() && late >= 0 {
		text += ", " + lasting(late) + " late"
	}
	if r.Duration > 0 {
		text += ", for " + lasting(r.Duration)
	}
	if r.Attempt > 1 {
		text += fmt.Sprintf(", in %d attempts", r.Attempt)
	}
	return text
}

// WaitsForQuiet begins [Run].DeliveryError while quiet hours hold the answer; their end follows.
const WaitsForQuiet = "it waits for the end of quiet hours at "

func delivered(r Run) string {
	switch {
	case r.SuppressedBy == "empty":
		return "the answer was empty, so nothing was sent"
	case r.SuppressedBy != "":
		return "the answer asked for no delivery"
	case r.Delivery == DeliveryDone:
		return "its answer was delivered"
	case r.Delivery == DeliveryNot:
		return "its answer was not delivered: " + strings.TrimSuffix(sentence(cmp.Or(r.DeliveryError, "the reason is not known")), ".")
	case r.Delivery == DeliveryUnknown && strings.HasPrefix(r.DeliveryError, WaitsForQuiet):
		return "its answer " + strings.TrimPrefix(r.DeliveryError, "it ")
	case r.Delivery == DeliveryUnknown:
		return "its answer waits to be sent, or it is not known whether it arrived"
	}
	return "its answer was to be sent nowhere"
}

func (e Evidence) skipped(r Run) (why Why, text string, cure Cure) {
	switch r.Reason {
	case ReasonPaused:
		return WhyPaused, "The job was paused" + e.slots(r) + ".", Cure{}
	case ReasonOverlap:
		return WhySkipped, "Another run of the job was active, and the job skips such slots" + e.slots(r) + ".", Cure{"make the runs shorter, or let one slot wait: " + e.command("edit", "--overlap buffer_one"), []Act{ActEdit}}
	case ReasonBufferFull:
		return WhySkipped, "A slot of the job waited already, and the job keeps one" + e.slots(r) + ".", Cure{"make the runs shorter, or let them overlap: " + e.command("edit", "--overlap concurrent"), []Act{ActEdit}}
	case ReasonBudget:
		return WhySkipped, "The runs of the day, or a budget of tokens or money, were used up" + e.slots(r) + ".", Cure{Text: "laneway usage shows the budgets; raise it, or wait for the next day"}
	case ReasonGap:
		return WhyClock, "The clock went forward and the wall time did not exist; the job skips such slots.", Cure{"let such slots run after the gap: " + e.command("edit", "--dst-gap run_after"), []Act{ActEdit}}
	default: // the others are no reasons of a skipped slot
	}
	return WhySkipped, "It was skipped" + e.slots(r) + ": " + cmp.Or(string(r.Reason), "the reason is not known") + ".", Cure{}
}

// slots mentions that a row stands for several slots.
func (e Evidence) slots(r Run) string {
	if r.SlotCount <= 1 {
		return ""
	}
	show := e.when
	if r.SlotUntil.Sub(r.ScheduledFor) < time.Hour { // slots of an interval of seconds would be from a minute to the same minute
		show = e.clock
	}
	return fmt.Sprintf(" (%d slots from %s to %s)", r.SlotCount, show(r.ScheduledFor), show(r.SlotUntil))
}

func (e Evidence) missed(r Run) (why Why, text string, cure Cure) {
	if r.Reason == ReasonNoAgent {
		return WhyMissed, "No replica had the agent of the job, until the slot was older than the catch-up window of the job" + e.slots(r) + ".",
			Cure{"start a gateway that has the agent in its configuration, then run the slot: " + e.backfill(r), []Act{ActBackfill}}
	}
	text = "No replica fired jobs then"
	if o, ok := e.outage(r.ScheduledFor); ok {
		text = "No replica fired jobs from " + e.clock(o.From) + " to " + e.clock(o.Until)
	}
	text += e.slots(r)
	cure = Cure{"run the slot: " + e.backfill(r), []Act{ActBackfill, ActEdit}}
	decided := r.ClaimedAt
	old := lasting(decided.Sub(r.ScheduledFor))
	switch r.Reason {
	case ReasonWindow:
		text += ". When one was back the slot was " + old + " old, which is more than the catch-up window of the job"
		cure.Text += "; or make the window longer: " + e.command("edit", fmt.Sprintf("--missed-window %dh", int(min(decided.Sub(r.ScheduledFor), MaxWindow-time.Hour)/time.Hour)+1))
	case ReasonMaxCatchup:
		text += ". When one was back more slots had passed than the job catches up"
		cure.Text += "; or catch up with more slots: " + e.command("edit", fmt.Sprintf("--missed-most %d", e.moreCaughtUp(r)))
	default:
		text += ". When one was back the policy of the job ran a newer slot, or none"
		cure.Text += "; or catch up with all slots: " + e.command("edit", "--missed fire_all")
	}
	return WhyMissed, text + ".", cure
}

func cancelled(r Run) (why Why, text string, cure Cure) {
	switch r.Reason {
	case ReasonRemoved:
		return WhyCancelled, "The job was removed while the run waited or ran.", Cure{}
	case ReasonReplaced:
		return WhyCancelled, "A newer run of the job took its place.", Cure{}
	case ReasonPaused:
		return WhyPaused, "The job was paused while the run waited to start.", Cure{}
	default: // the others are no reasons of a cancellation
	}
	if r.Error != "" {
		return WhyCancelled, "It was stopped: " + sentence(r.Error), Cure{}
	}
	return WhyCancelled, "It was stopped.", Cure{}
}

// command is a command about the job that can be pasted into a shell.
func (e Evidence) command(verb, rest string) string {
	ref := e.Ref
	if j := e.Job; ref == "" && j != nil {
		ref = j.Name
		if ref == "" || ref[0] == '-' || ref != strings.Join(strings.Fields(ref), " ") { // a flag, or lost where it is shown on one line
			ref = j.ID
		}
	}
	return strings.TrimSpace("laneway cron " + verb + " " + chat.ShellWord(ref) + " " + rest)
}

// backfill is the command that runs the slots of a row.
func (e Evidence) backfill(r Run) string {
	last := r.ScheduledFor
	if r.SlotCount > 1 {
		last = r.SlotUntil
	}
	return e.command("backfill", "--from "+schedule.ISO(r.ScheduledFor)+" --to "+schedule.ISO(last.Add(time.Second)))
}

// moreCaughtUp is a limit of slots that would have been enough for those of a row, too.
func (e Evidence) moreCaughtUp(r Run) int {
	now := DefaultMaxCatchup
	if e.Job != nil {
		now = e.Job.Missed.For(e.Job.Schedule.Kind).MaxCatchup
	}
	return int(min(int64(now)+max(r.SlotCount, 1), MaxMaxCatchup))
}

// when formats an instant in the zone of the job, with seconds if its slots have them.
func (e Evidence) when(t time.Time) string {
	layout := "Mon 2 Jan 15:04"
	if e.Job != nil && e.Job.Schedule.Seconds() || e.Job == nil && t.Second() != 0 {
		layout += ":05"
	}
	return t.In(e.zone()).Format(layout)
}

// clock is the time of day, to the second.
func (e Evidence) clock(t time.Time) string {
	if t.IsZero() {
		return "an unknown time"
	}
	if local := t.In(e.zone()); local.Format(time.DateOnly) != e.Now.In(e.zone()).Format(time.DateOnly) {
		return local.Format("Mon 2 Jan 15:04:05")
	}
	return t.In(e.zone()).Format("15:04:05")
}

func (e Evidence) zone() *time.Location {
	if e.Zone == nil {
		return time.UTC
	}
	return e.Zone
}

// lasting formats a duration with at most two units.
func lasting(d time.Duration) string {
	switch {
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	case d < 10*time.Second:
		return fmt.Sprintf("%.1f s", d.Seconds())
	case d < time.Minute:
		return fmt.Sprintf("%d s", int(d.Seconds()))
	case d < time.Hour:
		return twoUnits(int(d.Minutes()), "min", int(d.Seconds())%60, "s")
	case d < 48*time.Hour:
		return twoUnits(int(d.Hours()), "h", int(d.Minutes())%60, "min")
	}
	return twoUnits(int(d.Hours())/24, "d", int(d.Hours())%24, "h")
}

func twoUnits(n int, unit string, m int, smaller string) string {
	if m == 0 {
		return fmt.Sprintf("%d %s", n, unit)
	}
	return fmt.Sprintf("%d %s %d %s", n, unit, m, smaller)
}
