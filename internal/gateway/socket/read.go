package socket

import (
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

// handshake reads the first message and passes it on. It returns how the connection ends, nil when the peer is authenticated.
func (c *Conn) handshake(ctx context.Context) *Closing {
	c.readBy(c.since.Add(c.up.cfg.Deadlines.Handshake))
	data, err := c.next(c.up.cfg.MaxHandshake)
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
	c.wake() // its clock has a tick now
	return nil
}

// read passes messages on until the connection ends, and returns how.
func (c *Conn) read(ctx, peer context.Context) *Closing {
	for c.wait() {
		data, err := c.next(c.up.cfg.MaxMessage)
		if err != nil {
			return readEnd(err, c.reading.Load())
		}
		if end := c.client.Receive(ctx, peer, data); end != nil {
			return end
		}
	}
	c.awaitPeer()
	return &Closing{Code: websocket.CloseNormalClosure, Reason: ClosedByPeer}
}

// readBy sets the deadline of reads; any goroutine may. It fails on a closed connection only, which the next read reports.
func (c *Conn) readBy(t time.Time) {
	_ = c.raw.SetReadDeadline(t) //nolint:errcheck // see above
}

// awaitPeer reads on after an ending was decided elsewhere, so that the close frame of the peer is read.
func (c *Conn) awaitPeer() {
	c.readBy(time.Now().Add(2 * c.up.cfg.Deadlines.Close))
	for {
		if _, _, err := c.ws.NextReader(); err != nil {
			return
		}
	}
}

// next reads one whole message of at most limit bytes. After the handshake its deadline begins with its first frame.
func (c *Conn) next(limit int64) ([]byte, error) {
	kind, r, err := c.ws.NextReader()
	if err != nil {
		return nil, err //nolint:wrapcheck // readEnd tells them apart
	}
	if kind != websocket.TextMessage {
		return nil, errBinary
	}
	authenticated := c.authenticated.Load()
	if authenticated {
		c.reading.Store(true)
		c.readBy(time.Now().Add(c.up.cfg.Deadlines.Message))
	}
	data, err := io.ReadAll(io.LimitReader(r, limit+1))
	if err != nil {
		return nil, err //nolint:wrapcheck // as above
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

// readEnd turns the error of a read into the end of the connection; inMessage: a message had begun. For a violation of the framing the library has already
// sent the close frame.
func readEnd(err error, inMessage bool) *Closing {
	var closed *websocket.CloseError
	var timeout net.Error
	switch {
	case errors.Is(err, errBinary):
		return &Closing{Code: websocket.CloseUnsupportedData, Text: "binary messages are not supported", Reason: ClosedProtocol}
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
