package scheduler

// debounces reports whether the message that was just appended waits for the window. The window merges messages that a person types. It is not opened if it
// could not merge or would only delay: when the message interrupts, is steered into a running turn, or will be collected with others anyway.
func (x *session[M]) debounces(it *Item[M]) bool {
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

// joins reports whether the message belongs to the open window of its session: same sender, same thread, same lane, and the batch is not full. An overtaken
// message does not join, because its position is earlier.
func (x *session[M]) joins(it *Item[M], l *lane[M]) bool {
	if !x.buffers() || !x.debounces(it) {
		return false
	}
	u := x.back()
	last := u.last.item()
	if last.Sender != it.Sender || last.Thread != it.Thread || u.lane != l || last.Seq > it.Seq {
		return false
	}
	return x.set.BatchBytes < 0 || u.bytes+it.Size <= x.set.BatchBytes
}

// collect adds every waiting message that may share its turn to the unit, which is about to start (mode collect, and messages that gather).
func (x *session[M]) collect(u *entry[M]) {
	for next := x.front(); next != nil && x.collects(u, next); next = x.front() {
		u.join(x.pop())
	}
}

// collects reports whether next may share the turn of u. Only bytes limit a collected turn, because the store already limits the number of waiting messages.
func (x *session[M]) collects(u, next *entry[M]) bool {
	a, b := u.last.item(), next.item()
	if next.open || !a.merges() || !b.merges() || a.Thread != b.Thread || u.lane != next.lane || a.Gathers != b.Gathers {
		return false
	}
	if a.Gathers && a.Sender != b.Sender {
		return false
	}
	return x.set.BatchBytes < 0 || u.bytes+next.bytes <= x.set.BatchBytes
}
