package ownership

import (
	"context"
	"maps"
	"slices"
	"sync"

	"laneway/internal/store"
)

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

// Acquire takes or confirms a named lease for this process, for example for a channel that one replica polls. ok is false while another replica holds it, while
// this process drains and other replicas may take it, and while the gateway is held.
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

// releasing reports whether named leases are left to other replicas: this process drains, and other replicas may exist. The only process on its store keeps
// them, so that it can read a stop while turns finish.
func (n *Node) releasing() bool { return n.draining.Load() && !n.cfg.Exclusive }

// releaseAll releases every named lease, so that another replica can continue immediately instead of after the drain.
func (n *Node) releaseAll(ctx context.Context, me *incarnation) {
	for _, l := range me.leases.all() {
		me.leases.set(l, false)
		if err := n.store.ReleaseLease(ctx, l); err != nil {
			n.log.WarnContext(ctx, "a lease was not released; others wait until this process has left", "lease", l.Name, "err", err)
		}
	}
}
