package socket

import (
	"context"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"

	"laneway/internal/chat"
)

// maxFollowed is how many runs one connection follows because it started them; beyond it the oldest
// is removed. A client with more of them should subscribe.
const maxFollowed = 1_024

// HubLimits limit the sockets of a [Hub].
type HubLimits struct {
	// Sockets may be open; of them Unauthenticated in total, PerPrincipal of one credential.
	Sockets, Unauthenticated, PerPrincipal int
}

// Hub has every connection C of a gateway: for the limits, for broadcasts, and for the
// subscriptions to events of runs. Its lock is held only for map operations; connections are
// written to without it. It is safe for concurrent use.
type Hub[C comparable] struct {
	limits HubLimits

	mu         sync.RWMutex
	sockets    int // including reserved ones
	unproven   unproven[C]
	members    map[C]*member[C]
	opened     map[C]struct{}
	principals map[string]int
	subscribed map[C]Subscription
	runs       map[string][]C
	closed     bool
	idle       sync.WaitGroup // connections, until Leave
	running    atomic.Int64   // the same as a number
}

// member is the state of a connection in the hub.
type member[C any] struct {
	place     *Reservation[C]
	principal string // it counts for this principal once admitted
	admitted  bool
	runs      []string // the runs that it follows
}

// Subscription defines what a connection receives of the runs that it has not started.
type Subscription struct {
	Deltas bool            // all events of every run; otherwise only the last ones
	Of     chat.SessionKey // the session whose events are all sent nevertheless
}

func (s Subscription) wants(session chat.SessionKey, end bool) bool {
	return end || s.Deltas || s.Of == session
}

// NewHub returns a hub without connections.
func NewHub[C comparable](limits HubLimits) *Hub[C] {
	return &Hub[C]{
		limits: limits, unproven: unproven[C]{limit: limits.Unauthenticated}, members: map[C]*member[C]{}, opened: map[C]struct{}{},
		principals: map[string]int{}, subscribed: map[C]Subscription{}, runs: map[string][]C{},
	}
}

// Reserve takes a place for a socket that is about to be upgraded, from a network that may have
// limit unauthenticated ones; p is nil when no place is free. The caller closes the connection of
// oldest, which may be nil, to make room. Either Release or Add must follow.
func (h *Hub[C]) Reserve(from netip.Addr, limit int) (p, oldest *Reservation[C]) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed || h.sockets >= h.limits.Sockets {
		return nil, nil
	}
	if p, oldest = h.unproven.enter(from, limit); p != nil {
		h.sockets++
	}
	return p, oldest
}

// Release releases a place that no connection uses.
func (h *Hub[C]) Release(p *Reservation[C]) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.sockets--
	h.unproven.leave(p)
}

// Add adds a connection with a reserved place; false = the gateway has stopped meanwhile. Remove
// and then Leave must follow.
func (h *Hub[C]) Add(c C, p *Reservation[C]) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return false
	}
	p.use(c)
	h.members[c] = &member[C]{place: p}
	h.idle.Add(1)
	h.running.Add(1)
	return true
}

// Leave is called when all goroutines of a connection have ended.
func (h *Hub[C]) Leave() {
	h.running.Add(-1)
	h.idle.Done()
}

// Wait waits until every connection has left, or ctx is done, and returns how many have not. Its
// goroutine ends with the last connection.
func (h *Hub[C]) Wait(ctx context.Context) int64 {
	done := make(chan struct{})
	go func() {
		defer close(done)
		h.idle.Wait()
	}()
	select {
	case <-done:
		return 0
	case <-ctx.Done():
		return h.running.Load()
	}
}

// Admit counts a connection for its principal; false = the limit is reached, or the connection was
// closed for a newer one.
func (h *Hub[C]) Admit(c C, principal string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	m := h.members[c]
	if m == nil || m.place.at == nil || h.principals[principal] >= h.limits.PerPrincipal {
		return false
	}
	h.principals[principal]++
	m.admitted, m.principal = true, principal
	h.unproven.leave(m.place)
	return true
}

// Open queues the answer to the handshake and includes the connection in broadcasts, atomically: a
// client that has read the answer receives every broadcast, and nothing precedes the answer. answer
// must not block.
func (h *Hub[C]) Open(c C, answer func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	answer()
	h.opened[c] = struct{}{}
}

// Remove removes the connection.
func (h *Hub[C]) Remove(c C) {
	h.mu.Lock()
	defer h.mu.Unlock()
	m := h.members[c]
	delete(h.members, c)
	delete(h.opened, c)
	delete(h.subscribed, c)
	for _, run := range m.runs {
		h.unfollow(c, run)
	}
	h.sockets--
	h.unproven.leave(m.place)
	if !m.admitted {
		return
	}
	if h.principals[m.principal]--; h.principals[m.principal] <= 0 {
		delete(h.principals, m.principal)
	}
}

func (h *Hub[C]) unfollow(c C, run string) {
	left := slices.DeleteFunc(h.runs[run], func(o C) bool { return o == c })
	if len(left) == 0 {
		delete(h.runs, run)
		return
	}
	h.runs[run] = left
}

// Subscribe sends the connection the events of every session that it may see, and replaces an
// earlier subscription.
func (h *Hub[C]) Subscribe(c C, s Subscription) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, open := h.opened[c]; open {
		h.subscribed[c] = s
	}
}

// Unsubscribe undoes Subscribe, and Follow for every run so far.
func (h *Hub[C]) Unsubscribe(c C) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.subscribed, c)
	if m := h.members[c]; m != nil {
		for _, run := range m.runs {
			h.unfollow(c, run)
		}
		m.runs = nil
	}
}

// Follow sends the connection the events of one run. added reports that it did not follow it
// before.
func (h *Hub[C]) Follow(c C, run string) (added bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, open := h.opened[c]; !open || slices.Contains(h.runs[run], c) {
		return false
	}
	m := h.members[c]
	if len(m.runs) >= maxFollowed {
		h.unfollow(c, m.runs[0])
		m.runs = m.runs[1:]
	}
	h.runs[run] = append(h.runs[run], c)
	m.runs = append(m.runs, run)
	return true
}

// Forget removes the run from the runs that one connection follows.
func (h *Hub[C]) Forget(c C, run string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.unfollow(c, run)
	if m := h.members[c]; m != nil {
		m.forget(run)
	}
}

// Ended removes a run after its last event.
func (h *Hub[C]) Ended(run string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, c := range h.runs[run] {
		h.members[c].forget(run)
	}
	delete(h.runs, run)
}

func (m *member[C]) forget(run string) {
	m.runs = slices.DeleteFunc(m.runs, func(r string) bool { return r == run })
}

// Audience returns the connections that receive an event of a run of a session; end = it is the one
// that ends the run.
func (h *Hub[C]) Audience(run string, session chat.SessionKey, end bool) []C {
	h.mu.RLock()
	defer h.mu.RUnlock()
	followers := h.runs[run]
	if len(h.subscribed) == 0 {
		return slices.Clone(followers)
	}
	out := make([]C, 0, len(h.subscribed)+len(followers))
	for c, s := range h.subscribed {
		if s.wants(session, end) {
			out = append(out, c)
		}
	}
	for _, c := range followers {
		if s, both := h.subscribed[c]; !both || !s.wants(session, end) {
			out = append(out, c)
		}
	}
	return out
}

// Followers returns the connections that follow a run.
func (h *Hub[C]) Followers(run string) []C {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return slices.Clone(h.runs[run])
}

// Subscribers returns the connections that subscribed.
func (h *Hub[C]) Subscribers() []C {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return slices.Collect(maps.Keys(h.subscribed))
}

// Opened returns every authenticated connection.
func (h *Hub[C]) Opened() []C {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return slices.Collect(maps.Keys(h.opened))
}

// Connections returns every connection that has not been removed, authenticated or not.
func (h *Hub[C]) Connections() []C {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return slices.Collect(maps.Keys(h.members))
}

// CountOf returns how many connections a principal has.
func (h *Hub[C]) CountOf(principal string) int {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return h.principals[principal]
}

// Count returns how many connections are authenticated.
func (h *Hub[C]) Count() int {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return len(h.opened)
}

// Close refuses new connections and returns the existing ones, authenticated or not.
func (h *Hub[C]) Close() []C {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	return slices.Collect(maps.Keys(h.members))
}

// How many full send buffers the responses of one principal may use, and those of all principals.
const (
	buffersPerPrincipal = 4
	buffersInAll        = 16
)

// sums limit the responses that wait in the send buffers of one principal, over all its
// connections, and of all principals. Events are not counted: their bytes are shared by all
// connections that receive them. Beyond a limit, the connection with the most bytes is closed as a
// slow one, until the sum is within the limit.
type sums struct {
	perPrincipal, total int64
	bytes               atomic.Int64 // of all principals

	closing sync.Mutex // one goroutine at a time closes connections; taken before mu

	mu     sync.Mutex // taken before the lock of a buffer
	groups map[string]*group
}

// group has the buffers of one principal.
type group struct {
	sums      *sums
	principal string
	bytes     atomic.Int64
	buffers   map[*Buffer]struct{} // guarded by the lock of sums
}

func newSums(maxBuffered int) *sums {
	return &sums{
		perPrincipal: int64(maxBuffered) * buffersPerPrincipal, total: int64(maxBuffered) * buffersInAll, groups: map[string]*group{},
	}
}

// join counts a buffer for its principal from now on, until leave.
func (s *sums) join(principal string, b *Buffer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	g := s.groups[principal]
	if g == nil {
		g = &group{sums: s, principal: principal, buffers: map[*Buffer]struct{}{}}
		s.groups[principal] = g
	}
	g.buffers[b] = struct{}{}
	b.countFor(g)
}

// leave ends the counting; for a buffer that has not joined it does nothing.
func (s *sums) leave(b *Buffer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	g := b.countFor(nil)
	if g == nil {
		return
	}
	if delete(g.buffers, b); len(g.buffers) == 0 {
		delete(s.groups, g.principal)
	}
}

func (g *group) add(n int) {
	g.bytes.Add(int64(n))
	g.sums.bytes.Add(int64(n))
}

func (g *group) overLimit() bool { return g.bytes.Load() > g.sums.perPrincipal }

func (g *group) exceeded() bool { return g.overLimit() || g.sums.bytes.Load() > g.sums.total }

// relieve closes connections until the sums are within their limits. Only one goroutine at a time
// does so: a second one would find the fullest connection already empty and close another one,
// although one was enough.
func (g *group) relieve() {
	if !g.exceeded() {
		return
	}
	g.sums.closing.Lock()
	defer g.sums.closing.Unlock()
	for g.exceeded() {
		b := g.sums.fullest(g)
		if b == nil {
			return
		}
		b.tooSlow()
	}
}

// fullest returns the buffer with the most bytes: in g when g is over its limit, otherwise of the
// principal that has most; nil when no buffer has any.
func (s *sums) fullest(g *group) (most *Buffer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !g.overLimit() {
		for _, other := range s.groups {
			if other.bytes.Load() > g.bytes.Load() {
				g = other
			}
		}
	}
	size := 0
	for b := range g.buffers {
		if n := b.responseBytes(); n > size {
			most, size = b, n
		}
	}
	return most
}
