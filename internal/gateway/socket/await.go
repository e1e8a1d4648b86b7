package socket

import (
	"sync"
	"time"

	"github.com/gorilla/websocket"
)

// readBuffer is the size of the read buffer of a connection in bytes. A message that fits is read in one call; the library accepts no
// buffer of 256 bytes or less.
const readBuffer = 512

// Parts of a control frame of a client, with the terms of RFC 6455: it is masked, not fragmented, and has at most 125 bytes.
const (
	frameFinal   = 0x80
	frameMasked  = 0x80
	frameMask    = 4 // bytes of the mask, after the two bytes of the header
	longestFrame = 125
)

// waiting is the shared state of the reader and the clock about a waiting reader. A stack that has grown does not shrink to the size of a
// new goroutine's, so a reader with a grown stack is interrupted and replaced.
type waiting struct {
	grown bool // used only by the reader: it has done more than wait

	mu          sync.Mutex
	now         bool // it waits for the first byte of a message, with a grown stack
	interrupted bool // the read deadline was set to the past, to end the waiting
}

// await waits for a message, so that no frame of the library is on the stack meanwhile, and answers the control frames that precede it.
// grown reports that another goroutine must continue the waiting. An error is returned again when the message is read.
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

// control handles a ping or a pong that is completely in the read buffer, as the library would. false = the library has to read it.
func (c *Conn) control() bool {
	b, _ := c.in.Peek(c.in.Buffered()) //nolint:errcheck // there are so many
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
	_, _ = c.in.Discard(whole) //nolint:errcheck // they are in the buffer
	return true
}
