package postgres

import (
	"cmp"
	"context"
	"sync"
	"time"

	"laneway/internal/store"
	"laneway/internal/store/sqlstore"
)

// probeEvery is how long a probe is believed: what another replica makes due is seen that much later at most.
const probeEvery = time.Second

// gate lets polls rest that can find nothing. Other replicas change the database too, so one statement a second, the probe, reads whether there can be
// work. What this process has changed itself, and a hint of another one, end the rest at once.
type gate struct {
	mu      sync.Mutex
	changes uint64 // of this process, and hints
	probed  probe
}

// probe is what there may be to find, for a node.
type probe struct {
	node    string
	clock   any // the injected one
	at      time.Time
	changes uint64          // before it was read
	due     map[string]bool // polls that may find something; a node that is dead may look for itself
}

func (g *gate) changed() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.changes++
}

// known returns what the last probe says about a poll; fresh is false when it is not to be believed any more. Then next is the probe to make. A poll of no node
// shares the probe of the node.
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
