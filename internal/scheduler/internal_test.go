package scheduler

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// TestProgressGrowsWhileReadyWorkDoesNotStart creates a ready session next to a free slot, which is impossible from outside of the package: the slot becomes
// free and no call starts the session. A health check relies on the figure to detect such a defect.
func TestProgressGrowsWhileReadyWorkDoesNotStart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		s, err := New(t.Context(), Config[string]{Lanes: []Lane{{Name: LaneMain, Limit: 1}}, Run: func(context.Context, *Turn[string]) error {
			<-release
			return nil
		}})
		if err != nil {
			t.Fatal(err)
		}
		for _, session := range []string{"a", "b"} {
			if _, err := s.Submit(Item[string]{Session: session, ID: session}); err != nil {
				t.Fatal(err)
			}
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
		if err := s.Resize(Lane{Name: LaneMain, Limit: 2}); err != nil { // this starts it
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
