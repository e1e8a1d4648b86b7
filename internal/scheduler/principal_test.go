package scheduler_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// owned is a message whose session, id and payload are the same string.
func owned(owner, name, lane string) item {
	return item{Session: name, ID: name, Payload: name, Principal: owner, Bounded: owner != "", Lane: lane}
}

// startsOf submits messages in order and returns the starts with their times, after everything has ended.
func startsOf(t *testing.T, cfg config, each time.Duration, items []item, meanwhile func(*sched)) []string {
	t.Helper()
	var j journal
	cfg.Run = takes(&j, each)
	s := newScheduler(t, cfg)
	for _, it := range items {
		submit(t, s, it)
	}
	if meanwhile != nil {
		meanwhile(s)
	}
	pass(time.Minute)
	drain(t, s)
	got := j.take()
	slices.Sort(got) // simultaneous starts may happen in any order
	return got
}

func TestAnOwnerHasSoManyTurnsAtOnceAndOthersDoNotWait(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name      string
		perOwner  int
		lanes     map[string]int
		items     []item
		meanwhile func(*sched)
		want      []string
	}{
		{
			name: "the third waits, another principal does not", perOwner: 2, lanes: map[string]int{"main": 5},
			items: []item{owned("ann", "a1", ""), owned("ann", "a2", ""), owned("ann", "a3", ""), owned("ann", "a4", ""), owned("ann", "a5", ""), owned("bob", "b1", ""), owned("", "c1", "")},
			want:  []string{"0s a1", "0s a2", "0s b1", "0s c1", "1s a3", "1s a4", "2s a5"},
		},
		{
			name: "all lanes together", perOwner: 2, lanes: map[string]int{"main": 5, "cron": 5},
			items: []item{owned("ann", "a1", ""), owned("ann", "a2", "cron"), owned("ann", "a3", "cron"), owned("bob", "b1", "cron")},
			want:  []string{"0s a1", "0s a2", "0s b1", "1s a3"},
		},
		{
			name: "no bound", lanes: map[string]int{"main": 3},
			items: []item{owned("ann", "a1", ""), owned("ann", "a2", ""), owned("ann", "a3", "")},
			want:  []string{"0s a1", "0s a2", "0s a3"},
		},
		{
			name: "many turns of one principal do not precede others in a full lane", perOwner: 1, lanes: map[string]int{"main": 1},
			items: []item{owned("", "c1", ""), owned("ann", "a1", ""), owned("ann", "a2", ""), owned("ann", "a3", ""), owned("bob", "b1", "")},
			want:  []string{"0s c1", "1s a1", "2s b1", "3s a2", "4s a3"},
		},
		{
			name: "one that is stopped while it waits delays no other", perOwner: 1, lanes: map[string]int{"main": 5},
			items:     []item{owned("ann", "a1", ""), owned("ann", "a2", ""), owned("ann", "a3", "")},
			meanwhile: func(s *sched) { s.StopRun("a2", "a2", "ann") },
			want:      []string{"0s a1", "1s a3"},
		},
		{
			name: "one that is stopped before it starts gives its place on", perOwner: 1, lanes: map[string]int{"main": 1, "side": 1},
			items:     []item{owned("", "c1", ""), owned("ann", "a1", ""), owned("ann", "a2", "side")},
			meanwhile: func(s *sched) { s.StopRun("a1", "a1", "ann") },
			want:      []string{"0s a2", "0s c1"},
		},
		{
			name: "the next message of a session may be another principal's", perOwner: 1, lanes: map[string]int{"main": 5},
			items: []item{
				owned("ann", "a1", ""),
				{Session: "group", ID: "g1", Seq: 1, Payload: "g1", Principal: "ann", Bounded: true},
				{Session: "group", ID: "g2", Seq: 2, Payload: "g2", Principal: "bob", Bounded: true},
			},
			meanwhile: func(s *sched) { s.StopRun("group", "g1", "ann") },
			want:      []string{"0s a1", "0s g2"},
		},
		{
			name: "a place is held for its owner only", perOwner: 1, lanes: map[string]int{"main": 1, "side": 1},
			items: []item{
				owned("", "c1", ""),
				{Session: "group", ID: "g1", Seq: 1, Payload: "g1", Principal: "ann", Bounded: true},
				{Session: "group", ID: "g2", Seq: 2, Payload: "g2", Principal: "bob", Bounded: true},
				owned("ann", "a1", "side"),
			},
			meanwhile: func(s *sched) { s.StopRun("group", "g1", "ann") },
			want:      []string{"0s a1", "0s c1", "1s g2"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				got := startsOf(t, config{Lanes: lanes(c.lanes), PrincipalTurns: c.perOwner}, time.Second, c.items, c.meanwhile)
				if !slices.Equal(got, c.want) {
					t.Errorf("got %v, want %v", got, c.want)
				}
			})
		})
	}
}

// A turn that waits for turns of its own principal leaves its place to them, and has one again when it returns.
func TestATurnThatYieldsLeavesItsPlace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var j journal
		base := time.Now()
		var s *sched
		run := func(ctx context.Context, t *turn) error {
			name := texts(t.Items())
			j.add("%v %s", time.Since(base), name)
			if !strings.HasPrefix(name, "parent") {
				linger(time.Second)
				return nil
			}
			sub, err := s.Submit(owned("ann", "child of "+name, ""))
			if err != nil {
				return err
			}
			err = t.Yield(ctx, func(ctx context.Context) error { _, err := sub.Ticket.Wait(ctx); return err })
			j.add("%v %s is back", time.Since(base), name)
			linger(2 * time.Second)
			return err
		}
		s = newScheduler(t, config{Lanes: lanes(map[string]int{"main": 5}), PrincipalTurns: 1, Run: run})
		parent := submit(t, s, owned("ann", "parent", ""))
		pass(1500 * time.Millisecond)
		late := submit(t, s, owned("ann", "late", ""))
		wantOutcome(t, parent.Ticket, "answered")
		wantOutcome(t, late.Ticket, "answered")
		drain(t, s)
		want := []string{"0s parent", "0s child of parent", "1s parent is back", "3s late"}
		if got := j.take(); !slices.Equal(got, want) {
			t.Errorf("got %v, want %v", got, want)
		}
	})
}
