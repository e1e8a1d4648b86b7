package scheduler

import (
	"context"
	"errors"
	"slices"
)

// Yield gives the turn's slot back while fn runs, and takes one again, at the front of its lane, before it returns: so a turn
// can wait for turns that it has caused without filling the lane that they need. The turn keeps its place in its session,
// so what it waits for must belong to other sessions.
//
// ctx must be the turn's context or one made from it; fn receives it. Yield blocks until fn has returned and a slot is free. When
// ctx ends during that second wait, Yield returns at once without a slot, with the cause of ctx joined to the error of fn:
// a stop never waits for a full lane, and the turn is then expected to return. ErrYielding is returned, and fn not
// called, while another Yield of the turn runs; ErrTurnOver when the turn is over.
func (t *Turn[M]) Yield(ctx context.Context, fn func(ctx context.Context) error) error {
	if err := t.s.giveBack(t); err != nil {
		return err
	}
	returned := false
	defer func() {
		if !returned { // fn panicked: whoever recovers goes on without a slot
			t.s.giveUp(t)
		}
	}()
	err := fn(ctx)
	returned = true
	granted := t.s.askBack(t)
	select {
	case <-granted:
		return err
	default:
	}
	select {
	case <-granted:
		return err
	case <-ctx.Done():
		t.s.giveUp(t)
		return errors.Join(context.Cause(ctx), err)
	}
}

// giveBack frees the slot of a turn that is about to wait.
func (s *Scheduler[M]) giveBack(t *Turn[M]) error {
	fx := s.begin()
	s.mu.Lock()
	err := s.sendAway(t, &fx)
	s.mu.Unlock()
	s.flush(&fx)
	return err
}

// sendAway is giveBack under the mutex.
func (s *Scheduler[M]) sendAway(t *Turn[M], fx *effects[M]) error {
	switch {
	case t.over:
		return ErrTurnOver
	case t.away:
		return ErrYielding
	}
	t.away = true
	t.lane.yielded++
	t.lane.release(t)
	s.leavePlace(t, fx) // what it waits for may be turns of the same principal
	s.pump(t.lane, fx)
	return nil
}

// askBack queues the turn for a slot, at the front of its lane, and returns a channel that is closed when it has one.
func (s *Scheduler[M]) askBack(t *Turn[M]) <-chan struct{} {
	granted := make(chan struct{})
	fx := s.begin()
	s.mu.Lock()
	if !t.over {
		t.granted = granted
		t.lane.returning = append(t.lane.returning, t)
		s.pump(t.lane, &fx)
	}
	s.mu.Unlock()
	s.flush(&fx)
	return granted
}

// grant gives a slot to the turn that has waited longest for its return.
func (s *Scheduler[M]) grant(l *lane[M], fx *effects[M]) {
	t := l.returning[0]
	l.returning = slices.Delete(l.returning, 0, 1)
	s.home(t)
	l.acquire(t)
	s.retakePlace(t)
	fx.grants = append(fx.grants, t.granted)
	t.granted = nil
}

// giveUp ends the wait for a slot without one, unless it has been granted meanwhile.
func (s *Scheduler[M]) giveUp(t *Turn[M]) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stay(t)
}

// stay makes an end of being away without a slot.
func (s *Scheduler[M]) stay(t *Turn[M]) {
	if t.granted != nil {
		t.lane.returning = slices.DeleteFunc(t.lane.returning, func(o *Turn[M]) bool { return o == t })
		t.granted = nil
	}
	s.home(t)
}

// home notes that the turn is not inside Yield any more.
func (s *Scheduler[M]) home(t *Turn[M]) {
	if t.away {
		t.away = false
		t.lane.yielded--
	}
}
