package scheduler

import (
	"context"
	"fmt"
	"time"
)

// Drain ends the scheduler. New messages are refused and waiting ones handed back (ErrGatewayDraining) at once, and no
// turn starts any more. Running turns may end until ctx is over; then they are cancelled (ErrDraining) and have StopGrace to
// return. A turn that has not returned after half of that is reported to OnStuck, so that its end can be written down
// while there is time.
//
// Drain blocks until everything that the scheduler has started has ended, at the latest StopGrace after the end of ctx.
// The error is nil or matches ErrTurnsLeft; TurnsLeft lists what is left. It may be called again and by several.
func (s *Scheduler[M]) Drain(ctx context.Context) error {
	s.beginDrain()
	quiet := s.awaitQuiet()
	select {
	case <-quiet:
		s.watch()
		return nil
	case <-ctx.Done():
	}
	s.cancelAll(&CancelCause{Reason: ReasonDraining}, s.cfg.StopGrace/2)
	grace := time.NewTimer(s.cfg.StopGrace)
	defer grace.Stop()
	select {
	case <-quiet:
		s.watch()
		return nil
	case <-grace.C:
		return s.abandon()
	}
}

// beginDrain refuses everything new and hands back what waits.
func (s *Scheduler[M]) beginDrain() {
	fx := s.begin()
	s.mu.Lock()
	s.draining = true
	for _, x := range s.sessions {
		s.dropEstimate(x, &fx)
		s.empty(x, OutcomeCleared, ErrGatewayDraining, &fx)
		s.settle(x, &fx)
	}
	s.mu.Unlock()
	s.flush(&fx)
}

// awaitQuiet returns a channel that is closed when nothing of the scheduler runs any more.
func (s *Scheduler[M]) awaitQuiet() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.live == 0 {
		quiet := make(chan struct{})
		close(quiet)
		return quiet
	}
	if s.quiet == nil {
		s.quiet = make(chan struct{})
	}
	return s.quiet
}

// cancelAll cancels every running turn, the settled ones too.
func (s *Scheduler[M]) cancelAll(cause *CancelCause, grace time.Duration) {
	fx := s.begin()
	s.mu.Lock()
	for _, x := range s.sessions {
		for _, t := range x.running {
			s.force(t, cause, grace, &fx)
		}
	}
	for _, x := range s.sessions { // what a steered turn held back may start, now that all have been cancelled
		s.settle(x, &fx)
	}
	s.mu.Unlock()
	s.flush(&fx)
}

// force cancels a turn whatever it is at. A settled one may still end well; until its grace is over its outcome follows from what
// it returns.
func (s *Scheduler[M]) force(t *Turn[M], cause *CancelCause, grace time.Duration, fx *effects[M]) {
	if s.cancelTurn(t, cause, grace, fx) || t.over || t.cause != nil || t.forced != nil {
		return
	}
	t.forced = cause
	s.cancelContext(t, cause, grace, fx)
}

// abandon gives every message of the turns that are left its outcome.
func (s *Scheduler[M]) abandon() error {
	left := s.allRunning()
	for _, t := range left {
		s.giveUpOn(t)
	}
	if len(left) == 0 {
		return nil
	}
	return fmt.Errorf("drain: %d of them: %w", len(left), ErrTurnsLeft)
}

// allRunning lists the running turns.
func (s *Scheduler[M]) allRunning() []*Turn[M] {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []*Turn[M]
	for _, x := range s.sessions {
		all = append(all, x.running...)
	}
	return all
}
