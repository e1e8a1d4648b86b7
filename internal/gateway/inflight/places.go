package inflight

import (
	"context"
	"sync"
)

// Kind is what a place is for.
type Kind int

// The kinds.
const (
	Parse   Kind = iota // to parse a text of more than ShortMessage bytes
	Call                // to run a call
	Control             // to run a call that looks or stops
	List                // to read rows, to encode them and to write them to the peer
	Upload              // to receive a file
	kinds
)

// places is how much work of the kind one principal may have at once; own: it sees its own sessions only.
func (k Kind) places(own bool) int {
	switch {
	case k == Upload && own:
		return 2
	case k == Upload:
		return 8
	case k == List && own: // each reads and encodes up to 4 MiB: they take memory, and the processors as well
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

// Busy runs f, which uses a processor for many milliseconds. Principals that see their own sessions have half of the processors for that, all of them together,
// so that the goroutines of others find one that is free. f must not wait for a place itself. The error is that of f, or the cause of ctx.
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

// Enter waits for a place and returns what gives it back, which may be called more than once. Its error is the cause of ctx.
func (s *Share) Enter(ctx context.Context, kind Kind) (leave func(), err error) {
	places := s.places[kind]
	select {
	case places <- struct{}{}:
		return sync.OnceFunc(func() { <-places }), nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// Parsing runs parse, which reads n bytes of text, in a place. A short text needs none.
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
