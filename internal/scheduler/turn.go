package scheduler

import (
	"context"
	"slices"
	"time"
)

// Turn is one execution over one or several messages. It is passed to Run and returned by stops.
// Its methods are safe for concurrent use; those with an effect refuse when the turn has ended.
type Turn[M any] struct {
	// Fixed at the start.
	s           *Scheduler[M]
	lane        *lane[M]
	front       *entry[M] // the message for which it got its slot
	first, lead *entry[M] // of its messages
	items       []Item[M]
	runID       string
	gen         uint64
	started     time.Duration

	// Guarded by the scheduler's mutex.
	nextStart *Turn[M]
	begun     bool        // its messages are known
	nothing   *Nothing    // no turn began; set by the goroutine of the turn
	asked     int64       // the highest number that was known when it got its slot
	again     bool        // a message arrived since then
	marks     []mark      // stops that arrived before it began
	sess      *session[M] // nil when the turn has ended
	cancel    context.CancelCauseFunc
	cause     *CancelCause  // set once, by the first cancellation
	forced    *CancelCause  // the cause that cancelled the context of a settled turn
	grace     *time.Timer   // runs from the cancellation on
	slot      bool          // holds a slot of its lane
	held      *principal[M] // the principal whose place it holds; nil when it has no bound, or is inside Yield
	away      bool          // is inside Yield, without a slot
	settled   bool          // stops no longer affect it
	stuck     bool
	over      bool
	input     chan struct{} // created by AcceptInput
	granted   chan struct{} // closed when the turn has a slot again; nil while it does not wait for one
	taken     *entry[M]     // messages that were steered into it, chained
	lastTaken *entry[M]
	outcome   Outcome // set once; read without the mutex by the goroutine that set it
	err       error
}

// RunID is the id of the turn: that of its leading message, or the RunID of that message.
func (t *Turn[M]) RunID() string { return t.runID }

// Session is the key of the conversation.
func (t *Turn[M]) Session() string { return t.lead.item().Session }

// Lane is the name of the lane whose slot the turn holds.
func (t *Turn[M]) Lane() string { return t.lane.Name }

// Items are the messages of the turn in order; the last one leads. The slice belongs to the
// scheduler and must not be modified. It does not contain messages from TakeInput.
func (t *Turn[M]) Items() []Item[M] { return t.items }

// SeqFrom is the sequence number of the first message.
func (t *Turn[M]) SeqFrom() int64 { return t.first.item().Seq }

// SeqTo is the sequence number of the leading message.
func (t *Turn[M]) SeqTo() int64 { return t.lead.item().Seq }

// Waited is the time from the acceptance of the first message to the start.
func (t *Turn[M]) Waited() time.Duration { return t.started - t.first.at }

// Cause is why the turn was cancelled, nil when it was not. Inside Run, context.Cause of the
// context is the same.
func (t *Turn[M]) Cause() *CancelCause {
	t.s.mu.Lock()
	defer t.s.mu.Unlock()
	return t.cause
}

// Settle protects the turn from stops, interrupts and resets, which would otherwise end a turn as
// stopped while its answer is being written. It returns nil when the turn is now settled; the
// *CancelCause when a stop was faster, and the result must then not be used; ErrTurnOver when the
// turn has returned. Call it immediately before the last durable write. The end of a drain and
// Cancel still cancel the context of a settled turn, but its outcome follows from the result of
// Run.
func (t *Turn[M]) Settle() error {
	fx := t.s.begin()
	t.s.mu.Lock()
	err := t.s.core.settleTurn(t, &fx)
	t.s.mu.Unlock()
	t.s.perform(&fx)
	return err
}

// Began declares that the turn has begun with these messages, in order: the next turn of its
// session may start now, within the session's limit. It is only used with Config.Begins. The
// messages are those that the store has chosen; the scheduler needs not know them, and one that it
// started the turn for waits again unless it is among them. No messages mean that one. A stop that
// arrived since the slot was given cancels the turn now if it covers its messages.
func (t *Turn[M]) Began(runID string, messages ...Item[M]) {
	fx := t.s.begin()
	t.s.mu.Lock()
	if x := t.sess; x != nil && !t.begun {
		t.s.core.began(t, x, runID, messages, &fx)
	}
	t.s.mu.Unlock()
	t.s.perform(&fx)
	t.s.out.started(t)
}

// Nothing is why a slot began no turn.
type Nothing struct {
	// Wait is how long the session starts no turn, unless something happens to it; 0 = a second.
	Wait time.Duration
	// Window: it waits because a person may still be typing.
	Window bool
	// Lost: the session belongs to another process. Its messages are removed without an outcome.
	Lost bool
	// First and Last are as in [Turn.Gone]; Last 0 = unknown.
	First, Last int64
}

// BeganNothing declares that the store began no turn, and why; Run then returns. The message for
// which the slot was given waits again.
func (t *Turn[M]) BeganNothing(why Nothing) { t.nothing = &why }

// Gone removes waiting messages without an outcome: those before first, or up to last when first is
// 0. The store has told that they do not wait: they ended, or run.
func (t *Turn[M]) Gone(first, last int64) {
	fx := t.s.begin()
	t.s.mu.Lock()
	if x := t.sess; x != nil && t.gen == x.gen {
		t.s.core.gone(x, first, last, &fx)
		t.s.core.settle(x, &fx)
	}
	t.s.mu.Unlock()
	t.s.perform(&fx)
}

// Front is the message for which the turn got its slot.
func (t *Turn[M]) Front() *Item[M] { return t.front.item() }

// RunsOfSession are the ids of the running turns of its session that have begun, and the threads of
// those that take input.
func (t *Turn[M]) RunsOfSession() (ids, inputs []string) {
	t.s.mu.Lock()
	defer t.s.mu.Unlock()
	if t.sess == nil {
		return nil, nil
	}
	for _, r := range t.sess.running {
		if r.begun {
			ids = append(ids, r.runID)
		}
		if r.takesInput() {
			inputs = append(inputs, r.lead.item().Thread)
		}
	}
	return ids, inputs
}

// mark is a stop of a turn whose messages were not known yet.
type mark struct {
	id    string // of the run or one of its messages; "" = any
	upto  int64  // the number of its last message is at most this; 0 = any
	cause *CancelCause
}

// began gives the turn its messages.
func (c *core[M]) began(t *Turn[M], x *session[M], runID string, messages []Item[M], fx *effects[M]) {
	t.begun = true
	if x.begins == t {
		x.begins = nil
	}
	if len(messages) > 0 {
		c.exchange(t, x, messages, fx)
	}
	if runID != "" {
		t.runID = runID
	}
	for _, m := range t.marks {
		if (m.id == "" || t.named(m.id)) && (m.upto == 0 || t.lead.item().Seq <= m.upto) {
			c.turns.cancel(t, m.cause, fx)
		}
	}
	t.marks = nil
	c.settle(x, fx)
}

// exchange replaces the message for which the turn got its slot by those that the store has chosen.
func (c *core[M]) exchange(t *Turn[M], x *session[M], messages []Item[M], fx *effects[M]) {
	front, had := t.front, false
	var first, last *entry[M]
	for i := range messages {
		it := &messages[i]
		e := front
		if front.item().Seq == it.Seq {
			had = true
		} else if at, known := x.findSeq(it.Seq); known != nil {
			e = known
			x.remove(at)
		} else { // another process has accepted it
			e = c.entry(it, c.lanes.find(it.Lane, fx), fx)
			e.who.rest()
			x.last = max(x.last, it.Seq)
		}
		e.turnOf, e.next = t, nil
		if first == nil {
			first = e
		} else {
			last.next = e
		}
		last = e
	}
	c.tally.outcomes[OutcomeMerged.index()] += len(messages) - 1
	t.items = make([]Item[M], 0, len(messages))
	for e := first; e != nil; e = e.next {
		t.items = append(t.items, *e.item())
	}
	t.first, t.lead = first, last
	t.runID = last.item().ID
	if last.item().RunID != "" {
		t.runID = last.item().RunID
	}
	if !had {
		c.back(front, x, fx)
	}
}

// back returns a message to the waiting ones of its session.
func (c *core[M]) back(e *entry[M], x *session[M], fx *effects[M]) {
	e.turnOf = nil
	e.who = c.principals.of(e.item().Principal)
	x.insert(e)
	if c.draining {
		c.queues.empty(x, OutcomeCleared, ErrGatewayDraining, fx)
	}
}

// gone implements Gone.
func (c *core[M]) gone(x *session[M], first, last int64, fx *effects[M]) {
	heard := x.heard
	for e := x.front(); e != nil && (first > 0 && e.item().Seq < first || first == 0 && e.item().Seq <= last); e = x.front() {
		c.queues.endOne(x, x.head, OutcomeMerged, ErrMerged, fx)
	}
	x.heard = heard
}

// settleTurn implements Settle.
func (c *core[M]) settleTurn(t *Turn[M], fx *effects[M]) error {
	if t.cause != nil {
		return t.cause
	}
	if t.over {
		return ErrTurnOver
	}
	t.settled = true
	c.settle(t.sess, fx) // it takes no input any more: messages that waited for it may start
	return nil
}

// setCause records why the turn was cancelled. From now on the lane counts an active turn as
// stopping.
func (t *Turn[M]) setCause(cause *CancelCause) {
	t.cause = cause
	if t.slot {
		t.lane.stopping++
	}
}

// find searches the messages of the turn.
func (t *Turn[M]) find(match func(*Item[M]) bool) *entry[M] {
	for _, chain := range []*entry[M]{t.first, t.taken} {
		for e := chain; e != nil; e = e.next {
			if match(e.item()) {
				return e
			}
		}
	}
	return nil
}

// named reports whether id is the turn's own or that of one of its messages.
func (t *Turn[M]) named(id string) bool {
	return t.runID == id || t.find(func(it *Item[M]) bool { return it.ID == id }) != nil
}

// turns are the counters of running turns, and the rules by which a turn begins, is cancelled,
// becomes stuck and ends. The state of one turn is in Turn. Slots belong to lanes, and the turn's
// place to its session.
type turns[M any] struct {
	running   int
	stuck     int // running turns past their grace
	discarded int // running turns whose outcome is decided: their results are discarded

	s       *Scheduler[M] // for the methods of Turn and the timers, which take the mutex
	tally   *tally
	pending *pending
}

// begin makes a message that has left the queue a turn. Its id becomes the id of the turn.
func (ts *turns[M]) begin(u *entry[M], x *session[M], now time.Duration) *Turn[M] {
	t := &u.turn
	if u.used { // it began nothing before, and others may still read that turn
		t = &Turn[M]{}
	}
	u.used = true
	lead := u.item()
	*t = Turn[M]{s: ts.s, sess: x, lane: u.lane, front: u, first: u, lead: u, runID: lead.ID, gen: x.gen, started: now, items: u.box[:]}
	if lead.RunID != "" {
		t.runID = lead.RunID
	}
	u.turnOf, u.next = t, nil
	ts.running++
	ts.pending.add()
	ts.tally.turns++
	return t
}

// cancel asks a turn to stop; false when it was asked before, is settled or has ended.
func (ts *turns[M]) cancel(t *Turn[M], cause *CancelCause, fx *effects[M]) bool {
	return ts.cancelWithin(t, cause, ts.s.cfg.StopGrace, fx)
}

func (ts *turns[M]) cancelWithin(t *Turn[M], cause *CancelCause, grace time.Duration, fx *effects[M]) bool {
	if t.over || t.cause != nil || t.settled {
		return false
	}
	t.setCause(cause)
	ts.cancelContext(t, cause, grace, fx)
	return true
}

// force cancels a turn even if it is settled. A settled one may still succeed; until its grace has
// passed, its outcome follows from its result.
func (ts *turns[M]) force(t *Turn[M], cause *CancelCause, grace time.Duration, fx *effects[M]) {
	if ts.cancelWithin(t, cause, grace, fx) || t.over || t.cause != nil || t.forced != nil {
		return
	}
	t.forced = cause
	ts.cancelContext(t, cause, grace, fx)
}

// cancelContext cancels the context of the turn and starts the grace. A turn whose goroutine has
// not begun reads the cause when it does.
func (ts *turns[M]) cancelContext(t *Turn[M], cause *CancelCause, grace time.Duration, fx *effects[M]) {
	if t.cancel != nil {
		fx.cancels = append(fx.cancels, cancelCall{cancel: t.cancel, cause: cause})
	}
	ts.pending.add()
	t.grace = time.AfterFunc(grace, func() { ts.s.graceOver(t) })
}

// markStuck marks the turn as stuck; false when it has returned while the timer fired. For a
// settled turn that was forced to stop, the grace has passed: the forced cause becomes its cause.
func (ts *turns[M]) markStuck(t *Turn[M]) bool {
	if t.over || t.stuck {
		return false
	}
	t.stuck = true
	ts.stuck++
	if t.cause == nil && t.forced != nil {
		t.setCause(t.forced)
	}
	return true
}

// giveUp decides the outcome of a turn that has not returned; false when it was decided before. The
// turn keeps its slot and its place until it returns, because only then is it certain that it has
// no further effects.
func (ts *turns[M]) giveUp(t *Turn[M]) (decided bool) {
	if t.over || !ts.decide(t, nil) {
		return false
	}
	ts.discarded++
	return true
}

// finish records that Run has ended with err, and reports whether this decided the outcome.
func (ts *turns[M]) finish(t *Turn[M], err error) (decided bool) {
	t.over = true
	if t.grace != nil && t.grace.Stop() {
		ts.pending.done()
	}
	if t.stuck {
		ts.stuck--
	}
	ts.running--
	if t.nothing != nil && t.outcome == "" && t.cause == nil {
		ts.tally.turns--
		t.lane.started--
		return false
	}
	t.nothing = nil
	decided = ts.decide(t, err)
	if !decided {
		ts.discarded--
	}
	return decided
}

// decide sets the outcome of the turn's leading message; false when it was set before. For a
// cancelled turn the cause decides, whatever it returned, because its result came too late.
func (ts *turns[M]) decide(t *Turn[M], err error) bool {
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
	ts.tally.outcomes[t.outcome.index()]++
	return true
}

// AcceptInput declares that the runner can take messages during the turn, and returns a channel
// that signals that some may be available. A wake-up means "call TakeInput"; several may be
// coalesced, and one may find nothing. From now on messages in mode steer wait for the turn; those
// that it has not taken when it returns run as turns of their own. The channel is never closed, so
// select on the context too.
func (t *Turn[M]) AcceptInput() <-chan struct{} {
	fx := t.s.begin()
	t.s.mu.Lock()
	if t.input == nil {
		t.input = make(chan struct{}, 1)
		if !t.over {
			t.s.core.settle(t.sess, &fx) // a message that waits to be steered is announced
		}
	}
	input := t.input
	t.s.mu.Unlock()
	t.s.perform(&fx)
	return input
}

// TakeInput returns the messages that wait to be steered into this turn, in order, nil when none
// waits or when the turn was cancelled, settled or has ended. They end merged into this turn. It
// never blocks.
func (t *Turn[M]) TakeInput() []Item[M] {
	s := t.s
	fx := s.begin()
	s.mu.Lock()
	units := s.core.takeInput(t, &fx)
	s.mu.Unlock()
	s.perform(&fx)
	if len(units) == 0 {
		return nil
	}
	var items []Item[M]
	merged := &MergedError{RunID: t.runID}
	for _, u := range units {
		items = s.out.taken(t, u, merged, items)
	}
	return items
}

// takeInput moves steered units from the queue into the turn.
func (c *core[M]) takeInput(t *Turn[M], fx *effects[M]) []*entry[M] {
	if t.over || !t.takesInput() {
		return nil
	}
	x := t.sess
	var units []*entry[M]
	for u := x.front(); u != nil && t.wants(u); u = x.front() {
		units = append(units, x.pop())
		c.tally.outcomes[OutcomeMerged.index()]++
		t.absorb(u)
	}
	c.settle(x, fx)
	return units
}

// Returned makes messages that TakeInput returned wait again: the store did not let them join.
func (t *Turn[M]) Returned(messages ...Item[M]) {
	fx := t.s.begin()
	t.s.mu.Lock()
	c := &t.s.core
	if x := t.sess; x != nil && t.gen == x.gen && !c.draining {
		for i := range messages {
			it := &messages[i]
			var before *entry[M]
			e := t.taken
			for ; e != nil && e.item().Seq != it.Seq; e = e.next {
				before = e
			}
			if e == nil {
				continue
			}
			if before == nil {
				t.taken = e.next
			} else {
				before.next = e.next
			}
			if t.lastTaken == e {
				t.lastTaken = before
			}
			again := c.entry(it, e.lane, &fx)
			again.steer = e.steer
			x.insert(again)
		}
		c.settle(x, &fx)
	}
	t.s.mu.Unlock()
	t.s.perform(&fx)
}

// absorb records that the messages of the unit now belong to the turn.
func (t *Turn[M]) absorb(u *entry[M]) {
	u.turnOf = t
	if t.taken == nil {
		t.taken = u
	} else {
		t.lastTaken.next = u
	}
	t.lastTaken = u
}

// takesInput reports whether the turn can still receive steered messages.
func (t *Turn[M]) takesInput() bool { return t.input != nil && t.cause == nil && !t.settled }

// wants reports whether the unit may be steered into this turn: it must be answered in the same
// place.
func (t *Turn[M]) wants(u *entry[M]) bool {
	return u.steer && u.item().Thread == t.lead.item().Thread
}

// takesInput reports whether a running turn of the session takes messages during the turn.
func (x *session[M]) takesInput() bool { return slices.ContainsFunc(x.running, (*Turn[M]).takesInput) }

// steered reports whether a running turn will take the unit, and wakes that turn.
func (x *session[M]) steered(u *entry[M], fx *effects[M]) bool {
	i := slices.IndexFunc(x.running, func(t *Turn[M]) bool { return t.takesInput() && t.wants(u) })
	if i < 0 {
		return false
	}
	fx.wakes = append(fx.wakes, x.running[i].input)
	return true
}
