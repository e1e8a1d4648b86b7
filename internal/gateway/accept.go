package gateway

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-chi/chi/v5/middleware"
)

const (
	// plainRoom is how many connections there may be beyond Config.MaxSockets, for requests that are no sockets: a probe is answered when all
	// sockets are taken.
	plainRoom = 1_024
	// writePiece is the largest piece of an answer, in bytes, that has a deadline of its own: a slow line gets a long answer, a stopped one ends it.
	writePiece = 64 << 10
)

// crowd counts the connections that were accepted, before anything is read of them: a connection that says nothing costs memory as well. Those of
// which nobody has proven who they are count for their address besides, except on loopback and behind a trusted proxy, where one address stands for many
// people. A socket counts for the hub as soon as it is one.
type crowd struct {
	mu        sync.Mutex
	open      int
	strangers map[netip.Addr]int
}

// enter takes a place; by is the address that it counts for, the zero value = none.
func (c *crowd) enter(by netip.Addr, cfg *Config) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.open >= cfg.MaxSockets+plainRoom || (by.IsValid() && c.strangers[by] >= cfg.MaxStrangersPerAddr) {
		return false
	}
	c.open++
	if by.IsValid() {
		c.strangers[by]++
	}
	return true
}

// known takes one stranger off an address.
func (c *crowd) known(by netip.Addr) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.strangers[by]--; c.strangers[by] <= 0 {
		delete(c.strangers, by)
	}
}

func (c *crowd) leave() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open--
}

// entrance is a listener that lets in what there is a place for. The others are closed at once: nothing was read of them, so there is nothing to
// answer, and an answer to many would be work as well.
type entrance struct {
	net.Listener

	srv *Server
}

// Accept implements [net.Listener].
func (e *entrance) Accept() (net.Conn, error) {
	for {
		c, err := e.Listener.Accept()
		if err != nil {
			return nil, err //nolint:wrapcheck // a listener hands through what the one below it says
		}
		by := e.srv.strangerAt(c.RemoteAddr())
		if e.srv.crowd.enter(by, &e.srv.cfg) {
			return &accepted{Conn: c, srv: e.srv, by: by}, nil
		}
		_ = c.Close()
		e.srv.turnedAway.Do(func() {
			e.srv.log.Warn("too many connections; one was closed before it said anything", slog.String("addr", c.RemoteAddr().String()))
		})
	}
}

// strangerAt is the address that a new connection counts for; the zero value = none.
func (s *Server) strangerAt(remote net.Addr) netip.Addr {
	ap, err := netip.ParseAddrPort(remote.String())
	if err != nil {
		return netip.Addr{}
	}
	addr := ap.Addr().Unmap()
	if addr.IsLoopback() || s.policy.Trusted(addr) {
		return netip.Addr{}
	}
	return addr
}

// accepted is a connection with a place in the crowd. As long as it is no socket every write has a deadline, whoever writes: a handler, or the HTTP server
// what it had collected. A client that asks and never reads would keep a goroutine for ever.
type accepted struct {
	net.Conn

	srv    *Server
	by     netip.Addr // counts for it, the zero value = none
	proven sync.Once
	closed sync.Once
	socket atomic.Bool
}

// Write writes piece by piece.
func (c *accepted) Write(p []byte) (int, error) {
	if c.socket.Load() { // its writer sets deadlines
		return c.Conn.Write(p) //nolint:wrapcheck // it stands in the place of the connection
	}
	done := 0
	for {
		_ = c.Conn.SetWriteDeadline(time.Now().Add(c.srv.cfg.Deadlines.Write)) //nolint:errcheck // fails on a closed connection only
		n, err := c.Conn.Write(p[done:min(len(p), done+writePiece)])
		done += n
		if err != nil || done == len(p) {
			return done, err //nolint:wrapcheck // as above
		}
	}
}

// Close gives the place back.
func (c *accepted) Close() error {
	c.closed.Do(func() {
		c.known()
		c.srv.crowd.leave()
	})
	return c.Conn.Close() //nolint:wrapcheck // as above
}

// CloseWrite lets the HTTP server tell a client that the answer is complete before it closes, so that the client reads the refusal of what it still sends.
func (c *accepted) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite() //nolint:wrapcheck // as above
	}
	return fmt.Errorf("closing one direction: %w", errors.ErrUnsupported)
}

// SetLinger is that of TCP.
func (c *accepted) SetLinger(sec int) error {
	if tcp, ok := c.Conn.(*net.TCPConn); ok {
		return tcp.SetLinger(sec) //nolint:wrapcheck // as above
	}
	return nil
}

// known says that the peer has proven who it is, or counts elsewhere.
func (c *accepted) known() {
	c.proven.Do(func() {
		if c.by.IsValid() {
			c.srv.crowd.known(c.by)
		}
	})
}

// becomesSocket leaves the deadlines of writes to the writer of the socket, and the counting of strangers to the hub.
func (c *accepted) becomesSocket() {
	c.socket.Store(true)
	c.known()
}

type acceptedKey struct{}

func withAccepted(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, acceptedKey{}, c)
}

// proven takes the connection of a request off the strangers of its address.
func proven(r *http.Request) {
	if c, ok := r.Context().Value(acceptedKey{}).(*accepted); ok {
		c.known()
	}
}

// provenBy wraps a handler that proves its callers by itself: who is answered with success was one of them.
func provenBy(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen := middleware.NewWrapResponseWriter(w, r.ProtoMajor)
		h.ServeHTTP(seen, r)
		if seen.Status() < http.StatusMultipleChoices { // 0 = nothing was written, which means 200
			proven(r)
		}
	})
}
