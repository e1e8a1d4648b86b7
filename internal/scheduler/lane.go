package scheduler

import "time"

// lane is a named limit on how many turns run at once. Every field is guarded by the scheduler's mutex.
type lane[M any] struct {
	name   string
	limit  int
	active int // slots in use; above limit for a while after the lane was shrunk

	// Sessions with a turn that may start. A session stands here once, however much it waits for, and goes to the end
	// after a start: sessions share the lane, not messages.
	ready line[M]
	// Turns that gave their slot back with Yield and want one again. They go before ready sessions: finishing what was
	// begun frees more than beginning anew.
	returning []*Turn[M]

	messages  int // waiting messages of all sessions
	stopping  int // active turns whose context was cancelled
	yielded   int // turns of the lane without a slot
	lastStart time.Duration

	started, answered, failed, cancelled int
}

// line is a list of sessions, first come first served. A session stands in one line at most: in the ready list of a lane,
// or among those that wait for a place of their owner.
type line[M any] struct {
	head, tail *session[M]
	count      int
}

// push puts the session at the end of the line.
func (l *line[M]) push(x *session[M]) {
	x.prev, x.next = l.tail, nil
	if l.tail == nil {
		l.head = x
	} else {
		l.tail.next = x
	}
	l.tail = x
	l.count++
}

// remove takes the session out of the line in which it stands.
func (l *line[M]) remove(x *session[M]) {
	if x.prev == nil {
		l.head = x.next
	} else {
		x.prev.next = x.next
	}
	if x.next == nil {
		l.tail = x.prev
	} else {
		x.next.prev = x.prev
	}
	x.prev, x.next = nil, nil
	l.count--
}

// push puts the session at the end of the ready list.
func (l *lane[M]) push(x *session[M], now time.Duration) {
	x.lane, x.readyAt = l, now
	l.ready.push(x)
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
