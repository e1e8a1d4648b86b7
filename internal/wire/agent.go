package wire

// AgentParams are the parameters of agent.
type AgentParams struct {
	_ struct{} `also:"provider,replyTo,expectedExistingSessionId,replyAccountId,groupId,groupChannel,groupSpace,cwd,cleanupBundleMcpOnRunEnd,modelRun,promptMode,bootstrapContextMode,bootstrapContextRunKind,acpTurnSource,internalRuntimeHandoffId,internalExecutionIdentityRetry,internalExecutionIdentityRecoveryAttempt,execApprovalFollowupExpectedSessionId,internalEvents,inputProvenance,suppressPromptPersistence,sessionEffects,sourceReplyDeliveryMode,disableMessageTool,swarmCollector,swarmOutputSchema,forceRestartSafeTools,forceCodeModeTools,voiceWakeTrigger"` //nolint:lll // one list

	Message           string       `json:"message" rule:"required,min=1,max=262144,bytes"`     // the text
	IdempotencyKey    string       `json:"idempotencyKey" rule:"required,min=1,max=128"`       // names the call, so that it can be sent again; it becomes the id of the run
	SessionKey        string       `json:"sessionKey,omitempty" rule:"max=512"`                // the session; absent = the main session of the agent
	AgentID           string       `json:"agentId,omitempty" rule:"min=1"`                     // the agent; absent = the agent of the session, or the default agent
	SessionID         string       `json:"sessionId,omitempty"`                                // accepted and ignored
	Timeout           *int64       `json:"timeout,omitempty" rule:"min=0,max=86400"`           // the longest time of the turn in seconds; absent = the limit of the agent, 0 = 24 hours
	Lane              string       `json:"lane,omitempty" rule:"max=64"`                       // the lane; absent = the lane of the session
	Deliver           bool         `json:"deliver,omitempty"`                                  // also send the answer to a chat
	Channel           string       `json:"channel,omitempty" rule:"max=128"`                   // deliver: the channel; absent = the channel of the session
	ReplyChannel      string       `json:"replyChannel,omitempty" rule:"max=128"`              // deliver: the same; used instead of channel when both are given
	To                string       `json:"to,omitempty" rule:"max=256"`                        // deliver: the chat
	AccountID         string       `json:"accountId,omitempty" rule:"max=128"`                 // deliver: the account of the channel
	ThreadID          string       `json:"threadId,omitempty" rule:"max=128"`                  // deliver: the thread of the chat
	BestEffortDeliver bool         `json:"bestEffortDeliver,omitempty"`                        // accepted and ignored
	Model             string       `json:"model,omitempty" rule:"max=256"`                     // the model; absent = the model of the agent
	Thinking          string       `json:"thinking,omitempty" rule:"max=64"`                   // how much the model may think, in the words of the model
	ExtraSystemPrompt string       `json:"extraSystemPrompt,omitempty" rule:"max=65536,bytes"` // text that is appended to the system prompt of the agent
	Label             string       `json:"label,omitempty" rule:"min=1,max=512"`               // accepted and ignored
	Attachments       []Attachment `json:"attachments,omitempty" rule:"max=16"`                // files that were uploaded before
}

// AgentResult is the result of agent: [AgentAccepted] in the first response, [AgentEnd] in the second.
type AgentResult struct{ Of any }

// Variants lists the types of the result.
func (AgentResult) Variants() []any { return []any{AgentAccepted{}, AgentEnd{}} }

// Variant returns the value itself, so that an encoder that supports it saves a copy.
func (r AgentResult) Variant() any { return r.Of }

// MarshalJSON is the JSON of the variant.
func (r AgentResult) MarshalJSON() ([]byte, error) { return encode(r.Of) }

// AgentAccepted states that the message is durable.
type AgentAccepted struct {
	RunID      string `json:"runId"`                       // the run; the idempotencyKey of the call
	Status     string `json:"status" rule:"enum=accepted"` // always accepted
	AcceptedAt int64  `json:"acceptedAt"`                  // when, in Unix milliseconds
	SessionKey string `json:"sessionKey"`                  // the whole key of the session
	AgentID    string `json:"agentId"`                     // its agent
}

// AgentEnd describes how the run ended.
type AgentEnd struct {
	RunID   string      `json:"runId"`                         // the run
	Status  string      `json:"status" rule:"enum=ok"`         // always ok: a run without an answer is an error
	Summary string      `json:"summary" rule:"enum=completed"` // always completed
	Result  AgentAnswer `json:"result"`                        // the answer
}

// AgentAnswer is the answer of a run.
type AgentAnswer struct {
	Payloads []AgentText `json:"payloads"` // the text, as one part
	Meta     AgentMeta   `json:"meta"`     // how long it took
}

// AgentText is a part of an answer.
type AgentText struct {
	Text string `json:"text"` // the text
}

// AgentMeta describes how long a run took.
type AgentMeta struct {
	DurationMs int64 `json:"durationMs"` // from its start to its end
	WaitedMs   int64 `json:"waitedMs"`   // from its acceptance to its start
}

// AgentsListResult is the result of agents.list.
type AgentsListResult struct {
	DefaultID string       `json:"defaultId"`                    // the agent of a key that names none
	MainKey   string       `json:"mainKey"`                      // the short name of the main session: main
	Scope     string       `json:"scope" rule:"enum=per-sender"` // always per-sender
	Agents    []AgentEntry `json:"agents"`                       // the agents
	Servers   []ToolServer `json:"servers,omitempty"`            // Extended: the MCP servers whose tools agents call, as seen by the process that answers; absent when there are no servers or the caller sees only its own data
}

// ToolServer is an MCP server whose tools agents call.
type ToolServer struct {
	Name      string        `json:"name"`                                                    // its name
	State     string        `json:"state" rule:"enum=connecting|connected|suspended|failed"` // suspended = it failed several times and is not called for a while; failed = it is not connected
	Tools     []string      `json:"tools"`                                                   // the names of the tools that are offered to agents
	Renamed   []RenamedTool `json:"renamed,omitempty"`                                       // those of them that have another name at the server
	LeftOut   []LeftOutTool `json:"leftOut,omitempty"`                                       // the listed tools that agents do not have
	LastError *string       `json:"lastError"`                                               // the last error since the connection; null = no error
}

// RenamedTool is a tool that models know by another name than its server.
type RenamedTool struct {
	Name string `json:"name"` // its name for models: letters, digits, _ and -, at most 64
	Own  string `json:"own"`  // its name at the server
}

// LeftOutTool is a listed tool that agents do not have.
type LeftOutTool struct {
	Name   string `json:"name"`   // its name at the server
	Reason string `json:"reason"` // why it is not offered
}

// AgentEntry is an agent.
type AgentEntry struct {
	ID     string      `json:"id"`                     // its id
	Kind   string      `json:"kind" rule:"enum=agent"` // always agent
	Name   string      `json:"name,omitempty"`         // its display name
	Model  *AgentModel `json:"model,omitempty"`        // its model; absent when it has no model
	Runner string      `json:"runner,omitempty"`       // Extended: what runs it: echo, command, acp, http, openai, anthropic

	Servers []string    `json:"servers,omitempty"` // Extended: the MCP servers whose tools it may call
	Lacks   []AgentLack `json:"lacks,omitempty"`   // Extended: what its model has refused, as seen by the process that answers
}

// AgentLack is a part of requests that a model has refused and that is left out for a while.
type AgentLack struct {
	Model   string `json:"model"`          // the model
	Part    string `json:"part"`           // the part, such as tools or temperature
	Said    string `json:"said,omitempty"` // the sentence of the endpoint; absent when the caller sees only its own data
	UntilMs int64  `json:"untilMs"`        // when it is tried again, in Unix milliseconds
}

// AgentModel is the model of an agent.
type AgentModel struct {
	Primary string `json:"primary"` // its name
}
