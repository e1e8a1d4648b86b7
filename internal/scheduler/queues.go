package scheduler

import (
	"slices"
	"sync"
	"time"
)

const (
	maxSpare  = 4096 // pooled records while others are in use
	idleSpare = 256  // pooled records when none is in use
	shrinkAt  = 4096 // a map that held more records than this is replaced when it is empty, together with the pool
)

// queues are the sessions by key, with their waiting messages. It creates and removes sessions,
// runs their waits and ends waiting messages. The session itself manages the order of
// its messages.
type queues[M any] struct {
	byKey     map[string]*session[M]
	peak      int // the most sessions since the map was created
	spare     []*session[M]
	cutoffs   cutoffs
	suspended map[string]int           // sessions that start no turn, with the number of active Suspend calls
	gen       uint64                   // resets plus one
	typing    map[*session[M]]struct{} // sessions that wait because a person may still be typing

	waitOver func(x *session[M], alarm uint64) // called by the timer of a wait, without the mutex
	tally    *tally
	pending  *pending
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
	q.endWait(x)
	delete(q.byKey, x.key)
	x.recycle()
	if len(q.spare) < maxSpare {
		q.spare = append(q.spare, x)
	}
	if len(q.byKey) == 0 {
		q.shrink()
	}
}

// shrink frees the memory after a burst of sessions. Go's maps never shrink, so a large one is
// replaced.
func (q *queues[M]) shrink() {
	if q.peak > shrinkAt {
		q.byKey, q.spare, q.peak = map[string]*session[M]{}, nil, 0
	}
	if len(q.spare) > idleSpare {
		q.spare = slices.Clone(q.spare[:idleSpare])
	}
}

// wait keeps the session from starting a turn for d.
func (q *queues[M]) wait(x *session[M], now, d time.Duration, window bool) {
	q.endWait(x)
	x.waits, x.window, x.until = true, window, now+d
	if window {
		q.typing[x] = struct{}{}
	}
	alarm := x.alarm
	q.pending.add()
	x.timer = time.AfterFunc(d, func() { q.waitOver(x, alarm) })
}

// endWait ends the wait of the session, if it waits. The caller settles the session. A timer that
// fires later finds another number.
func (q *queues[M]) endWait(x *session[M]) bool {
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

// empty ends all waiting messages of the session. It takes constant time, because the session has
// already counted them.
func (q *queues[M]) empty(x *session[M], o Outcome, err error, fx *effects[M]) {
	q.endWait(x)
	n := x.depth()
	q.end(goneUnits[M]{units: x.detach(), outcome: o, err: err}, n, fx)
}

// endOne ends the waiting message at index i of the queue of its session.
func (q *queues[M]) endOne(x *session[M], i int, o Outcome, err error, fx *effects[M]) {
	e := x.queue[i]
	x.heard = min(x.heard, e.item().Seq-1)
	x.remove(i)
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

// Suspend prevents the session from starting turns until resume is called; running turns continue,
// and messages are accepted and wait. It is for a caller that stops a session in two steps: it
// cancels the turns here immediately and then writes the stop into a durable store. Without
// Suspend, a message that arrives between the two steps would start in place of a cancelled turn
// although the store is about to end it. Calls are counted, so that two stops of one session may
// overlap; further calls of one resume function have no effect. Neither function blocks.
func (s *Scheduler[M]) Suspend(key string) (resume func()) {
	s.suspend(key, 1)
	return sync.OnceFunc(func() { s.suspend(key, -1) })
}

// suspend changes the count of the session by one, up or down, and settles the session: it leaves
// the ready list or returns to it.
func (s *Scheduler[M]) suspend(key string, by int) {
	fx := s.begin()
	s.mu.Lock()
	s.core.queues.suspend(key, by)
	if x, ok := s.core.queues.byKey[key]; ok {
		s.core.settle(x, &fx)
	}
	s.mu.Unlock()
	s.perform(&fx)
}

func (q *queues[M]) suspend(key string, by int) {
	if q.suspended == nil {
		q.suspended = map[string]int{}
	}
	if q.suspended[key] += by; q.suspended[key] == 0 {
		delete(q.suspended, key)
	}
}

func (q *queues[M]) isSuspended(key string) bool { return len(q.suspended) > 0 && q.suspended[key] > 0 }

// principal is the state of one principal: the number of its waiting messages, the lines of its
// sessions, and the number of its bounded turns. It exists while a message of it waits, a session
// is in a line of it, or it holds a place. Every field is guarded by the scheduler's mutex. Idle
// records are kept in a small pool.
type principal[M any] struct {
	name     string
	all      *principals[M]
	messages int // waiting messages in all sessions
	standing int // sessions in the ready lists of lanes
	used     int // places held: turns, and sessions in a ready list; above the bound for a while when turns return from Yield
	waiting  line[M]
	first    subqueue[M] // nearly every principal uses only one lane
	more     []*subqueue[M]
}

// subqueue is the element of one principal in the ring of one lane.
type subqueue[M any] struct {
	lane       *lane[M]
	who        *principal[M]
	ready      line[M]      // sessions with a turn that may start
	prev, next *subqueue[M] // in the ring
}

// principals are the records by name.
type principals[M any] struct {
	byName map[string]*principal[M]
	spare  []*principal[M]
	peak   int // the most records since the map was created
	bound  int // bounded turns that one principal may have concurrently; 0 = any number
}

// of returns the record of a name, created if needed. The caller adds a message or a place before
// it releases the mutex.
func (p *principals[M]) of(name string) *principal[M] {
	if who, ok := p.byName[name]; ok {
		return who
	}
	var who *principal[M]
	if n := len(p.spare); n > 0 {
		who, p.spare[n-1] = p.spare[n-1], nil
		p.spare = p.spare[:n-1]
	} else {
		who = &principal[M]{all: p}
	}
	who.name = name
	p.byName[name] = who
	p.peak = max(p.peak, len(p.byName))
	return who
}

// rest removes the record when the principal is idle, so that an idle one needs no memory. It may
// be called at any time.
func (who *principal[M]) rest() {
	p := who.all
	if who.messages > 0 || who.standing > 0 || who.used > 0 || who.waiting.count > 0 || p.byName[who.name] != who {
		return
	}
	delete(p.byName, who.name)
	who.name = ""
	if len(p.spare) < maxSpare {
		p.spare = append(p.spare, who)
	}
}

// shrink frees the memory after a burst of principals.
func (p *principals[M]) shrink() {
	if p.peak > shrinkAt && len(p.byName) == 0 {
		p.byName, p.spare, p.peak = map[string]*principal[M]{}, nil, 0
	}
	if len(p.spare) > idleSpare {
		p.spare = slices.Clone(p.spare[:idleSpare])
	}
}

// subqueue finds the subqueue of the principal in a lane.
func (who *principal[M]) subqueue(l *lane[M]) *subqueue[M] {
	if who.first.lane == nil {
		who.first = subqueue[M]{lane: l, who: who, ready: line[M]{link: inSubqueue}}
	}
	if who.first.lane == l {
		return &who.first
	}
	for _, t := range who.more {
		if t.lane == l {
			return t
		}
	}
	t := &subqueue[M]{lane: l, who: who, ready: line[M]{link: inSubqueue}}
	who.more = append(who.more, t)
	return t
}

// bounded reports whether the turn of the unit counts for its principal.
func (p *principals[M]) bounded(u *entry[M]) bool {
	return p.bound > 0 && u.item().Bounded
}

// placed reports whether the session is already in the line of its first unit. Then nothing needs
// to be done, and the session keeps its position in the line.
func (p *principals[M]) placed(x *session[M], u *entry[M]) bool {
	switch who := x.held; {
	case who == nil:
		return x.lane == u.lane && x.subqueue.who == u.who && !p.bounded(u)
	case who != u.who || !p.bounded(u):
		return false
	case x.lane == nil:
		return who.used >= p.bound
	default:
		return x.lane == u.lane
	}
}

// reserve takes a place for the session's next turn. Without a free one it puts the session into
// the principal's line and returns false.
func (p *principals[M]) reserve(x *session[M], u *entry[M]) bool {
	if !p.bounded(u) {
		return true
	}
	who := u.who
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
func (x *session[M]) unlink() (freed *principal[M]) {
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
func (x *session[M]) leaveLine() *principal[M] {
	held := x.held
	x.held = nil
	x.lane.leave(x)
	return held
}

// retake gives a place to a turn that returns from Yield, even if none is free: the turn has begun,
// and others may wait for it.
func (p *principals[M]) retake(t *Turn[M]) {
	if p.bounded(t.first) {
		t.held = p.of(t.first.item().Principal)
		t.held.used++
	}
}
