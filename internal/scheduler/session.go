package scheduler

import (
	"context"
	"slices"
	"sort"
	"time"
)

// session is the state of a conversation while it has running or waiting work. Every field is
// guarded by the scheduler's mutex. Idle sessions are kept in a small pool, so window and question
// only ever grow: a late timer or estimate finds another number and does nothing.
type session[M any] struct {
	key      string
	set      Settings // of the last submitted message
	gen      uint64
	last     int64 // highest sequence number seen
	running  []*Turn[M]
	begins   *Turn[M]    // started last and has not begun yet: the next turn of the session waits for that, without a slot
	units    []*entry[M] // waiting, in order of sequence; units[:head] have left
	head     int
	waiting  int  // messages in units
	disorder bool // a late message lies between those of a unit: a binary search would miss messages
	byLane   []laneShare[M]
	runBox   [1]*Turn[M]     // initial memory of running
	unitsBox [2]*entry[M]    // initial memory of units
	laneBox  [1]laneShare[M] // initial memory of byLane

	// The place in a line. If lane is set, the session is in its ready list and in the subqueue of
	// its principal there, and held is the principal whose place it holds for its next turn. If
	// only held is set, it waits for a place. A turn without a bound needs none.
	lane     *lane[M]
	subqueue *subqueue[M]
	held     *principal[M]
	links    [linkCount]link[M]
	readyAt  time.Duration

	// The debounce window of the last unit, if it is open.
	window   uint64
	timer    *time.Timer
	deadline time.Duration // end of the debounce time; each message moves it
	hold     time.Duration // end of the maximum hold; never moved

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
	clear(x.unitsBox[:])
	x.key, x.units, x.head, x.byLane = "", x.unitsBox[:0], 0, x.laneBox[:0]
}

func (x *session[M]) idle() bool    { return len(x.running) == 0 && x.depth() == 0 }
func (x *session[M]) depth() int    { return len(x.units) - x.head }
func (x *session[M]) buffers() bool { return x.depth() > 0 && x.back().open }

// front is the unit that starts next, nil when none waits.
func (x *session[M]) front() *entry[M] {
	if x.depth() == 0 {
		return nil
	}
	return x.units[x.head]
}

// back is the last waiting unit; one must be waiting.
func (x *session[M]) back() *entry[M] { return x.units[len(x.units)-1] }

// insert inserts the unit of one message at its position in the order and returns the number of
// messages before it. This is nearly always the end. A message that was overtaken between its
// acceptance and its submission goes before the later ones.
func (x *session[M]) insert(e *entry[M]) int {
	x.tidy()
	before := x.waiting
	i := len(x.units)
	for i > x.head && x.units[i-1].item().Seq > e.item().Seq {
		i--
		before -= x.units[i].count
	}
	if i > x.head && x.units[i-1].last.item().Seq > e.item().Seq {
		x.disorder = true
	}
	x.units = slices.Insert(x.units, i, e)
	x.account(e, 1)
	return before
}

// tidy bounds the memory of a session that is never idle: it empties the slice when nothing waits,
// and moves the waiting units to the start of a full slice of which at least half has left. Its
// cost is constant per message.
func (x *session[M]) tidy() {
	if x.depth() == 0 {
		x.units, x.head, x.disorder = x.units[:0], 0, false
		return
	}
	if len(x.units) < cap(x.units) || x.head*2 < len(x.units) {
		return
	}
	n := copy(x.units, x.units[x.head:])
	clear(x.units[n:])
	x.units, x.head = x.units[:n], 0
}

// pop removes the first unit.
func (x *session[M]) pop() *entry[M] {
	u := x.units[x.head]
	x.units[x.head] = nil
	x.head++
	for e := u; e != nil; e = e.next {
		x.account(e, -1)
	}
	return u
}

// detach removes all units.
func (x *session[M]) detach() []*entry[M] {
	units := x.units[x.head:]
	if len(units) <= len(x.unitsBox) {
		units = slices.Clone(units) // it may be the session's own initial memory
	}
	x.units, x.head, x.waiting, x.disorder = nil, 0, 0, false // the caller owns the slice now
	for _, share := range x.byLane {
		if share.count > 0 {
			share.add(-share.count)
		}
	}
	x.byLane = x.byLane[:0]
	return units
}

// remove removes one message from the unit at index i of units.
func (x *session[M]) remove(i int, e *entry[M]) {
	if left := x.units[i].without(e); left != nil {
		x.units[i] = left
	} else {
		x.units = slices.Delete(x.units, i, i+1)
	}
	x.account(e, -1)
}

// account updates the numbers of waiting messages: by n messages like e; n may be negative.
func (x *session[M]) account(e *entry[M], n int) {
	x.waiting += n
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
	if x.disorder {
		return x.find(func(e *entry[M]) bool { return e.item().Seq == seq })
	}
	waiting := x.units[x.head:]
	i := sort.Search(len(waiting), func(i int) bool { return waiting[i].last.item().Seq >= seq })
	if i == len(waiting) {
		return 0, nil
	}
	for e := waiting[i]; e != nil; e = e.next {
		if e.item().Seq == seq {
			return x.head + i, e
		}
	}
	return 0, nil
}

// find searches a waiting message, oldest first.
func (x *session[M]) find(match func(*entry[M]) bool) (int, *entry[M]) {
	for i := x.head; i < len(x.units); i++ {
		for e := x.units[i]; e != nil; e = e.next {
			if match(e) {
				return i, e
			}
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

// debounces reports whether the message that was just appended waits for the window. The window
// merges messages that a person types. It is not opened if it could not merge or would only delay:
// when the message interrupts, is steered into a running turn, or will be collected with others
// anyway.
func (x *session[M]) debounces(it *Item[M]) bool {
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

// joins reports whether the message belongs to the open window of its session: same sender, same
// thread, same lane, and the batch is not full. An overtaken message does not join, because its
// position is earlier.
func (x *session[M]) joins(it *Item[M], l *lane[M]) bool {
	if !x.buffers() || !x.debounces(it) {
		return false
	}
	u := x.back()
	last := u.last.item()
	if last.Sender != it.Sender || last.Thread != it.Thread || u.lane != l || last.Seq > it.Seq {
		return false
	}
	return x.set.BatchBytes < 0 || u.bytes+it.Size <= x.set.BatchBytes
}

// collect adds every waiting message that may share its turn to the unit, which is about to start
// (mode collect, and messages that gather).
func (x *session[M]) collect(u *entry[M]) {
	for next := x.front(); next != nil && x.collects(u, next); next = x.front() {
		u.join(x.pop())
	}
}

// collects reports whether next may share the turn of u. Only bytes limit a collected turn, because
// the store already limits the number of waiting messages.
func (x *session[M]) collects(u, next *entry[M]) bool {
	a, b := u.last.item(), next.item()
	if next.open || !a.merges() || !b.merges() || a.Thread != b.Thread || u.lane != next.lane || a.Gathers != b.Gathers {
		return false
	}
	if a.Gathers && a.Sender != b.Sender {
		return false
	}
	return x.set.BatchBytes < 0 || u.bytes+next.bytes <= x.set.BatchBytes
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
