package scheduler

import (
	"context"
	"log/slog"
	"runtime/debug"
)

// run is the goroutine that executes turns. It continues with a turn that the end of its last one has started, which saves a busy lane a new goroutine, and the
// growth of its stack, for every turn. It ends when no such turn exists.
func (s *Scheduler[M]) run(t *Turn[M]) {
	for t != nil {
		t = s.execute(t)
	}
}

// execute runs one turn to its end and returns the next one to execute.
func (s *Scheduler[M]) execute(t *Turn[M]) (next *Turn[M]) {
	err, returned := ErrGoexit, false // remains if Run ends the goroutine instead of returning
	ctx, cancel := context.WithCancelCause(s.ctx)
	defer func() {
		next = s.finish(t, err)
		cancel(ErrTurnOver) // ends child contexts that the turn has left
		if next != nil && !returned {
			go s.run(next) // this goroutine is ending, and the next turn must not end with it
		}
	}()
	s.attach(t, cancel)
	s.out.started(t)
	err = s.invoke(ctx, t)
	returned = true
	return nil
}

// attach connects stops to the context of the turn, and passes on an earlier cancellation.
func (s *Scheduler[M]) attach(t *Turn[M], cancel context.CancelCauseFunc) {
	s.mu.Lock()
	t.cancel = cancel
	cause := t.cause
	s.mu.Unlock()
	if cause != nil {
		cancel(cause)
	}
}

// invoke calls Run and turns a panic into an error.
func (s *Scheduler[M]) invoke(ctx context.Context, t *Turn[M]) (err error) {
	defer func() {
		v := recover()
		if v == nil {
			return
		}
		failure := &PanicError{Value: v, Stack: debug.Stack()}
		s.out.log.ErrorContext(ctx, "turn panicked", slog.String("session", t.Session()), slog.String("run_id", t.runID),
			slog.String("lane", t.lane.Name), slog.Any("err", failure), slog.String("stack", string(failure.Stack)))
		err = failure
	}()
	return s.cfg.Run(ctx, t)
}

// finish releases the resources of the turn and reports its outcome, unless that was done when the turn became stuck. It returns one of the turns that start
// because of it, for the calling goroutine to execute.
func (s *Scheduler[M]) finish(t *Turn[M], err error) *Turn[M] {
	fx := s.begin()
	s.mu.Lock()
	decided := s.core.finish(t, err, &fx)
	s.mu.Unlock()
	next := fx.takeStart()
	s.perform(&fx)
	if decided {
		s.out.turnEnded(t, fx.now)
	}
	return next
}

// graceOver is the timer of a cancelled turn that has not returned in time: the turn is reported, its outcome is decided, and its later result is discarded.
func (s *Scheduler[M]) graceOver(t *Turn[M]) {
	s.mu.Lock()
	stuck := s.core.turns.markStuck(t)
	s.mu.Unlock()
	if stuck {
		s.out.turnStuck(t, s.cfg.StopGrace)
		s.callOnStuck(t)
		s.giveUp(t)
	}
	s.mu.Lock()
	s.core.pending.done()
	s.mu.Unlock()
}

// callOnStuck calls the callback of the configuration. A panic in it is logged.
func (s *Scheduler[M]) callOnStuck(t *Turn[M]) {
	if s.cfg.OnStuck == nil {
		return
	}
	defer func() {
		if v := recover(); v != nil {
			s.out.log.Error("stuck turn's callback panicked", slog.String("run_id", t.runID), slog.Any("err", v),
				slog.String("stack", string(debug.Stack())))
		}
	}()
	s.cfg.OnStuck(t)
}

// giveUp decides and reports the outcome of a turn that has not returned.
func (s *Scheduler[M]) giveUp(t *Turn[M]) {
	now := s.now()
	s.mu.Lock()
	decided := s.core.turns.giveUp(t)
	s.mu.Unlock()
	if decided {
		s.out.turnEnded(t, now)
	}
}
