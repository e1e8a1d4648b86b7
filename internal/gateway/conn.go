package gateway

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/gorilla/websocket"
	"golang.org/x/time/rate"

	"laneway/internal/gateway/auth"
)

// conn is one WebSocket connection: one goroutine reads, one writes, one per request under way.
type conn struct {
	srv   *Server
	ws    *websocket.Conn
	raw   *netConn
	id    string
	addr  netip.Addr
	buf   *sendBuffer
	log   *slog.Logger
	since time.Time
	who   atomic.Pointer[identity] // nil before hello-ok

	// Of the reader alone.
	calls      *rate.Limiter // nil = unlimited
	faults     []time.Time   // malformed frames of the last minute
	peerClosed bool          // its close frame was seen
	reading    atomic.Bool   // a message has begun and has its own deadline
	pingedAt   atomic.Int64  // oldest ping without a pong, in nanoseconds of the monotonic clock since; 0 = none
	authedAt   time.Time     // written before who, read after it
	seq        uint64        // of the writer alone
	requests   sync.WaitGroup
	mu         sync.Mutex
	inFlight   map[string]bool // by id; true = it has one of the places for stopping and looking
	controls   int
	following  following
}

// identity is what a connection is after hello-ok.
type identity struct {
	cred     auth.Credential
	scopes   []string
	level    int
	extended bool
	tools    bool
	probe    bool // speaks an old version and may look at health only
}

func (id *identity) principal() string { return id.cred.Name }

// visible is the owner that a query is restricted to; "" = none.
func (id *identity) visible() string {
	if id.cred.Own() {
		return id.cred.Name
	}
	return ""
}

var (
	errPeerGone = errors.New("the peer is gone")
	errBinary   = errors.New("binary message")
	errNotUTF8  = errors.New("invalid UTF-8")
)

func (s *Server) newConn(ws *websocket.Conn, raw *netConn, addr netip.Addr) *conn {
	c := &conn{srv: s, ws: ws, raw: raw, id: s.nextConnID(), addr: addr, inFlight: map[string]bool{}, since: time.Now()}
	c.log = s.log.With(slog.String("conn_id", c.id))
	c.buf = newSendBuffer(s.cfg.MaxBuffered, s.cfg.Deadlines.Slow, c.slow)
	if n := s.cfg.RequestsPerSecond; n > 0 {
		c.calls = rate.NewLimiter(rate.Limit(n), n)
	}
	return c
}

// run serves the connection until it is over. It starts the writer and waits for it; requests that still work go on, tracked by
// the server.
func (c *conn) run(ctx context.Context) {
	peer, cancel := context.WithCancelCause(ctx)
	c.ws.SetPongHandler(func(string) error { c.pingedAt.Store(0); return nil })
	c.ws.SetCloseHandler(func(int, string) error { c.peerClosed = true; return nil })
	written := make(chan struct{})
	go func() {
		defer close(written)
		c.write()
	}()
	c.challenge()
	end := c.read(ctx, peer)
	c.end(end.code, end.text, end.reason)
	cancel(errPeerGone)
	<-written
	c.linger()
	_ = c.ws.Close()
	c.srv.hub.remove(c)
	c.requests.Wait()
	c.srv.observer.ConnClosed(c.buf.reason())
	c.log.DebugContext(ctx, "connection closed", slog.String("reason", string(c.buf.reason())), slog.Any("err", end))
}

// Error makes the end of a connection an error for logs.
func (e *closing) Error() string { return e.text }

// read takes messages in until the connection ends, and says how. Requests get ctx, which outlives the connection; what is done
// for this peer alone gets peer.
func (c *conn) read(ctx, peer context.Context) *closing {
	if end := c.handshake(ctx); end != nil {
		return end
	}
	c.readBy(time.Time{})
	for c.buf.waitRoom() {
		data, err := c.next(c.srv.cfg.MaxPayload)
		if err != nil {
			return c.readEnd(err)
		}
		if end := c.receive(ctx, peer, data); end != nil {
			return end
		}
	}
	c.awaitPeer()
	return &closing{code: websocket.CloseNormalClosure, reason: ClosedByPeer}
}

// readBy sets the deadline of reads; any goroutine may. It fails on a closed connection only, of which the next read tells.
func (c *conn) readBy(t time.Time) {
	_ = c.raw.SetReadDeadline(t) //nolint:errcheck // see above
}

// awaitPeer reads on after an ending was decided elsewhere, so that the peer's close frame is seen.
func (c *conn) awaitPeer() {
	c.readBy(time.Now().Add(2 * c.srv.cfg.Deadlines.Close))
	for {
		if _, _, err := c.ws.NextReader(); err != nil {
			return
		}
	}
}

// next reads one whole message of at most limit bytes. Its deadline begins with its first frame.
func (c *conn) next(limit int64) ([]byte, error) {
	kind, r, err := c.ws.NextReader()
	if err != nil {
		return nil, err
	}
	if kind != websocket.TextMessage {
		return nil, errBinary
	}
	authed := c.who.Load() != nil
	if authed {
		c.reading.Store(true)
		c.readBy(time.Now().Add(c.srv.cfg.Deadlines.Message))
	}
	data, err := io.ReadAll(io.LimitReader(r, limit+1))
	if err != nil {
		return nil, err
	}
	if int64(len(data)) > limit {
		return nil, websocket.ErrReadLimit
	}
	if authed {
		c.readBy(time.Time{})
		c.reading.Store(false)
	}
	if !utf8.Valid(data) {
		return nil, errNotUTF8
	}
	return data, nil
}

// readEnd turns the error of a read into the end of the connection. For a violation of the framing the library has already sent
// the close frame.
func (c *conn) readEnd(err error) *closing {
	var closed *websocket.CloseError
	var timeout net.Error
	switch {
	case errors.Is(err, errBinary):
		return &closing{websocket.CloseUnsupportedData, "binary messages are not supported", ClosedProtocol}
	case errors.Is(err, errNotUTF8):
		return &closing{websocket.CloseInvalidFramePayloadData, "message is not valid UTF-8", ClosedProtocol}
	case errors.Is(err, websocket.ErrReadLimit):
		return &closing{websocket.CloseMessageTooBig, "message too large", ClosedProtocol}
	case errors.As(err, &closed) && closed.Code != websocket.CloseAbnormalClosure:
		return &closing{websocket.CloseNormalClosure, "", ClosedByPeer}
	case errors.As(err, &timeout) && timeout.Timeout() && c.reading.Load():
		return &closing{websocket.ClosePolicyViolation, "message was not completed in time", ClosedSilent}
	case errors.As(err, &timeout), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.As(err, &closed):
		return &closing{0, "", ClosedByPeer}
	default:
		return &closing{websocket.CloseProtocolError, "protocol violation", ClosedProtocol}
	}
}

// slow ends a connection whose reader does not keep up. What waits for it is dropped; the peer has a second to take the close frame.
func (c *conn) slow() {
	c.abandon(&closing{websocket.CloseTryAgainLater, "slow consumer", ClosedSlow})
}

func (c *conn) abandon(end *closing) {
	if !c.buf.drop(end) {
		return
	}
	at := time.Now().Add(c.srv.cfg.Deadlines.Close)
	c.raw.reset()
	c.raw.limitWrites(at)
	c.readBy(at)
}

// end closes the connection after everything queued was written, for which there are a few seconds.
func (c *conn) end(code int, text string, reason CloseReason) {
	if c.buf.finish(&closing{code, text, reason}) {
		c.raw.limitWrites(time.Now().Add(2 * c.srv.cfg.Deadlines.Close))
	}
}

// linger reads and forgets what the peer still sends after our close frame, for a moment: closing a TCP connection with unread
// bytes resets it, and a reset may overtake the close frame.
func (c *conn) linger() {
	if r := c.buf.reason(); c.peerClosed || r == ClosedSlow || r == ClosedByPeer {
		return
	}
	c.readBy(time.Now().Add(c.srv.cfg.Deadlines.Close))
	_, _ = io.CopyBuffer(io.Discard, struct{ io.Reader }{c.raw}, make([]byte, 4096)) //nolint:errcheck // it ends with an error, always
}
