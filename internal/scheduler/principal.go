package scheduler

import "slices"

// principal is what the scheduler knows of one principal: how many of its messages wait, where its sessions stand, and how many bounded turns
// it has. It exists while a message of it waits, a session stands in a line of it, or it holds a place. Every field is
// guarded by the scheduler's mutex. Idle records are kept in a small pool.
type principal[M any] struct {
	name     string
	all      *principals[M]
	messages int // waiting messages in all sessions
	standing int // sessions in the ready lists of lanes
	used     int // places held: turns, and sessions in a ready list; above the bound for a while when turns return from Yield
	waiting  line[M]
	first    subqueue[M] // nearly every principal uses one lane
	more     []*subqueue[M]
}

// subqueue is the place of one principal in the ring of one lane.
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
	peak   int // the most records since the map was made
	bound  int // bounded turns that one principal may have at once; 0 = any number
}

// of returns the record of a name, made if need be. The caller gives it a message or a place before the mutex is released.
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

// rest removes the record when nothing of the principal is left: an idle one costs nothing. It may be called at any time.
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

// shrink frees the memory that a burst of principals has left.
func (p *principals[M]) shrink() {
	if p.peak > shrinkAt && len(p.byName) == 0 {
		p.byName, p.spare, p.peak = map[string]*principal[M]{}, nil, 0
	}
	if len(p.spare) > idleSpare {
		p.spare = slices.Clone(p.spare[:idleSpare])
	}
}

// subqueue finds the place of the principal in the ring of a lane.
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

// bounded reports whether the turn that the unit becomes counts for its principal.
func (p *principals[M]) bounded(u *entry[M]) bool {
	return p.bound > 0 && u.item().Bounded
}

// placed reports whether the session stands where its first unit belongs. Then nothing is to be done, and the session keeps its position in the line.
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

// reserve takes a place for the session's next turn. Without a free one the session waits in the principal's line, and the answer is false.
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

// unlink takes the session out of the line in which it stands, if any, and returns the principal that got a free place by it.
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

// leaveLine takes the session out of the ready list for the start of a turn, and returns the principal whose place it held for it.
func (x *session[M]) leaveLine() *principal[M] {
	held := x.held
	x.held = nil
	x.lane.leave(x)
	return held
}

// retake gives a turn that returns from Yield a place, whether or not one is free: it has begun, and others may wait for it.
func (p *principals[M]) retake(t *Turn[M]) {
	if p.bounded(t.first) {
		t.held = p.of(t.first.item().Principal)
		t.held.used++
	}
}
