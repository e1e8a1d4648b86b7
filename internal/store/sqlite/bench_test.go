package sqlite

import (
	"os"
	"testing"

	"laneway/internal/store/storetest"
)

func BenchmarkCron(b *testing.B) {
	storetest.BenchCron(b, harness, os.Getenv("LANEWAY_BENCH_LARGE") != "")
}
