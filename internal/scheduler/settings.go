package scheduler

import (
	"fmt"
	"slices"
	"time"
)

// Settings are the queue rules of a session. A zero field means the default, or the value of base in Over. A message may have its own; they apply to its
// session from that call on, until another message changes them.
type Settings struct {
	// Mode is what happens to a message that arrives while a turn runs. Default ModeQueue.
	Mode QueueMode
	// Debounce is how long a typed message waits for a further one before it becomes a turn. Default 800 ms, at most 1 h. Negative disables it.
	Debounce time.Duration
	// DebounceMax is the longest time for which the first message of a batch is held, however fast the person types. Default 3 times Debounce, at most 1 h. It
	// cannot be disabled.
	DebounceMax time.Duration
	// BatchMessages is the maximum number of messages in a batch. Default 12. Negative: no limit.
	BatchMessages int
	// BatchBytes is the maximum size of a merged turn in bytes (the sum of Item.Size); a single larger message runs alone. Default 50 000. Negative: no limit.
	BatchBytes int
	// MaxConcurrent bounds the concurrent turns of the session. Default 1.
	MaxConcurrent int
}

const (
	defaultDebounce      = 800 * time.Millisecond
	defaultBatchMessages = 12
	defaultBatchBytes    = 50_000
	holdFactor           = 3
	maxDebounce          = time.Hour // no person waits longer for an answer; it also prevents an overflow of sums of durations
)

// DefaultSettings are the default values. DebounceMax stays zero, because it depends on Debounce.
func DefaultSettings() Settings {
	return Settings{
		Mode: ModeQueue, Debounce: defaultDebounce,
		BatchMessages: defaultBatchMessages, BatchBytes: defaultBatchBytes, MaxConcurrent: 1,
	}
}

// Over returns s with its zero fields taken from base: the settings of a channel override the global ones, and those of an agent override the channel's. If s
// has a Debounce without a DebounceMax, the maximum follows from it.
func (s Settings) Over(base Settings) Settings {
	if s.DebounceMax == 0 && s.Debounce == 0 {
		s.DebounceMax = base.DebounceMax
	}
	s.Mode = either(s.Mode, base.Mode)
	s.Debounce = either(s.Debounce, base.Debounce)
	s.BatchMessages = either(s.BatchMessages, base.BatchMessages)
	s.BatchBytes = either(s.BatchBytes, base.BatchBytes)
	s.MaxConcurrent = either(s.MaxConcurrent, base.MaxConcurrent)
	return s
}

// either is a unless it is zero.
func either[T comparable](a, b T) T {
	var zero T
	if a == zero {
		return b
	}
	return a
}

// Validate reports every fault. The error matches ErrInvalid.
func (s Settings) Validate() error { return invalid("queue settings", s.faults("")) }

// faults lists the faults, each with its path below prefix.
func (s Settings) faults(prefix string) []error {
	var faults []error
	if !exact(s.Mode, QueueModes()) {
		faults = append(faults, fmt.Errorf("%smode: %q is not one of %v", prefix, s.Mode, QueueModes()))
	}
	if s.Debounce > maxDebounce {
		faults = append(faults, fmt.Errorf("%sdebounce: %v is longer than %v", prefix, s.Debounce, maxDebounce))
	}
	if s.DebounceMax < 0 || s.DebounceMax > maxDebounce {
		faults = append(faults, fmt.Errorf("%sdebounce_max: %v is not between 0 and %v; a message is never held without end",
			prefix, s.DebounceMax, maxDebounce))
	}
	if s.DebounceMax > 0 && s.DebounceMax < s.Debounce {
		faults = append(faults, fmt.Errorf("%sdebounce_max: %v is shorter than debounce %v", prefix, s.DebounceMax, s.Debounce))
	}
	if s.MaxConcurrent < 0 {
		faults = append(faults, fmt.Errorf("%smax_concurrent: %d is negative", prefix, s.MaxConcurrent))
	}
	return faults
}

// exact reports whether the name is empty or exactly one of the constants.
func exact[T ~string](name T, known []T) bool {
	return name == "" || slices.Contains(known, name)
}

// hold is the longest time for which the first message of a batch waits.
func (s Settings) hold() time.Duration {
	if s.DebounceMax > 0 {
		return s.DebounceMax
	}
	return holdFactor * s.Debounce
}

// cuts reports whether a batch of this size is complete.
func (s Settings) cuts(count, bytes int) bool {
	return s.BatchMessages > 0 && count >= s.BatchMessages || s.BatchBytes > 0 && bytes >= s.BatchBytes
}
