package scheduler

import (
	"context"
	"slices"
	"sort"
	"time"
)

// session is what is known of a conversation while something of it runs or waits. Every field is guarded by the
// scheduler's mutex. Sessions that went idle are kept in a small pool, so window and question only ever grow: a timer or an
// estimate that comes late finds another number and does nothing.
type session[M any] struct {
	key      string
	set      Settings // of the last message that was submitted
	gen      uint64
	last     int64 // highest sequence number seen
	running  []*Turn[M]
	begins   *Turn[M]    // started last and has not begun yet: the next turn of the session waits for that, and takes no slot
	units    []*entry[M] // waiting, in order of sequence; units[:head] has left
	head     int
	waiting  int  // messages in units
	disorder bool // a late message stands between those of a unit: a binary search would miss messages
	byLane   []laneShare[M]
	runBox   [1]*Turn[M]     // first memory of running
	unitsBox [2]*entry[M]    // first memory of units
	laneBox  [1]laneShare[M] // first memory of byLane

	// The place in a line. With a lane set, the session stands in its ready list and in the subqueue of its principal there. held is then the
	// principal whose place it holds for its next turn. With held alone it waits for a place. A turn without a bound needs none.
	lane     *lane[M]
	subqueue *subqueue[M]
	held     *principal[M]
	links    [linkCount]link[M]
	readyAt  time.Duration

	// The debounce window of the last unit, when that one is open.
	window   uint64
	timer    *time.Timer
	deadline time.Duration // end of the debounce time, moved by each message
	hold     time.Duration // end of the maximum hold, never moved

	// The token estimate.
	question  uint64
	estimate  estimateState
	forgetAsk context.CancelCauseFunc
}

// laneShare counts the waiting messages of a session in one lane and of one principal. Nearly every session has one of these only; the
// counts make it possible to take ten thousand waiting messages away without looking at each under the mutex.
type laneShare[M any] struct {
	lane  *lane[M]
	who   *principal[M]
	count int // 0: free for another lane or principal
}

// newSession makes a session that needs no more memory for its first waiting messages.
func newSession[M any]() *session[M] {
	x := &session[M]{}
	x.running = x.runBox[:0]
	x.recycle()
	return x
}

// recycle forgets the conversation. What guards against late timers and answers stays.
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

// back is the unit that waits last; one must be waiting.
func (x *session[M]) back() *entry[M] { return x.units[len(x.units)-1] }

// insert puts the unit of one message at its place in the order and returns how many messages stand before it. Nearly
// always that is the end. A message that was overtaken between its acceptance and its submission goes before the later ones.
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

// tidy bounds the memory of a session that is never idle: it empties the slice when nothing waits, and moves what waits to the start of a
// slice that is full and of which at least half has left. Its cost is constant per message.
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

// pop takes the first unit away.
func (x *session[M]) pop() *entry[M] {
	u := x.units[x.head]
	x.units[x.head] = nil
	x.head++
	for e := u; e != nil; e = e.next {
		x.account(e, -1)
	}
	return u
}

// detach takes all units away.
func (x *session[M]) detach() []*entry[M] {
	units := x.units[x.head:]
	if len(units) <= len(x.unitsBox) {
		units = slices.Clone(units) // it may be the session's own first memory
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

// remove takes one message out of the unit at index i of units.
func (x *session[M]) remove(i int, e *entry[M]) {
	if left := x.units[i].without(e); left != nil {
		x.units[i] = left
	} else {
		x.units = slices.Delete(x.units, i, i+1)
	}
	x.account(e, -1)
}

// account keeps the numbers of waiting messages: n more like e, or fewer.
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

// add counts n waiting messages more, or fewer, for the lane and the principal.
func (c laneShare[M]) add(n int) {
	c.lane.messages += n
	c.who.messages += n
	if n < 0 {
		c.who.rest()
	}
}

// findSeq looks a waiting message up by its sequence number.
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

// find looks for a waiting message, oldest first.
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

// ofRun looks for a run that begins again among what waits and among the turns of this generation.
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

// runs looks for a message in the turns of this generation. Turns of an older one are cancelled, and their messages
// may be submitted again.
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

// known finds the message if it waits or runs already, and gives it a number if it has none. A run that begins again is found by its id as
// well, because its caller may submit it with other messages than those that are here.
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

// leave takes the turn out of the session's running ones.
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
