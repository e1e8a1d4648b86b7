package scheduler_test

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"laneway/internal/scheduler"
)

func TestConfigNamesEveryFault(t *testing.T) {
	t.Parallel()
	_, err := scheduler.New(t.Context(), config{
		Lanes:      lanes(map[string]int{"cron": 0, "team": -1, " ": 3, "huge": 1_000_001}),
		ThrottleAt: math.NaN(),
		StopGrace:  -1,
		Queue: scheduler.Settings{
			Mode: "loud", Debounce: 2 * time.Hour, DebounceMax: -1, MaxConcurrent: -1,
		},
	})
	if !errors.Is(err, scheduler.ErrInvalid) {
		t.Fatalf("New = %v", err)
	}
	for _, want := range []string{
		"run: ", `"main" must exist`, "cron: ", "team: ", "needs a name", "huge: ", "throttle_at: ", "stop_grace: ",
		"queue.mode: ", "queue.debounce: ", "queue.debounce_max: ", "queue.max_concurrent: ",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in:\n%v", want, err)
		}
	}
	twice := config{Run: untilStopped, Lanes: []scheduler.Lane{{Name: "main", Limit: 1}, {Name: "main", Limit: 2}}}
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
	merged := &scheduler.MergedError{RunID: "r7"}
	if !errors.Is(merged, scheduler.ErrMerged) || !strings.Contains(merged.Error(), "r7") {
		t.Errorf("merged: %v", merged)
	}
	panicked := &scheduler.PanicError{Value: 7}
	if !errors.Is(panicked, scheduler.ErrPanic) || errors.Unwrap(panicked) != nil || panicked.Error() != "panic: 7" {
		t.Errorf("panicked: %v", panicked)
	}
}
