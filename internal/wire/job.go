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
	CreatedAtMs        int64              `json:"createdAtMs"`                                                                            // when it was created, in Unix milliseconds
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
	KeyDerived         *bool              `json:"keyDerived,omitempty"`                                                                   // Extended: the key was derived from name and schedule
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
	Principal          *string            `json:"principal,omitempty"`                                                                    // Extended: which credential created it
	QueuedRuns         *int               `json:"queuedRuns,omitempty"`                                                                   // Extended: runs that wait or run
	Retry              *JobRetry          `json:"retry,omitempty"`                                                                        // Extended: what happens when a run fails
	RunCount           *int64             `json:"runCount,omitempty"`                                                                     // Extended: finished runs
	Schedule           JobSchedule        `json:"schedule"`                                                                               // when it fires
	ScheduleWords      string             `json:"scheduleWords,omitempty"`                                                                // Extended: its schedule in words: weekdays at 09:00, Berlin
	SessionTarget      string             `json:"sessionTarget"`                                                                          // the session of its runs: isolated, main, or session: and a key
	StartsAtMs         int64              `json:"startsAtMs,omitempty"`                                                                   // Extended: no slots before it, in Unix milliseconds
	State              JobState           `json:"state"`                                                                                  // the results of its runs
	TimeoutSeconds     *int64             `json:"timeoutSeconds,omitempty"`                                                               // Extended: the longest time of an attempt; 0 = 24 hours
	UpdatedAtMs        int64              `json:"updatedAtMs"`                                                                            // when it was last changed, in Unix milliseconds
	Warnings           []string           `json:"warnings,omitempty"`                                                                     // Extended: what may surprise the maker, in sentences; in the results of cron.add, cron.create, cron.update and cron.get
	WakeMode           string             `json:"wakeMode"`                                                                               // when its text runs in a session: now or next-heartbeat
}

// JobSchedule describes when a job fires.
type JobSchedule struct {
	AnchorMs  *int64 `json:"anchorMs,omitempty"`             // every: one of the slots, in Unix milliseconds
	At        string `json:"at,omitempty"`                   // at: the slot, ISO 8601; a call may give words: in 20m, 15:00, tomorrow 9:00, in tz, by the clock of the database
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
	Urgent                bool         `json:"urgent,omitempty"`                       // the quiet hours of the chat do not hold the answers
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

// MarshalJSON writes the options next to the members of the payload. A member of the payload takes
// precedence over an option of the same name.
func (p JobPayload) MarshalJSON() ([]byte, error) {
	type plain JobPayload
	data, err := encode(plain(p))
	if err != nil || len(p.Options) == 0 {
		return data, err
	}
	var own map[string]json.RawMessage
	if err := json.Unmarshal(data, &own); err != nil {
		return nil, err // the caller is the encoder
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

// CronListParams are the parameters of cron.list.
type CronListParams struct {
	_ struct{} `also:"compact,includeDeliveryPreviews"`

	IncludeDisabled bool     `json:"includeDisabled,omitempty"`                                                      // also jobs that do not fire
	Enabled         string   `json:"enabled,omitempty" rule:"enum=all|enabled|disabled"`                             // only jobs that fire, or only jobs that do not; takes precedence over includeDisabled
	Limit           int64    `json:"limit,omitempty" rule:"min=1,max=200"`                                           // the most jobs; absent = 200
	Offset          int64    `json:"offset,omitempty" rule:"min=0"`                                                  // how many to skip
	Query           string   `json:"query,omitempty" rule:"max=256"`                                                 // only jobs with this string in name, key or description
	Kind            string   `json:"scheduleKind,omitempty" rule:"enum=all|at|every|cron|on-exit|stream"`            // only schedules of this kind
	Last            string   `json:"lastRunStatus,omitempty" rule:"enum=all|ok|error|skipped|unknown"`               // only jobs whose last run ended like this; unknown = it never ran
	Trigger         string   `json:"trigger,omitempty" rule:"enum=all|conditional|unconditional"`                    // conditional matches no job
	SortBy          string   `json:"sortBy,omitempty" rule:"enum=nextRunAtMs|updatedAtMs|name|lastRunAtMs|failing"`  // the order; failing = by failed runs in a row; absent = nextRunAtMs, or id when there is more than one page
	SortDir         string   `json:"sortDir,omitempty" rule:"enum=asc|desc"`                                         // its direction; absent = asc
	AgentID         string   `json:"agentId,omitempty" rule:"min=1,max=64"`                                          // only jobs of this agent
	Target          string   `json:"target,omitempty" rule:"min=1,max=512"`                                          // only jobs whose answers go to this channel or chat
	Condition       string   `json:"condition,omitempty" rule:"enum=all|failing|paused|running|late|invalid|unsent"` // only jobs in this condition, enabled or not; late = 10 s overdue; unsent = answers are kept, their address takes none
	IDs             []string `json:"ids,omitempty" rule:"max=200"`                                                   // only these jobs, whether they fire or not
	Cursor          string   `json:"cursor,omitempty" rule:"max=4096"`                                               // nextCursor of the page before, with the same order; in place of offset
	Counts          bool     `json:"counts,omitempty"`                                                               // asks for counts
	Outcomes        int64    `json:"outcomes,omitempty" rule:"min=0,max=14"`                                         // the number of outcomes to return for each job
	Brief           bool     `json:"brief,omitempty"`                                                                // leaves out the payload of a job, its description and its rules for failures
	System          bool     `json:"includeSystem,omitempty"`                                                        // also the jobs of the gateway itself
	Extended        bool     `json:"extended,omitempty"`                                                             // requests the extended view
}

// WantsExtended reports whether the call requests the extended view.
func (p *CronListParams) WantsExtended() bool { return p.Extended }

// CronListResult is the result of cron.list.
type CronListResult struct {
	Counts            *JobCounts                 `json:"counts,omitempty"`            // how many jobs the caller may see, without the filter; absent unless requested
	DeliveryPreviews  map[string]DeliveryPreview `json:"deliveryPreviews"`            // where answers go, by id of the job
	HasMore           bool                       `json:"hasMore"`                     // more pages follow
	Jobs              []Job                      `json:"jobs"`                        // the jobs
	Limit             int64                      `json:"limit"`                       // as in the parameters
	NextCursor        string                     `json:"nextCursor,omitempty"`        // Extended: the cursor of the next page; absent on the last page
	NextOffset        *int                       `json:"nextOffset"`                  // the offset of the next page; null on the last page
	Offset            int64                      `json:"offset"`                      // as in the parameters
	SnapshotRevision  string                     `json:"snapshotRevision"`            // changes with every change of any job
	Total             int                        `json:"total"`                       // how many there are; counted up to 1000, or to the end of this page
	TotalIsLowerBound bool                       `json:"totalIsLowerBound,omitempty"` // there are more than total
}

// JobCounts are numbers of jobs. A job can be counted in several of them.
type JobCounts struct {
	All     int `json:"all"`     // all jobs
	Failing int `json:"failing"` // jobs whose last run failed
	Invalid int `json:"invalid"` // jobs that are invalid
	Late    int `json:"late"`    // jobs with a fire that has been due for 10 s and has not started
	Paused  int `json:"paused"`  // jobs that are paused
	Running int `json:"running"` // jobs that run
}

// JobOutcome is the outcome of a slot, in short.
type JobOutcome struct {
	DurationMs int64  `json:"durationMs,omitempty"`                                              // how long it ran
	Outcome    string `json:"outcome" rule:"enum=ok|skipped|missed|error|cancelled|interrupted"` // how it ended
	Reason     string `json:"reason,omitempty"`                                                  // why it did not run
	SlotMs     int64  `json:"slotMs"`                                                            // the slot, in Unix milliseconds
}

// CronRunsParams are the parameters of cron.runs.
type CronRunsParams struct {
	ID         string   `json:"id,omitempty" rule:"or=jobId,min=1,max=128"`                                            // only runs of this job
	Scope      string   `json:"scope,omitempty" rule:"enum=job|all"`                                                   // all = runs of every job; id is ignored
	RunID      string   `json:"runId,omitempty" rule:"min=1,max=512"`                                                  // only this run
	Limit      int64    `json:"limit,omitempty" rule:"min=1,max=200"`                                                  // the most entries; absent = 50
	Offset     int64    `json:"offset,omitempty" rule:"min=0"`                                                         // how many to skip
	Status     string   `json:"status,omitempty" rule:"enum=all|ok|error|skipped|missed|cancelled|interrupted|active"` // only runs that ended like this; active = only those that wait or run
	Statuses   []string `json:"statuses,omitempty" rule:"max=8"`                                                       // the same with several values
	Delivery   string   `json:"deliveryStatus,omitempty" rule:"max=32"`                                                // only runs whose answer has this delivery status
	Deliveries []string `json:"deliveryStatuses,omitempty" rule:"max=8"`                                               // the same with several values
	Query      string   `json:"query,omitempty" rule:"max=256"`                                                        // only entries that contain this string
	AgentID    string   `json:"agentId,omitempty" rule:"min=1,max=64"`                                                 // only runs of this agent
	SortDir    string   `json:"sortDir,omitempty" rule:"enum=asc|desc"`                                                // absent = desc, the newest first
	Since      int64    `json:"sinceMs,omitempty"`                                                                     // only slots from this time on, in Unix milliseconds
	Until      int64    `json:"untilMs,omitempty"`                                                                     // only slots before this time, in Unix milliseconds
	Active     bool     `json:"includeActive,omitempty"`                                                               // also runs that wait or run
	Changes    bool     `json:"changes,omitempty"`                                                                     // with id: also the newest changes of the job, from sinceMs on
	Extended   bool     `json:"extended,omitempty"`                                                                    // requests the extended view
}

// WantsExtended reports whether the call requests the extended view.
func (p *CronRunsParams) WantsExtended() bool { return p.Extended }

// CronRunsResult is the result of cron.runs.
type CronRunsResult struct {
	Changes           []JobChange   `json:"changes,omitempty"`           // the changes of the job, the newest first
	Entries           []LedgerEntry `json:"entries"`                     // the entries
	HasMore           bool          `json:"hasMore"`                     // more pages follow
	Limit             int64         `json:"limit"`                       // as in the parameters
	NextOffset        *int          `json:"nextOffset"`                  // the offset of the next page; null on the last page
	Offset            int64         `json:"offset"`                      // as in the parameters
	Total             int           `json:"total"`                       // how many there are; counted up to 1000, or to the end of this page
	TotalIsLowerBound bool          `json:"totalIsLowerBound,omitempty"` // there are more than total
}

// LedgerEntry describes the outcome of a slot.
type LedgerEntry struct {
	Action                    string          `json:"action" rule:"enum=started|finished"`                                                                 // finished, or started while it waits or runs
	Attempts                  []LedgerAttempt `json:"attempts,omitzero"`                                                                                   // Extended: its attempts, once it has run
	CompletionStatus          string          `json:"completionStatus,omitempty" rule:"enum=succeeded|failed|unknown"`                                     // of a run that has ended, with its delivery
	Delivered                 *bool           `json:"delivered,omitempty"`                                                                                 // the answer arrived
	DeliveryError             string          `json:"deliveryError,omitempty"`                                                                             // why the answer did not arrive
	DeliveryStatus            string          `json:"deliveryStatus,omitempty" rule:"enum=not-requested|delivered|not-delivered|unknown"`                  // the delivery status of the answer
	DeliverySuppressionReason string          `json:"deliverySuppressionReason,omitempty"`                                                                 // why it was not sent: empty or no-reply
	DurationMs                *int64          `json:"durationMs,omitempty"`                                                                                // how long it ran
	Error                     string          `json:"error,omitempty"`                                                                                     // why it failed
	ErrorReason               string          `json:"errorReason,omitempty"`                                                                               // the same in one word
	JobID                     string          `json:"jobId"`                                                                                               // its job
	JobName                   string          `json:"jobName"`                                                                                             // the name of the job at that time
	Lane                      *string         `json:"lane,omitempty"`                                                                                      // Extended: its lane
	Model                     string          `json:"model,omitempty"`                                                                                     // the model that answered
	NextRunAtMs               int64           `json:"nextRunAtMs,omitempty"`                                                                               // the next attempt or the next fire of the job, in Unix milliseconds
	Outcome                   string          `json:"outcome,omitempty" rule:"enum=ok|skipped|missed|error|cancelled|interrupted|queued|running|retrying"` // Extended: how it ended, or its current state
	Policy                    string          `json:"policy,omitempty"`                                                                                    // Extended: the rule of the job that decided about the slot, such as overlap skip or missed fire_once
	Provider                  string          `json:"provider,omitempty"`                                                                                  // the provider of the model
	Reason                    string          `json:"reason,omitempty"`                                                                                    // Extended: why it did not run
	RunAtMs                   int64           `json:"runAtMs,omitempty"`                                                                                   // when it began, in Unix milliseconds
	RunID                     string          `json:"runId"`                                                                                               // the run
	ScheduledForMs            int64           `json:"scheduledForMs,omitempty"`                                                                            // Extended: the slot, in Unix milliseconds
	SessionKey                string          `json:"sessionKey,omitempty"`                                                                                // the session in which it ran
	SlotCount                 *int64          `json:"slotCount,omitempty"`                                                                                 // Extended: how many slots the entry covers
	SlotUntilMs               int64           `json:"slotUntilMs,omitempty"`                                                                               // Extended: the last of them, in Unix milliseconds
	Status                    string          `json:"status,omitempty" rule:"enum=ok|error|skipped"`                                                       // how it ended
	Summary                   string          `json:"summary,omitempty"`                                                                                   // the beginning of its answer
	Timezone                  string          `json:"timezone,omitempty"`                                                                                  // Extended: the time zone of the slot
	Trigger                   string          `json:"trigger,omitempty" rule:"enum=schedule|manual|catchup|backfill"`                                      // Extended: what started the run
	TS                        int64           `json:"ts"`                                                                                                  // when it ended, began or was claimed, in Unix milliseconds
	Usage                     *LedgerUsage    `json:"usage,omitempty"`                                                                                     // the usage that the model reported
}

// LedgerUsage is the usage that a model reported.
type LedgerUsage struct {
	// tokens of the request
	InputTokens int64 `json:"input_tokens"` // the words of the family of clients
	// tokens of the answer
	OutputTokens int64 `json:"output_tokens"` // the words of the family of clients
	// their sum
	TotalTokens int64 `json:"total_tokens"` // the words of the family of clients
}

// LedgerAttempt is an attempt of a run.
type LedgerAttempt struct {
	Attempt      int    `json:"attempt"`                                                             // its number, from 1
	DurationMs   *int64 `json:"durationMs,omitempty"`                                                // how long it took
	Error        string `json:"error,omitempty"`                                                     // why it failed
	ErrorReason  string `json:"errorReason,omitempty"`                                               // the same in one word
	FinishedAtMs int64  `json:"finishedAtMs,omitempty"`                                              // when it ended, in Unix milliseconds
	NodeID       string `json:"nodeId"`                                                              // the process
	StartedAtMs  int64  `json:"startedAtMs"`                                                         // when it began, in Unix milliseconds
	Status       string `json:"status,omitempty" rule:"enum=ok|error|timeout|cancelled|interrupted"` // how it ended
}

// ActionMany is the action of an event that replaces several events.
const ActionMany = "many"

// CronEvent is the payload of the event cron.
type CronEvent struct {
	Action           string `json:"action" rule:"enum=added|updated|removed|scheduled|started|finished|many"`                            // what happened; scheduled = another attempt will follow; many = count events were left out (cron-brief)
	Attempt          int    `json:"attempt,omitempty"`                                                                                   // Extended: the number of the attempt
	CompletionStatus string `json:"completionStatus,omitempty" rule:"enum=succeeded|failed|unknown"`                                     // finished: as in the entry of cron.runs
	Count            int    `json:"count,omitempty"`                                                                                     // many: how many events were left out
	Delivered        *bool  `json:"delivered,omitempty"`                                                                                 // finished: as in the entry
	DeliveryStatus   string `json:"deliveryStatus,omitempty" rule:"enum=not-requested|delivered|not-delivered|unknown"`                  // finished: as in the entry
	DurationMs       *int64 `json:"durationMs,omitempty"`                                                                                // as in the entry
	Error            string `json:"error,omitempty"`                                                                                     // as in the entry
	ErrorReason      string `json:"errorReason,omitempty"`                                                                               // as in the entry
	Job              *Job   `json:"job,omitempty"`                                                                                       // the job; absent when it was removed
	JobID            string `json:"jobId"`                                                                                               // its id; empty with many
	NextRunAtMs      int64  `json:"nextRunAtMs,omitempty"`                                                                               // the next attempt or the next fire of the job, in Unix milliseconds
	Outcome          string `json:"outcome,omitempty" rule:"enum=ok|skipped|missed|error|cancelled|interrupted|queued|running|retrying"` // Extended: as in the entry
	Reason           string `json:"reason,omitempty"`                                                                                    // Extended: as in the entry
	RunAtMs          int64  `json:"runAtMs,omitempty"`                                                                                   // as in the entry
	RunID            string `json:"runId,omitempty"`                                                                                     // the run, if the event is about a run
	ScheduledForMs   int64  `json:"scheduledForMs,omitempty"`                                                                            // Extended: the slot, in Unix milliseconds
	Status           string `json:"status,omitempty" rule:"enum=ok|error|skipped"`                                                       // finished: as in the entry
	Summary          string `json:"summary,omitempty"`                                                                                   // as in the entry
	Trigger          string `json:"trigger,omitempty" rule:"enum=schedule|manual|catchup|backfill"`                                      // Extended: as in the entry
}

// WebhookBody is the body of a webhook about a finished run: its event in the standard view, with
// the slot and the whole answer. When the answer is not sent, it has the reason instead of the
// text.
type WebhookBody struct {
	CronEvent

	SessionKey string `json:"sessionKey,omitempty"`                            // the session of the run
	Suppressed string `json:"suppressed,omitempty" rule:"enum=no_reply|empty"` // why the answer is not sent
	Truncated  bool   `json:"truncated,omitempty"`                             // summary is the beginning of the answer, which is longer than 256 KiB
}

// SchedulerStatusResult is the result of scheduler.status.
type SchedulerStatusResult struct {
	Jobs       []SchedulerJob `json:"jobs"`       // at most 1,000 jobs, by name
	LastTickMs int64          `json:"lastTickMs"` // when the last iteration of the cron loop began, in Unix milliseconds; 0 = never
	NodeID     string         `json:"nodeId"`     // the process that answers
	Running    bool           `json:"running"`    // the loop is running
	TS         int64          `json:"ts"`         // the time of the gateway in Unix milliseconds
}

// SchedulerJob is a job in the format of scheduler.status.
type SchedulerJob struct {
	// its schedule: an expression, @every and a duration, or @at and a time
	CronExpr string `json:"cron_expr"` // the words of the family of clients
	// runs that failed or were interrupted
	ErrorCount int64 `json:"error_count"` // the words of the family of clients
	// it does not fire
	IsPaused bool `json:"is_paused"` // the words of the family of clients
	// it runs
	IsRunning bool `json:"is_running"` // the words of the family of clients
	// its name
	JobName string `json:"job_name"` // the words of the family of clients
	// how long its last run took; null = it never ran
	LastDurationMs *int64 `json:"last_duration_ms"` // the words of the family of clients
	// ok, or error or skipped with the reason; null = it never ran
	LastResult *string `json:"last_result"` // the words of the family of clients
	// when its last run began, ISO 8601; null = it never ran
	LastRun *string `json:"last_run"` // the words of the family of clients
	// its next fire, ISO 8601; null when no fire is planned
	NextRun *string `json:"next_run"` // the words of the family of clients
	// finished runs
	RunCount int64 `json:"run_count"` // the words of the family of clients
	// the zone of its expression; absent when it has no zone
	Timezone string `json:"timezone,omitempty"`
}
