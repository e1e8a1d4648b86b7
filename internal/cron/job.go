// Package cron implements jobs: their definition, the decision about each of their slots, and the
// loop that fires them.
//
// The subpackage schedule computes when a schedule fires. All state is in the store; the loop can
// end at any point.
//
// # Ideas
//
// A [Job] is a definition, a [Run] is one row of the ledger: the outcome of one slot is decided
// once, under (job, slot, trigger). A [Timetable] adds to a schedule what belongs to one job:
// jitter, a first and a last moment, a number of fires. Preview and firing both call
// [Timetable.Next], which is the only way to compute a fire. [Timetable.Decide] decides which slots
// run and which were missed, [OverlapPolicy.Decide] what happens during an active run, and
// [Planner] combines both for one claimed job. All of this is pure: every function takes the time
// as an argument, so the same inputs give the same result on every replica, in a preview and in a
// test.
//
// [Runner] is the loop: it sleeps until the next due time, claims due jobs through [JobStore], in
// one transaction per batch, and launches their runs. Nothing is claimed before it is due. [Border]
// validates input from clients and turns it into a Job.
//
// # Promises
//
//   - [Timetable.Decide] is bounded in time after any outage: slots that do not run are counted,
//     not enumerated.
//   - A refused job is reported as [*schedule.InvalidError], with the field, a reason from a closed
//     set and a sentence that names the bound.
//   - The next slot follows from the planned slot, never from the clock: lateness does not
//     accumulate.
//
// # Crash points
//
// A claim is one transaction: before it nothing has happened, after it the ledger has the slot and
// another process takes over the run when the lease of this one ends.
//
// # Goroutines and the end
//
// [Runner.Run] is the loop and starts no goroutine; it returns after its context is done.
package cron

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
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

// The payload kinds. Command and script run on the gateway's host and are off unless the operator
// allows them.
const (
	PayloadAgentTurn   PayloadKind = "agentTurn"
	PayloadSystemEvent PayloadKind = "systemEvent"
	PayloadCommand     PayloadKind = "command"
	PayloadScript      PayloadKind = "script"
)

// Payload is the content of a run. Text is the message of an agent turn, the text of a system event
// or a script. Options is the rest of the object in JSON, as checked at the border, and may be nil.
type Payload struct {
	Kind    PayloadKind     `json:"kind"`
	Text    string          `json:"text,omitempty"`
	Options json.RawMessage `json:"options,omitempty"`
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
type Delivery struct {
	Mode       DeliveryMode `json:"mode,omitempty"`
	Channel    string       `json:"channel,omitempty"`
	To         string       `json:"to,omitempty"`
	Thread     string       `json:"thread,omitempty"`
	Account    string       `json:"account,omitempty"`
	BestEffort bool         `json:"bestEffort,omitempty"` // a failed delivery does not make the run a failure
	Urgent     bool         `json:"urgent,omitempty"`     // quiet hours do not hold the answers
	// Options are further destinations, as checked at the border; see Failure and Completion.
	Options json.RawMessage `json:"options,omitempty"`
}

// Alert is when people receive an alert about failures. The zero values of After and Cooldown mean
// 2 failed runs in a row and one hour between two alerts.
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
type Job struct {
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

	// Unserved is why no answer of the job can arrive, set where one job is read or written; not
	// stored.
	Unserved string `json:"-"`
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

// Plan is the next fire of a job; zero when nothing is planned. Processes with different releases
// of the zone rules may share a store, so a slot is stored with the wall time that it stands for
// and the release of the rules by which it was found; see [Timetable.Decide].
type Plan struct {
	Next        time.Time // the slot
	NextRunAt   time.Time // the slot with jitter
	NextWall    time.Time // see [schedule.Schedule.Wall]; zero when no zone rules take part
	ZoneRelease string    // see [schedule.Schedule.Release]
}

// DeliveryPause means that the answers of a job are kept and not sent, because their address no
// longer accepts messages. The job fires as before. The zero value means that they are sent; an
// edit of the delivery and a resume set it.
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

// Reminds reports whether the text of the job is its answer: no agent runs, and no conversation is
// changed. Such a job is a reminder without a model.
func (j Job) Reminds() bool {
	return j.Payload.Kind == PayloadSystemEvent && j.WakeMode == WakeLater && j.Session == Isolated && j.Delivery.Mode == DeliverAnnounce
}

// Once reports whether what the job sends is about one moment, and nothing that it sends later
// replaces it: a reminder, or a job that fires once.
func (j Job) Once() bool { return j.Reminds() || j.Schedule.Kind == schedule.KindAt }

// AsksAgent reports whether the runs of the job are turns of its agent.
func (j Job) AsksAgent() bool {
	switch j.Payload.Kind {
	case PayloadCommand, PayloadScript:
		return false
	default: // the kinds that run without an agent
	}
	return !j.Reminds() && j.Owner != SystemOwner
}

// Spent reports whether the job has had all its planned fires.
func (j Job) Spent() bool { return j.MaxRuns > 0 && j.State.Fired >= j.MaxRuns }

// MayFire reports whether the job has planned fires: it is enabled, not paused, and its row can be
// decoded.
func (j Job) MayFire() bool { return j.Enabled && j.Pause == nil && j.Invalid == "" }

// CheckSettings checks the bounds of the settings other than the schedule: overlap, missed, retry,
// timeout, failures, description. The border checks names, targets and payloads. Errors are
// [*InvalidError].
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

// Unfired is the job after waiting planned fires were cancelled: they do not count against MaxRuns,
// and a job that the claim of its last fire has disabled is enabled again.
func (j Job) Unfired(fires int) Job {
	j.State.Fired = max(0, j.State.Fired-fires)
	j.Enabled = j.Enabled || (fires > 0 && !j.AutoDisabled)
	return j
}

// NameRule defines the effect of a new job whose owner has jobs of that name. It is applied in the
// transaction of PutJob. A job with the same key is changed under every rule, unless the key is
// derived: then it counts as a job of that name.
type NameRule string

// The rules. NameNew creates another job.
const (
	NameNew     NameRule = "new"
	NameRefuse  NameRule = "refuse"  // *NameExistsError
	NameReplace NameRule = "replace" // changes the job; *NameExistsError when several exist
)

// NameExistsError refuses a job whose owner has jobs of that name.
type NameExistsError struct {
	Name string
	// IDs are those jobs, oldest first, at most ten.
	IDs []string
}

// Error lists them.
func (e *NameExistsError) Error() string {
	return fmt.Sprintf("jobs with the name %q exist: %s", e.Name, strings.Join(e.IDs, ", "))
}

// MaxNamesakes is how many jobs a [NameExistsError] lists.
const MaxNamesakes = 10

// ByName reports whether jobs with the same name matter.
func (p *PutParams) ByName() bool {
	return p.IfNameExists == NameRefuse || p.IfNameExists == NameReplace
}

// Namesake is the id of the job to change, among the owner's jobs with the name, oldest first; ""
// when a new job is to be created.
func (p *PutParams) Namesake(ids []string) (string, error) {
	switch {
	case len(ids) == 0:
		return "", nil
	case len(ids) == 1 && p.IfNameExists == NameReplace:
		return ids[0], nil
	default:
		return "", &NameExistsError{Name: p.Name, IDs: ids[:min(len(ids), MaxNamesakes)]}
	}
}

// Names are the sessions that the job names and whose keys contain no identity: its owner owns
// those that do not exist yet, so that no other principal makes them before the job runs.
func (j Job) Names() (keys []chat.SessionKey) {
	add := func(session string) {
		if key, err := chat.ParseSessionKey(session, j.Agent); err == nil && key.RightOf(j.Owner) == chat.RightFree {
			keys = append(keys, key)
		}
	}
	if session, ok := strings.CutPrefix(j.Session, NamedSession); ok {
		add(session)
	}
	for _, main := range []Delivery{j.Delivery, j.Alert.Delivery} {
		failure, _ := main.Failure()
		completion, _ := main.Completion()
		for _, d := range []Delivery{main, failure, completion} {
			if d.Mode == DeliverAnnounce && d.Channel == "web" && d.To != "" {
				add(d.To)
			}
		}
	}
	return keys
}

// In reports whether a job belongs to a conversation: its runs are turns of it, or its answers are
// sent to it.
func (j Job) In(key chat.SessionKey) bool {
	named := func(session string) bool {
		at, err := chat.ParseSessionKey(session, j.Agent)
		return err == nil && at == key
	}
	if session, ok := strings.CutPrefix(j.Session, NamedSession); ok && named(session) || j.Session == Main && chat.MainKey(j.Agent) == key {
		return true
	}
	d := j.Delivery
	if d.Mode != DeliverAnnounce {
		return false
	}
	switch to := key.Target(); chat.ChannelKind(d.Channel) {
	case "", "last":
		return chat.MainKey(j.Agent) == key
	case "web":
		return named(d.To) || d.To == "" && chat.MainKey(j.Agent) == key
	default:
		return to == chat.Target{Channel: chat.ChannelKind(d.Channel), ChatID: d.To, Thread: d.Thread} && !to.IsZero()
	}
}

// turnOptions are the payload members that an agent turn uses by name; all others are passed to the
// runner unchanged.
type turnOptions struct {
	Model    string `json:"model"`
	Thinking string `json:"thinking"`
}

// content is the content of the message of a run.
func (j Job) content(r PlannedRun) chat.Content {
	c := chat.Content{
		Text: j.Payload.Text, Sender: chat.Sender{ID: "cron:" + j.ID, Name: j.Name}, System: j.Payload.Kind == PayloadSystemEvent,
		Options: chat.Options{NoMerge: true, AtMostOnce: j.AtMostOnce, Mode: chat.ModeQueue, TimeoutMs: j.Timeout.Milliseconds()},
	}
	if j.Timeout <= 0 {
		c.Options.TimeoutMs = -1
	}
	c.Text = cmp.Or(c.Text, string(j.Payload.Kind))
	if r.Trigger.Kind() == TriggerBackfill || (r.Trigger.Planned() && r.Late >= lateNote) {
		c.Text += "\n\n(planned for " + j.localTime(r.Slot) + ")"
	}
	if j.Payload.Kind == PayloadAgentTurn && len(j.Payload.Options) > 0 {
		var known turnOptions
		var all map[string]any
		if json.Unmarshal(j.Payload.Options, &known) == nil && json.Unmarshal(j.Payload.Options, &all) == nil {
			c.Options.Model, c.Options.Thinking = known.Model, known.Thinking
			delete(all, "model")
			delete(all, "thinking")
			if len(all) > 0 {
				c.Options.Params = all
			}
		}
	}
	return c
}

// localTime formats a moment in the job's zone.
func (j Job) localTime(t time.Time) string {
	loc, err := schedule.LoadZone(j.Schedule.TZ)
	if err != nil {
		loc = time.UTC
	}
	return t.In(loc).Format("2006-01-02 15:04 -07:00")
}

func millisText(t time.Time) string { return strconv.FormatInt(t.UnixMilli(), 10) }

// RevisionOf is a digest of the configuration of a job; runs do not change it.
func RevisionOf(j Job) string {
	j.State, j.Revision, j.Invalid = JobState{}, "", ""
	j.CreatedAt, j.UpdatedAt = j.CreatedAt.UTC(), j.CreatedAt.UTC()
	j.StartsAt, j.EndsAt, j.Schedule.At = j.StartsAt.UTC(), j.EndsAt.UTC(), j.Schedule.At.UTC()
	text, err := json.Marshal(j)
	if err != nil {
		return "" // a Job is plain data and can always be encoded
	}
	sum := sha256.Sum256(text)
	return "sha256:" + base64.RawURLEncoding.EncodeToString(sum[:])
}

// SameBesidesCounters reports whether two jobs differ only in the fields that the end of a run
// usually changes, and in those derived from the ledger: counters, the last run, its delivery and
// alert, and the active runs. Stores write such a change with a short statement. It compares field
// by field, because reflection takes 5 µs of every fire; a test changes each field.
func SameBesidesCounters(a, b *Job) bool {
	s, was := b.State, &a.State
	s.RunCount, s.ErrorCount, s.ConsecutiveErrors, s.ConsecutiveSkipped = was.RunCount, was.ErrorCount, was.ConsecutiveErrors, was.ConsecutiveSkipped
	s.LastRunAt, s.LastState, s.LastDuration, s.LastAlertAt = was.LastRunAt, was.LastState, was.LastDuration, was.LastAlertAt
	s.LastError, s.LastErrorClass, s.LastDelivery, s.LastDeliveryError = was.LastError, was.LastErrorClass, was.LastDelivery, was.LastDeliveryError
	s.Queued, s.RunningAt = was.Queued, was.RunningAt
	return s == *was && sameDefinition(a, b)
}

// sameDefinition compares everything of two jobs except their states.
func sameDefinition(a, b *Job) bool {
	return a.ID == b.ID && a.Key == b.Key && a.KeyDerived == b.KeyDerived && a.Name == b.Name && a.DisplayName == b.DisplayName &&
		a.Description == b.Description && a.Owner == b.Owner && a.Principal == b.Principal && a.Agent == b.Agent && a.AccountID == b.AccountID &&
		a.Lane == b.Lane && a.Schedule == b.Schedule && a.JitterMs == b.JitterMs && a.StartsAt.Equal(b.StartsAt) && a.EndsAt.Equal(b.EndsAt) &&
		a.MaxRuns == b.MaxRuns && a.Session == b.Session && a.WakeMode == b.WakeMode && a.Payload.Kind == b.Payload.Kind &&
		a.Payload.Text == b.Payload.Text && bytes.Equal(a.Payload.Options, b.Payload.Options) && sameDelivery(&a.Delivery, &b.Delivery) &&
		a.Alert.Off == b.Alert.Off && a.Alert.After == b.Alert.After && a.Alert.Cooldown == b.Alert.Cooldown &&
		a.Alert.IncludeSkipped == b.Alert.IncludeSkipped && sameDelivery(&a.Alert.Delivery, &b.Alert.Delivery) && a.Overlap == b.Overlap &&
		a.Missed == b.Missed && a.Retry == b.Retry && a.Timeout == b.Timeout && a.AtMostOnce == b.AtMostOnce && a.DeleteAfter == b.DeleteAfter &&
		a.PauseAfter == b.PauseAfter && a.Enabled == b.Enabled && (a.Pause == nil) == (b.Pause == nil) && (a.Pause == nil || *a.Pause == *b.Pause) &&
		a.AutoDisabled == b.AutoDisabled && a.Invalid == b.Invalid && a.Unserved == b.Unserved && a.Revision == b.Revision && a.CreatedAt.Equal(b.CreatedAt) && a.UpdatedAt.Equal(b.UpdatedAt)
}

func sameDelivery(a, b *Delivery) bool {
	return a.Mode == b.Mode && a.Channel == b.Channel && a.To == b.To && a.Thread == b.Thread && a.Account == b.Account &&
		a.BestEffort == b.BestEffort && a.Urgent == b.Urgent && bytes.Equal(a.Options, b.Options)
}
