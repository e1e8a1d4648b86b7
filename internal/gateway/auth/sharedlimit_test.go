package auth

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// pot is one allowance that refills over time; it counts its calls.
type pot struct {
	mu    sync.Mutex
	left  float64
	at    time.Time
	asked int
	names map[string]bool
	down  bool
}

func (p *pot) TakeAllowance(_ context.Context, name string, n, perMinute int) (int, time.Duration, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked++
	p.names[name] = true
	if p.down {
		return 0, 0, errors.New("the store is away")
	}
	rate := float64(perMinute) / float64(time.Minute)
	p.left = min(float64(perMinute), p.left+float64(time.Since(p.at))*rate)
	p.at = time.Now()
	got := min(n, int(p.left))
	p.left -= float64(got)
	if got == 0 {
		return 0, time.Duration((1 - p.left) / rate), nil
	}
	return got, 0, nil
}

func TestReplicasShareTheirLimits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := &pot{left: 600, at: time.Now(), names: map[string]bool{}}
		var replicas []Limiter
		for range 3 {
			replicas = append(replicas, NewSharedLimiter(Limits{ChatsPerMinute: 600}, p, slog.New(slog.DiscardHandler)))
		}
		flood := func() (allowed int) {
			for i := range 3000 {
				if ok, _, limit := replicas[i%3].Allow(t.Context(), "ann", LimitChats, 1); ok {
					allowed++
				} else if limit != 600 {
					t.Fatalf("limit %d", limit)
				}
			}
			return allowed
		}
		if n := flood(); n != 600 {
			t.Errorf("three replicas allowed %d calls at once, want 600", n)
		}
		if p.asked > 40 {
			t.Errorf("the store was asked %d times for 3000 calls", p.asked)
		}
		ok, wait, _ := replicas[0].Allow(t.Context(), "ann", LimitChats, 1)
		if ok || wait <= 0 || wait > 100*time.Millisecond {
			t.Errorf("allowed %v, again after %s", ok, wait)
		}
		time.Sleep(30 * time.Second)
		if n := flood(); n != 300 {
			t.Errorf("half a minute later: %d calls, want 300", n)
		}
		time.Sleep(time.Hour) // the unused part of a replica is not added to the full allowance
		if n := flood(); n != 600 {
			t.Errorf("after an hour: %d calls, want 600", n)
		}
		replicas[0].Allow(t.Context(), "ann", LimitHooks, 1)
		replicas[0].Allow(t.Context(), "bob", LimitChats, 1)
		if want := []string{"ann/chat", "ann/hooks", "bob/chat"}; !slices.Equal(slices.Sorted(maps.Keys(p.names)), want) {
			t.Errorf("allowances %v, want %v", p.names, want)
		}
	})
}

func TestAnOutageLocksNoAddressOut(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := &pot{down: true, names: map[string]bool{}}
		l := NewSharedLimiter(Limits{ChatsPerMinute: 60}, p, slog.New(slog.DiscardHandler))
		allowed := 0
		for range 200 {
			if ok, _, _ := l.Allow(t.Context(), "ann", LimitChats, 1); ok {
				allowed++
			}
		}
		if allowed != 60 {
			t.Errorf("%d calls while the store is away, want as many as one gateway allows", allowed)
		}
		if ok, _, limit := NewSharedLimiter(Limits{ChatsPerMinute: Off}, p, nil).Allow(t.Context(), "ann", LimitChats, 1); !ok || limit != 0 {
			t.Error("a limit that is off limits")
		}
	})
}

// Bytes are taken in pieces of any size. Three replicas together allow the bytes of one allowance, and a large call waits until enough are
// available.
func TestReplicasShareTheirBytes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const perMinute, size = 1 << 20, 200_000
		p := &pot{left: perMinute, at: time.Now(), names: map[string]bool{}}
		var replicas []Limiter
		for range 3 {
			replicas = append(replicas, NewSharedLimiter(Limits{BytesPerMinute: perMinute}, p, slog.New(slog.DiscardHandler)))
		}
		local := newLimiter(Limits{BytesPerMinute: perMinute})
		for what, limiters := range map[string][]Limiter{"shared": replicas, "local": {local}} {
			taken, wait := 0, time.Duration(0)
			for i := range 30 {
				ok, after, _ := limiters[i%len(limiters)].Allow(t.Context(), "ann", LimitBytes, size)
				if ok {
					taken += size
				} else {
					wait = max(wait, after)
				}
			}
			if taken > perMinute || taken < perMinute-len(limiters)*size {
				t.Errorf("%s: %d bytes at once, want about %d", what, taken, perMinute)
			}
			if wait <= 0 || wait > 15*time.Second {
				t.Errorf("%s: again after %s", what, wait)
			}
			time.Sleep(wait)
			if ok, after, _ := limiters[0].Allow(t.Context(), "ann", LimitBytes, size); !ok {
				t.Errorf("%s: refused after the wait, again after %s", what, after)
			}
			time.Sleep(2 * time.Minute)
			if ok, _, _ := limiters[0].Allow(t.Context(), "ann", LimitBytes, 5*perMinute); !ok {
				t.Errorf("%s: a call of more than a minute's bytes is never allowed", what)
			}
		}
	})
}
