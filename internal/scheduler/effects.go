package scheduler

import (
	"context"
	"time"
)

// effects are the work that a decision under the mutex leaves for later: starting goroutines, cancelling contexts, completing tickets, logging. The value is on
// the stack of the method that took the mutex.
type effects[M any] struct {
	now       time.Duration
	starts    *Turn[M] // chained by nextStart, in order
	lastStart *Turn[M]
	cancels   []cancelCall
	gone      []goneUnits[M]
	wakes     []chan struct{}
	grants    []chan struct{}
	questions []question[M]
	unknown   bool   // the message named a lane that does not exist
	firstName string // that name, when it must be logged
}

// cancelCall is a context to cancel.
type cancelCall struct {
	cancel context.CancelCauseFunc
	cause  error
}

// goneUnits are waiting messages that ended together.
type goneUnits[M any] struct {
	units   []*entry[M]
	outcome Outcome
	err     error
}

// start adds a turn to be started.
func (fx *effects[M]) start(t *Turn[M]) {
	if fx.starts == nil {
		fx.starts = t
	} else {
		fx.lastStart.nextStart = t
	}
	fx.lastStart = t
}

// takeStart removes the first turn to be started, nil when none is left.
func (fx *effects[M]) takeStart() *Turn[M] {
	t := fx.starts
	if t != nil {
		fx.starts = t.nextStart
	}
	return t
}

// perform does the work after the mutex was released, and returns the messages that ended. Cancellations come first, because a stop must not wait for other
// work.
func (s *Scheduler[M]) perform(fx *effects[M]) []Ended[M] {
	for _, c := range fx.cancels {
		c.cancel(c.cause)
	}
	for t := fx.starts; t != nil; {
		next := t.nextStart // once it runs, the turn may end, and other goroutines may read its memory
		go s.run(t)
		t = next
	}
	for _, granted := range fx.grants {
		close(granted)
	}
	for _, w := range fx.wakes {
		select {
		case w <- struct{}{}:
		default: // a wake-up is already pending, and carries no data
		}
	}
	for _, q := range fx.questions {
		go s.ask(q)
	}
	if fx.unknown {
		s.out.unknownLane(fx.firstName)
	}
	return s.out.ended(fx.gone)
}
