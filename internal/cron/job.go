package cron

import (
	"fmt"
	"time"

	"laneway/internal/chat"
	"laneway/internal/cron/schedule"
)

// SystemOwner owns the built-in jobs of the gateway.
const SystemOwner = "system"

// Defaults and bounds of a [Job].
const (
	DefaultLane         = "cron"
	DefaultTimeout      = 10 * time.Minute
	MaxTimeout          = 24 * time.Hour
	DefaultPauseAfter   = 10
	MaxPauseAfter       = 1000
	DefaultAlertAfter   = 2
	DefaultAlertWait    = time.Hour
	maxDescriptionRunes = 2000
)

// PayloadKind is the kind of work of a run.
type PayloadKind string

// The payload kinds. Command and script run on the gateway's host and are off unless the operator allows them.
const (
	PayloadAgentTurn   PayloadKind = "agentTurn"
	PayloadSystemEvent PayloadKind = "systemEvent"
	PayloadCommand     PayloadKind = "command"
	PayloadScript      PayloadKind = "script"
)

// Payload is the content of a run. Text is the message of an agent turn, the text of a system event or a script. Options is the rest of the object in JSON, as
// checked at the border, and may be nil.
type Payload struct {
	Kind    PayloadKind
	Text    string
	Options []byte
}

// DeliveryMode is where the answer goes.
type DeliveryMode string

// The delivery modes.
const (
	DeliverNone     DeliveryMode = "none"
	DeliverAnnounce DeliveryMode = "announce" // to a channel
	DeliverWebhook  DeliveryMode = "webhook"
)

// Delivery is the target of the answer. To is a chat or a URL.
type Delivery struct { //nolint:recvcheck // take changes it, the others only look at it
	Mode       DeliveryMode
	Channel    string
	To         string
	Thread     string
	Account    string
	BestEffort bool   // a failed delivery does not make the run a failure
	Options    []byte // further destinations in JSON, as checked at the border; see Failure and Completion
}

// Alert is when people receive an alert about failures. The zero values of After and Cooldown mean 2 failed runs in a row and one hour between two alerts.
type Alert struct {
	Off            bool
	After          int
	Cooldown       time.Duration
	IncludeSkipped bool
	Delivery       Delivery // the target; a zero Mode means the job's own target
}

// Pause is who paused a job and why. With a zero Until the job stays paused until it is
// resumed.
type Pause struct {
	Note  string
	By    string
	At    time.Time
	Until time.Time
}

// Job is the definition of a job as it is stored. Times that do not apply are
// zero. Next is the slot planned next and NextRunAt the same with jitter; both are
// zero when nothing is planned.
type Job struct { //nolint:recvcheck // After changes the job, the others only look at it
	ID          string // UUIDv7
	Key         string // unique per owner
	KeyDerived  bool   // Key was made by [Key] and follows name and schedule
	Name        string
	DisplayName string
	Description string
	Owner       string
	Principal   string // its creator
	Agent       string // "" is the default agent
	AccountID   string
	Lane        string

	Schedule schedule.Spec
	JitterMs int64
	StartsAt time.Time
	EndsAt   time.Time
	MaxRuns  int // 0 is no limit

	Session  string // isolated, main, or session:<key>
	WakeMode string // now or next-heartbeat
	Payload  Payload
	Delivery Delivery
	Alert    Alert

	Overlap     OverlapPolicy
	Missed      MissedPolicy
	Retry       Retry
	Timeout     time.Duration // per attempt; 0 = only MaxTimeout applies
	AtMostOnce  bool
	DeleteAfter bool // remove the job after its first successful planned fire
	PauseAfter  int  // failed runs in a row that pause the job, 0 is never

	Enabled      bool
	Pause        *Pause // nil when not paused
	AutoDisabled bool
	Invalid      string // why the stored row cannot be decoded; such a job does not fire

	Revision  string
	CreatedAt time.Time
	UpdatedAt time.Time

	State JobState
}

// JobState is the state that runs and claims change. Clients never write it.
type JobState struct {
	Plan

	ActivatedAt time.Time // when the current schedule took effect
	Fired       int       // planned fires so far
	RunCount    int64     // finished runs
	ErrorCount  int64     // error and interrupted

	RunningAt          time.Time
	LastRunAt          time.Time
	LastState          RunState
	LastError          string
	LastErrorClass     string
	LastDuration       time.Duration
	LastDelivery       DeliveryStatus
	LastDeliveryError  string
	LastAlertAt        time.Time
	ConsecutiveErrors  int
	ConsecutiveSkipped int
	Queued             int // waiting and running runs
	DeliveryPause      DeliveryPause
}

// Plan is the next fire of a job; zero when nothing is planned. Processes with different releases of the zone rules may share a store, so a slot is stored with
// the wall time that it stands for and the release of the rules by which it was found; see [Timetable.Decide].
type Plan struct {
	Next        time.Time // the slot
	NextRunAt   time.Time // the slot with jitter
	NextWall    time.Time // see [schedule.Schedule.Wall]; zero when no zone rules take part
	ZoneRelease string    // see [schedule.Schedule.Release]
}

// DeliveryPause means that the answers of a job are kept and not sent, because their address no longer accepts messages. The job fires as before. The zero
// value means that they are sent; an edit of the delivery and a resume set it.
type DeliveryPause struct {
	Since   time.Time
	Reason  string // the reason in the wording of the channel
	Channel string // the address as in the outbox
	ChatID  string
}

// Holds reports whether sending to an address is paused.
func (p DeliveryPause) Holds(to chat.Target) bool {
	return !p.Since.IsZero() && p.Channel == to.Channel && p.ChatID == to.ChatID
}

// Timetable combines the job with its compiled schedule.
func (j Job) Timetable(s schedule.Schedule) Timetable {
	return Timetable{
		Schedule: s, JobID: j.ID, JitterMs: j.JitterMs,
		StartsAt: j.StartsAt, EndsAt: j.EndsAt, MaxRuns: j.MaxRuns, Fired: j.State.Fired,
	}
}

// Reminds reports whether the text of the job is its answer: no agent runs, and no conversation is changed. Such a job is a reminder without a model.
func (j Job) Reminds() bool {
	return j.Payload.Kind == PayloadSystemEvent && j.WakeMode == WakeLater && j.Session == Isolated && j.Delivery.Mode == DeliverAnnounce
}

// AsksAgent reports whether the runs of the job are turns of its agent.
func (j Job) AsksAgent() bool {
	switch j.Payload.Kind { //nolint:exhaustive // the kinds that run without an agent
	case PayloadCommand, PayloadScript:
		return false
	}
	return !j.Reminds() && j.Owner != SystemOwner
}

// MayFire reports whether the job has planned fires: it is enabled, not paused, and its row can be decoded.
func (j Job) MayFire() bool { return j.Enabled && j.Pause == nil && j.Invalid == "" }

// CheckSettings checks the bounds of the settings other than the schedule: overlap, missed, retry, timeout, failures, description. The border checks names,
// targets and payloads. Errors are [*InvalidError].
func (j Job) CheckSettings() error {
	for _, check := range []func() error{j.Overlap.Check, j.Missed.Check, j.Retry.Check} {
		if err := check(); err != nil {
			return fmt.Errorf("checking job settings: %w", err)
		}
	}
	switch {
	case j.Timeout < 0 || j.Timeout > MaxTimeout:
		return schedule.NewInvalid("timeoutSeconds", schedule.InvalidRange, "%d is out of range 0-%d", int64(j.Timeout/time.Second), int64(MaxTimeout/time.Second))
	case j.PauseAfter < 0 || j.PauseAfter > MaxPauseAfter:
		return schedule.NewInvalid("pauseAfterFailures", schedule.InvalidRange, "%d is out of range 0-%d", j.PauseAfter, MaxPauseAfter)
	case len([]rune(j.Description)) > maxDescriptionRunes:
		return schedule.NewInvalid("description", schedule.InvalidRange, "more than %d characters are given", maxDescriptionRunes)
	}
	return nil
}

// Unfired is the job after waiting planned fires were cancelled: they do not count against MaxRuns, and a job that the claim of its last fire has disabled is
// enabled again.
func (j Job) Unfired(fires int) Job {
	j.State.Fired = max(0, j.State.Fired-fires)
	j.Enabled = j.Enabled || (fires > 0 && !j.AutoDisabled)
	return j
}
