package schedule

import (
	"fmt"
	"slices"
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
// the real ones: a step that does not divide its unit, a day that some months do not have, days that
// other schedulers number differently, both day fields, and a repeated hour without runs. They are
// for the user who creates a job; the schedule is valid.
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
	if text := e.foreignDays(); text != "" {
		out = append(out, text)
	}
	if text := e.shortMonths(); text != "" && !both {
		out = append(out, text)
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

// foreignDays is a sentence about the numbers of days in an expression with ?, which is a sign of the
// schedulers that count them from SUN = 1 (Quartz, AWS); "" = there are none.
func (e expression) foreignDays() string {
	parts := strings.Fields(e.text)
	days := parts[len(parts)-1]
	here, there := dayNames(days, 0), dayNames(days, 1)
	if !strings.Contains(e.text, "?") || here == days {
		return ""
	}
	return fmt.Sprintf("day of week %s is %s; schedulers that write ? count from SUN = 1: if you mean %s, write it so", days, here, there)
}

// shortMonths is a sentence about the months that do not have the last of the given days; "" = each
// has it, or the day before is given as well, as by those who mean the end of a month.
func (e expression) shortMonths() string {
	const leap = 2028
	days, months := valuesOf(e.fields[atDay], 1, 31), valuesOf(e.fields[atMonth], 1, 12)
	if len(days) == 0 || strings.ContainsAny(e.fields[atDay], "*/") {
		return ""
	}
	last := days[len(days)-1]
	var without []string
	for _, m := range months {
		if time.Date(leap, time.Month(m)+1, 0, 0, 0, 0, 0, time.UTC).Day() < last || last == 29 && m == 2 {
			without = append(without, time.Month(m).String())
		}
	}
	if len(without) == 0 || slices.Contains(days, last-1) {
		return ""
	}
	text := fmt.Sprintf("day of month %d is not in each month: no run in %s", last, joined(without))
	if last == 29 {
		text += ", except in leap years"
	}
	return text + "; the last day of a month is written L"
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
			clock := "15:04"
			if s.spec.Seconds() {
				clock = time.TimeOnly
			}
			return fmt.Sprintf("when the clock goes back on %s, the repeated hour has no runs: %s pass between %s and %s instead of %s",
				to.Format("Mon 2 Jan 2006"), short(passed), from.Format(clock), to.Format(clock), short(usual))
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

// fewTimes is how many times of day are listed.
const fewTimes = 4

// Words describes the schedule for people: "weekdays at 09:00, Berlin". A single moment is shown in
// zone, UTC if that is empty. An expression that has no short description stands as it is, with its
// zone.
func (s Spec) Words(zone string) string {
	switch s.Kind {
	case KindAt:
		return "at " + Shown(s.At, zone)
	case KindEvery:
		d := time.Duration(s.EveryMs) * time.Millisecond
		if days := d / (24 * time.Hour); days > 1 && d%(24*time.Hour) == 0 {
			return "every " + strconv.Itoa(int(days)) + "d"
		}
		return "every " + short(d)
	case KindCron:
		place := placeOf(s.TZ)
		if e, err := parseExpr(s.Expr); err == nil {
			if text := e.words(); text != "" {
				return text + ", " + place
			}
		}
		return s.Expr + ", " + place
	}
	return string(s.Kind)
}

// Seconds reports whether slots of the schedule may be at other seconds than the first of a minute.
func (s Spec) Seconds() bool {
	const minute = int64(time.Minute / time.Millisecond)
	switch s.Kind {
	case KindAt:
		return s.At.Second() != 0
	case KindEvery:
		return s.EveryMs%minute != 0 || s.AnchorMs%minute != 0
	case KindCron:
		e, err := parseExpr(s.Expr)
		return err == nil && e.fields[atSecond] != "0" && e.fields[atSecond] != "00"
	}
	return false
}

// Shown formats a slot of the schedule for people: in its zone, or in that of the reader if it has
// none.
func (s Spec) Shown(t time.Time, reader string) string {
	if s.Kind == KindCron {
		reader = s.TZ
	}
	return shownIn(t, reader, s.Seconds())
}

// Shown formats a moment for people, in a zone; UTC if the zone is not known.
func Shown(t time.Time, zone string) string { return shownIn(t, zone, false) }

func shownIn(t time.Time, zone string, seconds bool) string {
	loc, err := LoadZone(zone)
	if err != nil {
		loc = time.UTC
	}
	layout := "Mon 2 Jan 2006 15:04 MST"
	if seconds || t.Second() != 0 {
		layout = "Mon 2 Jan 2006 15:04:05 MST"
	}
	return t.In(loc).Format(layout)
}

// placeOf is a zone as people call it: Berlin, New York, UTC.
func placeOf(zone string) string {
	if zone == "" || zone == "Z" {
		return "UTC"
	}
	if strings.HasPrefix(zone, "Etc/") {
		return zone
	}
	return strings.ReplaceAll(zone[strings.LastIndex(zone, "/")+1:], "_", " ")
}

// interval is a duration with the largest unit that it is a multiple of.
func interval(d time.Duration) string {
	for _, u := range []struct {
		size time.Duration
		noun string
	}{{7 * 24 * time.Hour, "week"}, {24 * time.Hour, "day"}, {time.Hour, "hour"}, {time.Minute, "minute"}, {time.Second, "second"}} {
		switch {
		case d == u.size:
			return u.noun
		case d%u.size == 0:
			return amount(int(d/u.size), u.noun)
		}
	}
	return short(d)
}

// words describes the expression without its zone; "" = it has no short description.
func (e expression) words() string {
	days, ok := e.days()
	times, repeats := e.times()
	switch {
	case !ok || times == "":
		return ""
	case repeats && days == "":
		return times
	case repeats:
		return times + ", " + days
	case days == "":
		days = "daily"
	}
	return days + " " + times
}

// times describes the hours, minutes and seconds; repeats: they repeat within the day.
func (e expression) times() (text string, repeats bool) {
	var sets [3][]int
	fields := units()
	for i := range sets {
		u := fields[i]
		if sets[i] = valuesOf(e.fields[i], u.low, u.top); sets[i] == nil {
			return "", false
		}
	}
	seconds, minutes, hours := sets[atSecond], sets[atMinute], sets[atHour]
	switch {
	case len(seconds) > 1:
		if step := evenStep(seconds, 60); step > 0 && len(minutes) == 60 && len(hours) == 24 {
			return "every " + interval(time.Duration(step)*time.Second), true
		}
		return "", false
	case len(hours)*len(minutes) <= fewTimes:
		var list []string
		for _, h := range hours {
			for _, m := range minutes {
				list = append(list, clockOf(h, m, seconds[0]))
			}
		}
		return "at " + joined(list), false
	case seconds[0] != 0:
		return "", false
	}
	all := len(hours) == 24
	span := " from " + clockOf(hours[0], minutes[0], 0) + " to " + clockOf(hours[len(hours)-1], minutes[len(minutes)-1], 0)
	inRow := hours[len(hours)-1]-hours[0] == len(hours)-1
	switch step := evenStep(hours, 24); {
	case len(minutes) == 1 && all && minutes[0] == 0:
		return "every hour", true
	case len(minutes) == 1 && all:
		return fmt.Sprintf("every hour at :%02d", minutes[0]), true
	case len(minutes) == 1 && step > 1:
		return fmt.Sprintf("every %d hours at :%02d", step, minutes[0]), true
	case len(minutes) == 1 && inRow:
		return "every hour" + span, true
	}
	step := evenStep(minutes, 60)
	switch {
	case step == 0 || !all && !inRow:
		return "", false
	case all:
		return "every " + interval(time.Duration(step)*time.Minute), true
	}
	return "every " + interval(time.Duration(step)*time.Minute) + span, true
}

// days describes the day and month fields; "" = each day. ok is false when they have no short
// description.
func (e expression) days() (text string, ok bool) {
	day, month, weekday := e.fields[atDay], e.fields[atMonth], e.fields[atWeekday]
	names := units()
	months := valuesOf(month, 1, 12)
	if months == nil || day != "*" && weekday != "*" {
		return "", false
	}
	of, in := " of each month", ""
	if len(months) < 12 {
		list := make([]string, len(months))
		for i, m := range months {
			list[i] = time.Month(m).String()
		}
		of, in = " of "+joined(list), " in "+joined(list)
	}
	switch {
	case len(months) > fewTimes && len(months) < 12:
		return "", false
	case day == "L":
		return "on the last day" + of, true
	case day != "*":
		list := valuesOf(day, names[atDay].low, names[atDay].top)
		if list == nil || len(list) > fewTimes {
			return "", false
		}
		ordinals := make([]string, len(list))
		for i, d := range list {
			ordinals[i] = ordinal(d)
		}
		return "on the " + joined(ordinals) + of, true
	case weekday != "*":
		text, ok = weekdaysOf(weekday)
		return text + in, ok
	case in != "":
		return "daily" + in, true
	}
	return "", true
}

// weekdaysOf describes the days of a week.
func weekdaysOf(field string) (string, bool) {
	var days [7]bool
	list := valuesOf(field, 0, 7)
	for _, d := range list {
		days[d%7] = true
	}
	var names []string
	for i := range 7 {
		if d := time.Weekday((i + 1) % 7); days[d] { // a week begins on Monday
			names = append(names, d.String()+"s")
		}
	}
	switch {
	case list == nil:
		return "", false
	case days == [7]bool{false, true, true, true, true, true, false}:
		return "weekdays", true
	case days == [7]bool{0: true, 6: true}:
		return "weekends", true
	case len(names) == 7:
		return "daily", true
	}
	return joined(names), true
}

// valuesOf lists the values of a checked field; nil = it has other items than numbers, ranges and
// steps.
func valuesOf(field string, low, top int) []int {
	var set [64]bool
	for item := range strings.SplitSeq(field, ",") {
		base, stepText, stepped := strings.Cut(item, "/")
		step, first, last := 1, low, top
		var err error
		if stepped {
			if step, err = strconv.Atoi(stepText); err != nil || step < 1 {
				return nil
			}
		}
		if base != "*" {
			from, to, isRange := strings.Cut(base, "-")
			if first, err = strconv.Atoi(from); err != nil {
				return nil
			}
			switch {
			case isRange:
				if last, err = strconv.Atoi(to); err != nil {
					return nil
				}
			case !stepped:
				last = first
			}
		}
		for v := first; v <= min(last, top); v += step {
			set[v] = true
		}
	}
	var list []int
	for v, has := range set {
		if has {
			list = append(list, v)
		}
	}
	return list
}

// evenStep is the distance between the values of a unit with size values, also over its end; 0 =
// the distances differ.
func evenStep(list []int, size int) int {
	step := size / len(list)
	if step*len(list) != size {
		return 0
	}
	for i, v := range list {
		if v != list[0]+i*step {
			return 0
		}
	}
	return step
}

func clockOf(hour, minute, second int) string {
	if second == 0 {
		return fmt.Sprintf("%02d:%02d", hour, minute)
	}
	return fmt.Sprintf("%02d:%02d:%02d", hour, minute, second)
}

// joined lists words as people do: a, b and c.
func joined(list []string) string {
	if len(list) < 2 {
		return strings.Join(list, "")
	}
	return strings.Join(list[:len(list)-1], ", ") + " and " + list[len(list)-1]
}

func ordinal(n int) string {
	suffix := "th"
	switch {
	case n%100 >= 11 && n%100 <= 13:
	case n%10 == 1:
		suffix = "st"
	case n%10 == 2:
		suffix = "nd"
	case n%10 == 3:
		suffix = "rd"
	}
	return strconv.Itoa(n) + suffix
}
