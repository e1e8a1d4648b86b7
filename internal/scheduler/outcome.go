package scheduler

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// Outcome is how one accepted message ended. The set is closed, so it can be a label of a metric.
type Outcome string

// The outcomes. Every accepted message gets exactly one of them.
const (
	// OutcomeAnswered: its turn returned without an error.
	OutcomeAnswered Outcome = "answered"
	// OutcomeMerged: it was merged into another turn; the error is a *MergedError with the run id.
	OutcomeMerged Outcome = "merged"
	// OutcomeDropped: the store dropped it (Drop).
	OutcomeDropped Outcome = "dropped"
	// OutcomeSuperseded: a newer message replaced it in mode interrupt.
	OutcomeSuperseded Outcome = "superseded"
	// OutcomeStopped: a person stopped it, running or waiting.
	OutcomeStopped Outcome = "stopped"
	// OutcomeFailed: its turn returned an error or panicked.
	OutcomeFailed Outcome = "failed"
	// OutcomeInterrupted: its turn was cancelled by a drain, a reset or a lost lease. A durable
	// message runs again.
	OutcomeInterrupted Outcome = "interrupted"
	// OutcomeCleared: it ended undecided while it waited, because of a reset (ErrLaneCleared) or a
	// drain (ErrGatewayDraining). A durable message runs again.
	OutcomeCleared Outcome = "cleared"
)

// Outcomes lists every outcome, in the order of the constants.
func Outcomes() []Outcome {
	return []Outcome{
		OutcomeAnswered, OutcomeMerged, OutcomeDropped, OutcomeSuperseded,
		OutcomeStopped, OutcomeFailed, OutcomeInterrupted, OutcomeCleared,
	}
}

// outcomeCount is the number of outcomes.
const outcomeCount = 8

// index is the index of the outcome in a table of counters.
func (o Outcome) index() int {
	switch o {
	case OutcomeAnswered:
		return 0
	case OutcomeMerged:
		return 1
	case OutcomeDropped:
		return 2
	case OutcomeSuperseded:
		return 3
	case OutcomeStopped:
		return 4
	case OutcomeFailed:
		return 5
	case OutcomeInterrupted:
		return 6
	default:
		return 7
	}
}

// Ticket is the promise of one message's outcome. It is safe for concurrent use, and may be
// ignored. It stays valid after the scheduler has dropped the message.
type Ticket struct {
	mu      sync.Mutex
	done    chan struct{} // created by the first call of Done; most tickets need none
	outcome Outcome
	err     error
}

// Done returns a channel that is closed when the outcome is known.
func (t *Ticket) Done() <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.done == nil {
		t.done = make(chan struct{})
		if t.outcome != "" {
			close(t.done)
		}
	}
	return t.done
}

// Wait blocks until the outcome is known or ctx ends. The error is nil for an answered message;
// otherwise it is why the message ended. When ctx ends first, the outcome is empty and the error is
// the cause of ctx.
func (t *Ticket) Wait(ctx context.Context) (Outcome, error) {
	select {
	case <-t.Done():
		return t.outcome, t.err // written before the channel was closed
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
}

// Result is the outcome if it is known, without waiting; otherwise the outcome is empty.
func (t *Ticket) Result() (Outcome, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.outcome, t.err
}

// complete publishes the outcome. The goroutine that decided the outcome under the scheduler's
// mutex calls it once, without that mutex.
func (t *Ticket) complete(o Outcome, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.outcome, t.err = o, err
	if t.done != nil {
		close(t.done)
	}
}

// Item is one submitted message.
type Item[M any] struct {
	// Session is the key of the conversation. Required.
	Session string
	// Lane is the lane of the turn. Empty means LaneMain; an unknown name falls back to it and is
	// counted.
	Lane string
	// ID identifies the message, and the turn when the message leads it. Required.
	ID string
	// Seq is the position in the session's order of acceptance, from 1. 0 makes the scheduler
	// assign the next one. Within one session either all messages have a Seq or none has.
	Seq int64
	// Sender and Thread must be equal for messages to be merged by the debounce window.
	Sender, Thread string
	// Principal is the principal of a turn whose first message this is. A full lane serves
	// principals in turn, however many sessions each of them has; "" is a principal like any other.
	Principal string
	// Bounded makes such a turn count towards PrincipalTurns.
	Bounded bool
	// Size is the number of bytes that count towards BatchBytes.
	Size int
	// Payload is the caller's message; the scheduler never inspects it.
	Payload M
	// Settings override the defaults for the session from this message on. Nil means the defaults.
	Settings *Settings
	// Typed is true when a person typed the message. Only then does it wait for the debounce
	// window.
	Typed bool
	// NoMerge keeps the message alone in its turn and ends the batch before it: attachments,
	// commands, recovered runs.
	NoMerge bool
	// Gathers lets the turn of this message include the directly following messages that also
	// gather and have the same sender, thread and lane. A message that does not gather is never
	// included, and includes no others, except in ModeCollect.
	Gathers bool
	// RunID is the id of the turn when this message leads it and the run existed before, as after a
	// restart; otherwise empty. Such a message is not merged, as with NoMerge.
	RunID string
}

// merges reports whether the message may share a turn.
func (it *Item[M]) merges() bool { return !it.NoMerge && it.RunID == "" }

// check reports why the item is unusable.
func (it *Item[M]) check() error {
	var faults []error
	if it.Session == "" {
		faults = append(faults, errors.New("session: must not be empty"))
	}
	if it.ID == "" {
		faults = append(faults, errors.New("id: must not be empty"))
	}
	if it.Seq < 0 {
		faults = append(faults, errors.New("seq: must not be negative"))
	}
	if it.Size < 0 {
		faults = append(faults, errors.New("size: must not be negative"))
	}
	if it.Settings != nil {
		faults = append(faults, it.Settings.faults("settings.")...)
	}
	return invalid("message", faults)
}

// Submitted is the result for an accepted message.
type Submitted[M any] struct {
	// Ticket is the promise of the message's outcome; nil when Submit returned an error.
	Ticket *Ticket
	// Seq is the position in the session's order, as given by the caller or the scheduler.
	Seq int64
	// Running is true when the turn of the message has been started.
	Running bool
	// Position is how many messages of the session waited before this one when it was accepted.
	Position int
	// Ended are the waiting messages that this one superseded, oldest first.
	Ended []Ended[M]
	// Duplicate is true when a message with this session and Seq already waits or runs; Ticket is
	// then the ticket of that message.
	Duplicate bool
}

// Ended is a message that ended without a turn of its own.
type Ended[M any] struct {
	Item    Item[M]
	Outcome Outcome
	Err     error
}

// Stopped is the result of a stop. It is empty when there was nothing to stop.
type Stopped[M any] struct {
	// Running are the turns that were asked to stop by this call. They keep their slots until they
	// return.
	Running []*Turn[M]
	// Ended are the waiting messages that ended by this call, oldest first.
	Ended []Ended[M]
	// Cutoff is the sequence number that StopAll has set: messages up to it are stale from now on.
	// Otherwise 0.
	Cutoff int64
}

// Nothing reports whether there was nothing to stop.
func (s Stopped[M]) Nothing() bool { return len(s.Running) == 0 && len(s.Ended) == 0 }

// entry is one accepted message until its end. It contains the memory of its first turn, so that a
// turn needs no allocation. Everything but the ticket is guarded by the scheduler's mutex until the
// turn starts.
type entry[M any] struct {
	box    [1]Item[M] // an array, so that a turn of one message gets its slice of items without an allocation
	ticket Ticket
	at     time.Duration // time of acceptance, on the scheduler's clock
	lane   *lane[M]
	who    *principal[M] // valid only while the message waits, because the record is reused
	next   *entry[M]     // the next message of the same turn
	turnOf *Turn[M]      // the turn that took it, nil while it waits
	alone  bool          // it interrupted: it starts when nothing else of the session runs
	steer  bool          // a running turn may take it as input
	used   bool          // turn was used
	turn   Turn[M]
}

// item is the message itself.
func (e *entry[M]) item() *Item[M] { return &e.box[0] }

// Errors that refuse or end one message. Each is one sentence for people with a remedy.
var (
	// ErrQueueDropped ends a waiting message that the store dropped (Drop).
	ErrQueueDropped = errors.New("the message was dropped from the queue: send it again if it still matters")
	// ErrMessageStale refuses a message that was accepted before the last StopAll of its session.
	ErrMessageStale = errors.New("the message is older than the last stop of everything: send it again if it still matters")
	// ErrGatewayDraining refuses a message, or ends a waiting one undecided, because the process is
	// shutting down.
	ErrGatewayDraining = errors.New("the gateway is restarting: send the message again in a moment")
	// ErrLaneCleared ends a waiting message undecided because of a reset. A durable one is
	// submitted again.
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
