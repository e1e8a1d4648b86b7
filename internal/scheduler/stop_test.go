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

// ids lists the ids of messages that ended.
func ids(ended []scheduler.Ended[string]) []string {
	var all []string
	for _, e := range ended {
		all = append(all, e.Item.ID)
	}
	return all
}

// runIDs lists the ids of turns.
func runIDs(turns []*turn) []string {
	var all []string
	for _, t := range turns {
		all = append(all, t.RunID())
	}
	return all
}

func TestStopTakesTheOldestRunningTurn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newScheduler(t, config{Lanes: lanes(map[string]int{"main": 2}), Queue: scheduler.Settings{MaxConcurrent: 2}, Run: takesStops(time.Second)})
		for i := range 4 {
			submit(t, s, item{ID: strconv.Itoa(i)})
			synctest.Wait()
		}
		for _, want := range []struct{ running, ended []string }{
			{running: []string{"0"}}, {running: []string{"1"}}, {},
		} {
			st := s.Stop("s", "ann")
			if !slices.Equal(runIDs(st.Running), want.running) || !slices.Equal(ids(st.Ended), want.ended) ||
				st.Nothing() != (len(want.running)+len(want.ended) == 0) {
				t.Errorf("stopped %q and %q, want %+v", runIDs(st.Running), ids(st.Ended), want)
			}
			for _, r := range st.Running {
				if c := r.Cause(); c == nil || c.Reason != scheduler.ReasonStopped || c.By != "ann" {
					t.Errorf("cause %v", c)
				}
			}
		}
		if l, _ := s.Stats().Lane("main"); l.Active != 2 || l.Stopping != 2 {
			t.Errorf("stopping turns keep their slots: %+v", l)
		}
		pass(time.Second)
		if st := s.Stop("s", "ann"); !slices.Equal(runIDs(st.Running), []string{"2"}) {
			t.Errorf("stopped %+v", st)
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
		s := withRows(t, config{Run: untilStopped})
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
			if st := s.StopRun("s", id, "ann"); !slices.Equal(ids(st.Ended), []string{want}) {
				t.Errorf("StopRun(%s) = %+v", id, st)
			}
			if st := s.StopRun("s", id, "ann"); !st.Nothing() {
				t.Errorf("StopRun(%s) again = %+v", id, st)
			}
			checkSums(t, s)
		}
		if st := s.StopRun("s", "m1", "ann"); !slices.Equal(runIDs(st.Running), []string{"m2"}) {
			t.Errorf("StopRun of a merged message = %+v", st)
		}
		if st := s.StopRun("other", "m1", "ann"); !st.Nothing() {
			t.Errorf("StopRun of no session = %+v", st)
		}
		synctest.Wait()
		drain(t, s)
	})
}

func TestStopAllEndsEverythingAndMakesTheLateStale(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newScheduler(t, config{Lanes: lanes(map[string]int{"main": 1}), Run: untilStopped})
		submit(t, s, item{Session: "other", ID: "holds the lane"})
		for i := range 10 {
			submit(t, s, item{ID: strconv.Itoa(i), Seq: int64(i + 1)})
		}
		submit(t, s, item{ID: "typed", Seq: 12, Typed: true})
		st := s.StopAll("s", "ann", 0)
		if len(st.Ended) != 11 || len(st.Running) != 0 || st.Cutoff != 12 {
			t.Errorf("ended %d, running %d, cutoff %d", len(st.Ended), len(st.Running), st.Cutoff)
		}
		for _, e := range st.Ended {
			if e.Outcome != scheduler.OutcomeStopped || !errors.Is(e.Err, scheduler.ErrStopped) {
				t.Errorf("%+v", e)
			}
		}
		if _, ok := s.Session("s"); ok {
			t.Error("the stopped session is still known")
		}
		if _, err := s.Submit(item{Session: "s", ID: "late", Seq: 11}); !errors.Is(err, scheduler.ErrMessageStale) {
			t.Errorf("the late message: %v", err)
		}
		if sub := submit(t, s, item{ID: "new"}); sub.Seq != 13 {
			t.Errorf("the next number is %d, want 13", sub.Seq)
		}
		if st := s.StopAll("s", "ann", 20); st.Cutoff != 20 || len(st.Ended) != 1 {
			t.Errorf("stop all again: %+v", st)
		}
		if _, err := s.Submit(item{Session: "s", ID: "late", Seq: 20}); !errors.Is(err, scheduler.ErrMessageStale) {
			t.Errorf("the late message: %v", err)
		}
		if st := s.StopAll("unknown", "ann", 0); !st.Nothing() || st.Cutoff != 0 {
			t.Errorf("stop all of nothing: %+v", st)
		}
		if d := s.Stats().Drops; d.Stale != 2 {
			t.Errorf("drops %+v", d)
		}
		drain(t, s)
	})
}

func TestCutoffsAreBounded(t *testing.T) {
	t.Parallel()
	s := newScheduler(t, config{Run: untilStopped})
	const many = 16_384
	for i := range many + 1 {
		s.StopAll(strconv.Itoa(i), "ann", 5)
	}
	for session, want := range map[string]error{"0": nil, "1": scheduler.ErrMessageStale, strconv.Itoa(many): scheduler.ErrMessageStale} {
		if _, err := s.Submit(item{Session: session, ID: "x", Seq: 5}); !errors.Is(err, want) {
			t.Errorf("session %s: %v, want %v", session, err, want)
		}
	}
	drain(t, s)
}

func TestStopDoesNotWaitForAFullLane(t *testing.T) {
	t.Parallel()
	running := make(chan *turn, 2)
	s := newScheduler(t, config{
		Lanes: lanes(map[string]int{"main": 2}),
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
	if st := s.Stop("c", "ann"); !st.Nothing() {
		t.Errorf("stopped %q", ids(st.Ended))
	}
	if st := s.StopAll("c", "ann", 0); len(st.Ended) != 10_000 {
		t.Errorf("ended %d", len(st.Ended))
	}
	if st := s.Stop("a", "ann"); len(st.Running) != 1 {
		t.Errorf("stopped %+v", st)
	}
	wantOutcome(t, a.Ticket, scheduler.OutcomeStopped)
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
		wantOutcome(t, deaf.Ticket, scheduler.OutcomeStopped)
		if now := time.Since(base); now != 2*time.Second {
			t.Errorf("the outcome came after %v", now)
		}
		wantOutcome(t, next.Ticket, scheduler.OutcomeAnswered)
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
		var tickets []*scheduler.Ticket
		for i := range 1000 {
			key := strconv.Itoa(i % 7)
			tickets = append(tickets, submit(t, s, item{Session: key, ID: strconv.Itoa(i)}).Ticket)
			if st := s.StopRun(key, strconv.Itoa(i), "ann"); st.Nothing() {
				t.Fatalf("stop %d stopped nothing", i)
			}
			if i%10 == 0 {
				pass(7 * time.Millisecond)
				checkSums(t, s)
			}
		}
		for _, ticket := range tickets {
			wantOutcome(t, ticket, scheduler.OutcomeStopped)
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
		if st := s.Stop("s", "ann"); !st.Nothing() {
			t.Errorf("stopped %+v", st)
		}
		s.Reset("other")
		write <- struct{}{}
		wantOutcome(t, first.Ticket, scheduler.OutcomeAnswered)
		synctest.Wait()
		if err := settled.Settle(); !errors.Is(err, scheduler.ErrTurnOver) {
			t.Errorf("Settle of a turn that has ended: %v", err)
		}
		synctest.Wait()
		s.Cancel(scheduler.ErrLeaseLost) // this also reaches the settled second one
		if err := wantOutcome(t, waiting.Ticket, scheduler.OutcomeFailed); !errors.Is(err, scheduler.ErrLeaseLost) {
			t.Errorf("err = %v", err)
		}
		drain(t, s)
	})
}

func TestSettleComesTooLateAfterAStop(t *testing.T) {
	t.Parallel()
	answers := make(chan error, 1)
	s := newScheduler(t, config{Run: func(ctx context.Context, t *turn) error {
		<-ctx.Done()
		answers <- t.Settle()
		return nil
	}})
	sub := submit(t, s, item{ID: "1"})
	s.Stop("s", "ann") // this may happen before the goroutine has begun
	if err := <-answers; !errors.Is(err, scheduler.ErrStopped) {
		t.Errorf("Settle = %v", err)
	}
	wantOutcome(t, sub.Ticket, scheduler.OutcomeStopped)
	drain(t, s)
}

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

// begunBy runs a turn whose store chooses these messages after a while.
func begunBy(after time.Duration, ended chan<- error, chosen ...item) config {
	return config{Begins: true, Run: func(ctx context.Context, t *turn) error {
		linger(after)
		t.Began("", chosen...)
		if ctx.Err() == nil {
			linger(time.Second)
		}
		ended <- context.Cause(ctx)
		return context.Cause(ctx)
	}}
}

func TestStopBeforeATurnBeginsCancelsItWhenItBegins(t *testing.T) {
	t.Parallel()
	mine := item{Session: "s", ID: "m1", Seq: 1}
	for name, stop := range map[string]struct {
		call func(s *sched)
		want bool
	}{
		"of its message":     {func(s *sched) { s.StopRun("s", "m1", "ann") }, true},
		"of another message": {func(s *sched) { s.StopRun("s", "m2", "ann") }, false},
		"of everything":      {func(s *sched) { s.StopAll("s", "ann", 0) }, true},
		"by one that interrupts": {func(s *sched) {
			_, _ = s.Submit(item{Session: "s", ID: "m2", Seq: 2, Settings: &scheduler.Settings{Mode: scheduler.ModeInterrupt}})
		}, true},
		"of the oldest turn, which the store stops": {func(s *sched) { s.Stop("s", "ann") }, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ended := make(chan error, 2)
				s := newScheduler(t, begunBy(time.Second, ended, mine))
				submit(t, s, mine)
				synctest.Wait()
				stop.call(s)
				if cause := <-ended; (cause != nil) != stop.want {
					t.Errorf("the turn ended by %v", cause)
				}
				s.StopAll("s", "test", 0)
				drain(t, s)
			})
		})
	}
}

func TestStoreChoosesTheMessagesOfATurn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		earlier, known := item{Session: "s", ID: "m1", Seq: 1}, item{Session: "s", ID: "m3", Seq: 3}
		var took []string
		turns := 0
		s := newScheduler(t, config{Begins: true, Run: func(_ context.Context, t *turn) error {
			turns++
			switch turns {
			case 1: // another process has accepted the first, and the one of the slot waits again
				t.Began("", earlier)
				t.Gone(3, 3)
			case 2:
				t.BeganNothing(scheduler.Nothing{Wait: time.Minute, First: 3, Last: 3})
				return nil
			default:
				t.Began("")
			}
			took = append(took, t.RunID())
			return nil
		}})
		submit(t, s, known)
		synctest.Wait()
		if st, _ := s.Session("s"); turns != 2 || st.Waiting != 1 {
			t.Errorf("%d turns, %+v", turns, st)
		}
		checkSums(t, s)
		pass(time.Minute)
		if !slices.Equal(took, []string{"m1", "m3"}) {
			t.Errorf("turns %q", took)
		}
		drain(t, s)
	})
}

func TestSessionOfAnotherProcessIsForgotten(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newScheduler(t, config{Begins: true, Run: func(_ context.Context, t *turn) error {
			t.BeganNothing(scheduler.Nothing{Lost: true})
			return nil
		}})
		for i := range 3 {
			submit(t, s, item{ID: strconv.Itoa(i)})
		}
		synctest.Wait()
		if st, ok := s.Session("s"); ok || s.Known("s") != 0 {
			t.Errorf("left %+v, known %d", st, s.Known("s"))
		}
		drain(t, s)
	})
}
