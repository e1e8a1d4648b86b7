package auth

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func TestLockoutBeginsWithTenFailuresOfAMinuteAndEndsAfterOne(t *testing.T) {
	t.Parallel()
	now := noon
	addr := netip.MustParseAddr("203.0.113.7")
	failures := func(l *lockout, n int) {
		for range n {
			l.fail(addr, now)
		}
	}
	t.Run("ten in a minute", func(t *testing.T) {
		t.Parallel()
		l := &lockout{}
		failures(l, 9)
		if d := l.lockedFor(addr, now); d != 0 {
			t.Errorf("nine failures lock for %s", d)
		}
		l.fail(addr, now.Add(59*time.Second))
		at := now.Add(59 * time.Second)
		if d := l.lockedFor(addr, at); d != time.Minute {
			t.Errorf("ten failures lock for %s, want a minute", d)
		}
		if d := l.lockedFor(addr, at.Add(time.Minute-time.Millisecond)); d != time.Millisecond {
			t.Errorf("just before the end: %s", d)
		}
		if d := l.lockedFor(addr, at.Add(time.Minute)); d != 0 {
			t.Errorf("after a minute: %s", d)
		}
	})
	t.Run("nine and one a minute later", func(t *testing.T) {
		t.Parallel()
		l := &lockout{}
		failures(l, 9)
		l.fail(addr, now.Add(time.Minute))
		if d := l.lockedFor(addr, now.Add(time.Minute)); d != 0 {
			t.Errorf("locked for %s", d)
		}
	})
	t.Run("others", func(t *testing.T) {
		t.Parallel()
		l := &lockout{}
		failures(l, 10)
		loop := netip.MustParseAddr("127.0.0.1")
		for range 20 {
			l.fail(netip.MustParseAddr("2001:db8:1:2::1"), now)
			l.fail(loop, now)
		}
		for text, locked := range map[string]bool{
			"203.0.113.7": true, "::ffff:203.0.113.7": true, "203.0.113.8": false, "2001:db8:1:2:ffff::9": true, "2001:db8:1:3::1": false, "127.0.0.1": false,
		} {
			if got := l.lockedFor(netip.MustParseAddr(text), now) > 0; got != locked {
				t.Errorf("%s is locked: %t, want %t", text, got, locked)
			}
		}
	})
}

// noon is the time at which the tables of the tests below are filled.
var noon = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)

// failing returns a lockout in which the first n numbered addresses sent a wrong credential at
// noon.
func failing(n int) *lockout {
	l := &lockout{}
	for i := range n {
		l.fail(numbered(i), noon)
	}
	return l
}

// numbered returns an address for each number.
func numbered(i int) netip.Addr {
	return netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)})
}

func TestTheTableOfTheLockoutIsBounded(t *testing.T) {
	t.Parallel()
	l := failing(lockoutTable + 500)
	if n := len(l.failed); n != lockoutTable {
		t.Errorf("%d addresses are kept, want %d", n, lockoutTable)
	}
	l.fail(numbered(lockoutTable+500), noon.Add(lockoutWindow))
	if n := len(l.failed); n != 1 {
		t.Errorf("%d addresses are kept when all others have expired", n)
	}
}

// Every login waits while a full table is searched, so a failure of one more address must not
// search it again.
func TestFailuresBeyondAFullTableSearchItOnceASecond(t *testing.T) {
	t.Parallel()
	l := failing(lockoutTable + 1)
	for a := range l.failed { // entries that a search would remove
		l.failed[a].since = noon.Add(-lockoutWindow)
	}
	l.fail(numbered(lockoutTable+1), noon.Add(sweepEvery-1))
	if n := len(l.failed); n != lockoutTable {
		t.Errorf("%d addresses are kept within a second after a search, want %d", n, lockoutTable)
	}
	l.fail(numbered(lockoutTable+2), noon.Add(sweepEvery))
	if n := len(l.failed); n > 2 { // this one and the previous one
		t.Errorf("%d addresses are kept after the next search", n)
	}
}

func TestRefusalsOfAMinuteAreOneRowForEachAddressAndBounded(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	r := newRefusals()
	rows := func() int {
		n := len(r.rows)
		for range n {
			<-r.rows
		}
		return n
	}
	single := netip.MustParseAddr("203.0.113.7")
	for i := range 10_000 {
		r.note(single, "AUTH_TOKEN_MISMATCH", now.Add(time.Duration(i)*time.Millisecond))
	}
	if n := rows(); n != 1 {
		t.Errorf("10000 tries from one address in a minute: %d rows, want 1", n)
	}
	r.note(single, "AUTH_TOKEN_MISMATCH", now.Add(time.Minute))
	if n := rows(); n != 1 {
		t.Errorf("the first try of the next minute: %d rows, want 1", n)
	}
	now = now.Add(2 * time.Minute)
	addr := netip.MustParseAddr("10.0.0.1")
	for i := range 257 {
		r.note(addr, "AUTH_TOKEN_MISMATCH", now)
		if n := len(r.rows); n != min(i+1, 256) {
			t.Fatalf("%d addresses: %d rows", i+1, n)
		}
		addr = addr.Next()
	}
	_ = rows()
	now = now.Add(time.Minute)
	for _, text := range []string{"2001:db8::1", "2001:db8::2", "2001:db8:0:1::1", "::ffff:203.0.113.7", "203.0.113.7"} {
		r.note(netip.MustParseAddr(text), "AUTH_TOKEN_MISMATCH", now)
	}
	if n := rows(); n != 3 {
		t.Errorf("two networks of IPv6 and one address written in two ways: %d rows, want 3", n)
	}
}

// pot is one allowance that refills over time; it counts its calls.
type pot struct {
	mu    sync.Mutex
	left  float64
	at    time.Time
	asked int
	names map[string]bool
	down  bool
}

func (p *pot) TakeAllowance(_ context.Context, name string, n, perMinute int) (int, time.Duration, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked++
	p.names[name] = true
	if p.down {
		return 0, 0, errors.New("the store is away")
	}
	rate := float64(perMinute) / float64(time.Minute)
	p.left = min(float64(perMinute), p.left+float64(time.Since(p.at))*rate)
	p.at = time.Now()
	got := min(n, int(p.left))
	p.left -= float64(got)
	if got == 0 {
		return 0, time.Duration((1 - p.left) / rate), nil
	}
	return got, 0, nil
}

func TestReplicasShareTheirLimits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := &pot{left: 600, at: time.Now(), names: map[string]bool{}}
		var replicas []Limiter
		for range 3 {
			replicas = append(replicas, NewSharedLimiter(Limits{ChatsPerMinute: 600}, p, slog.New(slog.DiscardHandler)))
		}
		flood := func() (allowed int) {
			for i := range 3000 {
				if ok, _, limit := replicas[i%3].Allow(t.Context(), "ann", LimitChats, 1); ok {
					allowed++
				} else if limit != 600 {
					t.Fatalf("limit %d", limit)
				}
			}
			return allowed
		}
		if n := flood(); n != 600 {
			t.Errorf("three replicas allowed %d calls at once, want 600", n)
		}
		if p.asked > 40 {
			t.Errorf("the store was asked %d times for 3000 calls", p.asked)
		}
		ok, wait, _ := replicas[0].Allow(t.Context(), "ann", LimitChats, 1)
		if ok || wait <= 0 || wait > 100*time.Millisecond {
			t.Errorf("allowed %v, again after %s", ok, wait)
		}
		time.Sleep(30 * time.Second)
		if n := flood(); n != 300 {
			t.Errorf("half a minute later: %d calls, want 300", n)
		}
		time.Sleep(time.Hour) // the unused part of a replica is not added to the full allowance
		if n := flood(); n != 600 {
			t.Errorf("after an hour: %d calls, want 600", n)
		}
		replicas[0].Allow(t.Context(), "ann", LimitHooks, 1)
		replicas[0].Allow(t.Context(), "bob", LimitChats, 1)
		if want := []string{"ann/chat", "ann/hooks", "bob/chat"}; !slices.Equal(slices.Sorted(maps.Keys(p.names)), want) {
			t.Errorf("allowances %v, want %v", p.names, want)
		}
	})
}

func TestAnOutageLocksNoAddressOut(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := &pot{down: true, names: map[string]bool{}}
		l := NewSharedLimiter(Limits{ChatsPerMinute: 60}, p, slog.New(slog.DiscardHandler))
		allowed := 0
		for range 200 {
			if ok, _, _ := l.Allow(t.Context(), "ann", LimitChats, 1); ok {
				allowed++
			}
		}
		if allowed != 60 {
			t.Errorf("%d calls while the store is away, want as many as one gateway allows", allowed)
		}
		if ok, _, limit := NewSharedLimiter(Limits{ChatsPerMinute: Off}, p, nil).Allow(t.Context(), "ann", LimitChats, 1); !ok || limit != 0 {
			t.Error("a limit that is off limits")
		}
	})
}

// Bytes are taken in pieces of any size. Three replicas together allow the bytes of one allowance,
// and a large call waits until enough are available.
func TestReplicasShareTheirBytes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const perMinute, size = 1 << 20, 200_000
		p := &pot{left: perMinute, at: time.Now(), names: map[string]bool{}}
		var replicas []Limiter
		for range 3 {
			replicas = append(replicas, NewSharedLimiter(Limits{BytesPerMinute: perMinute}, p, slog.New(slog.DiscardHandler)))
		}
		local := NewLimiter(Limits{BytesPerMinute: perMinute})
		for what, limiters := range map[string][]Limiter{"shared": replicas, "local": {local}} {
			taken, wait := 0, time.Duration(0)
			for i := range 30 {
				ok, after, _ := limiters[i%len(limiters)].Allow(t.Context(), "ann", LimitBytes, size)
				if ok {
					taken += size
				} else {
					wait = max(wait, after)
				}
			}
			if taken > perMinute || taken < perMinute-len(limiters)*size {
				t.Errorf("%s: %d bytes at once, want about %d", what, taken, perMinute)
			}
			if wait <= 0 || wait > 15*time.Second {
				t.Errorf("%s: again after %s", what, wait)
			}
			time.Sleep(wait)
			if ok, after, _ := limiters[0].Allow(t.Context(), "ann", LimitBytes, size); !ok {
				t.Errorf("%s: refused after the wait, again after %s", what, after)
			}
			time.Sleep(2 * time.Minute)
			if ok, _, _ := limiters[0].Allow(t.Context(), "ann", LimitBytes, 5*perMinute); !ok {
				t.Errorf("%s: a call of more than a minute's bytes is never allowed", what)
			}
		}
	})
}
