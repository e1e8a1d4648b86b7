package scheduler

import (
	"cmp"
	"iter"
	"slices"
	"time"
)

// Stats is the state of the scheduler at one moment.
type Stats struct {
	// Lanes are ordered by name.
	Lanes    []LaneStats
	Sessions SessionTotals
	// UnknownLanes counts the times that a lane did not exist.
	UnknownLanes uint64
	// Cleared counts waiting messages that a reset or a drain has left to the store.
	Cleared uint64
	// Principals counts the principals with a ready session or a bounded turn.
	Principals int
	// Draining is true when nothing new is started.
	Draining bool
	// Generation is the number of resets plus one.
	Generation uint64
}

// LaneStats is the state of one lane. Capacity is Active plus the free slots, except while a shrunk
// lane still has more active turns than slots.
type LaneStats struct {
	Name     string
	Capacity int
	// Active slots, including those of stopping turns.
	Active int
	// Stopping is how many active turns were cancelled.
	Stopping int
	// Yielded turns have temporarily released their slot.
	Yielded int
	// Ready is how many sessions, and turns that return from Yield, could start if a slot were
	// free.
	Ready int
	// OldestWait is how long the first of the ready sessions has been ready.
	OldestWait time.Duration
	// Started = Finished + running turns without an outcome.
	Started uint64
	// Finished turns, by the kind of their end: Answered + Failed + Cancelled.
	Finished, Answered, Failed, Cancelled uint64
}

// SessionTotals are totals over all sessions.
type SessionTotals struct {
	// Tracked sessions have running or waiting work.
	Tracked int
	// Running turns.
	Running int
	// Undecided turns run and have no outcome yet: all but those that were given up as stuck.
	Undecided int
	// Stuck turns were cancelled longer ago than the grace.
	Stuck int
	// Waiting messages, including those in debounce windows, as far as the scheduler knows.
	Waiting int
	// Debouncing messages are in an open window.
	Debouncing int
}

// Stats reports the state. Its cost is proportional to the number of lanes, not of sessions.
func (s *Scheduler) Stats() Stats {
	now := s.now()
	s.mu.Lock()
	defer s.mu.Unlock()
	c := &s.core
	stats := Stats{
		UnknownLanes: total(c.lanes.fellBack), Cleared: total(c.cleared), Draining: c.draining, Generation: c.queues.gen, Principals: len(c.principals.byName),
		Sessions: SessionTotals{
			Tracked: len(c.queues.byKey), Running: c.turns.running, Undecided: c.turns.running - c.turns.discarded,
			Stuck: c.turns.stuck, Waiting: c.queues.waiting,
		},
	}
	for x := range c.queues.typing {
		stats.Sessions.Debouncing += x.waiting
	}
	for _, l := range c.lanes.byName {
		stats.Lanes = append(stats.Lanes, l.stats(now))
	}
	slices.SortFunc(stats.Lanes, func(a, b LaneStats) int { return cmp.Compare(a.Name, b.Name) })
	return stats
}

// total converts a non-negative number into a counter.
func total(n int) uint64 { return uint64(n) } //nolint:gosec // never negative

// Lane returns the state of one lane; false when no lane has this name.
func (s Stats) Lane(name string) (LaneStats, bool) {
	i := slices.IndexFunc(s.Lanes, func(l LaneStats) bool { return l.Name == name })
	if i < 0 {
		return LaneStats{}, false
	}
	return s.Lanes[i], true
}

// Progress is for a health check: how long some lane has had a free slot and a ready session
// without a start. It is 0 when the scheduler works, because a ready session gets a free slot
// before the mutex is released.
func (s *Scheduler) Progress() time.Duration {
	now := s.now()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.core.draining {
		return 0
	}
	return s.core.lanes.stalled(now)
}

// WaitCause is what a session needs before its next turn can start.
type WaitCause string

// The causes of waiting.
const (
	WaitDebounce  WaitCause = "debounce"  // its debounce window is open
	WaitSession   WaitCause = "session"   // its turns
	WaitLane      WaitCause = "lane"      // a free slot of its lane
	WaitPrincipal WaitCause = "principal" // its principal already has Config.PrincipalTurns turns
)

// Wait is what the first waiting message of a session waits for.
type Wait struct {
	Cause WaitCause
	// Position counts from 1: for WaitLane the position among the ready sessions of the lane, in
	// the order in which they start if nothing else arrives, turns that return from Yield first.
	// Otherwise 0.
	Position int
	// Left is how long the debounce window stays open if nothing else arrives; 0 for other causes.
	Left time.Duration
	// BlockedBy is the turn that runs in the session; "" when none runs.
	BlockedBy string
}

// Waits returns what sessions wait for. Sessions in which nothing waits are omitted. It takes time
// in proportion to the ready sessions of their lanes.
func (s *Scheduler) Waits(keys []string) map[string]Wait {
	now := s.now()
	s.mu.Lock()
	defer s.mu.Unlock()
	all := map[string]Wait{}
	places := map[*lane]map[*session]int{}
	for _, key := range keys {
		x := s.core.queues.byKey[key]
		if x == nil || x.front == nil {
			continue
		}
		w := Wait{Cause: WaitSession}
		switch {
		case x.window:
			w.Cause, w.Left = WaitDebounce, max(x.until-now, 0)
		case x.lane != nil:
			if places[x.lane] == nil {
				places[x.lane] = x.lane.places()
			}
			w.Cause, w.Position = WaitLane, places[x.lane][x]
		case x.held != nil:
			w.Cause = WaitPrincipal
		}
		if len(x.running) > 0 {
			w.BlockedBy = x.running[0].runID
		}
		all[key] = w
	}
	return all
}

// places numbers the ready sessions in the order in which they start.
func (l *lane) places() map[*session]int {
	places := make(map[*session]int, l.ready.count)
	for x := range l.order() {
		places[x] = len(l.returning) + len(places) + 1
	}
	return places
}

// order is the sequence of results of next when nothing else arrives: the principals take turns,
// beginning with one that was not the last.
func (l *lane) order() iter.Seq[*session] {
	return func(yield func(*session) bool) {
		var heads []*session
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

// Observer counts events for metrics. Its arguments come from closed sets. Many goroutines call its
// methods concurrently, outside every lock; a slow one delays the call or the turn that caused the
// event. Values that can be computed from the state are in Stats instead.
type Observer interface {
	// TurnStuck: a cancelled turn has not returned within the grace.
	TurnStuck(lane string)
	// LaneUnknown: a message named a lane that does not exist, and falls back to main.
	LaneUnknown()
}

// NopObserver does nothing.
type NopObserver struct{}

var _ Observer = NopObserver{}

// TurnStuck does nothing.
func (NopObserver) TurnStuck(string) {}

// LaneUnknown does nothing.
func (NopObserver) LaneUnknown() {}
