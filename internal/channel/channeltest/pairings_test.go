package channeltest_test

import (
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"laneway/internal/channel"
	"laneway/internal/channel/channeltest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestPairings(t *testing.T) {
	t.Parallel()
	channeltest.RunPairings(t, func(*testing.T) (channel.Pairings, func(time.Duration)) {
		var mu sync.Mutex
		now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
		clock := func() time.Time { mu.Lock(); defer mu.Unlock(); return now }
		return channeltest.NewPairings(clock), func(d time.Duration) { mu.Lock(); defer mu.Unlock(); now = now.Add(d) }
	})
}
