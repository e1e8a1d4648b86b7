package wire

// HealthParams are the parameters of health.
type HealthParams struct {
	Probe    bool `json:"probe,omitempty"`    // check now; otherwise the answer may be some seconds old, except for the state of channels
	Extended bool `json:"extended,omitempty"` // requests the extended view
}

// WantsExtended reports whether the call requests the extended view.
func (p *HealthParams) WantsExtended() bool { return p.Extended }

// HealthResult is the result of health, and the payload of the event health.
type HealthResult struct {
	OK               bool                     `json:"ok,omitempty"`     // true; absent when there is a problem
	TS               int64                    `json:"ts"`               // when the gateway ran the checks, in Unix milliseconds
	DurationMs       int64                    `json:"durationMs"`       // how long the checks took
	Channels         map[string]HealthChannel `json:"channels"`         // the channels, by id
	ChannelOrder     []string                 `json:"channelOrder"`     // their ids in the order of the configuration
	ChannelLabels    map[string]string        `json:"channelLabels"`    // their display names, by id
	HeartbeatSeconds int                      `json:"heartbeatSeconds"` // always 0
	DefaultAgentID   string                   `json:"defaultAgentId"`   // the agent of a key that names none
	Agents           []string                 `json:"agents"`           // always empty; see agents.list
	Sessions         HealthSessions           `json:"sessions"`         // the sessions
	*HealthExtra
}

// HealthExtra has the members that the extended view adds.
type HealthExtra struct {
	Problems  []string        `json:"problems"`  // Extended: the problems, in sentences
	Database  HealthDatabase  `json:"database"`  // Extended: the store
	Scheduler HealthScheduler `json:"scheduler"` // Extended: the loops
	NodeID    string          `json:"nodeId"`    // Extended: the process that answers
}

// HealthDatabase is the state of the store.
type HealthDatabase struct {
	OK        bool  `json:"ok"`        // it answers
	LatencyMs int64 `json:"latencyMs"` // how long the answer took
}

// HealthScheduler is the state of the loops that start work.
type HealthScheduler struct {
	OK            bool   `json:"ok"`            // they make progress
	LastTickAgeMs *int64 `json:"lastTickAgeMs"` // time since the last iteration of the cron loop; null when this process runs no cron loop
}

// HealthSessions counts sessions.
type HealthSessions struct {
	Path   string   `json:"path"`   // which store has them: sqlite or postgres
	Count  int      `json:"count"`  // always 0, as a count of all sessions is slow; see status
	Recent []string `json:"recent"` // always empty; see sessions.list
}

// HealthChannel is the state of a channel.
type HealthChannel struct {
	Configured    bool    `json:"configured"`    // its settings are complete
	Running       bool    `json:"running"`       // it is running
	Connected     bool    `json:"connected"`     // its network answers
	LastPollAgeMs *int64  `json:"lastPollAgeMs"` // time since the last poll for messages; null = never, or it does not poll
	LastError     *string `json:"lastError"`     // the last error; null = no error
}

// StatusResult is the result of status.
type StatusResult struct {
	OK       bool                 `json:"ok"`                             // there is no problem; see problems of health
	Version  string               `json:"version"`                        // of laneway
	BootID   string               `json:"bootId"`                         // of this start of the gateway
	NodeID   string               `json:"nodeId"`                         // the process that answers
	UptimeMs int64                `json:"uptimeMs"`                       // since this start of the gateway
	Draining bool                 `json:"draining"`                       // it is about to stop
	Clients  int                  `json:"clients"`                        // open connections
	Agents   int                  `json:"agents"`                         // how many agents there are
	Sessions StatusSessions       `json:"sessions"`                       // the sessions
	Cron     StatusCron           `json:"cron"`                           // the jobs
	Lanes    map[string]LaneCount `json:"lanes"`                          // the lanes, by name
	Nodes    []StatusNode         `json:"nodes"`                          // the live processes of this store
	Disk     string               `json:"disk,omitempty" rule:"enum=low"` // low = new messages are refused; absent = there is space
	Programs []StatusProgram      `json:"programs,omitempty"`             // the agents that keep processes; absent when no agent does, and for a credential that sees only its own data
}

// StatusProgram counts the processes of an agent.
type StatusProgram struct {
	Agent     string `json:"agent"`                 // its id
	Processes int    `json:"processes"`             // processes that are running
	Limit     int    `json:"limit"`                 // max_processes of the agent
	Memory    int64  `json:"memoryBytes,omitempty"` // memory of the processes and their children; absent = unknown
	Evicted   int64  `json:"evicted"`               // processes that were ended to make room for another session
}

// StatusSessions counts sessions.
type StatusSessions struct {
	Known             int  `json:"known"`                       // in the store; counted up to 1000
	Running           int  `json:"running"`                     // with a run on this process
	Waiting           int  `json:"waiting"`                     // with a waiting message on this process
	KnownIsLowerBound bool `json:"knownIsLowerBound,omitempty"` // there are more than known
}

// StatusCron counts jobs.
type StatusCron struct {
	Enabled      bool   `json:"enabled"`      // jobs fire
	Jobs         int    `json:"jobs"`         // how many there are
	Running      int    `json:"running"`      // how many run
	Backlog      int    `json:"backlog"`      // fires that are due and not started
	OldestDueMs  *int64 `json:"oldestDueMs"`  // the age of the oldest of them; null when nothing is due
	NextWakeAtMs *int64 `json:"nextWakeAtMs"` // the next fire, in Unix milliseconds; null when no fire is planned
}

// LaneCount counts the work of a lane.
type LaneCount struct {
	Capacity int `json:"capacity"` // its slots
	Active   int `json:"active"`   // used slots
	Waiting  int `json:"waiting"`  // sessions that wait for a slot
}

// StatusNode is a process.
type StatusNode struct {
	NodeID   string `json:"nodeId"`   // its id, which changes with each start
	Name     string `json:"name"`     // its name, from the setting cluster.node_id
	Version  string `json:"version"`  // of laneway
	Draining bool   `json:"draining"` // it is about to stop
	LeaseMs  int64  `json:"leaseMs"`  // how long its lease lasts
}

// LanesStatusResult is the result of lanes.status: the lanes of the process that answers. A
// credential that sees only its own data receives names and capacities.
type LanesStatusResult struct {
	TS        int64        `json:"ts"`                   // when, in Unix milliseconds
	NodeID    string       `json:"nodeId"`               // the process
	Draining  bool         `json:"draining"`             // it is about to stop
	Fallbacks int64        `json:"unknownLaneFallbacks"` // messages for a lane that does not exist, which used the lane main
	Lanes     []Lane       `json:"lanes"`                // its lanes
	Sessions  LaneSessions `json:"sessions"`             // how many sessions have work
	Drops     LaneDrops    `json:"drops"`                // messages that did not run, since the start
}

// Lane is a lane of a process. All counts of runs are since the start of the process.
type Lane struct {
	Name         string `json:"name"`         // its name
	Capacity     int    `json:"capacity"`     // its slots
	Active       int    `json:"active"`       // used slots
	Stopping     int    `json:"stopping"`     // used slots whose runs were stopped and have not returned
	Yielded      int    `json:"yielded"`      // runs without a slot: they wait for tasks, or summarise a conversation
	Waiting      int    `json:"waiting"`      // sessions that wait for a slot
	OldestWaitMs int64  `json:"oldestWaitMs"` // how long the first of them has waited
	Started      int64  `json:"started"`      // runs that began
	Finished     int64  `json:"finished"`     // runs that ended with an answer
	Failed       int64  `json:"failed"`       // runs that failed
	Cancelled    int64  `json:"cancelled"`    // runs that were stopped
}

// LaneSessions counts sessions with work.
type LaneSessions struct {
	Tracked    int `json:"tracked"`    // sessions with any work
	Running    int `json:"running"`    // with a run
	Waiting    int `json:"waiting"`    // with a message that waits
	Debouncing int `json:"debouncing"` // with messages that are being collected
}

// LaneDrops counts messages that did not run.
type LaneDrops struct {
	Old     int64 `json:"old"`     // removed from a full queue for newer messages
	New     int64 `json:"new"`     // refused by a full queue
	Stale   int64 `json:"stale"`   // older than a stop of all work
	Cleared int64 `json:"cleared"` // removed by a reset or a deletion
}

// Names of the protocol for channels.
const (
	// ChannelWeb is the channel of the gateway's own sockets.
	ChannelWeb = "web"
	// AccountDefault is the id of the only account of a channel.
	AccountDefault = "default"
)

// ChannelsStatusParams are the parameters of channels.status.
type ChannelsStatusParams struct {
	Probe     bool   `json:"probe,omitempty"`                  // check now; otherwise the answer may be some seconds old, except for the state of channels
	TimeoutMs int64  `json:"timeoutMs,omitempty" rule:"min=0"` // accepted and ignored
	Channel   string `json:"channel,omitempty" rule:"min=1"`   // only this channel
}

// ChannelsStatusResult is the result of channels.status.
type ChannelsStatusResult struct {
	TS        int64                       `json:"ts"`                      // the time of the gateway in Unix milliseconds
	Order     []string                    `json:"channelOrder"`            // the ids of the channels
	Labels    map[string]string           `json:"channelLabels"`           // their display names, by id
	Channels  map[string]ChannelSummary   `json:"channels"`                // their states, by id
	Accounts  map[string][]ChannelAccount `json:"channelAccounts"`         // their accounts, by id
	DefaultID map[string]string           `json:"channelDefaultAccountId"` // the first account of each, by id
}

// ChannelSummary is a [WebSummary] for web, which is the sockets of the gateway, and a
// [NetworkSummary] for all other channels.
type ChannelSummary struct{ Of any }

// Variants lists the types of the summary.
func (ChannelSummary) Variants() []any { return []any{WebSummary{}, NetworkSummary{}} }

// MarshalJSON is the JSON of the variant.
func (s ChannelSummary) MarshalJSON() ([]byte, error) { return encode(s.Of) }

// UnmarshalJSON stores the JSON of the variant.
func (s *ChannelSummary) UnmarshalJSON(data []byte) error { return storeRaw(&s.Of, data) }

// WebSummary is the state of the channel web.
type WebSummary struct {
	Connections int `json:"connections"` // open connections
}

// NetworkSummary is the state of a channel.
type NetworkSummary struct {
	Configured bool `json:"configured"` // its settings are complete
	Connected  bool `json:"connected"`  // its network answers
	Running    bool `json:"running"`    // it is running
}

// ChannelAccount is an account of a channel.
type ChannelAccount struct {
	AccountID       string  `json:"accountId"`           // its id; default when the channel has only one account
	Enabled         bool    `json:"enabled"`             // the configuration has not switched it off
	Configured      bool    `json:"configured"`          // its settings are complete
	Running         bool    `json:"running"`             // it is running
	Connected       bool    `json:"connected"`           // its network answers
	State           string  `json:"state,omitempty"`     // its state in one word
	Mode            string  `json:"mode,omitempty"`      // how messages arrive: polling or webhook
	LastError       *string `json:"lastError"`           // the last error; null = no error
	LastPollAgeMs   *int64  `json:"lastPollAgeMs"`       // time since the last poll for messages; null = never, or it does not poll
	PollOwner       string  `json:"pollOwner,omitempty"` // the process that polls for messages
	OutboxWaiting   int     `json:"outboxWaiting"`       // answers that wait to be sent
	OutboxFailed    int     `json:"outboxFailed"`        // answers that could not be sent
	OutboxMaybeSent int     `json:"outboxMaybeSent"`     // answers that may have arrived and are not sent again
}

// Need is a condition that needs the attention of a person.
type Need struct {
	Kind       string `json:"kind" rule:"enum=database|disk|held|stranded|stalled|cron|channel|job-disabled|job-failing|job-invalid|job-unsent|missed|dead|deliveries|stopping|lane|session|replica|version|pairing|question|agent"` // its kind
	Level      string `json:"level" rule:"enum=error|warn|ask|hint"`                                                                                                                                                                 // ask: a person waits for a decision; hint: a next step, which is not counted
	Text       string `json:"text"`                                                                                                                                                                                                  // one sentence: what is wrong
	Next       string `json:"next,omitempty"`                                                                                                                                                                                        // one sentence: what to do; absent = the text has it
	Command    string `json:"command,omitempty"`                                                                                                                                                                                     // the command line that shows or fixes it
	SinceMs    int64  `json:"sinceMs,omitempty"`                                                                                                                                                                                     // since when, in Unix milliseconds; absent = not known
	JobID      string `json:"jobId,omitempty"`                                                                                                                                                                                       // the job
	RunID      string `json:"runId,omitempty"`                                                                                                                                                                                       // the run, for runs.get
	SessionKey string `json:"sessionKey,omitempty"`                                                                                                                                                                                  // the session
	Lane       string `json:"lane,omitempty"`                                                                                                                                                                                        // the lane
	QuestionID string `json:"questionId,omitempty"`                                                                                                                                                                                  // the question, for questions.answer
	RequestID  string `json:"requestId,omitempty"`                                                                                                                                                                                   // the request of a person, for channels.pairing.approve
}

// NeedsListResult is the result of needs.list.
type NeedsListResult struct {
	TS    int64  `json:"ts"`    // the time of the gateway in Unix milliseconds
	Needs []Need `json:"needs"` // errors first, then warnings, then what waits for a decision; empty = nothing needs a person
}

// UsageStatusParams are the parameters of usage.status.
type UsageStatusParams struct{}

// UsageStatusResult is the result of usage.status: the usage of today. A caller that sees only its
// own data receives only its own usage.
type UsageStatusResult struct {
	Day        string        `json:"day"`        // today, as 2026-03-14
	Timezone   string        `json:"timezone"`   // the time zone in which days begin
	ResetsAtMs int64         `json:"resetsAtMs"` // when the next day begins
	Currency   string        `json:"currency"`   // the currency of all costs
	Today      UsageCount    `json:"today"`      // what was used
	Budgets    []UsageBudget `json:"budgets"`    // the configured budgets
}

// UsageCount is how much was used.
type UsageCount struct {
	Turns        int64 `json:"turns"`        // turns that have ended
	Requests     int64 `json:"requests"`     // requests to models
	InputTokens  int64 `json:"inputTokens"`  // tokens that models read
	OutputTokens int64 `json:"outputTokens"` // tokens that models wrote
	CachedTokens int64 `json:"cachedTokens"` // the part of inputTokens that came from the cache of the provider
	TotalTokens  int64 `json:"totalTokens"`  // the sum of input and output tokens
	CostMicros   int64 `json:"costMicros"`   // cost in millionths of the currency
	UnreportedMs int64 `json:"unreportedMs"` // how long turns ran whose agents reported no tokens
}

// UsageBudget is a budget and its usage.
type UsageBudget struct {
	Kind        string `json:"kind" rule:"enum=turn|job|principal|day"`       // its kind; principal is the budget of the caller
	LimitTokens int64  `json:"limitTokens,omitempty"`                         // limit of tokens
	LimitMicros int64  `json:"limitMicros,omitempty"`                         // limit of costs, in millionths of the currency
	UsedTokens  *int64 `json:"usedTokens,omitempty"`                          // today; absent for turn and job
	UsedMicros  *int64 `json:"usedMicros,omitempty"`                          // today, millionths of the currency; absent for turn and job
	Level       string `json:"level,omitempty" rule:"enum=free|near|reached"` // near from 80 % on; absent for turn and job
}

// UsageListParams are the parameters of usage.list.
type UsageListParams struct {
	From  string `json:"from,omitempty" rule:"min=10,max=10"`                    // first day, as 2026-03-14; default six days before to
	To    string `json:"to,omitempty" rule:"min=10,max=10"`                      // last day, at most 99 days after from; default today
	By    string `json:"by,omitempty" rule:"enum=day|principal|agent|model|job"` // what a row counts besides its day; default day
	Limit int64  `json:"limit,omitempty" rule:"min=1,max=1000"`                  // how many rows; default 200
}

// UsageListResult is the result of usage.list. A caller that sees only its own data receives only
// its own usage.
type UsageListResult struct {
	From     string     `json:"from"`                                         // first day
	To       string     `json:"to"`                                           // last day
	By       string     `json:"by" rule:"enum=day|principal|agent|model|job"` // what a row counts
	Currency string     `json:"currency"`                                     // the currency of all costs
	Rows     []UsageRow `json:"rows"`                                         // newest day first, then the most tokens
	HasMore  bool       `json:"hasMore"`                                      // there may be more rows than limit
}

// UsageRow is the usage of a day.
type UsageRow struct {
	Day  string `json:"day"`            // as 2026-03-14
	Name string `json:"name,omitempty"` // the principal, agent, model or job; absent by day

	UsageCount
}

// NoParams are the parameters of a method that takes none.
type NoParams struct{}

// CommandsListParams are the parameters of commands.list. All but includeArgs are accepted and
// ignored.
type CommandsListParams struct {
	SessionKey  string `json:"sessionKey,omitempty" rule:"min=1"`            // accepted and ignored
	AgentID     string `json:"agentId,omitempty" rule:"min=1"`               // accepted and ignored
	Provider    string `json:"provider,omitempty" rule:"min=1"`              // accepted and ignored
	Scope       string `json:"scope,omitempty" rule:"enum=text|native|both"` // accepted and ignored
	IncludeArgs *bool  `json:"includeArgs,omitempty"`                        // whether the answer has args; absent = true
}

// CommandsListResult is the result of commands.list.
type CommandsListResult struct {
	Commands []CommandEntry `json:"commands"` // the chat commands
}

// CommandEntry is a chat command.
type CommandEntry struct {
	Name        string       `json:"name"`                                                               // without the slash
	TextAliases []string     `json:"textAliases"`                                                        // the forms that start a message: /name and its aliases
	Description string       `json:"description"`                                                        // one sentence
	Category    string       `json:"category" rule:"enum=session|options|status|management|media|tools"` // its group in the help
	Source      string       `json:"source" rule:"enum=native"`                                          // always native
	Scope       string       `json:"scope" rule:"enum=both"`                                             // always both
	AcceptsArgs bool         `json:"acceptsArgs"`                                                        // whether arguments may follow the name
	Args        []CommandArg `json:"args,omitempty"`                                                     // the arguments
}

// CommandArg is an argument of a chat command.
type CommandArg struct {
	Name        string `json:"name" rule:"enum=args"`   // always args
	Description string `json:"description"`             // what it is
	Type        string `json:"type" rule:"enum=string"` // always string
	Required    bool   `json:"required"`                // always false
}

// QuestionListResult is the result of question.list: this gateway has no questions.
type QuestionListResult struct {
	Questions []any `json:"questions" rule:"max=0"` // always empty
}

// ApprovalListResult is the result of plugin.approval.list: always empty, this gateway has no
// approvals.
type ApprovalListResult []any

// TaskSuggestionsListParams are the parameters of taskSuggestions.list.
type TaskSuggestionsListParams struct {
	SessionKey string `json:"sessionKey,omitempty" rule:"min=1,max=512"` // accepted and ignored
	AgentID    string `json:"agentId,omitempty" rule:"min=1,max=128"`    // accepted and ignored
}

// TaskSuggestionsListResult is the result of taskSuggestions.list: this gateway has no suggestions.
type TaskSuggestionsListResult struct {
	Suggestions []any `json:"suggestions" rule:"max=0"` // always empty
}
