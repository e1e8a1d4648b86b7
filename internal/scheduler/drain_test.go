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
		var waiting []*scheduler.Ticket
		for i := range 5 {
			waiting = append(waiting, submit(t, s, item{Session: "a", ID: strconv.Itoa(i), Typed: i == 4}).Ticket)
		}
		synctest.Wait()
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		drained := make(chan error, 1)
		go func() { drained <- s.Drain(ctx) }()
		synctest.Wait()
		if _, err := s.Submit(item{Session: "d", ID: "x"}); !errors.Is(err, scheduler.ErrGatewayDraining) {
			t.Errorf("submit while draining: %v", err)
		}
		for _, ticket := range waiting {
			if err := wantOutcome(t, ticket, scheduler.OutcomeCleared); !errors.Is(err, scheduler.ErrGatewayDraining) {
				t.Errorf("err = %v", err)
			}
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
		wantOutcome(t, short.Ticket, scheduler.OutcomeAnswered)
		if err := wantOutcome(t, obedient.Ticket, scheduler.OutcomeInterrupted); !errors.Is(err, scheduler.ErrDraining) {
			t.Errorf("err = %v", err)
		}
		wantOutcome(t, endless.Ticket, scheduler.OutcomeInterrupted)
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
		wantOutcome(t, sub.Ticket, scheduler.OutcomeAnswered)
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
		wantOutcome(t, sub.Ticket, scheduler.OutcomeInterrupted)
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
		s, err := scheduler.New(work, config{Run: func(ctx context.Context, t *turn) error {
			contexts = append(contexts, ctx)
			if t.RunID() == "long" {
				<-ctx.Done()
			}
			return nil
		}})
		if err != nil {
			t.Fatal(err)
		}
		wantOutcome(t, submit(t, s, item{ID: "short"}).Ticket, scheduler.OutcomeAnswered)
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
		if err := wantOutcome(t, long.Ticket, scheduler.OutcomeInterrupted); !errors.Is(err, gone) || !errors.Is(err, scheduler.ErrCancelled) {
			t.Errorf("err = %v", err)
		}
		if _, err := s.Submit(item{Session: "s", ID: "x"}); !errors.Is(err, scheduler.ErrGatewayDraining) {
			t.Errorf("submit after the work context: %v", err)
		}
		drain(t, s)
		if _, err := scheduler.New(work, config{Run: untilStopped}); !errors.Is(err, gone) {
			t.Errorf("New with a context that has ended: %v", err)
		}
	})
}

func TestALostLeaseCancelsEveryTurn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newScheduler(t, config{Run: untilStopped})
		var tickets []*scheduler.Ticket
		for i := range 5 {
			tickets = append(tickets, submit(t, s, item{Session: strconv.Itoa(i), ID: "x"}).Ticket)
		}
		s.Cancel(scheduler.ErrLeaseLost)
		for _, ticket := range tickets {
			err := wantOutcome(t, ticket, scheduler.OutcomeInterrupted)
			if !errors.Is(err, scheduler.ErrLeaseLost) {
				t.Errorf("err = %v", err)
			}
		}
		sub := submit(t, s, item{ID: "after"})
		s.Stop("s", "ann")
		wantOutcome(t, sub.Ticket, scheduler.OutcomeStopped)
		drain(t, s)
	})
}

func TestTicketsCanBeWaitedForByManyAndGivenUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newScheduler(t, config{Run: takes(&journal{}, time.Second)})
		ticket := submit(t, s, item{ID: "1"}).Ticket
		ctx, cancel := context.WithTimeoutCause(context.Background(), time.Millisecond, errFailed)
		defer cancel()
		if o, err := ticket.Wait(ctx); o != "" || !errors.Is(err, errFailed) {
			t.Errorf("Wait = %q, %v", o, err)
		}
		results := make(chan scheduler.Outcome)
		for range 10 {
			go func() {
				o, _ := ticket.Wait(context.Background())
				results <- o
			}()
		}
		for range 10 {
			if o := <-results; o != scheduler.OutcomeAnswered {
				t.Errorf("outcome %q", o)
			}
		}
		if o, err := ticket.Result(); o != scheduler.OutcomeAnswered || err != nil {
			t.Errorf("Result = %q, %v", o, err)
		}
		drain(t, s)
	})
}

func TestTheObserverIsCalledForEveryEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := &observer{}
		s := newScheduler(t, config{Observer: o, Run: func(ctx context.Context, t *turn) error {
			if t.RunID() == "2" {
				linger(time.Minute)
			}
			return nil
		}})
		submit(t, s, item{ID: "2", Typed: true, Sender: "a"})
		pass(time.Second)
		third := submit(t, s, item{ID: "3", Lane: "unknown"})
		submit(t, s, item{ID: "4"})
		s.Drop("s", third.Seq)
		_, err := s.Submit(item{})
		if err == nil {
			t.Error("an empty message was accepted")
		}
		s.Stop("s", "ann")
		pass(time.Hour)
		want := []string{
			"start main 800ms", "unknown", "message main dropped", "refused invalid",
			"stuck main", "turn main stopped 2.2s", "start main 59.8s", "turn main answered 0s",
		}
		if got := o.take(); !slices.Equal(got, want) {
			t.Errorf("got  %q\nwant %q", got, want)
		}
		drain(t, s)
	})
}

// observer records its calls.
type observer struct{ journal }

func (o *observer) MessageRefused(why scheduler.Refusal) { o.add("refused %s", why) }

func (o *observer) MessageEnded(lane string, out scheduler.Outcome) {
	o.add("message %s %s", lane, out)
}

func (o *observer) TurnStarted(lane string, waited time.Duration) { o.add("start %s %v", lane, waited) }

func (o *observer) TurnEnded(lane string, out scheduler.Outcome, ran time.Duration) {
	o.add("turn %s %s %v", lane, out, ran)
}

func (o *observer) TurnStuck(lane string) { o.add("stuck %s", lane) }

func (o *observer) LaneUnknown() { o.add("unknown") }

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
		s.StopRun(key, "x", "ann")
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
