package socket

import (
	"log/slog"
	"net/netip"
	"testing"
)

func TestConnectionsAreBoundedInAll(t *testing.T) {
	t.Parallel()
	c := NewConnLimiter(ConnLimits{MaxSockets: 2, MaxUnauthenticatedPerAddr: 1}, slog.New(slog.DiscardHandler))
	for n := range 2 + plainConns {
		if !c.acquire(netip.Addr{}) {
			t.Fatalf("no place for connection %d", n+1)
		}
	}
	if c.acquire(netip.Addr{}) {
		t.Error("there is no bound")
	}
	c.release()
	if !c.acquire(netip.Addr{}) {
		t.Error("the place of a closed connection is not free")
	}
}
