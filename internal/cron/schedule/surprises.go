package schedule

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// changeReach is how far ahead a clock change is looked for, and nearChange how far from it the
// runs are that it separates.
const (
	changeReach = 800 * 24 * time.Hour
	nearChange  = 3 * time.Hour
)

// Surprises are sentences about fires at other distances than the expression suggests, each with
// the real ones: a step that does not divide its unit, both day fields, and a repeated hour without
// runs. They are for a person who makes a job; the schedule is valid.
func (s Schedule) Surprises(now time.Time) []string {
	if s.wall == nil {
		return nil
	}
	e, err := parseExpr(s.spec.Expr)
	if err != nil { // it was parsed before
		return nil
	}
	var out []string
	both := e.fields[atDay] != "*" && e.fields[atWeekday] != "*"
	for i, u := range units() {
		if both && (i == atDay || i == atWeekday) {
			continue
		}
		if text := u.uneven(e.fields[i]); text != "" && s.wall.fields.continues(i) {
			out = append(out, text)
		}
	}
	if both {
		days := s.Count(now, now.AddDate(1, 0, 0)) / s.wall.fields.perDay
		text := "day of month and day of week are both given: it runs on each day that matches one of them"
		if s.JoinsDayFields() {
			text = "a day field that begins with * does not count as restricted, so day of month and day of week must both match"
		}
		out = append(out, fmt.Sprintf("%s, on %d days in the next year", text, days))
	}
	if text := s.silent(now); text != "" {
		out = append(out, text)
	}
	return out
}

// continues reports whether the values of a unit follow those of the unit before: minutes do if two
// hours in a row match.
func (f *fields) continues(unit int) bool {
	neighbours := func(set uint64, size int) bool { return set&(set>>1) != 0 || set&1 != 0 && set>>(size-1)&1 != 0 }
	switch unit {
	case atSecond:
		return neighbours(f.minutes, 60)
	case atMinute:
		return neighbours(f.hours, 24)
	}
	return true
}

// uneven is a sentence about a step over the whole unit whose last distance differs; "" = it does
// not.
func (u unit) uneven(field string) string {
	base, text, ok := strings.Cut(field, "/")
	step, err := strconv.Atoi(text) // not of a list
	if !ok || err != nil || step == 1 {
		return ""
	}
	top := u.top
	if top == 7 {
		top = 6
	}
	low, end := u.low, top
	if base != "*" {
		first, last, isRange := strings.Cut(base, "-")
		if low, err = strconv.Atoi(first); err != nil {
			return ""
		}
		if isRange {
			if end, err = strconv.Atoi(last); err != nil || !u.whole(low, end, step) {
				return ""
			}
		}
	}
	var values []string
	last := low
	for v := low; v <= end; v += step {
		values, last = append(values, u.word(v)), v
	}
	rest := top - last + low - u.low + 1
	if rest == step && u.top != 31 || rest == 0 { // months have different numbers of days
		return ""
	}
	if len(values) > 5 {
		values = append(append(values[:3:3], "..."), values[len(values)-1])
	}
	whole := ""
	if u.top == 31 {
		whole = " of 31 days"
	}
	out := fmt.Sprintf("%s %s starts again with each %s%s (%s): the runs are %s apart, but %s at its end", u.name, field, u.within, whole, strings.Join(values, ", "), amount(step, u.noun), amount(rest, u.noun))
	if last == low {
		out = fmt.Sprintf("%s %s is one value in each %s%s (%s)", u.name, field, u.within, whole, values[0])
	}
	if u.letter != "" {
		out += "; an even interval is written every " + strconv.Itoa(step) + u.letter
	}
	return out
}

// whole reports whether a range means the whole unit: it leaves out less than a step at both ends.
// Of the days of a week people mean some of them.
func (u unit) whole(low, end, step int) bool {
	if u.top == 7 {
		return end-low >= 6
	}
	return low-u.low < step && u.top-end < step
}

// word is a value as people write it.
func (u unit) word(v int) string {
	if len(u.words) > 0 {
		return u.words[(v-u.low)%len(u.words)]
	}
	return strconv.Itoa(v)
}

func amount(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return strconv.Itoa(n) + " " + noun + "s"
}

// silent is a sentence about the next repeated hour in which a job that runs before and after it
// does not run; "" = there is none.
func (s Schedule) silent(now time.Time) string {
	for _, c := range s.Changes(now, now.Add(changeReach), 8) {
		if c.Fold == "" || c.Fold == FoldBoth {
			continue
		}
		var before, after Fire
		for f, ok := s.Next(c.At.Add(-nearChange)); ok && f.Slot.Before(c.At.Add(nearChange)); f, ok = s.Next(f.Slot) {
			if after = f; !f.Slot.Before(c.At) {
				break
			}
			before, after = f, Fire{}
		}
		if before.Slot.IsZero() || after.Slot.IsZero() {
			continue
		}
		loc := s.Location()
		from, to := before.Slot.In(loc), after.Slot.In(loc)
		_, earlier := from.Zone()
		_, later := to.Zone()
		passed := to.Sub(from)
		if usual := passed + time.Duration(later-earlier)*time.Second; usual < nearChange && usual < passed {
			return fmt.Sprintf("when the clock goes back on %s, the repeated hour has no runs: %s pass between %s and %s instead of %s",
				to.Format("Mon 2 Jan 2006"), short(passed), from.Format("15:04"), to.Format("15:04"), short(usual))
		}
	}
	return ""
}

// short formats a duration without zero units.
func short(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}
