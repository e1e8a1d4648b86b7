package sqlite

import (
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
)

func BenchmarkTurn(b *testing.B) {
	for _, workers := range []int{1, 8, 32, 256} {
		b.Run(strconv.Itoa(workers), func(b *testing.B) {
			s := open(b)
			register(b, s, "node")
			var next atomic.Int64
			var wg sync.WaitGroup
			b.ResetTimer()
			for w := range workers {
				wg.Go(func() {
					for {
						n := next.Add(1)
						if n > int64(b.N) {
							return
						}
						if err := turn(b.Context(), s, "node", fmt.Sprintf("room-%d", w), fmt.Sprintf("m-%08d", n)); err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			wg.Wait()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "turns/s")
		})
	}
}
