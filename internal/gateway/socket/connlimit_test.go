package socket

import (
	"log/slog"
	"net"
	"testing"
)

func TestConnectionsAreBoundedInAll(t *testing.T) {
	t.Parallel()
	c := NewConnLimiter(ConnLimits{MaxSockets: 2, MaxUnauthenticatedPerAddr: 1}, slog.New(slog.DiscardHandler))
	accepted := func() bool {
		end, _ := net.Pipe() // its address is not counted
		_, ok := c.acquire(&acceptedConn{Conn: end, limiter: c})
		return ok
	}
	for n := range 2 + plainConns {
		if !accepted() {
			t.Fatalf("no place for connection %d", n+1)
		}
	}
	if accepted() {
		t.Error("there is no bound")
	}
	c.release()
	if !accepted() {
		t.Error("the place of a closed connection is not free")
	}
}
