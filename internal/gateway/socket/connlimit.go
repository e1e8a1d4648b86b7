package socket

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

	"golang.org/x/time/rate"
)

const (
	// plainConns is how many connections there may be beyond ConnLimits.MaxSockets, for requests that are no sockets: a probe is answered when all
	// sockets are taken.
	plainConns = 1_024
	// writePiece is the largest piece of an answer, in bytes, that has a deadline of its own: a slow line gets a long answer, a stopped one ends it.
	writePiece = 64 << 10
)

// ConnLimits bound the connections that are accepted.
type ConnLimits struct {
	// MaxSockets is the number of sockets; all connections together are bounded by 1,024 more. MaxUnauthenticatedPerAddr bounds those of one
	// address that have proven nothing.
	MaxSockets, MaxUnauthenticatedPerAddr int
	// WriteTimeout bounds each piece of an HTTP answer.
	WriteTimeout time.Duration
	// Exempt reports addresses that stand for many clients, such as a trusted proxy: they are not counted by address. Loopback is exempt.
	Exempt func(netip.Addr) bool
}

// ConnLimiter counts connections from their acceptance on, before anything is read of them: a connection that sends nothing costs memory as well.
// Unauthenticated connections count for their address besides. A socket counts for the hub as soon as it is one. It is safe for concurrent use.
type ConnLimiter struct {
	limits   ConnLimits
	log      *slog.Logger
	warnings rate.Sometimes

	mu              sync.Mutex
	open            int
	unauthenticated map[netip.Addr]int
}

// NewConnLimiter makes a limiter that all listeners of a server share.
func NewConnLimiter(limits ConnLimits, log *slog.Logger) *ConnLimiter {
	return &ConnLimiter{limits: limits, log: log, warnings: rate.Sometimes{First: 1, Interval: 10 * time.Second}, unauthenticated: map[netip.Addr]int{}}
}

// Limit is a listener that accepts connections within the limits.
func (l *ConnLimiter) Limit(inner net.Listener) net.Listener { return &limitedListener{inner, l} }

// acquire takes a place; by is the address that it counts for, the zero value = none.
func (l *ConnLimiter) acquire(by netip.Addr) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open >= l.limits.MaxSockets+plainConns || (by.IsValid() && l.unauthenticated[by] >= l.limits.MaxUnauthenticatedPerAddr) {
		return false
	}
	l.open++
	if by.IsValid() {
		l.unauthenticated[by]++
	}
	return true
}

// authenticated stops counting one connection for its address.
func (l *ConnLimiter) authenticated(by netip.Addr) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.unauthenticated[by]--; l.unauthenticated[by] <= 0 {
		delete(l.unauthenticated, by)
	}
}

func (l *ConnLimiter) release() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open--
}

// countedAddr is the address that a new connection counts for; the zero value = none.
func (l *ConnLimiter) countedAddr(remote net.Addr) netip.Addr {
	ap, err := netip.ParseAddrPort(remote.String())
	if err != nil {
		return netip.Addr{}
	}
	addr := ap.Addr().Unmap()
	if addr.IsLoopback() || l.limits.Exempt(addr) {
		return netip.Addr{}
	}
	return addr
}

// limitedListener closes connections beyond the limits at once: nothing was read of them, so there is nothing to answer, and an answer to many would
// be work as well.
type limitedListener struct {
	net.Listener

	limiter *ConnLimiter
}

// Accept implements [net.Listener].
func (l *limitedListener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err //nolint:wrapcheck // a listener passes on the error of the one below it
		}
		by := l.limiter.countedAddr(c.RemoteAddr())
		if l.limiter.acquire(by) {
			return &acceptedConn{Conn: c, limiter: l.limiter, by: by}, nil
		}
		_ = c.Close()
		l.limiter.warnings.Do(func() {
			l.limiter.log.Warn("too many connections; one was closed before anything was read", slog.String("addr", c.RemoteAddr().String()))
		})
	}
}

// acceptedConn is a counted connection. As long as it is no socket every write has a deadline, of a handler and of the HTTP server itself. Otherwise a client
// that asks and never reads would keep a goroutine for ever.
type acceptedConn struct {
	net.Conn

	limiter *ConnLimiter
	by      netip.Addr // the address that it counts for, the zero value = none
	counted sync.Once
	closed  sync.Once
	socket  atomic.Bool
}

// Write writes piece by piece.
func (c *acceptedConn) Write(p []byte) (int, error) {
	if c.socket.Load() { // its writer sets deadlines
		return c.Conn.Write(p) //nolint:wrapcheck // it stands in the place of the connection
	}
	done := 0
	for {
		_ = c.Conn.SetWriteDeadline(time.Now().Add(c.limiter.limits.WriteTimeout)) //nolint:errcheck // fails on a closed connection only
		n, err := c.Conn.Write(p[done:min(len(p), done+writePiece)])
		done += n
		if err != nil || done == len(p) {
			return done, err //nolint:wrapcheck // as above
		}
	}
}

// Close gives the place back.
func (c *acceptedConn) Close() error {
	c.closed.Do(func() {
		c.authenticated()
		c.limiter.release()
	})
	return c.Conn.Close() //nolint:wrapcheck // as above
}

// CloseWrite lets the HTTP server end its answer before it closes, so that the client reads the refusal of what it still sends.
func (c *acceptedConn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite() //nolint:wrapcheck // as above
	}
	return fmt.Errorf("closing one direction: %w", errors.ErrUnsupported)
}

// SetLinger is that of TCP.
func (c *acceptedConn) SetLinger(sec int) error {
	if tcp, ok := c.Conn.(*net.TCPConn); ok {
		return tcp.SetLinger(sec) //nolint:wrapcheck // as above
	}
	return nil
}

// authenticated stops counting the connection for its address, once.
func (c *acceptedConn) authenticated() {
	c.counted.Do(func() {
		if c.by.IsValid() {
			c.limiter.authenticated(c.by)
		}
	})
}

// becomesSocket leaves deadlines of writes to the writer of the socket, and counts by address to the hub.
func (c *acceptedConn) becomesSocket() {
	c.socket.Store(true)
	c.authenticated()
}

type acceptedKey struct{}

// ConnContext is the hook of that name of [http.Server]; [Authenticated] needs it.
func ConnContext(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, acceptedKey{}, c)
}

// Authenticated stops counting the connection of a request as unauthenticated.
func Authenticated(r *http.Request) {
	if c, ok := r.Context().Value(acceptedKey{}).(*acceptedConn); ok {
		c.authenticated()
	}
}
