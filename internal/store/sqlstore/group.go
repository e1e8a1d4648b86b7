package sqlstore

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"

	"laneway/internal/store"
)

const (
	// maxGroup is how many operations share a transaction. In a larger group, the first operation
	// would wait for the last.
	maxGroup = 64
	// maxGrouped is how many bytes of text an operation may have to join a group: a large one would
	// delay the others.
	maxGrouped = 64 << 10
	// maxWait is how long waiting operations wait for the running transaction. A blocked connection
	// must not stop all operations of the kind.
	maxWait = time.Second
)

// ErrUnknown is wrapped when a transaction may have been committed.
var ErrUnknown = errors.New("perhaps committed")

// commitResult is the result of an operation in a group.
type commitResult int

// The results.
const (
	single  commitResult = iota // nothing was written: the caller runs it in a transaction of its own, which may wait and returns the reason of a refusal
	grouped                     // committed
	unknown                     // the connection broke: it may be committed. The caller repeats it in a transaction of its own
)

// operation is an operation that may share its transaction with others of its kind.
type operation interface {
	// Name is what the operation locks, such as the key of a session. A transaction has at most one
	// operation per name.
	Name() string
}

// group lets concurrent operations of one kind share a transaction: one round trip, one start of
// each statement, one flush. One transaction of a kind runs at a time. When none runs, an operation
// starts immediately, together with those of goroutines that are ready at that moment. Later
// operations wait and share the next transaction: most of the cost of a statement is its start, and
// most of the cost of a commit is its flush, so a second concurrent transaction would only split
// the group.
//
// A group does not wait for locks and handles only the usual case: an operation that it cannot
// complete in one pass has written nothing, and its caller runs it alone.
type group[O operation] struct {
	// write runs the operations in one transaction and returns which of them it completed. The rest
	// have written nothing.
	write func(ctx context.Context, ops []O) (done []bool, err error)

	batches sync.WaitGroup

	mu      sync.Mutex
	closed  bool
	running *slot // nil while no transaction runs
	waiting []*waiter[O]
}

// slot is the right to run the transaction of a group. A transaction keeps it until it ends, at
// most for [maxWait].
type slot struct{ timer *time.Timer }

// occupy gives the slot to a new transaction; the caller holds g.mu.
func (g *group[O]) occupy() *slot {
	s := &slot{}
	s.timer = time.AfterFunc(maxWait, func() { g.vacate(s) })
	g.running = s
	return s
}

// vacate releases the slot and starts the next batch, unless the slot was already released.
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
type waiter[O operation] struct {
	op     O
	batch  *opBatch // nil while it waits
	result chan commitResult
}

// opBatch is one transaction. It is cancelled when no caller waits for it any more.
type opBatch struct {
	cancel  context.CancelFunc
	callers int // callers that still wait
}

// newGroup makes a group; an error of write that wraps [ErrUnknown] may have been committed.
func newGroup[O operation](write func(context.Context, []O) ([]bool, error)) *group[O] {
	return &group[O]{write: write}
}

// do runs an operation and returns its commit result. It runs in the caller's goroutine when no
// transaction of the group runs; else it waits for the next batch, or for ctx. When ctx ends, the
// operation is applied as a whole or not at all, and the group still owns its fields.
func (g *group[O]) do(ctx context.Context, op O) (commitResult, error) {
	if ctx.Err() != nil {
		return single, context.Cause(ctx)
	}
	s := &waiter[O]{op: op}
	switch how, own := g.offer(s); how {
	case refused:
		return single, nil
	case runNow:
		runtime.Gosched() // turns often start or end simultaneously: operations of goroutines that are ready join
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

// joined adds an operation that has the slot to the next batch and starts it, if other operations
// arrived meanwhile.
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

// admission is the decision of the group about an operation.
type admission int

const (
	refused admission = iota // the group is closed
	runNow                   // no transaction runs: the caller runs this one
	queued                   // it waits, or belongs to a batch
)

// offer admits an operation and returns the slot if it runs now.
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

// sendNext starts a batch with the waiting operations, if any; the caller holds g.mu. The goroutine
// ends with the transaction; close waits for it.
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

// takeBatch takes the next operations in order of arrival, at most one per session.
func (g *group[O]) takeBatch(f *opBatch) []*waiter[O] {
	if len(g.waiting) == 1 {
		list := g.waiting
		list[0].batch, g.waiting = f, nil
		return list
	}
	list := make([]*waiter[O], 0, min(len(g.waiting), maxGroup))
	names := make(map[string]bool, cap(list))
	rest := g.waiting[:0]
	for _, s := range g.waiting {
		if len(list) == maxGroup || names[s.op.Name()] {
			rest = append(rest, s)
			continue
		}
		names[s.op.Name()] = true
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
	case errors.Is(err, ErrUnknown):
		return unknown
	case err != nil || !done[i]:
		return single
	default:
		return grouped
	}
}

// guard turns a panic into an error: the other operations of the group belong to other callers. The
// operation then runs alone and panics in its caller's goroutine.
func (g *group[O]) guard(ctx context.Context, ops []O) (done []bool, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("defect in a store operation: %v", r)
		}
	}()
	return g.write(ctx, ops)
}

// close refuses new operations and waits until the running and waiting ones have ended.
func (g *group[O]) close() {
	g.mu.Lock()
	g.closed = true
	g.mu.Unlock()
	g.batches.Wait()
}

// together runs operations of one kind on an engine, in shared transactions.
type together[O operation] struct {
	db    Engine
	doing string
	// run runs operations in one transaction and returns which of them it completed. The rest have
	// written nothing, and run alone. With alone, an operation may wait for locks, and is completed
	// or returns the reason.
	run   func(ctx context.Context, tx Tx, ops []O, alone bool) (done []bool, err error)
	group *group[O] // nil when the engine is a Batcher
}

func newTogether[O operation](db Engine, doing string, run func(ctx context.Context, tx Tx, ops []O, alone bool) ([]bool, error)) *together[O] {
	t := &together[O]{db: db, doing: doing, run: run}
	if _, ok := db.(Batcher); !ok {
		t.group = newGroup(func(ctx context.Context, ops []O) (done []bool, err error) {
			err = db.Turn(ctx, doing, Shared, func(ctx context.Context, tx Tx) (err error) {
				done, err = run(ctx, tx, ops, false)
				return err
			})
			return done, err
		})
	}
	return t
}

// do runs an operation with this many bytes of text. The operation holds its own result, which is
// valid only when do has returned nil.
func (t *together[O]) do(ctx context.Context, op O, bytes int) error {
	m := &batched[O]{t, op}
	if b, ok := t.db.(Batcher); ok {
		return b.Batch(ctx, t.doing, m)
	}
	share := Alone
	if bytes <= maxGrouped {
		switch how, err := t.group.do(ctx, op); {
		case err != nil:
			return fmt.Errorf("%s: %w", t.doing, err)
		case how == grouped:
			return nil
		case how == unknown:
			share = Again
		}
	}
	return t.db.Turn(ctx, t.doing, share, m.Run)
}

func (t *together[O]) close() {
	if t.group != nil {
		t.group.close()
	}
}

// batched is an operation of one kind for a Batcher.
type batched[O operation] struct {
	kind *together[O]
	op   O
}

// Name implements Batched.
func (m *batched[O]) Name() string { return m.op.Name() }

// Kind implements Batched.
func (m *batched[O]) Kind() any { return m.kind }

// Run implements Batched.
func (m *batched[O]) Run(ctx context.Context, tx Tx) error {
	done, err := m.kind.run(ctx, tx, []O{m.op}, true)
	if err == nil && !done[0] {
		err = fmt.Errorf("defect: %s was not done and has no reason", m.kind.doing)
	}
	return err
}

// RunAll implements Batched.
func (m *batched[O]) RunAll(ctx context.Context, tx Tx, list []Batched) ([]bool, error) {
	ops := make([]O, len(list))
	for i, other := range list {
		ops[i] = other.(*batched[O]).op //nolint:forcetypeassert,errcheck // of one kind
	}
	return m.kind.run(ctx, tx, ops, false)
}

// These are single shared transactions, and which operations they completed. Tests of engines call
// them to check what a group leaves out.

// AcceptTogether is one transaction of messages.
func (s Inbox) AcceptTogether(ctx context.Context, list []store.AcceptParams) (done []bool, out []store.Accepted, err error) {
	ops := make([]*acceptOp, len(list))
	for i, p := range list {
		if ops[i], err = newAcceptOp(p); err != nil {
			return nil, nil, err
		}
	}
	done, err = s.accepts.group.write(ctx, ops)
	for _, o := range ops {
		out = append(out, o.out)
	}
	return done, out, err
}

// StartTogether is one transaction of starts.
func (s Inbox) StartTogether(ctx context.Context, list []store.StartParams) (done []bool, out []store.Started, err error) {
	ops := make([]*startOp, len(list))
	for i, p := range list {
		ops[i] = &startOp{p: p}
	}
	done, err = s.starts.group.write(ctx, ops)
	for _, o := range ops {
		out = append(out, o.out)
	}
	return done, out, err
}

// FinishTogether is one transaction of finishes.
func (s Inbox) FinishTogether(ctx context.Context, list []store.FinishParams) (done []bool, out []store.Finished, err error) {
	ops := make([]*finishOp, len(list))
	for i, p := range list {
		ops[i] = &finishOp{p: p}
	}
	done, err = s.finishes.group.write(ctx, ops)
	for _, o := range ops {
		out = append(out, o.out)
	}
	return done, out, err
}
