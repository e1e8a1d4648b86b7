package gateway

import (
	"maps"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
)

// maxFollowed is how many runs one connection follows because it started them; over it the oldest is forgotten. A client that has
// more of them open subscribes.
const maxFollowed = 1_024

// hub knows every connection: for the capacity limits, for broadcasts, and for who gets the events of which run. Its lock is held
// for map operations only; connections are written to outside.
type hub struct {
	mu         sync.RWMutex
	sockets    int // reserved ones included
	strangers  map[netip.Addr]int
	unknown    int // sum of strangers
	conns      map[*conn]struct{}
	opened     map[*conn]struct{}
	principals map[string]int
	subscribed map[*conn]struct{}
	runs       map[string][]*conn
	closed     bool
	idle       sync.WaitGroup // connections, until their last request has returned
	running    atomic.Int64   // the same as a number
}

// following is what a connection gets events of; guarded by the hub's lock.
type following struct {
	admitted bool
	counted  string // principal
	runs     []string
}

func newHub() *hub {
	return &hub{
		strangers: map[netip.Addr]int{}, conns: map[*conn]struct{}{}, opened: map[*conn]struct{}{},
		principals: map[string]int{}, subscribed: map[*conn]struct{}{}, runs: map[string][]*conn{},
	}
}

// reserve takes a place for a socket that is about to be upgraded; the caller gives it back with release or hands it to add.
func (h *hub) reserve(addr netip.Addr, cfg *Config) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed || h.sockets >= cfg.MaxSockets || h.unknown >= cfg.MaxStrangers || h.strangers[addr] >= cfg.MaxStrangersPerAddr {
		return false
	}
	h.sockets++
	h.unknown++
	h.strangers[addr]++
	return true
}

func (h *hub) release(addr netip.Addr) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.sockets--
	h.known(addr)
}

// known takes an address off the list of strangers.
func (h *hub) known(addr netip.Addr) {
	h.unknown--
	if h.strangers[addr]--; h.strangers[addr] <= 0 {
		delete(h.strangers, addr)
	}
}

// add takes a connection in; false = the gateway has stopped meanwhile.
func (h *hub) add(c *conn) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return false
	}
	h.conns[c] = struct{}{}
	h.idle.Add(1)
	h.running.Add(1)
	return true
}

// done is called when nothing of a connection runs any more.
func (h *hub) done() {
	h.running.Add(-1)
	h.idle.Done()
}

// admit counts a connection for its principal; false = there are too many.
func (h *hub) admit(c *conn, id *identity, limit int) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.principals[id.principal()] >= limit {
		return false
	}
	h.principals[id.principal()]++
	c.following.admitted, c.following.counted = true, id.principal()
	h.known(c.addr)
	return true
}

// open queues the welcome and lets events through to the connection, in one step: whoever has read the welcome is part of every broadcast, and
// nothing is before it. welcome must not block.
func (h *hub) open(c *conn, welcome func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	welcome()
	h.opened[c] = struct{}{}
}

// remove forgets the connection.
func (h *hub) remove(c *conn) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.conns, c)
	delete(h.opened, c)
	delete(h.subscribed, c)
	for _, run := range c.following.runs {
		h.unfollow(c, run)
	}
	h.sockets--
	if !c.following.admitted {
		h.known(c.addr)
		return
	}
	p := c.following.counted
	if h.principals[p]--; h.principals[p] <= 0 {
		delete(h.principals, p)
	}
}

func (h *hub) unfollow(c *conn, run string) {
	left := slices.DeleteFunc(h.runs[run], func(o *conn) bool { return o == c })
	if len(left) == 0 {
		delete(h.runs, run)
		return
	}
	h.runs[run] = left
}

// subscribe gives the connection the events of every session that it may see.
func (h *hub) subscribe(c *conn) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, open := h.opened[c]; open {
		h.subscribed[c] = struct{}{}
	}
}

// follow gives the connection the events of one run.
func (h *hub) follow(c *conn, run string) (added bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, open := h.opened[c]; !open || slices.Contains(h.runs[run], c) {
		return false
	}
	if len(c.following.runs) >= maxFollowed {
		h.unfollow(c, c.following.runs[0])
		c.following.runs = c.following.runs[1:]
	}
	h.runs[run] = append(h.runs[run], c)
	c.following.runs = append(c.following.runs, run)
	return true
}

// forget ends the following of a run by one connection.
func (h *hub) forget(c *conn, run string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.unfollow(c, run)
	c.following.runs = slices.DeleteFunc(c.following.runs, func(r string) bool { return r == run })
}

// ended forgets a run that has had its last event.
func (h *hub) ended(run string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, c := range h.runs[run] {
		c.following.runs = slices.DeleteFunc(c.following.runs, func(r string) bool { return r == run })
	}
	delete(h.runs, run)
}

// audience is who gets an event of a run.
func (h *hub) audience(run string) []*conn {
	h.mu.RLock()
	defer h.mu.RUnlock()
	followers := h.runs[run]
	if len(h.subscribed) == 0 {
		return slices.Clone(followers)
	}
	out := slices.AppendSeq(make([]*conn, 0, len(h.subscribed)+len(followers)), maps.Keys(h.subscribed))
	for _, c := range followers {
		if _, both := h.subscribed[c]; !both {
			out = append(out, c)
		}
	}
	return out
}

func (h *hub) subscribers() []*conn {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return slices.Collect(maps.Keys(h.subscribed))
}

// everyone is every connection that is logged in.
func (h *hub) everyone() []*conn {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return slices.Collect(maps.Keys(h.opened))
}

// countOf is how many connections a principal has.
func (h *hub) countOf(principal string) int {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return h.principals[principal]
}

// count is how many connections are logged in.
func (h *hub) count() int {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return len(h.opened)
}

// close refuses new connections and returns those that exist, logged in or not.
func (h *hub) close() []*conn {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	return slices.Collect(maps.Keys(h.conns))
}

// remaining is every connection that has not ended.
func (h *hub) remaining() []*conn {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return slices.Collect(maps.Keys(h.conns))
}
