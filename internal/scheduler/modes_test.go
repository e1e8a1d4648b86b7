package scheduler_test

import (
	"context"
	"errors"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"laneway/internal/scheduler"
)

// mode runs messages 0 to n-1 in one session with these settings, whose turns take a second.
func mode(t *testing.T, set scheduler.Settings, n int) (starts []string, subs []submitted, s *sched) {
	t.Helper()
	j := &journal{}
	s = newScheduler(t, config{Queue: set, Run: takes(j, time.Second)})
	for i := range n {
		subs = append(subs, submit(t, s, item{ID: strconv.Itoa(i), Payload: strconv.Itoa(i)}))
		synctest.Wait()
	}
	pass(time.Minute)
	return j.take(), subs, s
}

func TestEachModeStartsWhatItsNamePromises(t *testing.T) {
	t.Parallel()
	cases := []struct {
		set  scheduler.Settings
		want []string
	}{
		{scheduler.Settings{Mode: scheduler.ModeQueue}, []string{"0s 0", "1s 1", "2s 2", "3s 3"}},
		{scheduler.Settings{Mode: scheduler.ModeFollowup}, []string{"0s 0", "1s 1", "2s 2", "3s 3"}},
		{scheduler.Settings{Mode: scheduler.ModeInterrupt}, []string{"0s 0", "0s 1", "0s 2", "0s 3"}},
		{scheduler.Settings{Mode: scheduler.ModeCollect}, []string{"0s 0", "1s 1+2+3"}},
		{scheduler.Settings{Mode: scheduler.ModeSteer}, []string{"0s 0", "1s 1", "2s 2", "3s 3"}},
	}
	for _, c := range cases {
		t.Run(string(c.set.Mode), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				got, _, s := mode(t, c.set, 4)
				if !slices.Equal(got, c.want) {
					t.Errorf("got %q, want %q", got, c.want)
				}
				drain(t, s)
			})
		})
	}
}

func TestInterruptWaitsForTheOldTurnToReturn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		j := &journal{}
		base := time.Now()
		s := newScheduler(t, config{
			Queue: scheduler.Settings{Mode: scheduler.ModeInterrupt, MaxConcurrent: 3},
			Run: func(ctx context.Context, t *turn) error {
				j.add("%v begin %s", time.Since(base), t.RunID())
				<-ctx.Done()
				linger(1500 * time.Millisecond) // it ends slowly
				j.add("%v end %s: %v", time.Since(base), t.RunID(), context.Cause(ctx))
				return nil
			},
		})
		old := submit(t, s, item{ID: "old"})
		synctest.Wait()
		var subs []submitted
		for i := range 5 {
			subs = append(subs, submit(t, s, item{ID: strconv.Itoa(i), Typed: true, Sender: "a"}))
		}
		for i, sub := range subs[1:] {
			if !slices.Equal(sub.Ended, []string{strconv.Itoa(i)}) {
				t.Errorf("message %d ended %+v", i+1, sub.Ended)
			}
		}
		pass(time.Second)
		if st, _ := s.Session("s"); st.State != scheduler.StateStopping || st.Waiting != 1 {
			t.Errorf("while the old one takes its time: %+v", st)
		}
		pass(time.Second)
		s.Stop("s", "ann")
		pass(time.Minute)
		want := []string{
			"0s begin old", "1.5s end old: superseded by a newer message by 0",
			"1.5s begin 4", "3.5s end 4: stopped by ann",
		}
		if got := j.take(); !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
		if err := wantOutcome(t, old.Ticket, superseded); !errors.Is(err, scheduler.ErrSuperseded) {
			t.Errorf("old: %v", err)
		}
		for _, sub := range subs[:4] {
			wantOutcome(t, sub.Ticket, superseded)
		}
		wantOutcome(t, subs[4].Ticket, stopped)
		drain(t, s)
	})
}

func TestCollectCutsWhereMessagesDoNotBelongTogether(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		j := &journal{}
		s := newScheduler(t, config{
			Queue: scheduler.Settings{Mode: scheduler.ModeCollect, BatchBytes: 100}, Run: takes(j, time.Second),
		})
		for i, it := range []item{
			{Payload: "first"},
			{Payload: "a", Sender: "a"},
			{Payload: "b", Sender: "b", Typed: true}, // no window: it would be collected anyway
			{Payload: "photo", NoMerge: true},
			{Payload: "c"},
			{Payload: "again", RunID: "run-7"},
			{Payload: "d"},
			{Payload: "topic", Thread: "9"},
			{Payload: "e", Size: 60, Thread: "9"},
			{Payload: "f", Size: 41, Thread: "9"},
			{Payload: "g", Size: 59, Thread: "9"},
		} {
			it.ID = strconv.Itoa(i)
			submit(t, s, it)
			synctest.Wait()
		}
		pass(time.Minute)
		want := []string{"0s first", "1s a+b", "2s photo", "3s c", "4s again", "5s d", "6s topic+e", "7s f+g"}
		if got := j.take(); !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
		drain(t, s)
	})
}

func TestSettingsTakeEffectWithTheNextMessage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		j := &journal{}
		s := newScheduler(t, config{Run: takes(j, time.Second)})
		submit(t, s, item{ID: "0", Payload: "0"})
		submit(t, s, item{ID: "1", Payload: "1"})
		two := scheduler.Settings{MaxConcurrent: 2}
		submit(t, s, item{ID: "2", Payload: "2", Settings: &two})
		synctest.Wait()
		if st, _ := s.Session("s"); len(st.Running) != 2 || st.Settings.MaxConcurrent != 2 || st.Settings.BatchMessages != 12 {
			t.Errorf("session %+v", st)
		}
		submit(t, s, item{ID: "3", Payload: "3"})
		pass(time.Minute)
		if got, want := j.take(), []string{"0s 0", "0s 1", "1s 2", "2s 3"}; !slices.Equal(sorted(got), want) {
			t.Errorf("got %q, want %q", got, want)
		}
		drain(t, s)
	})
}

func TestSteeredMessagesReachTheRunningTurn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		j := &journal{}
		base := time.Now()
		s := newScheduler(t, config{
			Queue: scheduler.Settings{Mode: scheduler.ModeSteer, MaxConcurrent: 2},
			Run: func(ctx context.Context, t *turn) error {
				j.add("%v start %s", time.Since(base), texts(t.Items()))
				if !strings.HasPrefix(t.RunID(), "first") {
					return nil
				}
				input := t.AcceptInput()
				end := time.NewTimer(10 * time.Second)
				defer end.Stop()
				for {
					select {
					case <-end.C:
						return nil
					case <-input:
						if time.Since(base) < 5*time.Second {
							if took := t.TakeInput(); len(took) > 0 {
								j.add("%v took %s", time.Since(base), texts(took))
							}
						}
					}
				}
			},
		})
		first := submit(t, s, item{ID: "first", Payload: "go"})
		synctest.Wait()
		left := submit(t, s, item{ID: "left", Payload: "left", Typed: true, Sender: "a"}) // no window: it is steered into the turn immediately
		pass(time.Second)
		submit(t, s, item{ID: "photo", Payload: "photo", NoMerge: true}) // a turn of its own, concurrent with the other
		pass(time.Second)
		right := submit(t, s, item{ID: "right", Payload: "right"})
		pass(4 * time.Second)
		late := submit(t, s, item{ID: "late", Payload: "late"}) // the runner does not check for input any more
		if late.Running {
			t.Error("the late message runs beside the turn that may take it")
		}
		if running := s.Scheduler.StopRun("s", "none", "ann"); len(running) > 0 {
			t.Errorf("stopped %q", running)
		}
		pass(time.Minute)
		want := []string{
			"0s start go", "0s took left", "1s start photo", "2s took right", "10s start late",
		}
		if got := j.take(); !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
		for _, ticket := range []*ticket{left.Ticket, right.Ticket} {
			wantOutcome(t, ticket, merged)
		}
		wantOutcome(t, first.Ticket, answered)
		wantOutcome(t, late.Ticket, answered)
		drain(t, s)
	})
}

func TestAMessageThatWaitedForInputIsAnnouncedAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newScheduler(t, config{
			Queue: scheduler.Settings{Mode: scheduler.ModeSteer},
			Run: func(_ context.Context, t *turn) error {
				linger(time.Second) // the message is already waiting
				select {
				case <-t.AcceptInput():
					t.TakeInput()
				case <-time.After(time.Minute):
				}
				return nil
			},
		})
		submit(t, s, item{ID: "first"})
		synctest.Wait()
		wantOutcome(t, submit(t, s, item{ID: "steer"}).Ticket, merged)
		drain(t, s)
	})
}

func TestSteeredMessagesRunAloneWhenTheTurnIsStopped(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var first *turn
		s := newScheduler(t, config{
			Queue: scheduler.Settings{Mode: scheduler.ModeSteer},
			Run: func(ctx context.Context, t *turn) error {
				if t.RunID() == "first" {
					first = t
					t.AcceptInput()
					<-ctx.Done()
				}
				return nil
			},
		})
		submit(t, s, item{ID: "first"})
		synctest.Wait()
		steer := submit(t, s, item{ID: "steer"})
		s.Stop("s", "ann")
		if got := first.TakeInput(); got != nil {
			t.Errorf("a stopped turn took %v", got)
		}
		wantOutcome(t, steer.Ticket, answered)
		if got := first.TakeInput(); got != nil || first.AcceptInput() == nil {
			t.Errorf("a turn that has ended took %v", got)
		}
		drain(t, s)
	})
}

// sorted sorts lines.
func sorted(lines []string) []string {
	slices.Sort(lines)
	return lines
}

func TestConfigNamesEveryFault(t *testing.T) {
	t.Parallel()
	_, err := scheduler.New(t.Context(), scheduler.Config{
		Lanes:      lanes(map[string]int{"cron": 0, "team": -1, " ": 3, "huge": 1_000_001}),
		ThrottleAt: math.NaN(),
		StopGrace:  -1,
	})
	if !errors.Is(err, scheduler.ErrInvalid) {
		t.Fatalf("New = %v", err)
	}
	loud := scheduler.Settings{Mode: "loud", Debounce: 2 * time.Hour, DebounceMax: -1, MaxConcurrent: -1}
	err = errors.Join(err, loud.Validate())
	for _, want := range []string{
		"run: ", `"main" must exist`, "cron: ", "team: ", "needs a name", "huge: ", "throttle_at: ", "stop_grace: ",
		"mode: ", "debounce: ", "debounce_max: ", "max_concurrent: ",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in:\n%v", want, err)
		}
	}
	twice := scheduler.Config{Run: func(context.Context, *scheduler.Turn) error { return nil }, Lanes: []scheduler.Lane{{Name: "main", Limit: 1}, {Name: "main", Limit: 2}}}
	if err := twice.Validate(); err == nil || !strings.Contains(err.Error(), "main: is there twice") {
		t.Errorf("a lane that is configured twice: %v", err)
	}
	short := scheduler.Settings{Debounce: time.Second, DebounceMax: time.Millisecond}
	if err := short.Validate(); err == nil || !strings.Contains(err.Error(), "shorter than debounce") {
		t.Errorf("Validate = %v", err)
	}
	if err := (scheduler.Settings{}).Validate(); err != nil {
		t.Errorf("the zero settings: %v", err)
	}
	if err := scheduler.DefaultSettings().Validate(); err != nil {
		t.Errorf("the default settings: %v", err)
	}
}

func TestTheZeroConfigHasTheDefaultLanes(t *testing.T) {
	t.Parallel()
	s := newScheduler(t, config{Run: untilStopped})
	for name, want := range map[string]int{"main": 30, "subagent": 50, "team": 100, "cron": 30} {
		if l, ok := s.Stats().Lane(name); !ok || l.Capacity != want {
			t.Errorf("lane %s: %+v, want %d", name, l, want)
		}
	}
	if _, ok := s.Stats().Lane("other"); ok {
		t.Error("there is a lane that was not configured")
	}
	drain(t, s)
}

func TestTheConfigIsCopied(t *testing.T) {
	t.Parallel()
	given := lanes(map[string]int{"main": 2})
	s := newScheduler(t, config{Lanes: given, Run: untilStopped})
	given[0].Limit = 0
	if l, _ := s.Stats().Lane("main"); l.Capacity != 2 {
		t.Errorf("lane %+v", l)
	}
	drain(t, s)
}

func TestSettingsAreLaidOverEachOther(t *testing.T) {
	t.Parallel()
	global := scheduler.Settings{BatchMessages: 5, Debounce: time.Second, DebounceMax: 2 * time.Second}.Over(scheduler.DefaultSettings())
	cases := []struct{ over, want scheduler.Settings }{
		{scheduler.Settings{}, global},
		{scheduler.Settings{BatchMessages: -1}, with(global, func(s *scheduler.Settings) { s.BatchMessages = -1 })},
		{scheduler.Settings{Mode: scheduler.ModeCollect, MaxConcurrent: 3}, with(global, func(s *scheduler.Settings) {
			s.Mode, s.MaxConcurrent = scheduler.ModeCollect, 3
		})},
		{scheduler.Settings{Debounce: 100 * time.Millisecond}, with(global, func(s *scheduler.Settings) {
			s.Debounce, s.DebounceMax = 100*time.Millisecond, 0
		})},
	}
	for _, c := range cases {
		if got := c.over.Over(global); got != c.want {
			t.Errorf("%+v over the global ones = %+v, want %+v", c.over, got, c.want)
		}
	}
}

// with returns a changed copy.
func with(s scheduler.Settings, change func(*scheduler.Settings)) scheduler.Settings {
	change(&s)
	return s
}

func TestCausesMatchTheirSentinels(t *testing.T) {
	t.Parallel()
	sentinels := map[scheduler.CancelReason]error{
		scheduler.ReasonStopped: scheduler.ErrStopped, scheduler.ReasonSuperseded: scheduler.ErrSuperseded,
		scheduler.ReasonDraining: scheduler.ErrDraining, scheduler.ReasonLeaseLost: scheduler.ErrLeaseLost,
		scheduler.ReasonReset:     scheduler.ErrReset,
		scheduler.ReasonCancelled: scheduler.ErrCancelled,
	}
	for reason := range sentinels {
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(&scheduler.CancelCause{Reason: reason, By: "ann", Err: errFailed})
		err := context.Cause(ctx)
		for other, sentinel := range sentinels {
			if errors.Is(err, sentinel) != (other == reason) {
				t.Errorf("cause %s matches %v: %v", reason, sentinel, errors.Is(err, sentinel))
			}
		}
		if !errors.Is(err, errFailed) || !strings.HasSuffix(err.Error(), " by ann: failed as ordered") {
			t.Errorf("cause %v", err)
		}
	}
}
