// Package scheduler decides when a session runs: it limits how many turns run concurrently, shares
// them among principals and sessions, and stops them. What becomes of a session's messages is
// decided by Admit and Next, from the rows of the store. It is independent of agents, channels, SQL
// and HTTP and imports only the standard library.
//
// # Terms
//
// A message is one input to a session, and a row of the store. A turn is one execution over one or
// several messages; the last of them leads it. A lane is a named limit on concurrent turns. A slot
// is a place in a lane. The front of a session is the message that waits first in it.
//
// # Central ideas
//
// The rows own what waits and what becomes of it; the scheduler owns when a session runs. It knows
// no message: Wake says that one waits, for which lane and principal, and that a person may still
// be typing. Wakes may come in any order, too often, and some may be missing. A turn that has a
// slot asks the store, which decides by Next in the transaction that starts the turn: Began has
// what it chose, BeganNothing why it chose nothing, and both have what waits first now.
//
// A slot is for the front that it was given for. If another lane or principal turns out to be next,
// the store begins nothing, and the session moves to its proper place.
//
// One mutex guards everything and is held only for bookkeeping. The effects of a decision, such as
// starting a goroutine, cancelling a context or writing a log line, are collected in a value on the
// stack and performed after the mutex was released.
//
// No goroutine waits for a slot. A session with a turn that may start is once in its lane's ready
// list. Each call that frees a slot or adds work starts the next session of it. Ten thousand
// waiting messages of a session are one entry.
//
// A lane is shared by principals, then by sessions, not by messages. The ready sessions of one
// principal in one lane are its subqueue, and the subqueues form a ring. A start takes the first
// session of the first subqueue. Before the next start, the principal of the last one moves to the
// end of the ring, after principals that were added meanwhile. So a single message of another
// principal takes the next slot, and no principal starts twice while one that was added earlier
// waits. All of this takes constant time; a principal without waiting work has no record.
//
// A turn keeps its slot and its place in the session until its goroutine has really returned.
// Cancelling is a request. So a serial session never has two concurrent turns, whatever its runner
// does with its context.
//
// A stop signals running turns; what waits is the store's. While a turn has not begun, stops of it
// are noted, and apply when its messages are known: it then begins, and its context has ended. A
// message that interrupts cancels running turns when it wakes its session, without a slot.
//
// A turn that takes input gets a signal for each Wake of its session, and asks the store.
//
// # Decisions about rows
//
// Row, Admit, Next, Units and SteeredInto decide from columns of the store, so that every replica
// decides the same. The store calls them under the lock of the session: Admit for each message that
// may end others or be refused, Next for each slot. What follows from that:
//
//   - A window depends on the state when a slot is free, not when the message arrives: a typed
//     message of mode collect or interrupt that arrived while turns ran may wait up to Debounce
//     longer after them. In mode collect, a turn also includes a message that was accepted after
//     the slot became free and before the turn began.
//   - A number that is missing ends a window: a command, and also a message that was stopped or
//     dropped between two others.
//   - A message that ends the window of the one before it is in the same turn, in mode collect.
//   - A mode that is chosen for a session applies to messages that wait already, but supersedes
//     none.
//   - A message is steered into a turn of its own thread; a turn of another thread does not shorten
//     its window.
//   - A stop that a slow store has not answered yet reports the turns of this process; what waited
//     is stopped, but not in the reply.
//
// # Who owns which state
//
//	Scheduler   the mutex, the configuration and the parent context of the turns; its methods are the public ones, timers and goroutines
//	core        the state that the mutex guards, made of the parts below, and the decisions that need several parts
//	lanes       the lanes by name and the unknown names; lane: slots, ready list, ring of subqueues, turns that return from Yield
//	principals  the records of principals; principal: places of bounded turns, sessions that wait for a place
//	queues      the sessions by key, generation, waits; session: front, running turns, settings
//	turns       the counters of running turns and the rules of cancelling and ending; Turn: cause, grace, end of one turn
//	throttle    whether a session may have concurrent turns; the result is stored in the session
//	pending     goroutines and timers that have not ended
//	effects     the work of one call after the mutex was released
//
// # Locks
//
// A method of Scheduler or an exported method of Turn takes the mutex. A method of core or of a
// part is called with the mutex held and never takes it. perform runs without it. Callbacks (Run,
// TokenEstimate, OnStuck, Observer) run without any lock. Fields of a Turn that are fixed at its
// start are read without the mutex.
//
// # Cost
//
// Wake, a start, the end of a turn, the stops and Yield take constant time, independent of waiting
// messages. Drain, ResetAll and Cancel visit every session once.
//
// # Promises
//
//   - Active and free slots add up to the lane's limit. While a lane shrinks, active slots may
//     exceed it until turns end.
//   - Turns of a session, stopping ones included, never exceed its MaxConcurrent at the time of a
//     start.
//   - The turns of a session begin one after the other.
//   - A session that was woken asks the store until the store says that nothing waits.
//   - While a session of a principal is ready, each other principal starts at most one turn before
//     this principal does.
//   - A principal never has more bounded turns than PrincipalTurns, except those that return from
//     Yield.
//   - Whenever a slot is free and a turn may start, it starts. A place that a principal holds while
//     its lane is full counts as used.
//   - A panic is the end of its turn, with the stack in the log.
//   - An idle session costs nothing: no goroutine, no timer, no entry.
//   - Wake and the stops never wait, however full a lane is.
//   - A session that is suspended starts no turn; nothing else about it changes.
//
// # What it does not do
//
// It does not persist state, does not retry, does not answer, and does not track which process owns
// a session. It limits no turn in time: a runner does so with a context of its own. It does not
// limit the number of waiting messages. Turns of a principal can be bounded (PrincipalTurns): a
// session whose next turn exceeds the bound is in the principal's line instead of the lane's.
//
// # How it ends
//
// Drain starts nothing new, lets turns end until its context ends, cancels the rest, and returns
// when everything that was started has ended or the grace has passed. What waits stays in the
// store. The end of the work context of New does the same without waiting.
package scheduler

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"
)

// Scheduler decides when turns run. It is safe for concurrent use. No method waits for a slot, and
// none but Drain waits for a turn.
//
// Its methods are the only ones that take the mutex: each takes it, lets core decide, releases it,
// and performs the effects.
type Scheduler struct {
	cfg Config // with defaults filled in; never changed
	// ctx is the parent of every turn: the values of the work context without its end. The end is
	// passed to the turns by watch, which costs once per scheduler instead of an entry in the
	// parent's list per turn.
	ctx   context.Context //nolint:containedctx // the scheduler owns its turns' contexts; a message's context would end them with its sender
	base  time.Time       // zero time of the scheduler's clock
	watch func() bool     // ends the watch of the work context

	mu   sync.Mutex // for bookkeeping only; no wait, log or callback while it is held
	core core
}

// New creates a scheduler that is ready for messages. ctx is the work context, the parent of every
// turn: its values reach each turn, and when it ends every turn is cancelled with its cause and
// nothing new starts. It must not be the context of a request. The error matches ErrInvalid and
// lists every fault of cfg.
//
// The scheduler has no goroutine of its own; Drain waits for those of its turns.
func New(ctx context.Context, cfg Config) (*Scheduler, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if ctx.Err() != nil {
		return nil, fmt.Errorf("make a scheduler: the work context has ended: %w", context.Cause(ctx))
	}
	cfg = cfg.withDefaults()
	s := &Scheduler{
		cfg: cfg, ctx: context.WithoutCancel(ctx), base: time.Now(),
	}
	s.core.init(s)
	s.watch = context.AfterFunc(ctx, func() { s.workOver(context.Cause(ctx)) })
	return s, nil
}

// workOver ends everything when the work context has ended.
func (s *Scheduler) workOver(cause error) {
	s.beginDrain()
	s.Cancel(cause)
}

// now is the time on the scheduler's clock, which is monotonic.
func (s *Scheduler) now() time.Duration { return time.Since(s.base) }

// begin creates the effects of one call. The time is read once, so all decisions of the call have
// the same time.
func (s *Scheduler) begin() effects { return effects{now: s.now()} }

// Wake says that a message waits in a session.
type Wake struct {
	// Session is the key of the conversation, and ID is the id of the message.
	Session, ID string
	// Row is the message. Its lane is that of the turn; an unknown name falls back to LaneMain and is
	// counted.
	Row Row
	// Settings are those of the session, with the mode of the message.
	Settings Settings
	// Principal is the principal of a turn that begins with the message. A full lane serves principals
	// in turn, however many sessions each of them has; "" is a principal like any other. Bounded
	// makes the turn count towards PrincipalTurns.
	Principal string
	Bounded   bool
	// Waiting is how many messages wait in the session, this one included; 0 = one more than before.
	Waiting int
	// Last is the number that the session has given last, as far as the caller knows; 0 = that of
	// the message.
	Last int64
}

// Wake makes the session ask the store when it has a slot. It returns immediately, and reports
// whether the session got one for this message, and how many messages waited before it. In mode
// interrupt, running turns with earlier messages are cancelled, unless a person may still be
// typing. During a drain it does nothing.
func (s *Scheduler) Wake(w Wake) (started bool, before int) {
	fx := s.begin()
	s.mu.Lock()
	if !s.core.draining {
		started, before = s.core.wake(&w, &fx)
	}
	s.mu.Unlock()
	s.perform(&fx)
	return started, before
}

// Ended says that a waiting message of a session has ended without a turn.
func (s *Scheduler) Ended(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if x, ok := s.core.queues.byKey[key]; ok && x.waiting > 1 {
		s.core.queues.count(x, x.waiting-1)
	}
}

// Front declares what waits first in a session, after a message that waited has ended; nil =
// nothing waits. seen is the highest number of the session that was known then.
func (s *Scheduler) Front(key string, seen int64, first *Wake) {
	s.onSession(key, func(x *session, _ *effects) []string {
		if !s.core.draining && x.heard <= seen {
			s.core.queues.left(x, first, 0)
		}
		return nil
	})
}

// Cut ends the wait of the session and reports whether it waited: something other than a message
// came, such as a command, and the store may decide otherwise now.
func (s *Scheduler) Cut(session string) bool {
	fx := s.begin()
	s.mu.Lock()
	x, ok := s.core.queues.byKey[session]
	if ok && x.begins != nil {
		x.begins.again = true
	}
	if ok = ok && s.core.queues.endWait(x); ok {
		s.core.settle(x, &fx)
	}
	s.mu.Unlock()
	s.perform(&fx)
	return ok
}

// Tracks reports whether the session has running or waiting work here.
func (s *Scheduler) Tracks(session string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.core.queues.byKey[session] != nil
}

// waitOver is the timer of a wait.
func (s *Scheduler) waitOver(x *session, alarm uint64) {
	fx := s.begin()
	s.mu.Lock()
	if x.waits && x.alarm == alarm { // otherwise the wait was ended while the timer fired
		s.core.queues.endWait(x)
		s.core.settle(x, &fx)
	}
	s.core.pending.done()
	s.mu.Unlock()
	s.perform(&fx)
}

// core is everything that the scheduler's mutex guards. Each part owns its fields and is
// independent of the other parts; the methods of core are the decisions that need several of them.
// Every method of core and of its parts is called with the mutex held, and none takes it.
type core struct {
	draining bool // nothing new is started
	cleared  int  // waiting messages that a reset or a drain has left to the store

	lanes      lanes
	principals principals
	queues     queues
	turns      turns
	throttle   throttle
	pending    pending
}

// init creates the parts. Pointers between them stay valid because a Scheduler is never copied.
func (c *core) init(s *Scheduler) {
	c.lanes = newLanes(s.cfg.Lanes)
	c.principals = principals{byName: map[string]*principal{}, bound: s.cfg.PrincipalTurns}
	c.queues = queues{byKey: map[string]*session{}, gen: 1, typing: map[*session]struct{}{}, waitOver: s.waitOver, pending: &c.pending}
	c.turns = turns{s: s, pending: &c.pending}
	c.throttle = throttle{on: s.cfg.TokenEstimate != nil, pending: &c.pending}
}

// wake implements Wake.
func (c *core) wake(w *Wake, fx *effects) (started bool, before int) {
	x := c.queues.open(w.Session)
	last := max(w.Row.Seq, w.Last)
	same := x.front != nil && x.front.Row.Seq == w.Row.Seq
	if same && last <= x.heard {
		return false, x.waiting
	}
	x.set = w.Settings
	if w.Settings.Mode == ModeInterrupt {
		c.interrupt(x, w, fx)
	}
	x.heard = max(x.heard, last)
	for _, t := range x.running {
		if t.takesInput() {
			fx.wakes = append(fx.wakes, t.input)
		}
	}
	before = x.waiting
	first, running := x.front == nil, len(x.running)
	if first || w.Row.Seq < x.front.Row.Seq {
		x.front = w
	}
	c.queues.count(x, cmp.Or(w.Waiting, before+1))
	holds := x.holds(&w.Row)
	if first && holds && !x.waits {
		c.queues.wait(x, fx.now, w.Settings.Debounce, true)
	}
	if same || !holds || x.window && x.breaks(&w.Row) {
		c.queues.endWait(x)
	}
	if x.begins != nil {
		x.begins.again = true
	}
	c.settle(x, fx)
	return first && len(x.running) > running, before
}

// interrupt applies mode interrupt: the message replaces all earlier unfinished work of its
// session, unless a person may still be typing. The store has ended what waits.
func (c *core) interrupt(x *session, w *Wake, fx *effects) {
	if x.idle() || len(x.running) == 0 && x.window && x.holds(&w.Row) {
		return
	}
	cause := &CancelCause{Reason: ReasonSuperseded, By: w.ID}
	for _, t := range x.running {
		switch {
		case !t.begun:
			t.marks = append(t.marks, mark{upto: w.Row.Seq - 1, cause: cause})
		case t.last < w.Row.Seq:
			c.turns.cancel(t, cause, fx)
		}
	}
	if x.front != nil && x.front.Row.Seq < w.Row.Seq {
		c.queues.left(x, nil, 0)
	}
}

// drain starts nothing new any more.
func (c *core) drain(fx *effects) {
	c.draining = true
	c.cleared += c.queues.waiting
	for _, x := range c.queues.byKey {
		c.throttle.forget(x, fx)
		c.queues.endWait(x)
		c.queues.left(x, nil, 0)
		c.settle(x, fx)
	}
}

// running lists the running turns.
func (c *core) running() []*Turn {
	var all []*Turn
	for _, x := range c.queues.byKey {
		all = append(all, x.running...)
	}
	return all
}

// pending counts the goroutines and armed timers that the scheduler has started and that have not
// ended. It is guarded by the scheduler's mutex instead of being a sync.WaitGroup, because the
// count must change together with the decision that starts or ends one.
type pending struct {
	count int
	none  chan struct{} // closed when count drops to zero; nil while nothing waits for that
}

// add counts a goroutine or timer that is about to be started.
func (p *pending) add() { p.count++ }

// done counts the end of one.
func (p *pending) done() {
	p.count--
	if p.count == 0 && p.none != nil {
		close(p.none)
		p.none = nil
	}
}

// ended returns a channel that is closed when nothing is pending.
func (p *pending) ended() <-chan struct{} {
	if p.count == 0 {
		none := make(chan struct{})
		close(none)
		return none
	}
	if p.none == nil {
		p.none = make(chan struct{})
	}
	return p.none
}

// effects are the work that a decision under the mutex leaves for later: starting goroutines,
// cancelling contexts, logging. The value is on the stack of the method that
// took the mutex.
type effects struct {
	now       time.Duration
	starts    *Turn // chained by nextStart, in order
	lastStart *Turn
	cancels   []cancelCall
	wakes     []chan struct{}
	grants    []chan struct{}
	questions []question
	unknown   bool   // a message named a lane that does not exist
	firstName string // that name, when it must be logged
}

// cancelCall is a context to cancel.
type cancelCall struct {
	cancel context.CancelCauseFunc
	cause  error
}

// start adds a turn to be started.
func (fx *effects) start(t *Turn) {
	if fx.starts == nil {
		fx.starts = t
	} else {
		fx.lastStart.nextStart = t
	}
	fx.lastStart = t
}

// takeStart removes the first turn to be started, nil when none is left.
func (fx *effects) takeStart() *Turn {
	t := fx.starts
	if t != nil {
		fx.starts = t.nextStart
	}
	return t
}

// perform does the work after the mutex was released. Cancellations come first, because a stop must
// not wait for other work.
func (s *Scheduler) perform(fx *effects) {
	for _, c := range fx.cancels {
		c.cancel(c.cause)
	}
	for t := fx.starts; t != nil; {
		next := t.nextStart // once it runs, the turn may end, and other goroutines may read its memory
		go s.run(t)
		t = next
	}
	for _, granted := range fx.grants {
		close(granted)
	}
	for _, w := range fx.wakes {
		select {
		case w <- struct{}{}:
		default: // a wake-up is already pending, and carries no data
		}
	}
	for _, q := range fx.questions {
		go s.ask(q)
	}
	if fx.unknown {
		s.cfg.Observer.LaneUnknown()
		if fx.firstName != "" { // each name is logged once
			s.cfg.Logger.Warn("unknown lane, using main", slog.String("lane", fx.firstName))
		}
	}
}
