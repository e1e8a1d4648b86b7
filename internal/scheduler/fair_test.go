package scheduler_test

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"laneway/internal/scheduler"
)

// stage is a scheduler with one lane whose turns end when the test orders it, and the sessions in
// the order of their starts.
type stage struct {
	s *sched

	mu      sync.Mutex
	started []string
	running map[string]chan struct{} // by session
}

func newStage(ctx context.Context, t failer, slots int) *stage {
	t.Helper()
	g := &stage{running: map[string]chan struct{}{}}
	var err error
	g.s, err = makeScheduler(ctx, config{Lanes: lanes(map[string]int{"main": slots}), Run: g.run})
	if err != nil {
		t.Fatalf("New: %v", err)
	}
	return g
}

func (g *stage) run(ctx context.Context, t *turn) error {
	over := make(chan struct{})
	g.mu.Lock()
	g.started = append(g.started, t.Session())
	g.running[t.Session()] = over
	g.mu.Unlock()
	select {
	case <-over:
	case <-ctx.Done():
	}
	return nil
}

func (g *stage) submit(t failer, principal, session string) {
	t.Helper()
	g.s.Submit(item{Session: session, ID: session, Principal: principal})
	synctest.Wait()
}

// end ends the turn of a session.
func (g *stage) end(session string) {
	g.mu.Lock()
	over := g.running[session]
	delete(g.running, session)
	g.mu.Unlock()
	close(over)
	synctest.Wait()
}

func (g *stage) starts() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.started)
}

// One principal has 1,000 sessions waiting for 30 slots; a single message of another one takes the
// next slot that becomes free.
func TestThousandWaitingSessionsOfOnePrincipalDelayNoOtherPrincipal(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newStage(t.Context(), t, 30)
		for i := range 1030 {
			g.submit(t, "greedy", "g"+strconv.Itoa(i))
		}
		g.submit(t, "modest", "m")
		for i := range 3 {
			g.end("g" + strconv.Itoa(i))
		}
		if got, want := g.starts()[30:], []string{"m", "g30", "g31"}; !slices.Equal(got, want) {
			t.Errorf("the next slots went to %v, want %v", got, want)
		}
		drain(t, g.s)
		if n := g.s.Stats().Principals; n != 0 {
			t.Errorf("%d principals are known at rest", n)
		}
	})
}

// ringModel is the simplest model of the order of starts.
type ringModel struct {
	slots   int
	ring    []string            // principals with ready sessions
	ready   map[string][]string // their sessions
	last    string              // the principal of the last start
	queues  map[string][]string // principals of the waiting messages, by session
	running []string            // sessions
	started []string
}

// rise makes a session ready if it may be.
func (m *ringModel) rise(session string) {
	if len(m.queues[session]) == 0 || slices.Contains(m.running, session) {
		return
	}
	who := m.queues[session][0]
	if slices.Contains(m.ready[who], session) {
		return
	}
	if len(m.ready[who]) == 0 {
		m.ring = append(m.ring, who)
	}
	m.ready[who] = append(m.ready[who], session)
}

// fill uses the free slots.
func (m *ringModel) fill() {
	for len(m.running) < m.slots && len(m.ring) > 0 {
		if m.ring[0] == m.last {
			m.ring = append(m.ring[1:], m.last)
		}
		m.last = m.ring[0]
		session := m.ready[m.last][0]
		m.ready[m.last] = m.ready[m.last][1:]
		if len(m.ready[m.last]) == 0 {
			m.ring = m.ring[1:]
		}
		m.queues[session] = m.queues[session][1:]
		m.running = append(m.running, session)
		m.started = append(m.started, session)
	}
}

func TestPrincipalsTakeTurnsAsInTheModel(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		slots := rapid.IntRange(1, 3).Draw(rt, "slots")
		steps := rapid.SliceOfN(rapid.IntRange(0, 99), 1, 80).Draw(rt, "steps")
		var fault string
		synctest.Test(t, func(t *testing.T) { fault = ringRun(t, slots, steps) })
		if fault != "" {
			rt.Fatal(fault)
		}
	})
}

// ringRun executes random steps, a message or the end of a turn, and compares each start with the
// model.
func ringRun(t *testing.T, slots int, steps []int) string {
	t.Helper()
	g := newStage(t.Context(), t, slots)
	defer drain(t, g.s)
	m := &ringModel{slots: slots, ready: map[string][]string{}, queues: map[string][]string{}}
	for _, step := range steps {
		if step < 40 && len(m.running) > 0 {
			session := m.running[step%len(m.running)]
			m.running = slices.DeleteFunc(m.running, func(s string) bool { return s == session })
			m.rise(session)
			m.fill()
			g.end(session)
		} else {
			principal, session := "p"+strconv.Itoa(step%4), "s"+strconv.Itoa(step%11) // some sessions have messages of several principals
			m.queues[session] = append(m.queues[session], principal)
			m.rise(session)
			m.fill()
			g.submit(t, principal, session)
		}
		if got := g.starts(); !slices.Equal(got, m.started) {
			return fmt.Sprintf("started %v, the model starts %v", got, m.started)
		}
	}
	return ""
}

// owned is a message whose session, id and payload are the same string.
func owned(owner, name, lane string) item {
	return item{Session: name, ID: name, Payload: name, Principal: owner, Bounded: owner != "", Lane: lane}
}

// startsOf submits messages in order and returns the starts with their times, after everything has
// ended.
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

// A turn that waits for turns of its own principal leaves its place to them, and has one again when
// it returns.
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
			sub := s.Submit(owned("ann", "child of "+name, ""))
			err := t.Yield(ctx, func(ctx context.Context) error { _, err := sub.Ticket.Wait(ctx); return err })
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

// Many sessions with one message each, and many turns under one process context: a minute later
// they have left neither entries nor goroutines nor memory.
func TestIdleSessionsLeaveNothing(t *testing.T) { //nolint:paralleltest // it counts the goroutines and the memory of the process
	if testing.Short() {
		t.Skip("long")
	}
	const sessions, rounds = 100_000, 10
	synctest.Test(t, func(t *testing.T) {
		s, err := scheduler.New(t.Context(), scheduler.Config{Run: func(_ context.Context, t *scheduler.Turn) error {
			t.Began(scheduler.Batch{RunID: "x"})
			return nil
		}})
		if err != nil {
			t.Fatal(err)
		}
		goroutines, heap := runtime.NumGoroutine(), heapNow()
		for range rounds {
			for i := range sessions {
				s.Wake(scheduler.Wake{Session: strconv.Itoa(i), Settings: scheduler.DefaultSettings()})
			}
			synctest.Wait()
		}
		pass(time.Minute)
		if st := s.Stats(); st.Sessions != (scheduler.SessionTotals{}) || st.Principals != 0 {
			t.Errorf("left %+v, %d principals", st.Sessions, st.Principals)
		}
		if left := runtime.NumGoroutine() - goroutines; left > 0 {
			t.Errorf("%d goroutines are left", left)
		}
		if left := int64(heapNow()) - int64(heap); left > 10<<20 {
			t.Errorf("%d bytes are left", left)
		}
		if err := s.Drain(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// heapNow is the memory in use after a collection.
func heapNow() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
