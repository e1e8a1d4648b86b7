package schedule

import (
	"strconv"
	"strings"
	"time"
)

// naive is a literal interpretation of a five-field expression. Days that depend on the month (L, W, #) are computed from the date each time.
type naive struct{ fields []string }

func newNaive(expr string) naive { return naive{strings.Fields(expr)} }

func (n naive) matches(w time.Time) bool {
	plain := func(i, value, low, top int) bool { return naiveField(n.fields[i], value, low, top) }
	if !plain(0, w.Minute(), 0, 59) || !plain(1, w.Hour(), 0, 23) || !plain(3, int(w.Month()), 1, 12) {
		return false
	}
	day, week := n.day(w), n.weekday(w)
	if strings.HasPrefix(n.fields[2], "*") || strings.HasPrefix(n.fields[4], "*") {
		return day && week
	}
	return day || week
}

func naiveField(field string, value, low, top int) bool {
	if field == "*" {
		return true
	}
	for item := range strings.SplitSeq(field, ",") {
		base, stepText, stepped := strings.Cut(item, "/")
		step := 1
		if stepped {
			step, _ = strconv.Atoi(stepText)
		}
		first, last := low, top
		if base != "*" {
			a, b, isRange := strings.Cut(base, "-")
			first, _ = strconv.Atoi(a)
			if last = first; isRange {
				last, _ = strconv.Atoi(b)
			} else if stepped {
				last = top
			}
		}
		for v := first; v <= last; v += step {
			if v == value {
				return true
			}
		}
	}
	return false
}

func (n naive) day(w time.Time) bool {
	last := time.Date(w.Year(), w.Month()+1, 0, 0, 0, 0, 0, time.UTC).Day()
	for item := range strings.SplitSeq(n.fields[2], ",") {
		switch {
		case item == "L":
			if w.Day() == last {
				return true
			}
		case strings.HasSuffix(item, "W"):
			want, _ := strconv.Atoi(strings.TrimSuffix(item, "W"))
			if want <= last && w.Day() == nearestWorkday(w, want, last) {
				return true
			}
		case naiveField(item, w.Day(), 1, 31):
			return true
		}
	}
	return false
}

func nearestWorkday(w time.Time, want, last int) int {
	switch time.Date(w.Year(), w.Month(), want, 0, 0, 0, 0, time.UTC).Weekday() {
	case time.Saturday:
		if want == 1 {
			return 3
		}
		return want - 1
	case time.Sunday:
		if want == last {
			return want - 2
		}
		return want + 1
	default:
		return want
	}
}

func (n naive) weekday(w time.Time) bool {
	last := time.Date(w.Year(), w.Month()+1, 0, 0, 0, 0, 0, time.UTC).Day()
	day := int(w.Weekday())
	for item := range strings.SplitSeq(n.fields[4], ",") {
		wanted, nth, isNth := strings.Cut(item, "#")
		switch {
		case isNth:
			k, _ := strconv.Atoi(nth)
			if d, _ := strconv.Atoi(wanted); d%7 == day && (w.Day()+6)/7 == k {
				return true
			}
		case strings.HasSuffix(item, "L"):
			if d, _ := strconv.Atoi(strings.TrimSuffix(item, "L")); d%7 == day && w.Day()+7 > last {
				return true
			}
		case openEnd(item):
			// 3/2 runs from Wednesday to the end of the week, which is Saturday.
			if naiveField(strings.Replace(item, "7/", "0/", 1), day, 0, 6) {
				return true
			}
		case naiveField(item, day, 0, 7), day == 0 && naiveField(item, 7, 0, 7):
			return true
		}
	}
	return false
}

// openEnd recognises a step without a range: */2, 3/2.
func openEnd(item string) bool {
	base, _, stepped := strings.Cut(item, "/")
	return stepped && !strings.Contains(base, "-")
}
