package scheduler_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestASuspendedSessionStartsNothingAndOthersDo(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var runs atomic.Value
		runs.Store("")
		s := newScheduler(t, config{Lanes: lanes(map[string]int{"main": 1}), PrincipalTurns: 1, Run: func(ctx context.Context, r *turn) error {
			runs.Store(r.RunID())
			defer runs.Store("")
			return untilStopped(ctx, r)
		}})
		submit(t, s, item{Session: "a", ID: "a1", Principal: "ann", Bounded: true})
		submit(t, s, item{Session: "a", ID: "a2", Principal: "ann", Bounded: true})
		submit(t, s, item{Session: "b", ID: "b1", Principal: "ann", Bounded: true})
		synctest.Wait()
		first, second := s.Suspend("a"), s.Suspend("a")
		s.Stop("a", "ann")
		synctest.Wait()
		if got := runs.Load(); got != "b1" {
			t.Errorf("%q runs, want b1: its session is not suspended", got)
		}
		s.Stop("b", "ann")
		synctest.Wait()
		if got := runs.Load(); got != "" {
			t.Errorf("%q runs in a suspended session", got)
		}
		first()
		first()
		synctest.Wait()
		if got := runs.Load(); got != "" {
			t.Errorf("%q runs while the second call is in force", got)
		}
		second()
		synctest.Wait()
		if got := runs.Load(); got != "a2" {
			t.Errorf("%q runs, want a2", got)
		}
		s.Stop("a", "ann")
		pass(time.Second)
		drain(t, s)
	})
}
