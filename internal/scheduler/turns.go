package scheduler

import "time"

// turns are the counters of running turns, and the rules by which a turn begins, is cancelled, becomes stuck and ends. The state of one turn is in Turn. Slots
// belong to lanes, and the turn's place to its session.
type turns[M any] struct {
	running   int
	stuck     int // running turns past their grace
	discarded int // running turns whose outcome is decided: their results are discarded

	s       *Scheduler[M] // for the methods of Turn and the timers, which take the mutex
	tally   *tally
	pending *pending
}

// begin makes a unit that has left the queue a turn. The last message leads: its id becomes the id of the turn.
func (ts *turns[M]) begin(u *entry[M], x *session[M], now time.Duration) *Turn[M] {
	t := &u.turn // still zero: a unit starts once
	lead := u.last.item()
	t.s, t.sess, t.lane, t.first, t.lead = ts.s, x, u.lane, u, u.last
	t.runID, t.gen, t.started = lead.ID, x.gen, now
	if lead.RunID != "" {
		t.runID = lead.RunID
	}
	t.items = u.box[:]
	if u.next != nil {
		t.items = make([]Item[M], 0, u.count)
	}
	for e := u; e != nil; e = e.next {
		e.turnOf = t
		if u.next != nil {
			t.items = append(t.items, *e.item())
		}
	}
	ts.running++
	ts.pending.add()
	ts.tally.turns++
	ts.tally.outcomes[OutcomeMerged.index()] += u.count - 1
	return t
}

// cancel asks a turn to stop; false when it was asked before, is settled or has ended.
func (ts *turns[M]) cancel(t *Turn[M], cause *CancelCause, fx *effects[M]) bool {
	return ts.cancelWithin(t, cause, ts.s.cfg.StopGrace, fx)
}

func (ts *turns[M]) cancelWithin(t *Turn[M], cause *CancelCause, grace time.Duration, fx *effects[M]) bool {
	if t.over || t.cause != nil || t.settled {
		return false
	}
	t.setCause(cause)
	ts.cancelContext(t, cause, grace, fx)
	return true
}

// force cancels a turn even if it is settled. A settled one may still succeed; until its grace has passed, its outcome follows from its result.
func (ts *turns[M]) force(t *Turn[M], cause *CancelCause, grace time.Duration, fx *effects[M]) {
	if ts.cancelWithin(t, cause, grace, fx) || t.over || t.cause != nil || t.forced != nil {
		return
	}
	t.forced = cause
	ts.cancelContext(t, cause, grace, fx)
}

// cancelContext cancels the context of the turn and starts the grace. A turn whose goroutine has not begun reads the cause when it does.
func (ts *turns[M]) cancelContext(t *Turn[M], cause *CancelCause, grace time.Duration, fx *effects[M]) {
	if t.cancel != nil {
		fx.cancels = append(fx.cancels, cancelCall{cancel: t.cancel, cause: cause})
	}
	ts.pending.add()
	t.grace = time.AfterFunc(grace, func() { ts.s.graceOver(t) })
}

// markStuck marks the turn as stuck; false when it has returned while the timer fired. For a settled turn that was forced to stop, the grace has passed: the
// forced cause becomes its cause.
func (ts *turns[M]) markStuck(t *Turn[M]) bool {
	if t.over || t.stuck {
		return false
	}
	t.stuck = true
	ts.stuck++
	if t.cause == nil && t.forced != nil {
		t.setCause(t.forced)
	}
	return true
}

// giveUp decides the outcome of a turn that has not returned; false when it was decided before. The turn keeps its slot and its place until it returns, because
// only then is it certain that it has no further effects.
func (ts *turns[M]) giveUp(t *Turn[M]) (decided bool) {
	if t.over || !ts.decide(t, nil) {
		return false
	}
	ts.discarded++
	return true
}

// finish records that Run has ended with err, and reports whether this decided the outcome.
func (ts *turns[M]) finish(t *Turn[M], err error) (decided bool) {
	t.over = true
	if t.grace != nil && t.grace.Stop() {
		ts.pending.done()
	}
	if t.stuck {
		ts.stuck--
	}
	ts.running--
	decided = ts.decide(t, err)
	if !decided {
		ts.discarded--
	}
	return decided
}

// decide sets the outcome of the turn's leading message; false when it was set before. For a cancelled turn the cause decides, whatever it returned, because
// its result came too late.
func (ts *turns[M]) decide(t *Turn[M], err error) bool {
	if t.outcome != "" {
		return false
	}
	switch {
	case t.cause != nil:
		t.outcome, t.err = t.cause.Reason.outcome(), t.cause
		t.lane.cancelled++
	case err != nil:
		t.outcome, t.err = OutcomeFailed, err
		t.lane.failed++
	default:
		t.outcome = OutcomeAnswered
		t.lane.answered++
	}
	ts.tally.outcomes[t.outcome.index()]++
	return true
}
