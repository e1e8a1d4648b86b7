package scheduler

// share is what one owner uses of the turns that an owner may have at once. A place is held by a turn until it has returned or
// yields, and before that by the session in the ready list whose next turn it is: so whoever reaches the head of a lane can start.
// It exists while somebody holds a place or waits for one. Every field is guarded by the scheduler's mutex.
type share[M any] struct {
	owner   string
	used    int     // above the bound for a while when turns return from Yield
	waiting line[M] // sessions whose next turn has no place
}

// bounded reports whether the turn that the unit becomes counts for its owner.
func (s *Scheduler[M]) bounded(u *entry[M]) bool { return s.cfg.OwnerTurns > 0 && u.item().Owner != "" }

// placed reports whether the session stands where its first unit belongs, so that nothing is to be done and nobody loses a place in a line.
func (s *Scheduler[M]) placed(x *session[M], u *entry[M]) bool {
	o := x.share
	switch {
	case o == nil:
		return x.lane == u.lane && !s.bounded(u)
	case o.owner != u.item().Owner:
		return false
	case x.lane == nil:
		return o.used >= s.cfg.OwnerTurns
	default:
		return x.lane == u.lane
	}
}

// reserve takes a place for the session's next turn. Without a free one the session waits in the owner's line, and the answer is false.
func (s *Scheduler[M]) reserve(x *session[M], u *entry[M]) bool {
	if !s.bounded(u) {
		return true
	}
	o := s.shareOf(u.item().Owner)
	x.share = o
	if o.used >= s.cfg.OwnerTurns {
		o.waiting.push(x)
		return false
	}
	o.used++
	return true
}

func (s *Scheduler[M]) shareOf(owner string) *share[M] {
	o := s.shares[owner]
	if o == nil {
		o = &share[M]{owner: owner}
		s.shares[owner] = o
	}
	return o
}

// unlink takes the session out of the line in which it stands, if any, and returns the share in which that freed a place.
func (x *session[M]) unlink() (freed *share[M]) {
	l, o := x.lane, x.share
	x.lane, x.share = nil, nil
	switch {
	case l != nil:
		l.ready.remove(x)
		if o != nil {
			o.used--
		}
		return o
	case o != nil:
		o.waiting.remove(x)
	}
	return nil
}

// step takes the session out of the ready list for the start of a turn, and returns where it held a place for it.
func (x *session[M]) step() *share[M] {
	o := x.share
	x.lane.ready.remove(x)
	x.lane, x.share = nil, nil
	return o
}

// wake gives free places to the sessions that wait for them, and forgets a share that nobody uses.
func (s *Scheduler[M]) wake(o *share[M], fx *effects[M]) {
	for o.used < s.cfg.OwnerTurns && o.waiting.head != nil {
		s.settle(o.waiting.head, fx)
	}
	if o.used == 0 && o.waiting.count == 0 && s.shares[o.owner] == o {
		delete(s.shares, o.owner)
	}
}

// leaveShare gives the place of the turn back.
func (s *Scheduler[M]) leaveShare(t *Turn[M], fx *effects[M]) {
	o := t.share
	if o == nil {
		return
	}
	t.share = nil
	o.used--
	s.wake(o, fx)
}

// rejoinShare gives a turn that returns from Yield a place, whether or not one is free: it has begun, and may be what others wait for.
func (s *Scheduler[M]) rejoinShare(t *Turn[M]) {
	if s.bounded(t.first) {
		t.share = s.shareOf(t.first.item().Owner)
		t.share.used++
	}
}
