package scheduler_test

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"laneway/internal/scheduler"
)

// benchScheduler makes a scheduler that is drained when the benchmark ends.
func benchScheduler(b *testing.B, run func(ctx context.Context, t *scheduler.Turn) error, lanes ...scheduler.Lane) *scheduler.Scheduler {
	b.Helper()
	s, err := scheduler.New(b.Context(), scheduler.Config{Lanes: lanes, Run: func(ctx context.Context, t *scheduler.Turn) error {
		t.Began(scheduler.Batch{RunID: "m"})
		return run(ctx, t)
	}})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		if err := s.Drain(ctx); err != nil {
			b.Error(err)
		}
	})
	return s
}

// wake is the Wake of a message.
func wake(session, principal string) scheduler.Wake {
	return scheduler.Wake{Session: session, Principal: principal, Settings: scheduler.DefaultSettings()}
}

// names are session keys, created before the timer starts.
func names(n int) []string {
	keys := make([]string, n)
	for i := range keys {
		keys[i] = "telegram:direct:" + strconv.Itoa(i)
	}
	return keys
}

// turns wakes sessions for n turns, distributed over the keys, and waits until all turns have
// ended.
func turns(b *testing.B, keys []string, n int) {
	b.Helper()
	var left sync.WaitGroup
	s := benchScheduler(b, func(context.Context, *scheduler.Turn) error { left.Done(); return nil })
	b.ReportAllocs()
	b.ResetTimer()
	left.Add(n)
	for i := range n {
		s.Wake(wake(keys[i%len(keys)], ""))
	}
	left.Wait()
	b.StopTimer()
}

// BenchmarkTurn covers the whole path of a turn: wake, start, finish.
func BenchmarkTurn(b *testing.B) {
	for _, n := range []int{1, 10_000} {
		b.Run(fmt.Sprintf("sessions=%d", n), func(b *testing.B) { turns(b, names(n), b.N) })
	}
}

// BenchmarkTurnOfManyPrincipals is BenchmarkTurn with ten thousand principals that have one session
// each, in a lane that is full most of the time.
func BenchmarkTurnOfManyPrincipals(b *testing.B) {
	var left sync.WaitGroup
	s := benchScheduler(b, func(context.Context, *scheduler.Turn) error { left.Done(); return nil })
	keys := names(10_000)
	b.ReportAllocs()
	b.ResetTimer()
	left.Add(b.N)
	for i := range b.N {
		s.Wake(wake(keys[i%len(keys)], keys[i%len(keys)]))
	}
	left.Wait()
	b.StopTimer()
}

// BenchmarkMillionSessionsOnce has a million sessions with one message each. One iteration is the
// whole million.
func BenchmarkMillionSessionsOnce(b *testing.B) {
	const million = 1_000_000
	keys := names(million)
	turns(b, keys, b.N*million)
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/million, "ns/session")
}

// BenchmarkIdleSession measures the memory that an idle session leaves.
func BenchmarkIdleSession(b *testing.B) {
	const sessions = 100_000
	keys := names(sessions)
	for b.Loop() {
		goroutines, heap := runtime.NumGoroutine(), heapInUse()
		var left sync.WaitGroup
		left.Add(sessions)
		s := benchScheduler(b, func(context.Context, *scheduler.Turn) error { left.Done(); return nil })
		for _, key := range keys {
			s.Wake(wake(key, ""))
		}
		left.Wait()
		for s.Stats().Sessions.Tracked > 0 {
			runtime.Gosched()
		}
		b.ReportMetric(float64(heapInUse()-heap)/sessions, "B/session")
		b.ReportMetric(float64(runtime.NumGoroutine()-goroutines), "goroutines")
		runtime.KeepAlive(s)
	}
}

// heapInUse is the size of the reachable heap.
func heapInUse() int64 {
	runtime.GC()
	runtime.GC() // frees what a finaliser or a pool kept
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// blocked makes a scheduler whose only slot is taken until the returned function is called.
func blocked(b *testing.B) (*scheduler.Scheduler, func()) {
	b.Helper()
	started, release := make(chan struct{}), make(chan struct{})
	s := benchScheduler(b, func(ctx context.Context, t *scheduler.Turn) error {
		if t.Session() != "blocker" {
			return nil
		}
		started <- struct{}{}
		select {
		case <-release:
		case <-ctx.Done():
		}
		return nil
	}, scheduler.Lane{Name: scheduler.LaneMain, Limit: 1})
	s.Wake(wake("blocker", ""))
	<-started
	return s, sync.OnceFunc(func() { close(release) })
}

// BenchmarkWakeFullLane covers Wake when no slot is free.
func BenchmarkWakeFullLane(b *testing.B) {
	s, release := blocked(b)
	defer release()
	keys := names(10_000)
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		s.Wake(wake(keys[i%len(keys)], ""))
		i++
	}
}

// BenchmarkStopAllSignal is the time from the call of StopAll to the cancelled context of the turn.
func BenchmarkStopAllSignal(b *testing.B) {
	var total time.Duration
	for b.Loop() {
		running, signal := make(chan struct{}), make(chan time.Time, 1)
		s := benchScheduler(b, func(ctx context.Context, _ *scheduler.Turn) error {
			close(running)
			<-ctx.Done()
			signal <- time.Now()
			return nil
		})
		for range 10_001 {
			s.Wake(wake("s", ""))
		}
		<-running
		begin := time.Now()
		if runs := s.StopAll("s", "ann", 0); len(runs) != 1 {
			b.Fatalf("stopped %q", runs)
		}
		total += (<-signal).Sub(begin)
	}
	b.ReportMetric(float64(total.Nanoseconds())/float64(b.N), "ns/signal")
}

// BenchmarkWakeToStart is the time from Wake to the start of Run in a free lane.
func BenchmarkWakeToStart(b *testing.B) {
	started := make(chan time.Time, 1)
	s := benchScheduler(b, func(context.Context, *scheduler.Turn) error { started <- time.Now(); return nil })
	waits := make([]time.Duration, 0, 1<<20)
	for b.Loop() {
		begin := time.Now()
		s.Wake(wake("s", ""))
		waits = append(waits, (<-started).Sub(begin))
	}
	slices.Sort(waits)
	for _, p := range []int{50, 99} {
		b.ReportMetric(float64(waits[(len(waits)-1)*p/100].Nanoseconds()), fmt.Sprintf("p%d-ns", p))
	}
}
