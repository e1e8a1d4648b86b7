package schedule

import (
	"strings"
	"time"
)

// ParsePast parses a moment that has probably passed: `9:00` is the most recent one, and `monday 8:30` that of the last seven days. `yesterday 9:00`,
// `today 9:00`, `tomorrow 9:00`, `in 3h` and every format of [ParseAt] are taken literally. Local times are in tz. An error is an [*InvalidError].
func ParsePast(text string, now time.Time, tz string) (time.Time, error) {
	loc, err := LoadZone(tz)
	if err != nil {
		return time.Time{}, err
	}
	text = strings.TrimSpace(text)
	if at, err := ParseAt(text, tz); err == nil {
		return at, nil
	}
	day, clock := cutSpace(text)
	from := now.Add(-24 * time.Hour)
	switch word := strings.ToLower(day); {
	case word == "today" && clock != "":
		from, text = midnight(now.In(loc), 0), clock
	case word == "yesterday" && clock != "":
		from, text = midnight(now.In(loc), -1), clock
	case word == "in" || word == "tomorrow":
		from = now
	case clock != "" && strings.Trim(day, "0123456789:.apmAPM") != "":
		from = now.Add(-7 * 24 * time.Hour)
	}
	spec, rest, err := ParseWhen(text, from, tz)
	if err != nil || rest != "" || spec.Kind != KindAt {
		return time.Time{}, NewInvalid(fieldWhen, InvalidSyntax, "%s is not a moment; write 9:00, yesterday 9:00, monday 8:30 or 2027-03-02 09:00", Excerpt(text))
	}
	return spec.At, nil
}

// midnight is immediately before the first instant of a day.
func midnight(of time.Time, days int) time.Time {
	return time.Date(of.Year(), of.Month(), of.Day()+days, 0, 0, 0, 0, of.Location()).Add(-1)
}
