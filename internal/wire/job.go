package wire

import (
	"encoding/json"
	"maps"
)

// Job is a job.
type Job struct {
	AgentID            string             `json:"agentId"`                                                                                // its agent; "" = the default agent
	AtMostOnce         *bool              `json:"atMostOnce,omitempty"`                                                                   // Extended: a run that was interrupted is not repeated
	ConfigRevision     string             `json:"configRevision"`                                                                         // changes with every change of the job; see expectedConfigRevision
	Created            *bool              `json:"created,omitempty"`                                                                      // Extended: in the result of cron.add: the job is new
	CreatedAtMs        int64              `json:"createdAtMs"`                                                                            // when it was made, in Unix milliseconds
	DeclarationKey     *string            `json:"declarationKey,omitempty"`                                                               // the key that the client gave
	DeleteAfterRun     *bool              `json:"deleteAfterRun,omitempty"`                                                               // it is removed after its first planned fire that succeeded
	Delivery           JobDelivery        `json:"delivery"`                                                                               // where its answers go
	DeliveryPaused     *JobDeliveryPaused `json:"deliveryPaused,omitempty"`                                                               // Extended: its answers are held back, because the address does not accept them
	DeliveryPreview    *DeliveryPreview   `json:"deliveryPreview,omitempty"`                                                              // where its answers go, in words; in the result of cron.add
	Description        string             `json:"description,omitempty"`                                                                  // for people
	DisplayName        string             `json:"displayName,omitempty"`                                                                  // for people
	DST                *JobDST            `json:"dst,omitempty"`                                                                          // Extended: what happens when the clock is changed; of a cron expression
	Enabled            bool               `json:"enabled"`                                                                                // it fires: it is enabled, not paused and valid
	EndsAtMs           int64              `json:"endsAtMs,omitempty"`                                                                     // Extended: no slots after it, in Unix milliseconds
	ErrorCount         *int64             `json:"errorCount,omitempty"`                                                                   // Extended: runs that failed or were interrupted
	FailureAlert       *FailureAlert      `json:"failureAlert,omitempty"`                                                                 // when failures are reported; absent = the default of the gateway
	ID                 string             `json:"id"`                                                                                     // its id
	Invalid            string             `json:"invalid,omitempty"`                                                                      // Extended: why the stored job is invalid
	JitterMs           *int64             `json:"jitterMs,omitempty"`                                                                     // Extended: its fires are delayed by a fixed time of at most this
	Key                string             `json:"key,omitempty"`                                                                          // Extended: its key, unique for its owner
	KeyDerived         *bool              `json:"keyDerived,omitempty"`                                                                   // Extended: the key was made from name and schedule
	Lane               *string            `json:"lane,omitempty"`                                                                         // Extended: the lane of its runs
	LastDeliveryStatus string             `json:"lastDeliveryStatus,omitempty" rule:"enum=not-requested|delivered|not-delivered|unknown"` // the delivery status of its last answer
	LastRunAtMs        int64              `json:"lastRunAtMs,omitempty"`                                                                  // when its last run began, in Unix milliseconds
	LastRunError       string             `json:"lastRunError,omitempty"`                                                                 // why its last run failed
	LastRunStatus      string             `json:"lastRunStatus,omitempty" rule:"enum=ok|error|skipped"`                                   // how its last run ended
	MaxRuns            int                `json:"maxRuns,omitempty"`                                                                      // Extended: the number of planned fires; absent = no limit
	Missed             *JobMissed         `json:"missed,omitempty"`                                                                       // Extended: what happens to slots that passed while no process ran
	Name               string             `json:"name"`                                                                                   // its name
	NextRunAtMs        int64              `json:"nextRunAtMs,omitempty"`                                                                  // the next fire, in Unix milliseconds
	NextScheduledForMs int64              `json:"nextScheduledForMs,omitempty"`                                                           // Extended: the slot of the next fire, without its delay
	Outcomes           []JobOutcome       `json:"outcomes,omitempty"`                                                                     // its latest outcomes, the newest first; in the result of cron.list, when asked for
	Overlap            string             `json:"overlap,omitempty"`                                                                      // Extended: what happens to a slot while a run is active: skip, concurrent, buffer_one or cancel_previous
	PauseAfterFailures *int               `json:"pauseAfterFailures,omitempty"`                                                           // Extended: failed runs in a row that pause it; 0 = never
	Paused             *JobPause          `json:"paused,omitempty"`                                                                       // Extended: who paused it and why
	Payload            JobPayload         `json:"payload"`                                                                                // what a run does
	Principal          *string            `json:"principal,omitempty"`                                                                    // Extended: which credential made it
	QueuedRuns         *int               `json:"queuedRuns,omitempty"`                                                                   // Extended: runs that wait or run
	Retry              *JobRetry          `json:"retry,omitempty"`                                                                        // Extended: what happens when a run fails
	RunCount           *int64             `json:"runCount,omitempty"`                                                                     // Extended: finished runs
	Schedule           JobSchedule        `json:"schedule"`                                                                               // when it fires
	SessionTarget      string             `json:"sessionTarget"`                                                                          // the session of its runs: isolated, main, or session: and a key
	StartsAtMs         int64              `json:"startsAtMs,omitempty"`                                                                   // Extended: no slots before it, in Unix milliseconds
	State              JobState           `json:"state"`                                                                                  // the results of its runs
	TimeoutSeconds     *int64             `json:"timeoutSeconds,omitempty"`                                                               // Extended: the longest time of an attempt; 0 = 24 hours
	UpdatedAtMs        int64              `json:"updatedAtMs"`                                                                            // when it was last changed, in Unix milliseconds
	Warnings           []string           `json:"warnings,omitempty"`                                                                     // Extended: what may surprise the maker, in sentences; in the results of cron.add, cron.create and cron.update
	WakeMode           string             `json:"wakeMode"`                                                                               // when its text runs in a session: now or next-heartbeat
}

// JobSchedule describes when a job fires.
type JobSchedule struct {
	AnchorMs  *int64 `json:"anchorMs,omitempty"`             // every: one of the slots, in Unix milliseconds
	At        string `json:"at,omitempty"`                   // at: the slot, ISO 8601
	AtMs      *int64 `json:"atMs,omitempty"`                 // at: the slot in Unix milliseconds; in the result of cron.create
	EveryMs   int64  `json:"everyMs,omitempty"`              // every: the interval between slots
	Expr      string `json:"expr,omitempty"`                 // cron: the expression
	Kind      string `json:"kind" rule:"enum=at|every|cron"` // its kind
	StaggerMs *int64 `json:"staggerMs,omitempty"`            // cron: as jitterMs
	TZ        string `json:"tz,omitempty"`                   // cron: the time zone
}

// JobDelivery describes where answers go.
type JobDelivery struct {
	AccountID             string       `json:"accountId,omitempty"`                    // the account of the channel
	BestEffort            bool         `json:"bestEffort,omitempty"`                   // a failed delivery does not count as a failed run
	Channel               string       `json:"channel,omitempty"`                      // the channel; last = the channel in which the main session was last used
	CompletionDestination *JobDelivery `json:"completionDestination,omitempty"`        // a second destination for reports about finished runs
	FailureDestination    *JobDelivery `json:"failureDestination,omitempty"`           // where a failed run is reported
	Mode                  string       `json:"mode" rule:"enum=none|announce|webhook"` // none, to a channel, or to a URL
	ThreadID              string       `json:"threadId,omitempty"`                     // the thread of the chat
	To                    string       `json:"to,omitempty"`                           // the chat or the URL
}

// JobDeliveryPaused describes why answers are held back.
type JobDeliveryPaused struct {
	AtMs    int64  `json:"atMs"`    // since when, in Unix milliseconds
	Channel string `json:"channel"` // the address
	Reason  string `json:"reason"`  // the reason code of the channel
	To      string `json:"to"`      // the address
}

// DeliveryPreview describes in words where answers go.
type DeliveryPreview struct {
	Detail string `json:"detail"` // the address
	Label  string `json:"label"`  // the kind of address
}

// FailureAlert describes when failures are reported: [AlertRule], or [NoAlert].
type FailureAlert struct{ Of any }

// Variants lists the types of the alert.
func (FailureAlert) Variants() []any { return []any{AlertRule{}, NoAlert(false)} }

// MarshalJSON is the JSON of the variant.
func (a FailureAlert) MarshalJSON() ([]byte, error) { return encode(a.Of) }

// UnmarshalJSON stores the JSON of the variant.
func (a *FailureAlert) UnmarshalJSON(data []byte) error { return storeRaw(&a.Of, data) }

// NoAlert is false: failures are not reported.
type NoAlert bool

// AlertRule describes when failures are reported. An absent member has the default of the gateway.
type AlertRule struct {
	AccountID      string `json:"accountId,omitempty"`                              // the account of the channel
	After          int    `json:"after,omitempty"`                                  // failed runs in a row
	Channel        string `json:"channel,omitempty"`                                // the channel
	CooldownMs     int64  `json:"cooldownMs,omitempty"`                             // the shortest time between two reports
	IncludeSkipped bool   `json:"includeSkipped,omitempty"`                         // skipped slots count as failures
	Mode           string `json:"mode,omitempty" rule:"enum=none|announce|webhook"` // as of a delivery
	To             string `json:"to,omitempty"`                                     // the chat or the URL
}

// JobDST describes what happens when the clock is changed.
type JobDST struct {
	Gap     string `json:"gap"`     // for slots that the change skips
	Overlap string `json:"overlap"` // for slots that occur twice
}

// JobMissed describes what happens to slots that passed while no process ran.
type JobMissed struct {
	MaxCatchup    int    `json:"maxCatchup"`    // the most slots that are caught up
	Policy        string `json:"policy"`        // which slots are caught up
	WindowSeconds *int64 `json:"windowSeconds"` // older slots are not caught up; null = no limit
}

// JobRetry describes what happens when a run fails.
type JobRetry struct {
	BaseMs     int64 `json:"baseMs"`     // the delay of the first attempt after a failure
	MaxMs      int64 `json:"maxMs"`      // the longest delay
	MaxRetries int   `json:"maxRetries"` // attempts after the first
}

// JobPause describes who paused a job.
type JobPause struct {
	AtMs    int64  `json:"atMs"`    // when, in Unix milliseconds
	By      string `json:"by"`      // which credential
	Enabled bool   `json:"enabled"` // whether it fires again when it is resumed
	Note    string `json:"note"`    // why
	UntilMs *int64 `json:"untilMs"` // until when, in Unix milliseconds; null = until it is resumed
}

// JobPayload describes what a run does. Other members are options of the agent.
type JobPayload struct {
	_              struct{}       `open:"true"`
	Input          string         `json:"input,omitempty"`                                       // command: its standard input
	Kind           string         `json:"kind" rule:"enum=agentTurn|systemEvent|command|script"` // its kind
	Message        *string        `json:"message,omitempty"`                                     // agentTurn: the text
	Script         *string        `json:"script,omitempty"`                                      // script: the program
	Text           *string        `json:"text,omitempty"`                                        // systemEvent: the text
	TimeoutSeconds *int64         `json:"timeoutSeconds,omitempty"`                              // all but systemEvent: as of the job
	Options        map[string]any `json:"-"`                                                     // the other members
}

// MarshalJSON writes the options next to the members of the payload. A member of the payload takes precedence over an option of the same
// name.
func (p JobPayload) MarshalJSON() ([]byte, error) {
	type plain JobPayload
	data, err := encode(plain(p))
	if err != nil || len(p.Options) == 0 {
		return data, err
	}
	var own map[string]json.RawMessage
	if err := json.Unmarshal(data, &own); err != nil {
		return nil, err //nolint:wrapcheck // the caller is the encoder
	}
	all := maps.Clone(p.Options)
	for name, raw := range own {
		all[name] = raw
	}
	return encode(all)
}

// JobState has the results of the runs of a job.
type JobState struct {
	AutoDisabled          bool   `json:"autoDisabled,omitempty"`                                                                 // it was disabled after failures
	ConsecutiveErrors     *int   `json:"consecutiveErrors,omitempty"`                                                            // failed runs in a row
	ConsecutiveSkipped    int    `json:"consecutiveSkipped,omitempty"`                                                           // slots in a row that were skipped
	LastDelivered         *bool  `json:"lastDelivered,omitempty"`                                                                // the last answer arrived
	LastDeliveryError     string `json:"lastDeliveryError,omitempty"`                                                            // why the last answer did not arrive
	LastDeliveryStatus    string `json:"lastDeliveryStatus,omitempty" rule:"enum=not-requested|delivered|not-delivered|unknown"` // as in the job
	LastDurationMs        *int64 `json:"lastDurationMs,omitempty"`                                                               // how long the last run took
	LastError             string `json:"lastError,omitempty"`                                                                    // why the last run failed
	LastErrorReason       string `json:"lastErrorReason,omitempty"`                                                              // the same in one word
	LastFailureAlertAtMs  int64  `json:"lastFailureAlertAtMs,omitempty"`                                                         // when failures were last reported, in Unix milliseconds
	LastRunAtMs           int64  `json:"lastRunAtMs,omitempty"`                                                                  // when the last run began, in Unix milliseconds
	LastRunStatus         string `json:"lastRunStatus,omitempty" rule:"enum=ok|error|skipped"`                                   // how the last run ended
	LastStatus            string `json:"lastStatus,omitempty" rule:"enum=ok|error|skipped"`                                      // the same
	NextRunAtMs           int64  `json:"nextRunAtMs,omitempty"`                                                                  // the next fire, in Unix milliseconds
	RunningAtMs           int64  `json:"runningAtMs,omitempty"`                                                                  // since when it runs, in Unix milliseconds
	ScheduleActivatedAtMs int64  `json:"scheduleActivatedAtMs,omitempty"`                                                        // since when its schedule is in force, in Unix milliseconds
}
