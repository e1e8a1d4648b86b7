package inflight

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
)

const (
	// ShortMessage is the maximum size, in bytes, of a short message: of every message, this much is read before it holds bytes.
	ShortMessage = 4 << 10
	// leastLong is the minimum number of bytes for unanswered long messages of one principal; the limit is at least one message. Its short
	// messages have shortBytes.
	leastLong  = 4 << 20
	shortBytes = 1 << 20
	// principals is the number of principals that can use up the limit of the process for long messages.
	principals = 16
)

// ErrOverloaded is the error for a message that waited too long for bytes of other messages.
var ErrOverloaded = errors.New("the messages of this credential are not answered in time")

// Limiter has the shares of all principals. It is safe for concurrent use.
type Limiter struct {
	each    int64
	wait    time.Duration
	process *semaphore.Weighted
	busy    chan struct{} // the processors that principals which see only their own data use concurrently

	mu     sync.Mutex
	shares map[owner]*Share
}

type owner struct {
	name string
	own  bool
}

// Share is the share of one principal.
type Share struct {
	limiter     *Limiter
	own         bool
	places      [kinds]chan struct{}
	short, long *semaphore.Weighted
}

// New returns a limiter for messages of at most maxMessage bytes. A message waits for bytes at most for the given time.
func New(maxMessage int64, wait time.Duration) *Limiter {
	each := max(leastLong, maxMessage)
	return &Limiter{each: each, wait: wait, process: semaphore.NewWeighted(principals * each), busy: make(chan struct{}, max(1, runtime.GOMAXPROCS(0)/2)), shares: map[owner]*Share{}}
}

// Of returns the share of a principal; own: it sees only its own sessions.
func (l *Limiter) Of(principal string, own bool) *Share {
	l.mu.Lock()
	defer l.mu.Unlock()
	who := owner{principal, own}
	s := l.shares[who]
	if s == nil {
		s = &Share{limiter: l, own: own, short: semaphore.NewWeighted(shortBytes), long: semaphore.NewWeighted(l.each)}
		for kind := range kinds {
			s.places[kind] = make(chan struct{}, kind.places(own))
		}
		l.shares[who] = s
	}
	return s
}

// Held are the bytes of one message. Its methods are called by one goroutine at a time.
type Held struct {
	own, process *semaphore.Weighted // process is nil for a short message
	n            int64
}

// Hold waits for n bytes; Release returns them. A short message waits only for the short ones of its own principal. The error is
// [ErrOverloaded], or the cause of ctx.
func (s *Share) Hold(ctx context.Context, n int64) (*Held, error) {
	if n <= ShortMessage {
		if err := s.acquire(ctx, s.short, n); err != nil {
			return nil, err
		}
		return &Held{own: s.short, n: n}, nil
	}
	h := &Held{own: s.long, process: s.limiter.process, n: min(n, s.limiter.each)}
	if err := s.acquire(ctx, h.own, h.n); err != nil {
		return nil, err
	}
	if err := s.acquire(ctx, h.process, h.n); err != nil {
		h.own.Release(h.n)
		return nil, err
	}
	return h, nil
}

func (s *Share) acquire(ctx context.Context, from *semaphore.Weighted, n int64) error {
	if from.TryAcquire(n) {
		return nil
	}
	limited, cancel := context.WithTimeoutCause(ctx, s.limiter.wait, ErrOverloaded)
	defer cancel()
	if err := from.Acquire(limited, n); err != nil {
		return context.Cause(limited)
	}
	return nil
}

// Keep returns all but n bytes; if fewer are held, it does nothing.
func (h *Held) Keep(n int64) {
	n = min(n, h.n)
	h.own.Release(h.n - n)
	if h.process != nil {
		h.process.Release(h.n - n)
	}
	h.n = n
}

// Release returns all bytes; a second call does nothing.
func (h *Held) Release() { h.Keep(0) }
