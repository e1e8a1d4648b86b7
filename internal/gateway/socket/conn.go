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
	// MaxHandshake and MaxMessage are the largest messages before and after the handshake, in bytes. So much as ShortMessage is read of a message before
	// [Client.Hold] is asked for more.
	MaxHandshake, MaxMessage, ShortMessage int64
	// MaxBuffered is the limit of each send buffer in bytes, see [Buffer]. The responses that wait for one principal have four times as many, those of all
	// sixteen times.
	MaxBuffered int
	// FramesPerSecond bounds the control frames and the continuation frames without content of one connection in a second; 0 = no bound.
	FramesPerSecond int
	// TickEvery is the distance of the calls of [Client.Tick].
	TickEvery time.Duration
	Deadlines Deadlines
}

// Deadlines of a connection.
type Deadlines struct {
	Handshake  time.Duration // from the upgrade to the complete first message
	Message    time.Duration // from the first frame of a message to its end
	Write      time.Duration // one write
	Ping, Pong time.Duration // the distance of pings, and of a ping and its pong
	Slow       time.Duration // the send buffer over its limit without a break
	Close      time.Duration // to write a close frame, and to read the one of the peer
}

// Client is the protocol above a connection. Handshake, Receive and Closed run in the goroutine that reads, Tick and DeltaEvents in the one that writes.
type Client interface {
	// Handshake takes the first message. It returns how the connection ends, nil when the peer is authenticated.
	Handshake(ctx context.Context, first []byte) *Closing
	// Hold waits until n bytes of a message may be in memory. It is called before more than Config.ShortMessage bytes of a message are read, with the
	// largest size that it may have. It returns how the connection ends, nil when it does not. peer ends with the connection.
	Hold(peer context.Context, n int64) (Held, *Closing)
	// Receive takes every later message and returns how the connection ends, nil when it does not. ctx does not end with the connection. Receive releases
	// the message.
	Receive(ctx, peer context.Context, m Message) *Closing
	// Tick queues what the peer gets periodically after its handshake.
	Tick(now time.Time)
	// DeltaEvents makes the events of new text of a run at the moment of writing, and passes each to send until one fails.
	DeltaEvents(d *Delta, send func(event string, payload []byte) bool)
	// Closed is called once, when the connection neither reads nor writes any more.
	Closed(ctx context.Context, end *Closing)
}

// Message is one message after the handshake, with the bytes that it holds until it is answered.
type Message struct {
	Data []byte
	Held
}

// Held are bytes of memory that a message holds.
type Held interface {
	// Keep gives back all but n bytes.
	Keep(n int64)
	// Release gives everything back. Calling it again does nothing.
	Release()
}

// Conn is one WebSocket connection. Its methods, those of [Buffer] included, are safe for concurrent use.
type Conn struct {
	*Buffer

	up     *Upgrader
	ws     *websocket.Conn
	raw    *netConn
	in     *bufio.Reader // of ws; the reader alone uses it
	client Client
	since  time.Time

	authenticated atomic.Bool
	authedAt      time.Time   // written before authenticated, read after it
	peerClosed    bool        // of the reader: the close frame of the peer was read
	reading       atomic.Bool // a message has begun and has its own deadline
	waiting       waiting
	pingedAt      atomic.Int64 // oldest ping without a pong, in nanoseconds since the upgrade; 0 = none
	writer        writer
}

// Upgrader makes connections of upgrade requests. They share its buffers, so that an idle connection has none. It is safe for concurrent use.
type Upgrader struct {
	cfg    Config
	sums   *sums
	frames sync.Pool // *[]byte, in which frames are put together
	ws     websocket.Upgrader
}

// NewUpgrader makes an upgrader. It checks no origin: its user has done so.
func NewUpgrader(cfg Config) *Upgrader {
	return &Upgrader{cfg: cfg, sums: newSums(cfg.MaxBuffered), ws: websocket.Upgrader{
		WriteBufferPool: new(sync.Pool), WriteBufferSize: 4096,
		CheckOrigin: func(*http.Request) bool { return true },
	}}
}

// Upgrade answers an upgrade request. After an error the request is answered and its connection closed. What is queued on the connection waits for
// [Conn.Serve].
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

// Since is when the connection was upgraded.
func (c *Conn) Since() time.Time { return c.since }

// Serve begins to read and to write and returns at once; Client.Closed is the end. The handshake has a goroutine of its own, because it needs a larger
// stack than a connection that waits, see [Conn.read].
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

// closeAfter closes the connection after end, which counts unless another ending was decided before.
func (c *Conn) closeAfter(ctx context.Context, end *Closing) {
	c.End(end)
	c.writer.done.Wait()
	c.up.sums.leave(c.Buffer)
	c.linger()
	_ = c.ws.Close()
	c.client.Closed(ctx, c.decided())
}

// CountFor counts the responses that wait for a principal from now on. It is called in Client.Handshake, once.
func (c *Conn) CountFor(principal string) { c.up.sums.join(principal, c.Buffer) }

// End closes the connection after everything queued was written, for which there are a few seconds. The first ending wins.
func (c *Conn) End(end *Closing) {
	if c.finish(end) {
		c.raw.LimitWrites(time.Now().Add(2 * c.up.cfg.Deadlines.Close))
	}
}

// Cut closes the TCP connection at once.
func (c *Conn) Cut() { _ = c.raw.Close() }

// slow ends a connection whose peer does not read. What is queued is dropped; the peer has a second to take the close frame.
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

// linger reads and drops what the peer still sends after our close frame, for a moment: closing a TCP connection with unread bytes resets it, and a reset
// may overtake the close frame.
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
