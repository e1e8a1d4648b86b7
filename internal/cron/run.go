package cron

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"laneway/internal/chat"
	"laneway/internal/cron/schedule"
)

// Trigger is why a run exists.
type Trigger string

// The triggers.
const (
	TriggerSchedule Trigger = "schedule" // its slot became due
	TriggerManual   Trigger = "manual"   // a caller requested it now
	TriggerCatchup  Trigger = "catchup"  // its slot passed while no process could fire
	TriggerBackfill Trigger = "backfill" // a caller requested a past slot; see [BackfillTrigger] for repeated backfills of a slot
)

// Valid reports whether the trigger is in the set.
func (t Trigger) Valid() bool {
	switch t.Kind() {
	case TriggerSchedule, TriggerManual, TriggerCatchup, TriggerBackfill:
		return true
	}
	return false
}

// Planned reports whether the run is a fire of the schedule, which counts for MaxRuns and lets a
// job with DeleteAfterRun end. Manual and backfilled runs never do.
func (t Trigger) Planned() bool { return t == TriggerSchedule || t == TriggerCatchup }

// RunState is the state of a run in the ledger.
type RunState string

// The states. The first three are active, the others are final outcomes.
const (
	RunQueued      RunState = "queued"      // durable, waits for its time, its lane or its session
	RunRunning     RunState = "running"     // an attempt runs
	RunRetrying    RunState = "retrying"    // waits for its next attempt
	RunOK          RunState = "ok"          // finished
	RunError       RunState = "error"       // the last attempt failed
	RunSkipped     RunState = "skipped"     // did not run: overlap, budget, paused
	RunMissed      RunState = "missed"      // did not run: its time passed while no process could fire
	RunCancelled   RunState = "cancelled"   // stopped by a person, by a newer run or with its job
	RunInterrupted RunState = "interrupted" // its process died and it is not retried
)

// Valid reports whether the state is in the set.
func (s RunState) Valid() bool { return s.Active() || s.Final() }

// Active reports whether the run has not ended.
func (s RunState) Active() bool {
	return s == RunQueued || s == RunRunning || s == RunRetrying
}

// Final reports whether the state is an outcome.
func (s RunState) Final() bool {
	switch s {
	case RunOK, RunError, RunSkipped, RunMissed, RunCancelled, RunInterrupted:
		return true
	default:
		return false
	}
}

// Reason is why a slot was skipped, missed or cancelled. The set is closed.
type Reason string

// The reasons.
const (
	ReasonNone       Reason = ""
	ReasonOverlap    Reason = "overlap"     // skipped: a run of the job was active
	ReasonBudget     Reason = "budget"      // skipped: the owner's daily runs or a budget of tokens or money is used up
	ReasonPaused     Reason = "paused"      // skipped: the job was paused
	ReasonBufferFull Reason = "buffer_full" // skipped: one fire is already waiting
	ReasonGap        Reason = "gap"         // skipped: the wall time did not exist and the rule is skip
	ReasonWindow     Reason = "window"      // missed: older than the catch-up window
	ReasonPolicy     Reason = "policy"      // missed: the policy allows fewer runs
	ReasonMaxCatchup Reason = "max_catchup" // missed: more slots than the maximum to catch up
	ReasonNoAgent    Reason = "no_agent"    // missed: no replica had its agent before it was older than the catch-up window
	ReasonStopped    Reason = "stopped"     // cancelled by a person
	ReasonRemoved    Reason = "removed"     // cancelled with its job
	ReasonReplaced   Reason = "replaced"    // cancelled for a newer run
)

// Valid reports whether the reason is in the set, which includes the empty one.
func (r Reason) Valid() bool {
	switch r {
	case ReasonNone, ReasonOverlap, ReasonBudget, ReasonPaused, ReasonBufferFull, ReasonGap, ReasonWindow,
		ReasonPolicy, ReasonMaxCatchup, ReasonNoAgent, ReasonStopped, ReasonRemoved, ReasonReplaced:
		return true
	}
	return false
}

// DeliveryStatus is whether the answer was sent.
type DeliveryStatus string

// The delivery statuses.
const (
	DeliveryDone         DeliveryStatus = "delivered"
	DeliveryNot          DeliveryStatus = "not-delivered"
	DeliveryUnknown      DeliveryStatus = "unknown" // the send may have arrived
	DeliveryNotRequested DeliveryStatus = "not-requested"
)

// Run is one row of the ledger: one slot of one job under one trigger. Name and key are copies,
// because the row outlives its job. Times of future events are zero.
type Run struct {
	ID           string // see [RunID]
	JobID        string
	JobName      string
	JobKey       string
	Owner        string
	Agent        string
	Lane         string
	SessionKey   string
	ScheduledFor time.Time // the slot, without jitter
	Trigger      Trigger
	State        RunState
	Reason       Reason
	DST          schedule.DSTNote

	// SlotCount is 1, or more when the row stands for all slots from ScheduledFor to SlotUntil.
	SlotCount int64
	SlotUntil time.Time

	FireAt      time.Time // the slot with jitter: the moment to start
	ClaimedAt   time.Time
	StartedAt   time.Time // of the first attempt
	FinishedAt  time.Time // when the outcome was recorded
	NextAttempt time.Time // while retrying
	Duration    time.Duration

	Attempt    int // attempts begun, 0 while queued
	Attempts   []Attempt
	Error      string
	ErrorClass string // timeout, rate_limit, overloaded, server_error, auth, unknown, ...
	Summary    string // at most 16,384 bytes, whole characters

	Model        string
	Provider     string
	InputTokens  int64
	OutputTokens int64

	Delivery          DeliveryStatus
	DeliveryError     string
	ProviderMessageID string
	SuppressedBy      string // empty, no-reply: why nothing was sent

	Node  string // the replica that owns the run or finished it
	Epoch int64  // fences late writers
}

// Policy is the rule of the job that decided about the slot, with the names of the flags: "overlap
// skip", "missed fire_once". "" = no rule had to. j is the present job, nil if it is gone: how
// missed slots were to run is known from it alone, so it counts only while it is unchanged.
func (r Run) Policy(j *Job) string {
	same := j != nil && !j.UpdatedAt.After(r.ClaimedAt)
	missed := "missed"
	if same {
		missed += " " + string(j.Missed.For(j.Schedule.Kind).Rule)
	}
	switch r.Reason {
	case ReasonOverlap:
		if same && j.Overlap == OverlapConcurrent { // more than MaxConcurrent
			return "overlap " + string(OverlapConcurrent)
		}
		return "overlap " + string(OverlapSkip)
	case ReasonBufferFull:
		return "overlap " + string(OverlapBufferOne)
	case ReasonReplaced:
		return "overlap " + string(OverlapCancelPrevious)
	case ReasonGap:
		return "dst-gap " + string(schedule.GapSkip)
	case ReasonWindow, ReasonNoAgent:
		return "missed-window"
	case ReasonMaxCatchup:
		return "missed-most"
	case ReasonPolicy:
		return missed
	case ReasonNone, ReasonBudget, ReasonPaused, ReasonStopped, ReasonRemoved:
	}
	if r.Trigger.Kind() == TriggerCatchup {
		return missed
	}
	return ""
}

// AttemptState is how one attempt ended.
type AttemptState string

// The ends of an attempt.
const (
	AttemptOK          AttemptState = "ok"
	AttemptError       AttemptState = "error"
	AttemptTimeout     AttemptState = "timeout"
	AttemptCancelled   AttemptState = "cancelled"
	AttemptInterrupted AttemptState = "interrupted"
)

// Attempt is one try of a run, counted from 1.
type Attempt struct {
	Number     int
	State      AttemptState
	StartedAt  time.Time
	FinishedAt time.Time
	Error      string
	ErrorClass string
	Node       string
}

// RunID is the id of a run: "<trigger>:<jobId>:<slot in Unix milliseconds>". It depends on these
// three parts alone.
func RunID(trigger Trigger, jobID string, slot time.Time) string {
	return string(trigger) + ":" + jobID + ":" + strconv.FormatInt(slot.UnixMilli(), 10)
}

// ParseRunID splits an id into its parts; RunID of the parts is the same id. Anything but a known
// trigger, a job id without colons and plain milliseconds is an error.
func ParseRunID(id string) (Trigger, string, time.Time, error) {
	parts := strings.Split(id, ":")
	if len(parts) == 4 { // the trigger has a number
		parts = append([]string{parts[0] + ":" + parts[1]}, parts[2:]...)
	}
	if len(parts) != 3 || !Trigger(parts[0]).Valid() || parts[1] == "" {
		return "", "", time.Time{}, fmt.Errorf("run id %q is not <trigger>:<jobId>:<milliseconds>", schedule.Excerpt(id))
	}
	ms, err := strconv.ParseInt(parts[2], 10, 64)
	if err != nil || strconv.FormatInt(ms, 10) != parts[2] {
		return "", "", time.Time{}, fmt.Errorf("run id %q does not end in plain milliseconds", schedule.Excerpt(id))
	}
	return Trigger(parts[0]), parts[1], time.UnixMilli(ms).UTC(), nil
}

// WaitsToStart reports whether the first attempt of a run has not begun: it waits for its lane or
// its session.
func (r Run) WaitsToStart() bool { return r.State == RunQueued && r.Attempt == 0 }

// Earlier is the earlier of two times; a zero time is ignored.
func Earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// AttemptStart is the change of Start to the ledger row of a cron message: the run is running, its
// attempt has begun.
type AttemptStart struct {
	RunID   string
	Attempt int
	Node    string
}

// AttemptEnd is the change of Finish to the ledger row of a cron message and to the job, in the
// same transaction.
type AttemptEnd struct {
	RunID   string
	Attempt Attempt
	// State is the outcome of the run, or RunRetrying with NextAttempt, or RunQueued when a drain
	// interrupted the attempt and its message waits again.
	State             RunState
	Reason            Reason
	NextAttempt       time.Time
	Error, ErrorClass string
	Summary           string
	Usage             chat.Usage
	Delivery          DeliveryStatus
	DeliveryError     string // why the answer is not sent at all; for one that is sent, the outbox records the delivery
	SuppressedBy      string
	// Job receives the stored job and the finished run and returns the job's new state, or nil to
	// remove the job (DeleteAfter). It is not called for retries. The store may call it again when
	// the job has changed meanwhile: the last result is stored.
	Job func(old Job, r Run, now time.Time) *Job
}

// Action is the kind of an [Event]. The set is closed.
type Action string

// The actions.
const (
	ActionAdded     Action = "added"
	ActionUpdated   Action = "updated"   // also paused, resumed, disabled
	ActionRemoved   Action = "removed"   // Job is its last state
	ActionStarted   Action = "started"   // the first attempt has begun
	ActionScheduled Action = "scheduled" // an attempt failed and will be retried at Run.NextAttempt
	ActionFinished  Action = "finished"  // a slot has its outcome, even without a run
)

// Event is one change of a job or a run, published after its commit. Run is nil when the event is
// about the job.
type Event struct {
	Action Action
	Job    Job
	Run    *Run
}

// Past is the history of a job besides its runs.
type Past struct {
	// Outages are the times during which no process fired jobs, oldest first. They are kept for 400
	// days.
	Outages []Outage
	// Changes are the changes of the job in the audit log, newest first.
	Changes []JobChange
}
