package postgres_test

import (
	"os"
	"testing"

	"laneway/internal/store/storetest"
)

// BenchmarkSearch searches 1,000,000 messages where that is asked for, else a few.
func BenchmarkSearch(b *testing.B) {
	messages := 2_000
	if os.Getenv(largeVariable) != "" {
		messages = 1_000_000
	}
	storetest.BenchSearch(b, newDatabases(b).harness, messages)
}
