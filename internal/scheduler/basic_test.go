package scheduler_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"laneway/internal/scheduler"
)

func TestMessagesOfASessionRunInOrderOneAtATime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		j := &journal{}
		s := newScheduler(t, config{Run: takes(j, time.Second)})
		for i := range 5 {
			sub := submit(t, s, item{ID: "m" + strconv.Itoa(i), Payload: strconv.Itoa(i)})
			if sub.Running != (i == 0) || sub.Position != max(0, i-1) {
				t.Errorf("message %d: running %v, position %d", i, sub.Running, sub.Position)
			}
		}
		synctest.Wait()
		checkSums(t, s)
		pass(10 * time.Second)
		want := []string{"0s 0", "1s 1", "2s 2", "3s 3", "4s 4"}
		if got := j.take(); !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
		if _, ok := s.Session("s"); ok {
			t.Error("the idle session is still known")
		}
		drain(t, s)
	})
}

func TestSessionsShareALaneByTurns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		j := &journal{}
		s := newScheduler(t, config{Lanes: lanes(map[string]int{"main": 1}), Run: takes(j, time.Second)})
		for _, m := range []string{"a1", "a2", "a3", "b1", "b2", "c1"} {
			submit(t, s, item{Session: m[:1], ID: m, Payload: m})
		}
		pass(10 * time.Second)
		want := []string{"0s a1", "1s b1", "2s c1", "3s a2", "4s b2", "5s a3"}
		if got := j.take(); !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
		drain(t, s)
	})
}

func TestGroupRunsUpToItsLimit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		j := &journal{}
		s := newScheduler(t, config{Run: takes(j, time.Second), Queue: scheduler.Settings{MaxConcurrent: 3}})
		for i := range 7 {
			submit(t, s, item{ID: strconv.Itoa(i), Payload: strconv.Itoa(i)})
		}
		synctest.Wait()
		if st, _ := s.Session("s"); len(st.Running) != 3 || st.Waiting != 4 || st.State != scheduler.StateRunning {
			t.Errorf("session %+v", st)
		}
		pass(10 * time.Second)
		if got := j.take(); len(got) != 7 || !strings.HasPrefix(got[6], "2s") {
			t.Errorf("got %q", got)
		}
		drain(t, s)
	})
}

func TestPanicIsAnOutcome(t *testing.T) {
	t.Parallel()
	boom := errors.New("boom")
	var out strings.Builder
	s := newScheduler(t, config{Lanes: lanes(map[string]int{"main": 1}), Logger: testLogger(&out), Run: func(_ context.Context, t *turn) error {
		switch t.RunID() {
		case "panic":
			panic(boom)
		case "goexit":
			runtime.Goexit()
		case "error":
			return boom
		}
		return nil
	}})
	cases := []struct {
		id   string
		want outcome
		err  error
	}{
		{"panic", failed, scheduler.ErrGoexit},
		{"goexit", failed, scheduler.ErrGoexit},
		{"error", failed, boom},
		{"fine", answered, nil},
	}
	for _, c := range cases {
		err := wantOutcome(t, submit(t, s, item{ID: c.id}).Ticket, c.want)
		if !errors.Is(err, c.err) {
			t.Errorf("%s: err = %v, want %v", c.id, err, c.err)
		}
	}
	drain(t, s)
	if log := out.String(); !strings.Contains(log, "run_id=panic") || !strings.Contains(log, "panicked: boom") {
		t.Errorf("log: %s", log)
	}
	if l, _ := s.Stats().Lane("main"); l.Failed != 3 || l.Answered != 1 || l.Started != 4 || l.Active != 0 {
		t.Errorf("lane %+v", l)
	}
}

func TestUnknownLaneFallsBackToMain(t *testing.T) {
	t.Parallel()
	lanes := make(chan string, 3)
	var out strings.Builder
	s := newScheduler(t, config{
		Logger: testLogger(&out),
		Run: func(_ context.Context, t *turn) error {
			lanes <- t.Lane()
			return nil
		},
	})
	for i := range 2 {
		wantOutcome(t, submit(t, s, item{ID: strconv.Itoa(i), Lane: "unknown"}).Ticket, answered)
		if got := <-lanes; got != "main" {
			t.Errorf("ran in %q", got)
		}
	}
	for _, limit := range []int{4, 9} {
		if err := s.SetLane(scheduler.Lane{Name: "unknown", Limit: limit}); err != nil {
			t.Error(err)
		}
		if l, ok := s.Stats().Lane("unknown"); !ok || l.Capacity != limit {
			t.Errorf("the lane is %+v, want %d slots", l, limit)
		}
	}
	wantOutcome(t, submit(t, s, item{ID: "x", Lane: "unknown"}).Ticket, answered)
	if got := <-lanes; got != "unknown" {
		t.Errorf("ran in %q", got)
	}
	drain(t, s)
	if n := s.Stats().UnknownLanes; n != 2 {
		t.Errorf("%d unknown lanes counted, want 2", n)
	}
	if n := strings.Count(out.String(), "unknown lane"); n != 1 {
		t.Errorf("logged %d times, want once: %s", n, &out)
	}
}

// TestTurnsOfASessionBeginInTheirOrder gives three slots to a session whose first turn begins
// slowly: the second begins after it, and both then run concurrently.
func TestTurnsOfASessionBeginInTheirOrder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var j journal
		base := time.Now()
		var begun atomic.Int32
		set := scheduler.DefaultSettings()
		set.MaxConcurrent = 3
		s, err := scheduler.New(t.Context(), scheduler.Config{Lanes: lanes(map[string]int{"main": 3}), Run: func(_ context.Context, t *scheduler.Turn) error {
			var (
				n    int32
				left *scheduler.Wake
			)
			if t.Session() == "s" {
				linger(3 * time.Second)
				if n = begun.Add(1); n < 3 {
					left = &scheduler.Wake{Session: "s", Settings: set}
				}
			}
			t.Began(scheduler.Batch{RunID: fmt.Sprint(t.Session(), n), Left: left})
			j.add("%v %s", time.Since(base), t.RunID())
			linger(time.Minute)
			return nil
		}})
		if err != nil {
			t.Fatal(err)
		}
		for range 3 {
			s.Wake(scheduler.Wake{Session: "s", Settings: set})
		}
		s.Wake(scheduler.Wake{Session: "other", Settings: set}) // the slots that the session does not use yet are free
		pass(10 * time.Second)
		if got, want := j.take(), []string{"0s other0", "3s s1", "6s s2"}; !slices.Equal(got, want) { // the third slot is used by the other one
			t.Errorf("began %q, want %q", got, want)
		}
		pass(5 * time.Minute)
		if err := s.Drain(context.Background()); err != nil {
			t.Error(err)
		}
	})
}

// A turn that returns, or panics, before it begins gives its session back: the store is asked
// again.
func TestSlotWithoutAnAnswerAsksAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		s, err := scheduler.New(t.Context(), scheduler.Config{Run: func(_ context.Context, t *scheduler.Turn) error {
			asked++
			switch asked {
			case 1:
				panic("as asked")
			case 2:
				return errFailed
			case 3:
				t.BeganNothing(scheduler.Nothing{Unknown: true})
				return nil
			}
			t.Began(scheduler.Batch{RunID: "r"})
			return nil
		}})
		if err != nil {
			t.Fatal(err)
		}
		s.Wake(scheduler.Wake{Session: "s", Settings: scheduler.DefaultSettings()})
		pass(time.Minute)
		if st := s.Stats().Sessions; asked != 4 || st.Tracked != 0 {
			t.Errorf("asked %d times, left %+v", asked, st)
		}
		if err := s.Drain(context.Background()); err != nil {
			t.Error(err)
		}
	})
}

// Consecutive messages that gather wait for one turn; a person's message between them keeps its own
// turn.
func TestMessagesThatGatherShareATurn(t *testing.T) {
	t.Parallel()
	for _, mode := range scheduler.QueueModes() {
		if mode == scheduler.ModeInterrupt {
			continue // a message in this mode ends waiting messages
		}
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var j journal
				s := newScheduler(t, config{Run: takes(&j, time.Second)})
				for i, word := range []string{"run", "t1", "t2", "person", "t3", "u1", "t4", "t5"} {
					it := item{ID: strconv.Itoa(i), Payload: word, Sender: word[:1], Gathers: len(word) == 2, Settings: &scheduler.Settings{Mode: mode}}
					submit(t, s, it)
				}
				pass(time.Minute)
				drain(t, s)
				want := []string{"0s run", "1s t1+t2", "2s person", "3s t3", "4s u1", "5s t4+t5"}
				if got := j.take(); !slices.Equal(got, want) {
					t.Errorf("got %q, want %q", got, want)
				}
			})
		})
	}
}

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
