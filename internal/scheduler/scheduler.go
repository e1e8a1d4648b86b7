package scheduler

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"
)

// Scheduler decides when turns run. It is safe for concurrent use. No method waits for a slot, and none but Drain waits for
// a turn.
type Scheduler[M any] struct {
	cfg Config[M] // with defaults written out; never changed
	// ctx is the parent of every turn: the values of the work context without its end. The end reaches the turns through
	// watch, which costs once per scheduler instead of an entry in the parent's list per turn.
	ctx   context.Context //nolint:containedctx // the scheduler owns its turns' contexts; a message's context would end them with its sender
	log   *slog.Logger
	obs   Observer
	base  time.Time   // zero of the scheduler's clock
	watch func() bool // ends the watch over the work context

	mu         sync.Mutex // for bookkeeping only; nothing waits, logs or calls back under it
	lanes      map[string]*lane[M]
	sessions   map[string]*session[M]
	peak       int // the most sessions since the map was made
	principals principals[M]
	spare      []*session[M]
	cutoffs    cutoffs
	gen        uint64
	draining   bool
	quiet      chan struct{} // closed when the last goroutine has ended, once draining
	live       int           // goroutines and armed timers that the scheduler owes an end
	tally      tally
	strangers  map[string]struct{} // unknown lane names that were logged
}

const (
	maxSpare     = 4096 // pooled sessions while others are at work
	idleSpare    = 256  // pooled sessions when none is
	maxStrangers = 64   // unknown lane names remembered
	shrinkAt     = 4096 // a map that held more sessions than this is thrown away when it is empty, and the pool with it
)

// New makes a scheduler that is ready for messages. ctx is the work context, the parent of every turn: its values reach
// each turn, and when it ends every turn is cancelled with its cause and new messages are refused. It must not be the context
// of a request. The error matches ErrInvalid and names every fault of cfg.
//
// The scheduler has no goroutine of its own; Drain waits for those of its turns.
func New[M any](ctx context.Context, cfg Config[M]) (*Scheduler[M], error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if ctx.Err() != nil {
		return nil, fmt.Errorf("make a scheduler: the work context is over: %w", context.Cause(ctx))
	}
	cfg = cfg.withDefaults()
	s := &Scheduler[M]{
		cfg: cfg, ctx: context.WithoutCancel(ctx), log: cfg.Logger, obs: cfg.Observer, base: time.Now(),
		lanes: make(map[string]*lane[M], len(cfg.Lanes)), sessions: map[string]*session[M]{},
		strangers: map[string]struct{}{}, gen: 1, principals: principals[M]{byName: map[string]*principal[M]{}},
	}
	for _, l := range cfg.Lanes {
		s.lanes[l.Name] = &lane[M]{Lane: l}
	}
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

// Submit takes a message in and returns at once; it never waits for a slot, a turn or a callback of the configuration other
// than the Observer. The error is ErrMessageStale, ErrGatewayDraining, or matches ErrInvalid; then the message
// was not accepted and has no ticket.
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
	sub, err := s.admit(&it, set, &fx)
	s.mu.Unlock()
	sub.Ended = s.flush(&fx)
	if err != nil {
		s.refuse(refusal(err))
	}
	return sub, err
}

// refuse counts a message that was not accepted.
func (s *Scheduler[M]) refuse(why Refusal) {
	s.mu.Lock()
	s.tally.refused[why.index()]++
	s.mu.Unlock()
	s.obs.MessageRefused(why)
}

// admit decides about a message and puts it where it belongs.
func (s *Scheduler[M]) admit(it *Item[M], set Settings, fx *effects[M]) (Submitted[M], error) {
	if s.draining {
		return Submitted[M]{}, ErrGatewayDraining
	}
	cutoff := s.cutoffs.of(it.Session)
	if it.Seq != 0 && it.Seq <= cutoff {
		return Submitted[M]{}, ErrMessageStale
	}
	x := s.open(it.Session, cutoff)
	if known := s.known(x, it); known != nil {
		return Submitted[M]{Ticket: &known.ticket, Seq: it.Seq, Running: known.turnOf != nil, Duplicate: true}, nil
	}
	x.set = set
	l := s.laneOf(it.Lane, fx)
	if set.Mode == ModeInterrupt {
		s.interrupt(x, it, l, fx)
	}
	if s.joins(x, it, l) {
		return s.extend(x, s.entry(it, l, fx), fx), nil
	}
	if s.closeWindow(x) {
		s.settle(x, fx) // what the window held may start now
	}
	return s.enqueue(x, s.entry(it, l, fx), fx), nil
}

// known finds the message if it waits or runs already, and gives it a number if it has none. A run that begins again is known by its id as well:
// who submits it may know other messages of it.
func (s *Scheduler[M]) known(x *session[M], it *Item[M]) *entry[M] {
	if it.RunID != "" {
		if e := x.ofRun(it.RunID); e != nil {
			return e
		}
	}
	if it.Seq == 0 {
		it.Seq = x.last + 1
	}
	if it.Seq > x.last {
		x.last = it.Seq
		return nil
	}
	if _, e := x.findSeq(it.Seq); e != nil {
		return e
	}
	return x.runs(it.Seq)
}

// entry makes the record of an accepted message.
func (s *Scheduler[M]) entry(it *Item[M], l *lane[M], fx *effects[M]) *entry[M] {
	e := &entry[M]{box: [1]Item[M]{*it}, at: fx.now, lane: l, who: s.principals.of(it.Principal), count: 1, bytes: it.Size}
	e.last = e
	s.tally.accepted++
	return e
}

// enqueue lets the message wait, and starts it if it can start.
func (s *Scheduler[M]) enqueue(x *session[M], e *entry[M], fx *effects[M]) Submitted[M] {
	it := e.item()
	e.steer = x.set.Mode == ModeSteer && it.merges()
	e.alone = x.set.Mode == ModeInterrupt && len(x.running) > 0
	before := x.insert(e)
	if x.back() == e && s.debounces(x, it) {
		s.openWindow(x, e, fx.now)
	}
	s.settle(x, fx)
	return Submitted[M]{Ticket: &e.ticket, Seq: it.Seq, Running: e.turnOf != nil, Position: before}
}

// laneOf finds the lane of a name.
func (s *Scheduler[M]) laneOf(name string, fx *effects[M]) *lane[M] {
	if name == "" {
		return s.lanes[LaneMain]
	}
	if l, ok := s.lanes[name]; ok {
		return l
	}
	s.tally.unknownLanes++
	fx.unknown = true
	if _, logged := s.strangers[name]; !logged && len(s.strangers) < maxStrangers {
		s.strangers[name] = struct{}{}
		fx.stranger = name
	}
	return s.lanes[LaneMain]
}

// open returns the session, made if need be.
func (s *Scheduler[M]) open(key string, cutoff int64) *session[M] {
	if x, ok := s.sessions[key]; ok {
		return x
	}
	var x *session[M]
	if n := len(s.spare); n > 0 {
		x, s.spare[n-1] = s.spare[n-1], nil
		s.spare = s.spare[:n-1]
	} else {
		x = newSession[M]()
	}
	x.key, x.gen, x.last = key, s.gen, cutoff
	s.sessions[key] = x
	s.peak = max(s.peak, len(s.sessions))
	return x
}

// forget removes a session of which nothing runs or waits: idle costs nothing.
func (s *Scheduler[M]) forget(x *session[M], fx *effects[M]) {
	s.dropEstimate(x, fx)
	delete(s.sessions, x.key)
	x.recycle()
	if len(s.spare) < maxSpare {
		s.spare = append(s.spare, x)
	}
	if len(s.sessions) == 0 {
		s.shrink()
	}
}

// shrink lets go of what a burst has left behind.
func (s *Scheduler[M]) shrink() {
	if s.peak > shrinkAt {
		s.sessions, s.spare, s.peak = map[string]*session[M]{}, nil, 0
	}
	if len(s.spare) > idleSpare {
		s.spare = slices.Clone(s.spare[:idleSpare])
	}
	s.principals.shrink()
}

// refusal is the metric's label for an error of Submit.
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
