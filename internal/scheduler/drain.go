package scheduler

import (
	"context"
	"fmt"
	"time"
)

// Drain ends the scheduler. New messages are refused and waiting ones end cleared (ErrGatewayDraining) at once, and no turn starts any more. Running turns may
// end until ctx ends; then they are cancelled (ErrDraining) and have StopGrace to return. A turn that has not returned after half of that is reported to
// OnStuck, so that its end can still be recorded.
//
// Drain blocks until everything that the scheduler has started has ended, at the latest StopGrace after the end of ctx. The error is nil or matches
// ErrTurnsLeft. It may be called repeatedly, and by several goroutines.
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

// LeaveToNext cancels the turn with ErrDraining before the deadline of the drain, because it waits for something that will not happen in this process any more.
// Without a drain, and for a turn that is settled, cancelled or has ended, it does nothing.
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

// pendingEnded returns a channel that is closed when everything that the scheduler has started has ended.
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
