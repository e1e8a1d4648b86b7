package scheduler

import (
	"errors"
)

// Errors of the scheduler.
var (
	// ErrInvalid marks an unusable Config or Settings. The error message names each fault.
	ErrInvalid = errors.New("invalid")
	// ErrPanic is matched by the error of a turn that panicked.
	ErrPanic = errors.New("the turn panicked")
	// ErrGoexit is the error of a turn whose goroutine was ended by runtime.Goexit.
	ErrGoexit = errors.New("the turn ended its goroutine without returning")
	// ErrYielding refuses a second concurrent Yield of a turn.
	ErrYielding = errors.New("the turn has given its slot back already: wait for several things inside one Yield")
	// ErrTurnOver refuses an operation of a turn that has returned. It is then also the cause of
	// its context.
	ErrTurnOver = errors.New("the turn has ended")
	// ErrTurnsLeft is the error of Drain when turns ignored their cancelled context. The log names
	// each of them.
	ErrTurnsLeft = errors.New("turns have not returned although their context was cancelled")
)

// Causes of a cancelled turn. A *CancelCause matches the one of its reason.
var (
	// ErrStopped means that a person stopped the turn or the message. It is never retried.
	ErrStopped = errors.New("stopped")
	// ErrSuperseded means that a newer message took the place, in mode interrupt.
	ErrSuperseded = errors.New("superseded by a newer message")
	// ErrDraining means that the drain deadline passed while the turn ran.
	ErrDraining = errors.New("the gateway is draining")
	// ErrLeaseLost means that another process may already own the session.
	ErrLeaseLost = errors.New("the lease was lost")
	// ErrReset means that the scheduler or the session was reset while the turn ran.
	ErrReset = errors.New("the session was reset")
	// ErrCancelled is matched by a cause that was passed to Cancel and matches none of the others.
	ErrCancelled = errors.New("cancelled")
)

// CancelReason is why a turn was cancelled or a waiting message ended. The set is closed, so it can
// be a label of a metric.
type CancelReason string

// The reasons.
const (
	ReasonStopped    CancelReason = "stopped"
	ReasonSuperseded CancelReason = "superseded"
	ReasonDraining   CancelReason = "draining"
	ReasonLeaseLost  CancelReason = "lease_lost"
	ReasonReset      CancelReason = "reset"
	ReasonCancelled  CancelReason = "cancelled"
)

// sentinel is the error that a cause with this reason matches.
func (r CancelReason) sentinel() error {
	switch r {
	case ReasonStopped:
		return ErrStopped
	case ReasonSuperseded:
		return ErrSuperseded
	case ReasonDraining:
		return ErrDraining
	case ReasonLeaseLost:
		return ErrLeaseLost
	case ReasonReset:
		return ErrReset
	default:
		return ErrCancelled
	}
}

// CancelCause is what context.Cause returns for the context of a cancelled turn, and the error of a
// waiting message that was stopped or superseded. It matches the sentinel of its reason with
// errors.Is.
//
//nolint:errname // it is primarily a cause: context.Cause returns it, and the name follows package context
type CancelCause struct {
	// Reason is from a closed set.
	Reason CancelReason
	// By is the requester, as given to Stop, StopRun or StopAll; for superseded it is the id of the
	// newer message.
	By string
	// Err is the argument of Cancel; nil otherwise.
	Err error
}

// Error is one sentence, for example "stopped by ann".
func (c *CancelCause) Error() string {
	text := c.Reason.sentinel().Error()
	if c.By != "" {
		text += " by " + c.By
	}
	if c.Err != nil {
		text += ": " + c.Err.Error()
	}
	return text
}

// Is reports whether target is the sentinel of the reason.
func (c *CancelCause) Is(target error) bool { return target == c.Reason.sentinel() }

// Unwrap is the error that was passed to Cancel.
func (c *CancelCause) Unwrap() error { return c.Err }
