package scheduler_test

import (
	"context"
	"runtime"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"laneway/internal/scheduler"
)

// Many sessions with one message each, and many turns under one process context: a minute later they have left neither entries nor goroutines nor memory.
func TestIdleSessionsLeaveNothing(t *testing.T) { //nolint:paralleltest // it counts the goroutines and the memory of the process
	if testing.Short() {
		t.Skip("long")
	}
	const sessions, rounds = 100_000, 10
	synctest.Test(t, func(t *testing.T) {
		s := newScheduler(t, config{Run: func(context.Context, *turn) error { return nil }})
		goroutines, heap := runtime.NumGoroutine(), heapNow()
		for range rounds {
			for i := range sessions {
				submit(t, s, item{Session: strconv.Itoa(i), ID: "x"})
			}
			synctest.Wait()
		}
		pass(time.Minute)
		if st := s.Stats(); st.Sessions != (scheduler.SessionTotals{}) || st.Outcomes[scheduler.OutcomeAnswered] != rounds*sessions {
			t.Errorf("left %+v, outcomes %v", st.Sessions, st.Outcomes)
		}
		if left := runtime.NumGoroutine() - goroutines; left > 0 {
			t.Errorf("%d goroutines are left", left)
		}
		if left := int64(heapNow()) - int64(heap); left > 10<<20 {
			t.Errorf("%d bytes are left", left)
		}
		drain(t, s)
	})
}

// heapNow is the memory in use after a collection.
func heapNow() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
