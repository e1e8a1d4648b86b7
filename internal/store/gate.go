package store

import (
	"sync"
	"time"
)

// MaxRest is the longest rest of a poll. After it the poll reads again, whatever its [Gate] has recorded.
const MaxRest = time.Minute

// Poll identifies a periodic query for due work.
type Poll struct {
	Kind string
	// Node is the polling node; "" when the poll needs no live node.
	Node string
	// Of is what else the poll depends on, such as the channels that it reads.
	Of string
}

// Gate tracks which polls can find nothing, in a process that makes every change of its store. A poll that has found nothing rests until a change, until the
// next instant at which something becomes due, or for [MaxRest]. So an idle process reads nothing.
//
// The store calls Changed after each commit that changed rows and before a caller receives its result. A heartbeat is no change, because a longer lease makes
// nothing due. Instead the poll of a node rests only while the gate knows that its lease is valid. All instants are of the store's clock; a clock that is set
// back ends a rest. The zero value is ready to use. A Gate is safe for concurrent use.
type Gate struct {
	mu      sync.Mutex
	changes uint64
	leases  map[string]time.Time // by node: when its lease ends
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

// Leased records how long the lease of a node is valid. The rests of its polls end with it.
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

// Rest records that a poll found nothing at now, and that something becomes due at next; zero = never. changes is the number of changes before its read: when
// something has changed since, the poll does not rest. Nor does it when next has passed.
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

// Resting reports whether a poll can find nothing at now, and the next that Rest recorded.
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
