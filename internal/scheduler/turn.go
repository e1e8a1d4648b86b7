package scheduler

import (
	"context"
	"time"
)

// Turn is one execution over one or several messages. It is passed to Run and returned by stops. Its methods are safe for concurrent use; those with an effect
// refuse when the turn has ended.
type Turn[M any] struct {
	// Fixed at the start.
	s           *Scheduler[M]
	lane        *lane[M]
	first, lead *entry[M]
	items       []Item[M]
	runID       string
	gen         uint64
	started     time.Duration

	// Guarded by the scheduler's mutex.
	nextStart *Turn[M]
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

// Items are the messages of the turn in order; the last one leads. The slice belongs to the scheduler and must not be modified. It does not contain messages
// from TakeInput.
func (t *Turn[M]) Items() []Item[M] { return t.items }

// SeqFrom is the sequence number of the first message.
func (t *Turn[M]) SeqFrom() int64 { return t.first.item().Seq }

// SeqTo is the sequence number of the leading message.
func (t *Turn[M]) SeqTo() int64 { return t.lead.item().Seq }

// Waited is the time from the acceptance of the first message to the start.
func (t *Turn[M]) Waited() time.Duration { return t.started - t.first.at }

// Cause is why the turn was cancelled, nil when it was not. Inside Run, context.Cause of the context is the same.
func (t *Turn[M]) Cause() *CancelCause {
	t.s.mu.Lock()
	defer t.s.mu.Unlock()
	return t.cause
}

// Settle protects the turn from stops, interrupts and resets, which would otherwise end a turn as stopped while its answer is being written. It returns nil
// when the turn is now settled; the *CancelCause when a stop was faster, and the result must then not be used; ErrTurnOver when the turn has returned. Call it
// immediately before the last durable write. The end of a drain and Cancel still cancel the context of a settled turn, but its outcome follows from the result
// of Run.
func (t *Turn[M]) Settle() error {
	fx := t.s.begin()
	t.s.mu.Lock()
	err := t.s.core.settleTurn(t, &fx)
	t.s.mu.Unlock()
	t.s.perform(&fx)
	return err
}

// Began declares that the turn has begun: the next turn of its session may start now, within the session's limit. It is only used with Config.Begins; Run calls
// it when all work that depends on the order is done. A turn that returns without calling it counts as begun then.
func (t *Turn[M]) Began() {
	fx := t.s.begin()
	t.s.mu.Lock()
	if x := t.sess; x != nil && x.begins == t {
		x.begins = nil
		t.s.core.settle(x, &fx)
	}
	t.s.mu.Unlock()
	t.s.perform(&fx)
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

// setCause records why the turn was cancelled. From now on the lane counts an active turn as stopping.
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
