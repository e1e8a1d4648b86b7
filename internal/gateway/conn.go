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
	"laneway/internal/gateway/socket"
)

// Conn is one WebSocket connection: one goroutine reads, one writes, one per request under way.
type conn struct {
	srv   *Server
	ws    *websocket.Conn
	raw   *socket.NetConn
	id    string
	addr  netip.Addr
	buf   *socket.Buffer
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

func (s *Server) newConn(ws *websocket.Conn, raw *socket.NetConn, addr netip.Addr) *conn {
	c := &conn{srv: s, ws: ws, raw: raw, id: s.nextConnID(), addr: addr, inFlight: map[string]bool{}, since: time.Now()}
	c.log = s.log.With(slog.String("conn_id", c.id))
	c.buf = socket.NewBuffer(s.cfg.MaxBuffered, s.cfg.Deadlines.Slow, c.slow)
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
	c.end(end.Code, end.Text, end.Reason)
	cancel(errPeerGone)
	<-written
	c.linger()
	_ = c.ws.Close()
	c.srv.hub.remove(c)
	c.requests.Wait()
	c.srv.observer.ConnClosed(c.buf.Reason())
	c.log.DebugContext(ctx, "connection closed", slog.String("reason", string(c.buf.Reason())), slog.Any("err", end))
}

// read takes messages in until the connection ends, and says how. Requests get ctx, which outlives the connection; what is done
// for this peer alone gets peer.
func (c *conn) read(ctx, peer context.Context) *socket.Closing {
	if end := c.handshake(ctx); end != nil {
		return end
	}
	c.readBy(time.Time{})
	for c.buf.Wait() {
		data, err := c.next(c.srv.cfg.MaxPayload)
		if err != nil {
			return c.readEnd(err)
		}
		if end := c.receive(ctx, peer, data); end != nil {
			return end
		}
	}
	c.awaitPeer()
	return &socket.Closing{Code: websocket.CloseNormalClosure, Reason: socket.ClosedByPeer}
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
func (c *conn) readEnd(err error) *socket.Closing {
	var closed *websocket.CloseError
	var timeout net.Error
	switch {
	case errors.Is(err, errBinary):
		return &socket.Closing{Code: websocket.CloseUnsupportedData, Text: "binary messages are not supported", Reason: socket.ClosedProtocol}
	case errors.Is(err, errNotUTF8):
		return &socket.Closing{Code: websocket.CloseInvalidFramePayloadData, Text: "message is not valid UTF-8", Reason: socket.ClosedProtocol}
	case errors.Is(err, websocket.ErrReadLimit):
		return &socket.Closing{Code: websocket.CloseMessageTooBig, Text: "message too large", Reason: socket.ClosedProtocol}
	case errors.As(err, &closed) && closed.Code != websocket.CloseAbnormalClosure:
		return &socket.Closing{Code: websocket.CloseNormalClosure, Text: "", Reason: socket.ClosedByPeer}
	case errors.As(err, &timeout) && timeout.Timeout() && c.reading.Load():
		return &socket.Closing{Code: websocket.ClosePolicyViolation, Text: "message was not completed in time", Reason: socket.ClosedSilent}
	case errors.As(err, &timeout), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.As(err, &closed):
		return &socket.Closing{Code: 0, Text: "", Reason: socket.ClosedByPeer}
	default:
		return &socket.Closing{Code: websocket.CloseProtocolError, Text: "protocol violation", Reason: socket.ClosedProtocol}
	}
}

// slow ends a connection whose reader does not keep up. What waits for it is dropped; the peer has a second to take the close frame.
func (c *conn) slow() {
	c.abandon(&socket.Closing{Code: websocket.CloseTryAgainLater, Text: "slow consumer", Reason: socket.ClosedSlow})
}

func (c *conn) abandon(end *socket.Closing) {
	if !c.buf.Drop(end) {
		return
	}
	at := time.Now().Add(c.srv.cfg.Deadlines.Close)
	c.raw.Reset()
	c.raw.LimitWrites(at)
	c.readBy(at)
}

// end closes the connection after everything queued was written, for which there are a few seconds.
func (c *conn) end(code int, text string, reason socket.CloseReason) {
	if c.buf.Finish(&socket.Closing{Code: code, Text: text, Reason: reason}) {
		c.raw.LimitWrites(time.Now().Add(2 * c.srv.cfg.Deadlines.Close))
	}
}

// linger reads and forgets what the peer still sends after our close frame, for a moment: closing a TCP connection with unread
// bytes resets it, and a reset may overtake the close frame.
func (c *conn) linger() {
	if r := c.buf.Reason(); c.peerClosed || r == socket.ClosedSlow || r == socket.ClosedByPeer {
		return
	}
	c.readBy(time.Now().Add(c.srv.cfg.Deadlines.Close))
	_, _ = io.CopyBuffer(io.Discard, struct{ io.Reader }{c.raw}, make([]byte, 4096)) //nolint:errcheck // it ends with an error, always
}
