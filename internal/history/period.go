package history

import (
	"fmt"
	"time"

	"laneway/internal/store"
)

const (
	dayForm   = "2006-01-02"
	monthForm = "2006-01"
)

// dayOf returns the day of a moment in a zone.
func dayOf(t time.Time, zone *time.Location) string { return t.In(zone).Format(dayForm) }

// startOf returns the first moment of the day of t in a zone.
func startOf(t time.Time, zone *time.Location) time.Time {
	y, m, d := t.In(zone).Date()
	return time.Date(y, m, d, 0, 0, 0, 0, zone)
}

// weekOf returns the ISO 8601 week of a date, which begins on Monday.
func weekOf(date time.Time) string {
	year, week := date.ISOWeek()
	return fmt.Sprintf("%d-W%02d", year, week)
}

// monthOf returns the month of the week of a date: the one that contains its Thursday. So each week belongs to one month, as it belongs to one year.
func monthOf(date time.Time) string { return monday(date).AddDate(0, 0, 3).Format(monthForm) }

// monday returns the first day of the week of a date.
func monday(date time.Time) time.Time { return date.AddDate(0, 0, -(int(date.Weekday())+6)%7) }

// before returns the last period of a level all of whose days are before the day of a date.
func before(level store.TocLevel, date time.Time) string {
	switch level {
	case store.TocWeek:
		return weekOf(monday(date).AddDate(0, 0, -1))
	case store.TocMonth:
		thursday := monday(date).AddDate(0, 0, 3)
		return thursday.AddDate(0, 0, -thursday.Day()).Format(monthForm)
	default:
		return date.AddDate(0, 0, -1).Format(dayForm)
	}
}

// parts returns the periods of which a week or a month consists, the oldest first.
func parts(ref store.TocRef) (level store.TocLevel, periods []string, err error) {
	if ref.Level == store.TocWeek {
		var year, week int
		if _, err := fmt.Sscanf(ref.Period, "%d-W%d", &year, &week); err != nil {
			return "", nil, fmt.Errorf("reading the week %q: %w", ref.Period, err)
		}
		first := monday(time.Date(year, 1, 4, 0, 0, 0, 0, time.UTC)).AddDate(0, 0, 7*(week-1))
		for i := range 7 {
			periods = append(periods, first.AddDate(0, 0, i).Format(dayForm))
		}
		return store.TocDay, periods, nil
	}
	first, err := time.Parse(monthForm, ref.Period)
	if err != nil {
		return "", nil, fmt.Errorf("reading the month %q: %w", ref.Period, err)
	}
	for day := monday(first); monthOf(day) <= ref.Period; day = day.AddDate(0, 0, 7) {
		if monthOf(day) == ref.Period {
			periods = append(periods, weekOf(day))
		}
	}
	return store.TocWeek, periods, nil
}
