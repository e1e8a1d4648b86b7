package scheduler

import "time"

// lane is a named limit on how many turns run at once. Every field is guarded by the scheduler's mutex.
type lane[M any] struct {
	name   string
	limit  int
	active int // slots in use; above limit for a while after the lane was shrunk

	// Sessions with a turn that may start, first come first served. A session stands here once, however much it
	// waits for, and goes to the end after a start: sessions share the lane, not messages.
	readyHead, readyTail *session[M]
	readyCount           int
	// Turns that gave their slot back with Yield and want one again. They go before ready sessions: finishing what was
	// begun frees more than beginning anew.
	returning []*Turn[M]

	messages  int // waiting messages of all sessions
	stopping  int // active turns whose context was cancelled
	yielded   int // turns of the lane without a slot
	lastStart time.Duration

	started, answered, failed, cancelled int
}

// push puts the session at the end of the ready list.
func (l *lane[M]) push(x *session[M], now time.Duration) {
	x.lane, x.readyAt = l, now
	x.prev, x.next = l.readyTail, nil
	if l.readyTail == nil {
		l.readyHead = x
	} else {
		l.readyTail.next = x
	}
	l.readyTail = x
	l.readyCount++
}

// unlink takes the session out of the ready list in which it stands, if any.
func (x *session[M]) unlink() {
	l := x.lane
	if l == nil {
		return
	}
	if x.prev == nil {
		l.readyHead = x.next
	} else {
		x.prev.next = x.next
	}
	if x.next == nil {
		l.readyTail = x.prev
	} else {
		x.next.prev = x.prev
	}
	x.lane, x.prev, x.next = nil, nil, nil
	l.readyCount--
}

// room reports whether a slot is free.
func (l *lane[M]) room() bool { return l.active < l.limit }

// acquire gives the turn a slot.
func (l *lane[M]) acquire(t *Turn[M]) {
	l.active++
	t.slot = true
	if t.cause != nil {
		l.stopping++
	}
}

// release takes the slot of the turn back, if it has one.
func (l *lane[M]) release(t *Turn[M]) {
	if !t.slot {
		return
	}
	l.active--
	t.slot = false
	if t.cause != nil {
		l.stopping--
	}
}
