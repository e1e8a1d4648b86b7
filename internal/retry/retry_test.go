package retry_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"laneway/internal/retry"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var errPassing, errPermanent = errors.New("passing"), errors.New("permanent")

func TestTheWaitDoublesUpToItsBoundAndVariesByItsShare(t *testing.T) {
	t.Parallel()
	p := retry.Policy{Base: time.Second, Max: 5 * time.Second}
	middle := func() float64 { return 0.5 }
	for n, want := range []time.Duration{time.Second, time.Second, 2 * time.Second, 4 * time.Second, 5 * time.Second, 5 * time.Second} {
		if got := p.WaitBy(n, middle); got != want {
			t.Errorf("the wait after attempt %d is %s, want %s", n, got, want)
		}
	}
	if got := (retry.Policy{}).Wait(1025); got != 0 { // zero times a factor that is not a number
		t.Errorf("the zero policy waits %s", got)
	}
	rapid.Check(t, func(t *rapid.T) {
		p := retry.Policy{
			Base: time.Duration(rapid.Int64Range(0, int64(time.Hour)).Draw(t, "base")), Max: time.Duration(rapid.Int64Range(0, int64(time.Hour)).Draw(t, "max")),
			Spread: rapid.Float64Range(-1, 1).Draw(t, "spread"),
		}
		n := rapid.IntRange(0, 10_000).Draw(t, "n")
		wait, most := p.WaitBy(n, func() float64 { return rapid.Float64Range(0, 0.999999).Draw(t, "random") }), 2*max(p.Max, p.Base)
		if wait < 0 || wait > most {
			t.Fatalf("the wait after attempt %d is %s, beyond 0 to %s", n, wait, most)
		}
	})
}

func TestDoRepeatsUntilTheOperationSucceeds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began, calls := time.Now(), 0
		var noted []int
		err := retry.Do(t.Context(), retry.Options{
			Policy: retry.Policy{Base: time.Second, Max: time.Minute, Spread: -1},
			Notify: func(_ error, attempt int, _ time.Duration) { noted = append(noted, attempt) },
		}, func(context.Context) error {
			if calls++; calls < 4 {
				return errPassing
			}
			return nil
		})
		if took := time.Since(began); err != nil || calls != 4 || took != 7*time.Second || len(noted) != 3 {
			t.Errorf("%v after %d calls and %s, noted %v", err, calls, took, noted)
		}
	})
}

func TestDoEndsWithTheErrorOfTheLastAttempt(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		o     retry.Options
		err   error
		calls int
	}{
		"attempts are used up":              {retry.Options{Attempts: 3}, errPassing, 3},
		"one attempt":                       {retry.Options{Attempts: 1}, errPassing, 1},
		"not retryable":                     {retry.Options{Retryable: func(err error) bool { return !errors.Is(err, errPermanent) }}, errPermanent, 1},
		"the wait is longer than it may be": {retry.Options{Policy: retry.Policy{Base: time.Second}, MaxWait: 500 * time.Millisecond}, errPassing, 1},
		"the error asks for a longer wait":  {retry.Options{After: func(error) time.Duration { return time.Hour }, MaxWait: time.Minute}, errPassing, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				calls := 0
				err := retry.Do(t.Context(), c.o, func(context.Context) error { calls++; return c.err })
				if err != c.err || calls != c.calls { //nolint:errorlint // unwrapped
					t.Errorf("%v after %d calls, want %v after %d", err, calls, c.err, c.calls)
				}
			})
		})
	}
}

func TestDoWaitsAsLongAsTheErrorAsks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began, calls := time.Now(), 0
		err := retry.Do(t.Context(), retry.Options{
			Policy: retry.Policy{Base: time.Millisecond, Spread: -1}, After: func(error) time.Duration { return 3 * time.Second },
		}, func(context.Context) error {
			if calls++; calls == 2 {
				return nil
			}
			return errPassing
		})
		if took := time.Since(began); err != nil || took != 3*time.Second {
			t.Errorf("%v after %s", err, took)
		}
	})
}

func TestDoEndsWithItsContextAndSaysWhy(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeoutCause(t.Context(), 10*time.Second, errPermanent)
		defer cancel()
		began, calls := time.Now(), 0
		err := retry.Do(ctx, retry.Options{Policy: retry.Policy{Base: time.Minute}}, func(context.Context) error { calls++; return errPassing })
		if took := time.Since(began); !errors.Is(err, errPermanent) || !errors.Is(err, errPassing) || calls != 1 || took != 10*time.Second {
			t.Errorf("%v after %d calls and %s", err, calls, took)
		}
		if err := retry.Do(ctx, retry.Options{}, func(context.Context) error { calls++; return nil }); err != nil || calls != 2 {
			t.Errorf("an operation is called once at least: %v after %d calls", err, calls)
		}
	})
}

func TestSleepEndsWithTheTimeOrTheContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		if err := retry.Sleep(t.Context(), time.Hour); err != nil || time.Since(began) != time.Hour {
			t.Errorf("%v after %s", err, time.Since(began))
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Minute, func() { cancel(errPermanent) })
		if err := retry.Sleep(ctx, time.Hour); !errors.Is(err, errPermanent) || time.Since(began) != time.Hour+time.Minute {
			t.Errorf("%v after %s", err, time.Since(began))
		}
		if err := retry.Sleep(ctx, 0); !errors.Is(err, errPermanent) {
			t.Errorf("no wait with a context that has ended: %v", err)
		}
		if err := retry.Sleep(t.Context(), -time.Second); err != nil {
			t.Errorf("no wait: %v", err)
		}
	})
}
