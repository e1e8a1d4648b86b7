package ownership

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"laneway/internal/chat"
	"laneway/internal/store"
)

// Defaults of a [Config].
const (
	DefaultLease = 15 * time.Second
	DefaultSweep = time.Second
	// maxMargin is the most that is taken off the lease locally, see [Config.margin].
	maxMargin = 2 * time.Second
)

// Store is the durable side. A [store.Waker] brings hints; without one everything is found by the sweep and the heartbeat.
type Store interface {
	Register(ctx context.Context, n store.Node) error
	Heartbeat(ctx context.Context, nodeID string, draining bool) (store.Beat, error)
	Unregister(ctx context.Context, nodeID string) error
	AcquireLease(ctx context.Context, name, nodeID string) (l store.Lease, ok bool, err error)
	ReleaseLease(ctx context.Context, l store.Lease) error
	Sweep(ctx context.Context, p store.SweepParams) ([]store.Taken, error)
	Hinted(ctx context.Context, nodeID string, limit int) ([]store.Taken, error)
	Hold(ctx context.Context) (*store.Hold, error)
	Audit(ctx context.Context, a chat.Audit) error
}

// Handler does what ownership decides. Its methods are called on the goroutines of [Node.Run].
type Handler interface {
	// Resume runs the unfinished messages of sessions that this incarnation owns. It is called after each sweep, also with none.
	Resume(ctx context.Context, sessions []store.Taken)
	// Stop ends a run that was asked to stop through another replica. A run that was stopped before keeps its first cause.
	Stop(request store.StopRequest)
	// LeaseLost gives up what runs and what waits in memory: another replica may own it already.
	LeaseLost()
	// Running are the ids of the runs that execute, also of those that are on their way out. The caller owns the map.
	Running() map[string]bool
}

// Observer counts, for metrics. Methods must not block.
type Observer interface {
	// LeaseLost: the store has declared this process dead, or could not be reached in time.
	LeaseLost()
	// TakenOver: a sweep took sessions over.
	TakenOver(sessions int)
	// RolledBack: the database has lost commits.
	RolledBack(sign RollbackSign)
}

// Config of a [Node]. Zero values are defaults.
type Config struct {
	// Version and Addr are shown to other replicas and to people.
	Version, Addr string
	// Lease is how long this process counts as alive without a heartbeat; 0 = 15 s. Heartbeat is how often it is extended; 0 = a fifth.
	Lease, Heartbeat time.Duration
	// Sweep is how often work without an owner is looked for; 0 = 1 s.
	Sweep time.Duration
	// Agents are those that this process has: it takes over no work of others, and says so to other replicas. nil = all.
	Agents []string
	// Given are agents that no process has and for whose work no process waits any more: this one takes it over, and it fails. nil = none. It does not block.
	Given func() []string
	// Fires: this process fires jobs.
	Fires bool
	// Exclusive: no other process can use the store, so what earlier processes owned is free at once.
	Exclusive bool
}

func (c Config) withDefaults() Config {
	if c.Lease == 0 {
		c.Lease = DefaultLease
	}
	if c.Heartbeat == 0 {
		c.Heartbeat = c.Lease / 5
	}
	if c.Sweep == 0 {
		c.Sweep = DefaultSweep
	}
	return c
}

// margin is taken off the lease: a process gives its work up before another may take it over.
func (c Config) margin() time.Duration { return min(maxMargin, c.Lease/5) }

// Node is this process as an owner of sessions. Make it with [New]. It is safe for concurrent use.
type Node struct {
	cfg     Config
	store   Store
	waker   store.Waker // nil = the store has no hints
	handler Handler
	obs     Observer
	log     *slog.Logger

	current    atomic.Pointer[incarnation] // written by the goroutine of the heartbeat, and by Register before it runs
	draining   atomic.Bool
	restarting atomic.Bool
	peers      atomic.Pointer[bool]       // whether there are other replicas; each sign of one stores a new pointer; nil = not known
	renew      chan chan struct{}         // asks the heartbeat for a new incarnation
	sweepNow   chan struct{}              // capacity 1: look again
	hold       atomic.Pointer[store.Hold] // nil = the gateway is not held
	witness    witness                    // touched by the goroutine of the heartbeat only
	sweptAt    atomic.Int64               // Unix nanoseconds of the last turn of the sweep loop
	life       context.Context            //nolint:containedctx // of the loops: its end ends the waits of final writes, which survive the contexts of their callers
	end        context.CancelFunc
}

// incarnation is this process as the store knows it: a new one at each start, after each lost lease and by each restart in place.
type incarnation struct {
	id     string
	lease               // local: it is given up then even if the store cannot be asked
	leases *namedLeases // shared by the values that heartbeats make of one incarnation
}

// lease is the local end of a lease by both clocks of the machine.
type lease struct {
	until time.Time // monotonic: a clock that is set does not change it, and it stops while the machine is suspended
	wall  time.Time // without a monotonic reading: it runs while the machine is suspended
}

// over is whether the lease has ended by one of the clocks.
func (l lease) over(now time.Time) bool { return now.After(l.until) || now.Round(0).After(l.wall) }

// New makes a node. Nothing happens before Register or Run.
func New(cfg Config, st Store, handler Handler, obs Observer, log *slog.Logger) *Node {
	n := &Node{
		cfg: cfg.withDefaults(), store: st, handler: handler, obs: obs, log: log,
		renew: make(chan chan struct{}), sweepNow: make(chan struct{}, 1),
	}
	if w, ok := st.(store.Waker); ok {
		n.waker = w
	}
	n.life, n.end = context.WithCancel(context.Background()) //nolint:forbidigo,gosec // ends with Run, whose context comes later
	n.sweptAt.Store(time.Now().UnixNano())
	return n
}

// ID is the id of the current incarnation, "" while there is none.
func (n *Node) ID() string {
	if me := n.current.Load(); me != nil {
		return me.id
	}
	return ""
}

// Alive is the id of the current incarnation under which work may be taken on. chat.ErrStoreUnavailable: there is none, or its lease could not be
// extended in time. chat.ErrDraining: the process restarts in place.
func (n *Node) Alive() (id string, err error) {
	me, err := n.alive()
	if err != nil {
		return "", err
	}
	return me.id, nil
}

func (n *Node) alive() (*incarnation, error) {
	me := n.current.Load()
	switch {
	case n.restarting.Load():
		return nil, chat.ErrDraining
	case me == nil || me.over(time.Now()):
		return nil, chat.ErrStoreUnavailable
	}
	return me, nil
}

// Draining reports whether [Node.Drain] was called.
func (n *Node) Draining() bool { return n.draining.Load() }

// HasPeers reports whether other replicas share the store, as of the last heartbeat or cluster event.
func (n *Node) HasPeers() bool {
	peers := n.peers.Load()
	return peers != nil && *peers
}

// Hold is why the gateway is held, as of the last heartbeat; nil = it is not.
func (n *Node) Hold() *store.Hold { return n.hold.Load() }

// setHold notes whether the gateway is held, and logs a change.
func (n *Node) setHold(ctx context.Context, h *store.Hold) {
	switch before := n.hold.Swap(h); {
	case before == nil && h != nil:
		n.log.WarnContext(ctx, "the gateway is held: it sends nothing, receives nothing from channels and starts no jobs; release it with: laneway release",
			"since", h.Since, "by", h.Who, "reason", h.Reason)
	case before != nil && h == nil:
		n.log.InfoContext(ctx, "the gateway was released")
		n.SweepNow()
	}
}

// SawPeer notes a sign of another replica. The next heartbeat that begins after it decides again.
func (n *Node) SawPeer() { n.peers.Store(new(true)) }

// SweepAge is the time since the sweep loop last turned.
func (n *Node) SweepAge() time.Duration { return time.Since(time.Unix(0, n.sweptAt.Load())) }

// Lease is the configured lease; operations of the store are bounded by it.
func (n *Node) Lease() time.Duration { return n.cfg.Lease }

// SweepNow asks for a sweep. It never blocks.
func (n *Node) SweepNow() {
	select {
	case n.sweepNow <- struct{}{}:
	default:
	}
}

// Hint wakes the owner of a session that has a new message. A lost hint is made good by the owner's sweep.
func (n *Node) Hint(node string) {
	if n.waker != nil && node != "" {
		n.waker.Notify(node, store.HintMessage)
	}
}

// HintStop wakes the owner of a run that was asked to stop. A lost hint is made good by the owner's heartbeat.
func (n *Node) HintStop(node string) {
	if n.waker != nil && node != "" {
		n.waker.Notify(node, store.HintStop)
	}
}

// Register makes this process known to the store before anything is served: without it the first messages would be refused for a moment. [Node.Run]
// registers as well, and again whenever the lease is lost.
func (n *Node) Register(ctx context.Context) error {
	if n.current.Load() != nil {
		return nil
	}
	return n.register(ctx)
}

func (n *Node) register(ctx context.Context) error {
	row := store.Node{
		ID: uuid.Must(uuid.NewV7()).String(), Addr: n.cfg.Addr, Version: n.cfg.Version, Lease: n.cfg.Lease, Exclusive: n.cfg.Exclusive, Fires: n.cfg.Fires,
		Agents: n.cfg.Agents,
	}
	asked := time.Now()
	if err := n.store.Register(ctx, row); err != nil {
		return err
	}
	hold, err := n.store.Hold(ctx) // before a channel asks for its lease
	if err != nil {
		return err
	}
	n.setHold(ctx, hold)
	n.current.Store(&incarnation{id: row.ID, lease: n.until(asked), leases: &namedLeases{}})
	n.SweepNow()
	return nil
}

// until is the local end of a lease that was extended by a call that began at asked.
func (n *Node) until(asked time.Time) lease {
	end := asked.Add(n.cfg.Lease - n.cfg.margin())
	return lease{until: end, wall: end.Round(0)}
}
