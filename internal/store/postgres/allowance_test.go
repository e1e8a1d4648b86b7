package postgres_test

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"laneway/internal/store"
)

func TestReplicasTakeFromOneAllowance(t *testing.T) {
	t.Parallel()
	const perMinute = 600
	var now atomic.Int64
	now.Store(time.Date(2026, 3, 14, 9, 0, 0, 0, time.UTC).UnixMilli())
	h := newDatabases(t).harness(t, func() time.Time { return time.UnixMilli(now.Load()) })
	replicas := []store.Allowances{h.Open().(store.Allowances), h.Open().(store.Allowances)}
	take := func(s store.Allowances, n int) (int, time.Duration) {
		t.Helper()
		got, wait, err := s.TakeAllowance(t.Context(), "ann/chat", n, perMinute)
		if err != nil {
			t.Error(err)
		}
		return got, wait
	}
	var all sync.WaitGroup
	var total atomic.Int64
	for i := range 8 {
		all.Go(func() {
			for got := 1; got > 0; {
				got, _ = take(replicas[i%2], 7)
				total.Add(int64(got))
			}
		})
	}
	all.Wait()
	if total.Load() != perMinute {
		t.Errorf("two replicas took %d calls of %d", total.Load(), perMinute)
	}
	if _, wait := take(replicas[0], 1); wait != 100*time.Millisecond {
		t.Errorf("the next call in %s, want in 100ms", wait)
	}
	for _, step := range []struct {
		pass time.Duration
		want int
	}{{99 * time.Millisecond, 0}, {time.Millisecond, 1}, {time.Second, 10}, {-time.Minute, 0}, {61 * time.Second, 10}, {time.Hour, perMinute}} {
		now.Add(step.pass.Milliseconds())
		if got, _ := take(replicas[1], perMinute); got != step.want {
			t.Errorf("after %s: %d, want %d", step.pass, got, step.want)
		}
	}
	if got, _, err := replicas[0].TakeAllowance(t.Context(), "bob/chat", 5, perMinute); err != nil || got != 5 {
		t.Errorf("another principal's allowance: %d, %v", got, err)
	}
}
