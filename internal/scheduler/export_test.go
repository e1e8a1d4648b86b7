package scheduler

import (
	"cmp"
	"slices"
	"time"
)

// What follows shows tests the state of single sessions and turns. Production code reads sums only, see Stats.

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
	// Stuck is true when the grace after the cancellation is over.
	Stuck bool
	// Yielded is true while the turn is inside Yield.
	Yielded bool
	// Running is the time since the start.
	Running time.Duration
	// Messages of the turn, those that came in mid-turn not included.
	Messages int
}

// Session reports the state of one session; false when nothing of it runs or waits.
func (s *Scheduler[M]) Session(key string) (SessionStats, bool) {
	now := s.now()
	s.mu.Lock()
	defer s.mu.Unlock()
	x, ok := s.core.queues.byKey[key]
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
	for _, x := range s.core.queues.byKey {
		for _, t := range x.running {
			left = append(left, t.stats(now))
		}
	}
	slices.SortFunc(left, func(a, b RunStats) int {
		return cmp.Or(-cmp.Compare(a.Running, b.Running), cmp.Compare(a.RunID, b.RunID))
	})
	return left
}

// debouncing is the number of messages in the open window.
func (x *session[M]) debouncing() int {
	if !x.buffers() {
		return 0
	}
	return x.back().count
}

// Generation is the number of resets before the turn started, plus one. It only grows.
func (t *Turn[M]) Generation() uint64 { return t.gen }
