package sqlite

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"laneway/internal/chat"
	"laneway/internal/store/storetest"
)

func BenchmarkStore(b *testing.B) { storetest.Bench(b, harness) }

func BenchmarkCron(b *testing.B) { storetest.BenchCron(b, harness) }

// BenchmarkFew is the turn with as many workers as a small installation has busy at once: batches are small, the flush is what counts.
func BenchmarkFew(b *testing.B) {
	for _, workers := range []int{2, 4, 8} {
		b.Run(fmt.Sprintf("turn/workers=%d", workers), func(b *testing.B) {
			s := open(b)
			register(b, s, "node")
			var next atomic.Int64
			b.ReportAllocs()
			b.ResetTimer()
			spread(workers, func(w int) {
				for n := next.Add(1); n <= int64(b.N); n = next.Add(1) {
					if err := turn(b.Context(), s, "node", fmt.Sprintf("room-%d", w), fmt.Sprintf("m-%08d", n)); err != nil {
						b.Error(err)
						return
					}
				}
			})
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "turns/s")
		})
	}
}

// BenchmarkRefusals is the worst case of the writer: a full queue refuses every message after it was written, so batches run twice.
func BenchmarkRefusals(b *testing.B) {
	s := open(b)
	register(b, s, "node")
	full := message("node", "full", "first")
	if _, err := s.Accept(b.Context(), full); err != nil {
		b.Fatal(err)
	}
	var next atomic.Int64
	b.ResetTimer()
	spread(32, func(int) {
		for n := next.Add(1); n <= int64(b.N); n = next.Add(1) {
			p := message("node", "full", fmt.Sprintf("m-%08d", n))
			p.Cap, p.Drop = 1, "new"
			if _, err := s.Accept(b.Context(), p); !errors.Is(err, chat.ErrQueueFull) {
				b.Errorf("got %v, want ErrQueueFull", err)
				return
			}
		}
	})
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "refusals/s")
}

func spread(workers int, work func(worker int)) {
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() { work(w) })
	}
	wg.Wait()
}
