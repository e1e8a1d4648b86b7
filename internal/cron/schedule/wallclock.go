package schedule

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"
)

const (
	// reach is how far a search looks ahead. The rarest cron expression (29 February on one
	// weekday, across a year 2100) recurs within 40 years.
	reach = 48 * 366 * daySeconds
	// widest bounds the largest shift that a zone ever had: a whole day, and another one in
	// reserve.
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

// GapRule decides about wall times that do not exist in spring. Empty in a Spec: run_after for a
// fixed hour, skip when the hour is a wildcard or a step.
type GapRule string

// The gap rules.
const (
	GapRunAfter GapRule = "run_after" // once, at the first instant after the gap, however many slots are in it
	GapSkip     GapRule = "skip"      // not at all
)

// FoldRule decides about wall times that occur twice in autumn. Empty in a Spec: first for a fixed
// hour, both when the hour is a wildcard or a step.
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

// piece is a period in which the zone's offset is constant: the instants in [start, end). Two
// consecutive pieces may have the same offset.
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
	// After the table of a zone file the time package counts 365 days in every year. So on 31
	// December of a leap year the end that it returns is in the past. The rest of such a year has
	// no further change: the piece lasts until the next year.
	if p.end <= at {
		p.end = date(t.UTC().Year()+1, 1, 1).Unix()
	}
	return p
}

func (c *wallClock) offsetAt(at int64) int64 {
	_, offset := time.Unix(at, 0).In(c.loc).Zone()
	return int64(offset)
}

// offsetBefore is the offset of the piece before p. Far from the start of p it returns p's own
// offset, which is equivalent for the callers and cheaper.
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

// lost lists the ends of the gaps in (after, until] whose slots the rule skip drops and that are
// not fires themselves.
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

// ClockChange is a change of the clock that affects slots of a schedule.
type ClockChange struct {
	// At is the first instant after the change.
	At time.Time
	// Wall is the first wall time of a slot that does not exist or occurs twice, written as if the
	// wall clock showed UTC.
	Wall time.Time
	// Slots is the number of such wall times.
	Slots int64
	// Gap is the applied rule when the wall times do not exist, Fold when they occur twice; the
	// other one is empty.
	Gap  GapRule
	Fold FoldRule
	// Fires are those of the first wall time: zero, one or two.
	Fires []Fire
}

// Changes lists the first n changes of the clock in (after, until] that move, drop or repeat a
// slot. It omits changes that make no difference in real time for a repeating job: an hourly job
// keeps its hour under the rules skip and both.
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

// steady reports whether a repeating job has the same slots in [low, high) as in the equally long
// time after it, so that nothing changes in real time.
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

// Wall is the wall time that a fire stands for, written as if the wall clock showed UTC: the last
// one, when it stands for those of a gap. It is zero when no zone rules take part, see
// [Schedule.Release].
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

// Reached is the instant up to which these rules have no slot left to decide after a slot that the
// rules of another release have planned, given the [Schedule.Wall] of that slot: no wall time is
// decided twice, and none is left out, whichever rules planned the slot. A schedule that repeats
// within the day and has the same slots under both rules follows real time and continues after the
// slot.
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

// reached is the last instant of a fire that stands for a wall time, or the instant before the next
// one if this wall time does not exist.
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

// Quiet are hours of the day, in a time zone, during which what jobs send waits.
type Quiet struct {
	// From and To are minutes since midnight. To is on the next day if it is before From.
	From, To int
	Zone     string
}

var quietForm = regexp.MustCompile(`^(\d{1,2})(?:[:.](\d\d))?\s*[-–]\s*(\d{1,2})(?:[:.](\d\d))?$`)

// ParseQuiet reads hours such as 22:00-7:00 or 22-7.
func ParseQuiet(text, zone string) (Quiet, error) {
	parts := quietForm.FindStringSubmatch(strings.TrimSpace(text))
	if parts == nil {
		return Quiet{}, fmt.Errorf("%q is not hours such as 22:00-7:00", Excerpt(text))
	}
	var at [2]int
	for i := range at {
		hour, _ := strconv.Atoi(parts[1+2*i]) // the form has checked that they are digits, or absent
		minute, _ := strconv.Atoi(parts[2+2*i])
		if hour > 24 || minute > 59 || hour == 24 && minute > 0 {
			return Quiet{}, fmt.Errorf("%q has a time of day that does not exist", Excerpt(text))
		}
		at[i] = (hour*60 + minute) % minutesOfDay
	}
	if at[0] == at[1] {
		return Quiet{}, fmt.Errorf("%q begins when it ends", Excerpt(text))
	}
	return Quiet{From: at[0], To: at[1], Zone: zone}, nil
}

const minutesOfDay = 24 * 60

// String is the hours without their zone.
func (q Quiet) String() string {
	return fmt.Sprintf("%d:%02d-%d:%02d", q.From/60, q.From%60, q.To/60, q.To%60)
}

// Ends is when the quiet hours end in which an instant is; false when it is in none.
func (q Quiet) Ends(now time.Time) (end time.Time, quiet bool) {
	loc, err := LoadZone(q.Zone)
	if err != nil {
		loc = time.UTC
	}
	local := now.In(loc)
	at := local.Hour()*60 + local.Minute()
	day := local.Day()
	switch {
	case q.From < q.To && (at < q.From || at >= q.To), q.From > q.To && at < q.From && at >= q.To:
		return time.Time{}, false
	case at >= q.To:
		day++
	}
	return time.Date(local.Year(), local.Month(), day, 0, q.To, 0, 0, loc), true
}
