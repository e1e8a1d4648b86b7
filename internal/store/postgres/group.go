package postgres

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	// maxGroup is how many operations share a transaction. With more the first would wait for the last.
	maxGroup = 64
	// maxGroupedBytes is how many bytes of text an operation may bring into a group: a large one would delay the others.
	maxGroupedBytes = 64 << 10
	// patience is how long the others wait for the transaction that runs. A connection that hangs must not stop the whole kind.
	patience = time.Second
)

// commitResult is the result of an operation in a group.
type commitResult int

const (
	single  commitResult = iota // nothing was written: the caller runs it in a transaction of its own, where it may wait and gets the reason of a refusal
	grouped                     // committed
	unknown                     // the connection broke: perhaps committed. The caller repeats it in a transaction of its own
)

// groupable is an operation that may share its transaction with others of its kind.
type groupable interface {
	// session is the session whose row the operation locks. A group has at most one operation of a session.
	session() string
}

// group lets concurrent operations of one kind share a transaction: one round trip, one start of each statement, one flush. One transaction
// of a kind runs at a time. When none runs, an operation starts at once, with those of the goroutines that are ready at that moment; the others
// wait and share the next transaction when it ends: most of the cost of a statement is its start, and most of the cost of a commit is its flush,
// so a second one beside it would only split the group.
// A group waits for no lock and handles the usual case only: an operation that it cannot settle in one pass has written nothing, and its
// caller runs it alone.
type group[O groupable] struct {
	// write runs the operations in one transaction and returns which of them it has done. The others have written nothing.
	write func(ctx context.Context, ops []O) (done []bool, err error)
	log   *slog.Logger

	batches sync.WaitGroup

	mu      sync.Mutex
	closed  bool
	running *slot // nil = no transaction runs
	waiting []*waiter[O]
}

// slot is the right to run the transaction of a group. A transaction keeps it until it ends, at most for [patience].
type slot struct{ timer *time.Timer }

// occupy gives the slot to a new transaction; the caller holds g.mu.
func (g *group[O]) occupy() *slot {
	s := &slot{}
	s.timer = time.AfterFunc(patience, func() { g.vacate(s) })
	g.running = s
	return s
}

// vacate lets the next batch run, unless it does already.
func (g *group[O]) vacate(s *slot) {
	g.mu.Lock()
	defer g.mu.Unlock()
	s.timer.Stop()
	if g.running == s {
		g.running = nil
		g.sendNext()
	}
}

// waiter is one caller's operation in a group.
type waiter[O groupable] struct {
	op     O
	batch  *opBatch // nil while it waits
	result chan commitResult
}

// opBatch is one transaction. It is cancelled when no caller waits for it any more.
type opBatch struct {
	cancel  context.CancelFunc
	callers int // callers that still wait
}

func newGroup[O groupable](log *slog.Logger, write func(context.Context, []O) ([]bool, error)) *group[O] {
	return &group[O]{write: write, log: log}
}

// do runs an operation and returns its commit result. It runs in the caller's goroutine when no transaction of the group
// runs; else it waits for the next batch, or for ctx. When ctx ends the operation happens as a whole or not at all, and its fields still
// belong to the group.
func (g *group[O]) do(ctx context.Context, op O) (commitResult, error) {
	if ctx.Err() != nil {
		return single, context.Cause(ctx)
	}
	s := &waiter[O]{op: op}
	switch how, own := g.offer(s); how {
	case refused:
		return single, nil
	case runNow:
		runtime.Gosched() // turns often start, or end, at the same moment: the operations of goroutines that are ready join
		if !g.joined(s, own) {
			return g.runSingle(ctx, op, own)
		}
	case queued:
	}
	select {
	case f := <-s.result:
		return f, nil
	case <-ctx.Done():
		g.leave(s)
		return single, context.Cause(ctx)
	}
}

// joined makes an operation that has the slot a member of the next batch, which begins now, when others have come meanwhile.
func (g *group[O]) joined(s *waiter[O], own *slot) bool {
	g.mu.Lock()
	others := len(g.waiting) > 0
	if others {
		s.result = make(chan commitResult, 1)
		g.waiting = slices.Insert(g.waiting, 0, s)
	}
	g.mu.Unlock()
	if others {
		g.vacate(own)
		g.batches.Done()
	}
	return others
}

// runSingle runs an operation in its caller's goroutine.
func (g *group[O]) runSingle(ctx context.Context, op O, own *slot) (commitResult, error) {
	defer g.batches.Done()
	done, err := g.guard(ctx, []O{op})
	g.vacate(own)
	if err != nil && ctx.Err() != nil {
		return single, context.Cause(ctx)
	}
	return resultOf(0, done, err), nil
}

// admission is what the group decided about an operation.
type admission int

const (
	refused admission = iota // the group is closed
	runNow                   // no transaction runs: the caller runs this one
	queued                   // it waits, or belongs to a batch
)

// offer admits an operation; the slot is that of one that runs now.
func (g *group[O]) offer(s *waiter[O]) (admission, *slot) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return refused, nil
	}
	if g.running == nil {
		g.batches.Add(1)
		return runNow, g.occupy()
	}
	s.result = make(chan commitResult, 1)
	g.waiting = append(g.waiting, s)
	return queued, nil
}

func (g *group[O]) leave(s *waiter[O]) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if s.batch == nil {
		g.waiting = slices.DeleteFunc(g.waiting, func(w *waiter[O]) bool { return w == s })
		return
	}
	if s.batch.callers--; s.batch.callers == 0 {
		s.batch.cancel()
	}
}

// sendNext starts a batch with waiting operations, if there are any; the caller holds g.mu. The goroutine ends with the transaction; close
// waits for it.
func (g *group[O]) sendNext() {
	if len(g.waiting) == 0 {
		return
	}
	ctx, cancel := context.WithCancel(context.Background()) //nolint:forbidigo // a batch belongs to all its callers, and ends when the last one leaves
	f := &opBatch{cancel: cancel}
	list := g.takeBatch(f)
	f.callers = len(list)
	own := g.occupy()
	g.batches.Go(func() { g.runBatch(ctx, f, list, own) })
}

// takeBatch takes the next operations in the order of their arrival: at most one of each session.
func (g *group[O]) takeBatch(f *opBatch) []*waiter[O] {
	if len(g.waiting) == 1 {
		list := g.waiting
		list[0].batch, g.waiting = f, nil
		return list
	}
	list := make([]*waiter[O], 0, min(len(g.waiting), maxGroup))
	sessions := make(map[string]bool, cap(list))
	rest := g.waiting[:0]
	for _, s := range g.waiting {
		if len(list) == maxGroup || sessions[s.op.session()] {
			rest = append(rest, s)
			continue
		}
		sessions[s.op.session()] = true
		s.batch = f
		list = append(list, s)
	}
	clear(g.waiting[len(rest):])
	g.waiting = rest
	return list
}

func (g *group[O]) runBatch(ctx context.Context, f *opBatch, list []*waiter[O], own *slot) {
	defer f.cancel()
	ops := make([]O, len(list))
	for i, s := range list {
		ops[i] = s.op
	}
	done, err := g.guard(ctx, ops)
	g.vacate(own)
	for i, s := range list {
		s.result <- resultOf(i, done, err)
	}
}

func resultOf(i int, done []bool, err error) commitResult {
	switch {
	case err != nil && broken(err):
		return unknown
	case err != nil || !done[i]:
		return single
	default:
		return grouped
	}
}

// guard turns a panic into an error: the other operations of the group belong to other callers. When the operation runs alone it panics in
// its caller's goroutine.
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

// close refuses new operations and waits until those that run or wait have ended.
func (g *group[O]) close() {
	g.mu.Lock()
	g.closed = true
	g.mu.Unlock()
	g.batches.Wait()
}

// scanResults reads the rows of a group's statement. The first column of a row is the number of its operation, which is then done.
func scanResults[O any](rows pgx.Rows, ops []O, done []bool, scan func(O, pgx.Row) error) error {
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

// columns are the parameters of a group's statement after the clock: the columns of its rows as arrays. For one row they are the plain
// values, because the statement for one row takes them so: most groups have one member, and arrays cost both sides more. A row has text and
// int64 only.
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
		if v, ok := row[c].(T); ok { // a row of another type would leave the array too short, which the statement refuses
			list = append(list, v)
		}
	}
	return list
}
