package schedule

import "time"

// ClockChange is a change of the clock that affects slots of a schedule.
type ClockChange struct {
	// At is the first instant after the change.
	At time.Time
	// Wall is the first wall time of a slot that does not exist or occurs twice, written as if the wall clock showed UTC.
	Wall time.Time
	// Slots is the number of such wall times.
	Slots int64
	// Gap is the applied rule when the wall times do not exist, Fold when they occur twice; the other one is empty.
	Gap  GapRule
	Fold FoldRule
	// Fires are those of the first wall time: zero, one or two.
	Fires []Fire
}

// Changes lists the first n changes of the clock in (after, until] that move, drop or repeat a slot. It omits changes that make no difference in real time for
// a repeating job: an hourly job keeps its hour under the rules skip and both.
func (s Schedule) Changes(after, until time.Time, n int) []ClockChange {
	if s.wall == nil {
		return nil
	}
	var found []ClockChange
	last := min(until.Unix(), lastSecond)
	for at := s.wall.pieceAt(after.Unix()).end; at <= last && len(found) < n; {
		p := s.wall.pieceAt(at)
		if change, ok := s.wall.change(p, after.Unix()); ok {
			found = append(found, change)
		}
		at = p.end
	}
	return found
}

// change describes the clock change at the start of a piece.
func (c *wallClock) change(p piece, after int64) (ClockChange, bool) {
	earlier := c.offsetAt(p.start - 1)
	low, high := wall(p.start+min(earlier, p.offset)), wall(p.start+max(earlier, p.offset))
	out := ClockChange{At: time.Unix(p.start, 0).UTC()}
	instants := []int64{p.start} // instants that can show the first wall time
	switch {
	case earlier == p.offset:
		return out, false
	case earlier < p.offset:
		if out.Gap = c.gap; c.gap == GapSkip && c.steady(low, high) {
			return out, false
		}
	default:
		if out.Fold = c.fold; c.fold == FoldBoth && c.steady(low, high) {
			return out, false
		}
		if c.fold == FoldFirst {
			low = max(low, wall(after+earlier+1)) // the times up to after have passed
		}
	}
	w, ok := c.fields.next(low, high)
	if !ok {
		return out, false
	}
	if out.Fold != "" {
		instants = []int64{int64(w) - earlier, int64(w) - p.offset}
	}
	out.Wall, out.Slots = time.Unix(int64(w), 0).UTC(), c.fields.count(low, high)
	for _, at := range instants {
		if out.Gap == GapSkip || at <= after {
			continue
		}
		if found, note, ok := c.next(at-1, at); ok {
			out.Fires = append(out.Fires, fireAt(time.Unix(found, 0).UTC(), note))
		}
	}
	return out, true
}

// steady reports whether a repeating job has the same slots in [low, high) as in the equally long time after it, so that nothing changes in real time.
func (c *wallClock) steady(low, high wall) bool {
	if !c.fields.repeats {
		return false
	}
	shift := high - low
	for at := low; ; {
		this, ok := c.fields.next(at, high)
		other, also := c.fields.next(at+shift, high+shift)
		if ok != also || ok && this+shift != other {
			return false
		}
		if !ok {
			return true
		}
		at = this + 1
	}
}

// Wall is the wall time that a fire stands for, written as if the wall clock showed UTC: the last one, when it stands for those of a gap. It is zero when no zone
// rules take part, see [Schedule.Release].
func (s Schedule) Wall(f Fire) time.Time {
	if s.release == "" || f.Slot.IsZero() {
		return time.Time{}
	}
	at := f.Slot.Unix()
	p := s.wall.pieceAt(at)
	end := p.wall(at)
	last := end
	if f.DST == DSTGapShifted {
		first := wall(p.start + s.wall.offsetAt(p.start-1))
		for w, ok := s.wall.fields.next(first, end); ok; w, ok = s.wall.fields.next(w+1, end) {
			last = w
		}
	}
	return time.Unix(int64(last), 0).UTC()
}

// Reached is the instant up to which these rules have no slot left to decide after a slot that the rules of another release have planned, given the [Schedule.Wall]
// of that slot: no wall time is decided twice, and none is left out, whichever rules planned the slot. A schedule that repeats within the day and has the same
// slots under both rules follows real time and continues after the slot.
func (s Schedule) Reached(slot, planned time.Time) time.Time {
	if s.wall == nil || planned.IsZero() {
		return slot
	}
	at, other := slot.Unix(), wall(planned.Unix())
	own := s.wall.pieceAt(at).wall(at)
	low, high := min(own, other), max(own, other)
	if low == high || high-low > daySeconds || s.wall.steady(low, high) { // no rules differ by more: such a wall time does not belong to the slot
		return slot
	}
	return time.Unix(s.wall.reached(other), 0).UTC()
}

// reached is the last instant of a fire that stands for a wall time, or the instant before the next one if this wall time does not exist.
func (c *wallClock) reached(w wall) int64 {
	at := instant(c.loc, w).Unix()
	p := c.pieceAt(at)
	if after := p.wall(at); after > w {
		if _, more := c.fields.next(w+1, after+1); more { // the fire after the gap stands for other wall times as well
			at--
		}
		return at
	}
	if later := c.offsetAfter(p, at); c.fold != FoldFirst && later < p.offset && w >= wall(p.end+later) {
		at = int64(w) - later
	}
	return at
}
