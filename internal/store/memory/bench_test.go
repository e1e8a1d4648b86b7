package memory_test

import (
	"testing"

	"laneway/internal/store/storetest"
)

func BenchmarkMemoryStore(b *testing.B) { storetest.Bench(b, open) }
