package scheduler_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"laneway/internal/scheduler"
)

// untilStopped is a Run that ends when it is cancelled.
func untilStopped(ctx context.Context, _ *turn) error {
	<-ctx.Done()
	return context.Cause(ctx)
}

func TestStopTakesTheOldestRunningTurn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newScheduler(t, config{Lanes: lanes(map[string]int{"main": 2}), Queue: scheduler.Settings{MaxConcurrent: 2}, Run: takesStops(time.Second)})
		for i := range 4 {
			submit(t, s, item{ID: strconv.Itoa(i)})
			synctest.Wait()
		}
		for _, want := range [][]string{{"0"}, {"1"}, nil} {
			if got := s.Stop("s", "ann"); !slices.Equal(got, want) {
				t.Errorf("stopped %q, want %q", got, want)
			}
		}
		if l, _ := s.Stats().Lane("main"); l.Active != 2 || l.Stopping != 2 {
			t.Errorf("stopping turns keep their slots: %+v", l)
		}
		pass(time.Second)
		if got := s.Stop("s", "ann"); !slices.Equal(got, []string{"2"}) {
			t.Errorf("stopped %q", got)
		}
		s.Stop("s", "ann")
		pass(time.Minute)
		if o := s.outcomes(); o[stopped] != 4 {
			t.Errorf("outcomes %v", o)
		}
		drain(t, s)
	})
}

// takesStops is a Run that ends this long after it was cancelled.
func takesStops(d time.Duration) runFunc {
	return func(ctx context.Context, _ *turn) error {
		<-ctx.Done()
		linger(d)
		return nil
	}
}

func TestStopRunFindsTurnsAndMessages(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newScheduler(t, config{Run: untilStopped})
		submit(t, s, item{ID: "m1", Typed: true, Sender: "a"})
		submit(t, s, item{ID: "m2", Typed: true, Sender: "a"})
		pass(time.Second) // they run as m2
		for _, id := range []string{"w1", "w2", "w3", "w4"} {
			submit(t, s, item{ID: id, Typed: true, Sender: "a"})
		}
		submit(t, s, item{ID: "m3", RunID: "run-3"})
		for _, id := range []string{"w2", "w1", "w4", "run-3", "w3"} {
			want := id
			if id == "run-3" {
				want = "m3"
			}
			if _, ended := s.StopRun("s", id, "ann"); !slices.Equal(ended, []string{want}) {
				t.Errorf("StopRun(%s) ended %q", id, ended)
			}
			if running, ended := s.StopRun("s", id, "ann"); len(running)+len(ended) > 0 {
				t.Errorf("StopRun(%s) again stopped %q and %q", id, running, ended)
			}
			checkSums(t, s)
		}
		if running, _ := s.StopRun("s", "m1", "ann"); !slices.Equal(running, []string{"m2"}) {
			t.Errorf("StopRun of a merged message stopped %q", running)
		}
		if running, ended := s.StopRun("other", "m1", "ann"); len(running)+len(ended) > 0 {
			t.Errorf("StopRun of no session stopped %q and %q", running, ended)
		}
		synctest.Wait()
		drain(t, s)
	})
}

func TestStopDoesNotWaitForAFullLane(t *testing.T) {
	t.Parallel()
	running := make(chan *turn, 2)
	s := newScheduler(t, config{
		Lanes: lanes(map[string]int{"main": 2}), Queue: scheduler.Settings{Cap: -1},
		Run: func(ctx context.Context, t *turn) error {
			running <- t
			<-ctx.Done()
			return nil
		},
	})
	a, b := submit(t, s, item{Session: "a", ID: "a"}), submit(t, s, item{Session: "b", ID: "b"})
	<-running
	<-running
	for i := range 10_000 {
		submit(t, s, item{Session: "c", ID: strconv.Itoa(i)})
	}
	if got := s.Stop("c", "ann"); len(got) > 0 {
		t.Errorf("stopped %q", got)
	}
	if _, ended := s.StopAll("c", "ann"); len(ended) != 10_000 {
		t.Errorf("ended %d", len(ended))
	}
	if got := s.Stop("a", "ann"); len(got) != 1 {
		t.Errorf("stopped %q", got)
	}
	wantOutcome(t, a.Ticket, stopped)
	if o, _ := b.Ticket.Result(); o != "" {
		t.Errorf("the other chat ended %q", o)
	}
	drain(t, s)
}

func TestStopNeverOverlapsAndReportsWhoIgnoresIt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		j, stuck := &journal{}, &journal{}
		base := time.Now()
		s := newScheduler(t, config{
			Run: func(ctx context.Context, t *turn) error {
				j.add("%v begin %s", time.Since(base), t.RunID())
				if t.RunID() == "deaf" {
					linger(3 * time.Second)
				}
				return nil // a late result
			},
			OnStuck: func(t *turn) {
				stuck.add("%v %s %v", time.Since(base), t.RunID(), t.Cause())
				panic("in the callback")
			},
		})
		deaf := submit(t, s, item{ID: "deaf"})
		synctest.Wait()
		s.Stop("s", "ann")
		next := submit(t, s, item{ID: "next"})
		pass(1999 * time.Millisecond)
		if st := s.Stats().Sessions; st.Stuck != 0 {
			t.Errorf("stuck too early: %+v", st)
		}
		pass(time.Millisecond)
		st, _ := s.Session("s")
		if st.State != scheduler.StateStopping || len(st.Running) != 1 || !st.Running[0].Stuck || s.Stats().Sessions.Stuck != 1 {
			t.Errorf("after the grace: %+v", st)
		}
		checkSums(t, s)
		wantOutcome(t, deaf.Ticket, stopped)
		if now := time.Since(base); now != 2*time.Second {
			t.Errorf("the outcome came after %v", now)
		}
		wantOutcome(t, next.Ticket, answered)
		if got, want := j.take(), []string{"0s begin deaf", "3s begin next"}; !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
		if got, want := stuck.take(), []string{"2s deaf stopped by ann"}; !slices.Equal(got, want) {
			t.Errorf("stuck %q, want %q", got, want)
		}
		drain(t, s)
	})
}

func TestAStopStormKeepsTheSlots(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		rng := rand.New(rand.NewPCG(1, 2))
		delays := make(chan time.Duration, 1000)
		for range 1000 {
			delays <- time.Duration(rng.IntN(50)) * time.Millisecond
		}
		s := newScheduler(t, config{Lanes: lanes(map[string]int{"main": 4}), Run: func(ctx context.Context, _ *turn) error {
			<-ctx.Done()
			linger(<-delays)
			return nil
		}})
		var tickets []*ticket
		for i := range 1000 {
			key := strconv.Itoa(i % 7)
			tickets = append(tickets, submit(t, s, item{Session: key, ID: strconv.Itoa(i)}).Ticket)
			s.StopRun(key, strconv.Itoa(i), "ann")
			if i%10 == 0 {
				pass(7 * time.Millisecond)
				checkSums(t, s)
			}
		}
		for _, ticket := range tickets {
			wantOutcome(t, ticket, stopped)
		}
		synctest.Wait()
		if l, _ := s.Stats().Lane("main"); l.Active != 0 || l.Capacity != 4 {
			t.Errorf("lane %+v", l)
		}
		drain(t, s)
	})
}

func TestASettledTurnIsPastStopping(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		write := make(chan struct{})
		var settled *turn
		s := newScheduler(t, config{Run: func(ctx context.Context, t *turn) error {
			if t.RunID() == "1" {
				settled = t
			}
			if err := t.Settle(); err != nil {
				return err
			}
			select {
			case <-write:
				return nil
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}})
		first := submit(t, s, item{ID: "1"})
		waiting := submit(t, s, item{ID: "2"})
		synctest.Wait()
		if got := s.Stop("s", "ann"); len(got) > 0 {
			t.Errorf("stopped %q", got)
		}
		write <- struct{}{}
		wantOutcome(t, first.Ticket, answered)
		synctest.Wait()
		if err := settled.Settle(); !errors.Is(err, scheduler.ErrTurnOver) {
			t.Errorf("Settle of a turn that has ended: %v", err)
		}
		synctest.Wait()
		s.Cancel(scheduler.ErrLeaseLost) // this also reaches the settled second one
		if err := wantOutcome(t, waiting.Ticket, failed); !errors.Is(err, scheduler.ErrLeaseLost) {
			t.Errorf("err = %v", err)
		}
		drain(t, s)
	})
}

func TestSettleComesTooLateAfterAStop(t *testing.T) {
	t.Parallel()
	began, answers := make(chan struct{}), make(chan error, 1)
	s := newScheduler(t, config{Run: func(ctx context.Context, t *turn) error {
		close(began)
		<-ctx.Done()
		answers <- t.Settle()
		return nil
	}})
	sub := submit(t, s, item{ID: "1"})
	<-began
	s.StopRun("s", "1", "ann")
	if err := <-answers; !errors.Is(err, scheduler.ErrStopped) {
		t.Errorf("Settle = %v", err)
	}
	wantOutcome(t, sub.Ticket, stopped)
	drain(t, s)
}

func TestResetForgetsWhatWaitsAndRunsItAgainWhenWoken(t *testing.T) {
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
		old := submit(t, s, item{ID: "1"})
		submit(t, s, item{ID: "2"})
		submit(t, s, item{ID: "3", Typed: true})
		synctest.Wait()
		s.ResetAll()
		if st := s.Stats(); st.Sessions.Waiting != 0 || st.Cleared != 2 {
			t.Errorf("after the reset: %+v", st)
		}
		s.wakeAll()
		if err := wantOutcome(t, old.Ticket, interrupted); !errors.Is(err, scheduler.ErrReset) {
			t.Errorf("err = %v", err)
		}
		pass(time.Minute)
		if got, want := j.take(), []string{"1 1", "2 2", "2 3"}; !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
		drain(t, s)
	})
}

// begunBy is a scheduler whose store chooses the message m1 after a while, and nothing else.
func begunBy(t *testing.T, after time.Duration, ended chan<- error) *scheduler.Scheduler {
	t.Helper()
	n := 0
	s, err := scheduler.New(t.Context(), scheduler.Config{Run: func(ctx context.Context, t *scheduler.Turn) error {
		if n++; n > 1 {
			t.BeganNothing(scheduler.Nothing{})
			return nil
		}
		linger(after)
		t.Began(scheduler.Batch{RunID: "m1", Messages: []string{"m1"}, Last: 1})
		if ctx.Err() == nil {
			linger(time.Second)
		}
		ended <- context.Cause(ctx)
		return context.Cause(ctx)
	}})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestStopBeforeATurnBeginsCancelsItWhenItBegins(t *testing.T) {
	t.Parallel()
	set := scheduler.DefaultSettings()
	for name, stop := range map[string]struct {
		call func(s *scheduler.Scheduler)
		want bool
	}{
		"of its message":     {func(s *scheduler.Scheduler) { s.StopRun("s", "m1", "ann") }, true},
		"of another message": {func(s *scheduler.Scheduler) { s.StopRun("s", "m2", "ann") }, false},
		"of everything":      {func(s *scheduler.Scheduler) { s.StopAll("s", "ann", 0) }, true},
		"by one that interrupts": {func(s *scheduler.Scheduler) {
			s.Wake(scheduler.Wake{Session: "s", ID: "m2", Row: scheduler.Row{Seq: 2}, Settings: with(set, func(s *scheduler.Settings) { s.Mode = scheduler.ModeInterrupt })})
		}, true},
		"of the oldest turn, which the store stops": {func(s *scheduler.Scheduler) { s.Stop("s", "ann") }, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ended := make(chan error, 2)
				s := begunBy(t, time.Second, ended)
				s.Wake(scheduler.Wake{Session: "s", ID: "m1", Row: scheduler.Row{Seq: 1}, Settings: set})
				synctest.Wait()
				stop.call(s)
				if cause := <-ended; (cause != nil) != stop.want {
					t.Errorf("the turn ended by %v", cause)
				}
				if err := s.Drain(context.Background()); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// Another process has accepted a message for another lane before the one of the slot: the session
// moves to that lane at once, and waits as long as the store says.
func TestSlotForAnotherFrontMovesTheSession(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		base, set := time.Now(), scheduler.DefaultSettings()
		var j journal
		s, err := scheduler.New(t.Context(), scheduler.Config{Lanes: lanes(map[string]int{"main": 1, "side": 1}), Run: func(_ context.Context, t *scheduler.Turn) error {
			j.add("%v %s", time.Since(base), t.Lane())
			switch at := time.Since(base); {
			case t.Lane() == "main" && at == 0:
				t.BeganNothing(scheduler.Nothing{Left: &scheduler.Wake{Session: "s", Row: scheduler.Row{Seq: 1, Lane: "side"}, Settings: set, Waiting: 2}})
				return nil
			case at == 0:
				t.BeganNothing(scheduler.Nothing{Wait: time.Minute, Left: &scheduler.Wake{Session: "s", Row: scheduler.Row{Seq: 1, Lane: "side"}, Settings: set, Waiting: 2}})
				return nil
			}
			t.Began(scheduler.Batch{RunID: "r"})
			return nil
		}})
		if err != nil {
			t.Fatal(err)
		}
		s.Wake(scheduler.Wake{Session: "s", Row: scheduler.Row{Seq: 3}, Settings: set})
		synctest.Wait()
		if st := s.Stats().Sessions; st.Debouncing != 2 || st.Waiting != 2 {
			t.Errorf("in the window: %+v", st)
		}
		pass(2 * time.Minute)
		if got, want := j.take(), []string{"0s main", "0s side", "1m0s side"}; !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
		if st := s.Stats(); st.Sessions != (scheduler.SessionTotals{}) || st.Principals != 0 {
			t.Errorf("left %+v", st)
		}
		if err := s.Drain(context.Background()); err != nil {
			t.Error(err)
		}
	})
}

func TestSessionOfAnotherProcessIsForgotten(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		lost := make(chan struct{})
		s, err := scheduler.New(t.Context(), scheduler.Config{Run: func(_ context.Context, t *scheduler.Turn) error {
			<-lost
			t.BeganNothing(scheduler.Nothing{})
			return nil
		}})
		if err != nil {
			t.Fatal(err)
		}
		s.Wake(scheduler.Wake{Session: "s", Row: scheduler.Row{Seq: 1}, Settings: scheduler.DefaultSettings()})
		close(lost)
		synctest.Wait()
		if st, ok := s.Session("s"); ok || s.Tracks("s") {
			t.Errorf("left %+v", st)
		}
		if err := s.Drain(context.Background()); err != nil {
			t.Error(err)
		}
	})
}

// A message comes after the store has decided, and before the scheduler knows what it decided.
func TestWakeDuringTheDecisionOfTheStoreIsNotLost(t *testing.T) {
	t.Parallel()
	for _, began := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			asked := 0
			s, err := scheduler.New(t.Context(), scheduler.Config{Run: func(_ context.Context, t *scheduler.Turn) error {
				asked++
				if asked == 1 {
					linger(time.Second)
				}
				if asked == 1 && !began {
					t.BeganNothing(scheduler.Nothing{Seen: 1})
				} else {
					t.Began(scheduler.Batch{RunID: "r", Seen: 1})
				}
				return nil
			}})
			if err != nil {
				t.Fatal(err)
			}
			for seq := range int64(2) {
				s.Wake(scheduler.Wake{Session: "s", Row: scheduler.Row{Seq: seq + 1}, Settings: scheduler.DefaultSettings()})
				synctest.Wait()
			}
			pass(time.Second)
			if asked != 2 {
				t.Errorf("the store was asked %d times, want 2", asked)
			}
			if err := s.Drain(context.Background()); err != nil {
				t.Error(err)
			}
		})
	}
}
