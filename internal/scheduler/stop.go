package scheduler

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Stop cancels the oldest running turn of the session that has begun and is not stopping yet; its
// other turns continue. A Settled turn cannot be stopped, and nothing else is stopped in its place.
// What waits is the store's. The cause names who. Stop takes no slot, waits for nothing, and its
// cost does not depend on the number of waiting messages.
func (s *Scheduler[M]) Stop(key, who string) Stopped[M] {
	return s.onSession(key, func(x *session[M], fx *effects[M]) []*Turn[M] {
		return s.core.stopOldest(x, &CancelCause{Reason: ReasonStopped, By: who}, fx)
	})
}

// StopRun cancels the turn with this run id, or one that contains a message with this id; otherwise
// it ends the waiting message with this id. Nothing is stopped when neither exists. The search for
// a waiting message takes time in proportion to their number.
func (s *Scheduler[M]) StopRun(key, id, who string) Stopped[M] {
	return s.onSession(key, func(x *session[M], fx *effects[M]) []*Turn[M] {
		return s.core.stopNamed(x, id, &CancelCause{Reason: ReasonStopped, By: who}, fx)
	})
}

// Stopping reports whether a turn with this run id runs and was asked to stop. It is false for a
// Settled turn, whose answer will be delivered.
func (s *Scheduler[M]) Stopping(key, runID string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	x, ok := s.core.queues.byKey[key]
	return ok && slices.ContainsFunc(x.running, func(t *Turn[M]) bool { return t.runID == runID && t.cause != nil })
}

// StopAll cancels all running turns of the session, ends all its waiting messages, and sets a
// cutoff: messages with a sequence number up to the larger of cutoff and the last known one are
// stale when they are submitted later (ErrMessageStale). Pass 0 when no later number is known. The
// scheduler stores the cutoffs of the 16 384 sessions that were stopped last; a durable store is
// expected to store its own. The time under the mutex does not depend on the number of waiting
// messages.
func (s *Scheduler[M]) StopAll(key, who string, cutoff int64) Stopped[M] {
	fx := s.begin()
	s.mu.Lock()
	stopped := s.core.stopAll(key, &CancelCause{Reason: ReasonStopped, By: who}, cutoff, &fx)
	s.mu.Unlock()
	stopped.Ended = s.perform(&fx)
	return stopped
}

// Drop ends one waiting message that a durable store has dropped (ErrQueueDropped). It returns
// false when no message with this sequence number waits.
func (s *Scheduler[M]) Drop(key string, seq int64) (Ended[M], bool) {
	ended := s.onSession(key, func(x *session[M], fx *effects[M]) []*Turn[M] {
		if i, e := x.findSeq(seq); e != nil {
			s.core.tally.dropped++
			s.core.queues.endOne(x, i, OutcomeDropped, ErrQueueDropped, fx)
		}
		return nil
	}).Ended
	if len(ended) == 0 {
		return Ended[M]{}, false
	}
	return ended[0], true
}

// Reset begins a new generation of the session: running turns are cancelled (ErrReset) and end
// interrupted, and waiting messages are returned (ErrLaneCleared), so that durable ones can be
// submitted again under their old numbers. Cancelled turns keep slot and place until they return.
func (s *Scheduler[M]) Reset(key string) []Ended[M] {
	return s.onSession(key, func(x *session[M], fx *effects[M]) []*Turn[M] {
		s.core.queues.gen++
		s.core.reset(x, fx)
		return nil
	}).Ended
}

// ResetAll is Reset for every session. The messages of one session are in order; the order of the
// sessions is undefined.
func (s *Scheduler[M]) ResetAll() []Ended[M] {
	fx := s.begin()
	s.mu.Lock()
	s.core.queues.gen++
	for _, x := range s.core.queues.byKey {
		s.core.reset(x, &fx)
	}
	for _, x := range s.core.queues.byKey { // only now: a session must not start a message that is about to be returned
		s.core.settle(x, &fx)
	}
	s.mu.Unlock()
	return s.perform(&fx)
}

// Cancel cancels every running turn, including settled ones, with err as the cause: for a process
// that has lost its lease. Waiting messages stay, and will start; call ResetAll as well to get them
// back. The cause is a *CancelCause that matches ErrLeaseLost or ErrDraining if err does, and
// ErrCancelled otherwise; the messages end interrupted.
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

// onSession runs a decision about one session under the mutex, settles the session, and performs
// the effects. It does nothing for an unknown session. The decision returns the turns that it has
// cancelled.
func (s *Scheduler[M]) onSession(key string, decide func(*session[M], *effects[M]) []*Turn[M]) Stopped[M] {
	var stopped Stopped[M]
	fx := s.begin()
	s.mu.Lock()
	if x, ok := s.core.queues.byKey[key]; ok {
		stopped.Running = decide(x, &fx)
		s.core.settle(x, &fx)
	}
	s.mu.Unlock()
	stopped.Ended = s.perform(&fx)
	return stopped
}

// stopOldest implements Stop.
func (c *core[M]) stopOldest(x *session[M], cause *CancelCause, fx *effects[M]) []*Turn[M] {
	for _, t := range x.running {
		if t.begun && c.turns.cancel(t, cause, fx) {
			return []*Turn[M]{t}
		}
		if t.settled {
			return nil
		}
	}
	return nil
}

// stopNamed implements StopRun.
func (c *core[M]) stopNamed(x *session[M], id string, cause *CancelCause, fx *effects[M]) []*Turn[M] {
	for _, t := range x.running {
		switch {
		case !t.begun:
			t.marks = append(t.marks, mark{id: id, cause: cause})
		case t.named(id) && c.turns.cancel(t, cause, fx):
			return []*Turn[M]{t}
		}
	}
	if i, e := x.find(func(e *entry[M]) bool { return e.item().ID == id || e.item().RunID == id }); e != nil {
		c.queues.endOne(x, i, OutcomeStopped, cause, fx)
	}
	return nil
}

// stopAll implements StopAll.
func (c *core[M]) stopAll(key string, cause *CancelCause, cutoff int64, fx *effects[M]) Stopped[M] {
	var stopped Stopped[M]
	cutoff = max(cutoff, c.queues.cutoffs.of(key))
	if x, ok := c.queues.byKey[key]; ok {
		cutoff = max(cutoff, x.last)
		x.last = cutoff
		for _, t := range x.running {
			if !t.begun {
				t.marks = append(t.marks, mark{upto: cutoff, cause: cause})
			} else if c.turns.cancel(t, cause, fx) {
				stopped.Running = append(stopped.Running, t)
			}
		}
		c.queues.empty(x, OutcomeStopped, cause, fx)
		c.settle(x, fx)
	}
	if cutoff > 0 {
		c.queues.cutoffs.set(key, cutoff)
	}
	stopped.Cutoff = cutoff
	return stopped
}

// reset implements Reset. The caller has begun the new generation, and settles the session.
func (c *core[M]) reset(x *session[M], fx *effects[M]) {
	x.gen = c.queues.gen
	for _, t := range x.running {
		c.turns.cancel(t, &CancelCause{Reason: ReasonReset}, fx)
	}
	c.tally.cleared += x.depth()
	c.queues.empty(x, OutcomeCleared, ErrLaneCleared, fx)
}

// Drain ends the scheduler. New messages are refused and waiting ones end cleared
// (ErrGatewayDraining) at once, and no turn starts any more. Running turns may end until ctx ends;
// then they are cancelled (ErrDraining) and have StopGrace to return. A turn that has not returned
// after half of that is reported to OnStuck, so that its end can still be recorded.
//
// Drain blocks until everything that the scheduler has started has ended, at the latest StopGrace
// after the end of ctx. The error is nil or matches ErrTurnsLeft. It may be called repeatedly, and
// by several goroutines.
func (s *Scheduler[M]) Drain(ctx context.Context) error {
	s.beginDrain()
	ended := s.pendingEnded()
	select {
	case <-ended:
		s.watch()
		return nil
	case <-ctx.Done():
	}
	s.cancelAll(&CancelCause{Reason: ReasonDraining}, s.cfg.StopGrace/2)
	grace := time.NewTimer(s.cfg.StopGrace)
	defer grace.Stop()
	select {
	case <-ended:
		s.watch()
		return nil
	case <-grace.C:
		return s.abandon()
	}
}

// LeaveToNext cancels the turn with ErrDraining before the deadline of the drain, because it waits
// for something that will not happen in this process any more. Without a drain, and for a turn that
// is settled, cancelled or has ended, it does nothing.
func (t *Turn[M]) LeaveToNext() {
	fx := t.s.begin()
	t.s.mu.Lock()
	if t.s.core.draining {
		t.s.core.turns.cancelWithin(t, &CancelCause{Reason: ReasonDraining}, t.s.cfg.StopGrace/2, &fx)
	}
	t.s.mu.Unlock()
	t.s.perform(&fx)
}

// beginDrain refuses everything new and ends waiting messages.
func (s *Scheduler[M]) beginDrain() {
	fx := s.begin()
	s.mu.Lock()
	s.core.drain(&fx)
	s.mu.Unlock()
	s.perform(&fx)
}

// pendingEnded returns a channel that is closed when everything that the scheduler has started has
// ended.
func (s *Scheduler[M]) pendingEnded() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.core.pending.ended()
}

// cancelAll cancels every running turn, including settled ones.
func (s *Scheduler[M]) cancelAll(cause *CancelCause, grace time.Duration) {
	fx := s.begin()
	s.mu.Lock()
	for _, t := range s.core.running() {
		s.core.turns.force(t, cause, grace, &fx)
	}
	for _, x := range s.core.queues.byKey { // messages that waited for a steered turn may start, now that all turns have been cancelled
		s.core.settle(x, &fx)
	}
	s.mu.Unlock()
	s.perform(&fx)
}

// abandon gives every message of the remaining turns its outcome.
func (s *Scheduler[M]) abandon() error {
	s.mu.Lock()
	left := s.core.running()
	s.mu.Unlock()
	for _, t := range left {
		s.giveUp(t)
	}
	if len(left) == 0 {
		return nil
	}
	return fmt.Errorf("drain: %d of them: %w", len(left), ErrTurnsLeft)
}
