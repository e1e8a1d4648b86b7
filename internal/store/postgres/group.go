package postgres

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"

	"github.com/jackc/pgx/v5"
)

const (
	// parallel is how many operations of one kind go to the database without waiting for company. More in flight would gain nothing for the
	// first ones and would keep the later ones from sharing: what a statement costs is mostly its start, and what a commit costs is its flush.
	parallel = 4
	// maxGroup is how many operations share a transaction. Beyond it the first would wait for the last.
	maxGroup = 64
	// maxShared is how many bytes of text an operation may bring into a group: a large one would hold the others up.
	maxShared = 64 << 10
)

// fate is what became of an operation in a group.
type fate int

const (
	alone    fate = iota // nothing was written: it is to be tried by itself, where it may wait and learns why it was refused
	shared               // committed
	doubtful             // the connection broke: perhaps committed. It is to be tried by itself, as a repetition
)

// member is an operation that may share its transaction with others of its kind.
type member interface {
	// session is whose row the operation locks. There is at most one of a session in a group.
	session() string
}

// group lets operations of one kind that wait at the same time share one transaction: one round trip, one start of each statement, one
// flush. An operation goes at once while few are under way; those that come meanwhile gather and go together when one of them lands.
// A group waits for no lock and decides nothing difficult: an operation that it cannot settle on the straight way is handed back to its caller.
type group[O member] struct {
	// write does the operations in one transaction and says which of them it has done. The others have written nothing.
	write func(ctx context.Context, ops []O) (done []bool, err error)
	log   *slog.Logger

	flights sync.WaitGroup

	mu       sync.Mutex
	closed   bool
	underWay int
	waiting  []*share[O]
}

// share is one caller's part in a group.
type share[O member] struct {
	op     O
	flight *flight // nil while it waits
	end    chan fate
}

// flight is one transaction. It is given up when nobody waits for it any more.
type flight struct {
	cancel context.CancelFunc
	aboard int // callers that still wait
}

func newGroup[O member](log *slog.Logger, write func(context.Context, []O) ([]bool, error)) *group[O] {
	return &group[O]{write: write, log: log}
}

// do runs an operation and returns its fate. A lone one runs here and now; one that finds enough under way waits for company, or for ctx.
// When ctx is over the operation happens as a whole or not at all, and its fields belong to the group.
func (g *group[O]) do(ctx context.Context, op O) (fate, error) {
	if ctx.Err() != nil {
		return alone, context.Cause(ctx)
	}
	s := &share[O]{op: op}
	switch g.offer(s) {
	case refused:
		return alone, nil
	case lone:
		return g.runLone(ctx, op)
	case gathered:
	}
	select {
	case f := <-s.end:
		return f, nil
	case <-ctx.Done():
		g.leave(s)
		return alone, context.Cause(ctx)
	}
}

// runLone runs an operation in its caller's goroutine.
func (g *group[O]) runLone(ctx context.Context, op O) (fate, error) {
	defer g.flights.Done()
	done, err := g.guard(ctx, []O{op})
	g.land(1)
	if err != nil && ctx.Err() != nil {
		return alone, context.Cause(ctx)
	}
	return fateOf(0, done, err), nil
}

// entrance is how an operation came in.
type entrance int

const (
	refused  entrance = iota // the group is closed
	lone                     // it is under way: the caller is to run it
	gathered                 // it waits, or has gone with others
)

func (g *group[O]) offer(s *share[O]) entrance {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return refused
	}
	if g.underWay < parallel && len(g.waiting) == 0 {
		g.underWay++
		g.flights.Add(1)
		return lone
	}
	s.end = make(chan fate, 1)
	g.waiting = append(g.waiting, s)
	return gathered
}

func (g *group[O]) leave(s *share[O]) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if s.flight == nil {
		g.waiting = slices.DeleteFunc(g.waiting, func(w *share[O]) bool { return w == s })
		return
	}
	if s.flight.aboard--; s.flight.aboard == 0 {
		s.flight.cancel()
	}
}

// depart starts a flight with what waits, unless enough is under way. The goroutine ends with the transaction; close waits for it.
func (g *group[O]) depart() {
	if g.underWay >= parallel || len(g.waiting) == 0 {
		return
	}
	ctx, cancel := context.WithCancel(context.Background()) //nolint:forbidigo // a flight belongs to all its callers, and ends when the last has gone
	f := &flight{cancel: cancel}
	list := g.board(f)
	f.aboard = len(list)
	g.underWay += len(list)
	g.flights.Go(func() { g.fly(ctx, f, list) })
}

// board takes those that go together: at most one of each session, in the order in which they came.
func (g *group[O]) board(f *flight) []*share[O] {
	if len(g.waiting) == 1 {
		list := g.waiting
		list[0].flight, g.waiting = f, nil
		return list
	}
	list := make([]*share[O], 0, min(len(g.waiting), maxGroup))
	sessions := make(map[string]bool, cap(list))
	rest := g.waiting[:0]
	for _, s := range g.waiting {
		if len(list) == maxGroup || sessions[s.op.session()] {
			rest = append(rest, s)
			continue
		}
		sessions[s.op.session()] = true
		s.flight = f
		list = append(list, s)
	}
	clear(g.waiting[len(rest):])
	g.waiting = rest
	return list
}

func (g *group[O]) fly(ctx context.Context, f *flight, list []*share[O]) {
	defer f.cancel()
	ops := make([]O, len(list))
	for i, s := range list {
		ops[i] = s.op
	}
	done, err := g.guard(ctx, ops)
	g.land(len(list))
	for i, s := range list {
		s.end <- fateOf(i, done, err)
	}
}

func fateOf(i int, done []bool, err error) fate {
	switch {
	case err != nil && broken(err):
		return doubtful
	case err != nil || !done[i]:
		return alone
	default:
		return shared
	}
}

// guard turns a panic into an error: each of the others is somebody else's. By itself the one that panics does it in its caller's goroutine.
func (g *group[O]) guard(ctx context.Context, ops []O) (done []bool, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("defect in a store operation: %v", r)
		}
	}()
	done, err = g.write(ctx, ops)
	if err != nil {
		g.log.DebugContext(ctx, "operations that shared a transaction are tried by themselves", "operations", len(ops), "err", translate(err))
	}
	return done, err
}

func (g *group[O]) land(n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.underWay -= n
	g.depart()
}

// close lets nobody in any more and waits for what is under way. What waits then goes with the last flights or by itself.
func (g *group[O]) close() {
	g.mu.Lock()
	g.closed = true
	g.mu.Unlock()
	g.flights.Wait()
}

// eachMember hands every row to the operation whose number is its first column, and notes that it is done.
func eachMember[O any](rows pgx.Rows, ops []O, done []bool, scan func(O, pgx.Row) error) error {
	var i int
	first := []any{&i}
	for rows.Next() {
		if missing := len(rows.FieldDescriptions()) - len(first); missing > 0 {
			first = append(first, make([]any, missing)...)
		}
		if err := rows.Scan(first...); err != nil {
			return err
		}
		if err := scan(ops[i-1], rows); err != nil {
			return err
		}
		done[i-1] = true
	}
	return rows.Err()
}

// columns are the parameters of a group's statement behind the clock: the columns of its rows as arrays. A single row stays as it is, because its
// statement takes it so: most groups have one member, and arrays cost both sides more. A row holds text and int64 only.
func columns[O any](clock any, ops []O, row func(O) []any) []any {
	first := row(ops[0])
	args := append(make([]any, 0, len(first)+4), clock)
	if len(ops) == 1 {
		return append(args, first...)
	}
	rows := make([][]any, len(ops))
	for i, op := range ops {
		rows[i] = row(op)
	}
	for c, v := range first {
		if _, ok := v.(int64); ok {
			args = append(args, pick[int64](rows, c))
		} else {
			args = append(args, pick[string](rows, c))
		}
	}
	return args
}

func pick[T any](rows [][]any, c int) []T {
	list := make([]T, 0, len(rows))
	for _, row := range rows {
		if v, ok := row[c].(T); ok { // a row of another make would leave the array too short, which no table takes
			list = append(list, v)
		}
	}
	return list
}
