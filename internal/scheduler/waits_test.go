package scheduler_test

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"laneway/internal/scheduler"
)

// The positions in a lane are the order in which the sessions start, whatever their principals and the last start are.
func TestPositionsInALaneAreTheOrderOfStarts(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		principals := rapid.SliceOfN(rapid.IntRange(0, 3), 2, 20).Draw(rt, "principals")
		before := rapid.IntRange(0, len(principals)-1).Draw(rt, "ended before")
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			g := newStage(ctx, rt, 1)
			var keys []string
			for i, p := range principals {
				keys = append(keys, strconv.Itoa(i))
				g.submit(rt, fmt.Sprint("p", p), keys[i])
			}
			endNext := func() {
				started := g.starts()
				g.end(started[len(started)-1])
			}
			for range before {
				endNext()
			}
			places := map[string]int{}
			for key, waits := range g.s.Waits(keys) {
				if len(waits) != 1 || waits[0].Cause != scheduler.WaitLane || waits[0].ID != key {
					rt.Fatalf("%s: %+v", key, waits)
				}
				places[key] = waits[0].Position
			}
			done := len(g.starts())
			for range places {
				endNext()
			}
			for i, key := range g.starts()[done:] {
				if places[key] != i+1 {
					rt.Fatalf("%s started %d., and its position was %d (principals %v, %d ended before)", key, i+1, places[key], principals, before)
				}
			}
			endNext()
		})
	})
}

func TestAWaitingMessageHasTheCauseThatHoldsIt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		over := make(chan struct{})
		s := newScheduler(t, config{
			Lanes: lanes(map[string]int{"main": 3, "small": 1}), PrincipalTurns: 1,
			Run: func(context.Context, *turn) error { <-over; return nil },
		})
		put := func(it item) {
			t.Helper()
			submit(t, s, it)
			synctest.Wait()
		}
		typed := scheduler.Settings{Debounce: 3 * time.Second, MaxConcurrent: 1}
		put(item{Session: "runs", ID: "r1"})
		put(item{Session: "runs", ID: "r2"})
		put(item{Session: "runs", ID: "r3", NoMerge: true})
		put(item{Session: "typing", ID: "t1", Typed: true, Settings: &typed})
		put(item{Session: "bound-1", ID: "b1", Principal: "ann", Bounded: true})
		put(item{Session: "bound-2", ID: "b2", Principal: "ann", Bounded: true})
		put(item{Session: "small-1", ID: "s1", Lane: "small"})
		put(item{Session: "small-2", ID: "s2", Lane: "small"})
		time.Sleep(time.Second)
		synctest.Wait()
		keys := []string{"runs", "typing", "bound-1", "bound-2", "small-1", "small-2", "small-2", "unknown"}
		got := s.Waits(keys)
		want := map[string][]scheduler.Wait{
			"runs": {
				{ID: "r2", Cause: scheduler.WaitSession, Position: 1, BlockedBy: "r1"},
				{ID: "r3", Cause: scheduler.WaitSession, Position: 2, BlockedBy: "r1"},
			},
			"typing":  {{ID: "t1", Cause: scheduler.WaitDebounce, Left: 2 * time.Second}},
			"bound-2": {{ID: "b2", Cause: scheduler.WaitPrincipal}},
			"small-2": {{ID: "s2", Cause: scheduler.WaitLane, Position: 1}},
		}
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("got  %+v\nwant %+v", got, want)
		}
		ended := make(chan error, 1)
		go func() { ended <- s.Drain(context.Background()) }()
		synctest.Wait()
		for key, waits := range s.Waits(keys) {
			if slices.ContainsFunc(waits, func(w scheduler.Wait) bool { return w.Cause != scheduler.WaitDrain }) {
				t.Errorf("%s while it drains: %+v", key, waits)
			}
		}
		close(over)
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
	})
}
