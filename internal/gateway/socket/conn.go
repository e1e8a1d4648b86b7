// Package socket has the WebSocket connections of the gateway: accepted connections within limits,
// the upgrade, reading and writing, the send buffer, and the hub that decides which connection
// receives which event.
//
// # Ideas
//
// [ConnLimiter] counts connections before anything is read from them, in total and, while they are
// unauthenticated, by address. It sets a deadline for each write of a plain HTTP answer, so that a
// client that does not read holds no resources.
//
// [Conn] owns one connection from the upgrade to the close frame: deadlines, pings and their pongs,
// close codes. The protocol on it is a [Client], which handles messages, and puts frames and events
// into the connection's [Buffer].
//
// [Buffer] separates producers from the writer of a connection. A producer never blocks: it appends
// and continues. The buffer merges unsent text of a run, replaces unsent states by newer ones, and
// keeps everything else in order. It closes the connection of a client that reads too slowly, and
// never drops anything else. Events are numbered when they are written, so that merging leaves no
// gap.
//
// The waiting responses of one principal, over all its connections, are limited as well, and those
// of all principals. Beyond the limit, the connection with most of them is closed. The bytes of
// events are shared by all connections that receive them, and are not counted.
//
// A gate holds back the events of a run until the response to the request that started it is
// queued; see [Buffer.Gate].
//
// [Hub] has the places of sockets, the connections of each principal, and the subscriptions. It
// uses connections only as map keys.
//
// # Locks and goroutines
//
// Each type has one lock, held only for memory operations; no callback runs under it, except that
// of [Hub.Open], which queues a frame. A connection has one goroutine that reads. While it only
// waits, its stack has 2 KiB: it waits without a frame of the library on the stack, and handles
// pings and pongs itself. The handshake runs before it on another goroutine, because it grows the
// stack to four times that size. Messages do so as well: at a tick, a reader that has received a
// message and waits again starts another reader and ends. The writer is a goroutine only while
// something is queued or due: an idle connection has a timer instead. [Client.Closed] is called
// when all of them have ended. A buffer that is over its limit has one timer, which stops with the
// buffer.
//
// # Limits and crash points
//
// Memory of a buffer is limited to twice its limit plus one item, the responses of one principal to
// four limits, those of all to sixteen, and messages by [Config]. An idle connection needs about
// 5.5 KB of heap and stack. Nothing here is durable: a client reads state again after it
// reconnects.
//
// # What it does not do
//
// It has no credentials, no methods and no JSON beyond the envelope of an event. It checks no
// origin and no host.
//
// # Shutdown
//
// [Conn.End] lets queued frames be written for a few seconds and then sends a close frame;
// [Conn.Cut] closes at once. [Hub.Close] refuses new connections, and [Hub.Wait] waits for those
// that exist.
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
	// MaxHandshake and MaxMessage are the maximum sizes of messages before and after the handshake,
	// in bytes. ShortMessage bytes of a message are read before [Client.Hold] is called for more.
	MaxHandshake, MaxMessage, ShortMessage int64
	// MaxBuffered is the limit of each send buffer in bytes, see [Buffer]. The waiting responses of
	// one principal have four times this limit, those of all principals sixteen times.
	MaxBuffered int
	// FramesPerSecond limits the control frames and the empty continuation frames of one connection
	// in a second; 0 = no limit.
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

// Client is the protocol on a connection. Handshake, Receive and Closed run on the goroutine that
// reads, Tick and DeltaEvents on the one that writes.
type Client interface {
	// Handshake handles the first message. It returns how the connection ends, or nil when the peer
	// is authenticated.
	Handshake(ctx context.Context, first []byte) *Closing
	// Hold waits until n bytes of a message may be in memory. It is called before more than
	// Config.ShortMessage bytes of a message are read, with the maximum size of the message. It
	// returns how the connection ends, or nil. peer ends with the connection.
	Hold(peer context.Context, n int64) (Held, *Closing)
	// Receive handles every later message and returns how the connection ends, or nil. ctx does not
	// end with the connection. Receive releases the message.
	Receive(ctx, peer context.Context, m Message) *Closing
	// Tick queues the periodic frames after the handshake.
	Tick(now time.Time)
	// DeltaEvents builds the events for new text of a run at the time of writing, and passes each
	// to send until one fails.
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

// Conn is one WebSocket connection. Its methods, those of [Buffer] included, are safe for
// concurrent use.
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

// Upgrader creates connections from upgrade requests. They share its buffers, so that an idle
// connection has none. It is safe for concurrent use.
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

// Upgrade answers an upgrade request. After an error, the request is answered and its connection
// closed. Frames that are queued on the connection wait for [Conn.Serve].
func (u *Upgrader) Upgrade(w http.ResponseWriter, r *http.Request) (*Conn, error) {
	h := &hijacker{ResponseWriter: w, frames: u.cfg.FramesPerSecond}
	ws, err := u.ws.Upgrade(h, r, nil)
	if err != nil {
		return nil, err // it names itself
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

// Serve starts to read and write and returns at once; Client.Closed is called at the end. The
// handshake has its own goroutine, because it needs a larger stack than a waiting connection, see
// [Conn.read].
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

// CountFor counts the waiting responses for a principal from now on. Call it once, in
// Client.Handshake.
func (c *Conn) CountFor(principal string) { c.up.sums.join(principal, c.Buffer) }

// End closes the connection after all queued frames were written, within a few seconds. Only the
// first ending counts.
func (c *Conn) End(end *Closing) {
	if c.finish(end) {
		c.raw.LimitWrites(time.Now().Add(2 * c.up.cfg.Deadlines.Close))
	}
}

// Cut closes the TCP connection at once.
func (c *Conn) Cut() { _ = c.raw.Close() }

// slow ends a connection whose peer does not read. Queued frames are dropped; the peer has a second
// to read the close frame.
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

// linger briefly reads and drops what the peer sends after the close frame of this side. Closing a
// TCP connection with unread bytes resets it, and a reset may overtake the close frame.
func (c *Conn) linger() {
	if r := c.decided().Reason; c.peerClosed || r == ClosedSlow || r == ClosedByPeer || r == ClosedUnauthenticated {
		return
	}
	c.readBy(time.Now().Add(c.up.cfg.Deadlines.Close))
	_, _ = io.CopyBuffer(io.Discard, struct{ io.Reader }{c.raw}, make([]byte, 4096)) // it ends with an error, always
}

func isTimeout(err error) bool {
	var t net.Error
	return errors.As(err, &t) && t.Timeout()
}

// clock handles the timed work of the writer: ticks, pings, and the check of their pongs. Only the
// writer uses it.
type clock struct {
	c          *Conn
	timer      *time.Timer
	ping, tick time.Time
}

// turn does what is due; false = the connection has ended.
func (k *clock) turn(now time.Time) bool {
	k.beat(now)
	if now.Before(k.ping) {
		return k.answered(now)
	}
	k.ping = now.Add(k.c.up.cfg.Deadlines.Ping)
	k.c.pingedAt.CompareAndSwap(0, max(1, int64(now.Sub(k.c.since))))
	if err := k.c.ws.WriteControl(websocket.PingMessage, nil, now.Add(k.c.up.cfg.Deadlines.Write)); err != nil {
		k.c.writeFailed(err)
		return false
	}
	return k.answered(now)
}

// beat queues the tick of an authenticated client.
func (k *clock) beat(now time.Time) {
	if !k.c.authenticated.Load() {
		return
	}
	if k.tick.IsZero() {
		k.tick = k.c.authedAt.Add(k.c.up.cfg.TickEvery)
	}
	if now.Before(k.tick) {
		return
	}
	k.tick = k.tick.Add(k.c.up.cfg.TickEvery)
	k.c.client.Tick(now)
	k.c.renewReader(now)
}

// answered checks for the pong. While a message is being read, the message's own deadline applies:
// a pong cannot arrive in the middle of it.
func (k *clock) answered(now time.Time) bool {
	pinged := k.c.pingedAt.Load()
	if pinged == 0 || k.c.reading.Load() || now.Sub(k.c.since)-time.Duration(pinged) < k.c.up.cfg.Deadlines.Pong {
		return true
	}
	k.c.abandon(&Closing{Reason: ClosedSilent})
	k.c.Cut()
	return false
}

// next returns when the next timed work is due; due is the time of the next item, zero = no item
// waits.
func (k *clock) next(due time.Time) time.Time {
	next := k.ping
	if !k.tick.IsZero() && k.tick.Before(next) {
		next = k.tick
	}
	if !due.IsZero() && due.Before(next) {
		next = due
	}
	if p := k.c.pingedAt.Load(); p != 0 && !k.c.reading.Load() {
		if pong := k.c.since.Add(time.Duration(p) + k.c.up.cfg.Deadlines.Pong); pong.Before(next) {
			next = pong
		}
	}
	return next
}

// Closing is the end of a connection: the close frame and why.
type Closing struct { //nolint:errname // the end of a connection; few readers take it for an error
	Code   int
	Text   string
	Reason CloseReason
}

// Error makes the end of a connection usable as an error in logs.
func (e *Closing) Error() string { return e.Text }

// CloseReason is why a connection ended. The set is closed, and is also the metric label.
type CloseReason string

// The reasons.
const (
	ClosedByPeer    CloseReason = "peer"     // the client closed or disappeared
	ClosedHandshake CloseReason = "refused"  // no hello-ok
	ClosedProtocol  CloseReason = "protocol" // it violated the framing
	ClosedSlow      CloseReason = "slow"     // it did not read
	ClosedSilent    CloseReason = "silent"   // no pong, or a message that never ended
	ClosedRevoked   CloseReason = "revoked"  // its credential is no longer valid
	ClosedStopping  CloseReason = "stopping" // the gateway stops
	ClosedInternal  CloseReason = "internal" // a defect

	ClosedUnauthenticated CloseReason = "unauthenticated" // closed for a newer connection before it had authenticated
)

// CloseReasons returns all reasons.
func CloseReasons() []CloseReason {
	return []CloseReason{ClosedByPeer, ClosedHandshake, ClosedProtocol, ClosedSlow, ClosedSilent, ClosedRevoked, ClosedStopping, ClosedInternal, ClosedUnauthenticated}
}
