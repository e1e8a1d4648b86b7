package scheduler

import (
	"cmp"
	"iter"
	"log/slog"
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

// Stats is the state of the scheduler at one moment. The numbers are consistent: Accepted is the
// sum of Outcomes, Sessions.Waiting and Sessions.Undecided.
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
			Stuck: c.turns.stuck,
		},
	}
	for x := range c.queues.typing {
		stats.Sessions.Debouncing += x.depth()
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

// Progress is for a health check: how long some lane has had a free slot and a ready session
// without a start. It is 0 when the scheduler works, because a ready session gets a free slot
// before the mutex is released.
func (s *Scheduler[M]) Progress() time.Duration {
	now := s.now()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.core.draining {
		return 0
	}
	return s.core.lanes.stalled(now)
}

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
	// Position counts from 1: for WaitLane the position among the ready sessions of the lane, in
	// the order in which they start if nothing else arrives, turns that return from Yield first;
	// for WaitSession the position among the waiting messages of the session. Otherwise 0.
	Position int
	// Left is how long the debounce window stays open if nothing else arrives; 0 for other causes.
	Left time.Duration
	// BlockedBy is the turn that runs in the session, for WaitSession; "" when none runs.
	BlockedBy string
}

// Waits returns what the waiting messages of sessions wait for, by session, in the order of the
// queue. Sessions without waiting messages are omitted. It takes time in proportion to the messages
// that wait in these sessions and to the ready sessions of their lanes.
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

// waits lists the waiting messages of a session. places are the positions in the lane whose ready
// list contains it.
func (c *core[M]) waits(x *session[M], places map[*session[M]]int, now time.Duration) (list []Wait) {
	blocker := ""
	if len(x.running) > 0 {
		blocker = x.running[0].runID
	}
	for i, e := range x.queue[x.head:] {
		w := Wait{Cause: WaitSession, Position: i + 1, BlockedBy: blocker}
		switch {
		case c.draining:
			w = Wait{Cause: WaitDrain}
		case x.window:
			w = Wait{Cause: WaitDebounce, Left: max(x.until-now, 0)}
		case i > 0:
		case x.lane != nil:
			w = Wait{Cause: WaitLane, Position: places[x]}
		case x.held != nil:
			w = Wait{Cause: WaitPrincipal}
		}
		w.ID = e.item().ID
		list = append(list, w)
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

// order is the sequence of results of next when nothing else arrives: the principals take turns,
// beginning with one that was not the last.
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

// Observer counts events for metrics. Its arguments come from closed sets: the names of lanes,
// outcomes and refusals. Many goroutines call its methods concurrently, outside every lock; a slow
// one delays the call or the turn that caused the event. Values that can be computed from the state
// are in Stats instead.
type Observer interface {
	// MessageRefused: Submit returned an error.
	MessageRefused(why Refusal)
	// MessageEnded: a message ended without leading a turn.
	MessageEnded(lane string, o Outcome)
	// TurnStarted: a turn got its slot; waited is the time since its first message was accepted.
	TurnStarted(lane string, waited time.Duration)
	// TurnEnded: the outcome of a turn, and of its leading message, was decided. A stuck turn may
	// return afterwards.
	TurnEnded(lane string, o Outcome, ran time.Duration)
	// TurnStuck: a cancelled turn has not returned within the grace.
	TurnStuck(lane string)
	// LaneUnknown: a message named a lane that does not exist, and falls back to main.
	LaneUnknown()
}

// NopObserver does nothing. Embed it to implement a part of Observer.
type NopObserver struct{}

var _ Observer = NopObserver{}

// MessageRefused does nothing.
func (NopObserver) MessageRefused(Refusal) {}

// MessageEnded does nothing.
func (NopObserver) MessageEnded(string, Outcome) {}

// TurnStarted does nothing.
func (NopObserver) TurnStarted(string, time.Duration) {}

// TurnEnded does nothing.
func (NopObserver) TurnEnded(string, Outcome, time.Duration) {}

// TurnStuck does nothing.
func (NopObserver) TurnStuck(string) {}

// LaneUnknown does nothing.
func (NopObserver) LaneUnknown() {}

// Refusal is why Submit returned an error. The set is closed.
type Refusal string

// The refusals.
const (
	RefusedStale    Refusal = "stale"
	RefusedDraining Refusal = "draining"
	RefusedInvalid  Refusal = "invalid"
)

// Refusals lists every refusal.
func Refusals() []Refusal {
	return []Refusal{RefusedStale, RefusedDraining, RefusedInvalid}
}

// refusalCount is the number of refusals.
const refusalCount = 3

// index is the index of the refusal in a table of counters.
func (r Refusal) index() int {
	switch r {
	case RefusedStale:
		return 0
	case RefusedDraining:
		return 1
	default:
		return 2
	}
}

// reporter publishes decisions: it completes tickets, calls the Observer and logs. Its methods are
// called without the mutex, by many goroutines concurrently. The fields of a turn or an entry that
// they read do not change after the decision.
type reporter[M any] struct {
	obs Observer
	log *slog.Logger
}

// started reports a turn that got its slot. The messages before the leading one end merged into it.
func (r *reporter[M]) started(t *Turn[M]) {
	r.obs.TurnStarted(t.lane.Name, t.Waited())
	if t.first == t.lead {
		return
	}
	err := &MergedError{RunID: t.runID}
	for e := t.first; e != t.lead; e = e.next {
		e.ticket.complete(OutcomeMerged, err)
		r.obs.MessageEnded(t.lane.Name, OutcomeMerged)
	}
}

// taken completes the ticket of a message that the turn took as input, and adds it to items.
func (r *reporter[M]) taken(t *Turn[M], u *entry[M], merged error, items []Item[M]) []Item[M] {
	u.ticket.complete(OutcomeMerged, merged)
	r.obs.MessageEnded(t.lane.Name, OutcomeMerged)
	return append(items, *u.item())
}

// turnEnded reports the decided outcome of a turn and of its leading message.
func (r *reporter[M]) turnEnded(t *Turn[M], now time.Duration) {
	t.lead.ticket.complete(t.outcome, t.err)
	r.obs.TurnEnded(t.lane.Name, t.outcome, now-t.started)
}

// turnStuck reports a cancelled turn that has not returned within its grace.
func (r *reporter[M]) turnStuck(t *Turn[M], grace time.Duration) {
	r.log.Warn("turn ignores its cancelled context", slog.String("session", t.Session()), slog.String("run_id", t.runID),
		slog.String("lane", t.lane.Name), slog.Duration("grace", grace))
	r.obs.TurnStuck(t.lane.Name)
}

// unknownLane counts a message for a lane that does not exist. Each name is logged once; name is
// empty on later calls.
func (r *reporter[M]) unknownLane(name string) {
	r.obs.LaneUnknown()
	if name != "" {
		r.log.Warn("unknown lane, using main", slog.String("lane", name))
	}
}

// ended completes the tickets of messages that ended without a turn and lists them, oldest first.
func (r *reporter[M]) ended(gone []goneUnits[M]) []Ended[M] {
	n := 0
	for _, g := range gone {
		n += len(g.units)
	}
	if n == 0 {
		return nil
	}
	ended := make([]Ended[M], 0, n)
	for _, g := range gone {
		for _, u := range g.units {
			u.ticket.complete(g.outcome, g.err)
			r.obs.MessageEnded(u.lane.Name, g.outcome)
			ended = append(ended, Ended[M]{Item: *u.item(), Outcome: g.outcome, Err: g.err})
		}
	}
	return ended
}
