package scheduler_test

import (
	"context"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"laneway/internal/scheduler"
)

// Windows of a microsecond are ended by their timer and by the next message at the same time, in real time, repeatedly.
func TestATimerThatComesTooLateDoesNothing(t *testing.T) {
	t.Parallel()
	s := newScheduler(t, config{
		Lanes: lanes(map[string]int{"main": 4}), Queue: scheduler.Settings{Debounce: time.Microsecond},
		Run: func(context.Context, *turn) error { return nil },
	})
	var talkers sync.WaitGroup
	for worker := range 4 {
		talkers.Go(func() {
			var tickets []*scheduler.Ticket
			for i := range 1000 {
				sub, err := s.Submit(item{
					Session: strconv.Itoa(worker % 2), ID: "x", Sender: strconv.Itoa(i % 2), Typed: i%5 != 0,
				})
				if err != nil {
					t.Errorf("Submit: %v", err)
					return
				}
				tickets = append(tickets, sub.Ticket)
				if i%7 == 0 {
					s.Stop(strconv.Itoa(worker%2), "ann")
				}
			}
			for _, ticket := range tickets {
				<-ticket.Done()
			}
		})
	}
	talkers.Wait()
	if err := s.Drain(context.Background()); err != nil {
		t.Error(err)
	}
	if st := s.Stats().Sessions; st != (scheduler.SessionTotals{}) {
		t.Errorf("left %+v", st)
	}
	drain(t, s)
}

// The grace ends at the moment at which the turn returns, in real time, repeatedly.
func TestAGraceThatComesTooLateDoesNothing(t *testing.T) {
	t.Parallel()
	s := newScheduler(t, config{StopGrace: time.Microsecond, Run: untilStopped})
	for i := range 1000 {
		key := strconv.Itoa(i % 8)
		sub := submit(t, s, item{Session: key, ID: "x"})
		s.Stop(key, "ann")
		wantOutcome(t, sub.Ticket, scheduler.OutcomeStopped)
	}
	if err := s.Drain(context.Background()); err != nil {
		t.Error(err)
	}
	if st := s.Stats().Sessions; st != (scheduler.SessionTotals{}) {
		t.Errorf("left %+v", st)
	}
	drain(t, s)
}

func TestALateMessageBetweenMergedOnesHidesNone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newScheduler(t, config{Run: untilStopped})
		submit(t, s, item{ID: "runs", Seq: 1})
		for _, seq := range []int64{5, 7, 9} {
			submit(t, s, item{ID: strconv.FormatInt(seq, 10), Seq: seq, Typed: true, Sender: "a"})
		}
		submit(t, s, item{ID: "6", Seq: 6}) // comes after the batch of 5, 7 and 9, which it cannot join
		for _, seq := range []int64{5, 6, 7, 9} {
			if again := submit(t, s, item{ID: "again", Seq: seq}); !again.Duplicate {
				t.Errorf("message %d is not known: %+v", seq, again)
			}
		}
		for _, seq := range []int64{9, 5, 6, 7} {
			if e, ok := s.Drop("s", seq); !ok || e.Item.Seq != seq {
				t.Errorf("Drop(%d) = %+v, %v", seq, e, ok)
			}
			checkSums(t, s)
		}
		drain(t, s)
	})
}

func TestMessagesTakenOutOfAnOpenWindowAreNotCounted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		j := &journal{}
		s := newScheduler(t, config{Run: instant(j)})
		for _, id := range []string{"1", "2", "3", "4"} {
			submit(t, s, item{ID: id, Payload: id, Typed: true, Sender: "a"})
		}
		for i, id := range []string{"2", "1", "4"} {
			s.StopRun("s", id, "ann")
			if st, _ := s.Session("s"); st.Debouncing != 3-i || s.Stats().Sessions.Debouncing != 3-i || st.Turns != 1 {
				t.Errorf("after the stop of %s: %+v", id, st)
			}
		}
		pass(time.Minute)
		if got := j.take(); len(got) != 1 || got[0] != "800:3" {
			t.Errorf("got %q", got)
		}
		drain(t, s)
	})
}

// A takeover submits a run of two messages, and a read of hinted messages finds one of them again.
func TestARunIsNotBegunTwiceAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newScheduler(t, config{Queue: scheduler.Settings{MaxConcurrent: 3}, Run: takes(&journal{}, time.Second)})
		first := submit(t, s, item{ID: "run", RunID: "run", Seq: 11})
		again := submit(t, s, item{ID: "run", RunID: "run", Seq: 10})
		synctest.Wait()
		if !again.Duplicate || again.Ticket != first.Ticket {
			t.Errorf("the run was taken for another: %+v", again)
		}
		if again = submit(t, s, item{ID: "run", RunID: "run", Seq: 10}); !again.Duplicate || !again.Running {
			t.Errorf("the running run was taken for another: %+v", again)
		}
		wantOutcome(t, first.Ticket, scheduler.OutcomeAnswered)
		drain(t, s)
	})
}
