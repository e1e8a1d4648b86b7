package socket

import (
	"time"

	"laneway/internal/chat"
)

const (
	deltaGap     = 40 * time.Millisecond  // between two deltas of a run on one connection
	longDeltaGap = 250 * time.Millisecond // when its text is long, because every delta has the whole text
	longText     = 16 << 10
	maxStreams   = 1_024 // runs stored per connection; beyond it, idle ones are removed
)

// Delta is unsent new text of a run. To merge two of them, take the newer text and keep the older start.
type Delta struct {
	Event   chat.Event // the newest event; its Text is the answer so far
	start   int        // start of the unsent part of Text
	Replace bool
	// Waiting: the run has not started; the delta is empty and only reports that the message was accepted.
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

// stream is one run on one connection: it spaces out deltas and keeps the order of events. While an item of it is held, everything that
// follows is held, too.
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

// taken ends the time in which the delta may grow, written starts the time in which no other may follow.
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
