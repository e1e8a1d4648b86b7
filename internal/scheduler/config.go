package scheduler

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"
)

const (
	defaultThrottleAt = 0.6
	defaultStopGrace  = 2 * time.Second
)

// Config is the configuration of New. The zero value of a field is its default; only Run is
// required.
type Config struct {
	// Lanes that exist from the start. Empty means DefaultLanes. "main" must be among them.
	Lanes []Lane
	// PrincipalTurns is how many bounded turns one principal may have concurrently, in all lanes
	// together (see Wake.Bounded). A turn over the bound waits without a slot. A session holds a
	// place from the moment at which its next turn only needs a slot. 0 means no bound.
	PrincipalTurns int
	// Run executes one turn on a goroutine of its own, which holds the slot until Run has returned. It
	// asks the store what to do with the slot, and calls Turn.Began or Turn.BeganNothing. ctx is
	// cancelled with a *CancelCause. A nil error means answered. A panic is caught, logged with its
	// stack, and ends the turn failed. Run must not wait for another turn except inside Turn.Yield.
	Run func(ctx context.Context, t *Turn) error
	// TokenEstimate returns the size of the session's history and of the model's window, both in
	// tokens. It is called before a second concurrent turn of a session starts, on a goroutine of
	// its own and outside every lock; the result is valid until a turn of the session ends. During
	// the call the session starts no further turn; other sessions continue. ctx is cancelled when
	// the result is no longer needed. Nil means no throttle.
	TokenEstimate func(ctx context.Context, session string) (tokens, contextWindow int)
	// ThrottleAt is the share of the window, above 0 and at most 1, from which a session runs one
	// turn at a time. 0 means 0.6.
	ThrottleAt float64
	// StopGrace is how long a cancelled turn may take to return before it is reported as stuck. 0
	// means 2 s.
	StopGrace time.Duration
	// OnStuck is called once for a turn that has not returned StopGrace after it was cancelled
	// (half of it in a drain), on a goroutine of its own and outside every lock. The turn's outcome
	// is decided when OnStuck returns, unless Run returns earlier. A later result of Run is
	// discarded.
	OnStuck func(t *Turn)
	// Observer is called for events, for metrics. May be nil.
	Observer Observer
	// Logger logs panics, stuck turns and unknown lanes. Nil disables logging.
	Logger *slog.Logger
}

// withDefaults returns a copy with all defaults filled in.
func (c Config) withDefaults() Config {
	c.Lanes = slices.Clone(c.Lanes)
	if len(c.Lanes) == 0 {
		c.Lanes = DefaultLanes()
	}
	if c.ThrottleAt == 0 {
		c.ThrottleAt = defaultThrottleAt
	}
	if c.StopGrace == 0 {
		c.StopGrace = defaultStopGrace
	}
	if c.Observer == nil {
		c.Observer = NopObserver{}
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

// Validate reports every fault of the configuration with its path. The error matches ErrInvalid.
// Zero values are defaults and therefore valid, except for Run.
func (c Config) Validate() error {
	var faults []error
	if c.Run == nil {
		faults = append(faults, errors.New("run: must be set"))
	}
	faults = append(faults, laneFaults(c.Lanes)...)
	if !(c.ThrottleAt >= 0 && c.ThrottleAt <= 1) { // written so that NaN is a fault, too
		faults = append(faults, fmt.Errorf("throttle_at: %v is not between 0 and 1", c.ThrottleAt))
	}
	if c.PrincipalTurns < 0 {
		faults = append(faults, fmt.Errorf("principal_turns: %d is negative", c.PrincipalTurns))
	}
	if c.StopGrace < 0 {
		faults = append(faults, fmt.Errorf("stop_grace: %v is negative", c.StopGrace))
	}
	return invalid("scheduler configuration", faults)
}

// invalid wraps the faults into one error; nil when the list is empty.
func invalid(what string, faults []error) error {
	if len(faults) == 0 {
		return nil
	}
	return fmt.Errorf("%w %s: %w", ErrInvalid, what, errors.Join(faults...))
}

// Settings are the queue rules of a session. A zero field means the default, or the value of base
// in Over. A message may have its own; a Wake with them applies to its session until the next one.
type Settings struct {
	// Mode is what happens to a message that arrives while a turn runs. Default ModeQueue.
	Mode QueueMode
	// Debounce is how long a typed message waits for a further one before it becomes a turn.
	// Default 800 ms, at most 1 h. Negative disables it.
	Debounce time.Duration
	// DebounceMax is the longest time for which the first message of a batch is held, however fast
	// the person types. Default 3 times Debounce, at most 1 h. It cannot be disabled.
	DebounceMax time.Duration
	// BatchMessages is the maximum number of messages in a batch. Default 12. Negative: no limit.
	BatchMessages int
	// BatchBytes is the maximum size of a merged turn in bytes (the sum of Row.Size); a single
	// larger message runs alone. Default 50 000. Negative: no limit.
	BatchBytes int
	// MaxConcurrent bounds the concurrent turns of the session. Default 1.
	MaxConcurrent int
	// Cap is how many units may wait; it is applied when a message is accepted. Default 10.
	// Negative: no limit.
	Cap int
	// DropNew refuses a message that finds a full queue. Otherwise the oldest waiting unit makes
	// room.
	DropNew bool
}

const (
	defaultDebounce      = 800 * time.Millisecond
	defaultBatchMessages = 12
	defaultBatchBytes    = 50_000
	defaultCap           = 10
	holdFactor           = 3
	maxDebounce          = time.Hour // no person waits longer for an answer; it also prevents an overflow of sums of durations
)

// DefaultSettings are the default values. DebounceMax stays zero, because it depends on Debounce.
func DefaultSettings() Settings {
	return Settings{
		Mode: ModeQueue, Debounce: defaultDebounce,
		BatchMessages: defaultBatchMessages, BatchBytes: defaultBatchBytes, MaxConcurrent: 1, Cap: defaultCap,
	}
}

// Over returns s with its zero fields taken from base: the settings of a channel override the
// global ones, and those of an agent override the channel's. If s has a Debounce without a
// DebounceMax, the maximum follows from it.
func (s Settings) Over(base Settings) Settings {
	if s.DebounceMax == 0 && s.Debounce == 0 {
		s.DebounceMax = base.DebounceMax
	}
	s.Mode = either(s.Mode, base.Mode)
	s.Debounce = either(s.Debounce, base.Debounce)
	s.BatchMessages = either(s.BatchMessages, base.BatchMessages)
	s.BatchBytes = either(s.BatchBytes, base.BatchBytes)
	s.MaxConcurrent = either(s.MaxConcurrent, base.MaxConcurrent)
	s.Cap = either(s.Cap, base.Cap)
	s.DropNew = s.DropNew || base.DropNew
	return s
}

// modeOf is the mode of a message: what it asks for, over the choice for its session, over the
// configuration. A message that gathers waits even where others interrupt or join the running turn.
func (s Settings) modeOf(m *Row, session QueueMode) QueueMode {
	mode := either(m.Mode, either(session, s.Mode))
	if m.Gathers && (mode == ModeInterrupt || mode == ModeSteer) {
		return ModeQueue
	}
	return mode
}

// For returns the settings for a message of a session for which a mode was chosen, "" = none was.
func (s Settings) For(m *Row, session QueueMode) Settings {
	s.Mode = s.modeOf(m, session)
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

// QueueMode is what happens to a message that arrives while a turn of its session runs. The values
// are those of package chat, which the scheduler does not import; the caller converts.
type QueueMode string

// The modes. The empty mode is ModeQueue.
const (
	// ModeQueue: it waits, first in first out.
	ModeQueue QueueMode = "queue"
	// ModeFollowup: the same as ModeQueue, under another name.
	ModeFollowup QueueMode = "followup"
	// ModeInterrupt: running turns are cancelled, waiting messages end superseded, and the new
	// message starts when the cancelled turns have really returned.
	ModeInterrupt QueueMode = "interrupt"
	// ModeCollect: all waiting messages become one turn when the running one ends.
	ModeCollect QueueMode = "collect"
	// ModeSteer: it is passed to a running turn that takes input; otherwise it waits as in
	// ModeQueue.
	ModeSteer QueueMode = "steer"
)

// QueueModes lists every mode.
func QueueModes() []QueueMode {
	return []QueueMode{ModeQueue, ModeFollowup, ModeInterrupt, ModeCollect, ModeSteer}
}
