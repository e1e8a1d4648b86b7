package inflight

import (
	"context"
	"sync"
)

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

// places returns how much concurrent work of the kind one principal may have; own: it sees only its own sessions.
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

// Busy runs f, which uses a processor for many milliseconds. Principals that see only their own sessions may together use half of the
// processors for that, so that the other half stays available to other goroutines. f must not wait for a place itself. The error is that of
// f, or the cause of ctx.
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

// Enter waits for a place and returns the function that releases it, which may be called more than once. The error is the cause of ctx.
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
