package inflight

import (
	"context"
	"errors"
	"runtime"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

var errGone = errors.New("the peer is gone")

// All principals together have a limit as well, which does not apply to short messages.
func TestTheBytesInFlightOfTheProcessAreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const longest = 1 << 20
		l, ctx := New(longest, time.Second), t.Context()
		var all []*Held
		hold := func(who string, n int64) (*Held, error) { return l.Of(who, true).Hold(ctx, n) }
		for n := range principals * leastLong / longest {
			h, err := hold(strconv.Itoa(n%principals), longest)
			if err != nil {
				t.Fatalf("message %d: %v", n, err)
			}
			all = append(all, h)
		}
		began := time.Now()
		if _, err := hold("new", longest); !errors.Is(err, ErrOverloaded) || time.Since(began) != time.Second {
			t.Errorf("one more message: %v after %s, want a refusal after 1s", err, time.Since(began))
		}
		short, err := hold("new", ShortMessage)
		if err != nil {
			t.Fatalf("a short message of a full process: %v", err)
		}
		short.Release()
		all[0].Keep(10)
		all[0].Release()
		all[0].Release()
		h, err := hold("new", longest)
		if err != nil {
			t.Fatalf("when another message has its answer: %v", err)
		}
		over, cancel := context.WithCancelCause(ctx)
		cancel(errGone)
		if _, err := l.Of("new", true).Hold(over, longest); !errors.Is(err, errGone) {
			t.Errorf("the end of a connection that waits: %v", err)
		}
		for _, h := range append(all[1:], h) {
			h.Release()
		}
		if !l.process.TryAcquire(principals * leastLong) {
			t.Error("not everything was given back")
		}
	})
}

// A message that is longer than the configured limit does not wait for ever.
func TestTheLongestMessageFits(t *testing.T) {
	t.Parallel()
	l := New(25<<20, time.Second)
	h, err := l.Of("a", true).Hold(t.Context(), 25<<20)
	if err != nil {
		t.Fatal(err)
	}
	h.Release()
}

func TestPlacesOfEachKindAndVisibility(t *testing.T) {
	t.Parallel()
	over, cancel := context.WithCancelCause(t.Context())
	cancel(errGone)
	l := New(1<<20, time.Second)
	for kind, want := range map[Kind][2]int{Parse: {1, 2}, Call: {8, 64}, Control: {4, 16}, List: {2, 4}, Upload: {2, 8}} {
		for i, own := range []bool{true, false} {
			s := l.Of("a", own)
			var leaves []func()
			for range want[i] {
				leave, err := s.Enter(t.Context(), kind)
				if err != nil {
					t.Fatal(err)
				}
				leaves = append(leaves, leave)
			}
			if _, err := s.Enter(over, kind); !errors.Is(err, errGone) {
				t.Errorf("kind %d has more than %d places (own %t): %v", kind, want[i], own, err)
			}
			for _, leave := range leaves {
				leave()
				leave()
			}
			if n := len(s.places[kind]); n != 0 {
				t.Errorf("kind %d: %d places were not given back", kind, n)
			}
		}
	}
}

// A short text is parsed without a place, a long one waits for a place.
func TestLongTextsAreParsedOneAfterAnother(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := New(1<<20, time.Second).Of("a", true)
		done := make(chan error, 1)
		err := s.Parsing(t.Context(), ShortMessage+1, func() error {
			go func() { done <- s.Parsing(t.Context(), ShortMessage+1, func() error { return errGone }) }()
			synctest.Wait()
			if len(done) > 0 {
				t.Error("two long texts are parsed at once")
			}
			return s.Parsing(t.Context(), ShortMessage, func() error { return nil })
		})
		if err != nil {
			t.Error(err)
		}
		if err := <-done; !errors.Is(err, errGone) {
			t.Errorf("the error of the parser is lost: %v", err)
		}
	})
}

// Before, three small credentials parsed and listed with every processor, and an operator's health
// request waited for 130 ms in the run queue.
func TestSmallCredentialsLeaveHalfOfTheProcessors(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l, ctx := New(1<<20, time.Second), t.Context()
		hold := make(chan struct{})
		var busy atomic.Int64
		use := func(who string, own bool) {
			go func() {
				if err := l.Of(who, own).Busy(ctx, func() error { busy.Add(1); <-hold; return nil }); err != nil {
					t.Errorf("%s: %v", who, err)
				}
			}()
			synctest.Wait()
		}
		for n := range 4 * runtime.GOMAXPROCS(0) {
			use(strconv.Itoa(n), true)
		}
		if most := max(1, runtime.GOMAXPROCS(0)/2); busy.Load() != int64(most) {
			t.Errorf("%d goroutines of small credentials are busy, want %d", busy.Load(), most)
		}
		before := busy.Load()
		use("operator", false)
		if busy.Load() != before+1 {
			t.Error("the operator waits for small credentials")
		}
		gone, cancel := context.WithCancelCause(ctx)
		cancel(errGone)
		if err := l.Of("0", true).Busy(gone, func() error { return nil }); !errors.Is(err, errGone) {
			t.Errorf("a peer that is gone: %v", err)
		}
		close(hold)
		synctest.Wait()
		if n := busy.Load(); n != int64(4*runtime.GOMAXPROCS(0)+1) {
			t.Errorf("%d ran in the end", n)
		}
	})
}
