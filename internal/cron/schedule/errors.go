package schedule

import (
	"errors"
	"fmt"
)

// ErrInvalid is wrapped by every [*InvalidError]. Nothing was stored, and the same input gives the same error again.
var ErrInvalid = errors.New("invalid schedule")

// InvalidReason is why an input was refused. The set is closed, so that it can be a label of a metric.
type InvalidReason string

// The reasons for refusing a schedule or a related setting.
const (
	InvalidKind     InvalidReason = "unknown_kind"  // not at, every or cron
	InvalidMissing  InvalidReason = "missing"       // a member that the kind needs is absent
	InvalidSyntax   InvalidReason = "syntax"        // cannot be parsed
	InvalidRange    InvalidReason = "out_of_range"  // can be parsed, but is outside its bounds
	InvalidZone     InvalidReason = "unknown_zone"  // the zone does not exist
	InvalidPast     InvalidReason = "past"          // an at that has passed
	InvalidNever    InvalidReason = "never_fires"   // no fire within eight years, or none inside the limits
	InvalidFrequent InvalidReason = "too_frequent"  // two fires closer than the minimum interval
	InvalidChoice   InvalidReason = "unknown_value" // not one of the listed words
)

// InvalidError is a refused input. Field is its path as on the wire (schedule.expr, dst.gap, jitterMs); Sentence is for people and names the violated bound.
type InvalidError struct {
	Field    string
	Reason   InvalidReason
	Sentence string
}

// Error is the whole message, such as "schedule.expr: minute 99 is out of range 0-59".
func (e *InvalidError) Error() string {
	if e.Reason == InvalidPast {
		return e.Field + " is in the past: " + e.Sentence
	}
	return e.Field + ": " + e.Sentence
}

// Unwrap makes errors.Is(err, ErrInvalid) true.
func (e *InvalidError) Unwrap() error { return ErrInvalid }

// NewInvalid returns an [*InvalidError] whose sentence is formatted as by fmt.Sprintf.
func NewInvalid(field string, reason InvalidReason, format string, args ...any) error {
	return &InvalidError{Field: field, Reason: reason, Sentence: fmt.Sprintf(format, args...)}
}
