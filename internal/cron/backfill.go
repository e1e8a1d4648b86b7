package cron

import (
	"strconv"
	"strings"
	"time"

	"laneway/internal/cron/schedule"
)

// A slot may be backfilled again when its run did not succeed, and with force always. The trigger of a repeated backfill contains its number, so that "one row
// for each job, slot and trigger" holds: backfill, backfill:2, backfill:3.

// BackfillTrigger is the trigger of the n-th backfill of a slot, counted from 1.
func BackfillTrigger(n int) Trigger {
	if n <= 1 {
		return TriggerBackfill
	}
	return TriggerBackfill + ":" + Trigger(strconv.Itoa(n))
}

// Kind is the trigger without its number: one of the closed set that clients, filters and metrics use.
func (t Trigger) Kind() Trigger {
	if t.round() > 0 {
		return TriggerBackfill
	}
	return t
}

// round is the number of the backfill of its slot, counted from 1; 0 when the trigger is not a backfill.
func (t Trigger) round() int {
	if t == TriggerBackfill {
		return 1
	}
	text, numbered := strings.CutPrefix(string(t), string(TriggerBackfill)+":")
	if !numbered {
		return 0
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 2 || BackfillTrigger(n) != t {
		return 0
	}
	return n
}

// SlotRun is a run that the ledger has for a slot.
type SlotRun struct {
	Slot    time.Time
	Trigger Trigger
	State   RunState
}

// NextBackfill is the trigger for the next backfill of a slot, given the runs in the ledger (of other slots as well). exists: nothing is to be run, because a
// backfill of the slot is active, or because one succeeded and force is false; the trigger is then that of the last backfill.
func NextBackfill(ran []SlotRun, slot time.Time, force bool) (t Trigger, exists bool) {
	last, well, active := 0, false, false
	for _, r := range ran {
		if !r.Slot.Equal(slot) {
			continue
		}
		n := r.Trigger.round()
		last = max(last, n)
		well = well || r.State == RunOK
		active = active || (n > 0 && r.State.Active())
	}
	if active || (well && !force) {
		return BackfillTrigger(last), true
	}
	return BackfillTrigger(last + 1), false
}

// Backfill creates the runs of some slots, given the ledger's runs of them in d.Ran. They run one after the other, in the session of the first new one.
func (p *Planner) Backfill(d DueJob, fires []schedule.Fire, force bool) []Launch {
	list := make([]Launch, 0, len(fires))
	series := ""
	for _, f := range fires {
		trigger, exists := NextBackfill(d.Ran, f.Slot, force)
		if series == "" && !exists {
			series = seriesOf(trigger, f.Slot)
		}
		l := p.Launch(d.Job, PlannedRun{Fire: f, Trigger: trigger, Series: series}, time.Time{})
		l.Exists = exists
		list = append(list, l)
	}
	return list
}

// seriesOf is the end of the key of a session that is made for one run.
func seriesOf(t Trigger, slot time.Time) string { return string(t) + "-" + millisText(slot) }
