package sqlstore

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// entrant is an operation with a number.
type entrant struct {
	key string
	n   int
}

func (e *entrant) Name() string { return e.key }

// gate is a database that responds when the test releases it.
type gate struct {
	groups  chan []int    // what arrived, one group after the other
	answers chan []bool   // which operations of a group are completed; nil = all
	errs    chan error    // returned in place of an answer
	gone    chan struct{} // a group was cancelled
}

func numbers(ops []*entrant) (list []int) {
	for _, e := range ops {
		list = append(list, e.n)
	}
	return list
}

func newGate() *gate {
	return &gate{groups: make(chan []int, 100), answers: make(chan []bool), errs: make(chan error), gone: make(chan struct{}, 100)}
}

func (g *gate) write(ctx context.Context, ops []*entrant) ([]bool, error) {
	g.groups <- numbers(ops)
	select {
	case done := <-g.answers:
		if done == nil {
			done = slices.Repeat([]bool{true}, len(ops))
		}
		return done, nil
	case err := <-g.errs:
		return nil, err
	case <-ctx.Done():
		g.gone <- struct{}{}
		return nil, context.Cause(ctx)
	}
}

// callers submit operations to a group, each in its own goroutine, and keep their commit results.
type callers struct {
	t       *testing.T
	group   *group[*entrant]
	results map[int]chan commitResult
	leave   map[int]context.CancelCauseFunc
}

func newCallers(t *testing.T, g *gate) *callers {
	t.Helper()
	return &callers{t: t, group: newGroup(g.write), results: map[int]chan commitResult{}, leave: map[int]context.CancelCauseFunc{}}
}

var errLeft = errors.New("left")

func (c *callers) enter(n int, key string) {
	c.t.Helper()
	ctx, cancel := context.WithCancelCause(c.t.Context())
	end := make(chan commitResult, 1)
	c.results[n], c.leave[n] = end, cancel
	go func() {
		f, err := c.group.do(ctx, &entrant{key: key, n: n})
		if err != nil && !errors.Is(err, errLeft) {
			c.t.Errorf("operation %d: %v", n, err)
		}
		if err != nil {
			f = -1
		}
		end <- f
	}()
	synctest.Wait()
}

func (c *callers) wantResult(n int, want commitResult) {
	c.t.Helper()
	if got := <-c.results[n]; got != want {
		c.t.Errorf("operation %d: result %d, want %d", n, got, want)
	}
}

func wantGroup(t *testing.T, g *gate, want ...int) {
	t.Helper()
	select {
	case got := <-g.groups:
		if !slices.Equal(got, want) {
			t.Errorf("together went %v, want %v", got, want)
		}
	default:
		t.Errorf("nothing went, want %v", want)
	}
}

func wantNothing(t *testing.T, g *gate) {
	t.Helper()
	select {
	case got := <-g.groups:
		t.Errorf("%v went, want nothing", got)
	default:
	}
}

func TestOneRunsAtOnceAndTheRestTogether(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newGate()
		c := newCallers(t, g)
		c.enter(0, "a")
		wantGroup(t, g, 0)
		c.enter(10, "x")
		c.enter(11, "y")
		c.enter(12, "x") // the session of another waiting operation: it joins the next batch
		c.enter(13, "z")
		wantNothing(t, g)
		g.answers <- nil
		synctest.Wait()
		wantGroup(t, g, 10, 11, 13)
		g.answers <- nil
		synctest.Wait()
		wantGroup(t, g, 12)
		g.answers <- nil
		for n := range c.results {
			c.wantResult(n, grouped)
		}
		c.group.close()
	})
}

// The first of simultaneous operations runs with those that arrive before it has begun.
func TestTheFirstOfOperationsWaitsForThoseThatComeWithIt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newGate()
		c := newCallers(t, g)
		first := &waiter[*entrant]{op: &entrant{key: "a", n: 0}}
		how, own := c.group.offer(first)
		if how != runNow || c.group.joined(first, own) {
			t.Fatalf("the first operation is %v, or has joined others before one came", how)
		}
		c.enter(1, "b")
		c.enter(2, "a")
		wantNothing(t, g)
		if !c.group.joined(first, own) {
			t.Fatal("the first operation goes alone")
		}
		synctest.Wait()
		wantGroup(t, g, 0, 1)
		g.answers <- nil
		synctest.Wait()
		wantGroup(t, g, 2) // another operation for the session of the first
		g.answers <- nil
		if got := <-first.result; got != grouped {
			t.Errorf("the first operation: result %d, want %d", got, grouped)
		}
		c.wantResult(1, grouped)
		c.wantResult(2, grouped)
		c.group.close()
	})
}

// A blocked connection delays the next operations by maxWait, not for as long as it is blocked.
func TestAHangingTransactionLetsTheNextGroupRun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newGate()
		c := newCallers(t, g)
		c.enter(0, "a")
		wantGroup(t, g, 0)
		c.enter(1, "b")
		wantNothing(t, g)
		time.Sleep(maxWait)
		synctest.Wait()
		wantGroup(t, g, 1)
		c.enter(2, "c")
		wantNothing(t, g)
		g.answers <- nil
		g.answers <- nil
		synctest.Wait()
		wantGroup(t, g, 2)
		g.answers <- nil
		for n := range c.results {
			c.wantResult(n, grouped)
		}
		c.group.close()
	})
}

func TestAGroupIsBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newGate()
		c := newCallers(t, g)
		for n := range 1 + maxGroup + 1 {
			c.enter(n, string(rune('a'+n)))
		}
		<-g.groups
		g.answers <- nil
		synctest.Wait()
		if got := <-g.groups; len(got) != maxGroup {
			t.Errorf("%d went together, want %d", len(got), maxGroup)
		}
		g.answers <- nil
		g.answers <- nil
		for n := range c.results {
			c.wantResult(n, grouped)
		}
		c.group.close()
	})
}

func TestACallerRunsAloneWhatItsGroupDidNotDo(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		done []bool
		err  error
		want []commitResult
	}{
		"one is refused":        {done: []bool{true, false, true}, want: []commitResult{grouped, single, grouped}},
		"the statement fails":   {err: errors.New("refused"), want: []commitResult{single, single, single}},
		"the connection breaks": {err: ErrUnknown, want: []commitResult{unknown, unknown, unknown}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				g := newGate()
				c := newCallers(t, g)
				c.enter(100, "a")
				for n := range tt.want {
					c.enter(n, string(rune('m'+n)))
				}
				g.answers <- nil
				synctest.Wait()
				if tt.err != nil {
					g.errs <- tt.err
				} else {
					g.answers <- tt.done
				}
				for n, want := range tt.want {
					c.wantResult(n, want)
				}
				c.group.close()
			})
		})
	}
}

func TestACallerThatLeavesDelaysNoOther(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newGate()
		c := newCallers(t, g)
		c.enter(0, "a")
		c.enter(10, "x")
		c.enter(11, "y")
		c.leave[10](errLeft) // before it was sent: it is never applied
		c.wantResult(10, -1)
		c.leave[0](errLeft) // the only operation of its batch: the batch is cancelled, and the next one runs
		c.wantResult(0, -1)
		<-g.gone
		<-g.groups
		synctest.Wait()
		wantGroup(t, g, 11)
		g.answers <- nil
		c.wantResult(11, grouped)
		c.group.close()
	})
}

func TestAClosedGroupRefusesOperations(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newGate()
		c := newCallers(t, g)
		c.enter(0, "a")
		closed := make(chan struct{})
		go func() { c.group.close(); close(closed) }()
		synctest.Wait()
		c.enter(1, "b")
		c.wantResult(1, single)
		select {
		case <-closed:
			t.Error("closed while a batch runs")
		default:
		}
		g.answers <- nil
		<-closed
		c.wantResult(0, grouped)
	})
}
