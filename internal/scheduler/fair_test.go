package scheduler_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"

	"pgregory.net/rapid"

	"laneway/internal/scheduler"
)

// stage is a scheduler with one lane whose turns end when the test orders it, and the sessions in the order of their starts.
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
	g.s, err = scheduler.New(ctx, config{Lanes: lanes(map[string]int{"main": slots}), Run: g.run})
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
	if _, err := g.s.Submit(item{Session: session, ID: session, Principal: principal}); err != nil {
		t.Fatalf("submit: %v", err)
	}
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

// One principal has 1,000 sessions waiting for 30 slots; a single message of another one takes the next slot that becomes free.
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

// ringRun executes random steps, a message or the end of a turn, and compares each start with the model.
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
