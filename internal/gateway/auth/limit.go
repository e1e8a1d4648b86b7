package auth

import (
	"cmp"
	"context"
	"sync"
	"time"

	"golang.org/x/time/rate"
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

// Limits are allowances per minute; 0 = the default, [Off] = no limit. Calls are counted by principal, those of hooks by hook.
type Limits struct {
	CronWritesPerMinute, ChatsPerMinute, HooksPerMinute int // 300, 600, 60 calls
	// BytesPerMinute is the number of bytes of all these calls, counting their params or bodies; 16 MiB.
	BytesPerMinute int
}

// WithDefaults replaces the zero values.
func (l Limits) WithDefaults() Limits {
	return Limits{
		CronWritesPerMinute: cmp.Or(l.CronWritesPerMinute, 300), ChatsPerMinute: cmp.Or(l.ChatsPerMinute, 600),
		HooksPerMinute: cmp.Or(l.HooksPerMinute, 60), BytesPerMinute: cmp.Or(l.BytesPerMinute, 16<<20),
	}
}

// Limiter decides whether a principal may make another call of a class. It must not block longer than a few milliseconds.
type Limiter interface {
	// Allow takes n calls (or bytes), or reports when to try again and the allowance per minute. An n above that allowance counts as the
	// allowance.
	Allow(ctx context.Context, principal string, class LimitClass, n int) (ok bool, retryAfter time.Duration, perMinute int)
}

// localLimiter counts in this process.
type localLimiter struct {
	perMinute map[LimitClass]int
	mu        sync.Mutex
	buckets   map[bucketKey]*rate.Limiter // limited: principals are credentials
}

type bucketKey struct {
	principal string
	class     LimitClass
}

// NewLimiter returns a limiter that counts in this process.
func NewLimiter(limits Limits) Limiter { return newLimiter(limits) }

func newLimiter(c Limits) *localLimiter {
	c = c.WithDefaults()
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
	if most <= 0 {
		return true, 0, 0
	}
	ok, after := Take(l.bucket(bucketKey{principal, class}, most), min(n, most))
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

// Take takes n tokens, at most the size of the bucket, or reports when they will be available, without reserving them.
func Take(b *rate.Limiter, n int) (bool, time.Duration) {
	r := b.ReserveN(time.Now(), n)
	after := r.Delay()
	if after <= 0 {
		return true, 0
	}
	r.Cancel()
	return false, after
}
