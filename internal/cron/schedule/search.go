package schedule

import (
	"math/bits"
	"time"
)

// wall is a wall time in seconds, counted as if the wall clock showed UTC. The separate type
// prevents confusion with an instant.
type wall int64

func wallOf(year int, month time.Month, day, hour, minute int) wall {
	return wall(time.Date(year, month, day, hour, minute, 0, 0, time.UTC).Unix())
}

// split returns the day number and the second within the day.
func (w wall) split() (day, second int64) {
	day, second = int64(w)/daySeconds, int64(w)%daySeconds
	if second < 0 {
		day, second = day-1, second+daySeconds
	}
	return day, second
}

// month is one calendar month in a search.
type month struct {
	year   int
	number time.Month
	start  int64 // day number of its first day
	length int
}

func monthOf(day int64) month {
	year, number, dom := time.Unix(day*daySeconds, 0).UTC().Date()
	return month{year: year, number: number, start: day - int64(dom) + 1, length: lengthOf(year, number)}
}

func lengthOf(year int, number time.Month) int {
	switch number {
	case time.April, time.June, time.September, time.November:
		return 30
	case time.February:
		if year%4 == 0 && (year%100 != 0 || year%400 == 0) {
			return 29
		}
		return 28
	default:
		return 31
	}
}

func (m month) next() month {
	m.start += int64(m.length)
	if m.number++; m.number > time.December {
		m.number, m.year = time.January, m.year+1
	}
	m.length = lengthOf(m.year, m.number)
	return m
}

// matching is the set of matching days of a month: bit d for day d.
func (f *fields) matching(m month) uint64 {
	if f.months>>m.number&1 == 0 {
		return 0
	}
	weekday := int((m.start%7 + 7 + 4) % 7) // day number 0 was a Thursday
	return f.days[shapeOf(m.length, weekday)]
}

// next is the first matching wall time in [low, high).
func (f *fields) next(low, high wall) (wall, bool) {
	if low >= high {
		return 0, false
	}
	day, second := low.split()
	m := monthOf(day)
	days := f.matching(m) &^ (1<<(day-m.start+1) - 1) // this day and later ones
	if days>>(day-m.start+1)&1 != 0 {
		if s, ok := f.nextInDay(second); ok {
			return before(day*daySeconds+s, high)
		}
		days &= days - 1
	}
	for days == 0 {
		m = m.next()
		if m.start*daySeconds >= int64(high) {
			return 0, false
		}
		days = f.matching(m)
	}
	day = m.start + int64(bits.TrailingZeros64(days)) - 1
	return before(day*daySeconds+f.first, high)
}

func before(at int64, high wall) (wall, bool) { return wall(at), at < int64(high) }

// nextInDay is the first match at or after a second of a matching day.
func (f *fields) nextInDay(second int64) (int64, bool) {
	h, m, s := int(second/3600), int(second/60%60), int(second%60)
	if f.hours>>h&1 != 0 {
		if f.minutes>>m&1 != 0 {
			if later := from(f.seconds, s); later != 0 {
				return clock(h, m, lowest(later)), true
			}
		}
		if later := from(f.minutes, m+1); later != 0 {
			return clock(h, lowest(later), lowest(f.seconds)), true
		}
	}
	if later := from(f.hours, h+1); later != 0 {
		return clock(lowest(later), lowest(f.minutes), lowest(f.seconds)), true
	}
	return 0, false
}

// from keeps the values v and above.
func from(set uint64, v int) uint64 { return set >> v << v }

// below counts the values under v.
func below(set uint64, v int) int64 { return int64(bits.OnesCount64(set &^ (set >> v << v))) }

// rank counts the matches before a second of a matching day.
func (f *fields) rank(second int64) int64 {
	h, m, s := int(second/3600), int(second/60%60), int(second%60)
	perMinute := int64(bits.OnesCount64(f.seconds))
	perHour := int64(bits.OnesCount64(f.minutes)) * perMinute
	n := below(f.hours, h) * perHour
	if f.hours>>h&1 == 0 {
		return n
	}
	n += below(f.minutes, m) * perMinute
	if f.minutes>>m&1 != 0 {
		n += below(f.seconds, s)
	}
	return n
}

// count is the number of matching wall times in [low, high). It costs a few
// operations per month, however many matches there are.
func (f *fields) count(low, high wall) int64 {
	if low >= high {
		return 0
	}
	lowDay, lowSecond := low.split()
	highDay, highSecond := high.split()
	var n int64
	for m := monthOf(lowDay); m.start <= highDay; m = m.next() {
		days := f.matching(m)
		if first := lowDay - m.start + 1; first > 0 {
			if days>>first&1 != 0 {
				n -= f.rank(lowSecond)
			}
			days = days >> first << first
		}
		if last := highDay - m.start + 1; last <= int64(m.length) {
			if days>>last&1 != 0 {
				n += f.rank(highSecond)
			}
			days &= 1<<last - 1
		}
		n += int64(bits.OnesCount64(days)) * f.perDay
	}
	return n
}

// matches reports whether a wall time itself matches.
func (f *fields) matches(w wall) bool {
	_, ok := f.next(w, w+1)
	return ok
}

// closest is the minimum distance in seconds between two matches. The search ends early when the
// distance is known to exceed enough, which is then the result.
func (f *fields) closest(enough int64) int64 {
	least := gapOf(f.seconds, 1)
	least = min(least, lessSpan(gapOf(f.minutes, 60), f.seconds))
	span := clock(0, highest(f.minutes), highest(f.seconds)) - clock(0, lowest(f.minutes), lowest(f.seconds))
	if hours := gapOf(f.hours, 3600); hours != never {
		least = min(least, hours-span)
	}
	overnight := f.first - f.last
	if least = min(least, enough); daySeconds+overnight >= least {
		return least
	}
	return min(least, f.closestDays()*daySeconds+overnight)
}

const never = int64(1) << 62

// gapOf is the minimum distance between neighbours in a set, in units of scale.
func gapOf(set uint64, scale int64) int64 {
	least := never
	for rest := set & (set - 1); rest != 0; rest &= rest - 1 {
		v := lowest(rest)
		least = min(least, int64(v-highest(set&(1<<v-1)))*scale)
	}
	return least
}

// lessSpan reduces the distance of two minutes by the span of the seconds.
func lessSpan(distance int64, seconds uint64) int64 {
	if distance == never {
		return never
	}
	return distance - int64(highest(seconds)-lowest(seconds))
}

// closestDays is the minimum distance between two matching days. The calendar repeats after 28
// years, except at most turns of a century, which can only increase it.
func (f *fields) closestDays() int64 {
	least, last := never/daySeconds, int64(-1)
	m := monthOf(date(2000, 1, 1).Unix() / daySeconds)
	for range 28 * 12 {
		for days := f.matching(m); days != 0; days &= days - 1 {
			day := m.start + int64(bits.TrailingZeros64(days))
			if last >= 0 {
				least = min(least, day-last)
			}
			last = day
		}
		m = m.next()
	}
	return least
}
