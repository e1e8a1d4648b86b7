package socket

import (
	"bufio"
	"container/list"
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
	// plainConns is how many connections may be open beyond ConnLimits.MaxSockets, for requests
	// that are not sockets: a probe is answered even when all sockets are used.
	plainConns = 1_024
	// writePiece is the maximum size of a piece of an answer, in bytes, that has its own deadline:
	// a long answer on a slow connection succeeds, and a stalled connection ends.
	writePiece = 64 << 10
)

// ConnLimits limit the accepted connections.
type ConnLimits struct {
	// MaxSockets is the number of sockets; all connections together are limited to 1,024 more.
	// MaxUnauthenticatedPerAddr limits the unauthenticated ones of one network: at the limit the
	// oldest of them is closed.
	MaxSockets, MaxUnauthenticatedPerAddr int
	// WriteTimeout limits each piece of an HTTP answer.
	WriteTimeout time.Duration
	// Exempt reports addresses that many clients share, such as a trusted proxy: they are not
	// counted by address. Loopback is always exempt.
	Exempt func(netip.Addr) bool
	// Network returns the network under which an address is counted.
	Network func(netip.Addr) netip.Addr
}

// ConnLimiter counts connections from their acceptance on, before anything is read from them,
// because even a connection that sends nothing needs memory. Unauthenticated connections also count
// for their address. The hub counts a connection once it is a socket. It is safe for concurrent
// use.
type ConnLimiter struct {
	limits   ConnLimits
	log      *slog.Logger
	warnings rate.Sometimes

	mu       sync.Mutex
	open     int
	unproven unproven[*acceptedConn]
}

// NewConnLimiter returns a limiter that all listeners of a server share.
func NewConnLimiter(limits ConnLimits, log *slog.Logger) *ConnLimiter {
	return &ConnLimiter{limits: limits, log: log, warnings: rate.Sometimes{First: 1, Interval: 10 * time.Second}}
}

// Limit returns a listener that accepts connections within the limits.
func (l *ConnLimiter) Limit(inner net.Listener) net.Listener { return &limitedListener{inner, l} }

// acquire takes a place for a connection; ok is false when no place is free. oldest is the
// connection to close for it, or nil.
func (l *ConnLimiter) acquire(c *acceptedConn) (oldest *acceptedConn, ok bool) {
	from := l.countedAddr(c.RemoteAddr())
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open >= l.limits.MaxSockets+plainConns {
		return nil, false
	}
	if from.IsValid() {
		p, gone := l.unproven.enter(from, l.limits.MaxUnauthenticatedPerAddr)
		if p == nil {
			return nil, false
		}
		p.use(c)
		if c.place = p; gone != nil {
			oldest = gone.conn
		}
	}
	l.open++
	return oldest, true
}

// authenticated stops counting one connection for its network.
func (l *ConnLimiter) authenticated(p *Reservation[*acceptedConn]) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.unproven.leave(p)
}

func (l *ConnLimiter) release() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open--
}

// countedAddr returns the network for which a new connection counts; zero = no network.
func (l *ConnLimiter) countedAddr(remote net.Addr) netip.Addr {
	ap, err := netip.ParseAddrPort(remote.String())
	if err != nil {
		return netip.Addr{}
	}
	addr := ap.Addr().Unmap()
	if addr.IsLoopback() || l.limits.Exempt(addr) {
		return netip.Addr{}
	}
	return l.limits.Network(addr)
}

// limitedListener closes connections beyond the limits without an answer, because many answers
// would need resources, too.
type limitedListener struct {
	net.Listener

	limiter *ConnLimiter
}

// Accept implements [net.Listener].
func (l *limitedListener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err // a listener passes on the error of the one below it
		}
		accepted := &acceptedConn{Conn: c, limiter: l.limiter}
		oldest, ok := l.limiter.acquire(accepted)
		if !ok {
			l.limiter.refuse(c)
			continue
		}
		if oldest != nil {
			l.limiter.refuse(oldest)
		}
		return accepted, nil
	}
}

// refuse closes a connection when no place is free.
func (l *ConnLimiter) refuse(c net.Conn) {
	_ = c.Close()
	l.warnings.Do(func() {
		l.log.Warn("too many connections that have not authenticated; the oldest was closed", slog.String("addr", c.RemoteAddr().String()))
	})
}

// acceptedConn is a counted connection. Until it becomes a socket, every write has a deadline, both
// of a handler and of the HTTP server itself. Otherwise a client that sends a request and never
// reads would keep a goroutine for ever.
type acceptedConn struct {
	net.Conn

	limiter *ConnLimiter
	place   *Reservation[*acceptedConn] // nil = it is not counted by network
	closed  sync.Once
	socket  atomic.Bool
}

// Write writes piece by piece.
func (c *acceptedConn) Write(p []byte) (int, error) {
	if c.socket.Load() { // the socket's writer sets deadlines
		return c.Conn.Write(p) // it replaces the connection
	}
	done := 0
	for {
		_ = c.Conn.SetWriteDeadline(time.Now().Add(c.limiter.limits.WriteTimeout)) // fails on a closed connection only
		n, err := c.Conn.Write(p[done:min(len(p), done+writePiece)])
		done += n
		if err != nil || done == len(p) {
			return done, err // as above
		}
	}
}

// Close releases the place.
func (c *acceptedConn) Close() error {
	c.closed.Do(func() {
		c.authenticated()
		c.limiter.release()
	})
	return c.Conn.Close() // as above
}

// CloseWrite lets the HTTP server end its answer before it closes, so that the client can read the
// refusal while it still sends.
func (c *acceptedConn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite() // as above
	}
	return fmt.Errorf("closing one direction: %w", errors.ErrUnsupported)
}

// SetLinger implements the method of [net.TCPConn].
func (c *acceptedConn) SetLinger(sec int) error {
	if tcp, ok := c.Conn.(*net.TCPConn); ok {
		return tcp.SetLinger(sec) // as above
	}
	return nil
}

// authenticated stops counting the connection for its network.
func (c *acceptedConn) authenticated() {
	if c.place != nil {
		c.limiter.authenticated(c.place)
	}
}

// becomesSocket leaves write deadlines to the writer of the socket, and the count by address to the
// hub.
func (c *acceptedConn) becomesSocket() {
	c.socket.Store(true)
	c.authenticated()
}

type acceptedKey struct{}

// ConnContext is the hook of [http.Server] with this name; [Authenticated] needs it.
func ConnContext(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, acceptedKey{}, c)
}

// Authenticated stops counting the connection of a request as unauthenticated.
func Authenticated(r *http.Request) {
	if c, ok := r.Context().Value(acceptedKey{}).(*acceptedConn); ok {
		c.authenticated()
	}
}

// unproven has the unauthenticated connections, the oldest first. At a limit the oldest is closed
// for a new one: a client that opens connections without authenticating does not block other
// clients of its address. The caller holds the lock.
type unproven[C any] struct {
	limit int // of all networks together; 0 = no limit
	all   list.List
	from  map[netip.Addr]int // number for each network
}

// Reservation is what one unauthenticated connection counts as. Only its [Hub] changes it.
type Reservation[C any] struct {
	from netip.Addr
	conn C
	used bool          // conn is set; a place that is reserved for a future connection is not taken away
	at   *list.Element // nil = it is no longer counted
}

// Conn returns the connection of a used place.
func (p *Reservation[C]) Conn() C { return p.conn }

// enter takes a place for a connection of a network with this limit. p is nil when no place is
// free. gone is the connection that must be closed for it and is no longer counted, or nil.
func (u *unproven[C]) enter(from netip.Addr, limit int) (p, gone *Reservation[C]) {
	crowded := u.from[from] >= limit
	if crowded || (u.limit > 0 && u.all.Len() >= u.limit) {
		if gone = u.oldest(from, crowded); gone == nil {
			return nil, nil
		}
		u.leave(gone)
	}
	if u.from == nil {
		u.from = map[netip.Addr]int{}
	}
	u.from[from]++
	p = &Reservation[C]{from: from}
	p.at = u.all.PushBack(p)
	return p, gone
}

// oldest returns the oldest connection, of that network or of any; nil = no connection can be
// closed.
func (u *unproven[C]) oldest(from netip.Addr, ofNetwork bool) *Reservation[C] {
	for e := u.all.Front(); e != nil; e = e.Next() {
		if p, ok := e.Value.(*Reservation[C]); ok && p.used && (!ofNetwork || p.from == from) {
			return p
		}
	}
	return nil
}

// use puts a connection into its place.
func (p *Reservation[C]) use(c C) { p.conn, p.used = c, true }

// leave stops counting a connection. A second call does nothing.
func (u *unproven[C]) leave(p *Reservation[C]) {
	if p.at == nil {
		return
	}
	u.all.Remove(p.at)
	p.at = nil
	if u.from[p.from]--; u.from[p.from] <= 0 {
		delete(u.from, p.from)
	}
}

// netConn is the TCP connection of a WebSocket. The library sets a write deadline with every frame;
// a connection that is being closed needs one that no later frame can extend.
type netConn struct {
	net.Conn

	frames frameCounter // used by the reader

	mu    sync.Mutex
	limit time.Time // no write deadline is later than this; zero = no limit
}

// Read reads bytes of the client, as long as their frames are within the limit.
func (c *netConn) Read(p []byte) (int, error) {
	if c.frames.exceeded {
		return 0, errTooManyFrames
	}
	n, err := c.Conn.Read(p)
	if !c.frames.take(p[:n]) {
		return 0, errTooManyFrames
	}
	return n, err // it replaces the connection
}

// SetWriteDeadline sets the deadline, or the limit if that is earlier.
func (c *netConn) SetWriteDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.limit.IsZero() && (t.IsZero() || t.After(c.limit)) {
		t = c.limit
	}
	return c.Conn.SetWriteDeadline(t)
}

// LimitWrites makes every write, even a blocked one, end by t.
func (c *netConn) LimitWrites(t time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.limit = t
	_ = c.Conn.SetWriteDeadline(t) // fails on a closed connection only
}

// Reset turns the next close into a TCP reset: data that the peer has not read is discarded.
func (c *netConn) Reset() {
	if tcp, ok := c.Conn.(interface{ SetLinger(sec int) error }); ok {
		_ = tcp.SetLinger(0) // fails on a closed connection only
	}
}

// hijacker passes a netConn to the WebSocket library instead of the bare connection, and a reader
// with which [Conn] reads ahead.
type hijacker struct {
	http.ResponseWriter
	frames int // limit of the frame counter
	conn   *netConn
	in     *bufio.Reader
}

// Hijack takes over the connection from the HTTP server.
func (h *hijacker) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	c, rw, err := http.NewResponseController(h.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, fmt.Errorf("taking the connection over: %w", err)
	}
	if a, ok := c.(*acceptedConn); ok {
		a.becomesSocket()
	}
	h.conn = &netConn{Conn: c, frames: frameCounter{limit: h.frames}}
	if rw.Reader.Buffered() > 0 {
		return h.conn, rw, nil // the library refuses a client that does not wait for the answer
	}
	h.in = bufio.NewReaderSize(h.conn, readBuffer)
	return h.conn, bufio.NewReadWriter(h.in, rw.Writer), nil
}
