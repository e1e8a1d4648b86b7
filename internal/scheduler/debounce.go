package scheduler

import "time"

// debounces reports whether a message that was just put last waits for the window. The window is there to merge what a person
// types; it is not opened where it could not merge or would only delay: when the message interrupts, is given to a running turn,
// or will be collected with the others anyway.
func (s *Scheduler[M]) debounces(x *session[M], it *Item[M]) bool {
	if !it.Typed || !it.merges() || x.set.Debounce <= 0 || x.set.BatchMessages == 1 {
		return false
	}
	switch x.set.Mode {
	case ModeInterrupt:
		return len(x.running) == 0
	case ModeCollect:
		return len(x.running) < x.set.MaxConcurrent
	case ModeSteer:
		return !x.takesInput()
	default:
		return true
	}
}

// takesInput reports whether a running turn takes messages in mid-turn.
func (x *session[M]) takesInput() bool {
	for _, t := range x.running {
		if t.takes() {
			return true
		}
	}
	return false
}

// joins reports whether the message belongs to the open window of its session: same sender, same thread, same lane, and the batch
// has room. A message that was overtaken does not join, because its place is further forward.
func (s *Scheduler[M]) joins(x *session[M], it *Item[M], l *lane[M]) bool {
	if !x.buffers() || !s.debounces(x, it) {
		return false
	}
	u := x.back()
	last := u.last.item()
	if last.Sender != it.Sender || last.Thread != it.Thread || u.lane != l || last.Seq > it.Seq {
		return false
	}
	return x.set.BatchBytes < 0 || u.bytes+it.Size <= x.set.BatchBytes
}

// openWindow starts the window of a unit that stands last.
func (s *Scheduler[M]) openWindow(x *session[M], u *entry[M], now time.Duration) {
	if x.set.cuts(u.count, u.bytes) {
		return
	}
	u.open = true
	s.tally.debouncing++
	x.hold = now + x.set.hold()
	x.deadline = min(now+x.set.Debounce, x.hold)
	x.window++
	window := x.window
	s.live++
	x.timer = time.AfterFunc(x.deadline-now, func() { s.windowOver(x, window) })
}

// extend adds a message to the open window.
func (s *Scheduler[M]) extend(x *session[M], e *entry[M], fx *effects[M]) Submitted[M] {
	u := x.back()
	before := x.waiting
	u.join(e)
	x.account(e, 1)
	s.tally.debouncing++
	x.deadline = min(fx.now+x.set.Debounce, x.hold)
	if x.set.cuts(u.count, u.bytes) {
		s.closeWindow(x)
		s.settle(x, fx)
	}
	return Submitted[M]{Ticket: &e.ticket, Seq: e.item().Seq, Running: e.turnOf != nil, Position: before}
}

// windowOver is the timer of a window. The deadline may have moved since the timer was set: moving a number is cheaper than moving
// a timer with every message.
func (s *Scheduler[M]) windowOver(x *session[M], window uint64) {
	fx := s.begin()
	s.mu.Lock()
	switch {
	case x.window != window:
		s.ended() // the window was closed while this was on its way
	case fx.now < x.deadline:
		x.timer.Reset(x.deadline - fx.now)
	default:
		s.shut(x)
		s.settle(x, &fx)
		s.ended()
	}
	s.mu.Unlock()
	s.flush(&fx)
}

// Cut ends the debounce window of the session and reports whether one was open. What it holds starts as soon as it may, and what is said
// after it is another turn: something came between that is no message, such as a command.
func (s *Scheduler[M]) Cut(session string) bool {
	fx := s.begin()
	s.mu.Lock()
	x, ok := s.sessions[session]
	if ok = ok && s.closeWindow(x); ok {
		s.settle(x, &fx)
	}
	s.mu.Unlock()
	s.flush(&fx)
	return ok
}

// closeWindow ends the open window, if there is one, and leaves its messages to wait. The caller settles the session.
func (s *Scheduler[M]) closeWindow(x *session[M]) bool {
	if !x.buffers() {
		return false
	}
	if x.timer.Stop() {
		s.ended()
	}
	s.shut(x)
	return true
}

// shut marks the window of the last unit as over.
func (s *Scheduler[M]) shut(x *session[M]) {
	u := x.back()
	u.open = false
	s.tally.debouncing -= u.count
	x.window++
	x.timer = nil
}
