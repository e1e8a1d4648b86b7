package scheduler

import (
	"context"
	"slices"
	"sort"
	"time"
)

// session is the state of a conversation while it has running or waiting work. Every field is
// guarded by the scheduler's mutex. Idle sessions are kept in a small pool, so alarm and question
// only ever grow: a late timer or estimate finds another number and does nothing.
type session[M any] struct {
	key      string
	set      Settings // of the last submitted message
	gen      uint64
	last     int64 // highest sequence number seen
	heard    int64 // see Known
	running  []*Turn[M]
	begins   *Turn[M]    // started last and has not begun yet: the next turn of the session waits for that, without a slot
	queue    []*entry[M] // waiting, in order of sequence; queue[:head] have left
	head     int
	bytes    int // of the waiting messages
	byLane   []laneShare[M]
	runBox   [1]*Turn[M]     // initial memory of running
	queueBox [2]*entry[M]    // initial memory of queue
	laneBox  [1]laneShare[M] // initial memory of byLane

	// The place in a line. If lane is set, the session is in its ready list and in the subqueue of
	// its principal there, and held is the principal whose place it holds for its next turn. If
	// only held is set, it waits for a place. A turn without a bound needs none.
	lane     *lane[M]
	subqueue *subqueue[M]
	held     *principal[M]
	links    [linkCount]link[M]
	readyAt  time.Duration

	// Until when it starts no turn, if it waits.
	waits  bool
	window bool // because a person may still be typing
	until  time.Duration
	alarm  uint64
	timer  *time.Timer

	// The token estimate.
	question  uint64
	estimate  estimateState
	forgetAsk context.CancelCauseFunc
}

// laneShare counts the waiting messages of a session in one lane and of one principal. Nearly every
// session has only one. The counts make it possible to remove ten thousand waiting messages without
// visiting each under the mutex.
type laneShare[M any] struct {
	lane  *lane[M]
	who   *principal[M]
	count int // 0: free for another lane or principal
}

// newSession creates a session with memory for its first waiting messages.
func newSession[M any]() *session[M] {
	x := &session[M]{}
	x.running = x.runBox[:0]
	x.recycle()
	return x
}

// recycle clears the conversation, except the numbers that guard against late timers and estimates.
func (x *session[M]) recycle() {
	clear(x.queueBox[:])
	x.key, x.queue, x.head, x.heard, x.bytes, x.byLane = "", x.queueBox[:0], 0, 0, 0, x.laneBox[:0]
}

func (x *session[M]) idle() bool { return len(x.running) == 0 && x.depth() == 0 }
func (x *session[M]) depth() int { return len(x.queue) - x.head }

// front is the message that starts next, nil when none waits.
func (x *session[M]) front() *entry[M] {
	if x.depth() == 0 {
		return nil
	}
	return x.queue[x.head]
}

// insert inserts a message at its position in the order and returns the number of messages before
// it. This is nearly always the end. A message that was overtaken between its acceptance and its
// submission goes before the later ones.
func (x *session[M]) insert(e *entry[M]) int {
	x.tidy()
	i := len(x.queue)
	for i > x.head && x.queue[i-1].item().Seq > e.item().Seq {
		i--
	}
	x.queue = slices.Insert(x.queue, i, e)
	x.account(e, 1)
	return i - x.head
}

// tidy bounds the memory of a session that is never idle: it empties the slice when nothing waits,
// and moves the waiting messages to the start of a full slice of which at least half has left. Its
// cost is constant per message.
func (x *session[M]) tidy() {
	if x.depth() == 0 {
		x.queue, x.head = x.queue[:0], 0
		return
	}
	if len(x.queue) < cap(x.queue) || x.head*2 < len(x.queue) {
		return
	}
	n := copy(x.queue, x.queue[x.head:])
	clear(x.queue[n:])
	x.queue, x.head = x.queue[:n], 0
}

// pop removes the first message.
func (x *session[M]) pop() *entry[M] {
	u := x.queue[x.head]
	x.queue[x.head] = nil
	x.head++
	x.account(u, -1)
	return u
}

// detach removes all waiting messages.
func (x *session[M]) detach() []*entry[M] {
	queue := x.queue[x.head:]
	if len(queue) <= len(x.queueBox) {
		queue = slices.Clone(queue) // it may be the session's own initial memory
	}
	if len(queue) > 0 {
		x.heard = min(x.heard, queue[0].item().Seq-1)
	}
	x.queue, x.head, x.bytes = nil, 0, 0 // the caller owns the slice now
	for _, share := range x.byLane {
		if share.count > 0 {
			share.add(-share.count)
		}
	}
	x.byLane = x.byLane[:0]
	return queue
}

// remove removes the message at index i of queue.
func (x *session[M]) remove(i int) {
	e := x.queue[i]
	x.queue = slices.Delete(x.queue, i, i+1)
	x.account(e, -1)
}

// account updates the numbers of waiting messages: by n messages like e; n may be negative.
func (x *session[M]) account(e *entry[M], n int) {
	x.bytes += n * e.item().Size
	free := -1
	for i := range x.byLane {
		share := &x.byLane[i]
		if share.count > 0 && share.lane == e.lane && share.who == e.who {
			share.count += n
			share.add(n)
			return
		}
		if share.count == 0 {
			free = i
		}
	}
	if free < 0 {
		free = len(x.byLane)
		x.byLane = append(x.byLane, laneShare[M]{})
	}
	x.byLane[free] = laneShare[M]{lane: e.lane, who: e.who, count: n}
	x.byLane[free].add(n)
}

// add changes the number of waiting messages of the lane and the principal by n, which may be
// negative.
func (c laneShare[M]) add(n int) {
	c.lane.messages += n
	c.who.messages += n
	if n < 0 {
		c.who.rest()
	}
}

// findSeq finds a waiting message by its sequence number.
func (x *session[M]) findSeq(seq int64) (int, *entry[M]) {
	waiting := x.queue[x.head:]
	i := sort.Search(len(waiting), func(i int) bool { return waiting[i].item().Seq >= seq })
	if i == len(waiting) || waiting[i].item().Seq != seq {
		return 0, nil
	}
	return x.head + i, waiting[i]
}

// find searches a waiting message, oldest first.
func (x *session[M]) find(match func(*entry[M]) bool) (int, *entry[M]) {
	for i := x.head; i < len(x.queue); i++ {
		if match(x.queue[i]) {
			return i, x.queue[i]
		}
	}
	return 0, nil
}

// ofRun searches a restarted run among the waiting messages and the turns of this generation.
func (x *session[M]) ofRun(id string) *entry[M] {
	if _, e := x.find(func(e *entry[M]) bool { return e.item().RunID == id }); e != nil {
		return e
	}
	for _, t := range x.running {
		if t.gen == x.gen && t.runID == id {
			return t.lead
		}
	}
	return nil
}

// runs searches a message in the turns of this generation. Turns of an older one are cancelled, and
// their messages may be submitted again.
func (x *session[M]) runs(seq int64) *entry[M] {
	for _, t := range x.running {
		if t.gen != x.gen {
			continue
		}
		if e := t.find(func(it *Item[M]) bool { return it.Seq == seq }); e != nil {
			return e
		}
	}
	return nil
}

// known finds the message if it already waits or runs, and assigns a number if it has none. A
// restarted run is also found by its id, because its caller may submit it with other messages than
// those that are present.
func (x *session[M]) known(it *Item[M]) *entry[M] {
	if it.RunID != "" {
		if e := x.ofRun(it.RunID); e != nil {
			return e
		}
	}
	if it.Seq == 0 {
		it.Seq = x.last + 1
	}
	if it.Seq > x.last {
		x.last = it.Seq
		return nil
	}
	if _, e := x.findSeq(it.Seq); e != nil {
		return e
	}
	return x.runs(it.Seq)
}

// leave removes the turn from the session's running ones.
func (x *session[M]) leave(t *Turn[M]) {
	if x.begins == t {
		x.begins = nil
	}
	for i, r := range x.running {
		if r == t {
			copy(x.running[i:], x.running[i+1:])
			x.running[len(x.running)-1] = nil
			x.running = x.running[:len(x.running)-1]
			return
		}
	}
}

// holds reports whether a turn that begins with the message waits for further ones. The store
// decides; to ask it earlier would be in vain.
func (x *session[M]) holds(it *Item[M]) bool {
	if !it.Typed || !it.merges() || x.set.Debounce <= 0 || x.set.BatchMessages == 1 {
		return false
	}
	switch x.set.Mode {
	case ModeInterrupt:
		return len(x.running) == 0
	case ModeCollect:
		return len(x.running) < x.set.MaxConcurrent
	case ModeSteer:
		return !x.takesInput()
	default:
		return true
	}
}

// breaks reports whether the message at index i ends the wait for further ones: it belongs to
// another turn than the one before it, or completes the batch.
func (x *session[M]) breaks(i int) bool {
	if x.set.cuts(x.depth(), x.bytes) {
		return true
	}
	if i == x.head {
		return false
	}
	a, b := x.queue[i-1].item(), x.queue[i].item()
	return !a.merges() || a.Sender != b.Sender || a.Thread != b.Thread || a.Lane != b.Lane || a.Seq+1 != b.Seq
}

// maxCutoffs bounds the memory for stopped sessions. A cutoff only matters shortly after a stop,
// while a message that was accepted before it may still arrive. Sixteen thousand later stops take
// much longer.
const maxCutoffs = 16_384

// cutoffs stores up to which sequence number the messages of a session are stale. It outlives the
// session's entry, because a message may arrive after all other work of its session has ended.
type cutoffs struct {
	at    map[string]int64
	order []string // a ring of keys, the oldest at next once it is full
	next  int
}

// of is the cutoff of a session, 0 when it has none.
func (c *cutoffs) of(key string) int64 {
	if len(c.at) == 0 {
		return 0
	}
	return c.at[key]
}

// set stores a cutoff and removes the oldest when there are too many.
func (c *cutoffs) set(key string, seq int64) {
	if c.at == nil {
		c.at = map[string]int64{}
	}
	_, known := c.at[key]
	c.at[key] = seq
	if known {
		return
	}
	if len(c.order) < maxCutoffs {
		c.order = append(c.order, key)
		return
	}
	delete(c.at, c.order[c.next])
	c.order[c.next] = key
	c.next = (c.next + 1) % maxCutoffs
}
