package scheduler

import "slices"

// principal is the state of one principal: the number of its waiting messages, the lines of its sessions, and the number of its bounded turns. It exists while
// a message of it waits, a session is in a line of it, or it holds a place. Every field is guarded by the scheduler's mutex. Idle records are kept in a small
// pool.
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

// of returns the record of a name, created if needed. The caller adds a message or a place before it releases the mutex.
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

// rest removes the record when the principal is idle, so that an idle one needs no memory. It may be called at any time.
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

// placed reports whether the session is already in the line of its first unit. Then nothing needs to be done, and the session keeps its position in the line.
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

// reserve takes a place for the session's next turn. Without a free one it puts the session into the principal's line and returns false.
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

// unlink removes the session from its line, if any, and returns the principal that thereby got a free place.
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

// leaveLine removes the session from the ready list for the start of a turn, and returns the principal whose place the session held.
func (x *session[M]) leaveLine() *principal[M] {
	held := x.held
	x.held = nil
	x.lane.leave(x)
	return held
}

// retake gives a place to a turn that returns from Yield, even if none is free: the turn has begun, and others may wait for it.
func (p *principals[M]) retake(t *Turn[M]) {
	if p.bounded(t.first) {
		t.held = p.of(t.first.item().Principal)
		t.held.used++
	}
}
