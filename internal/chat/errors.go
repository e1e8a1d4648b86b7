package chat

import (
	"errors"
	"fmt"
	"time"
)

// Code is the machine-readable part of an [Error]. The set is closed; a transport maps each code once.
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

// Error is an application error: a code for programs, and a sentence for a person with what to do. Compare it with the sentinels below by
// errors.Is, which compares codes, or read it with errors.As.
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

// CodeOf returns the code of the first *Error in err's chain, [CodeInternal] for any other error, and "" for nil.
func CodeOf(err error) Code {
	if err == nil {
		return ""
	}
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Code
	}
	return CodeInternal
}
