package agent_test

import (
	"math"
	"testing"

	"laneway/internal/agent"
)

func TestARatioFollowsWhatTheProviderCounts(t *testing.T) {
	t.Parallel()
	type count struct {
		session            string
		estimated, counted int
	}
	for name, c := range map[string]struct {
		counts []count
		model  agent.Ratio // of a session that the gauge has not seen
		a      agent.Ratio // of session a
	}{
		"nothing is known": {nil, 0, 0},
		"a count moves the session half of the way down": {[]count{{"a", 1000, 500}}, 0.9, 0.75},
		"counts converge":                         {repeat(count{"a", 1000, 500}, 30), 0.5, 0.5},
		"a session rises at once":                 {append(repeat(count{"a", 1000, 500}, 30), count{"a", 1000, 1000}), 0.6, 1},
		"another session does not change it":      {append(repeat(count{"a", 1000, 500}, 30), repeat(count{"b", 1000, 1000}, 30)...), 1, 0.5},
		"absurd counts are bounded":               {[]count{{"a", 1000, 1_000_000}}, 1.2, 2},
		"a small request teaches nothing":         {[]count{{"a", 100, 10}}, 0, 0},
		"an endpoint that counts nothing":         {[]count{{"a", 1000, 0}}, 0, 0},
		"a request with pictures teaches nothing": {[]count{{"a", 0, 1000}}, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := agent.NewGauge("e")
			for _, n := range c.counts {
				g.Note("m", n.session, n.estimated, n.counted)
			}
			for session, want := range map[string]agent.Ratio{"new": c.model, "a": c.a} {
				if got := g.Ratio("m", session); math.Abs(float64(got-want)) > 0.01 {
					t.Errorf("the ratio of session %s is %v, want %v", session, got, want)
				}
			}
			if got := g.Ratio("another", "another"); got != 0 {
				t.Errorf("another model has the ratio %v, want none", got)
			}
		})
	}
	var none *agent.Gauge
	none.Note("m", "a", 1000, 500)
	if got := none.Ratio("m", "a"); got != 0 {
		t.Errorf("a missing gauge knows %v", got)
	}
}

func repeat[T any](v T, n int) []T {
	list := make([]T, n)
	for i := range list {
		list[i] = v
	}
	return list
}

func TestTextThatWasNotCountedIsNeverLessThanItsEstimate(t *testing.T) {
	t.Parallel()
	for _, r := range []agent.Ratio{0, 0.5, 0.8, 1, 1.5, 2} {
		window := r.Window(10_000)
		if counted := r.Counted(window); counted > 10_000 {
			t.Errorf("ratio %v: a full window is %d of 10000 tokens", r, counted)
		}
		if taken := r.New(1000); r.Counted(taken) < 999 || taken < 1000 {
			t.Errorf("ratio %v: 1000 new tokens take %d of the window, which are %d counted", r, taken, r.Counted(taken))
		}
	}
}
