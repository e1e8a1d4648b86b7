package scheduler

import (
	"fmt"
	"slices"
	"time"
)

// Settings are the queue rules of a session. A zero field means the default, or what lies below in Over. A message may
// bring its own; they hold for its session from that call on, until another message brings others.
type Settings struct {
	// Mode is what a message does that arrives while a turn runs. Default ModeQueue.
	Mode QueueMode
	// Debounce is the time without a further message after a typed one before it becomes a turn. Default 800 ms, at most 1 h. Negative: none.
	Debounce time.Duration
	// DebounceMax is the longest that the first message of a batch is held, however fast the person types. Default 3 times
	// Debounce, at most 1 h. There is no way to switch it off.
	DebounceMax time.Duration
	// BatchMessages is how many messages a batch holds at most. Default 12. Negative: no limit.
	BatchMessages int
	// BatchBytes is how many bytes (the sum of Item.Size) a merged turn holds at most; a single larger message runs alone.
	// Default 50 000. Negative: no limit.
	BatchBytes int
	// MaxConcurrent is how many turns of the session run at once. Default 1.
	MaxConcurrent int
}

const (
	defaultDebounce      = 800 * time.Millisecond
	defaultBatchMessages = 12
	defaultBatchBytes    = 50_000
	holdFactor           = 3
	maxDebounce          = time.Hour // no person waits longer for an answer; it also keeps sums of durations from overflowing
)

// DefaultSettings are the defaults, written out. DebounceMax stays zero, because it follows Debounce.
func DefaultSettings() Settings {
	return Settings{
		Mode: ModeQueue, Debounce: defaultDebounce,
		BatchMessages: defaultBatchMessages, BatchBytes: defaultBatchBytes, MaxConcurrent: 1,
	}
}

// Over returns s with its zero fields taken from base: so are the settings of a channel laid over the global ones, and
// those of an agent over the channel's. A Debounce of its own without a DebounceMax brings its own maximum too.
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

// Validate names every fault. The error matches ErrInvalid.
func (s Settings) Validate() error { return invalid("queue settings", s.faults("")) }

// faults lists what is wrong, each with its path below prefix.
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

// exact reports whether the name is empty or written exactly as the constant.
func exact[T ~string](name T, known []T) bool {
	return name == "" || slices.Contains(known, name)
}

// hold is the longest time that the first message of a batch waits.
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
