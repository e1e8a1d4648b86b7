package scheduler

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// tally are the counters of the scheduler, guarded by its mutex.
type tally struct {
	accepted     int
	turns        int
	outcomes     [outcomeCount]int
	refused      [refusalCount]int
	dropped      int
	cleared      int
	unknownLanes int

	running    int // turns
	stuck      int // running turns past their grace
	discarded  int // running turns whose outcome is decided
	debouncing int // messages in open windows
}

// State is what a session or a turn is doing.
type State string

// The states. A session that does none of this is not tracked.
const (
	// StateQueued: nothing runs, something waits.
	StateQueued State = "queued"
	// StateRunning: at least one turn runs and was not cancelled.
	StateRunning State = "running"
	// StateStopping: every running turn was cancelled and has not returned yet.
	StateStopping State = "stopping"
)

// Stats is the state of the scheduler at one moment. The numbers fit together: Accepted is the sum of Outcomes,
// Sessions.Waiting and Sessions.Undecided.
type Stats struct {
	// Lanes are in order of their names.
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
	// Principals is how many principals have a message that waits, or a bounded turn.
	Principals int
	// Draining says that new messages are refused.
	Draining bool
	// Generation is the number of resets plus one.
	Generation uint64
}

// LaneStats is the state of one lane. Capacity is Active plus the free slots, except while a lane that was made smaller still has
// more active turns than slots.
type LaneStats struct {
	Name     string
	Capacity int
	// Active slots, those of stopping turns included.
	Active int
	// Stopping is how many active turns were cancelled.
	Stopping int
	// Yielded turns have given their slot back for a while.
	Yielded int
	// Ready is how many sessions, and turns that return from Yield, could start if a slot were free.
	Ready int
	// Waiting messages, ready or not.
	Waiting int
	// OldestWait is how long the first of the ready sessions has been ready.
	OldestWait time.Duration
	// Started = Finished + those that run without an outcome.
	Started uint64
	// Finished turns, by the kind of their end: Answered + Failed + Cancelled.
	Finished, Answered, Failed, Cancelled uint64
}

// SessionTotals counts over all sessions.
type SessionTotals struct {
	// Tracked sessions have something running or waiting.
	Tracked int
	// Running turns.
	Running int
	// Undecided turns run and have no outcome yet: all but those that were given up as stuck.
	Undecided int
	// Stuck turns were cancelled longer than the grace ago.
	Stuck int
	// Waiting messages, those in debounce windows included.
	Waiting int
	// Debouncing messages are in an open window.
	Debouncing int
}

// DropStats counts messages that were not answered because of the queue's rules.
type DropStats struct {
	// Old: ended by Drop. Stale: refused by a cutoff. Cleared: returned to the caller by a reset.
	Old, Stale, Cleared uint64
}

// SessionStats is the state of one session.
type SessionStats struct {
	State State
	// Settings are those of the last submitted message.
	Settings Settings
	// Waiting messages, those in the debounce window included; Turns is how many turns they will be at most.
	Waiting, Turns int
	// Debouncing messages are in the open window.
	Debouncing int
	// Running turns, oldest first.
	Running []RunStats
}

// RunStats is the state of one running turn.
type RunStats struct {
	RunID, Session, Lane string
	State                State
	// Stuck says that the grace after the cancellation is over.
	Stuck bool
	// Yielded says that the turn has given its slot back for a while.
	Yielded bool
	// Running is the time since the start.
	Running time.Duration
	// Messages of the turn, those that came in mid-turn not included.
	Messages int
}

// Stats reports the state. It takes time in proportion to the number of lanes, not of sessions.
func (s *Scheduler[M]) Stats() Stats {
	now := s.now()
	s.mu.Lock()
	defer s.mu.Unlock()
	stats := Stats{
		Accepted: total(s.tally.accepted), Turns: total(s.tally.turns), UnknownLanes: total(s.tally.unknownLanes),
		Draining: s.draining, Generation: s.gen, Principals: len(s.principals.byName),
		Outcomes: make(map[Outcome]uint64, outcomeCount), Refused: make(map[Refusal]uint64, refusalCount),
		Drops: DropStats{
			Old:   total(s.tally.dropped),
			Stale: total(s.tally.refused[RefusedStale.index()]), Cleared: total(s.tally.cleared),
		},
		Sessions: SessionTotals{
			Tracked: len(s.sessions), Running: s.tally.running, Undecided: s.tally.running - s.tally.discarded,
			Stuck: s.tally.stuck, Debouncing: s.tally.debouncing,
		},
	}
	for _, o := range Outcomes() {
		stats.Outcomes[o] = total(s.tally.outcomes[o.index()])
	}
	for _, r := range Refusals() {
		stats.Refused[r] = total(s.tally.refused[r.index()])
	}
	for _, l := range s.lanes {
		stats.Lanes = append(stats.Lanes, l.stats(now))
		stats.Sessions.Waiting += l.messages
	}
	slices.SortFunc(stats.Lanes, func(a, b LaneStats) int { return cmp.Compare(a.Name, b.Name) })
	return stats
}

// total makes a counter of a number that only grows from zero.
func total(n int) uint64 { return uint64(n) } //nolint:gosec // never negative

// Lane returns the state of one lane; false when no lane has this name.
func (s Stats) Lane(name string) (LaneStats, bool) {
	i := slices.IndexFunc(s.Lanes, func(l LaneStats) bool { return l.Name == name })
	if i < 0 {
		return LaneStats{}, false
	}
	return s.Lanes[i], true
}

// stats is the state of the lane.
func (l *lane[M]) stats(now time.Duration) LaneStats {
	stats := LaneStats{
		Name: l.Name, Capacity: l.Limit, Active: l.active, Stopping: l.stopping, Yielded: l.yielded,
		Ready: l.ready.count + len(l.returning), Waiting: l.messages,
		Started: total(l.started), Finished: total(l.answered + l.failed + l.cancelled),
		Answered: total(l.answered), Failed: total(l.failed), Cancelled: total(l.cancelled),
	}
	if l.ready.head != nil {
		stats.OldestWait = now - l.ready.head.readyAt
	}
	return stats
}

// WaitingOf is how many messages of a principal wait, those in debounce windows included.
func (s *Scheduler[M]) WaitingOf(name string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if who, ok := s.principals.byName[name]; ok {
		return who.messages
	}
	return 0
}

// Session reports the state of one session; false when nothing of it runs or waits.
func (s *Scheduler[M]) Session(key string) (SessionStats, bool) {
	now := s.now()
	s.mu.Lock()
	defer s.mu.Unlock()
	x, ok := s.sessions[key]
	if !ok {
		return SessionStats{}, false
	}
	stats := SessionStats{
		State: StateQueued, Settings: x.set, Waiting: x.waiting, Turns: x.depth(), Debouncing: x.debouncing(),
	}
	for _, t := range x.running {
		run := t.stats(now)
		if stats.State != StateRunning {
			stats.State = run.State
		}
		stats.Running = append(stats.Running, run)
	}
	return stats, true
}

// stats is the state of the turn.
func (t *Turn[M]) stats(now time.Duration) RunStats {
	state := StateRunning
	if t.cause != nil {
		state = StateStopping
	}
	return RunStats{
		RunID: t.runID, Session: t.Session(), Lane: t.lane.Name, State: state, Stuck: t.stuck, Yielded: t.away,
		Running: now - t.started, Messages: len(t.items),
	}
}

// TurnsLeft lists the turns that run, the longest first. After Drain these are the ones that ignored their context.
func (s *Scheduler[M]) TurnsLeft() []RunStats {
	now := s.now()
	s.mu.Lock()
	defer s.mu.Unlock()
	var left []RunStats
	for _, x := range s.sessions {
		for _, t := range x.running {
			left = append(left, t.stats(now))
		}
	}
	slices.SortFunc(left, func(a, b RunStats) int {
		return cmp.Or(-cmp.Compare(a.Running, b.Running), cmp.Compare(a.RunID, b.RunID))
	})
	return left
}

// Progress is for a health check: it is how long some lane has had a free slot and a ready session without a start. It is 0
// when the scheduler works, because both are brought together before the mutex is released.
func (s *Scheduler[M]) Progress() time.Duration {
	now := s.now()
	s.mu.Lock()
	defer s.mu.Unlock()
	var stalled time.Duration
	for _, l := range s.lanes {
		if l.ready.head != nil && l.room() && !s.draining {
			stalled = max(stalled, now-max(l.lastStart, l.ready.head.readyAt))
		}
	}
	return stalled
}

// Resize gives the lane of this name another limit. Growing takes effect at once; shrinking as turns end. The error matches
// ErrUnknownLane, or ErrInvalid when the limit is out of its bounds.
func (s *Scheduler[M]) Resize(to Lane) error {
	if err := to.check(); err != nil {
		return fmt.Errorf("resize lane: %w: %w", ErrInvalid, err)
	}
	fx := s.begin()
	s.mu.Lock()
	l, ok := s.lanes[to.Name]
	if ok {
		l.Lane = to
		s.pump(l, &fx)
	}
	s.mu.Unlock()
	s.flush(&fx)
	if !ok {
		return fmt.Errorf("resize lane %.40q: %w", to.Name, ErrUnknownLane)
	}
	return nil
}

// GetOrCreate adds the lane, unless one has its name, and returns the lane that exists. The error matches ErrInvalid.
func (s *Scheduler[M]) GetOrCreate(wanted Lane) (Lane, error) {
	if err := wanted.check(); err != nil {
		return Lane{}, fmt.Errorf("make lane: %w: %w", ErrInvalid, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	l, ok := s.lanes[wanted.Name]
	if !ok {
		l = &lane[M]{Lane: wanted}
		s.lanes[wanted.Name] = l
	}
	return l.Lane, nil
}
