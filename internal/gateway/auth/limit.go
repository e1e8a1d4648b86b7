package auth

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"laneway/internal/store"
)

// LimitClass groups the methods that share one allowance per principal.
type LimitClass string

// The classes.
const (
	LimitCronWrites LimitClass = "cron_writes" // cron writes and wake
	LimitChats      LimitClass = "chat"        // chat.send, agent, sessions.reset, sessions.delete, HTTP completions
	LimitHooks      LimitClass = "hooks"       // calls of one hook
	LimitBytes      LimitClass = "bytes"       // bytes of all these calls, which limit how fast a caller can make the store grow
)

// Off turns off a limit of [Limits].
const Off = -1

// Limits are allowances per minute; 0 = the default, [Off] = no limit. Calls are counted by
// principal, those of hooks by hook.
type Limits struct {
	CronWritesPerMinute, ChatsPerMinute, HooksPerMinute int // 300, 600, 60 calls
	// BytesPerMinute is the number of bytes of all these calls, counting their params or bodies; 16
	// MiB.
	BytesPerMinute int
}

// WithDefaults replaces the zero values.
func (l Limits) WithDefaults() Limits {
	return Limits{
		CronWritesPerMinute: cmp.Or(l.CronWritesPerMinute, 300), ChatsPerMinute: cmp.Or(l.ChatsPerMinute, 600),
		HooksPerMinute: cmp.Or(l.HooksPerMinute, 60), BytesPerMinute: cmp.Or(l.BytesPerMinute, 16<<20),
	}
}

// Limiter decides whether a principal may make another call of a class. It must not block longer
// than a few milliseconds.
type Limiter interface {
	// Allow takes n calls (or bytes), or reports when to try again and the allowance per minute. An
	// n above that allowance counts as the allowance.
	Allow(ctx context.Context, principal string, class LimitClass, n int) (ok bool, retryAfter time.Duration, perMinute int)
}

// LocalLimiter counts in this process.
type LocalLimiter struct {
	perMinute map[LimitClass]int
	mu        sync.Mutex
	buckets   map[bucketKey]*rate.Limiter // limited: principals are credentials
}

type bucketKey struct {
	principal string
	class     LimitClass
}

// NewLimiter returns a limiter that counts in this process.
func NewLimiter(c Limits) *LocalLimiter {
	c = c.WithDefaults()
	return &LocalLimiter{
		perMinute: map[LimitClass]int{
			LimitCronWrites: c.CronWritesPerMinute, LimitChats: c.ChatsPerMinute, LimitHooks: c.HooksPerMinute, LimitBytes: c.BytesPerMinute,
		},
		buckets: map[bucketKey]*rate.Limiter{},
	}
}

// Allow implements [Limiter].
func (l *LocalLimiter) Allow(_ context.Context, principal string, class LimitClass, n int) (bool, time.Duration, int) {
	most := l.perMinute[class]
	if most <= 0 {
		return true, 0, 0
	}
	ok, after := Take(l.bucket(bucketKey{principal, class}, most), min(n, most))
	return ok, after, most
}

func (l *LocalLimiter) bucket(key bucketKey, perMinute int) *rate.Limiter {
	l.mu.Lock()
	defer l.mu.Unlock()
	b := l.buckets[key]
	if b == nil {
		b = rate.NewLimiter(rate.Limit(perMinute)/60, perMinute)
		l.buckets[key] = b
	}
	return b
}

// Take takes n tokens, at most the size of the bucket, or reports when they will be available,
// without reserving them.
func Take(b *rate.Limiter, n int) (bool, time.Duration) {
	r := b.ReserveN(time.Now(), n)
	after := r.Delay()
	if after <= 0 {
		return true, 0
	}
	r.Cancel()
	return false, after
}

const (
	// sharedParts is the number of parts of an allowance. A replica calls the store once for one
	// part, so at most one part per replica is unavailable to others.
	sharedParts = 20
	// sharedHold is how long a part may be used. After that time, the store has refilled what
	// remains of it.
	sharedHold = 10 * time.Second
	// sharedWait limits the call of the store. After it the process counts by itself.
	sharedWait = 50 * time.Millisecond
)

// sharedLimiter counts calls of a principal over all replicas. When the store is unavailable, each
// replica allows as much as a single gateway: a limit that protects from a flood must not refuse
// calls because of an outage.
type sharedLimiter struct {
	own      *LocalLimiter
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

// NewSharedLimiter returns a [Limiter] that counts over all replicas, with the allowances of a
// store.
func NewSharedLimiter(limits Limits, shared store.Allowances, log *slog.Logger) Limiter {
	return &sharedLimiter{
		own:    NewLimiter(limits),
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

// addPart adds what the store granted, and takes n of it. If that is not enough, calls are refused
// for the duration wait.
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

const (
	lockoutTries  = 10
	lockoutWindow = time.Minute
	lockoutTable  = 16_384 // addresses; beyond that entries are evicted
	// sweepEvery is the interval of searches of a full table for expired entries: one takes half a
	// millisecond, and every login waits for it.
	sweepEvery = time.Second
)

// lockout refuses addresses that sent too many wrong credentials. Loopback is exempt: all programs
// of the machine share it, so a broken script could lock the operator out.
type lockout struct {
	mu     sync.Mutex
	failed map[netip.Addr]*failures
	swept  time.Time
}

type failures struct {
	since  time.Time
	count  int
	locked time.Time // until
}

// Network returns the unit in which an address counts for the lock-out and for the limits of
// connections: an IPv4 address, or the /64 of an IPv6 address, because one host can use all of it.
func Network(a netip.Addr) netip.Addr {
	a = a.Unmap()
	if a.Is4() || !a.IsValid() {
		return a
	}
	p, err := a.WithZone("").Prefix(64)
	if err != nil {
		return a
	}
	return p.Addr()
}

// lockedFor returns how long a will be refused; 0 = it is not refused.
func (l *lockout) lockedFor(a netip.Addr, now time.Time) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	f := l.failed[Network(a)]
	if f == nil {
		return 0
	}
	return max(0, f.locked.Sub(now))
}

// fail counts a wrong credential.
func (l *lockout) fail(a netip.Addr, now time.Time) {
	if a.Unmap().IsLoopback() {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	f := l.entry(Network(a), now)
	f.count++
	if f.count >= lockoutTries {
		f.locked = now.Add(lockoutWindow)
		f.count, f.since = 0, now
	}
}

func (l *lockout) entry(key netip.Addr, now time.Time) *failures {
	f := l.failed[key]
	if f == nil {
		l.evict(now)
		f = &failures{since: now}
		l.failed[key] = f
	}
	if now.Sub(f.since) >= lockoutWindow {
		f.since, f.count = now, 0
	}
	return f
}

// evict removes expired entries and, when that is not enough, any entry, so that attackers cannot
// make the table grow.
func (l *lockout) evict(now time.Time) {
	if l.failed == nil {
		l.failed = map[netip.Addr]*failures{}
	}
	if len(l.failed) < lockoutTable {
		return
	}
	if now.Sub(l.swept) >= sweepEvery {
		l.swept = now
		maps.DeleteFunc(l.failed, func(_ netip.Addr, f *failures) bool {
			return now.Sub(f.since) >= lockoutWindow && !now.Before(f.locked)
		})
	}
	for a := range l.failed {
		if len(l.failed) < lockoutTable {
			return
		}
		delete(l.failed, a)
	}
}
