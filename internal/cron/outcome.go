package cron

import (
	"fmt"
	"strings"
	"time"

	"laneway/internal/cron/schedule"
)

// AlertKind is the kind of alert about a job after the end of a run or slot.
type AlertKind string

// The kinds of alerts.
const (
	AlertNone      AlertKind = ""
	AlertFailing   AlertKind = "failing"   // enough failed runs in a row
	AlertRecovered AlertKind = "recovered" // a run succeeded after an alert about failures
	AlertSkipping  AlertKind = "skipping"  // enough slots in a row were skipped, and the job has alerts for that
	AlertBudget    AlertKind = "budget"    // a slot was skipped because its owner's daily runs are used up
	AlertDisabled  AlertKind = "disabled"  // too many failed runs in a row: the job is disabled
	AlertTaken     AlertKind = "taken"     // another principal has made the session of the job
	AlertGone      AlertKind = "gone"      // the address of the answers no longer accepts messages: they are kept and not sent
)

// After is the job after one of its runs has ended, nil when it is to be removed, and the alert about it. It is pure, so that a store may call it in its
// transaction and again when the transaction is repeated.
func (j Job) After(r Run, now time.Time) (*Job, AlertKind) {
	j.State.RunCount++
	j.State.LastRunAt, j.State.LastState, j.State.LastDuration = r.StartedAt, r.State, r.Duration
	j.State.LastError, j.State.LastErrorClass = r.Error, r.ErrorClass
	j.State.LastDelivery, j.State.LastDeliveryError = r.Delivery, r.DeliveryError
	alert := AlertNone
	switch r.State {
	case RunOK:
		alert = j.succeeded(now)
		if j.DeleteAfter && r.Trigger.Planned() && r.Delivery != DeliveryNot {
			return nil, alert
		}
	case RunError, RunInterrupted:
		j.State.ErrorCount++
		j.State.ConsecutiveErrors++
		alert = j.failed(r, now)
	case RunSkipped:
		j.State.ConsecutiveSkipped++
		if j.Skipping(1) {
			alert = AlertSkipping
		}
	case RunQueued, RunRunning, RunRetrying, RunMissed, RunCancelled:
	}
	return &j, alert
}

func (j *Job) succeeded(now time.Time) AlertKind {
	alert := AlertNone
	if j.alertAfter() <= j.State.ConsecutiveErrors && !j.State.LastAlertAt.IsZero() && !j.Alert.Off {
		alert, j.State.LastAlertAt = AlertRecovered, now
	}
	j.State.ConsecutiveErrors, j.State.ConsecutiveSkipped = 0, 0
	return alert
}

func (j *Job) failed(r Run, now time.Time) AlertKind {
	if j.PauseAfter > 0 && j.State.ConsecutiveErrors >= j.PauseAfter && j.Owner != SystemOwner {
		j.Enabled, j.AutoDisabled = false, true
		j.State.Plan = Plan{}
		j.State.LastAlertAt = now
		return AlertDisabled
	}
	wait := j.Alert.Cooldown
	if wait == 0 {
		wait = DefaultAlertWait
	}
	if j.Alert.Off || (j.State.ConsecutiveErrors < j.alertAfter() && !j.onlyChance(r)) {
		return AlertNone
	}
	if !j.State.LastAlertAt.IsZero() && now.Sub(j.State.LastAlertAt) < wait {
		return AlertNone
	}
	j.State.LastAlertAt = now
	return AlertFailing
}

// onlyChance reports whether no later run can make up for a failure, and the delivery of the run has not reported it: for a job that fires once, or a run that
// a crash interrupted and that is not repeated, because its job runs at most once or because it has crashed its process too often.
func (j Job) onlyChance(r Run) bool {
	return (r.Delivery == DeliveryNotRequested || r.DeliveryError != "") && r.Trigger.Planned() && (j.Schedule.Kind == schedule.KindAt || r.State == RunInterrupted)
}

func (j Job) alertAfter() int {
	if j.Alert.After == 0 {
		return DefaultAlertAfter
	}
	return j.Alert.After
}

// Skipping reports whether an alert about skipped slots of the job is due: a claim has added some, and the number in a row now exceeds the threshold of the
// alert.
func (j Job) Skipping(added int) bool {
	return j.Alert.IncludeSkipped && !j.Alert.Off && added > 0 && j.State.ConsecutiveSkipped >= j.alertAfter() && j.State.ConsecutiveSkipped-added < j.alertAfter()
}

// inARow describes how often a job has failed, if more than once.
func inARow(j Job) string {
	if j.State.ConsecutiveErrors == 1 {
		return ""
	}
	return fmt.Sprintf(" %d times in a row", j.State.ConsecutiveErrors)
}

// sentence is the text of an error with exactly one final mark: runners write whole sentences, the system writes fragments.
func sentence(text string) string {
	text = strings.TrimSpace(text)
	bare := strings.TrimRight(text, ". ")
	if bare == "" || strings.ContainsAny(bare[len(bare)-1:], "!?") {
		return bare
	}
	return bare + "."
}

// Sentence is the message to people.
func (k AlertKind) Sentence(j Job) string {
	switch k {
	case AlertFailing:
		return fmt.Sprintf("The job %q has failed%s: %s", j.Name, inARow(j), sentence(j.State.LastError))
	case AlertSkipping:
		return fmt.Sprintf("The job %q was skipped %d times in a row, because a run of it was active or a budget is used up.", j.Name, j.State.ConsecutiveSkipped)
	case AlertBudget:
		return fmt.Sprintf("The job %q does not run now: your runs of the last 24 hours are used up. It continues by itself as they pass.", j.Name)
	case AlertRecovered:
		return fmt.Sprintf("The job %q works again.", j.Name)
	case AlertDisabled:
		return fmt.Sprintf("The job %q has failed%s and is switched off: %s Enable it when the cause is gone.", j.Name, inARow(j), sentence(j.State.LastError))
	case AlertGone:
		return fmt.Sprintf("The answers of the job %q are not sent any more: %s accepts no messages (%s). The job continues, and its answers are kept; "+
			"give it another destination, or resume it when the chat can be reached again.", j.Name, j.State.DeliveryPause.Where(), j.State.DeliveryPause.Reason)
	case AlertTaken:
		return fmt.Sprintf("The job %q did not run: its session belongs to another principal, which made it after the job had named it. "+
			"Delete that session, or give the job another one.", j.Name)
	case AlertNone:
	}
	return ""
}

// Where describes the address for people.
func (p DeliveryPause) Where() string { return "the chat " + p.ChatID + " of " + p.Channel }
