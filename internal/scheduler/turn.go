package scheduler

import (
	"context"
	"slices"
	"time"
)

// Turn is one execution. It is passed to Run. Its methods are safe for concurrent use; those with
// an effect refuse when the turn has ended.
type Turn struct {
	// Fixed at the start.
	s       *Scheduler
	key     string
	lane    *lane
	front   Wake // what waited first when it got its slot
	gen     uint64
	started time.Duration

	// Guarded by the scheduler's mutex.
	nextStart *Turn
	begun     bool     // what follows is known
	runID     string   // "" before
	messages  []string // their ids
	last      int64    // number of the last of them
	thread    string   // where they are answered
	nothing   *Nothing // no turn began; set by the goroutine of the turn
	again     bool     // a message arrived since it got its slot
	marks     []mark   // stops that arrived before it began
	sess      *session // nil when the turn has ended
	cancel    context.CancelCauseFunc
	cause     *CancelCause // set once, by the first cancellation
	forced    *CancelCause // the cause that cancelled the context of a settled turn
	grace     *time.Timer  // runs from the cancellation on
	slot      bool         // holds a slot of its lane
	held      *principal   // the principal whose place it holds; nil when it has no bound, or is inside Yield
	away      bool         // is inside Yield, without a slot
	settled   bool         // stops no longer affect it
	stuck     bool
	decided   bool // its end is counted
	over      bool
	input     chan struct{} // created by AcceptInput
	granted   chan struct{} // closed when the turn has a slot again; nil while it does not wait for one
}

// RunID is the id of the turn, "" before it has begun.
func (t *Turn) RunID() string {
	t.s.mu.Lock()
	defer t.s.mu.Unlock()
	return t.runID
}

// Session is the key of the conversation.
func (t *Turn) Session() string { return t.key }

// Lane is the name of the lane whose slot the turn holds.
func (t *Turn) Lane() string { return t.lane.Name }

// Front is what waited first in the session when the turn got its slot.
func (t *Turn) Front() Wake { return t.front }

// Cause is why the turn was cancelled, nil when it was not. Inside Run, context.Cause of the
// context is the same.
func (t *Turn) Cause() *CancelCause {
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
func (t *Turn) Settle() error {
	fx := t.s.begin()
	t.s.mu.Lock()
	err := t.s.core.settleTurn(t, &fx)
	t.s.mu.Unlock()
	t.s.perform(&fx)
	return err
}

// Batch is what the store has chosen for a turn.
type Batch struct {
	// RunID is the id of the turn, Messages are those of its messages, and Last is the number of the
	// last one.
	RunID    string
	Messages []string
	Last     int64
	// Thread is where the turn is answered.
	Thread string
	// Left is what waits first afterwards; nil = nothing waits. Seen is the highest number of the
	// session then.
	Left *Wake
	Seen int64
}

// Began declares that the turn has begun: the next turn of its session may start now, within the
// session's limit. A stop that arrived since the slot was given cancels the turn now if it covers
// its messages.
func (t *Turn) Began(b Batch) {
	fx := t.s.begin()
	t.s.mu.Lock()
	if x := t.sess; x != nil && !t.begun {
		t.s.core.began(t, x, &b, &fx)
	}
	t.s.mu.Unlock()
	t.s.perform(&fx)
}

// Nothing is why a slot began no turn.
type Nothing struct {
	// Wait is how long the window of the first messages stays open: a person may still be typing.
	// Without one, the session starts no turn for a second, unless something happens to it.
	Wait time.Duration
	// Unknown: the store did not answer.
	Unknown bool
	// Left and Seen are those of a Batch.
	Left *Wake
	Seen int64
}

// BeganNothing declares that the store began no turn, and why; Run then returns. The zero value says
// that the session belongs to another process.
func (t *Turn) BeganNothing(why Nothing) { t.nothing = &why }

// Took declares that the turn has taken messages with these ids as input, and what waits first in
// the session now; nil = nothing does. seen is as in [Scheduler.Front].
func (t *Turn) Took(messages []string, seen int64, first *Wake) {
	fx := t.s.begin()
	t.s.mu.Lock()
	t.messages = append(t.messages, messages...)
	if x := t.sess; x != nil && t.gen == x.gen && x.heard <= seen && !t.s.core.draining {
		t.s.core.queues.left(x, first, 0)
		t.s.core.settle(x, &fx)
	}
	t.s.mu.Unlock()
	t.s.perform(&fx)
}

// RunsOfSession are the ids of the running turns of its session that have begun, and the threads of
// those that take input.
func (t *Turn) RunsOfSession() (ids, inputs []string) {
	t.s.mu.Lock()
	defer t.s.mu.Unlock()
	if t.sess == nil {
		return nil, nil
	}
	for _, r := range t.sess.running {
		if r.begun {
			ids = append(ids, r.runID)
		}
	}
	return ids, t.sess.state().Inputs
}

// mark is a stop of a turn whose messages were not known yet.
type mark struct {
	id    string // of the run or one of its messages; "" = any
	upto  int64  // the number of its last message is at most this; 0 = any
	cause *CancelCause
}

// began implements Began.
func (c *core) began(t *Turn, x *session, b *Batch, fx *effects) {
	t.begun, t.runID, t.messages, t.last, t.thread = true, b.RunID, b.Messages, b.Last, b.Thread
	if x.begins == t {
		x.begins = nil
	}
	for _, m := range t.marks {
		if (m.id == "" || t.named(m.id)) && (m.upto == 0 || t.last <= m.upto) {
			c.turns.cancel(t, m.cause, fx)
		}
	}
	t.marks = nil
	if t.gen == x.gen && !c.draining && (b.Left != nil || x.heard <= b.Seen) {
		c.queues.left(x, b.Left, b.Seen)
	}
	c.settle(x, fx)
}

// settleTurn implements Settle.
func (c *core) settleTurn(t *Turn, fx *effects) error {
	if t.cause != nil {
		return t.cause
	}
	if t.over {
		return ErrTurnOver
	}
	t.settled = true
	if x := t.sess; t.input != nil && x.waits && !x.window { // it takes no input any more: messages that waited for it may start
		c.queues.endWait(x)
	}
	c.settle(t.sess, fx)
	return nil
}

// setCause records why the turn was cancelled. From now on the lane counts an active turn as
// stopping.
func (t *Turn) setCause(cause *CancelCause) {
	t.cause = cause
	if t.slot {
		t.lane.stopping++
	}
}

// named reports whether id is the turn's own or that of one of its messages.
func (t *Turn) named(id string) bool { return t.runID == id || slices.Contains(t.messages, id) }

// turns are the counters of running turns, and the rules by which a turn begins, is cancelled,
// becomes stuck and ends. The state of one turn is in Turn. Slots belong to lanes, and the turn's
// place to its session.
type turns struct {
	running   int
	stuck     int // running turns past their grace
	discarded int // running turns whose outcome is decided: their results are discarded

	s       *Scheduler // for the methods of Turn and the timers, which take the mutex
	pending *pending
}

// begin makes a turn of a session.
func (ts *turns) begin(x *session, l *lane, now time.Duration) *Turn {
	ts.running++
	ts.pending.add()
	return &Turn{s: ts.s, key: x.key, sess: x, lane: l, front: *x.front, gen: x.gen, started: now}
}

// cancel asks a turn to stop; false when it was asked before, is settled or has ended.
func (ts *turns) cancel(t *Turn, cause *CancelCause, fx *effects) bool {
	return ts.cancelWithin(t, cause, ts.s.cfg.StopGrace, fx)
}

func (ts *turns) cancelWithin(t *Turn, cause *CancelCause, grace time.Duration, fx *effects) bool {
	if t.over || t.cause != nil || t.settled {
		return false
	}
	t.setCause(cause)
	ts.cancelContext(t, cause, grace, fx)
	return true
}

// force cancels a turn even if it is settled. A settled one may still succeed; until its grace has
// passed, its outcome follows from its result.
func (ts *turns) force(t *Turn, cause *CancelCause, grace time.Duration, fx *effects) {
	if ts.cancelWithin(t, cause, grace, fx) || t.over || t.cause != nil || t.forced != nil {
		return
	}
	t.forced = cause
	ts.cancelContext(t, cause, grace, fx)
}

// cancelContext cancels the context of the turn and starts the grace. A turn whose goroutine has
// not begun reads the cause when it does.
func (ts *turns) cancelContext(t *Turn, cause *CancelCause, grace time.Duration, fx *effects) {
	if t.cancel != nil {
		fx.cancels = append(fx.cancels, cancelCall{cancel: t.cancel, cause: cause})
	}
	ts.pending.add()
	t.grace = time.AfterFunc(grace, func() { ts.s.graceOver(t) })
}

// markStuck marks the turn as stuck; false when it has returned while the timer fired. For a
// settled turn that was forced to stop, the grace has passed: the forced cause becomes its cause.
func (ts *turns) markStuck(t *Turn) bool {
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

// giveUp decides the outcome of a turn that has not returned. The turn keeps its slot and its place
// until it returns, because only then is it certain that it has no further effects.
func (ts *turns) giveUp(t *Turn) {
	if !t.over && ts.decide(t, nil) {
		ts.discarded++
	}
}

// finish records that Run has ended with err.
func (ts *turns) finish(t *Turn, err error) {
	t.over = true
	if t.grace != nil && t.grace.Stop() {
		ts.pending.done()
	}
	if t.stuck {
		ts.stuck--
	}
	ts.running--
	switch {
	case t.decided:
		ts.discarded--
	case t.nothing != nil && t.cause == nil && err == nil:
		t.lane.started--
	default:
		ts.decide(t, err)
	}
}

// decide counts the end of the turn; false when it was counted before. For a cancelled turn the
// cause decides, whatever it returned, because its result came too late.
func (ts *turns) decide(t *Turn, err error) bool {
	if t.decided {
		return false
	}
	t.decided = true
	switch {
	case t.cause != nil:
		t.lane.cancelled++
	case err != nil:
		t.lane.failed++
	default:
		t.lane.answered++
	}
	return true
}

// AcceptInput declares that the runner can take messages during the turn, and returns a channel
// that signals that some may wait: it is to ask the store. Several signals may be coalesced, and
// one may find nothing. From now on messages in mode steer wait for the turn; those that it has not
// taken when it returns run as turns of their own. The channel is never closed, so select on the
// context too.
func (t *Turn) AcceptInput() <-chan struct{} {
	t.s.mu.Lock()
	defer t.s.mu.Unlock()
	if t.input == nil {
		t.input = make(chan struct{}, 1)
		t.input <- struct{}{} // what waits already
	}
	return t.input
}

// TakesInput reports whether the turn can still receive messages.
func (t *Turn) TakesInput() bool {
	t.s.mu.Lock()
	defer t.s.mu.Unlock()
	return !t.over && t.takesInput()
}

// takesInput implements TakesInput for a turn that runs.
func (t *Turn) takesInput() bool { return t.input != nil && t.cause == nil && !t.settled }
