package scheduler

import "slices"

// AcceptInput declares that the runner can take messages during the turn, and returns a channel that signals that some may be available. A wake-up means "call
// TakeInput"; several may be coalesced, and one may find nothing. From now on messages in mode steer wait for the turn; those that it has not taken when it
// returns run as turns of their own. The channel is never closed, so select on the context too.
func (t *Turn[M]) AcceptInput() <-chan struct{} {
	fx := t.s.begin()
	t.s.mu.Lock()
	if t.input == nil {
		t.input = make(chan struct{}, 1)
		if !t.over {
			t.s.core.settle(t.sess, &fx) // a message that waits to be steered is announced
		}
	}
	input := t.input
	t.s.mu.Unlock()
	t.s.perform(&fx)
	return input
}

// TakeInput returns the messages that wait to be steered into this turn, in order, nil when none waits or when the turn was cancelled, settled or has ended.
// They end merged into this turn. It never blocks.
func (t *Turn[M]) TakeInput() []Item[M] {
	s := t.s
	fx := s.begin()
	s.mu.Lock()
	units := s.core.takeInput(t, &fx)
	s.mu.Unlock()
	s.perform(&fx)
	if len(units) == 0 {
		return nil
	}
	var items []Item[M]
	merged := &MergedError{RunID: t.runID}
	for _, u := range units {
		items = s.out.taken(t, u, merged, items)
	}
	return items
}

// takeInput moves steered units from the queue into the turn.
func (c *core[M]) takeInput(t *Turn[M], fx *effects[M]) []*entry[M] {
	if t.over || !t.takesInput() {
		return nil
	}
	x := t.sess
	var units []*entry[M]
	for u := x.front(); u != nil && t.wants(u); u = x.front() {
		units = append(units, x.pop())
		c.tally.outcomes[OutcomeMerged.index()] += u.count
		t.absorb(u)
	}
	c.settle(x, fx)
	return units
}

// absorb records that the messages of the unit now belong to the turn.
func (t *Turn[M]) absorb(u *entry[M]) {
	for e := u; e != nil; e = e.next {
		e.turnOf = t
	}
	if t.taken == nil {
		t.taken = u
	} else {
		t.lastTaken.next = u
	}
	t.lastTaken = u.last
}

// takesInput reports whether the turn can still receive steered messages.
func (t *Turn[M]) takesInput() bool { return t.input != nil && t.cause == nil && !t.settled }

// wants reports whether the unit may be steered into this turn: it must be answered in the same place.
func (t *Turn[M]) wants(u *entry[M]) bool {
	return u.steer && !u.open && u.item().Thread == t.lead.item().Thread
}

// takesInput reports whether a running turn of the session takes messages during the turn.
func (x *session[M]) takesInput() bool { return slices.ContainsFunc(x.running, (*Turn[M]).takesInput) }

// steered reports whether a running turn will take the unit, and wakes that turn.
func (x *session[M]) steered(u *entry[M], fx *effects[M]) bool {
	i := slices.IndexFunc(x.running, func(t *Turn[M]) bool { return t.takesInput() && t.wants(u) })
	if i < 0 {
		return false
	}
	fx.wakes = append(fx.wakes, x.running[i].input)
	return true
}
