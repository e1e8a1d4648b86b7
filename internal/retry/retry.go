// Package retry is the only place in the program that waits between the attempts of an operation.
//
// # Formula
//
// The wait after attempt n is Base × 2^(n-1), at most Max, plus or minus a random share of it
// (Spread). It is the exponential backoff with bounded jitter that databases and HTTP clients use;
// the loop and the timer are those of cenkalti/backoff.
//
// # Use
//
// [Do] repeats an operation in the goroutine of its caller. [Policy.Wait] is the same formula for
// work whose next attempt is a row with a time instead of a waiting goroutine: outgoing messages
// and runs of jobs. [Sleep] is a wait that a context ends.
//
// # What it does not do
//
// It does not decide which errors are retried: each caller decides that ([Options.Retryable]). It
// starts no goroutine and keeps no state between two calls. Its timers are those of package time,
// so it works in tests with virtual time.
package retry

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"github.com/cenkalti/backoff/v5"
)

// DefaultSpread is the share by which a wait varies when a [Policy] sets none.
const DefaultSpread = 0.25

// maxDoublings keeps the factor finite; the waits reach their bound long before.
const maxDoublings = 64

// Policy is how long to wait after a failed attempt. The zero value does not wait.
type Policy struct {
	// Base is the wait after the first attempt, Max the longest wait; Max 0 = Base.
	Base, Max time.Duration
	// Spread is the share by which a wait varies to either side, 0 to 1; 0 = [DefaultSpread],
	// negative = no variation.
	Spread float64
}

// Wait is the time to wait after attempt n, counted from 1, has failed.
func (p Policy) Wait(n int) time.Duration { return p.WaitBy(n, rand.Float64) }

// WaitBy is Wait with a source of random numbers in [0, 1).
func (p Policy) WaitBy(n int, random func() float64) time.Duration {
	wait := math.Min(float64(p.Base)*math.Pow(2, float64(min(max(n, 1), maxDoublings)-1)), float64(max(p.Max, p.Base)))
	return time.Duration(wait * (1 + p.spread()*(2*random()-1)))
}

func (p Policy) spread() float64 {
	switch {
	case p.Spread < 0:
		return 0
	case p.Spread == 0:
		return DefaultSpread
	}
	return min(p.Spread, 1)
}

// Options are the options of [Do].
type Options struct {
	Policy

	// Attempts in total; 0 = no bound.
	Attempts int
	// Retryable reports whether an error is transient; nil = every error is.
	Retryable func(error) bool
	// After is the minimum wait that an error requests, for example a Retry-After header; may be
	// nil.
	After func(error) time.Duration
	// MaxWait ends the attempts when the next wait would be longer, or would outlast the deadline
	// of the context; 0 = no bound.
	MaxWait time.Duration
	// Notify is called before each wait with the number of the failed attempt; may be nil.
	Notify func(err error, attempt int, wait time.Duration)
}

// Do calls op until it succeeds, its error is not retryable, or the attempts are used up; it
// returns the error of the last attempt. When ctx ends first, the returned error wraps the cause of
// ctx and the error of the last attempt. op is called at least once, even with a ctx that has
// ended.
func Do(ctx context.Context, o Options, op func(context.Context) error) error {
	var last error
	waits := &waits{ctx: ctx, o: &o}
	_, err := backoff.Retry(ctx, func() (struct{}, error) {
		waits.attempt++
		last = op(ctx)
		waits.last = last
		if last != nil && o.Retryable != nil && !o.Retryable(last) {
			return struct{}{}, backoff.Permanent(last)
		}
		return struct{}{}, last
	}, backoff.WithBackOff(waits), backoff.WithMaxTries(uint(max(o.Attempts, 0))), backoff.WithMaxElapsedTime(0),
		backoff.WithNotify(func(err error, wait time.Duration) {
			if o.Notify != nil {
				o.Notify(err, waits.attempt, wait)
			}
		}))
	if err == nil || last == nil || waits.attempt == o.Attempts || (o.Retryable != nil && !o.Retryable(last)) || waits.stopped {
		return last
	}
	return fmt.Errorf("%w; the last attempt: %w", err, last)
}

// waits is the policy in the interface of the library.
type waits struct {
	ctx     context.Context //nolint:containedctx // lives as long as one call of Do; the interface of the library has no context
	o       *Options
	attempt int
	last    error
	stopped bool
}

// Reset implements backoff.BackOff.
func (*waits) Reset() {}

// NextBackOff implements backoff.BackOff.
func (w *waits) NextBackOff() time.Duration {
	wait := w.o.Wait(w.attempt)
	if w.o.After != nil {
		wait = max(wait, w.o.After(w.last))
	}
	deadline, bounded := w.ctx.Deadline()
	if w.o.MaxWait > 0 && (wait > w.o.MaxWait || (bounded && time.Until(deadline) <= wait)) {
		w.stopped = true
		return backoff.Stop
	}
	return wait
}

// Sleep waits for d and returns nil, or returns the cause of ctx when ctx ends first. It returns
// immediately when d is not positive.
func Sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return context.Cause(ctx)
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
