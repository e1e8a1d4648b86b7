package scheduler

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Stop cancels the oldest running turn of the session that has begun and is not stopping yet, and
// returns its id; its other turns continue. A Settled turn cannot be stopped, and nothing else is
// stopped in its place. What waits is the store's. who is the requester. Stop takes no slot and
// waits for nothing.
func (s *Scheduler) Stop(key, who string) (runs []string) {
	return s.onSession(key, func(x *session, fx *effects) []string {
		return s.core.stopOldest(x, &CancelCause{Reason: ReasonStopped, By: who}, fx)
	})
}

// StopRun cancels the turn with this run id, or one that contains a message with this id. One that
// has not begun yet is cancelled when it begins, if it turns out to be meant.
func (s *Scheduler) StopRun(key, id, who string) (runs []string) {
	return s.onSession(key, func(x *session, fx *effects) []string {
		return s.core.stopNamed(x, id, &CancelCause{Reason: ReasonStopped, By: who}, fx)
	})
}

// Stopping reports whether a turn with this run id runs and was asked to stop. It is false for a
// Settled turn, whose answer will be delivered.
func (s *Scheduler) Stopping(key, runID string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	x, ok := s.core.queues.byKey[key]
	return ok && slices.ContainsFunc(x.running, func(t *Turn) bool { return t.runID == runID && t.cause != nil })
}

// StopAll cancels all running turns of the session. One that has not begun yet is cancelled when it
// begins, if its last message has at most the number cutoff, or the last one that the scheduler has
// heard of. What waits is the store's.
func (s *Scheduler) StopAll(key, who string, cutoff int64) (runs []string) {
	return s.onSession(key, func(x *session, fx *effects) []string {
		return s.core.stopAll(x, &CancelCause{Reason: ReasonStopped, By: who}, cutoff, fx)
	})
}

// ResetAll begins a new generation: running turns are cancelled (ErrReset), and what waits is
// forgotten, so that the caller can wake it again. Cancelled turns keep slot and place until they
// return.
func (s *Scheduler) ResetAll() {
	fx := s.begin()
	s.mu.Lock()
	c := &s.core
	c.queues.gen++
	c.cleared += c.queues.waiting
	for _, x := range c.queues.byKey {
		x.gen = c.queues.gen
		for _, t := range x.running {
			c.turns.cancel(t, &CancelCause{Reason: ReasonReset}, &fx)
		}
		c.queues.endWait(x)
		c.queues.left(x, nil, 0)
		c.settle(x, &fx)
	}
	s.mu.Unlock()
	s.perform(&fx)
}

// Cancel cancels every running turn, including settled ones, with err as the cause: for a process
// that has lost its lease. What waits stays, and will start, unless ResetAll is called as well. The
// cause is a *CancelCause that matches ErrLeaseLost or ErrDraining if err does, and ErrCancelled
// otherwise.
func (s *Scheduler) Cancel(err error) {
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
// the effects. It does nothing for an unknown session.
func (s *Scheduler) onSession(key string, decide func(*session, *effects) []string) (runs []string) {
	fx := s.begin()
	s.mu.Lock()
	if x, ok := s.core.queues.byKey[key]; ok {
		runs = decide(x, &fx)
		s.core.settle(x, &fx)
	}
	s.mu.Unlock()
	s.perform(&fx)
	return runs
}

// stopOldest implements Stop.
func (c *core) stopOldest(x *session, cause *CancelCause, fx *effects) []string {
	for _, t := range x.running {
		if t.begun && c.turns.cancel(t, cause, fx) {
			return []string{t.runID}
		}
		if t.settled {
			return nil
		}
	}
	return nil
}

// stopNamed implements StopRun.
func (c *core) stopNamed(x *session, id string, cause *CancelCause, fx *effects) []string {
	for _, t := range x.running {
		switch {
		case !t.begun:
			t.marks = append(t.marks, mark{id: id, cause: cause})
		case t.named(id) && c.turns.cancel(t, cause, fx):
			return []string{t.runID}
		}
	}
	return nil
}

// stopAll implements StopAll.
func (c *core) stopAll(x *session, cause *CancelCause, cutoff int64, fx *effects) (runs []string) {
	for _, t := range x.running {
		if !t.begun {
			t.marks = append(t.marks, mark{upto: max(cutoff, x.heard, t.front.Row.Seq), cause: cause})
		} else if c.turns.cancel(t, cause, fx) {
			runs = append(runs, t.runID)
		}
	}
	return runs
}

// Drain ends the scheduler. What waits is forgotten and stays in the store, and no turn starts any
// more. Running turns may end until ctx ends;
// then they are cancelled (ErrDraining) and have StopGrace to return. A turn that has not returned
// after half of that is reported to OnStuck, so that its end can still be recorded.
//
// Drain blocks until everything that the scheduler has started has ended, at the latest StopGrace
// after the end of ctx. The error is nil or matches ErrTurnsLeft. It may be called repeatedly, and
// by several goroutines.
func (s *Scheduler) Drain(ctx context.Context) error {
	s.beginDrain()
	s.mu.Lock()
	ended := s.core.pending.ended()
	s.mu.Unlock()
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
func (t *Turn) LeaveToNext() {
	fx := t.s.begin()
	t.s.mu.Lock()
	if t.s.core.draining {
		t.s.core.turns.cancelWithin(t, &CancelCause{Reason: ReasonDraining}, t.s.cfg.StopGrace/2, &fx)
	}
	t.s.mu.Unlock()
	t.s.perform(&fx)
}

// beginDrain starts nothing new any more, and forgets what waits.
func (s *Scheduler) beginDrain() {
	fx := s.begin()
	s.mu.Lock()
	s.core.drain(&fx)
	s.mu.Unlock()
	s.perform(&fx)
}

// cancelAll cancels every running turn, including settled ones.
func (s *Scheduler) cancelAll(cause *CancelCause, grace time.Duration) {
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

// abandon decides the outcome of the remaining turns.
func (s *Scheduler) abandon() error {
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
