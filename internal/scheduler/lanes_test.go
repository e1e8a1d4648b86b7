package scheduler_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"laneway/internal/scheduler"
)

// Groups that request one and a half times the capacity of their lane. The lane must stay busy: in
// each ten seconds at least 95 % of the possible work of its slots is done.
func TestAFullLaneKeepsMoving(t *testing.T) {
	t.Parallel()
	cases := []struct {
		slots, groups, limit int
		typed                bool
	}{{30, 25, 3, false}, {30, 25, 3, true}, {1, 5, 3, false}, {2, 5, 3, true}}
	for _, c := range cases {
		t.Run(fmt.Sprintf("%d slots, typed %v", c.slots, c.typed), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { overload(t, c.slots, c.groups, c.limit, c.typed) })
		})
	}
}

func overload(t *testing.T, slots, groups, limit int, typed bool) {
	t.Helper()
	const window, length = 10 * time.Second, 10 * time.Minute
	rng := rand.New(rand.NewPCG(uint64(slots), uint64(groups)))
	var mu sync.Mutex
	base := time.Now()
	work := make([]time.Duration, length/window+1) // time of turns, by the window in which it was spent
	spend := func(from, to time.Duration) {
		mu.Lock()
		defer mu.Unlock()
		for from < to && from < length {
			end := min(to, from.Truncate(window)+window)
			work[from/window] += end - from
			from = end
		}
	}
	between := func(from, to time.Duration) time.Duration {
		mu.Lock()
		defer mu.Unlock()
		return from + time.Duration(rng.Int64N(int64(to-from)))
	}
	s := newScheduler(t, config{
		Lanes: lanes(map[string]int{"main": slots}), Queue: scheduler.Settings{MaxConcurrent: limit},
		Run: func(context.Context, *turn) error {
			begin := time.Since(base)
			linger(between(2*time.Second, 4*time.Second))
			spend(begin, time.Since(base))
			return nil
		},
	})
	// 25 groups that send a message each 0.9 to 2.4 s request one and a half times the capacity of
	// 30 slots in turns of 2 to 4 s; other numbers of groups and slots are scaled to the same
	// proportion.
	pause := func() time.Duration {
		return between(900*time.Millisecond, 2400*time.Millisecond) * time.Duration(groups*30) / time.Duration(25*slots)
	}
	var senders sync.WaitGroup
	for group := range groups {
		senders.Go(func() {
			for n := 0; time.Since(base) < length; n++ {
				linger(pause())
				it := item{Session: strconv.Itoa(group), ID: fmt.Sprint(group, "-", n), Sender: strconv.Itoa(n), Typed: typed}
				s.Submit(it)
			}
		})
	}
	for time.Since(base) < length {
		pass(250 * time.Millisecond)
		checkSums(t, s)
		if l, _ := s.Stats().Lane("main"); l.Active > l.Capacity {
			t.Fatalf("lane %+v", l)
		}
	}
	senders.Wait()
	if err := s.Drain(context.Background()); err != nil {
		t.Fatal(err)
	}
	capacity := window * time.Duration(slots)
	first := 1 // the lane fills in the first window
	for i, did := range work[first : len(work)-1] {
		if did*100 < capacity*95 {
			t.Errorf("window %d: %.1f %% of the capacity", first+i, 100*did.Seconds()/capacity.Seconds())
		}
	}
	drain(t, s)
}

// One group alone in a lane that is smaller than the concurrent turns of the group.
func TestALaneRunsNoMoreTurnsThanItsLimit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var active, most atomic.Int64
		s := newScheduler(t, config{Lanes: lanes(map[string]int{"main": 3}), Run: func(context.Context, *turn) error {
			most.Store(max(most.Load(), active.Add(1)))
			linger(time.Second)
			active.Add(-1)
			return nil
		}})
		for i := range 10 {
			submit(t, s, item{Session: strconv.Itoa(i), ID: "x"})
		}
		pass(time.Minute)
		if got := most.Load(); got != 3 {
			t.Errorf("%d turns ran at once in a lane of 3", got)
		}
		drain(t, s)
	})
}

func TestAGroupFinishesInALaneOfOneOrTwo(t *testing.T) {
	t.Parallel()
	for slots := 1; slots <= 2; slots++ {
		for _, debounce := range []time.Duration{-1, 800 * time.Millisecond} {
			t.Run(fmt.Sprintf("%d slots, debounce %v", slots, debounce), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					s := newScheduler(t, config{
						Lanes: lanes(map[string]int{"main": slots}), Run: takes(&journal{}, 3*time.Second),
						Queue: scheduler.Settings{MaxConcurrent: 3, Debounce: debounce},
					})
					var tickets []*ticket
					for i := range 3 {
						tickets = append(tickets, submit(t, s, item{ID: strconv.Itoa(i), Sender: strconv.Itoa(i), Typed: true}).Ticket)
					}
					for _, ticket := range tickets {
						wantOutcome(t, ticket, answered)
					}
					synctest.Wait()
					if l, _ := s.Stats().Lane("main"); l.Active != 0 || l.Capacity != slots {
						t.Errorf("lane %+v", l)
					}
					drain(t, s)
				})
			})
		}
	}
}

func TestNestedTurnsDoNotDeadlockInLanesOfOne(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		limits := map[string]int{"main": 1, "subagent": 1}
		var s *sched
		var active, most atomic.Int32
		s = newScheduler(t, config{Lanes: lanes(limits), Run: func(ctx context.Context, t *turn) error {
			most.Store(max(most.Load(), active.Add(1)))
			defer active.Add(-1)
			depth := len(t.Session())
			if depth == 6 {
				linger(time.Second)
				return nil
			}
			// Two concurrent children, one in each lane.
			var tickets []*ticket
			for _, lane := range []string{"main", "subagent"} {
				sub := s.Submit(item{Session: t.Session() + lane[:1], ID: t.RunID() + lane[:1], Lane: lane})
				tickets = append(tickets, sub.Ticket)
			}
			active.Add(-1)
			defer active.Add(1)
			return t.Yield(ctx, func(ctx context.Context) error {
				for _, ticket := range tickets {
					if _, err := ticket.Wait(ctx); err != nil {
						return err
					}
				}
				return nil
			})
		}})
		var roots []*ticket
		for _, key := range []string{"a", "b", "c"} {
			roots = append(roots, submit(t, s, item{Session: key, ID: key}).Ticket)
		}
		for _, ticket := range roots {
			wantOutcome(t, ticket, answered)
		}
		drain(t, s)
		if n := s.outcomes()[answered]; n != 3*63 {
			t.Errorf("%d turns, want %d", n, 3*63)
		}
		if got := most.Load(); got > 2 {
			t.Errorf("%d turns worked at once in two slots", got)
		}
	})
}

func TestYieldGivesTheSlotBackAndTakesItFirst(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		j := &journal{}
		base := time.Now()
		release, again := make(chan struct{}), make(chan error, 1)
		s := newScheduler(t, config{Lanes: lanes(map[string]int{"main": 1}), Run: func(ctx context.Context, t *turn) error {
			switch t.RunID() {
			case "parent":
			case "alone":
				return t.Yield(ctx, func(context.Context) error { return errFailed })
			default:
				j.add("%v %s", time.Since(base), t.RunID())
				linger(time.Second)
				return nil
			}
			err := t.Yield(ctx, func(ctx context.Context) error {
				again <- t.Yield(ctx, func(context.Context) error { return nil })
				<-release
				return errFailed
			})
			j.add("%v back: %v", time.Since(base), err)
			return nil
		}})
		parent := submit(t, s, item{Session: "parent", ID: "parent"})
		synctest.Wait()
		if err := <-again; !errors.Is(err, scheduler.ErrYielding) {
			t.Errorf("a Yield inside a Yield: %v", err)
		}
		for _, id := range []string{"a", "b"} {
			submit(t, s, item{Session: id, ID: id})
		}
		synctest.Wait()
		if l, _ := s.Stats().Lane("main"); l.Active != 1 || l.Yielded != 1 || l.Ready != 1 {
			t.Errorf("lane %+v", l)
		}
		close(release)
		wantOutcome(t, parent.Ticket, answered)
		pass(time.Minute)
		if got, want := j.take(), []string{"0s a", "1s back: failed as ordered", "1s b"}; !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
		if err := wantOutcome(t, submit(t, s, item{ID: "alone"}).Ticket, failed); !errors.Is(err, errFailed) {
			t.Errorf("a Yield that finds its slot free returned %v", err)
		}
		drain(t, s)
	})
}

func TestAStoppedYieldDoesNotWaitForASlot(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ended := make(chan error, 1)
		var parent *turn
		s := newScheduler(t, config{Lanes: lanes(map[string]int{"main": 1}), Run: func(ctx context.Context, t *turn) error {
			if t.RunID() != "parent" {
				linger(time.Hour)
				return nil
			}
			parent = t
			ended <- t.Yield(ctx, func(ctx context.Context) error { linger(time.Second); return nil })
			linger(time.Minute)
			return nil
		}})
		sub := submit(t, s, item{Session: "parent", ID: "parent"})
		synctest.Wait()
		submit(t, s, item{Session: "other", ID: "other"})
		pass(2 * time.Second)
		s.Stop("parent", "ann")
		if err := <-ended; !errors.Is(err, scheduler.ErrStopped) {
			t.Errorf("Yield = %v", err)
		}
		wantLane := func(when string) {
			t.Helper()
			synctest.Wait()
			if l, _ := s.Stats().Lane("main"); l.Active != 1 || l.Yielded != 0 || l.Ready != 0 || l.Stopping != 0 {
				t.Errorf("%s: lane %+v", when, l)
			}
		}
		wantLane("the turn has no slot and has not ended")
		wantOutcome(t, sub.Ticket, stopped)
		pass(time.Minute)
		wantLane("the turn has ended")
		if err := parent.Yield(context.Background(), nil); !errors.Is(err, scheduler.ErrTurnOver) {
			t.Errorf("Yield of a turn that has ended: %v", err)
		}
		pass(time.Hour)
		drain(t, s)
	})
}

func TestAPanicInsideAYieldKeepsTheCountRight(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newScheduler(t, config{Lanes: lanes(map[string]int{"main": 1}), Run: func(ctx context.Context, t *turn) error {
			if t.RunID() == "recovers" {
				func() {
					defer func() { _ = recover() }()
					_ = t.Yield(ctx, func(context.Context) error { panic("in between") })
				}()
				return t.Yield(ctx, func(context.Context) error { return nil })
			}
			return t.Yield(ctx, func(context.Context) error { panic("in between") })
		}})
		wantOutcome(t, submit(t, s, item{ID: "panics"}).Ticket, failed)
		wantOutcome(t, submit(t, s, item{ID: "recovers"}).Ticket, answered)
		synctest.Wait()
		if l, _ := s.Stats().Lane("main"); l.Active != 0 || l.Yielded != 0 {
			t.Errorf("lane %+v", l)
		}
		drain(t, s)
	})
}

func TestResizeUnderLoadLosesNoSlot(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newScheduler(t, config{Lanes: lanes(map[string]int{"main": 2}), Run: takes(&journal{}, time.Second)})
		for i := range 60 {
			submit(t, s, item{Session: strconv.Itoa(i), ID: "x"})
		}
		active := func(want int) {
			t.Helper()
			synctest.Wait()
			if l, _ := s.Stats().Lane("main"); l.Active != want {
				t.Errorf("%d active of %d, want %d", l.Active, l.Capacity, want)
			}
			checkSums(t, s)
		}
		active(2)
		for _, step := range []struct{ n, now, later int }{{10, 10, 10}, {3, 10, 3}, {1, 3, 1}, {20, 20, 17}} {
			if err := s.SetLane(scheduler.Lane{Name: "main", Limit: step.n}); err != nil {
				t.Error(err)
			}
			active(step.now)
			pass(time.Second)
			active(step.later)
		}
		pass(time.Minute)
		active(0)
		for _, bad := range []scheduler.Lane{{Name: "main"}, {Limit: 1}} {
			if err := s.SetLane(bad); !errors.Is(err, scheduler.ErrInvalid) {
				t.Errorf("%+v: %v", bad, err)
			}
		}
		drain(t, s)
	})
}

func TestALargeHistoryRunsOneTurnAtATime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		j := &journal{}
		base := time.Now()
		s := newScheduler(t, config{
			Queue: scheduler.Settings{MaxConcurrent: 3}, Run: takes(j, time.Second),
			TokenEstimate: func(ctx context.Context, session string) (int, int) {
				j.add("%v ask %s", time.Since(base), session)
				switch session {
				case "small":
					return 59, 100
				case "large":
					return 60, 100
				case "slow":
					linger(500 * time.Millisecond)
				case "panics":
					panic("in the estimate")
				default:
					<-ctx.Done()
				}
				return 1, 100
			},
		})
		cases := map[string][]string{
			"small":  {"0s ask small", "0s small", "0s small", "0s small"},
			"large":  {"0s ask large", "0s large", "1s ask large", "1s large", "2s large"},
			"slow":   {"0s ask slow", "0s slow", "500ms slow", "500ms slow"},
			"panics": {"0s ask panics", "0s panics", "0s panics", "0s panics"},
			"never":  {"0s ask never", "0s never", "1s ask never", "1s never", "2s never"},
		}
		for key := range cases {
			for i := range 3 {
				submit(t, s, item{Session: key, ID: strconv.Itoa(i), Payload: key})
			}
		}
		pass(time.Minute)
		got := map[string][]string{}
		for _, line := range j.take() {
			key := line[len(line)-len("never"):]
			for name := range cases {
				if len(line) > len(name) && line[len(line)-len(name):] == name {
					key = name
				}
			}
			got[key] = append(got[key], line)
		}
		for key, want := range cases {
			if !slices.Equal(sorted(got[key]), sorted(want)) {
				t.Errorf("%s: got %q, want %q", key, got[key], want)
			}
		}
		drain(t, s)
	})
}

// The positions in a lane are the order in which the sessions start, whatever their principals and
// the last start are.
func TestPositionsInALaneAreTheOrderOfStarts(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		principals := rapid.SliceOfN(rapid.IntRange(0, 3), 2, 20).Draw(rt, "principals")
		before := rapid.IntRange(0, len(principals)-1).Draw(rt, "ended before")
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			g := newStage(ctx, rt, 1)
			var keys []string
			for i, p := range principals {
				keys = append(keys, strconv.Itoa(i))
				g.submit(rt, fmt.Sprint("p", p), keys[i])
			}
			endNext := func() {
				started := g.starts()
				g.end(started[len(started)-1])
			}
			for range before {
				endNext()
			}
			places := map[string]int{}
			for key, wait := range g.s.Waits(keys) {
				if wait.Cause != scheduler.WaitLane {
					rt.Fatalf("%s: %+v", key, wait)
				}
				places[key] = wait.Position
			}
			done := len(g.starts())
			for range places {
				endNext()
			}
			for i, key := range g.starts()[done:] {
				if places[key] != i+1 {
					rt.Fatalf("%s started %d., and its position was %d (principals %v, %d ended before)", key, i+1, places[key], principals, before)
				}
			}
			endNext()
		})
	})
}

func TestAWaitingMessageHasTheCauseThatHoldsIt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		over := make(chan struct{})
		s := newScheduler(t, config{
			Lanes: lanes(map[string]int{"main": 3, "small": 1}), PrincipalTurns: 1,
			Run: func(context.Context, *turn) error { <-over; return nil },
		})
		put := func(it item) {
			t.Helper()
			submit(t, s, it)
			synctest.Wait()
		}
		typed := scheduler.Settings{Debounce: 3 * time.Second, MaxConcurrent: 1}
		put(item{Session: "runs", ID: "r1"})
		put(item{Session: "runs", ID: "r2"})
		put(item{Session: "runs", ID: "r3", NoMerge: true})
		put(item{Session: "typing", ID: "t1", Typed: true, Settings: &typed})
		put(item{Session: "bound-1", ID: "b1", Principal: "ann", Bounded: true})
		put(item{Session: "bound-2", ID: "b2", Principal: "ann", Bounded: true})
		put(item{Session: "small-1", ID: "s1", Lane: "small"})
		put(item{Session: "small-2", ID: "s2", Lane: "small"})
		time.Sleep(time.Second)
		synctest.Wait()
		keys := []string{"runs", "typing", "bound-1", "bound-2", "small-1", "small-2", "small-2", "unknown"}
		got := s.Waits(keys)
		want := map[string]scheduler.Wait{
			"runs":    {Cause: scheduler.WaitSession, BlockedBy: "r1"},
			"typing":  {Cause: scheduler.WaitDebounce, Left: 2 * time.Second},
			"bound-2": {Cause: scheduler.WaitPrincipal},
			"small-2": {Cause: scheduler.WaitLane, Position: 1},
		}
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("got  %+v\nwant %+v", got, want)
		}
		ended := make(chan error, 1)
		go func() { ended <- s.Drain(context.Background()) }()
		synctest.Wait()
		if waits := s.Waits(keys); len(waits) > 0 {
			t.Errorf("while it drains: %+v", waits)
		}
		close(over)
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
	})
}
