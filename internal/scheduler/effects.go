package scheduler

import (
	"context"
	"log/slog"
	"time"
)

// effects are what a decision under the mutex leaves to be done after it: starting goroutines, cancelling contexts, completing
// tickets, logging. It lives on the stack of the public method.
type effects[M any] struct {
	now       time.Duration
	starts    *Turn[M] // chained by nextStart, in order
	lastStart *Turn[M]
	cancels   []cancelCall
	gone      []goneUnits[M]
	wakes     []chan struct{}
	grants    []chan struct{}
	questions []question[M]
	unknown   bool   // an unknown lane name was met
	stranger  string // and it was met for the first time
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

// begin makes the effects of one public call.
func (s *Scheduler[M]) begin() effects[M] { return effects[M]{now: s.now()} }

// end decides the outcome of waiting units that have been taken out of their session. The counting of single messages of
// many units is the caller's (endAll), because this runs under the mutex.
func (s *Scheduler[M]) end(fx *effects[M], o Outcome, err error, units ...*entry[M]) {
	n := 0
	for _, u := range units {
		n += u.count
	}
	s.endAll(fx, goneUnits[M]{units: units, outcome: o, err: err}, n)
}

// endAll is end for units whose n messages are counted already.
func (s *Scheduler[M]) endAll(fx *effects[M], gone goneUnits[M], n int) {
	if n == 0 {
		return
	}
	s.tally.outcomes[gone.outcome.index()] += n
	fx.gone = append(fx.gone, gone)
}

// takeStart takes the first of the turns to start away, nil when there is none.
func (fx *effects[M]) takeStart() *Turn[M] {
	t := fx.starts
	if t != nil {
		fx.starts = t.nextStart
	}
	return t
}

// flush does what is to be done after the mutex was released, the urgent things first, and returns the messages that ended.
func (s *Scheduler[M]) flush(fx *effects[M]) []Ended[M] {
	for _, c := range fx.cancels {
		c.cancel(c.cause)
	}
	for t := fx.starts; t != nil; {
		next := t.nextStart // the turn may end, and its memory be read by others, as soon as it runs
		go s.run(t)
		t = next
	}
	for _, w := range fx.grants {
		close(w)
	}
	for _, w := range fx.wakes {
		select {
		case w <- struct{}{}:
		default: // a wake-up is pending already, and it carries nothing
		}
	}
	for _, q := range fx.questions {
		go s.ask(q)
	}
	if fx.unknown {
		s.reportStranger(fx.stranger)
	}
	return s.tell(fx.gone)
}

// reportStranger counts a message for a lane that does not exist, and logs each name once.
func (s *Scheduler[M]) reportStranger(name string) {
	s.obs.LaneUnknown()
	if name != "" {
		s.log.Warn("unknown lane, using main", slog.String("lane", name))
	}
}

// tell completes the tickets of messages that ended without a turn and lists them, oldest first.
func (s *Scheduler[M]) tell(gone []goneUnits[M]) []Ended[M] {
	n := 0
	for _, g := range gone {
		for _, u := range g.units {
			n += u.count
		}
	}
	if n == 0 {
		return nil
	}
	ended := make([]Ended[M], 0, n)
	for _, g := range gone {
		for _, u := range g.units {
			for e := u; e != nil; e = e.next {
				e.ticket.complete(g.outcome, g.err)
				s.obs.MessageEnded(e.lane.Name, g.outcome)
				ended = append(ended, Ended[M]{Item: *e.item(), Outcome: g.outcome, Err: g.err})
			}
		}
	}
	return ended
}
