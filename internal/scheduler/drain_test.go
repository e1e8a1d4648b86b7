package scheduler_test

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"laneway/internal/scheduler"
)

func TestDrainHasADeadline(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		stuck := make(chan string, 2)
		base := time.Now()
		s := newScheduler(t, config{
			Run: func(ctx context.Context, t *turn) error {
				switch t.RunID() {
				case "endless": // also ignores its context
					<-release
				case "obedient":
					<-ctx.Done()
					return context.Cause(ctx)
				default:
					linger(time.Second)
				}
				return nil
			},
			OnStuck: func(t *turn) { stuck <- t.RunID() + " " + time.Since(base).String() },
		})
		endless := submit(t, s, item{Session: "a", ID: "endless"})
		obedient := submit(t, s, item{Session: "b", ID: "obedient"})
		short := submit(t, s, item{Session: "c", ID: "short"})
		for i := range 5 {
			submit(t, s, item{Session: "a", ID: strconv.Itoa(i), Typed: i == 4})
		}
		synctest.Wait()
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		drained := make(chan error, 1)
		go func() { drained <- s.Drain(ctx) }()
		synctest.Wait()
		if sub := s.Submit(item{Session: "d", ID: "x"}); sub.Running || s.Stats().Sessions.Waiting != 0 || s.Stats().Cleared != 5 {
			t.Errorf("a message while it drains: %+v, %+v", sub, s.Stats())
		}
		if err := <-drained; !errors.Is(err, scheduler.ErrTurnsLeft) {
			t.Errorf("Drain = %v", err)
		}
		if took := time.Since(base); took != 4*time.Second {
			t.Errorf("Drain took %v", took)
		}
		if left := s.TurnsLeft(); len(left) != 1 || left[0].RunID != "endless" || left[0].State != scheduler.StateStopping {
			t.Errorf("left %+v", left)
		}
		wantOutcome(t, short.Ticket, answered)
		if err := wantOutcome(t, obedient.Ticket, interrupted); !errors.Is(err, scheduler.ErrDraining) {
			t.Errorf("err = %v", err)
		}
		wantOutcome(t, endless.Ticket, interrupted)
		if got := <-stuck; got != "endless 3s" {
			t.Errorf("stuck %q", got)
		}
		close(release)
		drain(t, s) // again, and now it succeeds
	})
}

func TestDrainEndsWithTheLastTurn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newScheduler(t, config{Run: takes(&journal{}, time.Second)})
		base := time.Now()
		sub := submit(t, s, item{ID: "1"})
		submit(t, s, item{ID: "2", Typed: true, Session: "typing"})
		if err := s.Drain(context.Background()); err != nil || time.Since(base) != time.Second {
			t.Errorf("Drain = %v after %v", err, time.Since(base))
		}
		wantOutcome(t, sub.Ticket, answered)
		if err := s.Drain(context.Background()); err != nil {
			t.Errorf("Drain again = %v", err)
		}
		drain(t, s)
	})
}

func TestDrainLeavesADeafSettledTurnWithAnOutcome(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		s := newScheduler(t, config{Run: func(_ context.Context, t *turn) error {
			err := t.Settle()
			<-release
			return err
		}})
		sub := submit(t, s, item{ID: "1"})
		synctest.Wait()
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		if err := s.Drain(ctx); !errors.Is(err, scheduler.ErrTurnsLeft) {
			t.Errorf("Drain = %v", err)
		}
		wantOutcome(t, sub.Ticket, interrupted)
		close(release)
		drain(t, s)
	})
}

type traceKey struct{}

func TestTurnsHaveTheWorkContextAndNoOther(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		work, cancel := context.WithCancelCause(context.WithValue(context.Background(), traceKey{}, "trace"))
		var contexts []context.Context
		s, err := makeScheduler(work, config{Run: func(ctx context.Context, t *turn) error {
			contexts = append(contexts, ctx)
			if t.RunID() == "long" {
				<-ctx.Done()
			}
			return nil
		}})
		if err != nil {
			t.Fatal(err)
		}
		wantOutcome(t, submit(t, s, item{ID: "short"}).Ticket, answered)
		synctest.Wait()
		if got := context.Cause(contexts[0]); !errors.Is(got, scheduler.ErrTurnOver) {
			t.Errorf("the context of a turn that has ended: %v", got)
		}
		long := submit(t, s, item{ID: "long"})
		synctest.Wait()
		if contexts[1].Value(traceKey{}) != "trace" || contexts[1].Err() != nil {
			t.Errorf("context of the turn: %v", contexts[1])
		}
		gone := errors.New("database gone")
		cancel(gone)
		if err := wantOutcome(t, long.Ticket, interrupted); !errors.Is(err, gone) || !errors.Is(err, scheduler.ErrCancelled) {
			t.Errorf("err = %v", err)
		}
		if sub := s.Submit(item{Session: "s", ID: "x"}); sub.Running {
			t.Error("a turn starts after the work context")
		}
		drain(t, s)
		if _, err := makeScheduler(work, config{Run: untilStopped}); !errors.Is(err, gone) {
			t.Errorf("New with a context that has ended: %v", err)
		}
	})
}

func TestALostLeaseCancelsEveryTurn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newScheduler(t, config{Run: untilStopped})
		var tickets []*ticket
		for i := range 5 {
			tickets = append(tickets, submit(t, s, item{Session: strconv.Itoa(i), ID: "x"}).Ticket)
		}
		s.Cancel(scheduler.ErrLeaseLost)
		for _, ticket := range tickets {
			err := wantOutcome(t, ticket, interrupted)
			if !errors.Is(err, scheduler.ErrLeaseLost) {
				t.Errorf("err = %v", err)
			}
		}
		sub := submit(t, s, item{ID: "after"})
		synctest.Wait()
		s.Stop("s", "ann")
		wantOutcome(t, sub.Ticket, stopped)
		drain(t, s)
	})
}

// observer records its calls.
type observer struct{ journal }

func (o *observer) TurnStuck(lane string) { o.add("stuck %s", lane) }

func (o *observer) LaneUnknown() { o.add("unknown") }

func TestObserverHearsOfStuckTurnsAndUnknownLanes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := &observer{}
		s := newScheduler(t, config{Observer: o, Run: func(context.Context, *turn) error {
			linger(time.Minute)
			return nil
		}})
		submit(t, s, item{ID: "1", Lane: "unknown"})
		synctest.Wait()
		s.Stop("s", "ann")
		pass(time.Hour)
		if got, want := o.take(), []string{"unknown", "stuck main"}; !slices.Equal(got, want) {
			t.Errorf("got  %q, want %q", got, want)
		}
		drain(t, s)
	})
}

// Windows of a microsecond are ended by their timer and by the next message at the same time, in
// real time, repeatedly.
func TestATimerThatComesTooLateDoesNothing(t *testing.T) {
	t.Parallel()
	s := newScheduler(t, config{
		Lanes: lanes(map[string]int{"main": 4}), Queue: scheduler.Settings{Debounce: time.Microsecond},
		Run: func(context.Context, *turn) error { return nil },
	})
	var talkers sync.WaitGroup
	for worker := range 4 {
		talkers.Go(func() {
			var tickets []*ticket
			for i := range 1000 {
				sub := s.Submit(item{
					Session: strconv.Itoa(worker % 2), ID: "x", Sender: strconv.Itoa(i % 2), Typed: i%5 != 0,
				})
				tickets = append(tickets, sub.Ticket)
				if i%7 == 0 {
					s.Stop(strconv.Itoa(worker%2), "ann")
				}
			}
			for _, ticket := range tickets {
				<-ticket.done
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
		s.StopRun(key, "x", "ann")
		wantOutcome(t, sub.Ticket, stopped)
	}
	if err := s.Drain(context.Background()); err != nil {
		t.Error(err)
	}
	if st := s.Stats().Sessions; st != (scheduler.SessionTotals{}) {
		t.Errorf("left %+v", st)
	}
	drain(t, s)
}
