// Package ownership keeps the lease of this process in the store, and finds work that no live
// process owns.
//
// # Incarnations
//
// A serving process is an incarnation: a row in the table of nodes with a lease. [Node.Run] extends
// the lease with a heartbeat. Each start, each lost lease and each restart in place creates a new
// incarnation with a new id, so that the store refuses a claim of an old one (the fence). Locally
// the lease ends before it ends in the store: [Node.Alive] ends it at the time of the last
// heartbeat plus the lease minus a margin.
//
// # Work without an owner
//
// A sweep takes over sessions whose owner is dead, and reads messages that another replica has
// accepted for a session of this one. It runs periodically, after a hint from the store, and after
// [Node.SweepNow]. It is the only repair after a crash, a pause or a lost hint. Its result goes to
// [Handler.Wake].
//
// # Writes that must not be lost
//
// [Node.Final] retries a write while the store is unavailable and the incarnation is alive.
// [Node.WhileAlive] does so while its context lasts. A try that has begun is not cancelled, because
// its caller must know whether it was committed. Operations of the store may be repeated as a
// whole, so a repetition resolves an unknown result.
//
// # A database that lost commits
//
// A failover to a lagging standby, or a restored copy, loses commits that this process has seen.
// Each heartbeat compares the commit history of the database with the previous one, and the runs
// that the database assigns to this process with those that it executes. If they differ, the
// process abandons its incarnation and reads everything again. Another history alone is no loss:
// the process looks for the newest messages and ends that it has acknowledged
// ([Node.Acknowledged]). A loss is logged with their ids, counted and written to the audit log. The
// lost commits cannot be restored from memory.
//
// # Crash points
//
// Between a heartbeat and the next one: the lease ends, another replica sweeps. Between Register
// and the first sweep: nothing is owned yet. During [Node.Restart]: the old incarnation is
// unregistered or its lease ends, which frees the same sessions. Before [Node.Leave]: other
// replicas wait for the end of the lease.
//
// # Goroutines and the end
//
// [Node.Run] owns three goroutines: the heartbeat, the sweep, the stop requests. They are separate
// because a slow sweep must not cost the lease, and neither may delay a stop. Only the heartbeat
// replaces the incarnation. Run returns when all three have ended; it ends the waits of Final and
// WhileAlive as well. The order of a shutdown is [Node.Drain], then the work, then [Node.Leave],
// then the context of Run.
//
// # What it does not do
//
// It is independent of messages, turns, jobs and channels. It does not run or stop anything by
// itself: [Handler] does.
package ownership

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	"laneway/internal/chat"
	"laneway/internal/metrics"
	"laneway/internal/store"
)

// Defaults of a [Config].
const (
	DefaultLease = 15 * time.Second
	DefaultSweep = time.Second
	// maxMargin bounds the local reduction of the lease, see [Config.margin].
	maxMargin = 2 * time.Second
)

// Handler executes the decisions of ownership. Its methods are called on the goroutines of
// [Node.Run].
type Handler interface {
	// Wake runs what waits in sessions that this incarnation owns. It may tell of a session again.
	Wake(fronts []store.Front)
	// Stop ends a run whose stop was requested through another replica. A run that was stopped
	// before keeps its first cause.
	Stop(request store.StopRequest)
	// LeaseLost abandons running work and work that waits in memory: another replica may own it
	// already.
	LeaseLost()
	// Running are the ids of the executing runs, including those that are ending. The caller owns
	// the map.
	Running() map[string]bool
}

// counters are the metrics of a [Node].
type counters struct {
	leaseLost, takenOver prometheus.Counter
	rolledBack           *prometheus.CounterVec
}

func newCounters(r prometheus.Registerer) *counters {
	in := metrics.In(r)
	c := &counters{
		leaseLost:  in.Counter("lease_lost_total", "Times this process was declared dead or could not reach the database in time."),
		takenOver:  in.Counter("sessions_taken_over_total", "Sessions taken over from a process that had died."),
		rolledBack: in.Counters("database_rollbacks_total", "Times that the database had lost commits, by how it was detected.", "reason"),
	}
	for _, sign := range RollbackSigns() {
		c.rolledBack.WithLabelValues(string(sign))
	}
	return c
}

// Config configures a [Node]. Zero values are defaults.
type Config struct {
	// Version and Addr are shown to other replicas and to operators.
	Version, Addr string
	// Lease is how long this process counts as alive without a heartbeat; 0 = 15 s. Heartbeat is
	// how often it is extended; 0 = a fifth.
	Lease, Heartbeat time.Duration
	// Sweep is the interval of sweeps; 0 = 1 s.
	Sweep time.Duration
	// Agents are the agents of this process: it takes over no work of others, and publishes the
	// list to other replicas. nil = all.
	Agents []string
	// Given are agents that no process has and for whose work no process waits any more: this
	// process takes it over, and it fails. May be nil. It does not block.
	Given func() []string
	// Metrics is where the node registers its metrics; nil if nobody reads them.
	Metrics prometheus.Registerer
	// Fires: this process fires jobs.
	Fires bool
	// Exclusive: no other process can use the store, so the sessions of earlier processes are free
	// immediately.
	Exclusive bool
}

func (c Config) withDefaults() Config {
	c.Lease = cmp.Or(c.Lease, DefaultLease)
	c.Heartbeat = cmp.Or(c.Heartbeat, c.Lease/5)
	c.Sweep = cmp.Or(c.Sweep, DefaultSweep)
	return c
}

// margin is subtracted from the lease: a process abandons its work before another process may take
// it over.
func (c Config) margin() time.Duration { return min(maxMargin, c.Lease/5) }

// Node is this process as an owner of sessions. Create it with [New]. It is safe for concurrent
// use.
type Node struct {
	cfg      Config
	store    store.Store
	waker    store.Waker     // nil when the store has no hints
	woken    chat.SessionKey // the last session that the sweep has woken; zero = it begins again
	handler  Handler
	counters *counters
	log      *slog.Logger

	current    atomic.Pointer[incarnation] // written by the goroutine of the heartbeat, and by Register before it runs
	draining   atomic.Bool
	restarting atomic.Bool
	peers      atomic.Pointer[bool]       // whether other replicas exist; each sign of one stores a new pointer; nil = unknown
	renew      chan chan struct{}         // requests a new incarnation from the heartbeat
	sweepNow   chan struct{}              // capacity 1: sweep again
	hold       atomic.Pointer[store.Hold] // nil while the gateway is not held
	acked      acknowledged
	witness    witness         // used only by the goroutine of the heartbeat
	sweptAt    atomic.Int64    // Unix nanoseconds of the last iteration of the sweep loop
	life       context.Context //nolint:containedctx // of the loops: its end ends the waits of final writes, which survive the contexts of their callers
	end        context.CancelFunc
}

// incarnation is this process in the store: a new one at each start, after each lost lease and
// after each restart in place.
type incarnation struct {
	id     string
	lease               // the local lease, which ends the incarnation even when the store is unreachable
	leases *namedLeases // shared by the values of one incarnation, of which each heartbeat creates a new one
}

// lease is the local end of a lease by both clocks of the machine.
type lease struct {
	until time.Time // monotonic: setting the clock does not affect it, but it stops while the machine is suspended
	wall  time.Time // without a monotonic reading: it advances while the machine is suspended
}

// over reports whether the lease has ended by either clock.
func (l lease) over(now time.Time) bool { return now.After(l.until) || now.Round(0).After(l.wall) }

// New creates a node. It does nothing before Register or Run.
func New(cfg Config, st store.Store, handler Handler, log *slog.Logger) *Node {
	n := &Node{
		cfg: cfg.withDefaults(), store: st, handler: handler, counters: newCounters(cfg.Metrics), log: log,
		renew: make(chan chan struct{}), sweepNow: make(chan struct{}, 1),
	}
	if w, ok := st.(store.Waker); ok {
		n.waker = w
	}
	n.life, n.end = context.WithCancel(context.Background()) //nolint:forbidigo,gosec // ends with Run, whose context comes later
	n.sweptAt.Store(time.Now().UnixNano())
	return n
}

// ID is the id of the current incarnation, "" when none exists.
func (n *Node) ID() string {
	if me := n.current.Load(); me != nil {
		return me.id
	}
	return ""
}

// Alive is the id of the current incarnation, under which work may be accepted.
// chat.ErrStoreUnavailable: no incarnation exists, or its lease could not be extended in time.
// chat.ErrDraining: the process restarts in place.
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

// HasPeers reports whether other replicas share the store, as of the last heartbeat or cluster
// event.
func (n *Node) HasPeers() bool {
	peers := n.peers.Load()
	return peers != nil && *peers
}

// Hold is the hold of the gateway, as of the last heartbeat; nil when it is not held.
func (n *Node) Hold() *store.Hold { return n.hold.Load() }

// setHold records whether the gateway is held, and logs a change.
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

// SawPeer records a sign of another replica. The next heartbeat that begins afterwards decides
// again.
func (n *Node) SawPeer() { n.peers.Store(new(true)) }

// SweepAge is the time since the last iteration of the sweep loop.
func (n *Node) SweepAge() time.Duration { return time.Since(time.Unix(0, n.sweptAt.Load())) }

// Lease is the configured lease; it bounds the operations of the store.
func (n *Node) Lease() time.Duration { return n.cfg.Lease }

// SweepNow requests a sweep. It never blocks.
func (n *Node) SweepNow() {
	select {
	case n.sweepNow <- struct{}{}:
	default:
	}
}

// Hint wakes the owner of a session that has a new message. If the hint is lost, the owner's sweep
// finds the message.
func (n *Node) Hint(node string, session chat.SessionKey) {
	if n.waker != nil && node != "" {
		n.waker.Notify(node, store.HintMessage, session.String())
	}
}

// HintStop wakes the owner of a run whose stop was requested. If the hint is lost, the owner's
// heartbeat returns the request.
func (n *Node) HintStop(node string) {
	if n.waker != nil && node != "" {
		n.waker.Notify(node, store.HintStop, "")
	}
}

// Register registers this process with the store before it serves: without it the first messages
// would be refused for a moment. [Node.Run] registers as well, and again whenever the lease is
// lost.
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
	hold, err := n.store.Hold(ctx) // before a channel requests its lease
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

// namedLeases are the named leases that an incarnation holds.
type namedLeases struct {
	mu     sync.Mutex
	byName map[string]store.Lease
}

func (l *namedLeases) get(name string) (store.Lease, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	lease, ok := l.byName[name]
	return lease, ok
}

func (l *namedLeases) all() []store.Lease {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Collect(maps.Values(l.byName))
}

// set records whether a lease is held.
func (l *namedLeases) set(lease store.Lease, held bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !held {
		delete(l.byName, lease.Name)
		return
	}
	if l.byName == nil {
		l.byName = map[string]store.Lease{}
	}
	l.byName[lease.Name] = lease
}

// Acquire takes or confirms a named lease for this process, for example for a channel that one
// replica polls. ok is false while another replica holds it, while this process drains and other
// replicas may take it, and while the gateway is held.
func (n *Node) Acquire(ctx context.Context, name string) (ok bool, err error) {
	me, err := n.alive()
	if err != nil {
		return false, err
	}
	if n.releasing() || n.Hold() != nil {
		return false, nil
	}
	l, ok, err := n.store.AcquireLease(ctx, name, me.id)
	if err != nil {
		return false, err
	}
	l.Name = name
	me.leases.set(l, ok)
	return ok, nil
}

// Held is a named lease that the current incarnation holds.
func (n *Node) Held(name string) (store.Lease, bool) {
	me := n.current.Load()
	if me == nil {
		return store.Lease{}, false
	}
	return me.leases.get(name)
}

// releasing reports whether named leases are left to other replicas: this process drains, and other
// replicas may exist. The only process on its store keeps them, so that it can read a stop while
// turns finish.
func (n *Node) releasing() bool { return n.draining.Load() && !n.cfg.Exclusive }

// releaseAll releases every named lease, so that another replica can continue immediately instead
// of after the drain.
func (n *Node) releaseAll(ctx context.Context, me *incarnation) {
	for _, l := range me.leases.all() {
		me.leases.set(l, false)
		if err := n.store.ReleaseLease(ctx, l); err != nil {
			n.log.WarnContext(ctx, "a lease was not released; others wait until this process has left", "lease", l.Name, "err", err)
		}
	}
}

// leaveTime bounds [Node.Leave].
const leaveTime = time.Second

// Drain begins the shutdown: this process takes over and claims nothing any more, and releases its
// named leases to other replicas. It writes that to the store within ctx, or two further leases.
// The caller handles running work.
func (n *Node) Drain(ctx context.Context) {
	n.draining.Store(true)
	me := n.current.Load()
	if me == nil {
		return
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*n.cfg.Lease)
	defer cancel()
	if _, err := n.store.Heartbeat(boundedBy(ctx, last), me.id, true); err != nil {
		n.log.WarnContext(ctx, "the drain could not be recorded for other nodes", "err", err)
	}
	if n.releasing() {
		n.releaseAll(boundedBy(ctx, last), me)
	}
}

// boundedBy is ctx while it lasts, else last.
func boundedBy(ctx, last context.Context) context.Context {
	if ctx.Err() == nil {
		return ctx
	}
	return last
}

// Leave removes this process from the table of nodes: its remaining sessions are free for other
// replicas immediately. It is the last call before the context of Run ends. It takes at most a
// second.
func (n *Node) Leave(ctx context.Context) {
	me := n.current.Load()
	if me == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, leaveTime)
	defer cancel()
	if err := n.store.Unregister(ctx, me.id); err != nil {
		n.log.WarnContext(ctx, "this process was not unregistered; others wait for its lease to end", "err", err)
	}
}

// Restart replaces the incarnation. During the call [Node.Alive] refuses new work; release abandons
// the running and waiting work in memory and returns when that is done. Restart returns when the
// new incarnation is registered, or with the cause of ctx. Run must be running.
func (n *Node) Restart(ctx context.Context, release func(ctx context.Context) error) error {
	n.restarting.Store(true)
	defer n.restarting.Store(false)
	if err := release(ctx); err != nil {
		return err
	}
	done := make(chan struct{})
	select {
	case n.renew <- done:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// replace abandons the current incarnation and registers the next one. It runs on the goroutine of
// the heartbeat.
func (n *Node) replace(ctx context.Context) {
	if me := n.current.Swap(nil); me != nil {
		if err := n.store.Unregister(ctx, me.id); err != nil {
			n.log.WarnContext(ctx, "the old incarnation was not unregistered; its lease ends by itself", "err", err)
		}
	}
	n.restarting.Store(false)
	n.heartbeat(ctx)
}
