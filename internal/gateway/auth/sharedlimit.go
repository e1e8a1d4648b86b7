package auth

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"laneway/internal/store"
)

const (
	// sharedParts is the number of parts of an allowance. A replica calls the store once for one part, so at most one part per replica is
	// unavailable to others.
	sharedParts = 20
	// sharedHold is how long a part may be used. After that time, the store has refilled what remains of it.
	sharedHold = 10 * time.Second
	// sharedWait limits the call of the store. After it the process counts by itself.
	sharedWait = 50 * time.Millisecond
)

// sharedLimiter counts calls of a principal over all replicas. When the store is unavailable, each replica allows as much as a single
// gateway: a limit that protects from a flood must not refuse calls because of an outage.
type sharedLimiter struct {
	own      *localLimiter
	shared   store.Allowances
	log      *slog.Logger
	warnings rate.Sometimes
	now      func() time.Time

	mu    sync.Mutex
	parts map[bucketKey]*part // limited: principals are credentials
}

// part is the part of an allowance that this process holds.
type part struct {
	left           int
	until, refused time.Time // end of its use; no calls are available before refused
}

// NewSharedLimiter returns a [Limiter] that counts over all replicas, with the allowances of a store.
func NewSharedLimiter(limits Limits, shared store.Allowances, log *slog.Logger) Limiter {
	return &sharedLimiter{
		own:    newLimiter(limits),
		shared: shared, log: log, warnings: rate.Sometimes{Interval: time.Minute}, now: time.Now, parts: map[bucketKey]*part{},
	}
}

// Allow implements [Limiter].
func (l *sharedLimiter) Allow(ctx context.Context, principal string, class LimitClass, n int) (bool, time.Duration, int) {
	most := l.own.perMinute[class]
	if most <= 0 {
		return true, 0, 0
	}
	n = min(n, most)
	key := bucketKey{principal, class}
	if ok, wait, known := l.take(key, n); known {
		return ok, wait, most
	}
	ask, cancel := context.WithTimeout(ctx, sharedWait)
	defer cancel()
	got, wait, err := l.shared.TakeAllowance(ask, principal+"/"+string(class), max(n, most/sharedParts), most)
	if err != nil {
		l.warnings.Do(func() {
			l.log.WarnContext(ctx, "the store does not count calls; every replica counts by itself", slog.Any("err", err))
		})
		return l.own.Allow(ctx, principal, class, n)
	}
	if n > 1 { // the store reports when one is available
		wait = max(wait, time.Minute*time.Duration(n)/time.Duration(most)+time.Millisecond)
	}
	ok, wait := l.addPart(key, n, got, wait)
	return ok, wait, most
}

// take takes n from the part of this process; known is false when the store must be called.
func (l *sharedLimiter) take(key bucketKey, n int) (ok bool, wait time.Duration, known bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	p, now := l.parts[key], l.now()
	switch {
	case p == nil:
		return false, 0, false
	case p.left >= n && now.Before(p.until):
		p.left -= n
		return true, 0, true
	case now.Before(p.refused):
		return false, p.refused.Sub(now), true
	default:
		return false, 0, false
	}
}

// addPart adds what the store granted, and takes n of it. If that is not enough, calls are refused for the duration wait.
func (l *sharedLimiter) addPart(key bucketKey, n, got int, wait time.Duration) (bool, time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	p, now := l.parts[key], l.now()
	if p == nil {
		p = &part{}
		l.parts[key] = p
	}
	if !now.Before(p.until) {
		p.left = 0
	}
	if got > 0 {
		p.left += got
		p.until = now.Add(sharedHold)
	}
	if p.left < n {
		p.refused = now.Add(wait)
		return false, wait
	}
	p.left -= n
	return true, 0
}
