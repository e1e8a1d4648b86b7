package gateway

import (
	"context"
	"sync"
)

// maxReaders is how many lists a principal reads, encodes and is sent at once.
const maxReaders = 4

// readers bounds the memory that the lists of one principal take: each of its calls of a method that lists has a place from before its read until its answer
// is written to the peer or the connection is over. A call without a place waits for one as long as a request may take; waiting calls get their places in
// the order in which they came.
type readers struct {
	mu     sync.Mutex
	places map[string]chan struct{} // bounded: principals are credentials
}

func newReaders() *readers { return &readers{places: map[string]chan struct{}{}} }

func (r *readers) of(principal string) chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	places := r.places[principal]
	if places == nil {
		places = make(chan struct{}, maxReaders)
		r.places[principal] = places
	}
	return places
}

// enter takes a place and returns what gives it back, which may be called more than once.
func (r *readers) enter(ctx context.Context, principal string) (leave func(), err error) {
	places := r.of(principal)
	select {
	case places <- struct{}{}:
		return sync.OnceFunc(func() { <-places }), nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}
