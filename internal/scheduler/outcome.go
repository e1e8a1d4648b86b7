package scheduler

import (
	"context"
	"sync"
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
	// OutcomeInterrupted: its turn was cancelled by a drain, a reset or a lost lease. A durable message runs again.
	OutcomeInterrupted Outcome = "interrupted"
	// OutcomeCleared: it ended undecided while it waited, because of a reset (ErrLaneCleared) or a drain
	// (ErrGatewayDraining). A durable message runs again.
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

// Ticket is the promise of one message's outcome. It is safe for concurrent use, and may be ignored. It stays valid after the scheduler has dropped the
// message.
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

// Wait blocks until the outcome is known or ctx ends. The error is nil for an answered message; otherwise it is why the message ended. When ctx ends first, the
// outcome is empty and the error is the cause of ctx.
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

// complete publishes the outcome. The goroutine that decided the outcome under the scheduler's mutex calls it once, without that mutex.
func (t *Ticket) complete(o Outcome, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.outcome, t.err = o, err
	if t.done != nil {
		close(t.done)
	}
}
