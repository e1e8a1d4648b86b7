package wire

// The events of the protocol.
const (
	EventChallenge = "connect.challenge"
	EventTick      = "tick"
	EventShutdown  = "shutdown"
	EventHealth    = "health"
	EventChat      = "chat"
	EventAgent     = "agent"
	EventQuestions = "questions.changed"
	EventSessions  = "sessions.changed"
	EventLanes     = "lanes"
	EventCron      = "cron"
)

// Tick is the payload of the event tick, which is a keepalive.
type Tick struct {
	TS int64 `json:"ts"` // the time of the gateway in Unix milliseconds
}

// Shutdown is the payload of the event shutdown.
type Shutdown struct {
	Reason string `json:"reason" rule:"enum=draining|stopped"` // draining when the stop begins, stopped right before the connection is closed with 1012
}

// LanesEvent is the payload of the event lanes.
type LanesEvent struct {
	Lanes    []Lane       `json:"lanes"`    // every lane of this gateway
	Sessions LaneSessions `json:"sessions"` // how many sessions have work
}

// SessionsChanged is the payload of the event sessions.changed.
type SessionsChanged struct {
	SessionKey string `json:"sessionKey"` // which session
	AgentID    string `json:"agentId"`    // its agent
	Reason     string `json:"reason"`     // created, message, queued, run.started, run.finished, reset or delete
	TS         int64  `json:"ts"`         // when, in Unix milliseconds
}

// ChatEvent is the payload of the event chat. Each run has exactly one event final, aborted or error, which is its last event.
type ChatEvent struct {
	RunID        string       `json:"runId"`                                                                             // the run
	SessionKey   string       `json:"sessionKey"`                                                                        // its session
	AgentID      string       `json:"agentId"`                                                                           // the agent of the session
	Seq          int64        `json:"seq"`                                                                               // strictly increasing within a run, across its attempts
	State        ChatState    `json:"state" rule:"enum=delta|final|aborted|error"`                                       // what happened
	Message      *ChatMessage `json:"message,omitempty"`                                                                 // delta: the text so far; otherwise the whole text, absent when it is empty
	DeltaText    *string      `json:"deltaText,omitempty"`                                                               // delta: the new text; all of it with replace
	Replace      bool         `json:"replace,omitempty"`                                                                 // delta: deltaText replaces what came before
	Usage        *Usage       `json:"usage,omitempty"`                                                                   // final, error: the usage that the model reported
	StopReason   string       `json:"stopReason,omitempty"`                                                              // final: stop, or what ended the answer; merged with yielded; aborted: who stopped it
	Yielded      bool         `json:"yielded,omitempty"`                                                                 // final: the message was merged into a later turn, which has the answer
	ErrorMessage string       `json:"errorMessage,omitempty"`                                                            // error: one sentence for a person
	ErrorKind    string       `json:"errorKind,omitempty" rule:"enum=timeout|rate_limit|context_length|refusal|unknown"` // error: its kind
}

// ChatState is the kind of an event chat.
type ChatState string

// The states of an event chat.
const (
	ChatDelta   ChatState = "delta"   // new text
	ChatFinal   ChatState = "final"   // the answer is complete
	ChatAborted ChatState = "aborted" // the run was stopped
	ChatError   ChatState = "error"   // the run failed
)

// Ends reports whether the event is the last of its run.
func (s ChatState) Ends() bool { return s == ChatFinal || s == ChatAborted || s == ChatError }

// ChatMessage is the text of an event chat.
type ChatMessage struct {
	Role      string     `json:"role" rule:"enum=assistant"` // always assistant
	Content   []TextPart `json:"content"`                    // the text, as one part
	Timestamp int64      `json:"timestamp"`                  // when, in Unix milliseconds
	Command   bool       `json:"command,omitempty"`          // it is the reply to a chat command
	Note      string     `json:"note,omitempty"`             // final: a sentence for a person, sent when the answer has no text
}

// TextPart is a part of a message.
type TextPart struct {
	Type string `json:"type" rule:"enum=text"` // always text
	Text string `json:"text"`                  // the text
}

// Usage is the usage that a model reported.
type Usage struct {
	InputTokens  int `json:"inputTokens"`  // tokens of the request
	OutputTokens int `json:"outputTokens"` // tokens of the answer
	TotalTokens  int `json:"totalTokens"`  // their sum
}

// AgentEvent is the payload of the event agent.
//
// D is [AgentData], or one of its variants when the variant is known.
type AgentEvent[D any] struct {
	RunID      string      `json:"runId"`                                       // the run
	Seq        int64       `json:"seq"`                                         // strictly increasing within a run
	Stream     AgentStream `json:"stream" rule:"enum=lifecycle|assistant|tool"` // the kind of data
	TS         int64       `json:"ts"`                                          // when, in Unix milliseconds
	Data       D           `json:"data"`                                        // depends on stream
	SessionKey string      `json:"sessionKey,omitempty"`                        // Extended: the session
	AgentID    string      `json:"agentId,omitempty"`                           // Extended: its agent
	Lane       string      `json:"lane,omitempty"`                              // Extended: the lane of the run
}

// AgentStream is the kind of an event agent.
type AgentStream string

// The streams of an event agent.
const (
	StreamLifecycle AgentStream = "lifecycle"
	StreamAssistant AgentStream = "assistant"
	StreamTool      AgentStream = "tool"
)

// AgentData is one of [LifecycleData], [AssistantData] and [ToolData].
type AgentData struct{ Of any }

// LifecycleData is the data of the stream lifecycle.
type LifecycleData struct {
	Phase string `json:"phase" rule:"enum=queued|start|end|error"` // the state of the run; queued in the extended view only
	Error string `json:"error,omitempty"`                          // one sentence for a person
}

// AssistantData is the data of the stream assistant.
type AssistantData struct {
	Text    string `json:"text"`              // the text so far
	Delta   string `json:"delta"`             // the new text; all of it with replace
	Replace bool   `json:"replace,omitempty"` // delta replaces what came before
}

// ToolData is the data of the stream tool, for clients with the capability tool-events.
type ToolData struct {
	Phase         string `json:"phase" rule:"enum=start|update|result"` // the progress of the call
	ToolCallID    string `json:"toolCallId"`                            // which call
	Name          string `json:"name"`                                  // the name of the tool
	Args          any    `json:"args,omitempty"`                        // its arguments: JSON, or a string when they were cut
	PartialResult any    `json:"partialResult,omitempty"`               // update: the result so far
	Result        any    `json:"result,omitempty"`                      // start and result: the result, if it exists
	IsError       bool   `json:"isError,omitempty"`                     // the call failed
}
