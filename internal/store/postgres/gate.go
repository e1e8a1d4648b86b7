package postgres

import (
	"cmp"
	"context"
	"sync"
	"time"

	"laneway/internal/store"
	"laneway/internal/store/sqlstore"
)

// probeEvery is how long the result of a probe is valid: work from another replica is found with at most this delay.
const probeEvery = time.Second

// gate skips polls that can find nothing. Other replicas change the database too, so one statement per second, the probe, checks for possible work. A change by
// this process, or a hint from another one, ends a rest immediately.
type gate struct {
	mu      sync.Mutex
	changes uint64 // of this process, and hints
	probed  probe
}

// probe is the result of a probe for a node: the work that may exist.
type probe struct {
	node    string
	clock   any // the injected clock
	at      time.Time
	changes uint64          // before it was read
	due     map[string]bool // polls that may find something; a dead node runs all of its polls
}

func (g *gate) changed() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.changes++
}

// known returns the result of the last probe for a poll; fresh is false when it has expired. Then next is the probe to make. A poll of no node shares the probe
// of the node.
func (g *gate) known(p store.Poll, clock any, now time.Time) (due, fresh bool, next probe) {
	g.mu.Lock()
	defer g.mu.Unlock()
	k, node := &g.probed, cmp.Or(p.Node, g.probed.node)
	fresh = k.node == node && k.clock == clock && k.changes == g.changes && k.due != nil && now.Sub(k.at) < probeEvery
	return k.due[p.Kind], fresh, probe{node: node, clock: clock, at: now, changes: g.changes}
}

func (g *gate) keep(k probe) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.probed = k
}

// mayFind reports whether a poll may find something.
func (e engine) mayFind(ctx context.Context, p store.Poll) (bool, error) {
	if p.Kind == sqlstore.PollJobs {
		return true, nil
	}
	at, clock := time.Now(), e.clock() //nolint:forbidigo // monotonic, never stored
	due, fresh, k := e.gate.known(p, clock, at)
	if fresh {
		return due, nil
	}
	err := e.View(ctx, p.Kind, func(ctx context.Context, tx sqlstore.Tx) (err error) {
		k.due, err = sqlstore.Due(ctx, tx, k.node)
		return err
	})
	if err == nil {
		e.gate.keep(k)
	}
	return k.due[p.Kind], err
}
