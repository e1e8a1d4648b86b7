package sqlite

import (
	"testing"

	"laneway/internal/store/storetest"
)

func BenchmarkCron(b *testing.B) { storetest.BenchCron(b, harness) }
