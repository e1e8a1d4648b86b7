package scheduler

import (
	"errors"
	"fmt"
)

// Errors that refuse or end one message. Each is one sentence for people with a remedy.
var (
	// ErrQueueDropped ends a waiting message that the store dropped (Drop).
	ErrQueueDropped = errors.New("the message was dropped from the queue: send it again if it still matters")
	// ErrMessageStale refuses a message that was accepted before the last StopAll of its session.
	ErrMessageStale = errors.New("the message is older than the last stop of everything: send it again if it still matters")
	// ErrGatewayDraining refuses a message, or ends a waiting one undecided, because the process is shutting down.
	ErrGatewayDraining = errors.New("the gateway is restarting: send the message again in a moment")
	// ErrLaneCleared ends a waiting message undecided because of a reset. A durable one is submitted again.
	ErrLaneCleared = errors.New("the waiting messages were cleared by a reset: send the message again")
	// ErrInvalid marks an unusable Config, Settings or Item. The error message names each fault.
	ErrInvalid = errors.New("invalid")
	// ErrUnknownLane is the error of Resize for an unknown lane.
	ErrUnknownLane = errors.New("no lane has this name")
	// ErrMerged is matched by every MergedError.
	ErrMerged = errors.New("the message was merged into a turn with another one")
	// ErrPanic is matched by every PanicError.
	ErrPanic = errors.New("the turn panicked")
	// ErrGoexit is the error of a turn whose goroutine was ended by runtime.Goexit.
	ErrGoexit = errors.New("the turn ended its goroutine without returning")
	// ErrYielding refuses a second concurrent Yield of a turn.
	ErrYielding = errors.New("the turn has given its slot back already: wait for several things inside one Yield")
	// ErrTurnOver refuses an operation of a turn that has returned. It is then also the cause of its context.
	ErrTurnOver = errors.New("the turn has ended")
	// ErrTurnsLeft is the error of Drain when turns ignored their cancelled context. The log names each of them.
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

// CancelReason is why a turn was cancelled or a waiting message ended. The set is closed, so it can be a label of a metric.
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

// outcome is the outcome of a message that was cancelled for this reason.
func (r CancelReason) outcome() Outcome {
	switch r {
	case ReasonStopped:
		return OutcomeStopped
	case ReasonSuperseded:
		return OutcomeSuperseded
	default:
		return OutcomeInterrupted
	}
}

// CancelCause is what context.Cause returns for the context of a cancelled turn, and the error of a waiting message that was stopped or superseded. It matches
// the sentinel of its reason with errors.Is.
//
//nolint:errname // it is primarily a cause: context.Cause returns it, and the name follows package context
type CancelCause struct {
	// Reason is from a closed set.
	Reason CancelReason
	// By is the requester, as given to Stop, StopRun or StopAll; for superseded it is the id of the newer message.
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

// MergedError is the error of a message that was merged into another turn. It matches ErrMerged.
type MergedError struct {
	// RunID is the turn that answers for the message.
	RunID string
}

// Error names the run.
func (e *MergedError) Error() string { return ErrMerged.Error() + ": run " + e.RunID }

// Is reports whether target is ErrMerged.
func (e *MergedError) Is(target error) bool { return target == ErrMerged }

// PanicError is the error of a turn that panicked. It matches ErrPanic.
type PanicError struct {
	// Value is the value of the panic.
	Value any
	// Stack is the goroutine's stack at the panic. It is logged, and not shown to people.
	Stack []byte
}

// Error shows the value without the stack.
func (e *PanicError) Error() string { return fmt.Sprintf("panic: %v", e.Value) }

// Is reports whether target is ErrPanic.
func (e *PanicError) Is(target error) bool { return target == ErrPanic }

// Unwrap is the value when the turn panicked with an error.
func (e *PanicError) Unwrap() error {
	err, ok := e.Value.(error)
	if !ok {
		return nil
	}
	return err
}
