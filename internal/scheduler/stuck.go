package scheduler

import (
	"log/slog"
	"runtime/debug"
)

// graceOver is the timer of a cancelled turn that has not returned in time: the turn is reported, its outcome is decided, and
// what it returns later is discarded. Its slot and its place stay taken until it returns, because only then is it
// certain that it does nothing more.
func (s *Scheduler[M]) graceOver(t *Turn[M]) {
	if s.markStuck(t) {
		s.reportStuck(t)
		s.giveUpOn(t)
	}
	s.mu.Lock()
	s.ended()
	s.mu.Unlock()
}

// disarm ends the grace of a turn that has returned.
func (s *Scheduler[M]) disarm(t *Turn[M]) {
	if t.grace != nil && t.grace.Stop() {
		s.ended()
	}
	if t.stuck {
		s.tally.stuck--
	}
}

// markStuck shows the turn as stuck; false when it has returned at the last moment.
func (s *Scheduler[M]) markStuck(t *Turn[M]) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t.over || t.stuck {
		return false
	}
	t.stuck = true
	s.tally.stuck++
	s.condemn(t)
	return true
}

// condemn makes the forced cause of a settled turn its cause: it had its chance.
func (s *Scheduler[M]) condemn(t *Turn[M]) {
	if t.cause != nil || t.forced == nil {
		return
	}
	t.cause = t.forced
	if t.slot {
		t.lane.stopping++
	}
}

// reportStuck tells the log, the observer and the caller of the scheduler.
func (s *Scheduler[M]) reportStuck(t *Turn[M]) {
	s.log.Warn("turn ignores its cancelled context", slog.String("session", t.Session()), slog.String("run_id", t.runID),
		slog.String("lane", t.lane.Name), slog.Duration("grace", s.cfg.StopGrace))
	s.obs.TurnStuck(t.lane.Name)
	if s.cfg.OnStuck == nil {
		return
	}
	defer func() {
		if v := recover(); v != nil {
			s.log.Error("stuck turn's callback panicked", slog.String("run_id", t.runID), slog.Any("err", v),
				slog.String("stack", string(debug.Stack())))
		}
	}()
	s.cfg.OnStuck(t)
}

// giveUpOn decides the outcome of a turn that has not returned.
func (s *Scheduler[M]) giveUpOn(t *Turn[M]) {
	now := s.now()
	s.mu.Lock()
	decided := !t.over && s.decide(t, nil)
	if decided {
		s.tally.discarded++
	}
	s.mu.Unlock()
	if decided {
		s.announce(t, now)
	}
}
