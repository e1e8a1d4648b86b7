package scheduler

import (
	"iter"
	"time"
)

// WaitCause is what a waiting message needs before its turn can start.
type WaitCause string

// The causes of waiting.
const (
	WaitDebounce  WaitCause = "debounce"  // its debounce window is open
	WaitSession   WaitCause = "session"   // its session: turns run, or earlier messages wait
	WaitLane      WaitCause = "lane"      // a free slot of its lane
	WaitPrincipal WaitCause = "principal" // its principal already has Config.PrincipalTurns turns
	WaitDrain     WaitCause = "drain"     // the scheduler drains and starts nothing more
)

// Wait is one waiting message.
type Wait struct {
	// ID is the id of the message.
	ID    string
	Cause WaitCause
	// Position counts from 1: for WaitLane the position among the ready sessions of the lane, in the order in which they start if nothing else arrives, turns
	// that return from Yield first; for WaitSession the position among the waiting units of the session. Otherwise 0.
	Position int
	// Left is how long the debounce window stays open if nothing else arrives; 0 for other causes.
	Left time.Duration
	// BlockedBy is the turn that runs in the session, for WaitSession; "" when none runs.
	BlockedBy string
}

// Waits returns what the waiting messages of sessions wait for, by session, in the order of the queue. Sessions without waiting messages are omitted. It takes
// time in proportion to the messages that wait in these sessions and to the ready sessions of their lanes.
func (s *Scheduler[M]) Waits(keys []string) map[string][]Wait {
	now := s.now()
	s.mu.Lock()
	defer s.mu.Unlock()
	all := map[string][]Wait{}
	places := map[*lane[M]]map[*session[M]]int{}
	for _, key := range keys {
		x := s.core.queues.byKey[key]
		if x == nil || x.depth() == 0 || all[key] != nil {
			continue
		}
		if x.lane != nil && places[x.lane] == nil {
			places[x.lane] = x.lane.places()
		}
		all[key] = s.core.waits(x, places[x.lane], now)
	}
	return all
}

// waits lists the waiting messages of a session. places are the positions in the lane whose ready list contains it.
func (c *core[M]) waits(x *session[M], places map[*session[M]]int, now time.Duration) (list []Wait) {
	blocker := ""
	if len(x.running) > 0 {
		blocker = x.running[0].runID
	}
	for i, u := range x.units[x.head:] {
		w := Wait{Cause: WaitSession, Position: i + 1, BlockedBy: blocker}
		switch {
		case c.draining:
			w = Wait{Cause: WaitDrain}
		case u.open:
			w = Wait{Cause: WaitDebounce, Left: max(x.deadline-now, 0)}
		case i > 0:
		case x.lane != nil:
			w = Wait{Cause: WaitLane, Position: places[x]}
		case x.held != nil:
			w = Wait{Cause: WaitPrincipal}
		}
		for e := u; e != nil; e = e.next {
			w.ID = e.item().ID
			list = append(list, w)
		}
	}
	return list
}

// places numbers the ready sessions in the order in which they start.
func (l *lane[M]) places() map[*session[M]]int {
	places := make(map[*session[M]]int, l.ready.count)
	for x := range l.order() {
		places[x] = len(l.returning) + len(places) + 1
	}
	return places
}

// order is the sequence of results of next when nothing else arrives: the principals take turns, beginning with one that was not the last.
func (l *lane[M]) order() iter.Seq[*session[M]] {
	return func(yield func(*session[M]) bool) {
		var heads []*session[M]
		for t := l.ring.head; t != nil; t = t.next {
			heads = append(heads, t.ready.head)
		}
		if len(heads) > 1 && l.ring.head.who.name == l.last {
			heads = append(heads[1:], heads[0])
		}
		for len(heads) > 0 {
			left := heads[:0]
			for _, x := range heads {
				if !yield(x) {
					return
				}
				if next := x.links[inSubqueue].next; next != nil {
					left = append(left, next)
				}
			}
			heads = left
		}
	}
}
