package socket

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"time"
	"unicode/utf8"

	"github.com/gorilla/websocket"
)

var (
	errBinary  = errors.New("binary message")
	errNotUTF8 = errors.New("invalid UTF-8")
)

// handshake reads the first message and passes it on. It returns how the connection ends, or nil when the peer is authenticated.
func (c *Conn) handshake(ctx context.Context) *Closing {
	c.readBy(c.since.Add(c.up.cfg.Deadlines.Handshake))
	data, err := c.next(c.up.cfg.MaxHandshake, io.ReadAll)
	switch {
	case err == nil:
	case isTimeout(err) && c.decided() == nil:
		return &Closing{Code: websocket.CloseNormalClosure, Text: "connect timeout", Reason: ClosedHandshake}
	default:
		return readEnd(err, c.reading.Load())
	}
	if end := c.client.Handshake(ctx, data); end != nil {
		return end
	}
	c.authedAt = time.Now()
	c.authenticated.Store(true)
	c.readBy(time.Time{})
	c.wake() // its clock has ticks now
	return nil
}

// read passes messages on until the connection ends, and closes it. peer is nil until the first message. While it waits for a message, see
// [Conn.await], its stack is small. Messages grow the stack permanently, so another goroutine continues once the connection is idle.
func (c *Conn) read(ctx, peer context.Context) {
	for c.wait() {
		if c.await() {
			go c.read(ctx, peer)
			return
		}
		if peer == nil {
			peer = c.untilGone(ctx) //nolint:fatcontext // once
		}
		if end := c.receive(ctx, peer); end != nil && c.decided() == nil {
			c.closeAfter(ctx, end)
			return
		}
	}
	c.awaitPeer()
	c.closeAfter(ctx, &Closing{Code: websocket.CloseNormalClosure, Reason: ClosedByPeer}) // an ending that was decided before takes precedence
}

// untilGone returns the context that ends with the connection. A connection that sends nothing after its handshake never creates it.
func (c *Conn) untilGone(ctx context.Context) context.Context {
	peer, cancel := context.WithCancelCause(ctx)
	c.whenEnded(func() { cancel(errPeerGone) }) // wakes a reader that waits for bytes
	return peer
}

// receive reads one message and passes it on.
func (c *Conn) receive(ctx, peer context.Context) *Closing {
	m, end := c.message(peer)
	if end != nil {
		return end
	}
	return c.client.Receive(ctx, peer, m)
}

// message reads one message after the handshake, which holds its bytes. It reads more than the bytes of a short message only when the bytes
// of the longest message are available.
func (c *Conn) message(peer context.Context) (m Message, end *Closing) {
	short, limit := c.up.cfg.ShortMessage, c.up.cfg.MaxMessage
	data, err := c.next(limit, func(r io.Reader) ([]byte, error) {
		begin, err := io.ReadAll(io.LimitReader(r, short))
		if err != nil {
			return nil, err
		}
		if n := int64(len(begin)); n < short {
			end = c.hold(peer, &m, n)
			return begin, nil
		}
		if end = c.hold(peer, &m, limit); end != nil {
			return nil, end
		}
		all, err := io.ReadAll(io.MultiReader(bytes.NewReader(begin), r))
		m.Keep(int64(len(all)))
		return all, err
	})
	if end == nil && err != nil {
		end = readEnd(err, c.reading.Load())
	}
	if end != nil && m.Held != nil {
		m.Release()
	}
	m.Data = data
	return m, end
}

// hold waits for n bytes; the deadline of the message restarts after a wait.
func (c *Conn) hold(peer context.Context, m *Message, n int64) (end *Closing) {
	began := time.Now()
	m.Held, end = c.client.Hold(peer, n)
	if now := time.Now(); now.Sub(began) > time.Second/10 {
		c.readBy(now.Add(c.up.cfg.Deadlines.Message))
	}
	return end
}

// readBy sets the read deadline; any goroutine may call it. It fails only on a closed connection, which the next read reports.
func (c *Conn) readBy(t time.Time) {
	_ = c.raw.SetReadDeadline(t) //nolint:errcheck // see above
}

// awaitPeer continues to read after an ending was decided elsewhere, so that the close frame of the peer is read.
func (c *Conn) awaitPeer() {
	c.readBy(time.Now().Add(2 * c.up.cfg.Deadlines.Close))
	for {
		if _, _, err := c.ws.NextReader(); err != nil {
			return
		}
	}
}

// next reads one complete message of at most limit bytes with readAll. After the handshake its deadline starts with its first frame.
func (c *Conn) next(limit int64, readAll func(io.Reader) ([]byte, error)) ([]byte, error) {
	kind, r, err := c.ws.NextReader()
	if err != nil {
		return nil, err //nolint:wrapcheck // readEnd distinguishes them
	}
	if kind != websocket.TextMessage {
		return nil, errBinary
	}
	authenticated := c.authenticated.Load()
	if authenticated {
		c.reading.Store(true)
		c.readBy(time.Now().Add(c.up.cfg.Deadlines.Message))
	}
	data, err := readAll(io.LimitReader(r, limit+1))
	if err != nil {
		return nil, err
	}
	if int64(len(data)) > limit {
		return nil, websocket.ErrReadLimit
	}
	if authenticated {
		c.readBy(time.Time{})
		c.reading.Store(false)
	}
	if !utf8.Valid(data) {
		return nil, errNotUTF8
	}
	return data, nil
}

// readEnd converts the error of a read to the end of the connection; inMessage: a message had started. For a violation of the framing, the
// library has already sent the close frame.
func readEnd(err error, inMessage bool) *Closing {
	var closed *websocket.CloseError
	var timeout net.Error
	switch {
	case errors.Is(err, errBinary):
		return &Closing{Code: websocket.CloseUnsupportedData, Text: "binary messages are not supported", Reason: ClosedProtocol}
	case errors.Is(err, errTooManyFrames):
		return &Closing{Code: websocket.ClosePolicyViolation, Text: err.Error(), Reason: ClosedProtocol}
	case errors.Is(err, errNotUTF8):
		return &Closing{Code: websocket.CloseInvalidFramePayloadData, Text: "message is not valid UTF-8", Reason: ClosedProtocol}
	case errors.Is(err, websocket.ErrReadLimit):
		return &Closing{Code: websocket.CloseMessageTooBig, Text: "message too large", Reason: ClosedProtocol}
	case errors.As(err, &closed) && closed.Code != websocket.CloseAbnormalClosure:
		return &Closing{Code: websocket.CloseNormalClosure, Reason: ClosedByPeer}
	case errors.As(err, &timeout) && timeout.Timeout() && inMessage:
		return &Closing{Code: websocket.ClosePolicyViolation, Text: "message was not completed in time", Reason: ClosedSilent}
	case errors.As(err, &timeout), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.As(err, &closed):
		return &Closing{Reason: ClosedByPeer}
	default:
		return &Closing{Code: websocket.CloseProtocolError, Text: "protocol violation", Reason: ClosedProtocol}
	}
}
