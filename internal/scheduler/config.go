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

// Config is the configuration of New. The zero value of a field is its default; only Run is required.
type Config[M any] struct {
	// Lanes that exist from the start. Empty means DefaultLanes. "main" must be among them.
	Lanes []Lane
	// Queue are the settings of sessions whose messages have none.
	Queue Settings
	// PrincipalTurns is how many bounded turns one principal may have concurrently, in all lanes together (see Item.Bounded). A turn over the bound waits
	// without a slot. A session holds a place from the moment at which its next turn only needs a slot. 0 means no bound.
	PrincipalTurns int
	// Run executes one turn on a goroutine of its own, which holds the slot until Run has returned. ctx is cancelled with a *CancelCause. A nil error means
	// answered. A panic is caught, logged with its stack, and ends the turn failed. Run must not wait for another turn except inside Turn.Yield.
	Run func(ctx context.Context, t *Turn[M]) error
	// Begins promises that Run calls Turn.Began. A session then starts its next turn only when the previous one has begun or returned, so that turns of one
	// session begin in the order of their messages even if several run concurrently. False: a turn has begun when Run is called.
	Begins bool
	// TokenEstimate returns the size of the session's history and of the model's window, both in tokens. It is called before a second concurrent turn of a
	// session starts, on a goroutine of its own and outside every lock; the result is valid until a turn of the session ends. During the call the session
	// starts no further turn; other sessions continue. ctx is cancelled when the result is no longer needed. Nil means no throttle.
	TokenEstimate func(ctx context.Context, session string) (tokens, contextWindow int)
	// ThrottleAt is the share of the window, above 0 and at most 1, from which a session runs one turn at a time.
	// 0 means 0.6.
	ThrottleAt float64
	// StopGrace is how long a cancelled turn may take to return before it is reported as stuck. 0 means 2 s.
	StopGrace time.Duration
	// OnStuck is called once for a turn that has not returned StopGrace after it was cancelled (half of it in a drain), on a goroutine of its own and outside
	// every lock. The turn's outcome is decided when OnStuck returns, unless Run returns earlier. A later result of Run is discarded.
	OnStuck func(t *Turn[M])
	// Observer is called for events, for metrics. May be nil.
	Observer Observer
	// Logger logs panics, stuck turns and unknown lanes. Nil disables logging.
	Logger *slog.Logger
}

// withDefaults returns a copy with all defaults filled in.
func (c Config[M]) withDefaults() Config[M] {
	c.Lanes = slices.Clone(c.Lanes)
	if len(c.Lanes) == 0 {
		c.Lanes = DefaultLanes()
	}
	c.Queue = c.Queue.Over(DefaultSettings())
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

// Validate reports every fault of the configuration with its path. The error matches ErrInvalid. Zero values are defaults and therefore valid, except for Run.
func (c Config[M]) Validate() error {
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
	faults = append(faults, c.Queue.faults("queue.")...)
	return invalid("scheduler configuration", faults)
}

// invalid wraps the faults into one error; nil when the list is empty.
func invalid(what string, faults []error) error {
	if len(faults) == 0 {
		return nil
	}
	return fmt.Errorf("%w %s: %w", ErrInvalid, what, errors.Join(faults...))
}
