package scheduler_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"laneway/internal/scheduler"
)

// world drives a scheduler by random steps and checks its invariants. Each turn obeys orders of the
// test.
type world struct {
	rt *rapid.T
	s  *sched

	mu       sync.Mutex
	acting   map[*turn]chan act // orders to running turns
	begun    map[string][]int64 // per session, the sequence numbers whose turns started since the last check
	highest  map[string]int64   // the highest number of the turns that started before
	overlaps []string           // broken promises, detected inside turns
	quit     chan struct{}      // closed when a property has failed: every turn returns

	tickets      map[string]*ticket
	next         map[string]int64
	limit        map[string]int   // the largest limit that a session had while it was tracked
	held         []scheduler.Wake // of messages that were accepted, and that have not come yet
	draining     bool
	perPrincipal int            // bounded turns that a principal may have concurrently, 0 = any number
	yielded      map[*turn]bool // turns that have been in Yield; true while they are in it
	returns      map[*turn]int  // turns that had no slot again at the last check, with the number of turns that their lane had started by then
}

// act is the next action of a turn.
type act struct {
	do string // return, fail, panic, yield
}

var errFailed = errors.New("failed as ordered")

// run is the Run of the turns: it records the start, then obeys orders.
func (w *world) run(ctx context.Context, t *turn) error {
	orders := make(chan act)
	w.mu.Lock()
	w.acting[t] = orders
	for _, it := range t.Items() {
		w.begun[t.Session()] = append(w.begun[t.Session()], it.Seq)
	}
	n := 0
	for other := range w.acting {
		if other.Session() == t.Session() {
			n++
		}
	}
	if n > w.limit[t.Session()] {
		w.overlaps = append(w.overlaps, fmt.Sprintf("%d turns of %s at once, limit %d", n, t.Session(), w.limit[t.Session()]))
	}
	w.principalsShare(t.Items()[0].Principal)
	w.mu.Unlock()
	defer func() {
		w.mu.Lock()
		delete(w.acting, t)
		delete(w.yielded, t)
		w.mu.Unlock()
	}()
	for {
		var o act
		select {
		case o = <-orders:
		case <-w.quit:
			return nil
		}
		switch o.do {
		case "return":
			return nil
		case "fail":
			return errFailed
		case "panic":
			panic("panicked as ordered")
		case "yield":
			w.yield(ctx, t, orders)
		}
	}
}

// yield releases the slot until the next order, whatever it is.
func (w *world) yield(ctx context.Context, t *turn, orders chan act) {
	w.away(t, true)
	err := t.Yield(ctx, func(context.Context) error {
		select {
		case <-orders:
		case <-w.quit:
		}
		w.mu.Lock()
		w.returns[t] = -1
		w.mu.Unlock()
		return nil
	})
	w.mu.Lock()
	delete(w.returns, t)
	w.mu.Unlock()
	w.away(t, false)
	if err != nil && ctx.Err() == nil {
		w.mu.Lock()
		w.overlaps = append(w.overlaps, fmt.Sprintf("yield: %v", err))
		w.mu.Unlock()
	}
}

func (w *world) away(t *turn, is bool) {
	w.mu.Lock()
	w.yielded[t] = is
	w.mu.Unlock()
}

// pick draws a running turn, nil when none runs.
func (w *world) pick() (*turn, chan act) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var all []*turn
	for t := range w.acting {
		all = append(all, t)
	}
	if len(all) == 0 {
		return nil, nil
	}
	slices.SortFunc(all, func(a, b *turn) int {
		if a.Session() != b.Session() {
			return map[bool]int{true: -1, false: 1}[a.Session() < b.Session()]
		}
		return cmp.Compare(a.RunID(), b.RunID())
	})
	t := rapid.SampledFrom(all).Draw(w.rt, "turn")
	return t, w.acting[t]
}

func (w *world) session() string {
	return rapid.SampledFrom([]string{"a", "b", "c", "d"}).Draw(w.rt, "session")
}

// id is the id of a message.
func id(session string, seq int64) string { return session + strconv.FormatInt(seq, 10) }

// submit submits a message with random settings.
func (w *world) submit() {
	key := w.session()
	set := scheduler.Settings{
		Mode:          rapid.SampledFrom(scheduler.QueueModes()).Draw(w.rt, "mode"),
		MaxConcurrent: rapid.IntRange(1, 3).Draw(w.rt, "max_concurrent"),
		BatchMessages: rapid.IntRange(1, 4).Draw(w.rt, "batch"),
	}
	w.next[key]++
	it := item{
		Session: key, ID: id(key, w.next[key]), Settings: &set,
		Lane:      rapid.SampledFrom([]string{"main", "main", "side"}).Draw(w.rt, "lane"),
		Principal: rapid.SampledFrom([]string{"", "ann", "bob"}).Draw(w.rt, "principal"),
		Bounded:   rapid.Bool().Draw(w.rt, "bounded"),
		Sender:    rapid.SampledFrom([]string{"ann", "bob"}).Draw(w.rt, "sender"),
		Typed:     rapid.Bool().Draw(w.rt, "typed"),
		NoMerge:   rapid.IntRange(0, 5).Draw(w.rt, "alone") == 0,
		Gathers:   rapid.IntRange(0, 3).Draw(w.rt, "gathers") == 0,
	}
	w.mu.Lock()
	w.limit[key] = max(w.limit[key], set.MaxConcurrent)
	w.mu.Unlock()
	wake, sub := w.s.add(it)
	w.tickets[it.ID] = sub.Ticket
	if len(w.held) < 3 && rapid.IntRange(0, 9).Draw(w.rt, "hold") == 0 { // another process accepted it, or it is overtaken
		w.held = append(w.held, wake)
		return
	}
	if started, _ := w.s.Wake(wake); started && w.draining {
		w.rt.Fatalf("a turn starts while it drains")
	}
}

// release wakes the sessions of the messages that are held.
func (w *world) release() {
	for _, wake := range w.held {
		w.s.Wake(wake)
	}
	w.held = nil
}

// order gives a running turn an order.
func (w *world) order(what string) {
	t, orders := w.pick()
	if t == nil {
		return
	}
	o := act{do: what}
	select {
	case orders <- o:
	default: // it waits for a slot after a yield
	}
}

// check runs after every step, when no goroutine is running.
func (w *world) check() {
	synctest.Wait()
	checkSums(w.rt, w.s)
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.overlaps) > 0 {
		w.rt.Fatalf("%v", w.overlaps)
	}
	for key, seqs := range w.begun {
		delete(w.begun, key)
		slices.Sort(seqs) // turns that began one after the other may have reached this in any order
		if seqs[0] <= w.highest[key] {
			w.rt.Fatalf("session %s started %v after %d", key, seqs, w.highest[key])
		}
		w.highest[key] = seqs[len(seqs)-1]
	}
	if stats := w.s.Stats(); stats.Sessions.Running != len(w.acting) {
		w.rt.Fatalf("%d turns run, the scheduler knows %d", len(w.acting), stats.Sessions.Running)
	}
	w.returningPrecede()
	w.idleIsForgotten()
}

// returningPrecede checks that no turn of a lane has started while one waited to return from Yield.
func (w *world) returningPrecede() {
	for t, before := range w.returns {
		l, _ := w.s.Stats().Lane(t.Lane())
		if before >= 0 && int(l.Started) > before {
			w.rt.Fatalf("%d turns of %s started although %s waits for its slot", int(l.Started)-before, t.Lane(), t.RunID())
		}
		w.returns[t] = int(l.Started)
	}
}

// idleIsForgotten resets idle sessions in the model, and checks that the scheduler does not track
// them.
func (w *world) idleIsForgotten() {
	tracked := 0
	for _, key := range []string{"a", "b", "c", "d"} {
		st, ok := w.s.Session(key)
		if !ok {
			if w.s.waitingIn(key) == 0 {
				w.limit[key] = 0
			}
			continue
		}
		tracked++
		if st.Waiting == 0 && len(st.Running) == 0 {
			w.rt.Fatalf("idle session %s is tracked", key)
		}
		if st.Waiting > 0 && st.Debouncing == 0 && len(st.Running) == 0 && !w.laneFull() && !w.someShareFull() {
			w.rt.Fatalf("session %s waits for nothing: %+v", key, st)
		}
	}
	if got := w.s.Stats().Sessions.Tracked; got != tracked {
		w.rt.Fatalf("%d sessions tracked, want %d", got, tracked)
	}
}

// laneFull reports whether any lane has no free slot.
func (w *world) laneFull() bool {
	return slices.ContainsFunc(w.s.Stats().Lanes, func(l scheduler.LaneStats) bool { return l.Active >= l.Capacity })
}

// finish ends everything and checks that every ticket has its outcome.
func (w *world) finish() {
	for {
		synctest.Wait()
		w.mu.Lock()
		var orders []chan act
		for _, o := range w.acting {
			orders = append(orders, o)
		}
		w.mu.Unlock()
		if len(orders) == 0 && len(w.held) == 0 && w.s.Stats().Sessions.Tracked == 0 {
			break
		}
		w.release()
		for _, o := range orders {
			select {
			case o <- act{do: "return"}:
			default:
			}
		}
		w.check()
		pass(time.Second)
	}
	for name, ticket := range w.tickets {
		if got, _ := ticket.Result(); got == "" {
			w.rt.Fatalf("message %s has no outcome", name)
		}
	}
	stats := w.s.Stats()
	if stats.Principals != 0 {
		w.rt.Fatalf("%d principals are known at rest", stats.Principals)
	}
	for _, l := range stats.Lanes {
		if l.Active != 0 || l.Yielded != 0 || l.Stopping != 0 || l.Started != l.Finished {
			w.rt.Fatalf("lane at rest: %+v", l)
		}
	}
	if err := w.s.Drain(context.Background()); err != nil {
		w.rt.Fatalf("drain: %v", err)
	}
}

func TestRandomStepsKeepEveryPromise(t *testing.T) {
	t.Parallel()
	t.Run("until everything has ended", func(t *testing.T) {
		t.Parallel()
		rapid.Check(t, func(rt *rapid.T) { inWorld(t, rt, func(*world) {}) })
	})
	t.Run("with a drain in the middle", func(t *testing.T) {
		t.Parallel()
		rapid.Check(t, func(rt *rapid.T) { inWorld(t, rt, (*world).drainWhileRunning) })
	})
}

// inWorld runs random steps and the last act in virtual time. A failing property panics, which must
// be passed out of the bubble after everything in it has ended.
func inWorld(t *testing.T, rt *rapid.T, last func(*world)) {
	t.Helper()
	var failure any
	perPrincipal := rapid.IntRange(0, 2).Draw(rt, "per_principal")
	synctest.Test(t, func(*testing.T) {
		w := &world{
			rt: rt, acting: map[*turn]chan act{}, begun: map[string][]int64{}, highest: map[string]int64{},
			tickets: map[string]*ticket{}, next: map[string]int64{}, limit: map[string]int{},
			quit:    make(chan struct{}),
			yielded: map[*turn]bool{}, returns: map[*turn]int{}, perPrincipal: perPrincipal,
		}
		s, err := makeScheduler(context.Background(), config{Lanes: lanes(map[string]int{"main": 2, "side": 1}), PrincipalTurns: w.perPrincipal, Run: w.run})
		if err != nil {
			rt.Fatalf("New: %v", err)
		}
		w.s = s
		defer func() {
			failure = recover()
			close(w.quit)
			_ = s.Drain(context.Background())
		}()
		rt.Repeat(w.steps())
		last(w)
		w.finish()
	})
	if failure != nil {
		panic(failure)
	}
}

// drainWhileRunning drains with turns that ignore their contexts; the drain must still end in time.
func (w *world) drainWhileRunning() {
	w.draining = true
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	begin, left := time.Now(), w.s.Stats().Sessions.Running
	err := w.s.Drain(ctx)
	if took := time.Since(begin); took > 5*time.Second {
		w.rt.Fatalf("drain took %v", took)
	}
	if got := len(w.s.TurnsLeft()); errors.Is(err, scheduler.ErrTurnsLeft) != (got > 0) || got != left {
		w.rt.Fatalf("drain: %v, %d turns left, %d ran before", err, got, left)
	}
	waiting := 0
	for _, key := range []string{"a", "b", "c", "d"} {
		waiting += w.s.waitingIn(key)
	}
	if n := w.s.outcomes()[""]; n != waiting {
		w.rt.Fatalf("%d messages have no outcome after a drain, %d of them wait in the store", n, waiting)
	}
	w.submit()
	for _, ticket := range w.tickets { // the next process runs what waits
		ticket.end(interrupted, nil)
	}
}

// steps are the actions of the machine.
func (w *world) steps() map[string]func(*rapid.T) {
	step := func(f func()) func(*rapid.T) { return func(*rapid.T) { f() } }
	return map[string]func(*rapid.T){
		"submit":  step(w.submit),
		"submit2": step(w.submit),
		"submit3": step(w.submit),
		"return":  step(func() { w.order("return") }),
		"return2": step(func() { w.order("return") }),
		"fail":    step(func() { w.order("fail") }),
		"panic":   step(func() { w.order("panic") }),
		"yield":   step(func() { w.order("yield") }),
		"yield2":  step(func() { w.order("yield") }),
		"return3": step(func() { w.order("return") }),
		"pass":    step(func() { pass(time.Duration(rapid.IntRange(1, 3000).Draw(w.rt, "ms")) * time.Millisecond) }),
		"stop": step(func() {
			stop(w.s, w.session(), false)
		}),
		"stop_run": step(func() {
			key := w.session()
			seq := rapid.Int64Range(1, w.next[key]+1).Draw(w.rt, "seq")
			w.s.StopRun(key, id(key, seq), "ann")
		}),
		"stop_all": step(func() {
			key := w.session()
			w.s.StopAll(key, "ann")
			if n := w.s.waitingIn(key); n != 0 {
				w.rt.Fatalf("after StopAll %d wait", n)
			}
		}),
		"drop": step(func() {
			key := w.session()
			seq := rapid.Int64Range(1, w.next[key]+1).Draw(w.rt, "seq")
			w.s.Drop(key, seq)
		}),
		"cut": step(func() { w.s.Cut(w.session()) }),
		"resets": step(func() {
			w.s.ResetAll()
			if n := w.s.Stats().Sessions.Waiting; n != 0 {
				w.rt.Fatalf("after ResetAll %d wait", n)
			}
			synctest.Wait()
			w.s.wakeAll()
		}),
		"release": step(w.release),
		"resize": step(func() {
			lane := rapid.SampledFrom([]string{"main", "side"}).Draw(w.rt, "lane")
			if err := w.s.SetLane(scheduler.Lane{Name: lane, Limit: rapid.IntRange(1, 4).Draw(w.rt, "n")}); err != nil {
				w.rt.Fatalf("resize: %v", err)
			}
		}),
		"settle": step(func() {
			if t, _ := w.pick(); t != nil {
				if err := t.Settle(); (err == nil) != (t.Cause() == nil) {
					w.rt.Fatalf("Settle = %v, cause %v", err, t.Cause())
				}
			}
		}),
		"input": step(func() {
			if t, _ := w.pick(); t != nil {
				t.AcceptInput()
				w.mu.Lock()
				for _, it := range t.TakeInput() {
					w.begun[t.Session()] = append(w.begun[t.Session()], it.Seq)
				}
				w.mu.Unlock()
			}
		}),
		"": func(*rapid.T) { w.check() },
	}
}

// counts reports whether the turn counts for its principal.
func counts(t *turn) bool { return t.Items()[0].Bounded }

// principalsShare checks how many bounded turns the principal has. Those that returned from Yield
// may exceed the bound.
func (w *world) principalsShare(principal string) {
	n := 0
	for t := range w.acting {
		if _, was := w.yielded[t]; !was && counts(t) && t.Items()[0].Principal == principal {
			n++
		}
	}
	if w.perPrincipal > 0 && n > w.perPrincipal {
		w.overlaps = append(w.overlaps, fmt.Sprintf("%d bounded turns of %q at once, limit %d", n, principal, w.perPrincipal))
	}
}

// someShareFull reports whether some principal has as many bounded turns as allowed.
func (w *world) someShareFull() bool {
	used := map[string]int{}
	for t := range w.acting {
		if counts(t) && !w.yielded[t] {
			used[t.Items()[0].Principal]++
		}
	}
	for _, n := range used {
		if w.perPrincipal > 0 && n >= w.perPrincipal {
			return true
		}
	}
	return false
}
