package socket

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gorilla/websocket"

	"laneway/internal/chat"
)

// framesPerSecond is the limit of a connection in these tests.
const framesPerSecond = 50

// echo is a client that accepts every handshake and answers every message with the same message.
type echo struct {
	*Conn

	closed chan *Closing
}

func (e *echo) Handshake(_ context.Context, first []byte) *Closing {
	if string(first) == "refuse" {
		return &Closing{Code: websocket.ClosePolicyViolation, Text: "refused", Reason: ClosedHandshake}
	}
	e.PutFrame(first)
	return nil
}

func (e *echo) Hold(context.Context, int64) (Held, *Closing) { return free{}, nil }

func (e *echo) Receive(_, _ context.Context, m Message) *Closing {
	e.PutFrame(m.Data)
	return nil
}

// free bytes are not counted.
type free struct{}

func (free) Keep(int64) {}
func (free) Release()   {}

func (e *echo) Tick(time.Time) { e.PutState("tick", []byte("{}"), 0) }

func (e *echo) DeltaEvents(d *Delta, send func(string, []byte) bool) {
	send("chat", []byte(`"`+d.Unsent()+`"`))
}

func (e *echo) Closed(_ context.Context, end *Closing) { e.closed <- end }

// pipeListener accepts one end of each pipe.
type pipeListener struct{ conns chan net.Conn }

func (l *pipeListener) Accept() (net.Conn, error) {
	if c, ok := <-l.conns; ok {
		return c, nil
	}
	return nil, net.ErrClosed
}

func (l *pipeListener) Close() error   { return nil }
func (l *pipeListener) Addr() net.Addr { return &net.UnixAddr{Name: "pipe"} }

// connected runs f in virtual time with a client and its peer. It waits for the end of the
// connection, which f must cause, and returns it.
func connected(t *testing.T, f func(e *echo, peer *websocket.Conn)) *Closing {
	t.Helper()
	var end *Closing
	synctest.Test(t, func(t *testing.T) {
		up := NewUpgrader(Config{
			MaxHandshake: 1 << 10, MaxMessage: 1 << 16, ShortMessage: 1 << 10, MaxBuffered: 1 << 20, TickEvery: 30 * time.Second, FramesPerSecond: framesPerSecond,
			Deadlines: Deadlines{
				Handshake: 15 * time.Second, Message: 30 * time.Second, Write: 10 * time.Second, Ping: 20 * time.Second, Pong: 25 * time.Second,
				Slow: 5 * time.Second, Close: time.Second,
			},
		})
		clients := make(chan *echo, 1)
		srv := &http.Server{ReadHeaderTimeout: time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			conn, err := up.Upgrade(w, r)
			if err != nil {
				t.Error(err)
				return
			}
			e := &echo{Conn: conn, closed: make(chan *Closing, 1)}
			conn.Serve(context.WithoutCancel(r.Context()), e)
			clients <- e
		})}
		l := &pipeListener{conns: make(chan net.Conn)}
		served := make(chan error, 1)
		go func() { served <- srv.Serve(l) }()
		dialer := websocket.Dialer{NetDialContext: func(context.Context, string, string) (net.Conn, error) {
			here, there := net.Pipe()
			l.conns <- there
			return here, nil
		}}
		peer, _, err := dialer.Dial("ws://localhost/", nil) //nolint:bodyclose // the library has read it
		if err != nil {
			t.Fatal(err)
		}
		e := <-clients
		f(e, peer)
		end = <-e.closed
		_ = peer.Close()
		close(l.conns)
		<-served
	})
	return end
}

func say(t *testing.T, peer *websocket.Conn, text string) {
	t.Helper()
	if err := peer.WriteMessage(websocket.TextMessage, []byte(text)); err != nil {
		t.Error(err)
	}
	if _, got, err := peer.ReadMessage(); err != nil || string(got) != text {
		t.Errorf("answer %q, %v", got, err)
	}
}

// goroutinesIn returns how many goroutines have the function on their stack.
func goroutinesIn(function string) int {
	stacks := make([]byte, 1<<20)
	return strings.Count(string(stacks[:runtime.Stack(stacks, true)]), function+"(")
}

// Not parallel: it counts the goroutines of the process.
//
//nolint:paralleltest // see above
func TestAnIdleConnectionHasOneGoroutine(t *testing.T) {
	end := connected(t, func(_ *echo, peer *websocket.Conn) {
		say(t, peer, "hello")
		say(t, peer, "again")
		synctest.Wait()
		if n := goroutinesIn("gateway/socket.(*Conn).write"); n != 0 {
			t.Errorf("%d goroutines write, want none: nothing is queued", n)
		}
		if n := goroutinesIn("gateway/socket.(*Conn).handshake"); n != 0 {
			t.Errorf("%d goroutines are in the handshake, want none", n)
		}
		if n := goroutinesIn("gateway/socket.(*Conn).read"); n != 1 {
			t.Errorf("%d goroutines read, want 1", n)
		}
		pings := 0
		peer.SetPingHandler(func(string) error {
			pings++
			return peer.WriteControl(websocket.PongMessage, nil, time.Now().Add(time.Second))
		})
		if _, got, err := peer.ReadMessage(); err != nil || !strings.Contains(string(got), `"tick"`) || pings != 1 {
			t.Errorf("%q, %v after %d pings; want a tick after one", got, err, pings)
		}
		_ = peer.Close()
	})
	if end.Reason != ClosedByPeer {
		t.Errorf("the connection ended as %q", end.Reason)
	}
}

func TestTheEndOfAConnection(t *testing.T) {
	t.Parallel()
	write := func(kind int, data string) func(*echo, *websocket.Conn) {
		return func(_ *echo, peer *websocket.Conn) { _ = peer.WriteMessage(kind, []byte(data)) }
	}
	for name, c := range map[string]struct {
		do     func(e *echo, peer *websocket.Conn)
		code   int
		reason CloseReason
	}{
		"no first message":     {func(*echo, *websocket.Conn) {}, 1000, ClosedHandshake},
		"a refused handshake":  {write(websocket.TextMessage, "refuse"), 1008, ClosedHandshake},
		"a binary message":     {write(websocket.BinaryMessage, "x"), 1003, ClosedProtocol},
		"text that is no text": {write(websocket.TextMessage, "\xff"), 1007, ClosedProtocol},
		"a long first message": {write(websocket.TextMessage, strings.Repeat("x", 1<<10+1)), 1009, ClosedProtocol},
		"the owner ends it": {func(e *echo, _ *websocket.Conn) {
			e.End(&Closing{Code: websocket.CloseServiceRestart, Reason: ClosedStopping})
			e.End(&Closing{Code: websocket.CloseNormalClosure, Reason: ClosedInternal})
		}, 1012, ClosedStopping},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var code int
			end := connected(t, func(e *echo, peer *websocket.Conn) {
				c.do(e, peer)
				for {
					if _, _, err := peer.ReadMessage(); err != nil {
						if closed, ok := err.(*websocket.CloseError); ok { //nolint:errorlint // the library wraps nothing
							code = closed.Code
						}
						return
					}
				}
			})
			if code != c.code || end.Reason != c.reason {
				t.Errorf("close %d, reason %q; want %d, %q", code, end.Reason, c.code, c.reason)
			}
		})
	}
}

func TestAHubCountsPlacesAndFollowers(t *testing.T) {
	t.Parallel()
	a, b := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")
	h := NewHub[string](HubLimits{Sockets: 3, Unauthenticated: 2, PerPrincipal: 1})
	reserve := func(from netip.Addr) *Reservation[string] { p, _ := h.Reserve(from, 1); return p }
	one, two := reserve(a), reserve(b)
	if one == nil || reserve(a) != nil || two == nil || reserve(netip.Addr{}) != nil {
		t.Error("one per address and two in total are not authenticated")
	}
	if !h.Add("one", one) || !h.Add("two", two) || !h.Admit("one", "anna") || h.Admit("two", "anna") {
		t.Error("one connection of a principal")
	}
	h.Open("one", func() {})
	main := chat.MainKey("main")
	h.Subscribe("two", Subscription{Deltas: true})
	if !h.Follow("one", "run") || h.Follow("one", "run") || h.Follow("two", "run") {
		t.Error("only a connection that is open follows a run, once")
	}
	if got := h.Audience("run", main, false); len(got) != 1 || got[0] != "one" {
		t.Errorf("the audience is %v", got)
	}
	h.Ended("run")
	if got := h.Audience("run", main, false); len(got) != 0 {
		t.Errorf("the audience of a run that has ended is %v", got)
	}
	h.Subscribe("one", Subscription{Deltas: true})
	h.Follow("one", "next")
	h.Unsubscribe("one")
	h.Unsubscribe("unknown")
	if got := h.Audience("next", main, false); len(got) != 0 {
		t.Errorf("the audience after the unsubscription is %v", got)
	}
	h.Remove("two")
	h.Leave()
	again := reserve(b)
	if again == nil || h.CountOf("anna") != 1 || h.Count() != 1 {
		t.Error("the place of a connection that is gone is not free")
	}
	h.Release(again)
	if got := h.Close(); len(got) != 1 || reserve(b) != nil {
		t.Errorf("closed with %v", got)
	}
	h.Remove("one")
	h.Leave()
	if left := h.Wait(t.Context()); left != 0 {
		t.Errorf("%d connections are left", left)
	}
}

// At the limit of a network, its oldest connection is closed; at the total limit, the oldest of
// all. Reserved places and authenticated connections are not closed.
func TestTheOldestUnauthenticatedConnectionGivesWay(t *testing.T) {
	t.Parallel()
	a, b := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")
	h := NewHub[string](HubLimits{Sockets: 10, Unauthenticated: 3, PerPrincipal: 10})
	open := func(name string, from netip.Addr) (gone string) {
		t.Helper()
		p, oldest := h.Reserve(from, 2)
		if p == nil || !h.Add(name, p) {
			t.Fatalf("no place for %s", name)
		}
		if oldest != nil {
			return oldest.Conn()
		}
		return ""
	}
	open("b1", b)
	open("a1", a)
	open("a2", a)
	if gone := open("a3", a); gone != "a1" {
		t.Errorf("%q gave way to a third connection of its address, want the oldest of that", gone)
	}
	if h.Admit("a1", "anna") {
		t.Error("a connection that gave way authenticated")
	}
	if !h.Admit("b1", "otto") {
		t.Error("the oldest of all could not authenticate")
	}
	open("b2", b)
	if gone := open("b3", b); gone != "a2" {
		t.Errorf("%q gave way at the limit of all, want the oldest of all that are not authenticated", gone)
	}
	for _, c := range []string{"a1", "a2", "a3", "b1", "b2", "b3"} {
		h.Remove(c)
		h.Leave()
	}
	if len(h.unproven.from) != 0 || h.unproven.all.Len() != 0 || h.sockets != 0 {
		t.Errorf("something is left: %v, %d, %d", h.unproven.from, h.unproven.all.Len(), h.sockets)
	}
}

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
