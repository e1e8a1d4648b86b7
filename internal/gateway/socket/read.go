package socket

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/gorilla/websocket"
)

var (
	errBinary  = errors.New("binary message")
	errNotUTF8 = errors.New("invalid UTF-8")
)

// handshake reads the first message and passes it on. It returns how the connection ends, or nil
// when the peer is authenticated.
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

// read passes messages on until the connection ends, and closes it. peer is nil until the first
// message. While it waits for a message, see [Conn.await], its stack is small. Messages grow the
// stack permanently, so another goroutine continues once the connection is idle.
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

// untilGone returns the context that ends with the connection. A connection that sends nothing
// after its handshake never creates it.
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

// message reads one message after the handshake, which holds its bytes. It reads more than the
// bytes of a short message only when the bytes of the longest message are available.
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

// readBy sets the read deadline; any goroutine may call it. It fails only on a closed connection,
// which the next read reports.
func (c *Conn) readBy(t time.Time) {
	_ = c.raw.SetReadDeadline(t) // see above
}

// awaitPeer continues to read after an ending was decided elsewhere, so that the close frame of the
// peer is read.
func (c *Conn) awaitPeer() {
	c.readBy(time.Now().Add(2 * c.up.cfg.Deadlines.Close))
	for {
		if _, _, err := c.ws.NextReader(); err != nil {
			return
		}
	}
}

// next reads one complete message of at most limit bytes with readAll. After the handshake its
// deadline starts with its first frame.
func (c *Conn) next(limit int64, readAll func(io.Reader) ([]byte, error)) ([]byte, error) {
	kind, r, err := c.ws.NextReader()
	if err != nil {
		return nil, err // readEnd distinguishes them
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

// readEnd converts the error of a read to the end of the connection; inMessage: a message had
// started. For a violation of the framing, the library has already sent the close frame.
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

// readBuffer is the size of the read buffer of a connection in bytes. A message that fits is read
// in one call; the library accepts no buffer of 256 bytes or less.
const readBuffer = 512

// Parts of a control frame of a client, with the terms of RFC 6455: it is masked, not fragmented,
// and has at most 125 bytes.
const (
	frameFinal   = 0x80
	frameMasked  = 0x80
	frameMask    = 4 // bytes of the mask, after the two bytes of the header
	longestFrame = 125
)

// waiting is the shared state of the reader and the clock about a waiting reader. A stack that has
// grown does not shrink to the size of a new goroutine's, so a reader with a grown stack is
// interrupted and replaced.
type waiting struct {
	grown bool // used only by the reader: it has done more than wait

	mu          sync.Mutex
	now         bool // it waits for the first byte of a message, with a grown stack
	interrupted bool // the read deadline was set to the past, to end the waiting
}

// await waits for a message, so that no frame of the library is on the stack meanwhile, and answers
// the control frames that precede it. grown reports that another goroutine must continue the
// waiting. An error is returned again when the message is read.
func (c *Conn) await() (grown bool) {
	for {
		c.waiting.begin()
		_, err := c.in.Peek(1)
		if c.waiting.end() {
			c.readBy(time.Time{}) // it may be the deadline of an ending; read checks for one before it waits again
			c.waiting.grown = false
			return true
		}
		if err != nil || !c.control() {
			c.waiting.grown = true
			return false
		}
	}
}

func (w *waiting) begin() {
	if !w.grown {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.now = true
}

// end reports whether the waiting was interrupted.
func (w *waiting) end() bool {
	if !w.grown {
		return false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	interrupted := w.interrupted
	w.now, w.interrupted = false, false
	return interrupted
}

// renewReader interrupts a reader that waits with a grown stack.
func (c *Conn) renewReader(now time.Time) {
	w := &c.waiting
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.now {
		w.now, w.interrupted = false, true
		c.readBy(now)
	}
}

// control handles a ping or a pong that is completely in the read buffer, as the library would.
// false = the library has to read it.
func (c *Conn) control() bool {
	b, _ := c.in.Peek(c.in.Buffered()) // there are so many
	if len(b) < 2 || b[1]&frameMasked == 0 {
		return false
	}
	size, kind := int(b[1]&^frameMasked), int(b[0]&^frameFinal)
	whole := 2 + frameMask + size
	if b[0]&frameFinal == 0 || size > longestFrame || len(b) < whole || (kind != websocket.PingMessage && kind != websocket.PongMessage) {
		return false
	}
	handle := c.ws.PongHandler()
	if kind == websocket.PingMessage {
		handle, c.waiting.grown = c.ws.PingHandler(), true
	}
	payload := make([]byte, size)
	for i := range payload {
		payload[i] = b[2+frameMask+i] ^ b[2+i%frameMask]
	}
	if handle(string(payload)) != nil {
		return false // it fails again when the library reads the frame
	}
	_, _ = c.in.Discard(whole) // they are in the buffer
	return true
}

// errTooManyFrames ends the reading of a connection that exceeds the limit of empty and control
// frames per second.
var errTooManyFrames = errors.New("too many control or empty frames")

// Parts of a frame header, with the terms of RFC 6455.
const (
	frameOpcode  = 0x0f
	frameControl = 0x08 // bit of the opcodes of control frames
	longSize     = 126  // two bytes with the size follow
	longestSize  = 127  // eight bytes do
	maxHeader    = 14   // bytes of the longest header
)

// frameCounter parses the frames in the bytes of a client, to count those that the library handles
// without its caller: control frames, and empty continuation frames, of which a message can have
// any number. Messages are counted where they are received. Used only by the reader.
type frameCounter struct {
	limit    int   // frames per second; 0 = no limit
	skip     int64 // remaining bytes of the frame's content
	header   [maxHeader]byte
	have     int // bytes of the header that were read
	counted  int // frames since began
	began    time.Time
	exceeded bool // permanent: a reader that reads ahead checks it again
}

// take parses bytes that were read, and reports whether the frames are within the limit.
func (f *frameCounter) take(b []byte) bool {
	if f.limit <= 0 {
		return true
	}
	for len(b) > 0 {
		if f.skip > 0 {
			n := min(f.skip, int64(len(b)))
			f.skip -= n
			b = b[n:]
			continue
		}
		f.header[f.have] = b[0]
		f.have++
		b = b[1:]
		size, whole := f.size()
		if !whole {
			continue
		}
		op := f.header[0] & frameOpcode
		f.have, f.skip = 0, size
		if (op&frameControl != 0 || op == 0 && size == 0) && !f.count() {
			return false
		}
	}
	return true
}

// size returns the size of the content, once the header is complete.
func (f *frameCounter) size() (size int64, whole bool) {
	if f.have < 2 {
		return 0, false
	}
	need, size := 2, int64(f.header[1]&^frameMasked)
	switch size {
	case longSize:
		need += 2
		size = int64(binary.BigEndian.Uint16(f.header[2:]))
	case longestSize:
		need += 8
		size = int64(binary.BigEndian.Uint64(f.header[2:]) &^ (1 << 63)) //nolint:gosec // the highest bit is cut off
	}
	if f.header[1]&frameMasked != 0 {
		need += frameMask
	}
	return size, f.have >= need
}

// count counts a frame.
func (f *frameCounter) count() bool {
	if now := time.Now(); now.Sub(f.began) >= time.Second {
		f.began, f.counted = now, 0
	}
	f.counted++
	f.exceeded = f.counted > f.limit
	return !f.exceeded
}
