package auth

import (
	"context"
	"sync/atomic"
	"time"

	"laneway/internal/retry"
)

const (
	// readPause is the least time between two readings that unknown secrets cause. It bounds what an attacker who tries secrets makes the gateway read:
	// ten readings a second, from however many addresses.
	readPause = 100 * time.Millisecond
	// readTimeout bounds one reading that a secret causes.
	readTimeout = 2 * time.Second
	// listAge is how old the list may be that decides about a known secret. While clients are connected the gateway reads it more often.
	listAge = 3 * time.Second
)

// readings orders the readings of the sources of credentials: one at a time, and those that unknown secrets cause at a distance of [readPause]. Callers that wait
// share the next reading. There is no goroutine for it: a reading runs on that of a caller.
type readings struct {
	turn  chan struct{} // capacity 1; who reads, or waits for the moment to read, is in it
	begun atomic.Uint64 // readings that have begun
	last  atomic.Int64  // when the last one began, nanoseconds since 1970
	ended time.Time     // when the last one ended; of who is in turn
}

func newReadings() *readings { return &readings{turn: make(chan struct{}, 1)} }

// now reads, behind a reading that is under way.
func (r *readings) now(ctx context.Context, read func(context.Context)) {
	if !r.enter(ctx) {
		return
	}
	defer r.leave()
	r.run(ctx, read)
}

// since returns when a reading is over that began after the call, or when ctx ends. The reading goes on when the caller that runs it has gone: others wait for
// it, too.
func (r *readings) since(ctx context.Context, read func(context.Context)) {
	want := r.begun.Load() + 1
	if !r.enter(ctx) {
		return
	}
	defer r.leave()
	if r.begun.Load() >= want || retry.Sleep(ctx, time.Until(r.ended.Add(readPause))) != nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), readTimeout)
	defer cancel()
	r.run(ctx, read)
}

// old reports whether the last reading began longer than [listAge] ago.
func (r *readings) old(now time.Time) bool { return now.Sub(time.Unix(0, r.last.Load())) > listAge }

func (r *readings) run(ctx context.Context, read func(context.Context)) {
	r.begun.Add(1)
	r.last.Store(time.Now().UnixNano())
	read(ctx)
	r.ended = time.Now()
}

func (r *readings) enter(ctx context.Context) bool {
	select {
	case r.turn <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

func (r *readings) leave() { <-r.turn }
