package scheduler

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"time"
)

// The methods in this file match sessions that have work with lanes that have free slots. Every
// change that frees a slot or adds work calls settle or pump before the mutex is released; no other
// mechanism starts turns. Each step takes constant time.

// settle moves a session to its proper place after any change of it: into the ready list of a lane,
// whose free slots are then used, or out of it, or out of the map.
func (c *core) settle(x *session, fx *effects) {
	if l := c.place(x, fx); l != nil {
		c.pump(l, fx)
	}
}

// place is settle without the use of free slots. It returns the lane whose ready list contains the
// session.
func (c *core) place(x *session, fx *effects) *lane {
	if x.front == nil || x.waits || c.draining || c.queues.isSuspended(x.key) || !c.mayStart(x, fx) {
		freed := x.unlink()
		if x.idle() {
			c.forget(x, fx)
		}
		c.useFreePlaces(freed, fx)
		return nil
	}
	l := c.lanes.find(x.front.Row.Lane, fx)
	if c.principals.placed(x, l) {
		return x.lane
	}
	freed := x.unlink()
	if c.principals.reserve(x) {
		l.push(x, c.principals.of(x.front.Principal), fx.now)
	}
	c.useFreePlaces(freed, fx)
	return x.lane
}

// mayStart reports whether the rules of the session allow a turn to start now.
func (c *core) mayStart(x *session, fx *effects) bool {
	if len(x.running) == 0 {
		return true
	}
	return x.begins == nil && x.front.Settings.Mode != ModeInterrupt && !x.steered() && len(x.running) < x.set.MaxConcurrent && c.throttle.allows(x, c.draining, fx)
}

// forget removes a session without running or waiting work, so that idle sessions need no memory.
func (c *core) forget(x *session, fx *effects) {
	c.throttle.forget(x, fx)
	c.queues.forget(x)
}

// pump uses the free slots of the lane. Turns that return from Yield precede the ready sessions.
func (c *core) pump(l *lane, fx *effects) {
	for l.hasSlot() {
		if len(l.returning) > 0 {
			c.resume(l, fx)
			continue
		}
		if c.draining {
			return
		}
		x := l.next()
		if x == nil {
			return
		}
		c.start(x, x.leaveLine(), l, fx)
		if other := c.place(x, fx); other != nil && other != l {
			c.pump(other, fx) // a place that it freed was used in another lane
		}
	}
}

// start gives the session a slot for a turn, and the place of its principal that the session held.
// What then waits is known when the turn has begun.
func (c *core) start(x *session, held *principal, l *lane, fx *effects) {
	t := c.turns.begin(x, l, fx.now)
	t.held = held
	c.queues.left(x, nil, 0)
	x.running, x.begins = append(x.running, t), t
	l.acquire(t)
	l.started++
	l.lastStart = fx.now
	fx.start(t)
}

// finish releases the slot and the place in the session of a turn whose Run has ended.
func (c *core) finish(t *Turn, err error, fx *effects) {
	x := t.sess
	if !t.begun && t.nothing == nil {
		t.nothing = &Nothing{Unknown: true}
	}
	c.turns.finish(t, err)
	t.lane.release(t)
	t.lane.endYield(t)
	x.leave(t)
	c.throttle.forget(x, fx) // the history has grown, so an older estimate is invalid
	c.leavePlace(t, fx)
	if x.waits && !x.window { // what it waited for may have happened
		c.queues.endWait(x)
	}
	if t.nothing != nil && t.gen == x.gen {
		c.beganNothing(t, x, fx)
	}
	c.settle(x, fx)
	t.sess = nil
	c.pump(t.lane, fx)
	c.pending.done()
}

// beganNothing stores what waits in a session whose slot began no turn.
func (c *core) beganNothing(t *Turn, x *session, fx *effects) {
	why := t.nothing
	switch {
	case c.draining:
		return
	case why.Unknown:
		if x.front == nil || !t.again {
			c.queues.left(x, &t.front, 0)
		}
	case why.Left == nil && x.heard > why.Seen: // something came since the store decided
		return
	default:
		c.queues.left(x, why.Left, why.Seen)
	}
	f := x.front
	if t.again || f == nil || f.Row.Lane != t.front.Row.Lane || f.Principal != t.front.Principal {
		return
	}
	c.queues.wait(x, fx.now, cmp.Or(why.Wait, askAgain), why.Wait > 0)
	x.burst = burst{last: f.Row, count: x.waiting, bytes: f.Row.Size}
}

// askAgain is after which time a session asks the store again that began no turn.
const askAgain = time.Second

// useFreePlaces gives free places of the principal to its waiting sessions, and removes an idle
// principal.
func (c *core) useFreePlaces(who *principal, fx *effects) {
	if who == nil {
		return
	}
	for who.used < c.principals.bound && who.waiting.head != nil {
		c.settle(who.waiting.head, fx)
	}
	who.rest()
}

// leavePlace returns the turn's place of its principal, if it has one.
func (c *core) leavePlace(t *Turn, fx *effects) {
	who := t.held
	if who == nil {
		return
	}
	t.held = nil
	who.used--
	c.useFreePlaces(who, fx)
}

// yield releases the slot, and the place of its principal, of a turn that is about to wait: it may
// wait for turns of the same principal.
func (c *core) yield(t *Turn, fx *effects) error {
	switch {
	case t.over:
		return ErrTurnOver
	case t.away:
		return ErrYielding
	}
	t.lane.beginYield(t)
	c.leavePlace(t, fx)
	c.pump(t.lane, fx)
	return nil
}

// resume gives a slot to the turn that has waited longest for its return from Yield.
func (c *core) resume(l *lane, fx *effects) {
	t, granted := l.grant()
	c.principals.retake(t)
	fx.grants = append(fx.grants, granted)
}

// run is the goroutine that executes turns. It continues with a turn that the end of its last one
// has started, which saves a busy lane a new goroutine, and the growth of its stack, for every
// turn. It ends when no such turn exists.
func (s *Scheduler) run(t *Turn) {
	for t != nil {
		t = s.execute(t)
	}
}

// execute runs one turn to its end and returns the next one to execute.
func (s *Scheduler) execute(t *Turn) (next *Turn) {
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
	err = s.invoke(ctx, t)
	returned = true
	return nil
}

// attach connects stops to the context of the turn, and passes on an earlier cancellation.
func (s *Scheduler) attach(t *Turn, cancel context.CancelCauseFunc) {
	s.mu.Lock()
	t.cancel = cancel
	cause := t.cause
	s.mu.Unlock()
	if cause != nil {
		cancel(cause)
	}
}

// invoke calls Run and turns a panic into an error.
func (s *Scheduler) invoke(ctx context.Context, t *Turn) (err error) {
	defer func() {
		v := recover()
		if v == nil {
			return
		}
		err = fmt.Errorf("%w: %v", ErrPanic, v)
		s.cfg.Logger.ErrorContext(ctx, "turn panicked", slog.String("session", t.key), slog.String("run_id", t.RunID()),
			slog.String("lane", t.lane.Name), slog.Any("err", err), slog.String("stack", string(debug.Stack())))
	}()
	return s.cfg.Run(ctx, t)
}

// finish releases the resources of the turn. It returns one of the turns that start because of it,
// for the calling goroutine to execute.
func (s *Scheduler) finish(t *Turn, err error) *Turn {
	fx := s.begin()
	s.mu.Lock()
	s.core.finish(t, err, &fx)
	s.mu.Unlock()
	next := fx.takeStart()
	s.perform(&fx)
	return next
}

// graceOver is the timer of a cancelled turn that has not returned in time: the turn is reported,
// its outcome is decided, and its later result is discarded.
func (s *Scheduler) graceOver(t *Turn) {
	s.mu.Lock()
	stuck := s.core.turns.markStuck(t)
	s.mu.Unlock()
	if stuck {
		s.cfg.Logger.Warn("turn ignores its cancelled context", slog.String("session", t.key), slog.String("run_id", t.RunID()),
			slog.String("lane", t.lane.Name), slog.Duration("grace", s.cfg.StopGrace))
		s.cfg.Observer.TurnStuck(t.lane.Name)
		s.callOnStuck(t)
		s.giveUp(t)
	}
	s.mu.Lock()
	s.core.pending.done()
	s.mu.Unlock()
}

// callOnStuck calls the callback of the configuration. A panic in it is logged.
func (s *Scheduler) callOnStuck(t *Turn) {
	if s.cfg.OnStuck == nil {
		return
	}
	defer func() {
		if v := recover(); v != nil {
			s.cfg.Logger.Error("stuck turn's callback panicked", slog.String("run_id", t.RunID()), slog.Any("err", v),
				slog.String("stack", string(debug.Stack())))
		}
	}()
	s.cfg.OnStuck(t)
}

// giveUp decides the outcome of a turn that has not returned.
func (s *Scheduler) giveUp(t *Turn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.core.turns.giveUp(t)
}

// errMovedOn is the cause of an estimate's context when the result is no longer needed.
var errMovedOn = errors.New("the session has moved on")

// estimateState is the known size class of a session's history.
type estimateState uint8

const (
	estimateUnknown estimateState = iota
	estimateAsked
	estimateSmall
	estimateLarge
)

// throttle limits a session with a large history to one turn at a time. The session stores the
// result of the estimate together with the number of the question: a result for an older question
// is ignored.
type throttle struct {
	on      bool // a TokenEstimate is configured
	pending *pending
}

// question is a pending token estimate.
type question struct {
	x      *session
	key    string
	number uint64
}

// allows reports whether the session may start one more concurrent turn. If no estimate is known,
// it requests one, and the session is settled again when the result arrives.
func (th *throttle) allows(x *session, draining bool, fx *effects) bool {
	if !th.on || x.estimate == estimateSmall {
		return true
	}
	if x.estimate == estimateUnknown && !draining {
		x.question++
		x.estimate = estimateAsked
		th.pending.add()
		fx.questions = append(fx.questions, question{x: x, key: x.key, number: x.question})
	}
	return false
}

// forget drops the estimate, and cancels one in progress.
func (th *throttle) forget(x *session, fx *effects) {
	x.question++
	x.estimate = estimateUnknown
	if x.forgetAsk != nil {
		fx.cancels = append(fx.cancels, cancelCall{cancel: x.forgetAsk, cause: errMovedOn})
		x.forgetAsk = nil
	}
}

// ask is the goroutine of one question. It ends when TokenEstimate returns.
func (s *Scheduler) ask(q question) {
	ctx, cancel := context.WithCancelCause(s.ctx)
	defer cancel(errMovedOn)
	answer := estimateSmall
	defer func() { s.answer(q, answer) }()
	if s.register(q, cancel) && s.large(ctx, q) {
		answer = estimateLarge
	}
}

// register lets the session cancel the question, and reports whether the result is still needed.
func (s *Scheduler) register(q question, cancel context.CancelCauseFunc) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if q.x.question != q.number {
		return false
	}
	q.x.forgetAsk = cancel
	return true
}

// large estimates whether the session's history is too large for concurrent turns. An estimate that
// panics throttles nothing.
func (s *Scheduler) large(ctx context.Context, q question) (large bool) {
	defer func() {
		if v := recover(); v != nil {
			s.cfg.Logger.ErrorContext(ctx, "token estimate panicked", slog.String("session", q.key), slog.Any("err", v),
				slog.String("stack", string(debug.Stack())))
		}
	}()
	tokens, window := s.cfg.TokenEstimate(ctx, q.key)
	return window > 0 && float64(tokens) >= s.cfg.ThrottleAt*float64(window)
}

// answer stores the estimate, unless the session has changed since.
func (s *Scheduler) answer(q question, answer estimateState) {
	fx := s.begin()
	s.mu.Lock()
	if q.x.question == q.number {
		q.x.estimate, q.x.forgetAsk = answer, nil
		s.core.settle(q.x, &fx)
	}
	s.core.pending.done()
	s.mu.Unlock()
	s.perform(&fx)
}

// Yield releases the turn's slot while fn runs, and takes one again, at the front of its lane,
// before it returns. So a turn can wait for turns that it has caused without occupying the lane
// that they need. The turn keeps its place in its session, so the turns that it waits for must
// belong to other sessions.
//
// ctx must be the turn's context or derived from it; fn receives it. Yield blocks until fn has
// returned and a slot is free. When ctx ends during that second wait, Yield returns immediately
// without a slot, with the cause of ctx joined to the error of fn: a stop never waits for a full
// lane, and the turn is then expected to return. While another Yield of the turn runs, it returns
// ErrYielding without calling fn; ErrTurnOver when the turn has ended.
func (t *Turn) Yield(ctx context.Context, fn func(ctx context.Context) error) error {
	if err := t.freeSlot(); err != nil {
		return err
	}
	returned := false
	defer func() {
		if !returned { // fn panicked: the code that recovers the panic continues without a slot
			t.continueWithoutSlot()
		}
	}()
	err := fn(ctx)
	returned = true
	granted := t.requestSlot()
	select {
	case <-granted:
		return err
	default:
	}
	select {
	case <-granted:
		return err
	case <-ctx.Done():
		t.continueWithoutSlot()
		return errors.Join(context.Cause(ctx), err)
	}
}

// freeSlot begins the yield.
func (t *Turn) freeSlot() error {
	fx := t.s.begin()
	t.s.mu.Lock()
	err := t.s.core.yield(t, &fx)
	t.s.mu.Unlock()
	t.s.perform(&fx)
	return err
}

// requestSlot queues the turn for a slot, at the front of its lane, and returns a channel that is
// closed when it has one.
func (t *Turn) requestSlot() <-chan struct{} {
	granted := make(chan struct{})
	fx := t.s.begin()
	t.s.mu.Lock()
	if !t.over {
		t.granted = granted
		t.lane.returning = append(t.lane.returning, t)
		t.s.core.pump(t.lane, &fx)
	}
	t.s.mu.Unlock()
	t.s.perform(&fx)
	return granted
}

// continueWithoutSlot ends the yield without a slot, unless one has been granted meanwhile.
func (t *Turn) continueWithoutSlot() {
	t.s.mu.Lock()
	defer t.s.mu.Unlock()
	t.lane.endYield(t)
}

// beginYield takes the slot of the turn and counts the turn as yielded.
func (l *lane) beginYield(t *Turn) {
	t.away = true
	l.yielded++
	l.release(t)
}

// grant gives a slot to the turn that has waited longest for its return; one must be waiting. The
// caller closes the channel when the mutex is released.
func (l *lane) grant() (*Turn, chan struct{}) {
	t := l.returning[0]
	l.returning = slices.Delete(l.returning, 0, 1)
	granted := t.granted
	t.granted = nil
	l.endYield(t)
	l.acquire(t)
	return t, granted
}

// endYield ends the yield of the turn, if it is in one, and its wait for a slot. It does not assign
// a slot.
func (l *lane) endYield(t *Turn) {
	if t.granted != nil {
		l.returning = slices.DeleteFunc(l.returning, func(o *Turn) bool { return o == t })
		t.granted = nil
	}
	if t.away {
		t.away = false
		l.yielded--
	}
}
