// Package scheduler decides when a turn runs: it limits how many turns run concurrently, shares
// them among principals and sessions, and stops them. Which messages become a turn is decided by
// Next, from the rows of the store. It is independent of agents, channels, SQL and HTTP and imports
// only the standard library; a message is a type parameter that it never inspects.
//
// # Terms
//
// A message is one input to a session. A turn is one execution over one or several messages; the
// last of them leads it and gives it its id. A lane is a named limit on concurrent turns. A ticket
// is the promise of one message's outcome.
//
// # Central ideas
//
// One mutex guards everything and is held only for bookkeeping. The effects of a decision, such as
// starting a goroutine, cancelling a context, completing a ticket or writing a log line, are
// collected in a value on the stack and performed after the mutex was released.
//
// No goroutine waits for a slot. A session with a turn that may start is once in its lane's ready
// list. Each call that frees a slot or adds work starts the next session of it. Ten thousand
// waiting messages are ten thousand list entries.
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
// The rows own the order of a session's messages. The waiting messages that the scheduler knows
// tell it only that a session may need a slot, for which lane and principal. They may be submitted
// in any order, and some may be missing. With Config.Begins, a turn that has a slot asks the store,
// which decides by Next in the transaction that starts the turn: Began has the messages that it
// chose, and BeganNothing why it chose none, such as an open window. Messages that the store does
// not have any more are removed (Gone). While a turn has not begun, stops of it are noted, and
// apply when its messages are known.
//
// # Decisions about rows
//
// Row, Admit, Next and Units decide from columns of the store instead of messages in memory, so
// that every replica decides the same. The store calls both under the lock of the session: Admit
// for each message that may end others or be refused, Next for each slot. What follows from that:
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
//
// # Who owns which state
//
//	Scheduler   the mutex, the configuration and the parent context of the turns; its methods are the public ones, timers and goroutines
//	core        the state that the mutex guards, made of the parts below, and the decisions that need several parts
//	lanes       the lanes by name and the unknown names; lane: slots, ready list, ring of subqueues, turns that return from Yield
//	principals  the records of principals; principal: waiting messages, places of bounded turns, sessions that wait for a place
//	queues      the sessions by key, cutoffs, generation, waits; session: waiting messages, running turns, settings
//	turns       the counters of running turns and the rules of cancelling and ending; Turn: cause, grace, outcome of one turn
//	throttle    whether a session may have concurrent turns; the result is stored in the session
//	tally       counters since the start
//	pending     goroutines and timers that have not ended
//	effects     the work of one call after the mutex was released
//	reporter    tickets, Observer and log; it needs no mutex
//
// # Locks
//
// A method of Scheduler or an exported method of Turn takes the mutex. A method of core or of a
// part is called with the mutex held and never takes it. perform and the methods of reporter run
// without it. Ticket has a mutex of its own, which guards one outcome. It is taken after the
// scheduler's mutex was released; no goroutine holds both. Callbacks (Run, TokenEstimate, OnStuck,
// Observer) run without any lock.
//
// Fields of a Turn that are fixed at its start are read without the mutex. The outcome of a turn is
// written once, under the mutex, and read afterwards by the goroutine that wrote it.
//
// # Cost
//
// Submit, a start, the end of a turn, Stop and Yield take constant time, independent of waiting
// messages. Submit of an overtaken message and StopRun search the waiting messages of one session.
// Drop finds its message by binary search. StopAll completes the tickets of the ended messages
// after the mutex was released. Drain, ResetAll and Cancel visit every session once. A turn of one
// message costs three allocations: the entry, which contains the turn, and the two of its context.
//
// # Promises
//
//   - Active and free slots add up to the lane's limit. While a lane shrinks, active slots may
//     exceed it until turns end.
//   - Turns of a session, stopping ones included, never exceed its MaxConcurrent at the time of a
//     start.
//   - The turns of a session begin one after the other. Without Begins, its messages start in the
//     order of their sequence numbers; with it, the store decides.
//   - Every accepted message gets exactly one outcome, and the counters add up to the number
//     accepted.
//   - While a session of a principal is ready, each other principal starts at most one turn before
//     this principal does.
//   - A principal never has more bounded turns than PrincipalTurns, except those that return from
//     Yield.
//   - Whenever a slot is free and a turn may start, it starts. A place that a principal holds while
//     its lane is full counts as used.
//   - A panic is an outcome of its turn, with the stack in the log.
//   - An idle session costs nothing: no goroutine, no timer, no entry.
//   - Submit and the stops never wait, however full a lane is.
//   - A session that is suspended starts no turn; nothing else about it changes.
//
// # What it does not do
//
// It does not persist state, does not retry, does not answer, and does not track which process owns
// a session. It recognises duplicates only while a message waits or runs. A durable store decides
// all of these; to hand over one session to another owner, Reset it.
//
// It limits no turn in time: a runner does so with a context of its own.
//
// It does not limit the number of waiting messages. The store decides by Admit which messages are
// dropped from a full queue, and Drop removes them here. WaitingOf is for a caller that bounds the
// waiting messages of a principal. Turns of a principal can be bounded (PrincipalTurns): a session
// whose next turn exceeds the bound is in the principal's line instead of the lane's.
//
// # How it ends
//
// Drain refuses new messages, ends waiting ones as cleared, lets turns end until its context ends,
// cancels the rest, and returns when everything that was started has ended or the grace has passed.
// The end of the work context of New does the same without waiting.
//
// # Example
//
//	s, err := scheduler.New(workCtx, scheduler.Config[string]{
//		Run: func(ctx context.Context, t *scheduler.Turn[string]) error {
//			return answer(ctx, t.Items())
//		},
//	})
//	...
//	sub, err := s.Submit(scheduler.Item[string]{Session: "chat:1", ID: "m1", Payload: "hello", Typed: true})
//	...
//	outcome, err := sub.Ticket.Wait(ctx)
package scheduler

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// Scheduler decides when turns run. It is safe for concurrent use. No method waits for a slot, and
// none but Drain waits for a turn.
//
// Its methods are the only ones that take the mutex: each takes it, lets core decide, releases it,
// and performs the effects.
type Scheduler[M any] struct {
	cfg Config[M] // with defaults filled in; never changed
	// ctx is the parent of every turn: the values of the work context without its end. The end is
	// passed to the turns by watch, which costs once per scheduler instead of an entry in the
	// parent's list per turn.
	ctx   context.Context //nolint:containedctx // the scheduler owns its turns' contexts; a message's context would end them with its sender
	base  time.Time       // zero time of the scheduler's clock
	watch func() bool     // ends the watch of the work context
	out   reporter[M]

	mu   sync.Mutex // for bookkeeping only; no wait, log or callback while it is held
	core core[M]
}

// New creates a scheduler that is ready for messages. ctx is the work context, the parent of every
// turn: its values reach each turn, and when it ends every turn is cancelled with its cause and new
// messages are refused. It must not be the context of a request. The error matches ErrInvalid and
// lists every fault of cfg.
//
// The scheduler has no goroutine of its own; Drain waits for those of its turns.
func New[M any](ctx context.Context, cfg Config[M]) (*Scheduler[M], error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if ctx.Err() != nil {
		return nil, fmt.Errorf("make a scheduler: the work context has ended: %w", context.Cause(ctx))
	}
	cfg = cfg.withDefaults()
	s := &Scheduler[M]{
		cfg: cfg, ctx: context.WithoutCancel(ctx), base: time.Now(), out: reporter[M]{obs: cfg.Observer, log: cfg.Logger},
	}
	s.core.init(s)
	s.watch = context.AfterFunc(ctx, func() { s.workOver(context.Cause(ctx)) })
	return s, nil
}

// workOver ends everything when the work context has ended.
func (s *Scheduler[M]) workOver(cause error) {
	s.beginDrain()
	s.Cancel(cause)
}

// now is the time on the scheduler's clock, which is monotonic.
func (s *Scheduler[M]) now() time.Duration { return time.Since(s.base) }

// begin creates the effects of one call. The time is read once, so all decisions of the call have
// the same time.
func (s *Scheduler[M]) begin() effects[M] { return effects[M]{now: s.now()} }

// Submit accepts a message and returns immediately; it never waits for a slot, a turn or a callback
// of the configuration other than the Observer. The error is ErrMessageStale, ErrGatewayDraining,
// or matches ErrInvalid; the message was then not accepted and has no ticket. It takes constant
// time, except for an overtaken message, whose position is searched.
func (s *Scheduler[M]) Submit(it Item[M]) (Submitted[M], error) {
	if err := it.check(); err != nil {
		s.refuse(RefusedInvalid)
		return Submitted[M]{}, err
	}
	set := s.cfg.Queue
	if it.Settings != nil {
		set = it.Settings.Over(set)
	}
	fx := s.begin()
	s.mu.Lock()
	sub, err := s.core.admit(&it, set, &fx)
	s.mu.Unlock()
	sub.Ended = s.perform(&fx)
	if err != nil {
		s.refuse(refusal(err))
	}
	return sub, err
}

// refuse counts a message that was not accepted.
func (s *Scheduler[M]) refuse(why Refusal) {
	s.mu.Lock()
	s.core.tally.refused[why.index()]++
	s.mu.Unlock()
	s.out.obs.MessageRefused(why)
}

// refusal is the metric label for an error of Submit.
func refusal(err error) Refusal {
	switch {
	case errors.Is(err, ErrMessageStale):
		return RefusedStale
	case errors.Is(err, ErrGatewayDraining):
		return RefusedDraining
	default:
		return RefusedInvalid
	}
}

// Cut ends the wait of the session and reports whether it waited: something other than a message
// came, such as a command, and the store may decide otherwise now.
func (s *Scheduler[M]) Cut(session string) bool {
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

// Known is the highest number of a session up to which the scheduler needs to be told of no waiting
// message: it knows a message that waits before or with the others.
func (s *Scheduler[M]) Known(session string) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if x, ok := s.core.queues.byKey[session]; ok {
		return x.heard
	}
	return 0
}

// waitOver is the timer of a wait.
func (s *Scheduler[M]) waitOver(x *session[M], alarm uint64) {
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
type core[M any] struct {
	begins   bool // turns call Began, see Config.Begins
	draining bool // nothing new is accepted or started

	lanes      lanes[M]
	principals principals[M]
	queues     queues[M]
	turns      turns[M]
	throttle   throttle[M]
	tally      tally
	pending    pending
}

// init creates the parts. Pointers between them stay valid because a Scheduler is never copied.
func (c *core[M]) init(s *Scheduler[M]) {
	c.begins = s.cfg.Begins
	c.lanes = newLanes[M](s.cfg.Lanes)
	c.principals = principals[M]{byName: map[string]*principal[M]{}, bound: s.cfg.PrincipalTurns}
	c.queues = queues[M]{byKey: map[string]*session[M]{}, gen: 1, typing: map[*session[M]]struct{}{}, waitOver: s.waitOver, tally: &c.tally, pending: &c.pending}
	c.turns = turns[M]{s: s, tally: &c.tally, pending: &c.pending}
	c.throttle = throttle[M]{on: s.cfg.TokenEstimate != nil, pending: &c.pending}
}

// admit decides about a message and adds it to its session.
func (c *core[M]) admit(it *Item[M], set Settings, fx *effects[M]) (Submitted[M], error) {
	if c.draining {
		return Submitted[M]{}, ErrGatewayDraining
	}
	cutoff := c.queues.cutoffs.of(it.Session)
	if it.Seq != 0 && it.Seq <= cutoff {
		return Submitted[M]{}, ErrMessageStale
	}
	x := c.queues.open(it.Session, cutoff)
	if known := x.known(it); known != nil {
		return Submitted[M]{Ticket: &known.ticket, Seq: it.Seq, Running: known.turnOf != nil, Duplicate: true}, nil
	}
	x.set, x.heard = set, max(x.heard, it.Seq)
	l := c.lanes.find(it.Lane, fx)
	if set.Mode == ModeInterrupt {
		c.interrupt(x, it, fx)
	}
	return c.enqueue(x, c.entry(it, l, fx), fx), nil
}

// entry creates the record of an accepted message.
func (c *core[M]) entry(it *Item[M], l *lane[M], fx *effects[M]) *entry[M] {
	c.tally.accepted++
	return &entry[M]{box: [1]Item[M]{*it}, at: fx.now, lane: l, who: c.principals.of(it.Principal)}
}

// enqueue makes the message wait, and starts it if it can start.
func (c *core[M]) enqueue(x *session[M], e *entry[M], fx *effects[M]) Submitted[M] {
	it := e.item()
	e.steer = x.set.Mode == ModeSteer && it.merges()
	e.alone = x.set.Mode == ModeInterrupt && len(x.running) > 0
	before := x.insert(e)
	holds := x.holds(it)
	switch {
	case !holds || x.breaks(x.head+before):
		c.queues.endWait(x)
	case !x.waits && x.depth() == 1:
		c.queues.wait(x, fx.now, x.set.Debounce, true)
	}
	if x.begins != nil && !holds {
		x.begins.again = true
	}
	c.settle(x, fx)
	return Submitted[M]{Ticket: &e.ticket, Seq: it.Seq, Running: e.turnOf != nil, Position: before}
}

// interrupt applies mode interrupt: the message replaces all earlier unfinished work of its
// session, unless a person may still be typing. The store has ended what waits.
func (c *core[M]) interrupt(x *session[M], it *Item[M], fx *effects[M]) {
	if x.idle() || len(x.running) == 0 && x.window && x.holds(it) {
		return
	}
	cause := &CancelCause{Reason: ReasonSuperseded, By: it.ID}
	for _, t := range x.running {
		switch {
		case !t.begun:
			t.marks = append(t.marks, mark{upto: it.Seq - 1, cause: cause})
		case t.lead.item().Seq < it.Seq:
			c.turns.cancel(t, cause, fx)
		}
	}
	for e := x.front(); e != nil && e.item().Seq < it.Seq; e = x.front() {
		c.queues.endOne(x, x.head, OutcomeSuperseded, cause, fx)
	}
	x.heard = max(x.heard, it.Seq)
}

// drain refuses everything new and ends waiting messages as cleared.
func (c *core[M]) drain(fx *effects[M]) {
	c.draining = true
	for _, x := range c.queues.byKey {
		c.throttle.forget(x, fx)
		c.queues.empty(x, OutcomeCleared, ErrGatewayDraining, fx)
		c.settle(x, fx)
	}
}

// running lists the running turns.
func (c *core[M]) running() []*Turn[M] {
	var all []*Turn[M]
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
// cancelling contexts, completing tickets, logging. The value is on the stack of the method that
// took the mutex.
type effects[M any] struct {
	now       time.Duration
	starts    *Turn[M] // chained by nextStart, in order
	lastStart *Turn[M]
	cancels   []cancelCall
	gone      []goneUnits[M]
	wakes     []chan struct{}
	grants    []chan struct{}
	questions []question[M]
	unknown   bool   // the message named a lane that does not exist
	firstName string // that name, when it must be logged
}

// cancelCall is a context to cancel.
type cancelCall struct {
	cancel context.CancelCauseFunc
	cause  error
}

// goneUnits are waiting messages that ended together.
type goneUnits[M any] struct {
	units   []*entry[M]
	outcome Outcome
	err     error
}

// start adds a turn to be started.
func (fx *effects[M]) start(t *Turn[M]) {
	if fx.starts == nil {
		fx.starts = t
	} else {
		fx.lastStart.nextStart = t
	}
	fx.lastStart = t
}

// takeStart removes the first turn to be started, nil when none is left.
func (fx *effects[M]) takeStart() *Turn[M] {
	t := fx.starts
	if t != nil {
		fx.starts = t.nextStart
	}
	return t
}

// perform does the work after the mutex was released, and returns the messages that ended.
// Cancellations come first, because a stop must not wait for other work.
func (s *Scheduler[M]) perform(fx *effects[M]) []Ended[M] {
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
		s.out.unknownLane(fx.firstName)
	}
	return s.out.ended(fx.gone)
}
