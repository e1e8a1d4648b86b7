package scheduler

import (
	"context"
	"errors"
	"slices"
)

// Yield releases the turn's slot while fn runs, and takes one again, at the front of its lane, before it returns. So a turn can wait for turns that it has
// caused without occupying the lane that they need. The turn keeps its place in its session, so the turns that it waits for must belong to other sessions.
//
// ctx must be the turn's context or derived from it; fn receives it. Yield blocks until fn has returned and a slot is free. When ctx ends during that second
// wait, Yield returns immediately without a slot, with the cause of ctx joined to the error of fn: a stop never waits for a full lane, and the turn is then
// expected to return. While another Yield of the turn runs, it returns ErrYielding without calling fn; ErrTurnOver when the turn has ended.
func (t *Turn[M]) Yield(ctx context.Context, fn func(ctx context.Context) error) error {
	if err := t.freeSlot(); err != nil {
		return err
	}
	returned := false
	defer func() {
		if !returned { // fn panicked: the code that recovers the panic continues without a slot
			t.continueWithoutSlot()
		}
	}()
	err := fn(ctx)
	returned = true
	granted := t.requestSlot()
	select {
	case <-granted:
		return err
	default:
	}
	select {
	case <-granted:
		return err
	case <-ctx.Done():
		t.continueWithoutSlot()
		return errors.Join(context.Cause(ctx), err)
	}
}

// freeSlot begins the yield.
func (t *Turn[M]) freeSlot() error {
	fx := t.s.begin()
	t.s.mu.Lock()
	err := t.s.core.yield(t, &fx)
	t.s.mu.Unlock()
	t.s.perform(&fx)
	return err
}

// requestSlot queues the turn for a slot, at the front of its lane, and returns a channel that is closed when it has one.
func (t *Turn[M]) requestSlot() <-chan struct{} {
	granted := make(chan struct{})
	fx := t.s.begin()
	t.s.mu.Lock()
	if !t.over {
		t.granted = granted
		t.lane.returning = append(t.lane.returning, t)
		t.s.core.pump(t.lane, &fx)
	}
	t.s.mu.Unlock()
	t.s.perform(&fx)
	return granted
}

// continueWithoutSlot ends the yield without a slot, unless one has been granted meanwhile.
func (t *Turn[M]) continueWithoutSlot() {
	t.s.mu.Lock()
	defer t.s.mu.Unlock()
	t.lane.endYield(t)
}

// beginYield takes the slot of the turn and counts the turn as yielded.
func (l *lane[M]) beginYield(t *Turn[M]) {
	t.away = true
	l.yielded++
	l.release(t)
}

// grant gives a slot to the turn that has waited longest for its return; one must be waiting. The caller closes the channel when the mutex is released.
func (l *lane[M]) grant() (*Turn[M], chan struct{}) {
	t := l.returning[0]
	l.returning = slices.Delete(l.returning, 0, 1)
	granted := t.granted
	t.granted = nil
	l.endYield(t)
	l.acquire(t)
	return t, granted
}

// endYield ends the yield of the turn, if it is in one, and its wait for a slot. It does not assign a slot.
func (l *lane[M]) endYield(t *Turn[M]) {
	if t.granted != nil {
		l.returning = slices.DeleteFunc(l.returning, func(o *Turn[M]) bool { return o == t })
		t.granted = nil
	}
	if t.away {
		t.away = false
		l.yielded--
	}
}
