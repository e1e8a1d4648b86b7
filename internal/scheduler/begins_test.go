package scheduler_test

import (
	"context"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"laneway/internal/scheduler"
)

// beginners is a Run whose turns call Began after one time, and return after another.
type beginners struct {
	begin map[string]time.Duration // by turn id
	work  time.Duration

	mu    sync.Mutex
	began []string
	at    map[string]time.Duration // start times, relative to the start of the test
	since time.Time
}

func (b *beginners) run(_ context.Context, t *turn) error {
	if d := b.begin[t.RunID()]; d > 0 {
		pass(d)
	}
	b.mu.Lock()
	b.began, b.at[t.RunID()] = append(b.began, t.RunID()), time.Since(b.since)
	b.mu.Unlock()
	t.Began()
	pass(b.work)
	return nil
}

// TestTurnsOfASessionBeginInTheirOrder gives three slots to a session whose first turn begins slowly: the second begins after it, and both then run
// concurrently.
func TestTurnsOfASessionBeginInTheirOrder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := &beginners{begin: map[string]time.Duration{"0": 3 * time.Second, "1": time.Second}, work: time.Minute, at: map[string]time.Duration{}, since: time.Now()}
		s := newScheduler(t, config{Lanes: lanes(map[string]int{"main": 3}), Begins: true, Run: b.run, Queue: scheduler.Settings{MaxConcurrent: 3}})
		for i := range 3 {
			submit(t, s, item{ID: strconv.Itoa(i)})
		}
		submit(t, s, item{Session: "other", ID: "quick"}) // the slots that the session does not use yet are free
		pass(10 * time.Second)
		b.mu.Lock()
		if want := []string{"quick", "0", "1"}; !slices.Equal(b.began, want) { // the third slot is used by the quick one
			t.Errorf("began %v, want %v", b.began, want)
		}
		if b.at["quick"] != 0 {
			t.Errorf("another session was delayed by %s", b.at["quick"])
		}
		b.mu.Unlock()
		pass(5 * time.Minute)
		drain(t, s)
	})
}

// TestATurnThatReturnsHasBegun lets turns return, and panic, without a call of Began.
func TestATurnThatReturnsHasBegun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newScheduler(t, config{Begins: true, Queue: scheduler.Settings{MaxConcurrent: 3}, Run: func(_ context.Context, t *turn) error {
			if t.RunID() == "0" {
				panic("as asked")
			}
			return nil
		}})
		var tickets []*scheduler.Ticket
		for i := range 3 {
			tickets = append(tickets, submit(t, s, item{ID: strconv.Itoa(i)}).Ticket)
		}
		for i, want := range []scheduler.Outcome{scheduler.OutcomeFailed, scheduler.OutcomeAnswered, scheduler.OutcomeAnswered} {
			if got, err := outcome(t, tickets[i]); got != want {
				t.Errorf("turn %d ended %s (%v), want %s", i, got, err, want)
			}
		}
		drain(t, s)
	})
}
