package cli

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// flagWord describes the flag of a member of a job. On the command line, numbers with a unit are durations, and instants are times.
type flagWord struct {
	flag    string
	unit    time.Duration
	instant bool
}

// flagOf returns the flag of a member by its path.
func flagOf(path string) (flagWord, bool) {
	switch path {
	case "schedule.everyMs":
		return flagWord{flag: "--every", unit: time.Millisecond}, true
	case "jitterMs", "schedule.staggerMs":
		return flagWord{flag: "--jitter", unit: time.Millisecond}, true
	case "timeoutSeconds", "payload.timeoutSeconds":
		return flagWord{flag: "--timeout", unit: time.Second}, true
	case "missed.windowSeconds":
		return flagWord{flag: "--missed-window", unit: time.Second}, true
	case "startsAtMs":
		return flagWord{flag: "--from", instant: true}, true
	case "endsAtMs":
		return flagWord{flag: "--until", instant: true}, true
	}
	for _, w := range []struct{ path, flag string }{
		{"schedule.at", "--at"},
		{"schedule.atMs", "--at"},
		{"schedule.expr", "--cron"},
		{"schedule.tz", "--tz"},
		{"dst.gap", "--dst-gap"},
		{"dst.overlap", "--dst-overlap"},
		{"name", "--name"},
		{"payload.message", "--message"},
		{"agentId", "--agent"},
		{"sessionTarget", "--session"},
		{"delivery.to", "--webhook"},
		{"delivery.channel", "--deliver"},
		{"overlap", "--overlap"},
		{"missed.policy", "--missed"},
		{"missed.maxCatchup", "--missed-most"},
		{"retry.maxRetries", "--retries"},
		{"maxRuns", "--max-runs"},
		{"failureAlert.after", "--alert-after"},
		{"failureAlert.to", "--alert-to"},
		{"failureAlert.channel", "--alert-to"},
		{"paused.note", "--paused"},
		{"key", "--key"},
	} {
		if w.path == path {
			return flagWord{flag: w.flag}, true
		}
	}
	return flagWord{}, false
}

// flagError is a refusal with the names of flags. It wraps the refusal of the gateway.
type flagError struct {
	sentence string
	cause    error
}

func (e *flagError) Error() string { return e.sentence }

func (e *flagError) Unwrap() error { return e.cause }

// inFlags rewrites a refusal of a job's member with the name of its flag, which the gateway does not know. The sentence is kept, except for
// numbers that a person would write as durations, and members that are flags.
func inFlags(err error) error {
	text := strings.TrimPrefix(err.Error(), "at /")
	end := strings.IndexAny(text, ": ")
	if end < 0 {
		return err
	}
	w, known := flagOf(strings.ReplaceAll(text[:end], "/", "."))
	if !known {
		return err
	}
	rest := strings.TrimPrefix(strings.TrimLeft(text[end:], ": "), "is ")
	rest = strings.ReplaceAll(rest, "a schedule of kind every with everyMs", "--every")
	if w.unit > 0 {
		rest = numbers.ReplaceAllStringFunc(rest, w.duration)
	}
	return &flagError{sentence: w.flag + ": " + rest, cause: err}
}

// numbers matches a number, or two that form a range.
var numbers = regexp.MustCompile(`\d+(-\d+)?`)

// duration formats such a number as a duration.
func (w flagWord) duration(text string) string {
	low, high, isRange := strings.Cut(text, "-")
	if isRange {
		return w.duration(low) + " to " + w.duration(high)
	}
	n, err := strconv.ParseInt(low, 10, 64)
	if err != nil || n > int64((1<<63-1)/w.unit) {
		return text
	}
	switch d := time.Duration(n) * w.unit; {
	case d > 0 && d%(24*time.Hour) == 0:
		return fmt.Sprintf("%dh", d/time.Hour) + inDays(d)
	default:
		return exact(d)
	}
}

// exact formats a duration like package time, without trailing zero units.
func exact(d time.Duration) string {
	text := d.String()
	for _, zero := range []string{"m0s", "h0m"} {
		if strings.HasSuffix(text, zero) {
			text = text[:len(text)-2]
		}
	}
	return text
}

// inDays explains a duration that has no short form on the command line.
func inDays(d time.Duration) string {
	if d < 48*time.Hour {
		return ""
	}
	return fmt.Sprintf(" (%d days)", d/(24*time.Hour))
}
