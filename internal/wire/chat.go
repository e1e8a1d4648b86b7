package wire

import (
	"bytes"
	"encoding/json"
	"strings"
)

// ChatSendParams are the parameters of chat.send.
type ChatSendParams struct {
	_ struct{} `also:"intent,fastMode,fastAutoOnSeconds,originatingChannel,originatingTo,originatingAccountId,originatingThreadId,replyToId,toolBindings,systemInputProvenance,systemProvenanceReceipt,suppressCommandInterpretation,expectedLeafEntryId,expectedSessionRoutingContract,expectedPermissionMode,expectedToolOverrides,clarification"` // one list

	SessionKey     string       `json:"sessionKey" rule:"required,min=1,max=512"`                               // the session; main is the main session of the default agent
	Message        string       `json:"message" rule:"required,min=1,max=262144,bytes"`                         // the text
	IdempotencyKey string       `json:"idempotencyKey" rule:"required,min=1,max=128"`                           // names the call, so that it can be sent again; it becomes the id of the run
	AgentID        string       `json:"agentId,omitempty" rule:"min=1"`                                         // must be the agent of the session
	SessionID      string       `json:"sessionId,omitempty" rule:"min=1"`                                       // accepted and ignored
	QueueMode      string       `json:"queueMode,omitempty" rule:"enum=queue|followup|interrupt|collect|steer"` // what the message does to the queue of the session; absent = the mode of the session
	Deliver        bool         `json:"deliver,omitempty"`                                                      // also send the answer to the chat of the session
	TimeoutMs      *int64       `json:"timeoutMs,omitempty" rule:"min=0,max=86400000"`                          // the longest time of the turn; absent = the limit of the agent, 0 = 24 hours
	Thinking       string       `json:"thinking,omitempty"`                                                     // how much the model may think, in the words of the model
	Attachments    []Attachment `json:"attachments,omitempty" rule:"max=16"`                                    // files that were uploaded before
	ReplyTo        int64        `json:"replyTo,omitempty" rule:"min=1"`                                         // the number of the message of this conversation that it answers; the agent gets that before the text
	Extended       bool         `json:"extended,omitempty"`                                                     // requests the extended view
}

// Attachment is a file of a message.
type Attachment struct {
	FileID string `json:"fileId" rule:"required,min=1,max=128"` // the id of a file that was uploaded with POST /v1/files
}

// WantsExtended reports whether the call requests the extended view.
func (p *ChatSendParams) WantsExtended() bool { return p.Extended }

// ChatSendResult is the result of chat.send. An empty event chat follows immediately for a turn
// that waits.
type ChatSendResult struct {
	RunID    string `json:"runId"`                                                 // the run; the idempotencyKey of the call
	Status   string `json:"status" rule:"enum=started|in_flight|ok|error|timeout"` // started for a new message, even when it waits; otherwise the state of the message with this key
	Queued   *bool  `json:"queued,omitempty"`                                      // Extended: whether the message waits
	Position *int   `json:"position,omitempty"`                                    // Extended: how many messages wait before it in the session
}

// ChatAbortParams are the parameters of chat.abort.
type ChatAbortParams struct {
	_          struct{} `also:"preserveSideRuns"`
	SessionKey string   `json:"sessionKey" rule:"required,min=1,max=512"` // the session
	AgentID    string   `json:"agentId,omitempty" rule:"min=1"`           // must be the agent of the session
	RunID      string   `json:"runId,omitempty" rule:"min=1,max=1024"`    // only this run
	All        bool     `json:"all,omitempty"`                            // everything that was accepted so far
}

// ChatAbortResult is the result of chat.abort.
type ChatAbortResult struct {
	OK      bool     `json:"ok"`      // always true
	Aborted bool     `json:"aborted"` // false: there was nothing to stop
	RunIDs  []string `json:"runIds"`  // the runs that were stopped, waiting ones included
}

// WakeParams are the parameters of wake.
type WakeParams struct {
	_              struct{} `open:"true"`
	Mode           string   `json:"mode" rule:"required,enum=now|next-heartbeat"`  // now starts a turn, next-heartbeat puts the text before the next one
	Text           string   `json:"text" rule:"required,min=1,max=65536,bytes"`    // the text
	SessionKey     string   `json:"sessionKey,omitempty" rule:"min=1,max=512"`     // the session; absent = the main session of the agent
	AgentID        string   `json:"agentId,omitempty" rule:"min=1"`                // the agent; absent = the agent of the session, or the default agent
	IdempotencyKey string   `json:"idempotencyKey,omitempty" rule:"min=1,max=128"` // names the call, so that it can be sent again
}

// WakeResult is the result of wake.
type WakeResult struct {
	OK    bool   `json:"ok"`              // always true
	RunID string `json:"runId,omitempty"` // the run that mode now started
}

// ChatHistoryParams are the parameters of chat.history.
type ChatHistoryParams struct {
	_          struct{} `also:"messageId,inputRunIds,pendingBefore,agentId"`
	SessionKey string   `json:"sessionKey" rule:"required,min=1,max=512"`   // the session
	Limit      *int64   `json:"limit,omitempty" rule:"min=1,max=1000"`      // the most messages; absent = 200
	Offset     int64    `json:"offset,omitempty" rule:"min=0"`              // how many of the newest messages to skip
	Cursor     *string  `json:"cursor,omitempty" rule:"max=256"`            // a deltaCursor: only the messages after it
	MaxChars   *int64   `json:"maxChars,omitempty" rule:"min=1,max=500000"` // longer messages are cut to this number of characters; absent = 12,000
	SessionID  string   `json:"sessionId,omitempty" rule:"min=1,max=128"`   // an archived transcript of the session
	Seq        *int64   `json:"seq,omitempty" rule:"min=1"`                 // only the message of this number
	FromChar   int64    `json:"fromChar,omitempty" rule:"min=0"`            // with seq: its text from this character on, without a mark where it is cut
}

// ChatHistoryResult is the result of chat.history: [HistoryPage] without a cursor; with one,
// [HistoryDelta], or [HistoryReset] when the transcript was replaced.
type ChatHistoryResult struct{ Of any }

// Variants lists the types of the result.
func (ChatHistoryResult) Variants() []any {
	return []any{HistoryPage[HistoryMessage]{}, HistoryDelta[HistoryMessage]{}, HistoryReset{}}
}

// Variant returns the value itself, so that an encoder that supports it saves a copy.
func (r ChatHistoryResult) Variant() any { return r.Of }

// MarshalJSON is the JSON of the variant.
func (r ChatHistoryResult) MarshalJSON() ([]byte, error) { return encode(r.Of) }

// HistoryPage has messages of a transcript, oldest first.
//
// M is [HistoryMessage], or its JSON when it is already encoded.
type HistoryPage[M any] struct {
	SessionKey    string        `json:"sessionKey"`            // the whole key of the session
	SessionID     string        `json:"sessionId"`             // the id of the transcript; "" when the session has no transcript
	Messages      []M           `json:"messages"`              // the messages
	HasMore       bool          `json:"hasMore"`               // there are older ones
	TotalMessages int           `json:"totalMessages"`         // all messages of the transcript
	DeltaCursor   string        `json:"deltaCursor"`           // the position after the newest message, for cursor
	PendingInputs PendingInputs `json:"pendingInputs"`         // messages that wait
	InFlightRun   *InFlightRun  `json:"inFlightRun,omitempty"` // the answer in progress
	SessionInfo   SessionRow    `json:"sessionInfo"`           // the session, as in sessions.list
}

// HistoryDelta has exactly the messages after a cursor.
//
// M is as in [HistoryPage].
type HistoryDelta[M any] struct {
	Kind          string        `json:"kind" rule:"enum=delta"` // always delta
	Messages      []M           `json:"messages"`               // the messages, oldest first
	DeltaCursor   string        `json:"deltaCursor"`            // the position after the last of them
	PendingInputs PendingInputs `json:"pendingInputs"`          // messages that wait
	InFlightRun   *InFlightRun  `json:"inFlightRun,omitempty"`  // the answer in progress
	SessionInfo   SessionRow    `json:"sessionInfo"`            // the session, as in sessions.list
}

// HistoryReset states that the cursor belongs to another transcript: read the session without one.
type HistoryReset struct {
	Kind string `json:"kind" rule:"enum=reset"` // always reset
}

// HistoryMessage is a message of a transcript.
type HistoryMessage struct {
	ID         string        `json:"id,omitempty"`                                // its id; absent while it waits
	Seq        int64         `json:"seq,omitempty"`                               // its number in the transcript; absent while it waits
	Role       string        `json:"role" rule:"enum=user|assistant|system|tool"` // who wrote it; system names what was stopped, interrupted or dropped
	Content    []TextPart    `json:"content"`                                     // the text, as one part
	NextChar   int64         `json:"nextChar,omitempty"`                          // the text is cut and ends with "..."; chat.history with seq, and this as fromChar, has the rest
	Timestamp  int64         `json:"timestamp"`                                   // when, in Unix milliseconds
	RunID      string        `json:"runId,omitempty"`                             // its run
	StopReason string        `json:"stopReason,omitempty"`                        // what ended the answer
	Command    bool          `json:"command,omitempty"`                           // it belongs to a chat command
	Covers     *SeqRange     `json:"covers,omitempty"`                            // of a summary: the messages that it summarises
	Files      []MessageFile `json:"files,omitempty"`                             // files that came with it; each has a line in the text
	Origin     *Origin       `json:"origin,omitempty"`                            // what wrote it from another conversation: a job, a reminder, an alert, a tool
	// for terminal clients of OpenClaw
	Openclaw *ClientMark `json:"__openclaw,omitempty"` // the name that clients read
}

// Origin is what wrote a message into a conversation from outside of it.
type Origin struct {
	Kind  string `json:"kind" rule:"enum=job|reminder|alert|message|answer"` // message is the tool, answer a turn that delivers here
	Who   string `json:"who"`                                                // in words, such as "job digest"
	JobID string `json:"jobId,omitempty"`                                    // the job
}

// SeqRange is a range of messages of a transcript.
type SeqRange struct {
	From int64 `json:"from"` // the number of the first one
	To   int64 `json:"to"`   // the number of the last one
}

// MessageFile is a file that came with a message.
type MessageFile struct {
	Name     string `json:"name"`     // its name without a path
	MIMEType string `json:"mimeType"` // its MIME type
	Size     int64  `json:"size"`     // its size in bytes
	URL      string `json:"url"`      // a path of this gateway; GET returns the content, with the same credential in the header Authorization
}

// Text returns the whole text of the message.
func (m *HistoryMessage) Text() string { return textOf(m.Content) }

// Text returns the whole text of the message; "" for nil.
func (m *ChatMessage) Text() string {
	if m == nil {
		return ""
	}
	return textOf(m.Content)
}

func textOf(parts []TextPart) string {
	var b strings.Builder
	for _, part := range parts {
		b.WriteString(part.Text)
	}
	return b.String()
}

// ClientMark has the members that terminal clients of OpenClaw read.
type ClientMark struct {
	ID             string `json:"id"`                       // the id of the message
	Seq            int64  `json:"seq"`                      // its number
	IdempotencyKey string `json:"idempotencyKey,omitempty"` // of a message of a user: the idempotencyKey of its run, followed by :user
}

// PendingInputs are the first messages that wait.
type PendingInputs struct {
	Items             []PendingInput `json:"items"`                       // at most 20
	Total             int            `json:"total"`                       // how many wait; counted up to 1000
	TotalIsLowerBound bool           `json:"totalIsLowerBound,omitempty"` // there are more than total
}

// PendingInput is a message that waits.
type PendingInput struct {
	ID         string         `json:"id"`                       // the id of its run
	RunID      string         `json:"runId"`                    // the same
	Message    HistoryMessage `json:"message"`                  // the message
	AcceptedAt int64          `json:"acceptedAt"`               // when, in Unix milliseconds
	State      string         `json:"state" rule:"enum=queued"` // always queued
}

// InFlightRun is an answer in progress.
type InFlightRun struct {
	RunID string `json:"runId"` // its run
	Text  string `json:"text"`  // the text so far
	Seq   int64  `json:"seq"`   // the number of the last event of the run
}

// AgentParams are the parameters of agent.
type AgentParams struct {
	_ struct{} `also:"provider,replyTo,expectedExistingSessionId,replyAccountId,groupId,groupChannel,groupSpace,cwd,cleanupBundleMcpOnRunEnd,modelRun,promptMode,bootstrapContextMode,bootstrapContextRunKind,acpTurnSource,internalRuntimeHandoffId,internalExecutionIdentityRetry,internalExecutionIdentityRecoveryAttempt,execApprovalFollowupExpectedSessionId,internalEvents,inputProvenance,suppressPromptPersistence,sessionEffects,sourceReplyDeliveryMode,disableMessageTool,swarmCollector,swarmOutputSchema,forceRestartSafeTools,forceCodeModeTools,voiceWakeTrigger"` // one list

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

// AgentResult is the result of agent: [AgentAccepted] in the first response, [AgentEnd] in the
// second.
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
	Servers   []ToolServer `json:"servers,omitempty"`            // Extended: the MCP servers of agents, as the answering process sees them; absent for callers that see only their own data
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

// Variants lists the types that the data of an event may have.
func (AgentData) Variants() []any { return []any{LifecycleData{}, AssistantData{}, ToolData{}} }

// MarshalJSON is the JSON of the variant.
func (d AgentData) MarshalJSON() ([]byte, error) { return encode(d.Of) }

// encode writes JSON without HTML escapes; the encoder of the whole frame decides about those.
func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err // the caller is the encoder
	}
	return bytes.TrimRight(b.Bytes(), "\n"), nil
}

// storeRaw stores JSON unchanged, for types with variants that a client reads.
func storeRaw(of *any, data []byte) error {
	*of = json.RawMessage(bytes.Clone(data))
	return nil
}

// UnmarshalJSON stores the JSON of the variant.
func (d *AgentData) UnmarshalJSON(data []byte) error { return storeRaw(&d.Of, data) }
