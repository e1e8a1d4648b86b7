package agent

import (
	"context"
	"errors"

	"laneway/internal/chat"
)

// Error is a turn that failed.
type Error struct {
	Reason chat.FailReason
	// Message is one sentence for the person, without secrets, addresses or stack traces.
	Message string
	// Retryable is true when a later attempt may work (timeouts, 429, 5xx, resets).
	Retryable bool
	// Detail is the failure as the service behind the agent reported it, without secrets, at most 500 bytes; "" if it reported nothing. Only
	// administrators can read it.
	Detail string
	// Cause goes to the log.
	Cause error
}

// NewError makes an *Error whose Retryable follows from the reason. Cause may be nil.
func NewError(reason chat.FailReason, message string, cause error) *Error {
	return &Error{Reason: reason, Message: message, Retryable: Retryable(reason), Cause: cause}
}

// Error returns the sentence followed by the cause.
func (e *Error) Error() string {
	if e.Cause != nil {
		return e.Message + ": " + e.Cause.Error()
	}
	return e.Message
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Cause }

// Retryable reports whether a later attempt may work after a failure of this kind. A failure that the caller, the operator or
// the model has to fix first is not retryable, and neither is a panic.
func Retryable(reason chat.FailReason) bool {
	switch reason {
	case chat.FailTimeout, chat.FailFirstByte, chat.FailSilence, chat.FailRateLimit, chat.FailOverloaded, chat.FailServer,
		chat.FailConnection:
		return true
	default:
		return false
	}
}

// Reasons returns the closed set of failures that a runner may return.
func Reasons() []chat.FailReason {
	return []chat.FailReason{
		chat.FailTimeout, chat.FailFirstByte, chat.FailSilence, chat.FailRateLimit, chat.FailOverloaded, chat.FailServer,
		chat.FailConnection, chat.FailAuth, chat.FailContextLength, chat.FailRefusal, chat.FailBadRequest, chat.FailBadResponse,
		chat.FailProgram, chat.FailOutputLimit, chat.FailBudget, chat.FailPanic, chat.FailUnknown,
	}
}

// ReasonOf returns the reason of the first *Error in err's chain: "" for nil, [chat.FailTimeout] for a deadline, and
// [chat.FailUnknown] for everything else.
func ReasonOf(err error) chat.FailReason {
	var failed *Error
	switch {
	case err == nil:
		return ""
	case errors.As(err, &failed):
		return failed.Reason
	case errors.Is(err, context.DeadlineExceeded):
		return chat.FailTimeout
	default:
		return chat.FailUnknown
	}
}

// Ended is what Run returns when its context is done, and nil while it is not. A deadline becomes an *Error with
// [chat.FailTimeout]; any other end is context.Cause(ctx) itself, so that the caller finds the cause that it set.
func Ended(ctx context.Context) error {
	if ctx.Err() == nil {
		return nil
	}
	cause := context.Cause(ctx)
	if errors.Is(cause, context.DeadlineExceeded) {
		return NewError(chat.FailTimeout, "The turn took longer than it may; ask for less at once or raise the agent's timeout.", cause)
	}
	return cause
}
