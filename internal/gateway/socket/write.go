package socket

import (
	"errors"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gorilla/websocket"

	"laneway/internal/chat"
)

// writer is the goroutine that writes to a connection: it runs while something is queued or due, so
// that an idle connection has no such goroutine. In between, its clock has a timer.
type writer struct {
	running atomic.Bool
	poked   atomic.Bool    // the writer has something to do
	done    sync.WaitGroup // until nothing is written any more
	seq     uint64         // number of the last event
	clock   clock
}

// hold keeps the writer from running before startWriting.
func (w *writer) hold() {
	w.done.Add(1)
	w.running.Store(true)
}

func (c *Conn) startWriting() {
	c.writer.clock = clock{c: c, ping: c.since.Add(c.up.cfg.Deadlines.Ping), timer: time.AfterFunc(time.Hour, c.Buffer.wake)}
	c.writer.running.Store(false)
	c.wake()
}

// wake makes the writer check the buffer and the clock. It does not block.
func (c *Conn) wake() {
	c.writer.poked.Store(true)
	if c.writer.running.CompareAndSwap(false, true) {
		go c.write()
	}
}

// write writes what is queued and due: items, ticks, pings, and finally the close frame. It returns
// when there is nothing to write; the next call of wake starts another.
func (c *Conn) write() {
	growStack(0)
	w := &c.writer
	for {
		w.poked.Store(false)
		next, more := c.writeDue()
		if !more {
			w.clock.timer.Stop()
			w.done.Done() // running stays true: no other writer starts
			return
		}
		w.clock.timer.Reset(max(time.Until(next), time.Millisecond))
		w.running.Store(false)
		if !w.poked.Load() || !w.running.CompareAndSwap(false, true) {
			return
		}
	}
}

// growStack grows the stack of a new goroutine to the size that a write needs. If the stack grew
// during the write instead, every frame on it would be copied, which takes a tenth of the time of a
// short call.
//
//go:noinline
func growStack(at int) byte {
	var room [1536]byte
	room[at] = 1
	return room[at/2]
}

// writeDue writes until nothing is queued and due, and returns when the next item will be. more is
// false when the connection has ended.
func (c *Conn) writeDue() (next time.Time, more bool) {
	for {
		now := time.Now()
		it, due := c.take(now)
		if it != nil {
			if !c.writeItem(it) {
				return next, false
			}
			c.sent(it, time.Now())
		}
		if !c.writer.clock.turn(now) {
			return next, false
		}
		if it != nil {
			continue
		}
		if end := c.flushed(); end != nil {
			c.writeClose(end)
			return next, false
		}
		return c.writer.clock.next(due), true
	}
}

// writeFailed ends the connection: after a failed write the stream of frames is broken.
func (c *Conn) writeFailed(err error) {
	if errors.Is(err, websocket.ErrCloseSent) {
		return // the library found a violation and sent the close frame; the reader ends the connection
	}
	reason := ClosedByPeer
	if isTimeout(err) {
		reason = ClosedSlow
	}
	c.abandon(&Closing{Reason: reason})
	c.Cut()
}

func (c *Conn) writeItem(it *Item) bool {
	b := c.up.frame()
	defer c.up.putFrame(b)
	switch {
	case it.Delta != nil:
		ok := true
		c.client.DeltaEvents(it.Delta, func(event string, payload []byte) bool {
			ok = ok && c.writeEvent(b, event, payload, 0)
			return ok
		})
		return ok
	case it.Event == "":
		return c.writeMessage(it.Payload)
	}
	return c.writeEvent(b, it.Event, it.Payload, it.Health)
}

// writeEvent numbers an event at the time of writing, so that merging leaves no gap.
func (c *Conn) writeEvent(b *[]byte, event string, payload []byte, health uint64) bool {
	c.writer.seq++
	*b = AppendEvent((*b)[:0], event, payload, c.writer.seq, health)
	return c.writeMessage(*b)
}

func (c *Conn) writeMessage(frame []byte) bool {
	_ = c.ws.SetWriteDeadline(time.Now().Add(c.up.cfg.Deadlines.Write)) // it never fails
	if err := c.ws.WriteMessage(websocket.TextMessage, frame); err != nil {
		c.writeFailed(err)
		return false
	}
	return true
}

// writeClose writes the close frame and waits briefly for the peer's answer, except on a connection
// that is closed for a newer one: many such connections must not stay open.
func (c *Conn) writeClose(end *Closing) {
	at := time.Now().Add(c.up.cfg.Deadlines.Close)
	if end.Code != 0 {
		// the connection ends either way
		_ = c.ws.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(end.Code, chat.Cut(end.Text, 123)), at)
	}
	if end.Reason == ClosedUnauthenticated {
		at = time.Now()
	}
	c.readBy(at)
}

const pooledFrame = 64 << 10 // larger buffers are not kept

// frame returns a buffer for building a frame; putFrame returns it to the pool.
func (u *Upgrader) frame() *[]byte {
	if b, ok := u.frames.Get().(*[]byte); ok {
		return b
	}
	b := make([]byte, 0, 1024)
	return &b
}

func (u *Upgrader) putFrame(b *[]byte) {
	if cap(*b) > pooledFrame {
		return
	}
	*b = (*b)[:0]
	u.frames.Put(b)
}

// AppendEvent writes an event frame. payload is JSON; seq 0 = no number, health > 0 adds the state
// version.
func AppendEvent(dst []byte, event string, payload []byte, seq, health uint64) []byte {
	dst = append(dst, `{"type":"event","event":"`...)
	dst = append(dst, event...)
	dst = append(dst, `","payload":`...)
	dst = append(dst, payload...)
	if seq > 0 {
		dst = append(dst, `,"seq":`...)
		dst = strconv.AppendUint(dst, seq, 10)
	}
	if health > 0 {
		dst = append(dst, `,"stateVersion":{"presence":0,"health":`...)
		dst = strconv.AppendUint(dst, health, 10)
		dst = append(dst, '}')
	}
	return append(dst, '}')
}
