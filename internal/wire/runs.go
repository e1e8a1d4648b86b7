package wire

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
	Channel  string `json:"channel"`                                                                       // the channel account that sends it
	To       string `json:"to"`                                                                            // the chat
	Kind     string `json:"kind" rule:"enum=reply|notice|command|webhook"`                                 // its kind
	State    string `json:"state" rule:"enum=pending|sending|delivered|failed|expired|deleted|maybe_sent"` // maybe_sent: it may have arrived and is not sent again
	Attempts int    `json:"attempts"`                                                                      // attempts to send it
	Error    string `json:"error,omitempty"`                                                               // why the last attempt failed
	AtMs     int64  `json:"atMs,omitempty"`                                                                // when it arrived or was abandoned, in Unix milliseconds
}
