package cron

import (
	"time"

	"laneway/internal/cron/schedule"
	"laneway/internal/retry"
)

// Bounds and defaults of a [Retry].
const (
	DefaultRetries = 3
	MaxRetries     = 10

	defaultRetryBase = 2 * time.Second
	defaultRetryMax  = 30 * time.Second
	leastRetryBase   = 100 * time.Millisecond
	mostRetryBase    = 10 * time.Minute
	mostRetryMax     = time.Hour
)

// Retry is how often and after which delay a failed run is retried. Cancelled, stopped, invalid and over-budget runs are never retried; the caller enforces
// that.
type Retry struct {
	Retries int           // retries after the first attempt, 0 to 10
	Base    time.Duration // 100 ms to 10 min
	Max     time.Duration // Base to 1 h
}

// DefaultRetry is three retries from 2 s, at most 30 s.
func DefaultRetry() Retry {
	return Retry{Retries: DefaultRetries, Base: defaultRetryBase, Max: defaultRetryMax}
}

// Check refuses numbers out of bounds with an [*InvalidError].
func (r Retry) Check() error {
	switch {
	case r.Retries < 0 || r.Retries > MaxRetries:
		return schedule.NewInvalid("retry.maxRetries", schedule.InvalidRange, "%d is out of range 0-%d", r.Retries, MaxRetries)
	case r.Base < leastRetryBase || r.Base > mostRetryBase:
		return schedule.NewInvalid("retry.baseMs", schedule.InvalidRange, "%d is out of range %d-%d",
			r.Base.Milliseconds(), leastRetryBase.Milliseconds(), mostRetryBase.Milliseconds())
	case r.Max < r.Base || r.Max > mostRetryMax:
		return schedule.NewInvalid("retry.maxMs", schedule.InvalidRange, "%d is out of range %d-%d",
			r.Max.Milliseconds(), r.Base.Milliseconds(), mostRetryMax.Milliseconds())
	}
	return nil
}

// Delay is the wait before retry n, counted from 1: Base doubled n-1 times but at most Max, then varied by up to 25 % in both directions. random returns a
// number in [0, 1), such as rand.Float64. It reports false when retry n is not allowed.
func (r Retry) Delay(n int, random func() float64) (time.Duration, bool) {
	if n < 1 || n > r.Retries {
		return 0, false
	}
	return retry.Policy{Base: r.Base, Max: r.Max}.WaitBy(n, random), true
}
