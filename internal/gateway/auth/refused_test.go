package auth

import (
	"net/netip"
	"testing"
	"time"
)

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
