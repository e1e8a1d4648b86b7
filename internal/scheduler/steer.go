package scheduler

import "slices"

// AcceptInput says that the runner can take messages in mid-turn and returns the channel that is woken when some may be
// there. A wake-up means "look with TakeInput"; several may become one, and one may find nothing. Messages in mode steer
// wait for the turn from now on; those that it has not taken when it returns run as turns of their own. The channel is never
// closed, so select on the context too.
func (t *Turn[M]) AcceptInput() <-chan struct{} {
	fx := t.s.begin()
	t.s.mu.Lock()
	if t.input == nil {
		t.input = make(chan struct{}, 1)
		if !t.over {
			t.s.settle(t.sess, &fx) // a message that waits to be steered is announced
		}
	}
	input := t.input
	t.s.mu.Unlock()
	t.s.flush(&fx)
	return input
}

// TakeInput hands over the messages that wait to be steered into this turn, in their order, nil when none does or when the turn
// was cancelled, settled or is over. They end merged into this turn, now. It never blocks.
func (t *Turn[M]) TakeInput() []Item[M] {
	s := t.s
	fx := s.begin()
	s.mu.Lock()
	units := s.takeInput(t, &fx)
	s.mu.Unlock()
	s.flush(&fx)
	if len(units) == 0 {
		return nil
	}
	var items []Item[M]
	merged := &MergedError{RunID: t.runID}
	for _, u := range units {
		items = s.tellTaken(t, u, merged, items)
	}
	return items
}

// takeInput moves steered units from the queue into the turn.
func (s *Scheduler[M]) takeInput(t *Turn[M], fx *effects[M]) []*entry[M] {
	if t.over || !t.takes() {
		return nil
	}
	x := t.sess
	var units []*entry[M]
	for u := x.front(); u != nil && t.wants(u); u = x.front() {
		units = append(units, x.pop())
		s.tally.outcomes[OutcomeMerged.index()] += u.count
		t.absorb(u)
	}
	s.settle(x, fx)
	return units
}

// absorb notes that the messages of the unit belong to the turn now.
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

// tellTaken completes the tickets of a unit and adds its messages to items. It must not read behind the last message of the unit,
// where another call may be chaining more.
func (s *Scheduler[M]) tellTaken(t *Turn[M], u *entry[M], merged error, items []Item[M]) []Item[M] {
	for e := u; ; e = e.next {
		e.ticket.complete(OutcomeMerged, merged)
		s.obs.MessageEnded(t.lane.Name, OutcomeMerged)
		items = append(items, *e.item())
		if e == u.last {
			return items
		}
	}
}

// takes reports whether steered messages may still reach the turn.
func (t *Turn[M]) takes() bool { return t.input != nil && t.cause == nil && !t.settled }

// wants reports whether the unit may be steered into this turn: only what would be answered in the same place.
func (t *Turn[M]) wants(u *entry[M]) bool {
	return u.steer && !u.open && u.item().Thread == t.lead.item().Thread
}

// steered reports whether a running turn will take the unit, and wakes that one.
func (s *Scheduler[M]) steered(x *session[M], u *entry[M], fx *effects[M]) bool {
	i := slices.IndexFunc(x.running, func(t *Turn[M]) bool { return t.takes() && t.wants(u) })
	if i < 0 {
		return false
	}
	fx.wakes = append(fx.wakes, x.running[i].input)
	return true
}
