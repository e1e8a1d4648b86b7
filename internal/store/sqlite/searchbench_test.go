package sqlite

import (
	"os"
	"strconv"
	"testing"

	"laneway/internal/store/storetest"
)

// BenchmarkSearch searches 1,000,000 messages on request, or the number in LANEWAY_BENCH_MESSAGES, else a few.
func BenchmarkSearch(b *testing.B) {
	messages := 2_000
	if os.Getenv("LANEWAY_BENCH_LARGE") != "" {
		messages = 1_000_000
	}
	if n, err := strconv.Atoi(os.Getenv("LANEWAY_BENCH_MESSAGES")); err == nil {
		messages = n
	}
	storetest.BenchSearch(b, harness, messages)
}
