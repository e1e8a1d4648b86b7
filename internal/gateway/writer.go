package gateway

import (
	"errors"
	"sync"
	"time"

	"github.com/gorilla/websocket"

	"laneway/internal/chat"
	"laneway/internal/gateway/socket"
	"laneway/internal/gateway/strictjson"
)

// framePool keeps the buffers in which frames are put together, so that an idle connection has none.
type framePool struct {
	pool  sync.Pool
	write sync.Pool // of the library's write buffers
}

const pooledFrame = 64 << 10 // larger buffers are not kept

func (p *framePool) get() *[]byte {
	if b, ok := p.pool.Get().(*[]byte); ok {
		return b
	}
	b := make([]byte, 0, 1024)
	return &b
}

func (p *framePool) put(b *[]byte) {
	if cap(*b) > pooledFrame {
		return
	}
	*b = (*b)[:0]
	p.pool.Put(b)
}

// write is the one writer of the connection: items, ticks, pings, and in the end the close frame. It ends with the connection.
func (c *conn) write() {
	clock := newWriterClock(c)
	defer clock.timer.Stop()
	for {
		now := time.Now()
		it, due := c.buf.Take(now)
		if it != nil {
			if !c.writeItem(it) {
				return
			}
			c.buf.Sent(it, time.Now())
		}
		if !clock.turn(now) {
			return
		}
		if it != nil {
			continue
		}
		if end := c.buf.Ending(); end != nil {
			c.writeClose(end)
			return
		}
		clock.wait(due)
	}
}

// writeFailed gives the connection up: after a failed write the stream of frames is broken.
func (c *conn) writeFailed(err error) {
	if errors.Is(err, websocket.ErrCloseSent) {
		return // the library found a violation and said goodbye; the reader ends the connection
	}
	reason := socket.ClosedByPeer
	if isTimeout(err) {
		reason = socket.ClosedSlow
	}
	c.abandon(&socket.Closing{Code: 0, Text: "", Reason: reason})
	_ = c.raw.Close()
}

func (c *conn) writeItem(it *socket.Item) bool {
	b := c.srv.frames.get()
	defer c.srv.frames.put(b)
	switch {
	case it.Delta != nil:
		return c.writeDelta(it.Delta, b)
	case it.Event == "":
		return c.writeMessage(it.Payload)
	}
	*b = appendEvent((*b)[:0], it.Event, it.Payload, c.nextSeq(it.Event), it.Health)
	return c.writeMessage(*b)
}

// nextSeq numbers an event at the moment of writing, so that nothing that was merged leaves a gap. The challenge has no number.
func (c *conn) nextSeq(event string) uint64 {
	if event == eventChallenge {
		return 0
	}
	c.seq++
	return c.seq
}

func (c *conn) writeDelta(d *socket.Delta, b *[]byte) bool {
	id := c.who.Load()
	*b = appendEvent((*b)[:0], eventChat, chatDelta(d), c.nextSeq(eventChat), 0)
	if !c.writeMessage(*b) {
		return false
	}
	if d.Waiting {
		return true
	}
	*b = appendEvent((*b)[:0], eventAgent, agentDelta(d, id.extended), c.nextSeq(eventAgent), 0)
	return c.writeMessage(*b)
}

func (c *conn) writeMessage(frame []byte) bool {
	_ = c.ws.SetWriteDeadline(time.Now().Add(c.srv.cfg.Deadlines.Write)) //nolint:errcheck // it never fails
	if err := c.ws.WriteMessage(websocket.TextMessage, frame); err != nil {
		c.writeFailed(err)
		return false
	}
	return true
}

// writeClose says goodbye and gives the peer a moment to answer.
func (c *conn) writeClose(end *socket.Closing) {
	at := time.Now().Add(c.srv.cfg.Deadlines.Close)
	if end.Code != 0 {
		//nolint:errcheck // the connection ends either way
		_ = c.ws.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(end.Code, chat.Cut(end.Text, 123)), at)
	}
	c.readBy(at)
}

// writerClock is what the writer does by time: ticks, pings, and looking for their pongs.
type writerClock struct {
	c          *conn
	timer      *time.Timer
	ping, tick time.Time
}

func newWriterClock(c *conn) *writerClock {
	return &writerClock{c: c, timer: time.NewTimer(time.Hour), ping: c.since.Add(c.srv.cfg.Deadlines.Ping)}
}

// turn does what is due; false = the connection is dead.
func (w *writerClock) turn(now time.Time) bool {
	w.beat(now)
	if now.Before(w.ping) {
		return w.answered(now)
	}
	w.ping = now.Add(w.c.srv.cfg.Deadlines.Ping)
	w.c.pingedAt.CompareAndSwap(0, max(1, int64(now.Sub(w.c.since))))
	if err := w.c.ws.WriteControl(websocket.PingMessage, nil, now.Add(w.c.srv.cfg.Deadlines.Write)); err != nil {
		w.c.writeFailed(err)
		return false
	}
	return w.answered(now)
}

// beat queues the tick of a client that is logged in.
func (w *writerClock) beat(now time.Time) {
	if w.c.who.Load() == nil {
		return
	}
	if w.tick.IsZero() {
		w.tick = w.c.authedAt.Add(TickEvery)
	}
	if now.Before(w.tick) {
		return
	}
	w.tick = w.tick.Add(TickEvery)
	w.c.buf.PutState(eventTick, strictjson.Encode(map[string]int64{"ts": now.UnixMilli()}), 0)
}

// answered looks for the pong. While a message is being read its own deadline counts: a pong cannot come in the middle of it.
func (w *writerClock) answered(now time.Time) bool {
	pinged := w.c.pingedAt.Load()
	if pinged == 0 || w.c.reading.Load() || now.Sub(w.c.since)-time.Duration(pinged) < w.c.srv.cfg.Deadlines.Pong {
		return true
	}
	w.c.abandon(&socket.Closing{Code: 0, Text: "", Reason: socket.ClosedSilent})
	_ = w.c.raw.Close()
	return false
}

// wait sleeps until something was queued or the next thing is due.
func (w *writerClock) wait(due time.Time) {
	next := w.ping
	if !w.tick.IsZero() && w.tick.Before(next) {
		next = w.tick
	}
	if !due.IsZero() && due.Before(next) {
		next = due
	}
	if p := w.c.pingedAt.Load(); p != 0 && !w.c.reading.Load() {
		if pong := w.c.since.Add(time.Duration(p) + w.c.srv.cfg.Deadlines.Pong); pong.Before(next) {
			next = pong
		}
	}
	w.timer.Reset(max(time.Until(next), time.Millisecond))
	select {
	case <-w.c.buf.Wake:
	case <-w.timer.C:
	}
}
