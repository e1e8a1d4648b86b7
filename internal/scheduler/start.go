package scheduler

// The methods in this file match sessions that have work with lanes that have free slots. Every change that frees a slot or adds work calls settle or pump
// before the mutex is released; no other mechanism starts turns. Each step takes constant time.

// settle moves a session to its proper place after any change of it: into the ready list of a lane, whose free slots are then used, or out of it, or out of the
// map.
func (c *core[M]) settle(x *session[M], fx *effects[M]) {
	if l := c.place(x, fx); l != nil {
		c.pump(l, fx)
	}
}

// place is settle without the use of free slots. It returns the lane whose ready list contains the session.
func (c *core[M]) place(x *session[M], fx *effects[M]) *lane[M] {
	u := x.front()
	may := u != nil && !u.open && !c.queues.isSuspended(x.key) && c.mayStart(x, u, fx)
	if may && c.principals.placed(x, u) {
		return x.lane
	}
	freed := x.unlink()
	switch {
	case may && c.principals.reserve(x, u):
		u.lane.push(x, u.who, fx.now)
	case !may && x.idle():
		c.forget(x, fx)
	}
	if freed != nil {
		c.useFreePlaces(freed, fx)
	}
	return x.lane
}

// mayStart reports whether the rules of the session allow the unit to start now.
func (c *core[M]) mayStart(x *session[M], u *entry[M], fx *effects[M]) bool {
	if len(x.running) == 0 {
		return true
	}
	if u.steer && x.steered(u, fx) {
		return false
	}
	return !u.alone && len(x.running) < x.set.MaxConcurrent && c.throttle.allows(x, c.draining, fx) && x.begins == nil
}

// forget removes a session without running or waiting work, so that idle sessions need no memory.
func (c *core[M]) forget(x *session[M], fx *effects[M]) {
	c.throttle.forget(x, fx)
	c.queues.forget(x)
	if len(c.queues.byKey) == 0 {
		c.principals.shrink()
	}
}

// pump uses the free slots of the lane. Turns that return from Yield precede the ready sessions.
func (c *core[M]) pump(l *lane[M], fx *effects[M]) {
	for l.hasSlot() {
		if len(l.returning) > 0 {
			c.resume(l, fx)
			continue
		}
		if c.draining {
			return
		}
		x := l.next()
		if x == nil {
			return
		}
		c.start(x, x.leaveLine(), fx)
		if other := c.place(x, fx); other != nil && other != l {
			c.pump(other, fx) // the next message of the session belongs to another lane
		}
	}
}

// start makes the first unit of the session a turn and gives it a slot, and the place of its principal that the session held.
func (c *core[M]) start(x *session[M], held *principal[M], fx *effects[M]) {
	u := x.pop()
	if x.set.Mode == ModeCollect || u.item().Gathers {
		x.collect(u)
	}
	t := c.turns.begin(u, x, fx.now)
	t.held = held
	x.running = append(x.running, t)
	if c.begins {
		x.begins = t
	}
	u.lane.acquire(t)
	u.lane.started++
	u.lane.lastStart = fx.now
	fx.start(t)
}

// finish releases the slot and the place in the session of a turn whose Run has ended. It reports whether this decided the outcome, which is false when the
// turn was already given up as stuck.
func (c *core[M]) finish(t *Turn[M], err error, fx *effects[M]) (decided bool) {
	x := t.sess
	decided = c.turns.finish(t, err)
	t.lane.release(t)
	t.lane.endYield(t)
	x.leave(t)
	c.throttle.forget(x, fx) // the history has grown, so an older estimate is invalid
	c.leavePlace(t, fx)
	c.settle(x, fx)
	t.sess = nil
	c.pump(t.lane, fx)
	c.pending.done()
	return decided
}

// useFreePlaces gives free places of the principal to its waiting sessions, and removes an idle principal.
func (c *core[M]) useFreePlaces(who *principal[M], fx *effects[M]) {
	for who.used < c.principals.bound && who.waiting.head != nil {
		c.settle(who.waiting.head, fx)
	}
	who.rest()
}

// leavePlace returns the turn's place of its principal, if it has one.
func (c *core[M]) leavePlace(t *Turn[M], fx *effects[M]) {
	who := t.held
	if who == nil {
		return
	}
	t.held = nil
	who.used--
	c.useFreePlaces(who, fx)
}

// yield releases the slot, and the place of its principal, of a turn that is about to wait: it may wait for turns of the same principal.
func (c *core[M]) yield(t *Turn[M], fx *effects[M]) error {
	switch {
	case t.over:
		return ErrTurnOver
	case t.away:
		return ErrYielding
	}
	t.lane.beginYield(t)
	c.leavePlace(t, fx)
	c.pump(t.lane, fx)
	return nil
}

// resume gives a slot to the turn that has waited longest for its return from Yield.
func (c *core[M]) resume(l *lane[M], fx *effects[M]) {
	t, granted := l.grant()
	c.principals.retake(t)
	fx.grants = append(fx.grants, granted)
}
