package socket

import (
	"sync"
	"time"

	"laneway/internal/chat"
)

// Item is one item to write: a response frame, or an event whose frame is completed when it is
// written, because its seq is known only then.
type Item struct {
	Event   string // "" = payload is a whole frame
	Payload []byte
	Health  uint64
	Delta   *Delta // instead of payload
	stream  *stream
	size    int
	written func() // called when it is written; may be nil
}

const itemOverhead = 96 // bytes of an item in addition to its text, measured

// Buffer holds the unsent frames of one connection. A producer never blocks; one writer takes items
// out. It keeps the order of responses and events, merges unsent deltas of a run, replaces unsent
// states by newer ones, and reports a client that reads too slowly.
type Buffer struct {
	limit int
	// tooSlow is called once, without the lock, when the buffer was over its limit for slowAfter or
	// exceeds twice the limit.
	tooSlow   func()
	slowAfter time.Duration
	// wake is called, without the lock, when the writer has something to do.
	wake func()

	mu      sync.Mutex
	room    sync.Cond // signalled when the buffer is under its limit again, or has ended
	queue   []*Item
	head    int
	bytes   int
	over    *overLimit // while the buffer is over its limit
	slow    bool
	latest  map[string]*Item // nil until first used, like the next two
	streams map[string]*stream
	blocked map[*stream]struct{} // streams with held items
	end     *Closing             // sent when the queue is empty
	shut    bool                 // no new item is accepted
	dropped bool                 // queued items are no longer counted
	group   *group               // of its principal; nil = not counted
	counted int                  // bytes of responses that count for the group
	ended   func()               // called without the lock when shut becomes true; may be nil
}

// newBuffer returns a buffer of limit bytes; see [Buffer] for the other parameters.
func newBuffer(limit int, slowAfter time.Duration, tooSlow, wake func()) *Buffer {
	b := &Buffer{
		limit: limit, slowAfter: slowAfter, tooSlow: tooSlow, wake: wake,
	}
	b.room.L = &b.mu
	return b
}

// PutFrame queues a complete frame: a response.
func (b *Buffer) PutFrame(frame []byte) { b.PutFrameThen(frame, nil) }

// PutFrameThen is PutFrame with a function that is called when the frame is written. It is not
// called when the connection ends before.
func (b *Buffer) PutFrameThen(frame []byte, written func()) {
	b.put(func() {
		it := &Item{Payload: frame, size: len(frame) + itemOverhead, written: written}
		b.enqueue(it)
		b.count(it.size)
	})
}

// PutEvent queues an event that belongs to no run.
func (b *Buffer) PutEvent(event string, payload []byte) {
	b.put(func() { b.enqueue(&Item{Event: event, Payload: payload, size: len(payload) + itemOverhead}) })
}

// PutState queues a state (tick, health, lanes). It replaces an unsent older one at the same
// position.
func (b *Buffer) PutState(event string, payload []byte, health uint64) {
	b.put(func() {
		size := len(payload) + itemOverhead
		if old := b.latest[event]; old != nil {
			b.bytes += size - old.size
			old.Payload, old.Health, old.size = payload, health, size
			return
		}
		it := &Item{Event: event, Payload: payload, Health: health, size: size}
		if b.latest == nil {
			b.latest = map[string]*Item{}
		}
		b.latest[event] = it
		b.enqueue(it)
	})
}

// put calls change under the lock, then checks the limit and wakes the writer.
func (b *Buffer) put(change func()) {
	b.mu.Lock()
	if b.shut {
		b.mu.Unlock()
		return
	}
	change()
	exceeded := b.measure()
	g := b.group
	b.mu.Unlock()
	b.wake()
	if exceeded {
		b.tooSlow()
	}
	if g != nil {
		g.relieve()
	}
}

// count adds or subtracts bytes of responses.
func (b *Buffer) count(n int) {
	if b.dropped {
		return
	}
	b.counted += n
	if b.group != nil {
		b.group.add(n)
	}
}

// countFor counts the responses for g, which may be nil, and returns the group for which they
// counted before.
func (b *Buffer) countFor(g *group) (before *group) {
	b.mu.Lock()
	defer b.mu.Unlock()
	before = b.group
	if b.group != nil {
		b.group.add(-b.counted)
	}
	if b.group = g; g != nil {
		g.add(b.counted)
	}
	return before
}

// responseBytes returns the bytes of waiting responses.
func (b *Buffer) responseBytes() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.counted
}

func (b *Buffer) enqueue(it *Item) {
	b.bytes += it.size
	b.queue = append(b.queue, it)
}

// measure starts and stops the timer of the limit; true = the client is too slow.
func (b *Buffer) measure() bool {
	if b.bytes <= b.limit {
		b.within()
		b.room.Broadcast()
		return false
	}
	if b.over == nil {
		o := &overLimit{}
		o.timer = time.AfterFunc(b.slowAfter, func() { b.overTime(o) })
		b.over = o
	}
	if b.bytes > 2*b.limit && !b.slow {
		b.slow = true
		return true
	}
	return false
}

// overLimit is one period in which a buffer is over its limit. The timer is used only under the
// lock of the buffer: its function has the period as its argument and may run before AfterFunc has
// returned.
type overLimit struct{ timer *time.Timer }

// within ends the period in which the buffer was over its limit; the caller holds the lock.
func (b *Buffer) within() {
	if b.over != nil {
		b.over.timer.Stop()
		b.over = nil
	}
}

// overTime ends a connection whose buffer was over the limit for the whole period o.
func (b *Buffer) overTime(o *overLimit) {
	b.mu.Lock()
	still := b.over == o && !b.shut && !b.slow
	b.slow = b.slow || still
	b.mu.Unlock()
	if still {
		b.tooSlow()
	}
}

// take returns the next item for the writer; nil when no item is due, with the time of the next one
// (zero = no item waits). After the item is written, the writer calls sent.
func (b *Buffer) take(now time.Time) (it *Item, due time.Time) {
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
	if it.Event != "" && b.latest[it.Event] == it {
		delete(b.latest, it.Event)
	}
	if it.Delta != nil {
		it.stream.taken(it)
	}
	return it, due
}

func (b *Buffer) compact() {
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

// sent records that an item was written.
func (b *Buffer) sent(it *Item, now time.Time) {
	if it.written != nil {
		it.written()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.bytes -= it.size
	if it.Event == "" && it.Delta == nil {
		b.count(-it.size)
	}
	if it.Delta != nil {
		it.stream.written(it, now)
		b.forget(it.stream)
	}
	b.measure()
}

// flushed returns the close that follows once everything is written; nil = not yet.
func (b *Buffer) flushed() *Closing {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.end == nil || b.head < len(b.queue) {
		return nil
	}
	return b.end
}

// finish accepts no new item. Queued items are still written, then the connection closes. Only the
// first ending counts.
func (b *Buffer) finish(c *Closing) bool { return b.stop(c, false) }

// drop is finish without waiting for the client: queued items are dropped with the connection.
func (b *Buffer) drop(c *Closing) bool { return b.stop(c, true) }

// whenEnded calls f once no new item is accepted, or at once if that is already so. f may be called
// more than once.
func (b *Buffer) whenEnded(f func()) {
	b.mu.Lock()
	b.ended = f
	shut := b.shut
	b.mu.Unlock()
	if shut {
		f()
	}
}

func (b *Buffer) stop(c *Closing, discard bool) bool {
	b.mu.Lock()
	first := b.end == nil
	if first {
		b.end = c
	}
	b.shut = true
	if discard {
		b.queue, b.head, b.bytes = nil, 0, 0
		b.count(-b.counted)
		b.dropped = true
		clear(b.blocked)
		b.within()
	} else {
		b.admitAll()
	}
	b.room.Broadcast()
	ended := b.ended
	b.mu.Unlock()
	b.wake()
	if ended != nil {
		ended()
	}
	return first
}

// decided returns how the connection ends; nil when no ending was decided.
func (b *Buffer) decided() *Closing {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.end
}

// wait waits until the buffer is under its limit; false when the connection ends.
func (b *Buffer) wait() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for b.bytes > b.limit && !b.shut {
		b.room.Wait()
	}
	return !b.shut
}

const (
	deltaGap     = 40 * time.Millisecond  // between two deltas of a run on one connection
	longDeltaGap = 250 * time.Millisecond // when its text is long, because every delta has the whole text
	longText     = 16 << 10
	maxStreams   = 1_024 // runs stored per connection; beyond it, idle ones are removed
)

// Delta is unsent new text of a run. To merge two of them, take the newer text and keep the older
// start.
type Delta struct {
	Event   chat.Event // the newest event; its Text is the answer so far
	start   int        // start of the unsent part of Text
	Replace bool
	// Waiting: the run has not started; the delta is empty and only reports that the message was
	// accepted.
	Waiting bool
}

// NewDelta returns the delta of an event that has text or reports that a message waits.
func NewDelta(ev chat.Event) *Delta {
	d := &Delta{Event: ev, Replace: ev.Replace, Waiting: ev.Kind == chat.EventQueued}
	if d.Waiting {
		d.Event.Text, d.Event.Delta = "", ""
		return d
	}
	d.start = len(ev.Text) - len(ev.Delta)
	if d.start < 0 || ev.Replace {
		d.start, d.Replace = 0, true
	}
	return d
}

// merge adds the next delta of the run.
func (d *Delta) merge(next *Delta) {
	switch {
	case next.Waiting && !d.Waiting:
		return
	case d.Replace || next.Replace || d.start > len(next.Event.Text):
		d.start, d.Replace = 0, true
	case d.Waiting:
		d.start = next.start
	}
	d.Event, d.Waiting = next.Event, next.Waiting
}

// Unsent returns the unsent part of the text.
func (d *Delta) Unsent() string { return d.Event.Text[d.start:] }

// size estimates the size of its two frames.
func (d *Delta) size() int {
	return 2*(len(d.Event.Text)+len(d.Unsent())) + 512
}

func (d *Delta) gap() time.Duration {
	if len(d.Event.Text) >= longText {
		return longDeltaGap
	}
	return deltaGap
}

// stream is one run on one connection: it spaces out deltas and keeps the order of events. While an
// item of it is held, everything that follows is held, too.
type stream struct {
	run    string
	tail   *Item   // an unsent delta with which the next one may be merged
	held   []*Item // in order
	gates  int     // requests of this connection whose answer must precede any event
	queued bool    // a delta is queued or being written
	ended  bool
	next   time.Time // earliest time of the next delta
}

func (st *stream) free(now time.Time) bool {
	if st.gates > 0 || len(st.held) == 0 {
		return false
	}
	return st.held[0].Delta == nil || (!st.queued && !now.Before(st.next))
}

// taken ends the time in which the delta may grow, written starts the time in which no other may
// follow.
func (st *stream) taken(it *Item) {
	if st.tail == it {
		st.tail = nil
	}
}

func (st *stream) written(it *Item, now time.Time) {
	st.queued = false
	st.next = now.Add(it.Delta.gap())
}

func (b *Buffer) stream(run string) *stream {
	st := b.streams[run]
	if st == nil {
		if len(b.streams) >= maxStreams {
			b.forgetIdle()
		}
		if b.streams == nil {
			b.streams = map[string]*stream{}
		}
		st = &stream{run: run}
		b.streams[run] = st
	}
	return st
}

func (b *Buffer) forget(st *stream) {
	if st.ended && len(st.held) == 0 && !st.queued && st.gates == 0 {
		delete(b.streams, st.run)
	}
}

// forgetIdle removes idle streams. Only the time of the last delta of their runs is lost.
func (b *Buffer) forgetIdle() {
	for run, st := range b.streams {
		if len(st.held) == 0 && !st.queued && st.gates == 0 {
			delete(b.streams, run)
		}
	}
}

// PutDelta queues new text of a run, or merges it with unsent text.
func (b *Buffer) PutDelta(run string, d *Delta) {
	b.put(func() {
		st := b.stream(run)
		if st.tail != nil {
			old := st.tail.size
			st.tail.Delta.merge(d)
			st.tail.size = st.tail.Delta.size()
			b.bytes += st.tail.size - old
			return
		}
		it := &Item{Delta: d, stream: st, size: d.size()}
		st.tail = it
		b.hold(st, it)
	})
}

// PutRunEvent queues any other event of a run; last = it is the one that ends the run.
func (b *Buffer) PutRunEvent(run, event string, payload []byte, last bool) {
	b.put(func() {
		st := b.stream(run)
		st.tail = nil // later text must not overtake this event
		st.ended = st.ended || last
		b.hold(st, &Item{Event: event, Payload: payload, stream: st, size: len(payload) + itemOverhead})
	})
}

// hold appends an item to its stream and queues the items that are due.
func (b *Buffer) hold(st *stream, it *Item) {
	b.bytes += it.size
	st.held = append(st.held, it)
	if b.blocked == nil {
		b.blocked = map[*stream]struct{}{}
	}
	b.blocked[st] = struct{}{}
	b.letOut(st, time.Now())
}

// letOut moves due items from the stream to the queue: up to the next delta that must wait.
func (b *Buffer) letOut(st *stream, now time.Time) {
	for st.free(now) {
		it := st.held[0]
		st.held[0] = nil
		st.held = st.held[1:]
		st.queued = st.queued || it.Delta != nil
		b.queue = append(b.queue, it)
	}
	if len(st.held) == 0 {
		st.held = nil
		delete(b.blocked, st)
		b.forget(st)
	}
}

// admit queues the items that have become due and returns when the next will be.
func (b *Buffer) admit(now time.Time) time.Time {
	var due time.Time
	for st := range b.blocked {
		b.letOut(st, now)
		waits := len(st.held) > 0 && st.gates == 0 && !st.queued
		if waits && (due.IsZero() || st.next.Before(due)) {
			due = st.next
		}
	}
	return due
}

// admitAll queues all items, because the connection ends and no item will become due.
func (b *Buffer) admitAll() {
	for st := range b.blocked {
		b.queue = append(b.queue, st.held...)
		st.held = nil
	}
	clear(b.blocked)
}

// Gate holds back the events of a run until its request is answered.
func (b *Buffer) Gate(run string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.stream(run).gates++
}

// OpenGate is called when the answer is queued.
func (b *Buffer) OpenGate(run string) {
	b.put(func() {
		st := b.streams[run]
		if st == nil || st.gates == 0 {
			return
		}
		st.gates--
		b.letOut(st, time.Now())
		b.forget(st)
		if st.gates == 0 && len(st.held) == 0 && !st.queued && st.next.IsZero() {
			delete(b.streams, run) // nothing has happened yet, and may never happen here: another replica may run it
		}
	})
}
