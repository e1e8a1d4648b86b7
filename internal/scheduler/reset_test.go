package scheduler_test

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"laneway/internal/scheduler"
)

func TestDropEndsWaitingMessagesOnly(t *testing.T) {
	t.Parallel()
	s := newScheduler(t, config{Run: untilStopped})
	for i := range 6 {
		submit(t, s, item{ID: strconv.Itoa(i), Seq: int64(10 * (i + 1))})
	}
	for seq, want := range map[int64]bool{10: false, 30: true, 35: false, 60: true, 99: false} {
		e, ok := s.Drop("s", seq)
		if ok != want || ok && (e.Item.Seq != seq || !errors.Is(e.Err, scheduler.ErrQueueDropped)) {
			t.Errorf("Drop(%d) = %+v, %v", seq, e, ok)
		}
	}
	if _, ok := s.Drop("other", 1); ok {
		t.Error("dropped a message of no session")
	}
	if st, _ := s.Session("s"); st.Waiting != 3 || len(st.Running) != 1 {
		t.Errorf("session %+v", st)
	}
	if got := ids(s.Reset("s")); !slices.Equal(got, []string{"1", "3", "4"}) {
		t.Errorf("the reset returned %q", got)
	}
	if d := s.Stats().Drops; d.Old != 2 || d.Cleared != 3 {
		t.Errorf("drops %+v", d)
	}
	drain(t, s)
}

func TestResetReturnsWaitingMessagesForTheNextGeneration(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		j := &journal{}
		s := newScheduler(t, config{Run: func(ctx context.Context, t *turn) error {
			j.add("%d %s", t.Generation(), t.RunID())
			if t.Generation() == 1 {
				<-ctx.Done()
				linger(time.Second)
			}
			return nil
		}})
		old := submit(t, s, item{ID: "1", Seq: 1})
		submit(t, s, item{ID: "2", Seq: 2})
		submit(t, s, item{Session: "s", ID: "3", Seq: 3, Typed: true})
		synctest.Wait()
		returned := s.ResetAll()
		if !slices.Equal(ids(returned), []string{"2", "3"}) || !errors.Is(returned[0].Err, scheduler.ErrLaneCleared) ||
			returned[0].Outcome != scheduler.OutcomeCleared {
			t.Errorf("returned %+v", returned)
		}
		for _, id := range []string{"1", "2", "3"} { // the caller runs the durable ones again, the interrupted one first
			n, _ := strconv.ParseInt(id, 10, 64)
			if sub := submit(t, s, item{ID: id, Seq: n}); sub.Duplicate || sub.Running {
				t.Errorf("message %s: %+v", id, sub)
			}
		}
		if err := wantOutcome(t, old.Ticket, scheduler.OutcomeInterrupted); !errors.Is(err, scheduler.ErrReset) {
			t.Errorf("err = %v", err)
		}
		pass(time.Minute)
		if got, want := j.take(), []string{"1 1", "2 1", "2 2", "2 3"}; !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
		if got := s.Reset("s"); got != nil {
			t.Errorf("reset of nothing: %+v", got)
		}
		drain(t, s)
	})
}
