package ownership

import (
	"testing"
	"time"
)

// A suspended machine stops its monotonic clock: only the wall clock then shows that the lease has
// ended. A wall clock that was set back hides it; then only the monotonic clock shows it.
func TestALeaseEndsByEitherClock(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for name, c := range map[string]struct {
		monotonic, wall time.Duration
		over            bool
	}{
		"both are left":      {time.Second, time.Second, false},
		"suspended":          {time.Second, -time.Second, true},
		"clock was set back": {-time.Second, time.Second, true},
		"both have ended":    {-time.Second, -time.Second, true},
	} {
		l := lease{until: now.Add(c.monotonic), wall: now.Add(c.wall).Round(0)}
		if got := l.over(now); got != c.over {
			t.Errorf("%s: over is %v, want %v", name, got, c.over)
		}
	}
}
