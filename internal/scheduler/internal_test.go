package scheduler

import (
	"cmp"
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// The following gives tests the state of single sessions and turns. Production code only reads
// totals, see Stats.

// State is the state of a session or a turn.
type State string

// The states. A session in none of these is not tracked.
const (
	// StateQueued: nothing runs, messages wait.
	StateQueued State = "queued"
	// StateRunning: at least one turn runs and was not cancelled.
	StateRunning State = "running"
	// StateStopping: every running turn was cancelled and has not returned yet.
	StateStopping State = "stopping"
)

// SessionStats is the state of one session.
type SessionStats struct {
	State State
	// Settings are those of the last Wake.
	Settings Settings
	// Waiting messages, including those in the debounce window.
	Waiting int
	// Debouncing messages are in the open window.
	Debouncing int
	// Running turns, oldest first.
	Running []RunStats
}

// RunStats is the state of one running turn.
type RunStats struct {
	RunID, Session, Lane string
	State                State
	// Stuck is true when the grace after the cancellation has passed.
	Stuck bool
	// Yielded is true while the turn is inside Yield.
	Yielded bool
	// Running is the time since the start.
	Running time.Duration
}

// Session reports the state of one session; false when it has no running or waiting work.
func (s *Scheduler) Session(key string) (SessionStats, bool) {
	now := s.now()
	s.mu.Lock()
	defer s.mu.Unlock()
	x, ok := s.core.queues.byKey[key]
	if !ok {
		return SessionStats{}, false
	}
	stats := SessionStats{
		State: StateQueued, Settings: x.set, Waiting: x.waiting, Debouncing: x.debouncing(),
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
func (t *Turn) stats(now time.Duration) RunStats {
	state := StateRunning
	if t.cause != nil {
		state = StateStopping
	}
	return RunStats{
		RunID: t.runID, Session: t.key, Lane: t.lane.Name, State: state, Stuck: t.stuck, Yielded: t.away,
		Running: now - t.started,
	}
}

// TurnsLeft lists the running turns, longest first. After Drain these are the ones that ignored
// their context.
func (s *Scheduler) TurnsLeft() []RunStats {
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
func (x *session) debouncing() int {
	if !x.window {
		return 0
	}
	return x.waiting
}

// Generation is the number of resets before the turn started, plus one. It only grows.
func (t *Turn) Generation() uint64 { return t.gen }

// TestProgressGrowsWhileReadyWorkDoesNotStart creates a ready session next to a free slot, which is
// impossible from outside of the package: the slot becomes free and no call starts the session. A
// health check relies on the figure to detect such a defect.
func TestProgressGrowsWhileReadyWorkDoesNotStart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		s, err := New(t.Context(), Config{Lanes: []Lane{{Name: LaneMain, Limit: 1}}, Run: func(_ context.Context, turn *Turn) error {
			turn.Began(Batch{RunID: turn.Session()})
			<-release
			return nil
		}})
		if err != nil {
			t.Fatal(err)
		}
		for _, session := range []string{"a", "b"} {
			s.Wake(Wake{Session: session, Settings: DefaultSettings()})
		}
		time.Sleep(time.Hour)
		if p := s.Progress(); p != 0 {
			t.Errorf("a full lane that works shows %s", p)
		}
		s.mu.Lock()
		s.core.lanes.byName[LaneMain].Limit = 2
		s.core.lanes.byName[LaneMain].lastStart = s.now() // the last time that it worked
		s.mu.Unlock()
		for range 4 {
			began := s.Progress()
			time.Sleep(10 * time.Second)
			if grown := s.Progress() - began; grown != 10*time.Second {
				t.Errorf("in 10s it grew by %s", grown)
			}
		}
		if p := s.Progress(); p != 40*time.Second {
			t.Errorf("40s after the last start it shows %s", p)
		}
		if err := s.SetLane(Lane{Name: LaneMain, Limit: 2}); err != nil { // this starts it
			t.Fatal(err)
		}
		if p := s.Progress(); p != 0 {
			t.Errorf("after the start it shows %s", p)
		}
		close(release)
		if err := s.Drain(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
