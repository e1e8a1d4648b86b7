// Package inflight limits the resources of unanswered requests of one principal, over all its
// connections: places to work, and bytes of messages.
//
// # Ideas
//
// A [Share] belongs to one principal. Work of each [Kind] needs a place of the share: a call, a
// control call, a list, the parsing of a long text. The places limit the memory of lists, the
// processors that large messages use, and how many operations of one principal precede those of
// another in the queues of the store. Work without a place waits in the order of arrival, as long
// as its context allows.
//
// The bytes of messages that were read and are not answered are limited for each share and, for
// long messages, for the process. A message takes its bytes with [Share.Hold] before more than
// [ShortMessage] of it is read. Meanwhile a connection whose message does not fit is not read, so
// that the sender waits instead of memory growing. Short messages have separate bytes: a health
// request does not wait for long messages.
//
// Parsing long messages and reading lists use a processor for many milliseconds. Principals that
// see only their own sessions may together use half of the processors for both, so that the
// goroutine of another connection does not wait for theirs in the run queues.
//
// A principal that sees all sessions belongs to the operator and has several times as many places
// as one that sees only its own.
//
// # Goroutines, locks, crash points
//
// It starts no goroutine. The map of shares has a lock that is never held while waiting. Nothing is
// durable. Shares are not removed: there is one for each credential.
//
// # What it does not do
//
// It counts nothing over time: the allowances per minute are in package auth. It does not limit
// answers: those are in the send buffers of package socket.
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
	// ShortMessage is the maximum size, in bytes, of a short message: of every message, this much
	// is read before it holds bytes.
	ShortMessage = 4 << 10
	// leastLong is the minimum number of bytes for unanswered long messages of one principal; the
	// limit is at least one message. Its short messages have shortBytes.
	leastLong  = 4 << 20
	shortBytes = 1 << 20
	// principals is the number of principals that can use up the limit of the process for long
	// messages.
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

// New returns a limiter for messages of at most maxMessage bytes. A message waits for bytes at most
// for the given time.
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

// Hold waits for n bytes; Release returns them. A short message waits only for the short ones of
// its own principal. The error is [ErrOverloaded], or the cause of ctx.
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

// Kind is the purpose of a place.
type Kind int

// The kinds.
const (
	Parse   Kind = iota // to parse a text of more than ShortMessage bytes
	Call                // to run a call
	Control             // to run a control call
	List                // to read rows, to encode them and to write them to the peer
	Upload              // to receive a file
	kinds
)

// places returns how much concurrent work of the kind one principal may have; own: it sees only its
// own sessions.
func (k Kind) places(own bool) int {
	switch {
	case k == Upload && own:
		return 2
	case k == Upload:
		return 8
	case k == List && own: // each reads and encodes up to 4 MiB, which needs memory and processor time
		return 2
	case k == List:
		return 4
	case k == Parse && own:
		return 1
	case k == Parse:
		return 2
	case k == Control && own:
		return 4
	case k == Control:
		return 16
	case own:
		return 8
	default:
		return 64
	}
}

// Busy runs f, which uses a processor for many milliseconds. Principals that see only their own
// sessions may together use half of the processors for that, so that the other half stays available
// to other goroutines. f must not wait for a place itself. The error is that of f, or the cause of
// ctx.
func (s *Share) Busy(ctx context.Context, f func() error) error {
	if !s.own {
		return f()
	}
	select {
	case s.limiter.busy <- struct{}{}:
		defer func() { <-s.limiter.busy }()
		return f()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Enter waits for a place and returns the function that releases it, which may be called more than
// once. The error is the cause of ctx.
func (s *Share) Enter(ctx context.Context, kind Kind) (leave func(), err error) {
	places := s.places[kind]
	select {
	case places <- struct{}{}:
		return sync.OnceFunc(func() { <-places }), nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// Parsing runs parse, which reads n bytes of text, in a place. A short text needs no place.
func (s *Share) Parsing(ctx context.Context, n int, parse func() error) error {
	if n <= ShortMessage {
		return parse()
	}
	leave, err := s.Enter(ctx, Parse)
	if err != nil {
		return err
	}
	defer leave()
	return s.Busy(ctx, parse)
}
