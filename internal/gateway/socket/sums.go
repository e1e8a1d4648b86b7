package socket

import (
	"sync"
	"sync/atomic"
)

// How many full send buffers the responses of one principal may use, and those of all principals.
const (
	buffersPerPrincipal = 4
	buffersInAll        = 16
)

// sums limit the responses that wait in the send buffers of one principal, over all its connections, and of all principals. Events are not
// counted: their bytes are shared by all connections that receive them. Beyond a limit, the connection with the most bytes is closed as a
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

// relieve closes connections until the sums are within their limits. Only one goroutine at a time does so: a second one would find the
// fullest connection already empty and close another one, although one was enough.
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

// fullest returns the buffer with the most bytes: in g when g is over its limit, otherwise of the principal that has most; nil when no
// buffer has any.
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
