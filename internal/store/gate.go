package store

import (
	"sync"
	"time"
)

// MaxRest is how long a poll rests at most: then it reads again, whatever its [Gate] knows.
const MaxRest = time.Minute

// Poll is a look for due work that is made again and again.
type Poll struct {
	Kind string
	// Node is the node that looks; "" = the poll needs no live node.
	Node string
	// Of is what else the poll depends on, such as the channels that it looks at.
	Of string
}

// Gate knows, in a process that makes every change of its store, which polls can find nothing. A poll that has found nothing rests until
// something was changed, until the next instant at which time alone makes something due, or for [MaxRest]. So an idle process reads nothing.
//
// The store calls Changed after each commit that changed rows and before anyone gets its result. A heartbeat is no change, because a
// longer lease makes nothing due. Instead the poll of a node rests only while the gate knows that its lease is valid. The instants are of the store's
// clock; a clock that is set back ends a rest. The zero value is ready, and safe for concurrent use.
type Gate struct {
	mu      sync.Mutex
	changes uint64
	leases  map[string]time.Time // ends, by node
	rests   map[Poll]rest        // since the last change
}

type rest struct{ since, until, next time.Time }

// Changed ends every rest.
func (g *Gate) Changed() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.changes++
	clear(g.rests)
}

// Leased notes how long the lease of a node is valid; a time that is not later than now ends its rests.
func (g *Gate) Leased(node string, until time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if until.IsZero() {
		delete(g.leases, node)
		return
	}
	if g.leases == nil {
		g.leases = map[string]time.Time{}
	}
	g.leases[node] = until
}

// Changes is the number of changes so far. A poll takes it before it reads.
func (g *Gate) Changes() uint64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.changes
}

// Rest notes that a poll, which read when there had been this many changes, found nothing at now, and that time makes something due at next; zero = never.
// A poll that met a change does not rest, nor does one that read after next.
func (g *Gate) Rest(p Poll, changes uint64, now, next time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if changes != g.changes {
		return
	}
	until := now.Add(MaxRest)
	if !next.IsZero() && next.Before(until) {
		until = next
	}
	if g.rests == nil {
		g.rests = map[Poll]rest{}
	}
	g.rests[p] = rest{since: now, until: until, next: next}
}

// Resting reports whether a poll can find nothing at now, and what Rest was told as next.
func (g *Gate) Resting(p Poll, now time.Time) (next time.Time, resting bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	r, ok := g.rests[p]
	if !ok || now.Before(r.since) || !now.Before(r.until) {
		return time.Time{}, false
	}
	if p.Node != "" && !now.Before(g.leases[p.Node]) {
		return time.Time{}, false
	}
	return r.next, true
}
