package auth

import (
	"net/netip"
	"testing"
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

// failing returns a lockout in which the first n numbered addresses sent a wrong credential at noon.
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

// Every login waits while a full table is searched, so a failure of one more address must not search it again.
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
