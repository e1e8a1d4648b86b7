// Package wire defines the types of the public protocol: frames, the parameters and results of
// every method, the payloads of events, and error codes.
//
// The gateway writes these types, the Go client and the command line read them, and the description
// of the protocol (docs/protocol, docs/protocol.json) is generated from them. So each member of
// the protocol is declared once.
//
// # Ideas
//
// The types are the schema. A field has its name in the tag `json`; the tag `rule` gives what the
// Go type does not express; its comment is its meaning in the description. Package schema compiles
// both tags. The gateway checks parameters with the result, and the generator writes JSON Schema
// from it.
//
// Parameters. Members with `rule:"required"` must be given, all others may be absent. min and max
// bound integers, the characters of a string (its bytes with `bytes`) or the members of a list.
// `enum=a|b` lists the only values, and `pattern=…` is a regular expression. `or=other` is a second
// name of the same string: one of the two is required, and both must be equal when both are given.
// A blank field defines what happens to other members: with `open:"true"` all of them are ignored,
// with `also:"a,b"` the named ones are accepted and ignored; otherwise they are refused. The core
// checks a json.RawMessage.
//
// Results and payloads. A member is optional when its tag has omitempty or omitzero. A pointer
// without them may be null. Lists and maps are never null. A type with Variants is one of several.
//
// Order. Members are written in the order of the fields. In the types of jobs, their runs, previews
// and pairings, members are sorted by name: some clients compare bytes, and the gateway has always
// sent them like this. Add new members of these types in the same order.
//
// Views. Members that laneway adds to the protocol of the OpenClaw gateway are in the extended view
// only, for clients that request it. They are optional, and their comments begin with "Extended:".
//
// # What it does not do
//
// It checks and converts nothing, and the error codes are all that it imports from the core. It
// starts no goroutine and keeps no state.
package wire

import (
	"encoding/json"

	"laneway/internal/chat"
)

// Versions of the protocol.
const (
	// ProtocolVersion is the current version, MinProbeVersion the oldest that a probe may speak.
	ProtocolVersion = 4
	MinProbeVersion = 3
)

// The types of frames.
const (
	FrameRequest  = "req"
	FrameResponse = "res"
	FrameEvent    = "event"
)

// Request is a frame of a client.
type Request struct {
	Type   string `json:"type" rule:"enum=req"` // always req
	ID     string `json:"id"`                   // chosen by the client, 1 to 256 bytes; the response repeats it
	Method string `json:"method"`               // a name of the method table
	Params any    `json:"params,omitempty"`     // an object; absent means {}
}

// Frame is any frame of the gateway: a response or an event.
type Frame struct {
	Type         string          `json:"type" rule:"enum=res|event"` // what the frame is
	ID           string          `json:"id,omitempty"`               // response: the id of the request
	OK           bool            `json:"ok,omitempty"`               // response: whether it has a payload
	Event        string          `json:"event,omitempty"`            // event: its name
	Payload      json.RawMessage `json:"payload,omitempty"`          // the result of the method, or the payload of the event
	Error        *Error          `json:"error,omitempty"`            // response that is not ok: the error
	Seq          uint64          `json:"seq,omitempty"`              // event: counts from 1 on each connection; absent in the challenge
	StateVersion *StateVersion   `json:"stateVersion,omitempty"`     // event health: the version of the state that it describes
}

// StateVersion numbers the versions of state that clients cache.
type StateVersion struct {
	Presence int    `json:"presence"` // always 0
	Health   uint64 `json:"health"`   // increases with each event health
}

// MethodConnect is the first request of every connection.
const MethodConnect = "connect"

// Capabilities that a client can name in connect.
const (
	CapExtended   = "laneway-ext" // the client understands the extended view
	CapToolEvents = "tool-events" // the client wants the steps of tool calls
	CapCronBrief  = "cron-brief"  // the client wants events about jobs without the job, its message and its answer, and at most 20 of them a second
)

// RoleOperator is the only role of a connection.
const RoleOperator = "operator"

// Challenge is the payload of the event connect.challenge, the first frame of every connection.
type Challenge struct {
	Nonce string `json:"nonce"` // a random value; the client need not use it
	TS    int64  `json:"ts"`    // the time of the gateway in Unix milliseconds
}

// ConnectParams are the parameters of connect.
type ConnectParams struct {
	_           struct{}      `open:"true"`
	MinProtocol int64         `json:"minProtocol" rule:"required,min=1"` // the oldest version that the client speaks
	MaxProtocol int64         `json:"maxProtocol" rule:"required,min=1"` // the newest version that the client speaks
	Client      ConnectClient `json:"client" rule:"required"`            // what the client is
	Role        string        `json:"role,omitempty"`                    // operator, the default and the only role
	Scopes      []string      `json:"scopes,omitempty" rule:"max=64"`    // the scopes that the client requests; absent or empty = no scope is granted
	Caps        []string      `json:"caps,omitempty" rule:"max=64"`      // the capabilities of the client: laneway-ext, tool-events, cron-brief
	Auth        ConnectAuth   `json:"auth,omitzero"`                     // the credential
}

// ConnectClient describes a client.
type ConnectClient struct {
	_        struct{} `open:"true"`
	ID       string   `json:"id" rule:"required,max=64,pattern=^[a-z0-9][a-z0-9._-]*$"`                // the name of the program
	Version  string   `json:"version" rule:"required,min=1,max=64"`                                    // its version
	Platform string   `json:"platform" rule:"required,min=1,max=64"`                                   // its operating system
	Mode     string   `json:"mode" rule:"required,enum=webchat|cli|ui|backend|node|worker|probe|test"` // what it is used for; a probe may speak an old version
}

// ConnectAuth is the credential of a connection.
type ConnectAuth struct {
	_        struct{} `open:"true"`
	Token    string   `json:"token,omitempty"`    // a token of the gateway
	Password string   `json:"password,omitempty"` // the password of the gateway
}

// HelloOK is the result of connect. It is in the standard view, except for the name of the
// credential.
type HelloOK struct {
	Type     string        `json:"type" rule:"enum=hello-ok"` // always hello-ok
	Protocol int           `json:"protocol"`                  // the version that the connection speaks
	Server   HelloServer   `json:"server"`                    // which gateway it is
	Features HelloFeatures `json:"features"`                  // what it can do
	Snapshot HelloSnapshot `json:"snapshot"`                  // how it is now
	Auth     HelloAuth     `json:"auth"`                      // what the connection may do
	Policy   HelloPolicy   `json:"policy"`                    // the limits of the connection
}

// HelloServer names the gateway.
type HelloServer struct {
	Version string `json:"version"` // of laneway
	BootID  string `json:"bootId"`  // of this start of the gateway
	ConnID  string `json:"connId"`  // of this connection, as in the log
}

// HelloFeatures lists what the gateway supports.
type HelloFeatures struct {
	Methods      []string `json:"methods"`      // all names of the method table
	Events       []string `json:"events"`       // all events
	Capabilities []string `json:"capabilities"` // the capabilities that laneway adds
}

// HelloSnapshot is the state at the moment of the connect.
type HelloSnapshot struct {
	Presence        []string        `json:"presence"`                            // always empty
	Health          json.RawMessage `json:"health"`                              // as the result of health, in the standard view
	StateVersion    StateVersion    `json:"stateVersion"`                        // the version of this state
	UptimeMs        int64           `json:"uptimeMs"`                            // since the start of the gateway
	SessionDefaults SessionDefaults `json:"sessionDefaults"`                     // defaults for the parts that session keys may leave out
	AuthMode        string          `json:"authMode" rule:"enum=token|password"` // how clients authenticate
}

// SessionDefaults has the defaults for the parts of a session key that may be left out.
type SessionDefaults struct {
	DefaultAgentID string `json:"defaultAgentId"` // the agent of a key that names none
	MainKey        string `json:"mainKey"`        // the short name of the main session: main
	MainSessionKey string `json:"mainSessionKey"` // its whole key
	Scope          string `json:"scope"`          // always per-sender
}

// HelloAuth is what the connection may do.
type HelloAuth struct {
	Role   string   `json:"role" rule:"enum=operator"` // always operator
	Scopes []string `json:"scopes"`                    // the scopes that were granted
	Name   string   `json:"name,omitempty"`            // Extended: the name of the credential
}

// HelloPolicy has the limits of the connection.
type HelloPolicy struct {
	MaxPayload       int64 `json:"maxPayload"`       // the largest message of the client, in bytes
	MaxBufferedBytes int   `json:"maxBufferedBytes"` // the send buffer of the gateway for this connection
	TickIntervalMs   int64 `json:"tickIntervalMs"`   // the interval of tick events; a client disconnects after twice this time without an event
}

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

// ChatEvent is the payload of the event chat. Each run has exactly one event final, aborted or
// error, which is its last event.
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

// The codes of an [Error].
const (
	CodeInvalid     = "INVALID_REQUEST" // the request must be changed before it can succeed
	CodeForbidden   = "FORBIDDEN"       // the connection lacks the permission
	CodeUnavailable = "UNAVAILABLE"     // the same request may succeed later
)

// Error is the refusal of a request.
type Error struct {
	Code         string         `json:"code" rule:"enum=INVALID_REQUEST|FORBIDDEN|UNAVAILABLE"` // what kind of refusal it is
	Message      string         `json:"message"`                                                // one sentence for a person
	Details      map[string]any `json:"details,omitempty"`                                      // values for programs; code is the detail code in the table of errors
	Retryable    bool           `json:"retryable,omitempty"`                                    // nothing was done, and the same request may succeed later
	RetryAfterMs int64          `json:"retryAfterMs,omitempty"`                                 // when to try again, in milliseconds from now
}

// DetailCode returns the detail code, or "".
func (e *Error) DetailCode() string {
	code, _ := e.Details["code"].(string) // not every error has one
	return code
}

// The detail codes: the member code of the details of an error. The core declares the codes that it
// uses itself.
const (
	DetailTokenMissing       = "AUTH_TOKEN_MISSING"
	DetailTokenMismatch      = "AUTH_TOKEN_MISMATCH"
	DetailPasswordMismatch   = "AUTH_PASSWORD_MISMATCH"
	DetailAuthRateLimited    = "AUTH_RATE_LIMITED"
	DetailRoleNotSupported   = "ROLE_NOT_SUPPORTED"
	DetailProtocolMismatch   = "PROTOCOL_MISMATCH"
	DetailTooManyConnections = "TOO_MANY_CONNECTIONS"
	DetailTooManyInFlight    = "TOO_MANY_IN_FLIGHT"
	DetailRequestTimeout     = "REQUEST_TIMEOUT"
	DetailMissingScope       = string(chat.CodeForbidden)
	DetailLimitExceeded      = string(chat.CodeLimit)
	DetailUnknownAgent       = string(chat.CodeUnknownAgent)
	DetailSessionNotFound    = string(chat.CodeSessionNotFound)
	DetailNotFound           = string(chat.CodeNotFound)
	DetailConflict           = string(chat.CodeConflict)
	DetailKeyReused          = string(chat.CodeKeyReused)
	DetailRateLimited        = string(chat.CodeRateLimited)
	DetailQueueFull          = string(chat.CodeQueueFull)
	DetailQueueDropped       = string(chat.CodeQueueDropped)
	DetailStale              = string(chat.CodeStale)
	DetailCleared            = string(chat.CodeCleared)
	DetailRunFailed          = string(chat.CodeRunFailed)
	DetailDraining           = string(chat.CodeDraining)
	DetailStoreUnavailable   = string(chat.CodeStoreUnavailable)
	DetailInternal           = string(chat.CodeInternal)
)
