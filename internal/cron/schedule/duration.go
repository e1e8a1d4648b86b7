package schedule

import (
	"strconv"
	"strings"
	"time"
)

// duration reads 20m, 2h30m, 1d12h, or a number and a word: 20 minutes. The sum is at least a millisecond and at most [MaxEvery].
func (p *whenParser) duration() (time.Duration, bool) {
	word := strings.ToLower(p.take())
	if word != "" && strings.Trim(word, "0123456789") == "" {
		word += strings.ToLower(p.take())
	}
	var sum time.Duration
	for word != "" {
		digits := len(word) - len(strings.TrimLeft(word, "0123456789"))
		if digits == 0 {
			return 0, false
		}
		n, err := strconv.ParseInt(word[:digits], 10, 64)
		word = word[digits:]
		name := word[:len(word)-len(strings.TrimLeft(word, "abcdefghijklmnopqrstuvwxyz"))]
		word = word[len(name):]
		unit, ok := unitOf(name)
		if !ok {
			return 0, false
		}
		if err != nil || n > int64(MaxEvery/unit) || sum+time.Duration(n)*unit > MaxEvery {
			p.err = NewInvalid(fieldWhen, InvalidRange, "that is too long, at most ten years are allowed")
			return 0, false
		}
		sum += time.Duration(n) * unit
	}
	if sum <= 0 {
		return 0, false
	}
	return sum, true
}

func unitOf(name string) (time.Duration, bool) {
	switch name {
	case "s", "sec", "secs", "second", "seconds":
		return time.Second, true
	case "m", "min", "mins", "minute", "minutes":
		return time.Minute, true
	case "h", "hr", "hrs", "hour", "hours":
		return time.Hour, true
	case "d", "day", "days":
		return 24 * time.Hour, true
	case "w", "week", "weeks":
		return 7 * 24 * time.Hour, true
	}
	return 0, false
}
