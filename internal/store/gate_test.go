package store_test

import (
	"testing"
	"time"

	"laneway/internal/store"
)

// TestAPollRestsUntilItCanFindSomething lists what ends a rest.
func TestAPollRestsUntilItCanFindSomething(t *testing.T) {
	t.Parallel()
	began := time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)
	p := store.Poll{Kind: "sweep", Node: "a"}
	for name, c := range map[string]struct {
		next  time.Duration // after the start; 0 = nothing becomes due
		lease time.Duration
		then  func(g *store.Gate)
		at    time.Duration
		want  bool
	}{
		"at once":                       {lease: time.Hour, want: true},
		"nothing becomes due":           {lease: time.Hour, at: time.Minute - 1, want: true},
		"a minute has passed":           {lease: time.Hour, at: time.Minute},
		"before the next instant":       {next: time.Second, lease: time.Hour, at: time.Second - 1, want: true},
		"at the next instant":           {next: time.Second, lease: time.Hour, at: time.Second},
		"the next instant is far":       {next: time.Hour, lease: time.Hour, at: time.Minute},
		"the next instant has passed":   {next: -time.Second, lease: time.Hour},
		"something was changed":         {lease: time.Hour, then: (*store.Gate).Changed},
		"the lease is not known":        {},
		"the lease has ended":           {lease: time.Second, at: time.Second},
		"a heartbeat extends the lease": {lease: time.Second, then: func(g *store.Gate) { g.Leased("a", began.Add(time.Hour)) }, at: time.Second, want: true},
		"the node has left":             {lease: time.Hour, then: func(g *store.Gate) { g.Leased("a", time.Time{}) }},
		"the clock was set back":        {lease: time.Hour, at: -time.Second},
		"another poll read":             {lease: time.Hour, then: func(g *store.Gate) { g.Rest(store.Poll{Kind: "sweep", Node: "b"}, 0, began, time.Time{}) }, want: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var g store.Gate
			var next time.Time
			if c.next != 0 {
				next = began.Add(c.next)
			}
			if c.lease != 0 {
				g.Leased("a", began.Add(c.lease))
			}
			g.Rest(p, g.Changes(), began, next)
			if c.then != nil {
				c.then(&g)
			}
			if got, resting := g.Resting(p, began.Add(c.at)); resting != c.want || resting && !got.Equal(next) {
				t.Errorf("resting = %t with %s, want %t with %s", resting, got, c.want, next)
			}
		})
	}
}

// TestAPollThatMeetsAChangeDoesNotRest changes something between the read of a poll and its result.
func TestAPollThatMeetsAChangeDoesNotRest(t *testing.T) {
	t.Parallel()
	var g store.Gate
	now, p := time.Unix(1, 0), store.Poll{Kind: "tasks"}
	before := g.Changes()
	g.Changed()
	if g.Rest(p, before, now, time.Time{}); resting(&g, p, now) {
		t.Error("it rests")
	}
	if g.Rest(p, g.Changes(), now, time.Time{}); !resting(&g, p, now) {
		t.Error("it does not rest after it has read again")
	}
}

func resting(g *store.Gate, p store.Poll, now time.Time) bool {
	_, yes := g.Resting(p, now)
	return yes
}
