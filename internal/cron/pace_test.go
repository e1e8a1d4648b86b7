package cron

import (
	"testing"
	"time"
)

func TestTheLoopLooksFurtherAheadWhenABurstIsComing(t *testing.T) {
	t.Parallel()
	cfg := RunnerConfig{Tick: time.Second, LookAhead: DefaultLookAhead, Batch: 1000}
	var p pace
	for _, tt := range []struct {
		name   string
		jobs   int
		took   time.Duration
		coming int
		want   time.Duration
	}{
		{"nothing", 0, time.Millisecond, 0, DefaultLookAhead},
		{"what one claim takes", 0, time.Millisecond, 1000, DefaultLookAhead},
		{"a burst before anything was measured", 5, time.Second, 2000, DefaultLookAhead + time.Second + 1200*time.Millisecond},
		{"a burst at a pace of a millisecond", 1000, time.Second, 2000, DefaultLookAhead + time.Second + 3*time.Second},
		{"no further than the horizon", 0, 0, MostComing, horizon},
		{"a fast claim changes little", 1000, 200 * time.Millisecond, 2000, DefaultLookAhead + time.Second + 2700*time.Millisecond},
	} {
		p.learn(tt.jobs, tt.took)
		if got := p.ahead(tt.coming, cfg); got != tt.want {
			t.Errorf("%s: looks %s ahead, want %s", tt.name, got, tt.want)
		}
	}
}
