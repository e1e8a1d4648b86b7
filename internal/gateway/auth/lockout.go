package auth

import (
	"maps"
	"net/netip"
	"sync"
	"time"
)

const (
	lockoutTries  = 10
	lockoutWindow = time.Minute
	lockoutTable  = 16_384 // addresses; beyond that entries are evicted
	// sweepEvery is the interval of searches of a full table for expired entries: one takes half a millisecond, and every login waits for
	// it.
	sweepEvery = time.Second
)

// lockout refuses addresses that sent too many wrong credentials. Loopback is exempt: all programs of the machine share it, so a broken
// script could lock the operator out.
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

// Network returns the unit in which an address counts for the lock-out and for the limits of connections: an IPv4 address, or the /64 of an
// IPv6 address, because one host can use all of it.
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

// evict removes expired entries and, when that is not enough, any entry, so that attackers cannot make the table grow.
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
