package schedule

import (
	"fmt"
	"math/bits"
	"strconv"
	"strings"
	"time"

	"github.com/adhocore/gronx"
)

const (
	daySeconds  = 24 * 60 * 60
	monthShapes = 4 * 7 // 28 to 31 days, starting on one of seven weekdays
)

// fields is a compiled expression: for each part of the wall clock the set of matching values. Bit v stands for value v. It is immutable.
type fields struct {
	seconds, minutes, hours uint64
	months                  uint64
	// days[shape] has bit d for each matching day d of a month of that shape. It combines day of month, day of week, L, W and #.
	days [monthShapes]uint64
	// perDay counts the matching moments of a matching day; first and last are
	// the earliest and the latest of them, in seconds since midnight.
	perDay, first, last int64
	repeats             bool // the hour is a wildcard or a step, or all hours are named
	narrow              bool // both day fields are restricted, one of them as */n, so both must match
}

// compile calls gronx once for each value of each field. The date is labelled UTC and only carries the value.
func compile(e expression) (*fields, error) {
	q := &question{}
	f := &fields{
		narrow:  e.fields[atDay] != "*" && e.fields[atWeekday] != "*" && mustBoth(e.fields[atDay], e.fields[atWeekday]),
		seconds: q.set(e.fields[atSecond], atSecond, 0, 59, inDay(time.Second)),
		minutes: q.set(e.fields[atMinute], atMinute, 0, 59, inDay(time.Minute)),
		hours:   q.set(e.fields[atHour], atHour, 0, 23, inDay(time.Hour)),
		months:  q.set(e.fields[atMonth], atMonth, 1, 12, func(v int) time.Time { return date(2000, v, 1) }),
	}
	f.repeats = e.followsRealTime() || f.hours == 1<<24-1
	f.days = q.daysOf(e.fields[atDay], e.fields[atWeekday])
	if q.err != nil {
		return nil, NewInvalid(fieldExpr, InvalidSyntax, "the expression is not understood (%v)", q.err)
	}
	if f.seconds == 0 || f.minutes == 0 || f.hours == 0 {
		return nil, NewInvalid(fieldExpr, InvalidNever, "the expression never fires")
	}
	f.perDay = int64(bits.OnesCount64(f.seconds) * bits.OnesCount64(f.minutes) * bits.OnesCount64(f.hours))
	f.first = clock(lowest(f.hours), lowest(f.minutes), lowest(f.seconds))
	f.last = clock(highest(f.hours), highest(f.minutes), highest(f.seconds))
	return f, nil
}

func date(year, month, day int) time.Time {
	return time.Date(year, time.Month(month), day, 0, 0, 0, 0, time.UTC)
}

// inDay returns moments of one day, by the number of units since midnight.
func inDay(unit time.Duration) func(int) time.Time {
	return func(v int) time.Time { return date(2000, 1, 1).Add(time.Duration(v) * unit) }
}

func clock(hour, minute, second int) int64 {
	return int64(hour)*3600 + int64(minute)*60 + int64(second)
}

func lowest(set uint64) int  { return bits.TrailingZeros64(set) }
func highest(set uint64) int { return 63 - bits.LeadingZeros64(set) }

// question calls gronx and keeps the first error. A gronx checker stores the date of the last call, so each compile has its own.
type question struct {
	checker gronx.SegmentChecker
	err     error
}

func (q *question) due(field string, pos int, at time.Time) bool {
	if field == "*" || field == "" {
		return field == "*"
	}
	q.checker.SetRef(at)
	due, err := q.checker.CheckDue(field, pos)
	if err != nil && q.err == nil {
		q.err = fmt.Errorf("reading field %q: %w", field, err)
	}
	return due
}

func (q *question) set(field string, pos, low, top int, at func(int) time.Time) uint64 {
	var set uint64
	for v := low; v <= top; v++ {
		if q.due(field, pos, at(v)) {
			set |= 1 << v
		}
	}
	return set
}

// daysOf fills the table of month shapes. When both fields are restricted, a day matches by either of them. A field that begins with * (including */2) does not
// count as restricted: then both must match. This is the traditional behaviour of cron.
func (q *question) daysOf(day, weekday string) [monthShapes]uint64 {
	both := mustBoth(day, weekday)
	table, byWeek := q.monthDays(day), q.weekDays(weekday)
	for shape := range table {
		if both {
			table[shape] &= byWeek[shape]
		} else {
			table[shape] |= byWeek[shape]
		}
	}
	return table
}

func mustBoth(day, weekday string) bool {
	return strings.HasPrefix(day, "*") || strings.HasPrefix(weekday, "*")
}

// monthDays is the table for the field day of month alone.
func (q *question) monthDays(field string) [monthShapes]uint64 {
	plain, special := divide(field)
	table := q.specialDays(special, atDay)
	set := q.set(plain, atDay, 1, 31, func(v int) time.Time { return date(2000, 1, v) })
	for shape := range table {
		table[shape] |= set & monthMask(shape)
	}
	return table
}

// weekDays is the table for the field day of week alone.
func (q *question) weekDays(field string) [monthShapes]uint64 {
	plain, special := divide(field)
	table := q.specialDays(special, atWeekday)
	// 2 January 2000 was a Sunday.
	week := q.set(plain, atWeekday, 0, 6, func(v int) time.Time { return date(2000, 1, 2+v) })
	for shape := range table {
		for d := 1; d <= 28+shape/7; d++ {
			table[shape] |= (week >> ((shape + d - 1) % 7) & 1) << d
		}
	}
	return table
}

// divide separates the items with the same meaning in each month from L, W and #.
func divide(field string) (plain string, special []string) {
	var same []string
	for item := range strings.SplitSeq(field, ",") {
		if strings.ContainsAny(item, "LW#") {
			special = append(special, item)
		} else {
			same = append(same, item)
		}
	}
	return strings.Join(same, ","), special
}

// specialDays evaluates one example month of each shape: L, W and # depend on nothing else.
func (q *question) specialDays(items []string, pos int) [monthShapes]uint64 {
	var table [monthShapes]uint64
	if len(items) == 0 {
		return table
	}
	for shape, first := range exampleMonths() {
		length := 28 + shape/7
		for _, item := range items {
			if d := lastDay(item, length, shape%7); d > 0 {
				table[shape] |= 1 << d
				continue
			}
			if strings.HasPrefix(item, "L-") { // the month is too short
				continue
			}
			low, top := around(item, pos, length)
			table[shape] |= q.set(item, pos, max(low, 1), min(top, length), func(v int) time.Time { return first.AddDate(0, 0, v-1) })
		}
	}
	return table
}

// lastDay is the day that LW or L-n means in a month of a length that begins on a weekday; 0 = it means none. gronx does not know these items.
func lastDay(item string, length, first int) int {
	if before, ok := strings.CutPrefix(item, "L-"); ok {
		n, err := strconv.Atoi(before)
		if err != nil {
			return 0
		}
		return max(length-n, 0)
	}
	if item != "LW" {
		return 0
	}
	switch time.Weekday((first + length - 1) % 7) { //nolint:exhaustive // the other days are weekdays
	case time.Saturday:
		return length - 1
	case time.Sunday:
		return length - 2
	}
	return length
}

// around bounds the days that an item can mean. It only reduces the number of calls: long lists of such items would otherwise take milliseconds.
func around(item string, pos, length int) (low, top int) {
	if pos == atDay && item == "L" {
		return length, length
	}
	number, nth, isNth := strings.Cut(item, "#")
	if !isNth && strings.HasSuffix(number, "L") {
		return length - 6, length
	}
	if isNth {
		number = nth
	}
	n, err := strconv.Atoi(strings.TrimSuffix(number, "W"))
	switch {
	case err != nil:
		return 1, length
	case isNth:
		return 7*n - 6, 7 * n
	default:
		return n - 2, n + 2
	}
}

// exampleMonths has the first day of a month of each shape.
func exampleMonths() [monthShapes]time.Time {
	var months [monthShapes]time.Time
	for m, missing := 0, monthShapes; missing > 0; m++ {
		first := date(2000, 1+m, 1)
		shape := shapeOf(lengthOf(first.Year(), first.Month()), int(first.Weekday()))
		if months[shape].IsZero() {
			months[shape] = first
			missing--
		}
	}
	return months
}

// shapeOf numbers the shapes so that shape%7 is the weekday of the first and 28+shape/7 the length.
func shapeOf(length, firstWeekday int) int { return (length-28)*7 + firstWeekday }

func monthMask(shape int) uint64 { return (1<<(28+shape/7) - 1) << 1 }
