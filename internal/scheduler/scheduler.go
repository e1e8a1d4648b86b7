package scheduler

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// Scheduler decides when turns run. It is safe for concurrent use. No method waits for a slot, and none but Drain waits for a turn.
//
// Its methods are the only ones that take the mutex: each takes it, lets core decide, releases it, and performs the effects.
type Scheduler[M any] struct {
	cfg Config[M] // with defaults filled in; never changed
	// ctx is the parent of every turn: the values of the work context without its end. The end is passed to the turns by watch, which costs once per scheduler
	// instead of an entry in the parent's list per turn.
	ctx   context.Context //nolint:containedctx // the scheduler owns its turns' contexts; a message's context would end them with its sender
	base  time.Time       // zero time of the scheduler's clock
	watch func() bool     // ends the watch of the work context
	out   reporter[M]

	mu   sync.Mutex // for bookkeeping only; no wait, log or callback while it is held
	core core[M]
}

// New creates a scheduler that is ready for messages. ctx is the work context, the parent of every turn: its values reach each turn, and when it ends every
// turn is cancelled with its cause and new messages are refused. It must not be the context of a request. The error matches ErrInvalid and lists every fault of
// cfg.
//
// The scheduler has no goroutine of its own; Drain waits for those of its turns.
func New[M any](ctx context.Context, cfg Config[M]) (*Scheduler[M], error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if ctx.Err() != nil {
		return nil, fmt.Errorf("make a scheduler: the work context has ended: %w", context.Cause(ctx))
	}
	cfg = cfg.withDefaults()
	s := &Scheduler[M]{
		cfg: cfg, ctx: context.WithoutCancel(ctx), base: time.Now(), out: reporter[M]{obs: cfg.Observer, log: cfg.Logger},
	}
	s.core.init(s)
	s.watch = context.AfterFunc(ctx, func() { s.workOver(context.Cause(ctx)) })
	return s, nil
}

// workOver ends everything when the work context has ended.
func (s *Scheduler[M]) workOver(cause error) {
	s.beginDrain()
	s.Cancel(cause)
}

// now is the time on the scheduler's clock, which is monotonic.
func (s *Scheduler[M]) now() time.Duration { return time.Since(s.base) }

// begin creates the effects of one call. The time is read once, so all decisions of the call have the same time.
func (s *Scheduler[M]) begin() effects[M] { return effects[M]{now: s.now()} }

// Submit accepts a message and returns immediately; it never waits for a slot, a turn or a callback of the configuration other than the Observer. The error is
// ErrMessageStale, ErrGatewayDraining, or matches ErrInvalid; the message was then not accepted and has no ticket. It takes constant time, except for an
// overtaken message, whose position is searched.
func (s *Scheduler[M]) Submit(it Item[M]) (Submitted[M], error) {
	if err := it.check(); err != nil {
		s.refuse(RefusedInvalid)
		return Submitted[M]{}, err
	}
	set := s.cfg.Queue
	if it.Settings != nil {
		set = it.Settings.Over(set)
	}
	fx := s.begin()
	s.mu.Lock()
	sub, err := s.core.admit(&it, set, &fx)
	s.mu.Unlock()
	sub.Ended = s.perform(&fx)
	if err != nil {
		s.refuse(refusal(err))
	}
	return sub, err
}

// refuse counts a message that was not accepted.
func (s *Scheduler[M]) refuse(why Refusal) {
	s.mu.Lock()
	s.core.tally.refused[why.index()]++
	s.mu.Unlock()
	s.out.obs.MessageRefused(why)
}

// refusal is the metric label for an error of Submit.
func refusal(err error) Refusal {
	switch {
	case errors.Is(err, ErrMessageStale):
		return RefusedStale
	case errors.Is(err, ErrGatewayDraining):
		return RefusedDraining
	default:
		return RefusedInvalid
	}
}

// Cut closes the debounce window of the session and reports whether one was open. Its messages start as soon as they may, and a later message belongs to
// another turn: something other than a message came between, such as a command.
func (s *Scheduler[M]) Cut(session string) bool {
	fx := s.begin()
	s.mu.Lock()
	x, ok := s.core.queues.byKey[session]
	if ok = ok && s.core.queues.closeWindow(x); ok {
		s.core.settle(x, &fx)
	}
	s.mu.Unlock()
	s.perform(&fx)
	return ok
}

// windowOver is the timer of a debounce window. The deadline may have moved since the timer was set: moving a number is cheaper than moving a timer with every
// message.
func (s *Scheduler[M]) windowOver(x *session[M], window uint64) {
	fx := s.begin()
	s.mu.Lock()
	switch {
	case x.window != window:
		s.core.pending.done() // the window was closed while the timer fired
	case fx.now < x.deadline:
		x.timer.Reset(x.deadline - fx.now)
	default:
		s.core.queues.shut(x)
		s.core.settle(x, &fx)
		s.core.pending.done()
	}
	s.mu.Unlock()
	s.perform(&fx)
}
