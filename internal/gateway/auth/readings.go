package auth

import (
	"context"
	"sync/atomic"
	"time"

	"laneway/internal/retry"
)

const (
	// readPause is the minimum time between two readings that unknown secrets cause. It limits the load from an attacker who guesses
	// secrets to ten readings a second, from any number of addresses.
	readPause = 100 * time.Millisecond
	// readTimeout limits one reading that a secret causes.
	readTimeout = 2 * time.Second
	// listAge is the maximum age of a list that decides about a known secret. While clients are connected, the gateway reads it more often.
	listAge = 3 * time.Second
)

// readings serializes the readings of the sources of credentials. Those that unknown secrets cause are at least [readPause] apart. Waiting
// callers share the next reading. It has no goroutine: a reading runs on the goroutine of a caller.
type readings struct {
	turn  chan struct{} // capacity 1; held by the caller that reads, or waits for the time to read
	begun atomic.Uint64 // readings that were started
	last  atomic.Int64  // when the last one started, in nanoseconds since 1970
	ended time.Time     // when the last one ended; used by the holder of turn
}

func newReadings() *readings { return &readings{turn: make(chan struct{}, 1)} }

// now reads, after a reading that is in progress.
func (r *readings) now(ctx context.Context, read func(context.Context)) {
	if !r.enter(ctx) {
		return
	}
	defer r.leave()
	r.run(ctx, read)
}

// since returns when a reading that started after the call has ended, or when ctx is done. The reading continues when the caller that runs
// it has returned, because others wait for it.
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

// old reports whether the last reading started longer than [listAge] ago.
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
