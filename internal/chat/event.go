package chat

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"time"
)

// EventKind is the kind of an event. The set is closed.
type EventKind string

// The kinds. The first group belongs to a run; exactly one of Final, Aborted and Failed ends it.
const (
	EventQueued  EventKind = "queued"  // the message has to wait for a turn or a slot
	EventStarted EventKind = "started" // its turn has begun
	EventDelta   EventKind = "delta"   // new text of the answer
	EventTool    EventKind = "tool"    // a tool call began, progressed or ended
	EventFinal   EventKind = "final"   // the answer is complete, or the message was merged into another
	EventAborted EventKind = "aborted" // stopped, superseded, stale, cleared, reset, draining
	EventFailed  EventKind = "failed"  // ended with an error, or was dropped

	EventSession   EventKind = "session"   // a session was created, reset, deleted, …; see Reason
	EventQuestions EventKind = "questions" // an agent asked a person, or a question was closed; see Reason
)

// Event is one change that subscribers receive. An event about a durable change is published after
// its commit. The events of a run are in order, and Seq is strictly increasing.
type Event struct {
	Kind    EventKind
	Session SessionKey
	// Principal owns the session, or is the one whose answer counts (Questions). It decides who
	// sees the event.
	Principal string
	// RunID names the message. Each merged message has its own Final event with MergedInto set.
	RunID string
	Seq   int64
	Lane  string
	At    time.Time
	// Unattended: the run is of a job. Until its end it is not known whether its text is delivered,
	// so only followers of the run receive what comes before.
	Unattended bool

	// Delta is new text; Text is the answer so far. Replace is true when Delta is the whole text
	// again, as after the start of a second attempt.
	Delta, Text string
	Replace     bool

	// Reason: for Aborted stop, stopall, superseded, stale, cleared, reset, draining; for Failed
	// the [FailReason]; for Session created, message, queued, run.started, run.finished, reset,
	// delete; for Questions asked, answered, closed.
	Reason string
	// Message is a sentence for a person (Failed, and Final without text). Detail is the message of
	// the agent's service, for administrators; "" when there is no message.
	Message, Detail string
	// MergedInto is the run that includes the message (Final).
	MergedInto string
	// Command is true for the reply to a chat command.
	Command bool
	// EntrySeq is the transcript sequence of the final text; 0 = the text has no entry.
	EntrySeq int64
	Usage    Usage
	Tool     *ToolEvent
}

// ToolEvent is one step of a tool call.
type ToolEvent struct {
	Phase  string // start, update, result
	CallID string
	Name   string
	// Args and Result are JSON, cut to 16 KiB.
	Args, Result string
	IsError      bool
}

// FailReason is why a turn failed. The set is closed, and is also the metric label.
type FailReason string

// The reasons.
const (
	FailTimeout       FailReason = "timeout"        // the turn exceeded its time limit
	FailFirstByte     FailReason = "first_byte"     // the agent sent nothing within the limit
	FailSilence       FailReason = "silence"        // the agent stopped sending in the middle
	FailRateLimit     FailReason = "rate_limit"     // 429
	FailOverloaded    FailReason = "overloaded"     // 503, 529
	FailServer        FailReason = "server_error"   // other 5xx
	FailConnection    FailReason = "connection"     // refused, reset, DNS, TLS
	FailAuth          FailReason = "auth"           // 401, 403
	FailContextLength FailReason = "context_length" // the input does not fit
	FailRefusal       FailReason = "refusal"        // the model declined
	FailBadRequest    FailReason = "bad_request"    // other 4xx
	FailBadResponse   FailReason = "bad_response"   // the response does not follow the protocol
	FailProgram       FailReason = "program"        // a command ended with an error or cannot be started
	FailOutputLimit   FailReason = "output_limit"   // the answer is too long
	FailPanic         FailReason = "panic"          // a defect in a runner
	FailDead          FailReason = "dead"           // its process ended three times during the turn
	FailQueueFull     FailReason = "queue_full"     // dropped
	FailBudget        FailReason = "budget"         // a budget is exhausted
	FailUnknownAgent  FailReason = "unknown_agent"  // the process that should run it does not have the agent
	FailUnknown       FailReason = "unknown"
)

// Code is the machine-readable part of an [Error]. The set is closed; a transport maps each code
// once.
type Code string

// The codes. Their values are the `details.code` of the protocol where it has one.
const (
	CodeInvalid          Code = "INVALID"                // bad parameters; the same call fails again
	CodeUnknownAgent     Code = "UNKNOWN_AGENT_ID"       // no such agent
	CodeSessionNotFound  Code = "SESSION_NOT_FOUND"      // no such session, or not the caller's
	CodeNotFound         Code = "NOT_FOUND"              // no such object
	CodeConflict         Code = "CONFLICT"               // another caller changed it first
	CodeKeyReused        Code = "IDEMPOTENCY_KEY_REUSED" // same key, other parameters or other principal
	CodeLimit            Code = "LIMIT_EXCEEDED"         // text, list or count exceeds its limit
	CodeForbidden        Code = "MISSING_SCOPE"          // the caller lacks the scope
	CodeRateLimited      Code = "RATE_LIMITED"           // too many calls; retry later
	CodeQueueFull        Code = "QUEUE_FULL"             // the session's queue is full and refuses new messages
	CodeQueueDropped     Code = "QUEUE_DROPPED"          // an accepted message was removed from a full queue
	CodeStale            Code = "MESSAGE_STALE"          // accepted before a stop of all work
	CodeCleared          Code = "LANE_CLEARED"           // removed by a reset
	CodeDraining         Code = "GATEWAY_DRAINING"       // the process is stopping
	CodeFenced           Code = "FENCED"                 // this process no longer owns the session
	CodeStoreUnavailable Code = "DATABASE_UNAVAILABLE"   // the store cannot be reached
	CodeRunFailed        Code = "RUN_FAILED"             // the turn ended without an answer
	CodeInternal         Code = "INTERNAL"               // a defect
)

// Error is an application error: a code for programs, and a sentence for a person with what to do.
// Compare it with the sentinels below by errors.Is, which compares codes, or read it with
// errors.As.
type Error struct {
	Code    Code
	Message string
	// Retryable is true when nothing was done and the same call may succeed later.
	Retryable bool
	// RetryAfter is the time to wait; zero = the caller's own backoff.
	RetryAfter time.Duration
	// Details are further members for the wire (camelCase names).
	Details map[string]any
	// Cause is logged and never shown.
	Cause error
}

// Sentinels for errors.Is. Returned errors carry the same code and a better sentence.
var (
	ErrInvalid          = &Error{Code: CodeInvalid, Message: "invalid request"}
	ErrUnknownAgent     = &Error{Code: CodeUnknownAgent, Message: "unknown agent"}
	ErrSessionNotFound  = &Error{Code: CodeSessionNotFound, Message: "session not found"}
	ErrNotFound         = &Error{Code: CodeNotFound, Message: "not found"}
	ErrConflict         = &Error{Code: CodeConflict, Message: "changed since it was read"}
	ErrKeyReused        = &Error{Code: CodeKeyReused, Message: "idempotency key was used for something else"}
	ErrLimit            = &Error{Code: CodeLimit, Message: "over the limit"}
	ErrQueueFull        = &Error{Code: CodeQueueFull, Message: "queue full", Retryable: true, RetryAfter: time.Second}
	ErrDraining         = &Error{Code: CodeDraining, Message: "gateway is draining", Retryable: true, RetryAfter: time.Second}
	ErrFenced           = &Error{Code: CodeFenced, Message: "this gateway no longer owns the session"}
	ErrStoreUnavailable = &Error{Code: CodeStoreUnavailable, Message: "the database cannot be reached", Retryable: true, RetryAfter: time.Second}
)

// Errorf returns an *Error with a formatted sentence.
func Errorf(code Code, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

// Error returns the sentence, followed by the cause for logs.
func (e *Error) Error() string {
	if e.Cause != nil {
		return e.Message + ": " + e.Cause.Error()
	}
	return e.Message
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Cause }

// Is reports whether target is an *Error with the same code.
func (e *Error) Is(target error) bool {
	var other *Error
	return errors.As(target, &other) && other.Code == e.Code
}

// With adds one detail and returns e.
func (e *Error) With(name string, value any) *Error {
	if e.Details == nil {
		e.Details = map[string]any{}
	}
	e.Details[name] = value
	return e
}

// CodeOf returns the code of the first *Error in err's chain, [CodeInternal] for any other error,
// and "" for nil.
func CodeOf(err error) Code {
	if err == nil {
		return ""
	}
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Code
	}
	return CodeInternal
}

// EmptyAnswer returns the sentence that replaces an answer without text. stop is its stop reason,
// see [RunEnd].
func EmptyAnswer(stop string) string {
	if stop == "length" {
		return "(empty answer: the model stopped at its length limit)"
	}
	return "(empty answer)"
}

// SentenceOf returns the part of an error that a person may see: the sentence of an [Error], never
// its cause.
func SentenceOf(err error) string {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Message
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return "no answer within a second"
	}
	return "internal error"
}

// ToolCall is one call of one tool, as requested by a model.
type ToolCall struct {
	// ID is the id that the model gave the call; it is unique within the round.
	ID   string `json:"id"`
	Name string `json:"name"`
	// Args are the arguments as the model wrote them. They should be a JSON object, but may be
	// invalid.
	Args string `json:"args"`
	// Extra is what the endpoint of the model wants back with the call, a JSON object. Only calls
	// that a program makes have it, because it brings them back; other calls have theirs in
	// [Round.Extra].
	Extra string `json:"extra,omitempty"`
}

// ToolResult is what a call of a tool returned to the model.
type ToolResult struct {
	Text string `json:"text"`
	// IsError: the call failed, and Text is the reason in one sentence.
	IsError bool `json:"isError,omitempty"`
	// Foreign: Text can contain words that do not come from the person for whom the call was made.
	Foreign bool `json:"foreign,omitempty"`
}

// Round is an answer of a model that requests tool calls, with the results of the calls.
type Round struct {
	// Number counts the rounds of a run from 1.
	Number int
	// Text is what the model wrote before its calls; it may be empty.
	Text  string
	Calls []ToolCall
	// Results has one element for each of Calls; nil = no result is recorded.
	Results []*ToolResult
	Usage   Usage
	// Extra is what the provider requires back with the round (signed thoughts), in the format of
	// the runner; nil when it requires nothing.
	Extra json.RawMessage
}

// MaxTokens is the maximum number of tokens of one kind that count for one request, whatever its
// endpoint reports. It exceeds the limits of every model.
const MaxTokens = 1_000_000_000

// Usage is what a turn used. Zero means unknown.
type Usage struct {
	InputTokens  int `json:"inputTokens,omitempty"`
	OutputTokens int `json:"outputTokens,omitempty"`
	// CachedTokens is the part of InputTokens that came from the provider's cache. It is not stored
	// with the run.
	CachedTokens int    `json:"cachedTokens,omitempty"`
	Model        string `json:"model,omitempty"`
	Provider     string `json:"provider,omitempty"`
}

// Asked counts the requests of a turn to its model.
type Asked struct {
	Requests int
	Limited  int // how many of them the provider refused because of its limits
}

// Tokens returns the sum of counts that an endpoint reports. A negative count is 0, and the sum is
// at most [MaxTokens].
func Tokens(counts ...int) int {
	sum := 0
	for _, n := range counts {
		sum += min(max(0, n), MaxTokens-sum)
	}
	return sum
}

// Clamped returns u with plausible values: each count is between 0 and [MaxTokens], and the cached
// tokens are at most the input tokens.
func (u Usage) Clamped() Usage {
	u.InputTokens, u.OutputTokens = Tokens(u.InputTokens), Tokens(u.OutputTokens)
	u.CachedTokens = min(Tokens(u.CachedTokens), u.InputTokens)
	return u
}

// Add adds the usage of another request. Sums of counts that are not negative saturate at
// math.MaxInt. Names of other replace those of u unless they are empty.
func (u *Usage) Add(other Usage) {
	u.InputTokens = saturated(u.InputTokens, other.InputTokens)
	u.OutputTokens = saturated(u.OutputTokens, other.OutputTokens)
	u.CachedTokens = saturated(u.CachedTokens, other.CachedTokens)
	if other.Model != "" {
		u.Model, u.Provider = other.Model, other.Provider
	}
}

func saturated(a, b int) int { return a + min(b, math.MaxInt-a) }
