package wire

// SessionRow is a session.
type SessionRow struct {
	Key                string   `json:"key"`                                                                   // its whole key
	SessionID          string   `json:"sessionId,omitempty"`                                                   // its transcript
	Kind               string   `json:"kind"`                                                                  // the kind of its peer: direct, group, …
	AgentID            string   `json:"agentId"`                                                               // its agent
	IsMain             bool     `json:"isMain"`                                                                // it is the main session of its agent
	Channel            string   `json:"channel,omitempty"`                                                     // the channel of its peer
	CreatedAt          int64    `json:"createdAt,omitempty"`                                                   // when it began, in Unix milliseconds
	UpdatedAt          *int64   `json:"updatedAt"`                                                             // when it last changed, in Unix milliseconds; null = it does not exist yet
	LastInteractionAt  int64    `json:"lastInteractionAt,omitempty"`                                           // when its last message came, in Unix milliseconds
	Status             string   `json:"status,omitempty"`                                                      // running, or how its last run ended
	LastRunID          string   `json:"lastRunId,omitempty"`                                                   // its last run
	LastRunError       string   `json:"lastRunError,omitempty"`                                                // why its last run failed
	LastMessagePreview string   `json:"lastMessagePreview,omitempty"`                                          // the beginning of its last answer
	TotalTokens        int      `json:"totalTokens,omitempty"`                                                 // the tokens of all its runs
	HasActiveRun       bool     `json:"hasActiveRun"`                                                          // a run is active
	ActiveRunIDs       []string `json:"activeRunIds"`                                                          // the active runs
	EffectiveQueueMode string   `json:"effectiveQueueMode" rule:"enum=queue|followup|interrupt|collect|steer"` // what a new message does to its queue
	QueueDepth         int      `json:"queueDepth"`                                                            // how many messages wait
	Lane               string   `json:"lane"`                                                                  // the lane of its runs
	MayReset           bool     `json:"mayReset"`                                                              // the caller may reset it: its owner with write scope, or an administrator
}

// SessionsListParams are the parameters of sessions.list.
type SessionsListParams struct {
	_ struct{} `also:"requireLastInteraction,includeGlobal,includeUnknown,configuredAgentsOnly,includeDerivedTitles,includeLastMessage,label,boardFace,creatorId,ownerId,ownerFirst,involvingMe,involvingProfileId,includePeople,spawnedBy,archived"` // one list

	Limit         *int64 `json:"limit,omitempty" rule:"min=1,max=200"`                     // the most sessions; absent = 50
	Offset        int64  `json:"offset,omitempty" rule:"min=0"`                            // how many to skip
	AgentID       string `json:"agentId,omitempty" rule:"min=1,max=64"`                    // only sessions of this agent
	Search        string `json:"search,omitempty" rule:"max=256"`                          // only sessions whose key contains this string
	ActiveMinutes int64  `json:"activeMinutes,omitempty" rule:"min=1,max=5256000"`         // only sessions that changed in this many minutes
	SortBy        string `json:"sortBy,omitempty" rule:"enum=updatedAt|lastInteractionAt"` // the newest first by this member; absent = updatedAt
	HideCronRuns  bool   `json:"hideCronRuns,omitempty"`                                   // without the sessions that runs of jobs and tasks have for themselves
}

// SessionsListResult is the result of sessions.list.
type SessionsListResult struct {
	TS                int64          `json:"ts"`                          // the time of the gateway in Unix milliseconds
	Count             int            `json:"count"`                       // how many this answer has
	TotalCount        int            `json:"totalCount"`                  // how many there are; counted up to 1000, or to the end of this page
	TotalIsLowerBound bool           `json:"totalIsLowerBound,omitempty"` // there are more than totalCount
	LimitApplied      int64          `json:"limitApplied"`                // the limit of this answer
	Offset            int64          `json:"offset"`                      // as in the parameters
	NextOffset        *int64         `json:"nextOffset"`                  // the offset of the next page; null on the last page
	HasMore           bool           `json:"hasMore"`                     // more pages follow
	Sessions          []SessionRow   `json:"sessions"`                    // the sessions
	Defaults          map[string]any `json:"defaults"`                    // always empty
}

// SessionsDescribeParams are the parameters of sessions.describe.
type SessionsDescribeParams struct {
	_   struct{} `also:"includeDerivedTitles,includeLastMessage"`
	Key string   `json:"key" rule:"required,min=1,max=512"` // the session
}

// SessionsDescribeResult is the result of sessions.describe.
type SessionsDescribeResult struct {
	Session *SessionRow `json:"session"` // the session; null when it does not exist or is not visible
}

// SessionsSubscribeParams are the parameters of sessions.subscribe: the parameters of a first list,
// and which events of runs are sent.
type SessionsSubscribeParams struct {
	SessionsListParams

	Deltas   *bool  `json:"deltas,omitempty"`                        // false: only the last event of a run, and no tool events; a run that this connection starts is sent in full
	DeltasOf string `json:"deltasOf,omitempty" rule:"min=1,max=512"` // without deltas: the session whose runs are sent in full
}

// SessionsSubscribeResult is the result of sessions.subscribe.
type SessionsSubscribeResult struct {
	Subscribed bool                `json:"subscribed"`     // always true
	List       *SessionsListResult `json:"list,omitempty"` // as in sessions.list; absent unless the call has parameters of a list
}

// SessionsUnsubscribeResult is the result of sessions.unsubscribe.
type SessionsUnsubscribeResult struct {
	Subscribed bool `json:"subscribed"` // always false
}

// SessionsResetParams are the parameters of sessions.reset.
type SessionsResetParams struct {
	Key            string `json:"key" rule:"required,min=1,max=512"`             // the session
	AgentID        string `json:"agentId,omitempty" rule:"min=1"`                // must be its agent
	Reason         string `json:"reason,omitempty" rule:"enum=new|reset"`        // accepted and ignored
	IdempotencyKey string `json:"idempotencyKey,omitempty" rule:"min=1,max=128"` // names the call, so that it can be sent again
}

// SessionsResetResult is the result of sessions.reset.
type SessionsResetResult struct {
	OK    bool       `json:"ok"`    // always true
	Key   string     `json:"key"`   // the whole key of the session
	Entry ResetEntry `json:"entry"` // the session as it is now
}

// ResetEntry names the transcript that a reset started.
type ResetEntry struct {
	SessionID string `json:"sessionId"` // the new transcript
}

// SessionsDeleteParams are the parameters of sessions.delete.
type SessionsDeleteParams struct {
	_                 struct{} `also:"expectedLifecycleRevision,expectedSessionUpdatedAt,emitLifecycleHooks,archivedOnly"`
	Key               string   `json:"key" rule:"required,min=1,max=512"`                // the session
	AgentID           string   `json:"agentId,omitempty" rule:"min=1"`                   // must be its agent
	DeleteTranscript  *bool    `json:"deleteTranscript,omitempty"`                       // false keeps its transcripts in the store; absent = true
	DeleteBranches    bool     `json:"deleteBranches,omitempty"`                         // also delete the sessions of its principal that branched off it; false: they keep the entries before their branch
	ExpectedSessionID string   `json:"expectedSessionId,omitempty" rule:"min=1,max=128"` // refuse when it has another transcript
	IdempotencyKey    string   `json:"idempotencyKey,omitempty" rule:"min=1,max=128"`    // names the call, so that it can be sent again
}

// SessionsDeleteResult is the result of sessions.delete.
type SessionsDeleteResult struct {
	OK       bool     `json:"ok"`       // always true
	Key      string   `json:"key"`      // the whole key of the session
	Deleted  bool     `json:"deleted"`  // false: it did not exist
	Archived []string `json:"archived"` // the transcript that was kept
}

// SessionsSearchParams are the parameters of sessions.search.
type SessionsSearchParams struct {
	Query    string `json:"query" rule:"required,min=1,max=512"`                 // the words; at most 16
	Key      string `json:"key,omitempty" rule:"min=1,max=512"`                  // only in this session
	AgentID  string `json:"agentId,omitempty" rule:"min=1,max=64"`               // only in sessions of an agent
	SinceMs  *int64 `json:"sinceMs,omitempty" rule:"min=0,max=9007199254740991"` // only from this time on, in Unix milliseconds
	UntilMs  *int64 `json:"untilMs,omitempty" rule:"min=0,max=9007199254740991"` // only up to this time, in Unix milliseconds
	Limit    *int64 `json:"limit,omitempty" rule:"min=1,max=100"`                // the most messages; absent = 20
	MaxChars *int64 `json:"maxChars,omitempty" rule:"min=1,max=1000"`            // characters of an excerpt; absent = 240
}

// SessionsSearchResult is the result of sessions.search.
type SessionsSearchResult struct {
	Count       int         `json:"count"`       // how many this answer has
	Hits        []SearchHit `json:"hits"`        // the messages, the newest first
	HasMore     bool        `json:"hasMore"`     // there may be older ones
	NextUntilMs *int64      `json:"nextUntilMs"` // the untilMs that continues the search; messages of that millisecond are repeated; null = there are no older messages
}

// SearchHit is a message that a search found.
type SearchHit struct {
	SessionKey string `json:"sessionKey"`      // its session
	SessionID  string `json:"sessionId"`       // its transcript
	AgentID    string `json:"agentId"`         // the agent of its session
	MessageID  string `json:"messageId"`       // its id, as in chat.history
	Seq        int64  `json:"seq"`             // its number in the session
	Role       string `json:"role"`            // user, assistant or system
	Timestamp  int64  `json:"timestamp"`       // when it was stored, in Unix milliseconds
	RunID      string `json:"runId,omitempty"` // its run
	Excerpt    string `json:"excerpt"`         // the part of its text around the first match
}

// Run is a turn, or a message that waits to become one.
type Run struct {
	ID          string      `json:"id"`                                                                                                     // the id of its first message; for runs.get
	RunID       string      `json:"runId"`                                                                                                  // its id in events and in chat.abort
	Kind        string      `json:"kind" rule:"enum=chat|cron|api|hook|task"`                                                               // where it comes from; task: a turn requested it
	SessionKey  string      `json:"sessionKey"`                                                                                             // its session
	AgentID     string      `json:"agentId"`                                                                                                // the agent that answers
	Principal   string      `json:"principal"`                                                                                              // its owner
	Channel     string      `json:"channel,omitempty"`                                                                                      // where its message came from
	Lane        string      `json:"lane"`                                                                                                   // the lane in which it has its slot
	JobID       string      `json:"jobId,omitempty"`                                                                                        // the job that it is a run of
	ParentRunID string      `json:"parentRunId,omitempty"`                                                                                  // the run that requested it
	RootRunID   string      `json:"rootRunId,omitempty"`                                                                                    // the run at the root of its tree
	Text        string      `json:"text"`                                                                                                   // the beginning of the message
	State       string      `json:"state" rule:"enum=waiting|running|yielded|stopping|done"`                                                // yielded: it waits for its tasks and has no slot
	WaitingFor  *RunWaiting `json:"waitingFor,omitempty"`                                                                                   // what it waits for
	Outcome     string      `json:"outcome,omitempty" rule:"enum=answered|merged|superseded|stopped|stale|dropped|failed|interrupted|dead"` // how it ended
	Reason      string      `json:"reason,omitempty"`                                                                                       // why it ended like this
	Error       string      `json:"error,omitempty"`                                                                                        // the reason as a sentence
	Detail      string      `json:"detail,omitempty"`                                                                                       // for administrators: the message of the service of the agent
	StopBy      string      `json:"stopBy,omitempty"`                                                                                       // what stopped it
	NodeID      string      `json:"nodeId,omitempty"`                                                                                       // the process that runs it
	Attempt     int         `json:"attempt"`                                                                                                // the number of starts
	AcceptedAt  int64       `json:"acceptedAt"`                                                                                             // in Unix milliseconds
	StartedAt   int64       `json:"startedAt,omitempty"`                                                                                    // in Unix milliseconds
	EndedAt     int64       `json:"endedAt,omitempty"`                                                                                      // in Unix milliseconds
	Model       string      `json:"model,omitempty"`                                                                                        // the model that answered
	Provider    string      `json:"provider,omitempty"`                                                                                     // the provider of the model
	Usage       *RunUsage   `json:"usage,omitempty"`                                                                                        // the usage that the model reported
}

// RunWaiting is what a turn waits for.
type RunWaiting struct {
	Text      string `json:"text"`                                                                                 // the cause and the place in words
	Cause     string `json:"cause" rule:"enum=debounce|session|lane|principal|drain|retry|question|tasks|gateway"` // principal: other turns of the same principal; gateway: a process that accepts it
	Position  int    `json:"position,omitempty"`                                                                   // lane: its place among the ready sessions; session: its place in the session; both from 1
	UntilMs   int64  `json:"untilMs,omitempty"`                                                                    // when it continues, in Unix milliseconds
	BlockedBy string `json:"blockedBy,omitempty"`                                                                  // the run before it in its session
}

// RunUsage is the usage that a model reported.
type RunUsage struct {
	InputTokens  int `json:"inputTokens"`  // of the requests
	OutputTokens int `json:"outputTokens"` // of the answers
}

// RunsListParams are the parameters of runs.list.
type RunsListParams struct {
	State      string `json:"state,omitempty" rule:"enum=open|running|waiting|ended"` // absent = open: running and waiting
	SessionKey string `json:"sessionKey,omitempty" rule:"min=1,max=512"`              // only those of this session
	Lane       string `json:"lane,omitempty" rule:"min=1,max=64"`                     // only those of this lane
	Limit      *int64 `json:"limit,omitempty" rule:"min=1,max=200"`                   // the most runs; absent = 100
	Cursor     string `json:"cursor,omitempty" rule:"max=600"`                        // nextCursor of the page before
}

// RunsListResult is the result of runs.list.
type RunsListResult struct {
	TS         int64  `json:"ts"`                   // the time of the gateway in Unix milliseconds
	Runs       []Run  `json:"runs"`                 // open runs: the oldest first; ended runs: the newest end first
	NextCursor string `json:"nextCursor,omitempty"` // the cursor of the next page; absent on the last page
}

// RunsGetParams are the parameters of runs.get.
type RunsGetParams struct {
	ID         string `json:"id" rule:"required,min=1,max=400"`          // the run, by id or runId, or a message that it took along
	SessionKey string `json:"sessionKey,omitempty" rule:"min=1,max=512"` // the id may also be that of a message in the chat network, among the newest 200 of this session
}

// RunsGetResult is the result of runs.get.
type RunsGetResult struct {
	Run        *Run          `json:"run"`              // null = no such run is visible
	Tasks      []Run         `json:"tasks"`            // the turns that it requested, the oldest first
	Deliveries []RunDelivery `json:"deliveries"`       // the messages that it sent, in order
	Job        *LedgerEntry  `json:"job,omitempty"`    // the run of the job, with its attempts
	Answer     *RunAnswer    `json:"answer,omitempty"` // where its answer is; absent without a run
}

// RunAnswer says where the answer of a run is.
type RunAnswer struct {
	Why  string `json:"why" rule:"enum=waiting|running|sending|delivered|answered|undelivered|stopped|failed"` // answered: it is in the conversation and was sent nowhere else
	Text string `json:"text"`                                                                                  // the same in sentences, with what is stored about it
}

// RunDelivery is a message that a run sends.
type RunDelivery struct {
	Channel  string `json:"channel"`                                                                                  // the channel account that sends it
	To       string `json:"to"`                                                                                       // the chat
	Kind     string `json:"kind" rule:"enum=reply|notice|command|webhook"`                                            // its kind
	State    string `json:"state" rule:"enum=pending|sending|delivered|failed|expired|superseded|deleted|maybe_sent"` // superseded: a later run took its place during quiet hours; maybe_sent: it may have arrived and is not sent again
	Attempts int    `json:"attempts"`                                                                                 // attempts to send it
	Error    string `json:"error,omitempty"`                                                                          // why the last attempt failed
	AtMs     int64  `json:"atMs,omitempty"`                                                                           // when it arrived or was abandoned, in Unix milliseconds
}

// Task is a task: a turn that a running turn requested.
type Task struct {
	ID          string `json:"id"`                                                                                                     // also the id of its run
	SessionKey  string `json:"sessionKey"`                                                                                             // its own session
	AgentID     string `json:"agentId"`                                                                                                // the agent that works on it
	Lane        string `json:"lane"`                                                                                                   // subagent or team
	ParentRunID string `json:"parentRunId"`                                                                                            // the run that requested it
	RootRunID   string `json:"rootRunId"`                                                                                              // the run at the root of its tree
	Text        string `json:"text"`                                                                                                   // the beginning of its request
	State       string `json:"state" rule:"enum=waiting|running|yielded|stopping|done"`                                                // yielded: it waits for its own tasks
	Outcome     string `json:"outcome,omitempty" rule:"enum=answered|merged|superseded|stopped|stale|dropped|failed|interrupted|dead"` // how it ended
	Reason      string `json:"reason,omitempty"`                                                                                       // why it ended like this
	Error       string `json:"error,omitempty"`                                                                                        // the reason as a sentence
	Background  bool   `json:"background"`                                                                                             // no turn waits for it; its result is announced later
	CreatedAt   int64  `json:"createdAt"`                                                                                              // in Unix milliseconds
	StartedAt   int64  `json:"startedAt,omitempty"`                                                                                    // in Unix milliseconds
	EndedAt     int64  `json:"endedAt,omitempty"`                                                                                      // in Unix milliseconds
}

// TasksListParams are the parameters of tasks.list.
type TasksListParams struct {
	SessionKey string `json:"sessionKey,omitempty" rule:"min=1,max=512"` // only tasks of trees that began in this session
	Open       bool   `json:"open,omitempty"`                            // only tasks that have not ended
	Limit      *int64 `json:"limit,omitempty" rule:"min=1,max=200"`      // the most tasks; absent = 100
}

// TasksListResult is the result of tasks.list.
type TasksListResult struct {
	TS    int64  `json:"ts"`    // the time of the gateway in Unix milliseconds
	Tasks []Task `json:"tasks"` // the newest first
}

// TaskParams are the parameters of tasks.get and tasks.stop.
type TaskParams struct {
	ID string `json:"id" rule:"required,min=1,max=128"` // the task
}

// TasksGetResult is the result of tasks.get.
type TasksGetResult struct {
	Task *Task `json:"task"` // null when the task does not exist or is not visible
}

// TasksStopResult is the result of tasks.stop.
type TasksStopResult struct {
	OK      bool     `json:"ok"`      // always true
	Stopped bool     `json:"stopped"` // something was stopped
	RunIDs  []string `json:"runIds"`  // the runs that were stopped
}

// Question is an open question of an agent to a person.
type Question struct {
	ID          string           `json:"id"`              // for questions.answer
	SessionKey  string           `json:"sessionKey"`      // the session in which it was asked
	AgentID     string           `json:"agentId"`         // the agent that asks
	RunID       string           `json:"runId,omitempty"` // the run that waits for the answer; absent when the run has ended, and the call is made once it is allowed
	Principal   string           `json:"principal"`       // the principal whose answer counts
	Mine        bool             `json:"mine"`            // the answer of this caller counts
	Text        string           `json:"text"`            // the action that the agent asks permission for
	Act         string           `json:"act,omitempty"`   // the same without its further arguments; absent when it is the same as the whole action
	Options     []QuestionOption `json:"options"`         // the options; the first has the number 1
	AskedAtMs   int64            `json:"askedAtMs"`       // in Unix milliseconds
	ExpiresAtMs int64            `json:"expiresAtMs"`     // when it can no longer be answered, in Unix milliseconds
}

// QuestionOption is one answer to a question.
type QuestionOption struct {
	Label  string `json:"label"`            // a word of the gateway, then the label of the agent
	Allow  bool   `json:"allow"`            // the agent does the action
	Always bool   `json:"always,omitempty"` // the answer applies to every later question with the same act in the conversation
}

// QuestionsListParams are the parameters of questions.list.
type QuestionsListParams struct {
	Limit *int64 `json:"limit,omitempty" rule:"min=1,max=200"` // the most questions; absent = 100
}

// QuestionsListResult is the result of questions.list.
type QuestionsListResult struct {
	TS        int64      `json:"ts"`        // the time of the gateway in Unix milliseconds
	Questions []Question `json:"questions"` // the oldest first
}

// QuestionsAnswerParams are the parameters of questions.answer.
type QuestionsAnswerParams struct {
	ID     string `json:"id" rule:"required,min=1,max=128"`     // the question
	Option int64  `json:"option" rule:"required,min=1,max=100"` // the number of the chosen option
}

// QuestionsAnswerResult is the result of questions.answer.
type QuestionsAnswerResult struct {
	OK   bool   `json:"ok"`   // always true
	Text string `json:"text"` // the effect of the answer
}

// QuestionsChanged is the payload of the event questions.changed.
type QuestionsChanged struct {
	SessionKey string `json:"sessionKey"`                               // the session in which it was asked
	Reason     string `json:"reason" rule:"enum=asked|answered|closed"` // closed: the turn no longer waits
	TS         int64  `json:"ts"`                                       // when it happened, in Unix milliseconds
}

// TocListParams are the parameters of toc.list.
type TocListParams struct {
	Level  string `json:"level,omitempty" rule:"enum=day|week|month"` // day (default): a summary for each session and day; week and month: one for all sessions of a principal
	Key    string `json:"key,omitempty" rule:"min=1,max=512"`         // only this session; with level day
	From   string `json:"from,omitempty" rule:"min=1,max=10"`         // the first period, such as 2026-03-14, 2026-W11 or 2026-03
	To     string `json:"to,omitempty" rule:"min=1,max=10"`           // the last period
	Limit  *int64 `json:"limit,omitempty" rule:"min=1,max=100"`       // the most summaries; absent = 20
	Offset int64  `json:"offset,omitempty" rule:"min=0,max=1000000"`  // how many of the newest to skip
}

// TocListResult is the result of toc.list.
type TocListResult struct {
	Count      int       `json:"count"`      // how many this answer has
	Nodes      []TocNode `json:"nodes"`      // the summaries, the newest period first
	HasMore    bool      `json:"hasMore"`    // there may be more
	NextOffset *int64    `json:"nextOffset"` // the offset of the next page; null on the last page
}

// TocNode is one summary.
type TocNode struct {
	Level      string `json:"level" rule:"enum=day|week|month"` // the kind of period
	Period     string `json:"period"`                           // the day, week (ISO 8601) or month, in the time zone of the gateway
	Principal  string `json:"principal"`                        // the owner of the conversations
	SessionKey string `json:"sessionKey,omitempty"`             // the session of a day
	FromSeq    int64  `json:"fromSeq,omitempty"`                // the sequence number of its first message on that day
	ToSeq      int64  `json:"toSeq,omitempty"`                  // the sequence number of its last message on that day
	Messages   int    `json:"messages,omitempty"`               // how many messages it summarises
	Text       string `json:"text"`                             // the summary
	MadeAt     int64  `json:"madeAt"`                           // when it was created, in Unix milliseconds
	Stale      bool   `json:"stale,omitempty"`                  // messages arrived after it was written; the next run of its job replaces it
}

// PairingListParams are the parameters of channels.pairing.list.
type PairingListParams struct {
	Channel   string `json:"channel,omitempty" rule:"min=1,max=64"`   // only this channel
	AccountID string `json:"accountId,omitempty" rule:"min=1,max=64"` // only this account
	Extended  bool   `json:"extended,omitempty"`                      // requests the extended view
}

// WantsExtended reports whether the call requests the extended view.
func (p *PairingListParams) WantsExtended() bool { return p.Extended }

// PairingListResult is the result of channels.pairing.list. It has no code: a person proves their
// identity with the code.
type PairingListResult struct {
	Accounts               []PairingAccount `json:"accounts"`               // the accounts with pairing
	CommandOwnerConfigured bool             `json:"commandOwnerConfigured"` // always false
	Granted                []PairingGrant   `json:"granted,omitzero"`       // Extended: the senders that were approved
	Limits                 PairingLimits    `json:"limits"`                 // the limits of requests
	Requests               []PairingRequest `json:"requests"`               // open requests
}

// PairingAccount is an account of a channel.
type PairingAccount struct {
	AccountID       string `json:"accountId"`       // its id
	Channel         string `json:"channel"`         // its channel
	ChannelLabel    string `json:"channelLabel"`    // the display name of the channel
	NotifySupported bool   `json:"notifySupported"` // always true
}

// PairingLimits are the limits of requests.
type PairingLimits struct {
	PendingPerAccount int   `json:"pendingPerAccount"` // the most open requests of an account
	TTLMs             int64 `json:"ttlMs"`             // how long a request is open
}

// PairingRequest is the request of a sender for approval.
type PairingRequest struct {
	AccountID       string `json:"accountId"`       // the account that received the request
	Channel         string `json:"channel"`         // its channel
	ChannelLabel    string `json:"channelLabel"`    // the display name of the channel
	CreatedAt       string `json:"createdAt"`       // when, ISO 8601
	ExpiresAt       string `json:"expiresAt"`       // when the request expires, ISO 8601
	LastSeenAt      string `json:"lastSeenAt"`      // as createdAt
	NotifySupported bool   `json:"notifySupported"` // always true
	RequestID       string `json:"requestId"`       // for approve and dismiss
	SenderID        string `json:"senderId"`        // the id of the sender
	SenderLabel     string `json:"senderLabel"`     // the name of the sender
}

// PairingGrant is a sender that was approved.
type PairingGrant struct {
	AccountID    string `json:"accountId"`    // the account
	ApprovedAt   string `json:"approvedAt"`   // when, ISO 8601
	ApprovedBy   string `json:"approvedBy"`   // the credential that approved it
	Channel      string `json:"channel"`      // the channel
	ChannelLabel string `json:"channelLabel"` // the display name of the channel
	ChatID       string `json:"chatId"`       // the chat in which the sender may talk
	SenderID     string `json:"senderId"`     // the id of the sender
	SenderLabel  string `json:"senderLabel"`  // the name of the sender
}

// PairingApproveParams are the parameters of channels.pairing.approve: requestId or code.
type PairingApproveParams struct {
	_ struct{} `also:"bootstrapCommandOwner"`

	Channel   string `json:"channel,omitempty" rule:"min=1,max=64"`    // accepted and ignored
	AccountID string `json:"accountId,omitempty" rule:"min=1,max=64"`  // accepted and ignored
	RequestID string `json:"requestId,omitempty" rule:"min=1,max=128"` // from the list
	Code      string `json:"code,omitempty" rule:"min=1,max=64"`       // the code that the sender received
	Notify    *bool  `json:"notify,omitempty"`                         // whether the sender receives a message; absent = true
}

// PairingApproveResult is the result of channels.pairing.approve.
type PairingApproveResult struct {
	CommandOwnerBootstrap string `json:"commandOwnerBootstrap" rule:"enum=not-requested"`    // always not-requested
	Notification          string `json:"notification" rule:"enum=not-requested|sent|failed"` // the message to the sender
	RequestID             string `json:"requestId"`                                          // the request
	SenderID              string `json:"senderId"`                                           // the id of the sender
}

// PairingDismissParams are the parameters of channels.pairing.dismiss.
type PairingDismissParams struct {
	Channel   string `json:"channel" rule:"required,min=1,max=64"`    // accepted and ignored
	AccountID string `json:"accountId" rule:"required,min=1,max=64"`  // accepted and ignored
	RequestID string `json:"requestId" rule:"required,min=1,max=128"` // from the list
}

// PairingDismissResult is the result of channels.pairing.dismiss.
type PairingDismissResult struct {
	RequestID string `json:"requestId"` // the request
	SenderID  string `json:"senderId"`  // the id of the sender
}

// PairingRevokeParams are the parameters of channels.pairing.revoke.
type PairingRevokeParams struct {
	Channel   string `json:"channel,omitempty" rule:"min=1,max=64"`   // only in this channel
	AccountID string `json:"accountId,omitempty" rule:"min=1,max=64"` // only in this account
	SenderID  string `json:"senderId" rule:"required,min=1,max=32"`   // the id of the sender
}

// PairingRevokeResult is the result of channels.pairing.revoke.
type PairingRevokeResult struct {
	Revoked  int    `json:"revoked"`  // in how many accounts the sender was approved
	SenderID string `json:"senderId"` // the id of the sender
}
