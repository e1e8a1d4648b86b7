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
	// ShortMessage is the largest message, in bytes, that counts as short: so much is read of every message before it holds anything.
	ShortMessage = 4 << 10
	// leastLong is how many bytes the unanswered long messages of one principal have at least; it is never less than one message. Its short messages have
	// shortBytes.
	leastLong  = 4 << 20
	shortBytes = 1 << 20
	// principals is how many principals fill the bound of the process, which counts long messages.
	principals = 16
)

// ErrOverloaded is that a message waited too long for the bytes of others to be released.
var ErrOverloaded = errors.New("the messages of this credential are not answered in time")

// Limiter has the shares of all principals. It is safe for concurrent use.
type Limiter struct {
	each    int64
	wait    time.Duration
	process *semaphore.Weighted
	busy    chan struct{} // the processors that principals which see their own use at once

	mu     sync.Mutex
	shares map[owner]*Share
}

type owner struct {
	name string
	own  bool
}

// Share is what one principal has.
type Share struct {
	limiter     *Limiter
	own         bool
	places      [kinds]chan struct{}
	short, long *semaphore.Weighted
}

// New makes a limiter for messages of at most maxMessage bytes. A message waits for bytes for the given time at most.
func New(maxMessage int64, wait time.Duration) *Limiter {
	each := max(leastLong, maxMessage)
	return &Limiter{each: each, wait: wait, process: semaphore.NewWeighted(principals * each), busy: make(chan struct{}, max(1, runtime.GOMAXPROCS(0)/2)), shares: map[owner]*Share{}}
}

// Of returns the share of a principal; own: it sees its own sessions only.
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

// Hold waits for n bytes; Release gives them back. A short message waits for the short ones of its own principal alone. Its error is [ErrOverloaded], or the
// cause of ctx.
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

// Keep gives back all but n bytes; more than are held are as many.
func (h *Held) Keep(n int64) {
	n = min(n, h.n)
	h.own.Release(h.n - n)
	if h.process != nil {
		h.process.Release(h.n - n)
	}
	h.n = n
}

// Release gives everything back; calling it again does nothing.
func (h *Held) Release() { h.Keep(0) }
