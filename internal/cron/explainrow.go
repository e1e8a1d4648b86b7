package cron

import (
	"cmp"
	"fmt"
	"strings"
	"time"
)

// ofRow explains a row of the ledger.
func (e Evidence) ofRow(r Run) (why Why, text string, cure Cure) {
	switch r.State {
	case RunOK:
		return WhyRan, e.ran(r) + ", and " + delivered(r) + ".", Cure{}
	case RunError:
		return WhyFailed, e.ran(r) + " and failed: " + sentence(cmp.Or(r.Error, r.ErrorClass, "the reason is not known")), Cure{"correct the cause, then run it again: laneway cron run; laneway cron runs shows all attempts", []Act{ActRun}}
	case RunInterrupted:
		return WhyInterrupted, e.ran(r) + ", and its process ended before it did: " + sentence(cmp.Or(r.Error, "it is not run again")), Cure{"run it by hand: laneway cron run", []Act{ActRun}}
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
	case r.Delivery == DeliveryUnknown:
		return "its answer waits to be sent, or it is not known whether it arrived"
	}
	return "its answer was to be sent nowhere"
}

func (e Evidence) skipped(r Run) (why Why, text string, cure Cure) {
	switch r.Reason { //nolint:exhaustive // the others are no reasons of a skipped slot
	case ReasonPaused:
		return WhyPaused, "The job was paused" + e.slots(r) + ".", Cure{}
	case ReasonOverlap:
		return WhySkipped, "Another run of the job was active, and the job skips such slots" + e.slots(r) + ".", Cure{"make the runs shorter, or let one slot wait: laneway cron edit --overlap buffer_one", []Act{ActEdit}}
	case ReasonBufferFull:
		return WhySkipped, "A slot of the job waited already, and the job keeps one" + e.slots(r) + ".", Cure{"make the runs shorter, or let them overlap: laneway cron edit --overlap concurrent", []Act{ActEdit}}
	case ReasonBudget:
		return WhySkipped, "The runs of the day, or a budget of tokens or money, were used up" + e.slots(r) + ".", Cure{Text: "laneway usage shows the budgets; raise it, or wait for the next day"}
	case ReasonGap:
		return WhyClock, "The clock went forward and the wall time did not exist; the job skips such slots.", Cure{"let such slots run after the gap: laneway cron edit --dst-gap run_after", []Act{ActEdit}}
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
			Cure{"start a gateway that has the agent in its configuration, then run the slot: laneway cron backfill", []Act{ActBackfill}}
	}
	text = "No replica fired jobs then"
	if o, ok := e.outage(r.ScheduledFor); ok {
		text = "No replica fired jobs from " + e.clock(o.From) + " to " + e.clock(o.Until)
	}
	text += e.slots(r)
	cure = Cure{"run the slot: laneway cron backfill", []Act{ActBackfill, ActEdit}}
	decided := r.ClaimedAt
	old := lasting(decided.Sub(r.ScheduledFor))
	switch r.Reason {
	case ReasonWindow:
		text += ". When one was back the slot was " + old + " old, which is more than the catch-up window of the job"
		cure.Text += ", or make the window longer: laneway cron edit --missed-window"
	case ReasonMaxCatchup:
		text += ". When one was back more slots had passed than the job catches up"
		cure.Text += ", or catch up with more slots: laneway cron edit --missed-most"
	default:
		text += ". When one was back the policy of the job ran a newer slot, or none"
		cure.Text += ", or catch up with all slots: laneway cron edit --missed fire_all"
	}
	return WhyMissed, text + ".", cure
}

func cancelled(r Run) (why Why, text string, cure Cure) {
	switch r.Reason { //nolint:exhaustive // the others are no reasons of a cancellation
	case ReasonRemoved:
		return WhyCancelled, "The job was removed while the run waited or ran.", Cure{}
	case ReasonReplaced:
		return WhyCancelled, "A newer run of the job took its place.", Cure{}
	case ReasonPaused:
		return WhyPaused, "The job was paused while the run waited to start.", Cure{}
	}
	if r.Error != "" {
		return WhyCancelled, "It was stopped: " + sentence(r.Error), Cure{}
	}
	return WhyCancelled, "It was stopped.", Cure{}
}

// when formats an instant in the zone of the job.
func (e Evidence) when(t time.Time) string { return t.In(e.zone()).Format("Mon 2 Jan 15:04") }

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
