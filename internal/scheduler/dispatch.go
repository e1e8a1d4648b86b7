package scheduler

import (
	"context"
	"log/slog"
	"runtime/debug"
	"time"
)

// settle puts a session where it belongs after anything about it has changed: into the ready list of a lane, whose free slots
// are then used, or out of it, or out of the map.
func (s *Scheduler[M]) settle(x *session[M], fx *effects[M]) {
	if l := s.place(x, fx); l != nil {
		s.pump(l, fx)
	}
}

// place is settle without the use of free slots. It returns the lane in whose ready list the session stands.
func (s *Scheduler[M]) place(x *session[M], fx *effects[M]) *lane[M] {
	u := x.front()
	may := u != nil && !u.open && s.mayStart(x, u, fx)
	if may && s.placed(x, u) {
		return x.lane
	}
	freed := x.unlink()
	switch {
	case may && s.reserve(x, u):
		u.lane.push(x, u.who, fx.now)
	case !may && x.idle():
		s.forget(x, fx)
	}
	if freed != nil {
		s.wake(freed, fx)
	}
	return x.lane
}

// mayStart reports whether the session has room for the unit.
func (s *Scheduler[M]) mayStart(x *session[M], u *entry[M], fx *effects[M]) bool {
	if len(x.running) == 0 {
		return true
	}
	if u.steer && s.steered(x, u, fx) {
		return false
	}
	return !u.alone && len(x.running) < x.set.MaxConcurrent && s.unthrottled(x, fx) && x.begins == nil
}

// pump uses the free slots of the lane. Whoever frees a slot or brings work calls it; there is no other engine.
func (s *Scheduler[M]) pump(l *lane[M], fx *effects[M]) {
	for l.room() {
		if len(l.returning) > 0 {
			s.grant(l, fx)
			continue
		}
		if s.draining {
			return
		}
		x := l.next()
		if x == nil {
			return
		}
		s.start(x, x.step(), fx)
		if other := s.place(x, fx); other != nil && other != l {
			s.pump(other, fx) // the next message of the session belongs to another lane
		}
	}
}

// start makes a turn of the first unit of the session and gives it a slot, and the place of its principal that the session held.
func (s *Scheduler[M]) start(x *session[M], held *principal[M], fx *effects[M]) {
	u := x.pop()
	if x.set.Mode == ModeCollect {
		s.collect(x, u)
	}
	t := u.begin(s, x, fx.now)
	t.held = held
	x.running = append(x.running, t)
	if s.cfg.Begins {
		x.begins = t
	}
	l := u.lane
	l.acquire(t)
	l.started++
	l.lastStart = fx.now
	s.live++
	s.tally.turns++
	s.tally.running++
	s.tally.outcomes[OutcomeMerged.index()] += u.count - 1
	if fx.starts == nil {
		fx.starts = t
	} else {
		fx.lastStart.nextStart = t
	}
	fx.lastStart = t
}

// collect adds to the unit every waiting message that may share its turn.
func (s *Scheduler[M]) collect(x *session[M], u *entry[M]) {
	for next := x.front(); next != nil && s.collects(x, u, next); next = x.front() {
		u.join(x.pop())
	}
}

// collects reports whether next may share the turn of u. Only bytes limit a collected turn, because the number of waiting
// messages has its own limit.
func (s *Scheduler[M]) collects(x *session[M], u, next *entry[M]) bool {
	a, b := u.last.item(), next.item()
	if next.open || !a.merges() || !b.merges() || a.Thread != b.Thread || u.lane != next.lane {
		return false
	}
	return x.set.BatchBytes < 0 || u.bytes+next.bytes <= x.set.BatchBytes
}

// begin turns a unit that has left the queue into a running turn. The last message leads: it gives the turn its id.
func (u *entry[M]) begin(s *Scheduler[M], x *session[M], now time.Duration) *Turn[M] {
	t := &u.turn // still zero: a unit starts once
	lead := u.last.item()
	t.s, t.sess, t.lane, t.first, t.lead = s, x, u.lane, u, u.last
	t.runID, t.gen, t.started = lead.ID, x.gen, now
	if lead.RunID != "" {
		t.runID = lead.RunID
	}
	t.items = u.box[:]
	if u.next != nil {
		t.items = make([]Item[M], 0, u.count)
	}
	for e := u; e != nil; e = e.next {
		e.turnOf = t
		if u.next != nil {
			t.items = append(t.items, *e.item())
		}
	}
	return t
}

// run is the goroutine that executes turns. It goes on with a turn that the end of its last one has started, which spares a
// busy lane a new goroutine, and the growth of its stack, for every turn. It ends when there is no such turn.
func (s *Scheduler[M]) run(t *Turn[M]) {
	for t != nil {
		t = s.execute(t)
	}
}

// execute runs one turn to its end and returns the one to go on with.
func (s *Scheduler[M]) execute(t *Turn[M]) (next *Turn[M]) {
	err, returned := ErrGoexit, false // stays so if Run ends the goroutine instead of returning
	ctx, cancel := context.WithCancelCause(s.ctx)
	defer func() {
		next = s.finish(t, err)
		cancel(ErrTurnOver) // a child context that the turn has left behind ends now
		if next != nil && !returned {
			go s.run(next) // this goroutine is ending, and the next turn must not end with it
		}
	}()
	s.attach(t, cancel)
	s.obs.TurnStarted(t.lane.Name, t.Waited())
	s.tellMerged(t, t.first, t.lead)
	err = s.invoke(ctx, t)
	returned = true
	return nil
}

// attach lets stops reach the context of the turn, and passes on one that came before.
func (s *Scheduler[M]) attach(t *Turn[M], cancel context.CancelCauseFunc) {
	s.mu.Lock()
	t.cancel = cancel
	cause := t.cause
	s.mu.Unlock()
	if cause != nil {
		cancel(cause)
	}
}

// tellMerged completes the tickets of the messages from first up to, not including, lead.
func (s *Scheduler[M]) tellMerged(t *Turn[M], first, lead *entry[M]) {
	if first == lead {
		return
	}
	err := &MergedError{RunID: t.runID}
	for e := first; e != lead; e = e.next {
		e.ticket.complete(OutcomeMerged, err)
		s.obs.MessageEnded(t.lane.Name, OutcomeMerged)
	}
}

// invoke calls Run and makes an error of a panic.
func (s *Scheduler[M]) invoke(ctx context.Context, t *Turn[M]) (err error) {
	defer func() {
		v := recover()
		if v == nil {
			return
		}
		failure := &PanicError{Value: v, Stack: debug.Stack()}
		s.log.ErrorContext(ctx, "turn panicked", slog.String("session", t.Session()), slog.String("run_id", t.runID),
			slog.String("lane", t.lane.Name), slog.Any("err", failure), slog.String("stack", string(failure.Stack)))
		err = failure
	}()
	return s.cfg.Run(ctx, t)
}

// finish gives the slot and the place in the session back and decides the outcome, unless that was done when the turn got stuck.
// It returns one of the turns that start because of it, for the calling goroutine to go on with.
func (s *Scheduler[M]) finish(t *Turn[M], err error) *Turn[M] {
	fx := s.begin()
	s.mu.Lock()
	t.over = true
	s.disarm(t)
	t.lane.release(t)
	s.stay(t)
	t.sess.leave(t)
	s.dropEstimate(t.sess, &fx) // the history has grown: an older answer is worth nothing
	decided := s.decide(t, err)
	s.tally.running--
	if !decided {
		s.tally.discarded--
	}
	s.leavePlace(t, &fx)
	s.settle(t.sess, &fx)
	t.sess = nil
	s.pump(t.lane, &fx)
	s.ended()
	s.mu.Unlock()
	next := fx.takeStart()
	s.flush(&fx)
	if decided {
		s.announce(t, fx.now)
	}
	return next
}

// leave takes the turn out of the session's running ones.
func (x *session[M]) leave(t *Turn[M]) {
	if x.begins == t {
		x.begins = nil
	}
	for i, r := range x.running {
		if r == t {
			copy(x.running[i:], x.running[i+1:])
			x.running[len(x.running)-1] = nil
			x.running = x.running[:len(x.running)-1]
			return
		}
	}
}

// decide fixes the outcome of the turn's leading message; false when it was fixed before. A cancelled turn ends as its cause
// says, whatever it returned: its result came too late.
func (s *Scheduler[M]) decide(t *Turn[M], err error) bool {
	if t.outcome != "" {
		return false
	}
	switch {
	case t.cause != nil:
		t.outcome, t.err = t.cause.Reason.outcome(), t.cause
		t.lane.cancelled++
	case err != nil:
		t.outcome, t.err = OutcomeFailed, err
		t.lane.failed++
	default:
		t.outcome = OutcomeAnswered
		t.lane.answered++
	}
	s.tally.outcomes[t.outcome.index()]++
	return true
}

// announce completes the ticket of the leading message and tells the observer.
func (s *Scheduler[M]) announce(t *Turn[M], now time.Duration) {
	t.lead.ticket.complete(t.outcome, t.err)
	s.obs.TurnEnded(t.lane.Name, t.outcome, now-t.started)
}

// ended notes that one goroutine or timer of the scheduler has come to its end.
func (s *Scheduler[M]) ended() {
	s.live--
	if s.live == 0 && s.quiet != nil {
		close(s.quiet)
		s.quiet = nil
	}
}
