package scheduler

import (
	"sync"
	"time"
)

// shrinkAt is how many records a map had before it is replaced when it is empty: Go's maps never
// shrink.
const shrinkAt = 4096

// queues are the sessions by key. It creates and removes sessions, and runs their waits.
type queues struct {
	byKey     map[string]*session
	peak      int                   // the most sessions since the map was created
	waiting   int                   // messages that wait in all sessions
	suspended map[string]int        // sessions that start no turn, with the number of active Suspend calls
	gen       uint64                // resets plus one
	typing    map[*session]struct{} // sessions that wait because a person may still be typing

	waitOver func(x *session, alarm uint64) // called by the timer of a wait, without the mutex
	pending  *pending
}

// open returns the session, created if needed.
func (q *queues) open(key string) *session {
	x, ok := q.byKey[key]
	if !ok {
		x = &session{key: key, gen: q.gen}
		q.byKey[key] = x
		q.peak = max(q.peak, len(q.byKey))
	}
	return x
}

// forget removes an idle session.
func (q *queues) forget(x *session) {
	q.endWait(x)
	q.left(x, nil, 0)
	delete(q.byKey, x.key)
	if len(q.byKey) == 0 && q.peak > shrinkAt {
		q.byKey, q.peak = map[string]*session{}, 0
	}
}

// left stores what waits first in the session according to the store, which knew the numbers up to
// seen (0 = all); nil = nothing waits.
func (q *queues) left(x *session, first *Wake, seen int64) {
	n := 0
	if x.front = first; first != nil {
		n = max(first.Waiting, 1)
	}
	if seen > 0 && x.heard > seen {
		n += int(x.heard - seen)
	}
	q.count(x, n)
}

// count stores how many messages wait in the session.
func (q *queues) count(x *session, n int) {
	q.waiting += n - x.waiting
	x.waiting = n
}

// wait keeps the session from starting a turn for d.
func (q *queues) wait(x *session, now, d time.Duration, window bool) {
	q.endWait(x)
	x.waits, x.window, x.until, x.burst = true, window, now+d, burst{}
	if window {
		q.typing[x] = struct{}{}
	}
	alarm := x.alarm
	q.pending.add()
	x.timer = time.AfterFunc(d, func() { q.waitOver(x, alarm) })
}

// endWait ends the wait of the session, if it waits. The caller settles the session. A timer that
// fires later finds another number.
func (q *queues) endWait(x *session) bool {
	if !x.waits {
		return false
	}
	if x.timer.Stop() {
		q.pending.done()
	}
	delete(q.typing, x)
	x.waits, x.window, x.timer = false, false, nil
	x.alarm++
	return true
}

// Suspend prevents the session from starting turns until resume is called; running turns continue,
// and messages are accepted and wait. It is for a caller that stops a session in two steps: it
// cancels the turns here immediately and then writes the stop into a durable store. Without
// Suspend, a message that arrives between the two steps would start in place of a cancelled turn
// although the store is about to end it. Calls are counted, so that two stops of one session may
// overlap; further calls of one resume function have no effect. Neither function blocks.
func (s *Scheduler) Suspend(key string) (resume func()) {
	s.suspend(key, 1)
	return sync.OnceFunc(func() { s.suspend(key, -1) })
}

// suspend changes the count of the session by one, up or down, and settles the session: it leaves
// the ready list or returns to it.
func (s *Scheduler) suspend(key string, by int) {
	fx := s.begin()
	s.mu.Lock()
	s.core.queues.suspend(key, by)
	if x, ok := s.core.queues.byKey[key]; ok {
		s.core.settle(x, &fx)
	}
	s.mu.Unlock()
	s.perform(&fx)
}

func (q *queues) suspend(key string, by int) {
	if q.suspended == nil {
		q.suspended = map[string]int{}
	}
	if q.suspended[key] += by; q.suspended[key] == 0 {
		delete(q.suspended, key)
	}
}

func (q *queues) isSuspended(key string) bool { return len(q.suspended) > 0 && q.suspended[key] > 0 }

// principal is the state of one principal: the lines of its sessions, and the number of its bounded
// turns. It exists while a session is in a line of it, or it holds a place. Every field is guarded
// by the scheduler's mutex.
type principal struct {
	name     string
	all      *principals
	standing int // sessions in the ready lists of lanes
	used     int // places held: turns, and sessions in a ready list; above the bound for a while when turns return from Yield
	waiting  line
	first    subqueue // nearly every principal uses only one lane
	more     []*subqueue
}

// subqueue is the element of one principal in the ring of one lane.
type subqueue struct {
	lane       *lane
	who        *principal
	ready      line      // sessions with a turn that may start
	prev, next *subqueue // in the ring
}

// principals are the records by name.
type principals struct {
	byName map[string]*principal
	peak   int // the most records since the map was created
	bound  int // bounded turns that one principal may have concurrently; 0 = any number
}

// of returns the record of a name, created if needed. The caller adds a session or a place before
// it releases the mutex.
func (p *principals) of(name string) *principal {
	who, ok := p.byName[name]
	if !ok {
		who = &principal{name: name, all: p}
		p.byName[name] = who
		p.peak = max(p.peak, len(p.byName))
	}
	return who
}

// rest removes the record when the principal is idle, so that an idle one needs no memory. It may
// be called at any time.
func (who *principal) rest() {
	p := who.all
	if who.standing > 0 || who.used > 0 || who.waiting.count > 0 || p.byName[who.name] != who {
		return
	}
	delete(p.byName, who.name)
	if len(p.byName) == 0 && p.peak > shrinkAt {
		p.byName, p.peak = map[string]*principal{}, 0
	}
}

// subqueue finds the subqueue of the principal in a lane.
func (who *principal) subqueue(l *lane) *subqueue {
	if who.first.lane == nil {
		who.first = subqueue{lane: l, who: who, ready: line{link: inSubqueue}}
	}
	if who.first.lane == l {
		return &who.first
	}
	for _, t := range who.more {
		if t.lane == l {
			return t
		}
	}
	t := &subqueue{lane: l, who: who, ready: line{link: inSubqueue}}
	who.more = append(who.more, t)
	return t
}

// bounded reports whether the turn of the message counts for its principal.
func (p *principals) bounded(w *Wake) bool { return p.bound > 0 && w.Bounded }

// placed reports whether the session is already in the line of its first message. Then nothing
// needs to be done, and the session keeps its position in the line.
func (p *principals) placed(x *session, l *lane) bool {
	switch who := x.held; {
	case who == nil:
		return x.lane == l && x.subqueue.who.name == x.front.Principal && !p.bounded(x.front)
	case who.name != x.front.Principal || !p.bounded(x.front):
		return false
	case x.lane == nil:
		return who.used >= p.bound
	default:
		return x.lane == l
	}
}

// reserve takes a place for the session's next turn. Without a free one it puts the session into
// the principal's line and returns false.
func (p *principals) reserve(x *session) bool {
	if !p.bounded(x.front) {
		return true
	}
	who := p.of(x.front.Principal)
	x.held = who
	if who.used >= p.bound {
		who.waiting.push(x)
		return false
	}
	who.used++
	return true
}

// unlink removes the session from its line, if any, and returns the principal that thereby got a
// free place.
func (x *session) unlink() (freed *principal) {
	freed, x.held = x.held, nil
	switch {
	case x.lane != nil:
		who := x.lane.leave(x)
		if freed != nil {
			freed.used--
			return freed
		}
		who.rest()
	case freed != nil:
		freed.waiting.remove(x)
		freed.rest()
	}
	return nil
}

// leaveLine removes the session from the ready list for the start of a turn, and returns the
// principal whose place the session held.
func (x *session) leaveLine() *principal {
	held := x.held
	x.held = nil
	x.lane.leave(x).rest()
	return held
}

// retake gives a place to a turn that returns from Yield, even if none is free: the turn has begun,
// and others may wait for it.
func (p *principals) retake(t *Turn) {
	if p.bounded(&t.front) {
		t.held = p.of(t.front.Principal)
		t.held.used++
	}
}
