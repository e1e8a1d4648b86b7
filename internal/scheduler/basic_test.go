package scheduler_test

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"strconv"
	"strings"
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
	s := newScheduler(t, config{Lanes: lanes(map[string]int{"main": 1}), Run: func(_ context.Context, t *turn) error {
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
		want scheduler.Outcome
		err  error
	}{
		{"panic", scheduler.OutcomeFailed, scheduler.ErrPanic},
		{"goexit", scheduler.OutcomeFailed, scheduler.ErrGoexit},
		{"error", scheduler.OutcomeFailed, boom},
		{"fine", scheduler.OutcomeAnswered, nil},
	}
	for _, c := range cases {
		err := wantOutcome(t, submit(t, s, item{ID: c.id}).Ticket, c.want)
		if !errors.Is(err, c.err) {
			t.Errorf("%s: err = %v, want %v", c.id, err, c.err)
		}
		if c.id == "panic" && (!errors.Is(err, boom) || err.Error() != "panic: boom") {
			t.Errorf("panic: err = %v", err)
		}
	}
	drain(t, s)
	if l, _ := s.Stats().Lane("main"); l.Failed != 3 || l.Answered != 1 || l.Started != 4 || l.Active != 0 {
		t.Errorf("lane %+v", l)
	}
}

func TestBadMessagesAreRefused(t *testing.T) {
	t.Parallel()
	s := newScheduler(t, config{Run: func(context.Context, *turn) error { return nil }})
	cases := []struct {
		it   item
		want string
	}{
		{item{ID: "x"}, "session"},
		{item{Session: "x"}, "id"},
		{item{Session: "x", ID: "x", Seq: -1}, "seq"},
		{item{Session: "x", ID: "x", Size: -1}, "size"},
		{item{Session: "x", ID: "x", Settings: &scheduler.Settings{Mode: "loud"}}, "settings.mode"},
	}
	for _, c := range cases {
		sub, err := s.Submit(c.it)
		if !errors.Is(err, scheduler.ErrInvalid) || !strings.Contains(err.Error(), c.want) || sub.Ticket != nil {
			t.Errorf("Submit(%+v) = %+v, %v", c.it, sub, err)
		}
	}
	if st := s.Stats(); st.Accepted != 0 || st.Refused[scheduler.RefusedInvalid] != 5 {
		t.Errorf("stats %+v", st)
	}
	drain(t, s)
}

func TestAMessageKnownAlreadyIsADuplicate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		j := &journal{}
		s := newScheduler(t, config{Run: takes(j, time.Second)})
		first := submit(t, s, item{ID: "m5", Seq: 5, Payload: "5"})
		second := submit(t, s, item{ID: "m7", Seq: 7, Payload: "7"})
		for _, c := range []struct {
			seq     int64
			ticket  *scheduler.Ticket
			running bool
		}{{5, first.Ticket, true}, {7, second.Ticket, false}} {
			again := submit(t, s, item{ID: "again", Seq: c.seq})
			if !again.Duplicate || again.Ticket != c.ticket || again.Running != c.running {
				t.Errorf("seq %d again: %+v", c.seq, again)
			}
		}
		late := submit(t, s, item{ID: "m6", Seq: 6, Payload: "6"})
		if late.Duplicate || late.Position != 0 {
			t.Errorf("the late message: %+v", late)
		}
		pass(5 * time.Second)
		if got := j.take(); !slices.Equal(got, []string{"0s 5", "1s 6", "2s 7"}) {
			t.Errorf("got %q", got)
		}
		drain(t, s)
	})
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
		wantOutcome(t, submit(t, s, item{ID: strconv.Itoa(i), Lane: "unknown"}).Ticket, scheduler.OutcomeAnswered)
		if got := <-lanes; got != "main" {
			t.Errorf("ran in %q", got)
		}
	}
	if l, err := s.GetOrCreate(scheduler.Lane{Name: "unknown", Limit: 4}); l.Limit != 4 || err != nil {
		t.Errorf("GetOrCreate = %v, %v", l, err)
	}
	if l, err := s.GetOrCreate(scheduler.Lane{Name: "unknown", Limit: 9}); l.Limit != 4 || err != nil {
		t.Errorf("GetOrCreate again = %v, %v", l, err)
	}
	wantOutcome(t, submit(t, s, item{ID: "x", Lane: "unknown"}).Ticket, scheduler.OutcomeAnswered)
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
