package scheduler

import (
	"cmp"
	"slices"
	"time"
)

// tally counts events since the start. The part that owns the current state counts that state.
type tally struct {
	accepted int
	turns    int
	outcomes [outcomeCount]int
	refused  [refusalCount]int
	dropped  int
	cleared  int
}

// Stats is the state of the scheduler at one moment. The numbers are consistent: Accepted is the sum of Outcomes, Sessions.Waiting and Sessions.Undecided.
type Stats struct {
	// Lanes are ordered by name.
	Lanes    []LaneStats
	Sessions SessionTotals
	Drops    DropStats
	// Accepted counts the messages that got a ticket.
	Accepted uint64
	// Turns counts the turns that were started.
	Turns uint64
	// Outcomes counts the ends of accepted messages. Every outcome is present.
	Outcomes map[Outcome]uint64
	// Refused counts the errors of Submit. Every refusal is present.
	Refused map[Refusal]uint64
	// UnknownLanes counts messages for a lane that does not exist.
	UnknownLanes uint64
	// Principals counts the principals with a waiting message or a bounded turn.
	Principals int
	// Draining is true when new messages are refused.
	Draining bool
	// Generation is the number of resets plus one.
	Generation uint64
}

// LaneStats is the state of one lane. Capacity is Active plus the free slots, except while a shrunk lane still has more active turns than slots.
type LaneStats struct {
	Name     string
	Capacity int
	// Active slots, including those of stopping turns.
	Active int
	// Stopping is how many active turns were cancelled.
	Stopping int
	// Yielded turns have temporarily released their slot.
	Yielded int
	// Ready is how many sessions, and turns that return from Yield, could start if a slot were free.
	Ready int
	// Waiting messages, ready or not.
	Waiting int
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
	// Waiting messages, including those in debounce windows.
	Waiting int
	// Debouncing messages are in an open window.
	Debouncing int
}

// DropStats counts messages that were not answered because of the queue's rules.
type DropStats struct {
	// Old: ended by Drop. Stale: refused by a cutoff. Cleared: returned to the caller by a reset.
	Old, Stale, Cleared uint64
}

// Stats reports the state. Its cost is proportional to the number of lanes, not of sessions.
func (s *Scheduler[M]) Stats() Stats {
	now := s.now()
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.core.stats(now)
}

// stats is the state of all parts at one moment.
func (c *core[M]) stats(now time.Duration) Stats {
	stats := Stats{
		UnknownLanes: total(c.lanes.fellBack), Draining: c.draining, Generation: c.queues.gen, Principals: len(c.principals.byName),
		Sessions: SessionTotals{
			Tracked: len(c.queues.byKey), Running: c.turns.running, Undecided: c.turns.running - c.turns.discarded,
			Stuck: c.turns.stuck, Debouncing: c.queues.debouncing,
		},
	}
	c.tally.report(&stats)
	for _, l := range c.lanes.byName {
		stats.Lanes = append(stats.Lanes, l.stats(now))
		stats.Sessions.Waiting += l.messages
	}
	slices.SortFunc(stats.Lanes, func(a, b LaneStats) int { return cmp.Compare(a.Name, b.Name) })
	return stats
}

// report copies the counters into stats.
func (t *tally) report(stats *Stats) {
	stats.Accepted, stats.Turns = total(t.accepted), total(t.turns)
	stats.Outcomes = make(map[Outcome]uint64, outcomeCount)
	for _, o := range Outcomes() {
		stats.Outcomes[o] = total(t.outcomes[o.index()])
	}
	stats.Refused = make(map[Refusal]uint64, refusalCount)
	for _, r := range Refusals() {
		stats.Refused[r] = total(t.refused[r.index()])
	}
	stats.Drops = DropStats{Old: total(t.dropped), Stale: total(t.refused[RefusedStale.index()]), Cleared: total(t.cleared)}
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

// WaitingOf is the number of waiting messages of a principal, including those in debounce windows.
func (s *Scheduler[M]) WaitingOf(name string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if who, ok := s.core.principals.byName[name]; ok {
		return who.messages
	}
	return 0
}

// Progress is for a health check: how long some lane has had a free slot and a ready session without a start. It is 0 when the scheduler works, because a ready
// session gets a free slot before the mutex is released.
func (s *Scheduler[M]) Progress() time.Duration {
	now := s.now()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.core.draining {
		return 0
	}
	return s.core.lanes.stalled(now)
}
