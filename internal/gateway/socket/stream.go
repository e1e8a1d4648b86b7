package socket

import (
	"time"

	"laneway/internal/chat"
)

const (
	deltaGap     = 40 * time.Millisecond  // between two deltas of a run on one connection
	longDeltaGap = 250 * time.Millisecond // once its text is long: every delta carries the whole text
	longText     = 16 << 10
	maxStreams   = 1_024 // runs remembered per connection; over it the idle ones are forgotten
)

// Delta is new text of a run that was not sent yet. Merging two of them is taking the newer text and keeping the older start.
type Delta struct {
	Event   chat.Event // the newest one; its Text is the answer so far
	start   int        // where the unsent part of Text begins
	Replace bool
	// Waiting: the run has not begun; the delta is empty and only says that the message was accepted.
	Waiting bool
}

// NewDelta makes the delta of an event that has text or says that a message waits.
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

// merge takes the next delta of the run.
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

// Unsent is the part of the text that was not sent.
func (d *Delta) Unsent() string { return d.Event.Text[d.start:] }

// size is about what its two frames take.
func (d *Delta) size() int {
	return 2*(len(d.Event.Text)+len(d.Unsent())) + 512
}

func (d *Delta) gap() time.Duration {
	if len(d.Event.Text) >= longText {
		return longDeltaGap
	}
	return deltaGap
}

// stream is one run on one connection: it spaces its deltas out and keeps the order of its events. While something of it is
// held back, everything that follows waits behind it.
type stream struct {
	run    string
	tail   *Item   // an unsent delta that the next one may join
	held   []*Item // in order
	gates  int     // requests of this connection whose answer must come before any event
	queued bool    // a delta is in the queue or being written
	ended  bool
	next   time.Time // earliest time of the next delta
}

func (st *stream) free(now time.Time) bool {
	if st.gates > 0 || len(st.held) == 0 {
		return false
	}
	return st.held[0].Delta == nil || (!st.queued && !now.Before(st.next))
}

// taken ends the time in which the delta may grow, written begins the time in which no other may follow.
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

// forgetIdle removes idle streams: only the time of the last delta of their runs is lost.
func (b *Buffer) forgetIdle() {
	for run, st := range b.streams {
		if len(st.held) == 0 && !st.queued && st.gates == 0 {
			delete(b.streams, run)
		}
	}
}

// PutDelta queues new text of a run, or lets it join unsent text.
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
		st.tail = nil // text that comes later must not overtake this
		st.ended = st.ended || last
		b.hold(st, &Item{Event: event, Payload: payload, stream: st, size: len(payload) + itemOverhead})
	})
}

// hold puts an item at the end of its stream and lets out what may go.
func (b *Buffer) hold(st *stream, it *Item) {
	b.bytes += it.size
	st.held = append(st.held, it)
	if b.blocked == nil {
		b.blocked = map[*stream]struct{}{}
	}
	b.blocked[st] = struct{}{}
	b.letOut(st, time.Now())
}

// letOut moves what may go from the stream to the queue: up to the next delta that must wait.
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

// admit lets out what became due and returns when the next will.
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

// admitAll lets everything out: the connection ends and nothing will become due.
func (b *Buffer) admitAll() {
	for st := range b.blocked {
		b.queue = append(b.queue, st.held...)
		st.held = nil
	}
	clear(b.blocked)
}

// Gate keeps the events of a run back until its request is answered.
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
			delete(b.streams, run) // nothing happened yet, and perhaps never will: another replica runs it
		}
	})
}
