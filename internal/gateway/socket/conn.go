package socket

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gorilla/websocket"
)

// Config of the connections of an [Upgrader]. Every field is required, except FramesPerSecond.
type Config struct {
	// MaxHandshake and MaxMessage are the maximum sizes of messages before and after the handshake, in bytes. ShortMessage bytes of a
	// message are read before [Client.Hold] is called for more.
	MaxHandshake, MaxMessage, ShortMessage int64
	// MaxBuffered is the limit of each send buffer in bytes, see [Buffer]. The waiting responses of one principal have four times this
	// limit, those of all principals sixteen times.
	MaxBuffered int
	// FramesPerSecond limits the control frames and the empty continuation frames of one connection in a second; 0 = no limit.
	FramesPerSecond int
	// TickEvery is the interval of calls of [Client.Tick].
	TickEvery time.Duration
	Deadlines Deadlines
}

// Deadlines of a connection.
type Deadlines struct {
	Handshake  time.Duration // from the upgrade to the complete first message
	Message    time.Duration // from the first frame of a message to its end
	Write      time.Duration // one write
	Ping, Pong time.Duration // the interval of pings, and the time from a ping to its pong
	Slow       time.Duration // the send buffer continuously over its limit
	Close      time.Duration // to write a close frame, and to read that of the peer
}

// Client is the protocol on a connection. Handshake, Receive and Closed run on the goroutine that reads, Tick and DeltaEvents on the one
// that writes.
type Client interface {
	// Handshake handles the first message. It returns how the connection ends, or nil when the peer is authenticated.
	Handshake(ctx context.Context, first []byte) *Closing
	// Hold waits until n bytes of a message may be in memory. It is called before more than Config.ShortMessage bytes of a message are
	// read, with the maximum size of the message. It returns how the connection ends, or nil. peer ends with the connection.
	Hold(peer context.Context, n int64) (Held, *Closing)
	// Receive handles every later message and returns how the connection ends, or nil. ctx does not end with the connection. Receive
	// releases the message.
	Receive(ctx, peer context.Context, m Message) *Closing
	// Tick queues the periodic frames after the handshake.
	Tick(now time.Time)
	// DeltaEvents builds the events for new text of a run at the time of writing, and passes each to send until one fails.
	DeltaEvents(d *Delta, send func(event string, payload []byte) bool)
	// Closed is called once, when the connection no longer reads or writes.
	Closed(ctx context.Context, end *Closing)
}

// Message is one message after the handshake, with its bytes, which it holds until it is answered.
type Message struct {
	Data []byte
	Held
}

// Held are bytes of memory that a message holds.
type Held interface {
	// Keep releases all but n bytes.
	Keep(n int64)
	// Release releases all bytes. A second call does nothing.
	Release()
}

// Conn is one WebSocket connection. Its methods, those of [Buffer] included, are safe for concurrent use.
type Conn struct {
	*Buffer

	up     *Upgrader
	ws     *websocket.Conn
	raw    *netConn
	in     *bufio.Reader // of ws; used only by the reader
	client Client
	since  time.Time

	authenticated atomic.Bool
	authedAt      time.Time   // written before authenticated, read after it
	peerClosed    bool        // used only by the reader: the close frame of the peer was read
	reading       atomic.Bool // a message has started and has its own deadline
	waiting       waiting
	pingedAt      atomic.Int64 // oldest ping without a pong, in nanoseconds since the upgrade; 0 = no ping
	writer        writer
}

// Upgrader creates connections from upgrade requests. They share its buffers, so that an idle connection has none. It is safe for
// concurrent use.
type Upgrader struct {
	cfg    Config
	sums   *sums
	frames sync.Pool // *[]byte in which frames are built
	ws     websocket.Upgrader
}

// NewUpgrader returns an upgrader. It checks no origin: the caller has to do that.
func NewUpgrader(cfg Config) *Upgrader {
	return &Upgrader{cfg: cfg, sums: newSums(cfg.MaxBuffered), ws: websocket.Upgrader{
		WriteBufferPool: new(sync.Pool), WriteBufferSize: 4096,
		CheckOrigin: func(*http.Request) bool { return true },
	}}
}

// Upgrade answers an upgrade request. After an error, the request is answered and its connection closed. Frames that are queued on the
// connection wait for [Conn.Serve].
func (u *Upgrader) Upgrade(w http.ResponseWriter, r *http.Request) (*Conn, error) {
	h := &hijacker{ResponseWriter: w, frames: u.cfg.FramesPerSecond}
	ws, err := u.ws.Upgrade(h, r, nil)
	if err != nil {
		return nil, err //nolint:wrapcheck // it names itself
	}
	c := &Conn{up: u, ws: ws, raw: h.conn, in: h.in, since: time.Now()}
	c.Buffer = newBuffer(u.cfg.MaxBuffered, u.cfg.Deadlines.Slow, c.slow, c.wake)
	c.writer.hold()
	ws.SetPongHandler(func(string) error { c.pingedAt.Store(0); return nil })
	ws.SetCloseHandler(func(int, string) error { c.peerClosed = true; return nil })
	return c, nil
}

// Since returns when the connection was upgraded.
func (c *Conn) Since() time.Time { return c.since }

// Serve starts to read and write and returns at once; Client.Closed is called at the end. The handshake has its own goroutine, because it
// needs a larger stack than a waiting connection, see [Conn.read].
func (c *Conn) Serve(ctx context.Context, client Client) {
	c.client = client
	c.startWriting()
	go func() {
		if end := c.handshake(ctx); end != nil {
			c.closeAfter(ctx, end)
			return
		}
		go c.read(ctx, nil)
	}()
}

// errPeerGone is the cause with which the context of a peer ends.
var errPeerGone = errors.New("the peer is gone")

// closeAfter closes the connection after end, unless another ending was decided before.
func (c *Conn) closeAfter(ctx context.Context, end *Closing) {
	c.End(end)
	c.writer.done.Wait()
	c.up.sums.leave(c.Buffer)
	c.linger()
	_ = c.ws.Close()
	c.client.Closed(ctx, c.decided())
}

// CountFor counts the waiting responses for a principal from now on. Call it once, in Client.Handshake.
func (c *Conn) CountFor(principal string) { c.up.sums.join(principal, c.Buffer) }

// End closes the connection after all queued frames were written, within a few seconds. Only the first ending counts.
func (c *Conn) End(end *Closing) {
	if c.finish(end) {
		c.raw.LimitWrites(time.Now().Add(2 * c.up.cfg.Deadlines.Close))
	}
}

// Cut closes the TCP connection at once.
func (c *Conn) Cut() { _ = c.raw.Close() }

// slow ends a connection whose peer does not read. Queued frames are dropped; the peer has a second to read the close frame.
func (c *Conn) slow() {
	c.abandon(&Closing{Code: websocket.CloseTryAgainLater, Text: "slow consumer", Reason: ClosedSlow})
}

func (c *Conn) abandon(end *Closing) {
	if !c.drop(end) {
		return
	}
	at := time.Now().Add(c.up.cfg.Deadlines.Close)
	c.raw.Reset()
	c.raw.LimitWrites(at)
	c.readBy(at)
}

// linger briefly reads and drops what the peer sends after the close frame of this side. Closing a TCP connection with unread bytes resets
// it, and a reset may overtake the close frame.
func (c *Conn) linger() {
	if r := c.decided().Reason; c.peerClosed || r == ClosedSlow || r == ClosedByPeer || r == ClosedUnauthenticated {
		return
	}
	c.readBy(time.Now().Add(c.up.cfg.Deadlines.Close))
	_, _ = io.CopyBuffer(io.Discard, struct{ io.Reader }{c.raw}, make([]byte, 4096)) //nolint:errcheck // it ends with an error, always
}

func isTimeout(err error) bool {
	var t net.Error
	return errors.As(err, &t) && t.Timeout()
}
