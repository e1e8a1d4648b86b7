package cron

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"laneway/internal/chat"
	"laneway/internal/cron/schedule"
	"laneway/internal/retry"
)

// The rules of the ledger: how each event changes a run. This is their only definition. A row that
// has ended never changes, so each rule reports whether the event changes the run at all. Only a
// running attempt is open, and it is the last one.

// MaxSummary is how much of an answer the ledger keeps, in bytes.
const MaxSummary = 16_384

// Began is the run after the start of an attempt on a node. It closes an attempt that a dead
// process left open. Error is that of the running attempt, so it is empty; earlier errors are in
// Attempts.
func (r Run) Began(s AttemptStart, now time.Time) (Run, bool) {
	if !r.State.Active() {
		return r, false
	}
	r.Attempts = closed(r.Attempts, now)
	r.Attempt, r.Node = max(r.Attempt+1, s.Attempt), s.Node
	r.Attempts = append(slices.Clip(r.Attempts), Attempt{Number: r.Attempt, StartedAt: now, Node: s.Node})
	if r.StartedAt.IsZero() {
		r.StartedAt = now
	}
	r.State, r.NextAttempt, r.Error, r.ErrorClass = RunRunning, time.Time{}, "", ""
	return r, true
}

// Ended is the run after the end of its attempt on a node. The usage of the attempts is summed. The
// reason and the error of a cancelled run are those of the cancellation.
func (r Run) Ended(e *AttemptEnd, node string, now time.Time) (Run, bool) {
	if !r.State.Active() || r.State == RunRetrying {
		return r, false
	}
	attempt := e.Attempt
	attempt.FinishedAt, attempt.Node = now, cmp.Or(attempt.Node, node)
	attempt.Error = chat.CleanText(attempt.Error)
	list := append([]Attempt(nil), r.Attempts...)
	if n := len(list); n > 0 && list[n-1].State == "" {
		attempt.Number, attempt.StartedAt = list[n-1].Number, list[n-1].StartedAt
		list = list[:n-1]
	}
	r.Attempts = append(list, attempt)
	if e.State == RunCancelled {
		r.Reason, r.Error = cmp.Or(r.Reason, e.Reason, ReasonStopped), cmp.Or(r.Error, chat.CleanText(e.Error))
	} else {
		r.Reason, r.Error = e.Reason, chat.CleanText(e.Error)
	}
	r.State, r.ErrorClass, r.Node, r.NextAttempt = e.State, e.ErrorClass, node, time.Time{}
	r.Delivery, r.DeliveryError, r.SuppressedBy = e.Delivery, chat.CleanText(e.DeliveryError), e.SuppressedBy
	if e.Summary != "" {
		r.Summary = chat.Cut(chat.CleanText(e.Summary), MaxSummary)
	}
	r.Model, r.Provider = cmp.Or(e.Usage.Model, r.Model), cmp.Or(e.Usage.Provider, r.Provider)
	r.InputTokens += int64(e.Usage.InputTokens)
	r.OutputTokens += int64(e.Usage.OutputTokens)
	if r.State == RunRetrying {
		r.NextAttempt = wholeMs(e.NextAttempt)
	}
	if r.State.Final() {
		r = r.ended(r.State, now)
	}
	return r, true
}

// WaitsAgain is a run whose process has abandoned it: its message waits for another attempt.
func (r Run) WaitsAgain(now time.Time) (Run, bool) {
	if r.State != RunRunning {
		return r, false
	}
	r.State, r.Attempts = RunQueued, closed(r.Attempts, now)
	return r, true
}

// Cancel is the run after a cancellation. A running one is asked to stop: it keeps the reason and
// the note for the end of its attempt. Any other ends. The note is the error of the run; without a
// note it keeps the error of its last attempt.
func (r Run) Cancel(reason Reason, note string, now time.Time) (Run, bool) {
	if !r.State.Active() {
		return r, false
	}
	r.Reason, r.Error = cmp.Or(reason, ReasonStopped), cmp.Or(chat.CleanText(note), r.Error)
	if r.State != RunRunning {
		r = r.ended(RunCancelled, now)
	}
	return r, true
}

// EndedWaiting is a run whose message got an outcome without running.
func (r Run) EndedWaiting(outcome chat.Outcome, reason string, now time.Time) (Run, bool) {
	if !r.State.Active() {
		return r, false
	}
	state := RunCancelled
	switch outcome {
	case chat.OutcomeInterrupted, chat.OutcomeDead:
		state, r.Error = RunInterrupted, reason
	case chat.OutcomeFailed:
		state, r.Error = RunError, reason
	default:
		r.Reason = cmp.Or(r.Reason, ReasonStopped)
	}
	return r.ended(state, now), true
}

// Launched is a new run that waits to start, on the node that has claimed it.
func (r Run) Launched(node string, session chat.SessionKey, now time.Time) Run {
	r = r.stored()
	r.State, r.ClaimedAt, r.Node, r.SessionKey = RunQueued, now, node, cmp.Or(r.SessionKey, session.String())
	return r
}

// Recorded is a new row that does not run: its slot was skipped or missed, or it cannot run.
func (r Run) Recorded(node string, now time.Time) Run {
	r = r.stored()
	r.ClaimedAt, r.FinishedAt, r.Node = now, now, node
	return r
}

// Refused is a new row of a run whose message cannot be stored, because another message has its id.
func (r Run) Refused() Run {
	r.State, r.ErrorClass = RunError, "unknown"
	r.Error = "another message has the name of this run: the run cannot use it"
	return r
}

// ClassTaken is the error class of a run whose session another principal has made since its job
// named it.
const ClassTaken = "session_taken"

// Taken is a run that is not put into its session, because that session belongs to another
// principal and is younger than the job's name for it.
func (r Run) Taken() Run {
	r.ErrorClass = ClassTaken
	r.Error = ClassTaken + ": " + r.SessionKey + " belongs to another principal, which made it after the job had named it; nothing was written there"
	r.State = RunError
	return r
}

// Retried is a run whose next attempt is due, with the message of that attempt: the last message
// under a new id.
func (r Run) Retried(node string, last chat.Message) (Run, chat.Message) {
	r.State, r.NextAttempt, r.Node = RunQueued, time.Time{}, node
	last.ID = r.ID + "/" + strconv.Itoa(r.Attempt+1)
	return r, last
}

// RunOfMessage is the run of which a message is an attempt; "" when the message is of no job.
func RunOfMessage(messageID string) string {
	id, _, _ := strings.Cut(messageID, "/")
	if _, _, _, err := ParseRunID(id); err != nil {
		return ""
	}
	return id
}

// ended is the run with its outcome.
func (r Run) ended(state RunState, now time.Time) Run {
	r.State, r.FinishedAt, r.NextAttempt = state, now, time.Time{}
	if r.Duration = 0; !r.StartedAt.IsZero() {
		r.Duration = max(now.Sub(r.StartedAt), 0)
	}
	return r
}

// stored is the run with the precision and the bounds of the ledger.
func (r Run) stored() Run {
	r.ScheduledFor, r.SlotUntil, r.FireAt = wholeMs(r.ScheduledFor), wholeMs(r.SlotUntil), wholeMs(r.FireAt)
	r.SlotCount = max(r.SlotCount, 1)
	r.Error, r.Summary = chat.CleanText(r.Error), chat.Cut(chat.CleanText(r.Summary), MaxSummary)
	return r
}

// closed ends the open attempts of a list.
func closed(list []Attempt, now time.Time) []Attempt {
	n := len(list)
	if n == 0 || list[n-1].State != "" {
		return list
	}
	list = append([]Attempt(nil), list...)
	list[n-1].State, list[n-1].FinishedAt = AttemptInterrupted, now
	return list
}

// wholeMs is an instant with the precision of the store; the zero time stays.
func wholeMs(t time.Time) time.Time { return moment(millis(t)) }

// Decided is the job after a verdict that created made runs.
func (j Job) Decided(v Verdict, made int) Job {
	if v.Invalid != "" {
		j.Invalid = v.Invalid
		return j
	}
	j.Pause, j.Enabled = nil, j.Enabled && !v.Disable
	s := &j.State
	s.Plan, s.Fired, s.ConsecutiveSkipped = v.Plan, v.Fired, v.ConsecutiveSkipped
	s.Next, s.NextRunAt = wholeMs(v.Next), wholeMs(v.NextRunAt)
	s.Queued += made
	return j
}

// Clone returns a deep copy, so that a function that changes the copy in place does not change the
// original.
func (j Job) Clone() Job {
	if j.Pause != nil {
		pause := *j.Pause
		j.Pause = &pause
	}
	for _, text := range []*json.RawMessage{&j.Payload.Options, &j.Delivery.Options, &j.Alert.Delivery.Options} {
		*text = slices.Clone(*text)
	}
	return j
}

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
	AlertExpired   AlertKind = "expired"   // an answer could not be sent in time
	AlertGone      AlertKind = "gone"      // the address of the answers no longer accepts messages: they are kept and not sent
)

// After is the job after one of its runs has ended, nil when it is to be removed, and the alert
// about it. It is pure, so that a store may call it in its transaction and again when the
// transaction is repeated.
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
	wait := cmp.Or(j.Alert.Cooldown, DefaultAlertWait)
	if j.Alert.Off || (j.State.ConsecutiveErrors < j.alertAfter() && !j.onlyChance(r)) {
		return AlertNone
	}
	if !j.State.LastAlertAt.IsZero() && now.Sub(j.State.LastAlertAt) < wait {
		return AlertNone
	}
	j.State.LastAlertAt = now
	return AlertFailing
}

// onlyChance reports whether no later run can make up for a failure, and the delivery of the run
// has not reported it: for a job that fires once, or a run that a crash interrupted and that is not
// repeated, because its job runs at most once or because it has crashed its process too often.
func (j Job) onlyChance(r Run) bool {
	return (r.Delivery == DeliveryNotRequested || r.DeliveryError != "") && r.Trigger.Planned() && (j.Schedule.Kind == schedule.KindAt || r.State == RunInterrupted)
}

func (j Job) alertAfter() int {
	return cmp.Or(j.Alert.After, DefaultAlertAfter)
}

// Skipping reports whether an alert about skipped slots of the job is due: a claim has added some,
// and the number in a row now exceeds the threshold of the alert.
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

// sentence is the text of an error with exactly one final mark: runners write whole sentences, the
// system writes fragments.
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
	case AlertExpired:
		return fmt.Sprintf("An answer of the job %q could not be sent in time and is not sent any more. The runs of the job show it.", j.Name)
	case AlertTaken:
		return fmt.Sprintf("The job %q did not run: its session belongs to another principal, which made it after the job had named it. "+
			"Delete that session, or give the job another one.", j.Name)
	case AlertNone:
	}
	return ""
}

// Where describes the address for people.
func (p DeliveryPause) Where() string { return "the chat " + p.ChatID + " of " + p.Channel }

// Bounds and defaults of a [Retry].
const (
	DefaultRetries = 3
	MaxRetries     = 10

	defaultRetryBase = 2 * time.Second
	defaultRetryMax  = 30 * time.Second
	leastRetryBase   = 100 * time.Millisecond
	mostRetryBase    = 10 * time.Minute
	mostRetryMax     = time.Hour
)

// Retry is how often and after which delay a failed run is retried. Cancelled, stopped, invalid and
// over-budget runs are never retried; the caller enforces that.
type Retry struct {
	Retries int           // retries after the first attempt, 0 to 10
	Base    time.Duration // 100 ms to 10 min
	Max     time.Duration // Base to 1 h
}

// DefaultRetry is three retries from 2 s, at most 30 s.
func DefaultRetry() Retry {
	return Retry{Retries: DefaultRetries, Base: defaultRetryBase, Max: defaultRetryMax}
}

// Check refuses numbers out of bounds with an [*InvalidError].
func (r Retry) Check() error {
	switch {
	case r.Retries < 0 || r.Retries > MaxRetries:
		return schedule.NewInvalid("retry.maxRetries", schedule.InvalidRange, "%d is out of range 0-%d", r.Retries, MaxRetries)
	case r.Base < leastRetryBase || r.Base > mostRetryBase:
		return schedule.NewInvalid("retry.baseMs", schedule.InvalidRange, "%d is out of range %d-%d",
			r.Base.Milliseconds(), leastRetryBase.Milliseconds(), mostRetryBase.Milliseconds())
	case r.Max < r.Base || r.Max > mostRetryMax:
		return schedule.NewInvalid("retry.maxMs", schedule.InvalidRange, "%d is out of range %d-%d",
			r.Max.Milliseconds(), r.Base.Milliseconds(), mostRetryMax.Milliseconds())
	}
	return nil
}

// Delay is the wait before retry n, counted from 1: Base doubled n-1 times but at most Max, then
// varied by up to 25 % in both directions. random returns a number in [0, 1), such as rand.Float64.
// It reports false when retry n is not allowed.
func (r Retry) Delay(n int, random func() float64) (time.Duration, bool) {
	if n < 1 || n > r.Retries {
		return 0, false
	}
	return retry.Policy{Base: r.Base, Max: r.Max}.WaitBy(n, random), true
}
