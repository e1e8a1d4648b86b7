package scheduler

import (
	"slices"
	"time"
)

const (
	maxSpare  = 4096 // pooled records while others are in use
	idleSpare = 256  // pooled records when none is in use
	shrinkAt  = 4096 // a map that held more records than this is replaced when it is empty, together with the pool
)

// queues are the sessions by key, with their waiting messages. It creates and removes sessions, runs their debounce windows and ends waiting messages. The
// session itself manages the order of its messages.
type queues[M any] struct {
	byKey      map[string]*session[M]
	peak       int // the most sessions since the map was created
	spare      []*session[M]
	cutoffs    cutoffs
	suspended  map[string]int // sessions that start no turn, with the number of active Suspend calls
	gen        uint64         // resets plus one
	debouncing int            // messages in open windows

	windowOver func(x *session[M], window uint64) // called by the timer of a window, without the mutex
	tally      *tally
	pending    *pending
}

// open returns the session, created if needed.
func (q *queues[M]) open(key string, cutoff int64) *session[M] {
	if x, ok := q.byKey[key]; ok {
		return x
	}
	var x *session[M]
	if n := len(q.spare); n > 0 {
		x, q.spare[n-1] = q.spare[n-1], nil
		q.spare = q.spare[:n-1]
	} else {
		x = newSession[M]()
	}
	x.key, x.gen, x.last = key, q.gen, cutoff
	q.byKey[key] = x
	q.peak = max(q.peak, len(q.byKey))
	return x
}

// forget removes an idle session and keeps its memory for the next one.
func (q *queues[M]) forget(x *session[M]) {
	delete(q.byKey, x.key)
	x.recycle()
	if len(q.spare) < maxSpare {
		q.spare = append(q.spare, x)
	}
	if len(q.byKey) == 0 {
		q.shrink()
	}
}

// shrink frees the memory after a burst of sessions. Go's maps never shrink, so a large one is replaced.
func (q *queues[M]) shrink() {
	if q.peak > shrinkAt {
		q.byKey, q.spare, q.peak = map[string]*session[M]{}, nil, 0
	}
	if len(q.spare) > idleSpare {
		q.spare = slices.Clone(q.spare[:idleSpare])
	}
}

// openWindow starts the window of the last unit.
func (q *queues[M]) openWindow(x *session[M], u *entry[M], now time.Duration) {
	if x.set.cuts(u.count, u.bytes) {
		return
	}
	u.open = true
	q.debouncing++
	x.hold = now + x.set.hold()
	x.deadline = min(now+x.set.Debounce, x.hold)
	x.window++
	window := x.window
	q.pending.add()
	x.timer = time.AfterFunc(x.deadline-now, func() { q.windowOver(x, window) })
}

// extendWindow adds a message to the open window and reports whether that completed the batch, which closes the window. The caller then settles the session.
func (q *queues[M]) extendWindow(x *session[M], e *entry[M], now time.Duration) (complete bool) {
	u := x.back()
	u.join(e)
	x.account(e, 1)
	q.debouncing++
	x.deadline = min(now+x.set.Debounce, x.hold)
	return x.set.cuts(u.count, u.bytes) && q.closeWindow(x)
}

// closeWindow closes the open window, if any; its messages then wait. The caller settles the session.
func (q *queues[M]) closeWindow(x *session[M]) bool {
	if !x.buffers() {
		return false
	}
	if x.timer.Stop() {
		q.pending.done()
	}
	q.shut(x)
	return true
}

// shut marks the window of the last unit as closed. A timer that fires later finds another window number.
func (q *queues[M]) shut(x *session[M]) {
	u := x.back()
	u.open = false
	q.debouncing -= u.count
	x.window++
	x.timer = nil
}

// empty ends all waiting messages of the session. It takes constant time, because the session has already counted them.
func (q *queues[M]) empty(x *session[M], o Outcome, err error, fx *effects[M]) {
	q.closeWindow(x)
	n := x.waiting
	q.end(goneUnits[M]{units: x.detach(), outcome: o, err: err}, n, fx)
}

// endFirst ends the first waiting unit of the session, including its window; a no-op when none waits.
func (q *queues[M]) endFirst(x *session[M], o Outcome, err error, fx *effects[M]) {
	u := x.front()
	if u == nil {
		return
	}
	if u.open {
		q.closeWindow(x)
	}
	q.end(goneUnits[M]{units: []*entry[M]{x.pop()}, outcome: o, err: err}, u.count, fx)
}

// endOne ends one waiting message, which is in the unit at index i.
func (q *queues[M]) endOne(x *session[M], i int, e *entry[M], o Outcome, err error, fx *effects[M]) {
	if u := x.units[i]; u.open && u.count == 1 {
		q.closeWindow(x)
	} else if u.open {
		q.debouncing--
	}
	x.remove(i, e)
	q.end(goneUnits[M]{units: []*entry[M]{e}, outcome: o, err: err}, 1, fx)
}

// end decides the outcome of units that were removed from their session and contain n messages.
func (q *queues[M]) end(gone goneUnits[M], n int, fx *effects[M]) {
	if n == 0 {
		return
	}
	q.tally.outcomes[gone.outcome.index()] += n
	fx.gone = append(fx.gone, gone)
}
