package gateway

import (
	"context"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// LimitClass groups the methods that share one allowance per principal.
type LimitClass string

// The classes.
const (
	LimitCronWrites LimitClass = "cron_writes" // cron writes and wake
	LimitChats      LimitClass = "chat"        // chat.send, agent, HTTP completions
	LimitHooks      LimitClass = "hooks"       // calls of one hook
	LimitBytes      LimitClass = "bytes"       // bytes of all of these: what a caller can make the store grow by
)

// Limiter decides whether a principal may use more of a class. It must not block longer than a few milliseconds.
type Limiter interface {
	// Allow takes n calls (or bytes), or says after what time to try again and how many a minute are allowed. More than are allowed in a minute
	// count as that many.
	Allow(ctx context.Context, principal string, class LimitClass, n int) (ok bool, retryAfter time.Duration, perMinute int)
}

// localLimiter counts in this process.
type localLimiter struct {
	perMinute map[LimitClass]int
	mu        sync.Mutex
	buckets   map[bucketKey]*rate.Limiter // bounded: principals are credentials
}

type bucketKey struct {
	principal string
	class     LimitClass
}

func newLocalLimiter(c Config) *localLimiter {
	return &localLimiter{
		perMinute: map[LimitClass]int{
			LimitCronWrites: c.CronWritesPerMinute, LimitChats: c.ChatsPerMinute, LimitHooks: c.HooksPerMinute, LimitBytes: c.BytesPerMinute,
		},
		buckets: map[bucketKey]*rate.Limiter{},
	}
}

// Allow implements [Limiter].
func (l *localLimiter) Allow(_ context.Context, principal string, class LimitClass, n int) (bool, time.Duration, int) {
	most := l.perMinute[class]
	if most == 0 {
		return true, 0, 0
	}
	ok, after := take(l.bucket(bucketKey{principal, class}, most), min(n, most))
	return ok, after, most
}

func (l *localLimiter) bucket(key bucketKey, perMinute int) *rate.Limiter {
	l.mu.Lock()
	defer l.mu.Unlock()
	b := l.buckets[key]
	if b == nil {
		b = rate.NewLimiter(rate.Limit(perMinute)/60, perMinute)
		l.buckets[key] = b
	}
	return b
}

// take takes n tokens, which are no more than the bucket holds, or says when there will be as many without reserving them.
func take(b *rate.Limiter, n int) (bool, time.Duration) {
	r := b.ReserveN(time.Now(), n)
	after := r.Delay()
	if after <= 0 {
		return true, 0
	}
	r.Cancel()
	return false, after
}

const (
	lockoutTries  = 10
	lockoutWindow = time.Minute
	lockoutTable  = 16_384 // addresses; past that the oldest entries make room
)

// lockout refuses addresses that gave too many wrong credentials. Loopback is exempt: everybody on the machine shares it, so a
// broken script could lock the operator out.
type lockout struct {
	mu     sync.Mutex
	failed map[netip.Addr]*failures
}

type failures struct {
	since  time.Time
	count  int
	locked time.Time // until
}

// lockKey is an IPv4 address, or the /64 of an IPv6 address: whoever has one has all of it.
func lockKey(a netip.Addr) netip.Addr {
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

// lockedFor is how long a is still refused; 0 = it is not.
func (l *lockout) lockedFor(a netip.Addr, now time.Time) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	f := l.failed[lockKey(a)]
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
	f := l.entry(lockKey(a), now)
	f.count++
	if f.count >= lockoutTries {
		f.locked = now.Add(lockoutWindow)
		f.count, f.since = 0, now
	}
}

func (l *lockout) entry(key netip.Addr, now time.Time) *failures {
	f := l.failed[key]
	if f == nil {
		l.makeRoom(now)
		f = &failures{since: now}
		l.failed[key] = f
	}
	if now.Sub(f.since) >= lockoutWindow {
		f.since, f.count = now, 0
	}
	return f
}

// makeRoom forgets what is over, and when that is not enough any entry: a table that is full of attackers must not grow.
func (l *lockout) makeRoom(now time.Time) {
	if l.failed == nil {
		l.failed = map[netip.Addr]*failures{}
	}
	if len(l.failed) < lockoutTable {
		return
	}
	for a, f := range l.failed {
		if now.Sub(f.since) >= lockoutWindow && !now.Before(f.locked) {
			delete(l.failed, a)
		}
	}
	for a := range l.failed {
		if len(l.failed) < lockoutTable {
			return
		}
		delete(l.failed, a)
	}
}
