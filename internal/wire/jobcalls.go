package wire

import "encoding/json"

// CronAddParams are the parameters of cron.add. The limits of the members of a job are in
// docs/cron.md.
type CronAddParams struct {
	Name               json.RawMessage `json:"name" rule:"required"`                    // the name
	Schedule           json.RawMessage `json:"schedule" rule:"required"`                // when it fires; see schedule of a job
	SessionTarget      json.RawMessage `json:"sessionTarget" rule:"required"`           // the session of its runs: isolated, main, current, or session: and a key
	Payload            json.RawMessage `json:"payload" rule:"required"`                 // what a run does; see payload of a job
	Extended           bool            `json:"extended,omitempty"`                      // requests the extended view
	IdempotencyKey     string          `json:"idempotencyKey,omitempty" rule:"max=128"` // names the call, so that it can be sent again
	IfNameExists       json.RawMessage `json:"ifNameExists,omitempty"`                  // what to do when the owner has jobs of this name: refuse, replace the only one, or make a new one; absent = new
	FormerID           string          `json:"formerId,omitempty" rule:"max=128"`       // the id of a removed job of the caller: the new job receives it and continues its history
	AgentID            json.RawMessage `json:"agentId,omitempty"`                       // the agent; absent = the default agent
	AtMostOnce         json.RawMessage `json:"atMostOnce,omitempty"`                    // do not repeat a run that was interrupted
	DeclarationKey     json.RawMessage `json:"declarationKey,omitempty"`                // a key of the client; a job with this key is updated
	DeleteAfterRun     json.RawMessage `json:"deleteAfterRun,omitempty"`                // remove the job after its first planned fire that succeeded
	Delivery           json.RawMessage `json:"delivery,omitempty"`                      // where its answers go; see delivery of a job
	Description        json.RawMessage `json:"description,omitempty"`                   // for people
	DisplayName        json.RawMessage `json:"displayName,omitempty"`                   // for people
	DST                json.RawMessage `json:"dst,omitempty"`                           // what happens at clock changes; see dst of a job
	Enabled            json.RawMessage `json:"enabled,omitempty"`                       // whether it fires; absent = true
	EndsAtMs           json.RawMessage `json:"endsAtMs,omitempty"`                      // no slots after it, in Unix milliseconds or words, as at of a schedule
	FailureAlert       json.RawMessage `json:"failureAlert,omitempty"`                  // when failures are reported; see failureAlert of a job
	JitterMs           json.RawMessage `json:"jitterMs,omitempty"`                      // delay its fires by a fixed time of at most this
	Key                json.RawMessage `json:"key,omitempty"`                           // as declarationKey
	Lane               json.RawMessage `json:"lane,omitempty"`                          // the lane of its runs; absent = cron
	MaxRuns            json.RawMessage `json:"maxRuns,omitempty"`                       // the number of planned fires; absent = no limit
	Missed             json.RawMessage `json:"missed,omitempty"`                        // what happens to slots that passed while no process ran; see missed of a job
	Overlap            json.RawMessage `json:"overlap,omitempty"`                       // what happens to a slot while a run is active
	Owner              json.RawMessage `json:"owner,omitempty"`                         // accepted and ignored
	Pacing             json.RawMessage `json:"pacing,omitempty"`                        // refused unless it is null: not supported
	PauseAfterFailures json.RawMessage `json:"pauseAfterFailures,omitempty"`            // failed runs in a row that pause it; 0 = never
	Paused             json.RawMessage `json:"paused,omitempty"`                        // create it paused; see paused of a job
	Retry              json.RawMessage `json:"retry,omitempty"`                         // what happens when a run fails; see retry of a job
	SessionKey         json.RawMessage `json:"sessionKey,omitempty"`                    // the session that sessionTarget current means
	StartsAtMs         json.RawMessage `json:"startsAtMs,omitempty"`                    // no slots before it, in Unix milliseconds or words, as at of a schedule
	State              json.RawMessage `json:"state,omitempty"`                         // accepted and ignored
	TimeoutSeconds     json.RawMessage `json:"timeoutSeconds,omitempty"`                // the longest time of an attempt; 0 = 24 hours
	Trigger            json.RawMessage `json:"trigger,omitempty"`                       // refused unless it is null: not supported
	WakeMode           json.RawMessage `json:"wakeMode,omitempty"`                      // when its text runs in a session: now or next-heartbeat
}

// WantsExtended reports whether the call requests the extended view.
func (p *CronAddParams) WantsExtended() bool { return p.Extended }

// CronAddResult is the result of cron.add: a [Job], or [JobDeclared] when the client gave a key.
type CronAddResult struct{ Of any }

// Variants lists the types of the result.
func (CronAddResult) Variants() []any { return []any{Job{}, JobDeclared{}} }

// Variant returns the value itself, so that an encoder that supports it saves a copy.
func (r CronAddResult) Variant() any { return r.Of }

// MarshalJSON is the JSON of the variant.
func (r CronAddResult) MarshalJSON() ([]byte, error) { return encode(r.Of) }

// JobDeclared is a job that was created or updated under the key of a client.
type JobDeclared struct {
	Created         bool            `json:"created"`           // it is new
	DeliveryPreview DeliveryPreview `json:"deliveryPreview"`   // where its answers go, in words
	Job             Job             `json:"job"`               // the job
	Updated         bool            `json:"updated,omitempty"` // it existed and has changed
}

// CronCreateParams are the parameters of cron.create, with the member names of another family of
// gateways.
type CronCreateParams struct {
	Name           json.RawMessage `json:"name" rule:"required"`     // the name
	Schedule       json.RawMessage `json:"schedule" rule:"required"` // when it fires; see schedule of a job
	Message        json.RawMessage `json:"message" rule:"required"`  // the text
	Deliver        bool            `json:"deliver,omitempty"`        // whether answers go to a channel
	Channel        string          `json:"channel,omitempty"`        // deliver: the channel
	DeliverChannel string          `json:"deliverChannel,omitempty"` // the same; ignored when channel is given
	To             string          `json:"to,omitempty"`             // deliver: the chat
	DeliverTo      string          `json:"deliverTo,omitempty"`      // the same; ignored when to is given
	AgentID        json.RawMessage `json:"agentId,omitempty"`        // the agent; absent = the default agent
	Stateless      *bool           `json:"stateless,omitempty"`      // false = all runs share a session; absent = true
	DeleteAfterRun json.RawMessage `json:"deleteAfterRun,omitempty"` // remove the job after its first planned fire that succeeded
}

// CronCreateResult is the result of cron.create.
type CronCreateResult struct {
	Job Job `json:"job"` // the job, in the extended view
}

// CronUpdateParams are the parameters of cron.update.
type CronUpdateParams struct {
	ID       string          `json:"id" rule:"required,or=jobId,min=1,max=128"`       // the job
	Patch    json.RawMessage `json:"patch" rule:"required"`                           // the members to change, as in cron.add; null restores the default
	Expected string          `json:"expectedConfigRevision,omitempty" rule:"max=128"` // refuse when the job has another revision
	Extended bool            `json:"extended,omitempty"`                              // requests the extended view
}

// WantsExtended reports whether the call requests the extended view.
func (p *CronUpdateParams) WantsExtended() bool { return p.Extended }

// CronJobParams are the parameters of cron.get and cron.resume.
type CronJobParams struct {
	ID       string `json:"id" rule:"required,or=jobId,min=1,max=128"` // the job
	Extended bool   `json:"extended,omitempty"`                        // requests the extended view; cron.resume always has it
}

// WantsExtended reports whether the call requests the extended view.
func (p *CronJobParams) WantsExtended() bool { return p.Extended }

// CronRemoveParams are the parameters of cron.remove.
type CronRemoveParams struct {
	ID     string `json:"id" rule:"required,or=jobId,min=1,max=128"` // the job
	Cancel bool   `json:"cancelRunning,omitempty"`                   // also stop its active runs
}

// CronRemoveResult is the result of cron.remove.
type CronRemoveResult struct {
	OK      bool `json:"ok"`      // always true
	Removed bool `json:"removed"` // always true
}

// CronDeleteParams are the parameters of cron.delete.
type CronDeleteParams struct {
	ID string `json:"id" rule:"required,or=jobId,min=1,max=128"` // the job
}

// CronDeleteResult is the result of cron.delete.
type CronDeleteResult struct {
	Deleted bool `json:"deleted"` // always true
}

// CronToggleParams are the parameters of cron.toggle.
type CronToggleParams struct {
	ID      string `json:"id" rule:"required,or=jobId,min=1,max=128"` // the job
	Enabled bool   `json:"enabled" rule:"required"`                   // whether it fires
}

// CronToggleResult is the result of cron.toggle.
type CronToggleResult struct {
	Enabled bool   `json:"enabled"` // as in the parameters
	JobID   string `json:"jobId"`   // the job
}

// CronPauseParams are the parameters of cron.pause.
type CronPauseParams struct {
	ID    string          `json:"id" rule:"required,or=jobId,min=1,max=128"` // the job
	Note  string          `json:"note" rule:"required,min=1,max=500"`        // why
	Until json.RawMessage `json:"untilMs,omitempty"`                         // until when, in Unix milliseconds or words, such as in 2h; absent = until it is resumed
}

// CronRunParams are the parameters of cron.run.
type CronRunParams struct {
	_ struct{} `also:"expectedProcessInstanceId"`

	ID             string `json:"id" rule:"required,or=jobId,min=1,max=128"`       // the job
	Mode           string `json:"mode,omitempty" rule:"enum=force|due|if-enabled"` // due runs it only when a slot is due, if-enabled only when the job fires; absent = force
	IdempotencyKey string `json:"idempotencyKey,omitempty" rule:"max=128"`         // names the call, so that it can be sent again
}

// CronRunResult is the result of cron.run.
type CronRunResult struct {
	Enqueued          bool   `json:"enqueued,omitempty"`          // true when a run was created
	OK                bool   `json:"ok"`                          // always true
	ProcessInstanceID string `json:"processInstanceId,omitempty"` // with enqueued: this start of the gateway
	Ran               *bool  `json:"ran,omitempty"`               // false when no run was created
	Reason            string `json:"reason,omitempty"`            // why no run was created
	RunID             string `json:"runId,omitempty"`             // with enqueued: the run
}

// CronCancelParams are the parameters of cron.cancel: runId, or id for all active runs of a job.
type CronCancelParams struct {
	RunID          string `json:"runId,omitempty" rule:"min=1,max=512"`       // the run
	ID             string `json:"id,omitempty" rule:"or=jobId,min=1,max=128"` // the job
	Reason         string `json:"reason,omitempty" rule:"max=200"`            // why
	IdempotencyKey string `json:"idempotencyKey,omitempty" rule:"max=128"`    // names the call, so that it can be sent again
}

// CronCancelResult is the result of cron.cancel.
type CronCancelResult struct {
	Cancelled []string `json:"cancelled"` // the runs that were stopped
	OK        bool     `json:"ok"`        // always true
}

// CronBackfillParams are the parameters of cron.backfill.
type CronBackfillParams struct {
	ID             string          `json:"id" rule:"required,or=jobId,min=1,max=128"` // the job
	From           json.RawMessage `json:"fromMs" rule:"required"`                    // the start of the window, in Unix milliseconds or words, such as yesterday 9:00; a slot at this instant is included
	To             json.RawMessage `json:"toMs" rule:"required"`                      // the end of the window, likewise; a slot at this instant is included
	MaxRuns        int64           `json:"maxRuns,omitempty" rule:"min=1,max=1000"`   // refuse when there are more slots; absent = 100
	DryRun         bool            `json:"dryRun,omitempty"`                          // only list the slots
	Force          bool            `json:"force,omitempty"`                           // also slots with a run that succeeded
	IdempotencyKey string          `json:"idempotencyKey,omitempty" rule:"max=128"`   // names the call, so that it can be sent again
}

// CronBackfillResult is the result of cron.backfill.
type CronBackfillResult struct {
	Enqueued int            `json:"enqueued"` // runs that were created
	Existing int            `json:"existing"` // slots that already have a run
	Fires    []BackfillFire `json:"fires"`    // the slots, oldest first
	OK       bool           `json:"ok"`       // always true
}

// BackfillFire is a slot of a past window.
type BackfillFire struct {
	Action         string `json:"action" rule:"enum=enqueue|exists"` // whether a run is created for it
	RunID          string `json:"runId"`                             // its run
	ScheduledForMs int64  `json:"scheduledForMs"`                    // the slot, in Unix milliseconds
}

// CronPreviewParams are the parameters of cron.preview: id, schedule, or both for the job as an
// edit would make it. With id, what follows schedule changes the job, too.
type CronPreviewParams struct {
	ID       string          `json:"id,omitempty" rule:"or=jobId,min=1,max=128"`  // the job
	Schedule json.RawMessage `json:"schedule,omitempty"`                          // a schedule, as in a job
	Jitter   int64           `json:"jitterMs,omitempty" rule:"min=0,max=3600000"` // schedule without id: as in a job
	DST      json.RawMessage `json:"dst,omitempty"`                               // as in a job
	StartsAt json.RawMessage `json:"startsAtMs,omitempty"`                        // as in a job
	EndsAt   json.RawMessage `json:"endsAtMs,omitempty"`                          // as in a job
	MaxRuns  json.RawMessage `json:"maxRuns,omitempty"`                           // as in a job; without id counted from fromMs, with id the fires count that the job has had
	Count    int64           `json:"count,omitempty" rule:"min=1,max=100"`        // how many fires; absent = 5
	From     int64           `json:"fromMs,omitempty" rule:"min=1"`               // only later ones, in Unix milliseconds; absent = now
}

// CronPreviewResult is the result of cron.preview.
type CronPreviewResult struct {
	Timezone string          `json:"timezone"` // the time zone of the schedule
	Fires    []PreviewFire   `json:"fires"`    // the next fires
	Affected []PreviewChange `json:"affected"` // the clock changes within 400 days that move, drop or repeat a slot, at most 4
	Warnings []string        `json:"warnings"` // warnings, in sentences
}

// PreviewChange is a clock change that affects slots.
type PreviewChange struct {
	AtMs  int64         `json:"atMs"`                         // the first instant after it, in Unix milliseconds
	Kind  string        `json:"kind" rule:"enum=gap|overlap"` // whether the wall times do not exist or occur twice
	Rule  string        `json:"rule"`                         // the rule of the job for it: run_after, skip, first, second, both
	Wall  string        `json:"wall"`                         // the first of the wall times, in the time zone of the schedule
	Slots int64         `json:"slots"`                        // how many wall times are affected
	Fires []PreviewFire `json:"fires"`                        // the fires of the first wall time
	Text  string        `json:"text"`                         // the same in a sentence
}

// PreviewFire is a future fire.
type PreviewFire struct {
	ScheduledForMs int64  `json:"scheduledForMs"` // the slot, in Unix milliseconds
	FireAtMs       int64  `json:"fireAtMs"`       // the slot with the delay of the job, in Unix milliseconds
	ISO            string `json:"iso"`            // fireAtMs in ISO 8601
	Local          string `json:"local"`          // the same in the time zone of the schedule
	DST            string `json:"dst,omitempty"`  // the effect of a clock change on it
}

// CronExplainParams are the parameters of cron.explain: at or atMs for one slot, fromMs and untilMs
// for all slots of at most 26 hours. Without any of them, it explains the newest slot that has
// passed, and for a job without one the next slot.
type CronExplainParams struct {
	ID    string `json:"id" rule:"required,or=jobId,min=1,max=128"` // the job; a removed job is allowed
	At    string `json:"at,omitempty" rule:"min=1,max=64"`          // the moment in words: 9:00, yesterday 9:00, monday 8:30, 2027-03-02 09:00, in the time zone of the job
	AtMs  int64  `json:"atMs,omitempty" rule:"min=1"`               // the moment, in Unix milliseconds; a whole minute covers the minute
	From  int64  `json:"fromMs,omitempty" rule:"min=1"`             // the first moment, in Unix milliseconds
	Until int64  `json:"untilMs,omitempty" rule:"min=1"`            // the last moment, in Unix milliseconds
}

// CronExplainResult is the result of cron.explain.
type CronExplainResult struct {
	Timezone string          `json:"timezone"` // the time zone of the times in the sentences
	Slots    []ExplainedSlot `json:"slots"`    // one for each slot; for one moment exactly one
}

// ExplainedSlot is what happened to a slot.
type ExplainedSlot struct {
	SlotMs   int64       `json:"slotMs"`             // the slot, or the moment when no slot exists, in Unix milliseconds
	Why      string      `json:"why"`                // the answer as a code of a closed set
	Text     string      `json:"text"`               // the answer in a sentence with figures
	Cure     string      `json:"cure,omitempty"`     // what to do
	Acts     []string    `json:"acts,omitempty"`     // the actions that a client can offer: resume, run, backfill, edit, runs
	RunID    string      `json:"runId,omitempty"`    // the row of the ledger
	BeforeMs int64       `json:"beforeMs,omitempty"` // the slot before a moment without a slot
	AfterMs  int64       `json:"afterMs,omitempty"`  // the slot after it
	Changes  []JobChange `json:"changes,omitempty"`  // changes of the job since then, the newest first
}

// JobChange is a change of a job.
type JobChange struct {
	TS   int64  `json:"ts"`   // when, in Unix milliseconds
	Who  string `json:"who"`  // the credential that created it
	Verb string `json:"verb"` // its kind: cron.update, cron.pause, …
}

// CronStatusResult is the result of cron.status.
type CronStatusResult struct {
	Enabled         bool   `json:"enabled"`         // jobs fire
	Jobs            int    `json:"jobs"`            // how many there are
	NextWakeAtMs    *int64 `json:"nextWakeAtMs"`    // the next fire, in Unix milliseconds; null when no fire is planned
	Storage         string `json:"storage"`         // the store that has them
	StorePath       string `json:"storePath"`       // the same
	TriggersEnabled bool   `json:"triggersEnabled"` // always false
}
