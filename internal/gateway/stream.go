package gateway

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

// delta is new text of a run that was not sent yet. Merging two of them is taking the newer text and keeping the older start.
type delta struct {
	ev      chat.Event // the newest one; its Text is the answer so far
	start   int        // where the unsent part of Text begins
	replace bool
	// waiting: the run has not begun; the delta is empty and only says that the message was accepted.
	waiting bool
}

func newDelta(ev chat.Event) *delta {
	d := &delta{ev: ev, replace: ev.Replace, waiting: ev.Kind == chat.EventQueued}
	if d.waiting {
		d.ev.Text, d.ev.Delta = "", ""
		return d
	}
	d.start = len(ev.Text) - len(ev.Delta)
	if d.start < 0 || ev.Replace {
		d.start, d.replace = 0, true
	}
	return d
}

// merge takes the next delta of the run.
func (d *delta) merge(next *delta) {
	switch {
	case next.waiting && !d.waiting:
		return
	case d.replace || next.replace || d.start > len(next.ev.Text):
		d.start, d.replace = 0, true
	case d.waiting:
		d.start = next.start
	}
	d.ev, d.waiting = next.ev, next.waiting
}

func (d *delta) text() string { return d.ev.Text[d.start:] }

// size is about what its two frames take.
func (d *delta) size() int {
	return 2*(len(d.ev.Text)+len(d.text())) + 512
}

func (d *delta) gap() time.Duration {
	if len(d.ev.Text) >= longText {
		return longDeltaGap
	}
	return deltaGap
}

// stream is one run on one connection: it spaces its deltas out and keeps the order of its events. While something of it is
// held back, everything that follows waits behind it.
type stream struct {
	run    string
	tail   *item   // an unsent delta that the next one may join
	held   []*item // in order
	gates  int     // requests of this connection whose answer must come before any event
	queued bool    // a delta is in the queue or being written
	ended  bool
	next   time.Time // earliest time of the next delta
}

func (st *stream) free(now time.Time) bool {
	if st.gates > 0 || len(st.held) == 0 {
		return false
	}
	return st.held[0].delta == nil || (!st.queued && !now.Before(st.next))
}

// taken ends the time in which the delta may grow, written begins the time in which no other may follow.
func (st *stream) taken(it *item) {
	if st.tail == it {
		st.tail = nil
	}
}

func (st *stream) written(it *item, now time.Time) {
	st.queued = false
	st.next = now.Add(it.delta.gap())
}

func (b *sendBuffer) stream(run string) *stream {
	st := b.streams[run]
	if st == nil {
		if len(b.streams) >= maxStreams {
			b.forgetIdle()
		}
		st = &stream{run: run}
		b.streams[run] = st
	}
	return st
}

func (b *sendBuffer) forget(st *stream) {
	if st.ended && len(st.held) == 0 && !st.queued && st.gates == 0 {
		delete(b.streams, st.run)
	}
}

// forgetIdle makes room: what it forgets is only when the last delta of a run went out.
func (b *sendBuffer) forgetIdle() {
	for run, st := range b.streams {
		if len(st.held) == 0 && !st.queued && st.gates == 0 {
			delete(b.streams, run)
		}
	}
}

// putDelta queues new text of a run, or lets it join unsent text.
func (b *sendBuffer) putDelta(run string, d *delta) {
	b.put(func() {
		st := b.stream(run)
		if st.tail != nil {
			old := st.tail.size
			st.tail.delta.merge(d)
			st.tail.size = st.tail.delta.size()
			b.bytes += st.tail.size - old
			return
		}
		it := &item{delta: d, stream: st, size: d.size()}
		st.tail = it
		b.hold(st, it)
	})
}

// putRunEvent queues any other event of a run; last = it is the one that ends the run.
func (b *sendBuffer) putRunEvent(run, event string, payload []byte, last bool) {
	b.put(func() {
		st := b.stream(run)
		st.tail = nil // text that comes later must not overtake this
		st.ended = st.ended || last
		b.hold(st, &item{event: event, payload: payload, stream: st, size: len(payload) + itemOverhead})
	})
}

// hold puts an item at the end of its stream and lets out what may go.
func (b *sendBuffer) hold(st *stream, it *item) {
	b.bytes += it.size
	st.held = append(st.held, it)
	b.blocked[st] = struct{}{}
	b.letOut(st, time.Now())
}

// letOut moves what may go from the stream to the queue: up to the next delta that must wait.
func (b *sendBuffer) letOut(st *stream, now time.Time) {
	for st.free(now) {
		it := st.held[0]
		st.held[0] = nil
		st.held = st.held[1:]
		st.queued = st.queued || it.delta != nil
		b.queue = append(b.queue, it)
	}
	if len(st.held) == 0 {
		st.held = nil
		delete(b.blocked, st)
		b.forget(st)
	}
}

// admit lets out what became due and returns when the next will.
func (b *sendBuffer) admit(now time.Time) time.Time {
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
func (b *sendBuffer) admitAll() {
	for st := range b.blocked {
		b.queue = append(b.queue, st.held...)
		st.held = nil
	}
	clear(b.blocked)
}

// gate keeps the events of a run back until its request is answered.
func (b *sendBuffer) gate(run string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.stream(run).gates++
}

// openGate is called when the answer is queued.
func (b *sendBuffer) openGate(run string) {
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
