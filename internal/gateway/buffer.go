package gateway

import (
	"sync"
	"time"
)

// item is one thing to be written: a response frame, or the event whose frame is finished when it is written, because only then
// its seq is known.
type item struct {
	event   string // "" = payload is a whole frame
	payload []byte
	health  uint64
	delta   *delta // instead of payload
	stream  *stream
	size    int
	written func() // to run when it is written; nil = nothing
}

const itemOverhead = 96 // bytes that an item costs besides its text, measured

// closing is the end of a connection: the close frame and why.
type closing struct {
	code   int
	text   string
	reason CloseReason
}

// sendBuffer holds what one connection is still to be sent. Whoever puts something in never waits; one writer takes things out.
// It keeps the order of responses and events, merges unsent deltas of a run, replaces unsent pictures of a state by newer ones,
// and says when the reader at the other end is too slow.
type sendBuffer struct {
	limit int
	// tooSlow is called, once and without the lock, when the buffer was over its limit for slowAfter or twice over it.
	tooSlow   func()
	slowAfter time.Duration
	// wake tells the writer that there is something new.
	wake chan struct{}

	mu      sync.Mutex
	room    sync.Cond // signalled when the buffer is under its limit again, or over
	queue   []*item
	head    int
	bytes   int
	over    *time.Timer // runs while the buffer is over its limit
	slow    bool
	latest  map[string]*item
	streams map[string]*stream
	blocked map[*stream]struct{} // streams that hold something back
	end     *closing             // what follows when the queue is empty
	shut    bool                 // nothing more is taken in
}

func newSendBuffer(limit int, slowAfter time.Duration, tooSlow func()) *sendBuffer {
	b := &sendBuffer{
		limit: limit, slowAfter: slowAfter, tooSlow: tooSlow,
		wake:   make(chan struct{}, 1),
		latest: map[string]*item{}, streams: map[string]*stream{}, blocked: map[*stream]struct{}{},
	}
	b.room.L = &b.mu
	return b
}

// putFrame queues a whole frame: a response.
func (b *sendBuffer) putFrame(frame []byte) { b.putFrameThen(frame, nil) }

// putFrameThen is putFrame with what runs when the frame is written. It does not run when the connection ends before.
func (b *sendBuffer) putFrameThen(frame []byte, written func()) {
	b.put(func() { b.enqueue(&item{payload: frame, size: len(frame) + itemOverhead, written: written}) })
}

// putEvent queues an event that belongs to no run.
func (b *sendBuffer) putEvent(event string, payload []byte) {
	b.put(func() { b.enqueue(&item{event: event, payload: payload, size: len(payload) + itemOverhead}) })
}

// putState queues a picture of a state (tick, health, lanes). An unsent older picture is replaced where it stands.
func (b *sendBuffer) putState(event string, payload []byte, health uint64) {
	b.put(func() {
		size := len(payload) + itemOverhead
		if old := b.latest[event]; old != nil {
			b.bytes += size - old.size
			old.payload, old.health, old.size = payload, health, size
			return
		}
		it := &item{event: event, payload: payload, health: health, size: size}
		b.latest[event] = it
		b.enqueue(it)
	})
}

// put runs change under the lock and draws the consequences.
func (b *sendBuffer) put(change func()) {
	b.mu.Lock()
	if b.shut {
		b.mu.Unlock()
		return
	}
	change()
	hopeless := b.measure()
	b.mu.Unlock()
	b.poke()
	if hopeless {
		b.tooSlow()
	}
}

func (b *sendBuffer) poke() {
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

func (b *sendBuffer) enqueue(it *item) {
	b.bytes += it.size
	b.queue = append(b.queue, it)
}

// measure starts and stops the clock of the limit; true = the reader has lost.
func (b *sendBuffer) measure() bool {
	if b.bytes <= b.limit {
		if b.over != nil {
			b.over.Stop()
			b.over = nil
		}
		b.room.Broadcast()
		return false
	}
	if b.over == nil {
		var t *time.Timer
		t = time.AfterFunc(b.slowAfter, func() { b.overTime(t) })
		b.over = t
	}
	if b.bytes > 2*b.limit && !b.slow {
		b.slow = true
		return true
	}
	return false
}

// overTime ends a connection whose buffer was over the limit all the time since t was started.
func (b *sendBuffer) overTime(t *time.Timer) {
	b.mu.Lock()
	still := b.over == t && !b.shut && !b.slow
	b.slow = b.slow || still
	b.mu.Unlock()
	if still {
		b.tooSlow()
	}
}

// take hands the writer the next item; nil when there is none, with the time at which one becomes due (zero = none waits).
// After the item is written the writer calls sent.
func (b *sendBuffer) take(now time.Time) (it *item, due time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	due = b.admit(now)
	if b.head == len(b.queue) {
		return nil, due
	}
	it = b.queue[b.head]
	b.queue[b.head] = nil
	b.head++
	b.compact()
	if it.event != "" && b.latest[it.event] == it {
		delete(b.latest, it.event)
	}
	if it.delta != nil {
		it.stream.taken(it)
	}
	return it, due
}

func (b *sendBuffer) compact() {
	switch {
	case b.head == len(b.queue):
		b.queue, b.head = b.queue[:0], 0
		if cap(b.queue) > 64 {
			b.queue = nil
		}
	case b.head >= 256 && b.head*2 >= len(b.queue):
		n := copy(b.queue, b.queue[b.head:])
		clear(b.queue[n:])
		b.queue, b.head = b.queue[:n], 0
	}
}

// sent takes note that an item was written.
func (b *sendBuffer) sent(it *item, now time.Time) {
	if it.written != nil {
		it.written()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.bytes -= it.size
	if it.delta != nil {
		it.stream.written(it, now)
		b.forget(it.stream)
	}
	b.measure()
}

// ending is the close that follows once everything is written; nil = not yet.
func (b *sendBuffer) ending() *closing {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.end == nil || b.head < len(b.queue) {
		return nil
	}
	return b.end
}

// finish takes nothing more in; what is queued is still written, then the connection closes. The first ending wins.
func (b *sendBuffer) finish(c *closing) bool { return b.stop(c, false) }

// drop is finish for a reader that is not worth waiting for: what is queued is thrown away with the connection.
func (b *sendBuffer) drop(c *closing) bool { return b.stop(c, true) }

func (b *sendBuffer) stop(c *closing, discard bool) bool {
	b.mu.Lock()
	first := b.end == nil
	if first {
		b.end = c
	}
	b.shut = true
	if discard {
		b.queue, b.head, b.bytes = nil, 0, 0
		clear(b.blocked)
	} else {
		b.admitAll()
	}
	if b.over != nil && discard {
		b.over.Stop()
		b.over = nil
	}
	b.room.Broadcast()
	b.mu.Unlock()
	b.poke()
	return first
}

// reason is why the connection ends; "" while it does not.
func (b *sendBuffer) reason() CloseReason {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.end == nil {
		return ""
	}
	return b.end.reason
}

// waitRoom waits until the buffer is under its limit; false when the connection ends.
func (b *sendBuffer) waitRoom() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for b.bytes > b.limit && !b.shut {
		b.room.Wait()
	}
	return !b.shut
}
