package gateway

import (
	"context"
	"log/slog"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gorilla/websocket"
	"golang.org/x/time/rate"

	"laneway/internal/gateway/auth"
	"laneway/internal/gateway/inflight"
	"laneway/internal/gateway/socket"
	"laneway/internal/gateway/strictjson"
	"laneway/internal/wire"
)

// client implements the protocol on one WebSocket connection: its principal, its view of the protocol, and its requests in flight.
type client struct {
	*socket.Conn

	srv  *Server
	id   string
	addr netip.Addr
	who  atomic.Pointer[identity] // nil before hello-ok

	share *inflight.Share // of its principal; written before who

	// Used only by the reader.
	calls  *rate.Limiter // nil before the first call, and when calls are unlimited
	faults []time.Time   // times of malformed frames of the last minute

	order    order
	requests sync.WaitGroup
	mu       sync.Mutex
	inFlight map[string]bool // by id; true = it has one of the places for control methods; nil before the first
	controls int
	brief    briefJobs
}

// identity is the identity of a connection after hello-ok.
type identity struct {
	cred     auth.Credential
	scopes   []string
	level    int
	extended bool
	tools    bool
	brief    bool // receives events about jobs in brief
	probe    bool // speaks an old version and may only call health
}

func (id *identity) administers() bool { return id.cred.Administers(id.scopes) }

func (id *identity) principal() string { return id.cred.Name }

func (s *Server) newClient(conn *socket.Conn, addr netip.Addr) *client {
	return &client{Conn: conn, srv: s, id: s.nextConnID(), addr: addr}
}

// takeCall takes a call from the allowance of the connection, or returns when the next one is available.
func (c *client) takeCall() (ok bool, after time.Duration) {
	n := c.srv.cfg.RequestsPerSecond
	if n <= 0 {
		return true, 0
	}
	if c.calls == nil {
		c.calls = rate.NewLimiter(rate.Limit(n), n)
	}
	return auth.Take(c.calls, 1)
}

// Hold implements [socket.Client].
func (c *client) Hold(peer context.Context, n int64) (socket.Held, *socket.Closing) {
	held, err := c.share.Hold(peer, n)
	if err != nil {
		return nil, &socket.Closing{Code: websocket.CloseTryAgainLater, Text: err.Error(), Reason: socket.ClosedSlow}
	}
	return held, nil
}

// Tick implements [socket.Client].
func (c *client) Tick(now time.Time) {
	c.PutState(wire.EventTick, strictjson.Encode(wire.Tick{TS: now.UnixMilli()}), 0)
}

// DeltaEvents implements [socket.Client].
func (c *client) DeltaEvents(d *socket.Delta, send func(event string, payload []byte) bool) {
	if send(wire.EventChat, chatDelta(d)) && !d.Waiting {
		send(wire.EventAgent, agentDelta(d, c.who.Load().extended))
	}
}

// Closed implements [socket.Client]. Active requests continue, and the gateway waits for them at shutdown.
func (c *client) Closed(ctx context.Context, end *socket.Closing) {
	defer c.srv.hub.Leave()
	defer c.brief.stop()
	c.srv.hub.Remove(c)
	c.requests.Wait()
	c.srv.observer.ConnClosed(end.Reason)
	c.srv.log.DebugContext(ctx, "connection closed", slog.String("conn_id", c.id), slog.String("reason", string(end.Reason)), slog.Any("err", end))
}
