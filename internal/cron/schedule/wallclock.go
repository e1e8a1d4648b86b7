package schedule

import (
	"time"
)

const (
	// reach is how far a search looks ahead. The rarest cron expression (29 February on one weekday, across a year 2100) recurs within 40 years.
	reach = 48 * 366 * daySeconds
	// widest bounds the largest shift that a zone ever had: a whole day, and another one in reserve.
	widest = 2 * daySeconds
	// lastSecond is the end of the year 9999, the last representable year.
	lastSecond = 253402300799
)

// DSTNote is the effect of daylight saving on a fire; empty for no effect.
type DSTNote string

// The notes of a preview and of a fire.
const (
	DSTNone          DSTNote = ""
	DSTGapShifted    DSTNote = "gap_shifted"    // the wall time did not exist; this is the first instant after the gap
	DSTOverlapFirst  DSTNote = "overlap_first"  // the wall time occurred twice; this is the first time
	DSTOverlapSecond DSTNote = "overlap_second" // the wall time occurred twice; this is the second time
)

// GapRule decides about wall times that do not exist in spring. Empty in a Spec: run_after for a fixed hour, skip when the hour is a wildcard or a step.
type GapRule string

// The gap rules.
const (
	GapRunAfter GapRule = "run_after" // once, at the first instant after the gap, however many slots are in it
	GapSkip     GapRule = "skip"      // not at all
)

// FoldRule decides about wall times that occur twice in autumn. Empty in a Spec: first for a fixed hour, both when the hour is a wildcard or a step.
type FoldRule string

// The fold rules.
const (
	FoldFirst  FoldRule = "first"
	FoldSecond FoldRule = "second"
	FoldBoth   FoldRule = "both"
)

// wallClock is an expression in a zone. Instants are Unix seconds.
type wallClock struct {
	fields *fields
	loc    *time.Location
	gap    GapRule
	fold   FoldRule
}

// piece is a period in which the zone's offset is constant: the instants in [start, end). Two consecutive pieces may have the same offset.
type piece struct {
	start, end int64
	offset     int64
}

func (p piece) wall(at int64) wall { return wall(at + p.offset) }

func (c *wallClock) pieceAt(at int64) piece {
	if c.loc == time.UTC {
		return piece{start: -never, end: never}
	}
	t := time.Unix(at, 0).In(c.loc)
	_, offset := t.Zone()
	p := piece{start: -never, end: never, offset: int64(offset)}
	start, end := t.ZoneBounds()
	if !start.IsZero() {
		p.start = start.Unix()
	}
	if !end.IsZero() {
		p.end = end.Unix()
	}
	// After the table of a zone file the time package counts 365 days in every year. So on 31 December of a leap year the end that it returns is in the past.
	// The rest of such a year has no further change: the piece lasts until the next year.
	if p.end <= at {
		p.end = date(t.UTC().Year()+1, 1, 1).Unix()
	}
	return p
}

func (c *wallClock) offsetAt(at int64) int64 {
	_, offset := time.Unix(at, 0).In(c.loc).Zone()
	return int64(offset)
}

// offsetBefore is the offset of the piece before p. Far from the start of p it returns p's own offset, which is equivalent for the callers and cheaper.
func (c *wallClock) offsetBefore(p piece, at int64) int64 {
	if p.start == -never || at-p.start > widest {
		return p.offset
	}
	return c.offsetAt(p.start - 1)
}

func (c *wallClock) offsetAfter(p piece, at int64) int64 {
	if p.end == never || p.end-at > widest {
		return p.offset
	}
	return c.offsetAt(p.end)
}

// next is the first fire in (after, limit].
func (c *wallClock) next(after, limit int64) (int64, DSTNote, bool) {
	for at := after + 1; at <= limit; {
		p := c.pieceAt(at)
		if at == p.start && c.runsAfterGap(p) {
			return at, DSTGapShifted, true
		}
		if found, ok := c.nextInPiece(p, at, limit); ok {
			return found, c.note(p, found), true
		}
		at = p.end
	}
	return 0, DSTNone, false
}

func (c *wallClock) nextInPiece(p piece, at, limit int64) (int64, bool) {
	low, high := c.window(p, at, min(p.end, limit+1))
	w, ok := c.fields.next(low, high)
	return int64(w) - p.offset, ok
}

// window is the wall time of [from, to) within a piece, without the part that
// the fold rule leaves to the piece before or after.
func (c *wallClock) window(p piece, from, to int64) (low, high wall) {
	low, high = p.wall(from), p.wall(to)
	switch c.fold {
	case FoldFirst:
		if earlier := c.offsetBefore(p, from); earlier > p.offset {
			low = max(low, wall(p.start+earlier))
		}
	case FoldSecond:
		if p.end == never {
			break
		}
		if later := c.offsetAt(p.end); later < p.offset {
			high = min(high, wall(p.end+later))
		}
	case FoldBoth:
	}
	return low, high
}

func (c *wallClock) note(p piece, at int64) DSTNote {
	w := p.wall(at)
	if earlier := c.offsetBefore(p, at); earlier > p.offset && w < wall(p.start+earlier) {
		return DSTOverlapSecond
	}
	if later := c.offsetAfter(p, at); later < p.offset && w >= wall(p.end+later) {
		return DSTOverlapFirst
	}
	return DSTNone
}

// swallowed reports whether the gap before a piece contains a matching wall time.
func (c *wallClock) swallowed(p piece) bool {
	if p.start == -never {
		return false
	}
	earlier := c.offsetAt(p.start - 1)
	_, ok := c.fields.next(wall(p.start+earlier), wall(p.start+p.offset))
	return ok
}

func (c *wallClock) runsAfterGap(p piece) bool { return c.gap == GapRunAfter && c.swallowed(p) }

// count is the number of fires in (after, until]. It costs a few operations per
// month and per change of the zone.
func (c *wallClock) count(after, until int64) int64 {
	var n int64
	for at := after + 1; at <= until; {
		p := c.pieceAt(at)
		if at == p.start && c.runsAfterGap(p) && !c.fields.matches(p.wall(at)) {
			n++
		}
		low, high := c.window(p, at, min(p.end, until+1))
		n += c.fields.count(low, high)
		at = p.end
	}
	return n
}

// lost lists the ends of the gaps in (after, until] whose slots the rule skip drops and that are not fires themselves.
func (c *wallClock) lost(after, until int64) []int64 {
	var ends []int64
	for at := c.pieceAt(after).end; at <= until; {
		p := c.pieceAt(at)
		if c.swallowed(p) && !c.fields.matches(p.wall(at)) {
			ends = append(ends, at)
		}
		at = p.end
	}
	return ends
}

// instant maps a wall time to the first instant that shows it or, in a gap, to
// the first instant after the gap.
func instant(loc *time.Location, w wall) time.Time {
	c := &wallClock{loc: loc}
	for at := int64(w) - widest; ; {
		p := c.pieceAt(at)
		if w < p.wall(p.end) || p.end == never {
			return time.Unix(max(int64(w)-p.offset, p.start), 0).UTC()
		}
		at = p.end
	}
}
