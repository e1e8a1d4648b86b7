package scheduler_test

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
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

// beginners is a Run whose turns call Began after one time, and return after another.
type beginners struct {
	begin map[string]time.Duration // by turn id
	work  time.Duration

	mu    sync.Mutex
	began []string
	at    map[string]time.Duration // start times, relative to the start of the test
	since time.Time
}

func (b *beginners) run(_ context.Context, t *turn) error {
	if d := b.begin[t.RunID()]; d > 0 {
		pass(d)
	}
	b.mu.Lock()
	b.began, b.at[t.RunID()] = append(b.began, t.RunID()), time.Since(b.since)
	b.mu.Unlock()
	t.Began("")
	pass(b.work)
	return nil
}

// TestTurnsOfASessionBeginInTheirOrder gives three slots to a session whose first turn begins
// slowly: the second begins after it, and both then run concurrently.
func TestTurnsOfASessionBeginInTheirOrder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := &beginners{begin: map[string]time.Duration{"0": 3 * time.Second, "1": time.Second}, work: time.Minute, at: map[string]time.Duration{}, since: time.Now()}
		s := newScheduler(t, config{Lanes: lanes(map[string]int{"main": 3}), Begins: true, Run: b.run, Queue: scheduler.Settings{MaxConcurrent: 3}})
		for i := range 3 {
			submit(t, s, item{ID: strconv.Itoa(i)})
		}
		submit(t, s, item{Session: "other", ID: "quick"}) // the slots that the session does not use yet are free
		pass(10 * time.Second)
		b.mu.Lock()
		if want := []string{"quick", "0", "1"}; !slices.Equal(b.began, want) { // the third slot is used by the quick one
			t.Errorf("began %v, want %v", b.began, want)
		}
		if b.at["quick"] != 0 {
			t.Errorf("another session was delayed by %s", b.at["quick"])
		}
		b.mu.Unlock()
		pass(5 * time.Minute)
		drain(t, s)
	})
}

// TestATurnThatReturnsHasBegun lets turns return, and panic, without a call of Began.
func TestATurnThatReturnsHasBegun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newScheduler(t, config{Begins: true, Queue: scheduler.Settings{MaxConcurrent: 3}, Run: func(_ context.Context, t *turn) error {
			if t.RunID() == "0" {
				panic("as asked")
			}
			return nil
		}})
		var tickets []*scheduler.Ticket
		for i := range 3 {
			tickets = append(tickets, submit(t, s, item{ID: strconv.Itoa(i)}).Ticket)
		}
		for i, want := range []scheduler.Outcome{scheduler.OutcomeFailed, scheduler.OutcomeAnswered, scheduler.OutcomeAnswered} {
			if got, err := outcome(t, tickets[i]); got != want {
				t.Errorf("turn %d ended %s (%v), want %s", i, got, err, want)
			}
		}
		drain(t, s)
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
				s := withRows(t, config{Run: takes(&j, time.Second)})
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
