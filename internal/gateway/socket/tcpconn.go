package socket

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"
)

// netConn is the TCP connection of a WebSocket. The library sets a write deadline with every frame; a connection that is being closed needs
// one that no later frame can extend.
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
	return n, err //nolint:wrapcheck // it replaces the connection
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
	_ = c.Conn.SetWriteDeadline(t) //nolint:errcheck // fails on a closed connection only
}

// Reset turns the next close into a TCP reset: data that the peer has not read is discarded.
func (c *netConn) Reset() {
	if tcp, ok := c.Conn.(interface{ SetLinger(sec int) error }); ok {
		_ = tcp.SetLinger(0) //nolint:errcheck // fails on a closed connection only
	}
}

// hijacker passes a netConn to the WebSocket library instead of the bare connection, and a reader with which [Conn] reads ahead.
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
