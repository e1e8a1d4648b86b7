package scheduler

import (
	"errors"
	"time"
)

// Stop cancels the oldest running turn of the session that is not stopping yet; the others go on. When there is none, it
// ends the oldest waiting messages that would have shared a turn, the debounce window included. A turn that is Settled
// is past stopping, and nothing else is stopped in its place. who is named in the cause. Stop takes no slot, waits for
// nothing, and its work does not grow with the number of waiting messages.
func (s *Scheduler[M]) Stop(key, who string) Stopped[M] {
	return s.stop(key, func(x *session[M], fx *effects[M]) Stopped[M] {
		return s.stopOldest(x, &CancelCause{Reason: ReasonStopped, By: who}, fx)
	})
}

// StopRun cancels the turn with this run id, or with a message of this id in it; else it ends the waiting message of this
// id. Nothing is stopped when neither is there. Looking for a waiting message takes time in proportion to how many wait.
func (s *Scheduler[M]) StopRun(key, id, who string) Stopped[M] {
	return s.stop(key, func(x *session[M], fx *effects[M]) Stopped[M] {
		return s.stopNamed(x, id, &CancelCause{Reason: ReasonStopped, By: who}, fx)
	})
}

// StopAll cancels all running turns of the session, ends all its waiting messages, and sets a cutoff: messages with a
// sequence number up to the larger of cutoff and the last one known are stale when they surface later (ErrMessageStale).
// Pass 0 when no later number is known. The scheduler remembers the cutoffs of the 16 384 sessions that were stopped last;
// a durable store is expected to keep its own.
func (s *Scheduler[M]) StopAll(key, who string, cutoff int64) Stopped[M] {
	fx := s.begin()
	s.mu.Lock()
	stopped := s.stopAll(key, &CancelCause{Reason: ReasonStopped, By: who}, cutoff, &fx)
	s.mu.Unlock()
	stopped.Ended = s.flush(&fx)
	return stopped
}

// Drop ends one waiting message that a durable store has dropped (ErrQueueDropped). It is false when no message with this
// sequence number waits.
func (s *Scheduler[M]) Drop(key string, seq int64) (Ended[M], bool) {
	ended := s.stop(key, func(x *session[M], fx *effects[M]) Stopped[M] {
		if i, e := x.findSeq(seq); e != nil {
			s.tally.dropped++
			s.remove(x, i, e, goneUnits[M]{outcome: OutcomeDropped, err: ErrQueueDropped}, fx)
		}
		return Stopped[M]{}
	}).Ended
	if len(ended) == 0 {
		return Ended[M]{}, false
	}
	return ended[0], true
}

// Reset begins a new generation of the session: running turns are cancelled (ErrReset) and end interrupted, and waiting messages are
// handed back (ErrLaneCleared), so that durable ones can be submitted again under their old numbers. Cancelled turns keep
// slot and place until they return.
func (s *Scheduler[M]) Reset(key string) []Ended[M] {
	return s.stop(key, func(x *session[M], fx *effects[M]) Stopped[M] {
		s.gen++
		s.reset(x, fx)
		return Stopped[M]{}
	}).Ended
}

// ResetAll is Reset for every session. The messages of one session are in order; the sessions are in none.
func (s *Scheduler[M]) ResetAll() []Ended[M] {
	fx := s.begin()
	s.mu.Lock()
	s.gen++
	for _, x := range s.sessions {
		s.reset(x, &fx)
	}
	for _, x := range s.sessions { // only now: a session must not start what is about to be handed back
		s.settle(x, &fx)
	}
	s.mu.Unlock()
	return s.flush(&fx)
}

// Cancel cancels every running turn, the settled ones too, with err as the cause: for a process that has lost its lease. Waiting
// messages are not touched, and will start; call ResetAll as well to have them back. The cause is a *CancelCause that
// matches ErrLeaseLost or ErrDraining if err does, and ErrCancelled otherwise; the messages end interrupted.
func (s *Scheduler[M]) Cancel(err error) {
	reason := ReasonCancelled
	switch {
	case errors.Is(err, ErrLeaseLost):
		reason = ReasonLeaseLost
	case errors.Is(err, ErrDraining):
		reason = ReasonDraining
	}
	s.cancelAll(&CancelCause{Reason: reason, Err: err}, s.cfg.StopGrace)
}

// stop runs a decision about one session under the mutex, settles the session, and does what is left to be done.
func (s *Scheduler[M]) stop(key string, decide func(*session[M], *effects[M]) Stopped[M]) Stopped[M] {
	var stopped Stopped[M]
	fx := s.begin()
	s.mu.Lock()
	if x, ok := s.sessions[key]; ok {
		stopped = decide(x, &fx)
		s.settle(x, &fx)
	}
	s.mu.Unlock()
	stopped.Ended = s.flush(&fx)
	return stopped
}

// stopOldest is Stop under the mutex.
func (s *Scheduler[M]) stopOldest(x *session[M], cause *CancelCause, fx *effects[M]) Stopped[M] {
	for _, t := range x.running {
		if s.cancelTurn(t, cause, s.cfg.StopGrace, fx) {
			return Stopped[M]{Running: []*Turn[M]{t}}
		}
		if t.settled {
			return Stopped[M]{}
		}
	}
	u := x.front()
	if u == nil {
		return Stopped[M]{}
	}
	if u.open {
		s.closeWindow(x)
	}
	s.end(fx, OutcomeStopped, cause, x.pop())
	return Stopped[M]{}
}

// stopNamed is StopRun under the mutex.
func (s *Scheduler[M]) stopNamed(x *session[M], id string, cause *CancelCause, fx *effects[M]) Stopped[M] {
	for _, t := range x.running {
		if t.named(id) && s.cancelTurn(t, cause, s.cfg.StopGrace, fx) {
			return Stopped[M]{Running: []*Turn[M]{t}}
		}
	}
	if i, e := x.find(func(e *entry[M]) bool { return e.item().ID == id || e.item().RunID == id }); e != nil {
		s.remove(x, i, e, goneUnits[M]{outcome: OutcomeStopped, err: cause}, fx)
	}
	return Stopped[M]{}
}

// stopAll is StopAll under the mutex.
func (s *Scheduler[M]) stopAll(key string, cause *CancelCause, cutoff int64, fx *effects[M]) Stopped[M] {
	var stopped Stopped[M]
	cutoff = max(cutoff, s.cutoffs.of(key))
	if x, ok := s.sessions[key]; ok {
		cutoff = max(cutoff, x.last)
		x.last = cutoff
		for _, t := range x.running {
			if s.cancelTurn(t, cause, s.cfg.StopGrace, fx) {
				stopped.Running = append(stopped.Running, t)
			}
		}
		s.empty(x, OutcomeStopped, cause, fx)
		s.settle(x, fx)
	}
	if cutoff > 0 {
		s.cutoffs.set(key, cutoff)
	}
	stopped.Cutoff = cutoff
	return stopped
}

// reset is Reset under the mutex.
func (s *Scheduler[M]) reset(x *session[M], fx *effects[M]) {
	x.gen = s.gen
	for _, t := range x.running {
		s.cancelTurn(t, &CancelCause{Reason: ReasonReset}, s.cfg.StopGrace, fx)
	}
	s.tally.cleared += x.waiting
	s.empty(x, OutcomeCleared, ErrLaneCleared, fx)
}

// empty ends everything that waits in the session.
func (s *Scheduler[M]) empty(x *session[M], o Outcome, err error, fx *effects[M]) {
	s.closeWindow(x)
	n := x.waiting
	s.endAll(fx, goneUnits[M]{units: x.detach(), outcome: o, err: err}, n)
}

// remove ends one waiting message, as gone says.
func (s *Scheduler[M]) remove(x *session[M], i int, e *entry[M], gone goneUnits[M], fx *effects[M]) {
	if u := x.units[i]; u.open && u.count == 1 {
		s.closeWindow(x)
	} else if u.open {
		s.tally.debouncing--
	}
	x.remove(i, e)
	s.end(fx, gone.outcome, gone.err, e)
}

// interrupt makes room for a message in mode interrupt: it replaces everything of its session that has not ended. A message
// that joins the open window of a session at rest interrupts nothing.
func (s *Scheduler[M]) interrupt(x *session[M], it *Item[M], l *lane[M], fx *effects[M]) {
	if x.idle() || len(x.running) == 0 && x.depth() == 1 && s.joins(x, it, l) {
		return
	}
	cause := &CancelCause{Reason: ReasonSuperseded, By: it.ID}
	for _, t := range x.running {
		s.cancelTurn(t, cause, s.cfg.StopGrace, fx)
	}
	s.empty(x, OutcomeSuperseded, cause, fx)
}

// cancelTurn asks a turn to stop; false when it was asked before or is settled.
func (s *Scheduler[M]) cancelTurn(t *Turn[M], cause *CancelCause, grace time.Duration, fx *effects[M]) bool {
	if t.over || t.cause != nil || t.settled {
		return false
	}
	t.cause = cause
	if t.slot {
		t.lane.stopping++
	}
	s.cancelContext(t, cause, grace, fx)
	return true
}

// cancelContext cancels the context of the turn and starts the grace. A turn whose goroutine has not begun finds the cause there.
func (s *Scheduler[M]) cancelContext(t *Turn[M], cause *CancelCause, grace time.Duration, fx *effects[M]) {
	if t.cancel != nil {
		fx.cancels = append(fx.cancels, cancelCall{cancel: t.cancel, cause: cause})
	}
	s.live++
	t.grace = time.AfterFunc(grace, func() { s.graceOver(t) })
}
