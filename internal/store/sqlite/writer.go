package sqlite

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"laneway/internal/chat"
	"laneway/internal/store"
	"laneway/internal/store/sqlstore"
)

// maxBatch is how many operations share one commit. A larger batch would gain nothing (the flush is
// then some percent of it) and would make the first operation wait for the last.
const maxBatch = 256

// fewOps is the number of waiting operations below which the writer lets more operations join.
const fewOps = 16

// work is one operation of the port: statements inside the writer's transaction. It may run after
// its caller has returned, so it owns its inputs. It may run a second time after a rollback, so it
// changes nothing but the database and its result, which the caller receives only after the commit.
type work func(ctx context.Context, t *tx) error

// op is a queued operation.
type op struct {
	doing   string
	run     work
	batched sqlstore.Batched // used instead of run
	urgent  bool
	applied bool  // completed together with others: its only result is the commit
	alone   bool  // it was not completed together with others
	err     error // for the caller
	cause   error // the same before explain
	// claimed is won by the writer (it runs) or by a caller whose context ended first (it never
	// runs).
	claimed atomic.Bool
	done    chan struct{}
}

// writer owns the only connection that writes. Its goroutine runs all waiting operations in one
// transaction: one flush of the disk for up to maxBatch operations, which is the reason for the
// throughput. The queue needs no bound: every entry is a waiting caller.
type writer struct {
	cfg  Config
	gate *store.Gate
	born time.Time // for the age, which must not depend on the wall clock

	mu      sync.Mutex
	some    *sync.Cond // signals that something is queued, or the writer is closed
	first   []*op      // control operations
	then    []*op
	closed  bool
	ended   chan struct{}
	working atomic.Int64 // start of the current batch, as nanoseconds after born; 0 = idle

	conn    *conn // used only by the goroutine until it has ended; nil when it must be opened
	version int64 // version of the data at the start of the last transaction; also used only by the goroutine
}

// newWriter starts the goroutine; close ends it. c is its first connection.
func newWriter(ctx context.Context, c *conn, gate *store.Gate, cfg Config) *writer {
	w := &writer{cfg: cfg, conn: c, gate: gate, born: time.Now(), ended: make(chan struct{})} //nolint:forbidigo // monotonic, never stored
	w.some = sync.NewCond(&w.mu)
	go w.loop(ctx)
	return w
}

// result is an operation with a result. The writer's goroutine writes it, and the caller reads it
// after the commit; if the caller has already returned, the result is discarded.
func result[T any](ctx context.Context, w *writer, o *op, run func(ctx context.Context, t *tx) (T, error)) (T, error) {
	var none, out T
	o.run = func(ctx context.Context, t *tx) (err error) {
		out, err = run(ctx, t)
		return err
	}
	if err := w.submit(ctx, o); err != nil {
		return none, err
	}
	return out, nil
}

// ordinary operations wait in order; urgent ones do not wait for a burst of messages.
func ordinary(doing string) *op { return &op{doing: doing, done: make(chan struct{})} }

func urgent(doing string) *op { return &op{doing: doing, done: make(chan struct{}), urgent: true} }

// do queues an operation without a result.
func (w *writer) do(ctx context.Context, o *op, run work) error {
	o.run = run
	return w.submit(ctx, o)
}

// submit queues an operation and waits for its commit or for ctx. When ctx ends, the operation
// either never runs or runs as a whole.
func (w *writer) submit(ctx context.Context, o *op) error {
	if ctx.Err() != nil {
		return ended(ctx, o.doing)
	}
	if err := w.cfg.Before(ctx, o.doing); err != nil {
		return fmt.Errorf("%s: %w", o.doing, err)
	}
	if !w.queue(o) {
		return errClosed
	}
	select {
	case <-o.done:
		return o.err
	case <-ctx.Done():
	}
	o.claimed.CompareAndSwap(false, true) // if the caller wins, the writer skips it
	return ended(ctx, o.doing)
}

func (w *writer) queue(o *op) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return false
	}
	if o.urgent {
		w.first = append(w.first, o)
	} else {
		w.then = append(w.then, o)
	}
	w.some.Signal()
	return true
}

// close completes the queued operations and waits for the goroutine. It returns false when an
// earlier call has closed the writer.
func (w *writer) close() bool {
	w.mu.Lock()
	again := w.closed
	w.closed = true
	w.some.Signal()
	w.mu.Unlock()
	<-w.ended
	return !again
}

func (w *writer) age() time.Duration {
	since := w.working.Load()
	if since == 0 {
		return 0
	}
	return w.elapsed() - time.Duration(since)
}

func (w *writer) elapsed() time.Duration { return time.Since(w.born) } //nolint:forbidigo // monotonic, never stored

func (w *writer) loop(ctx context.Context) {
	defer close(w.ended)
	for {
		batch := w.next()
		if batch == nil {
			return
		}
		w.working.Store(int64(max(w.elapsed(), 1)))
		w.perform(ctx, batch)
		w.working.Store(0)
	}
}

// next waits for work and takes what is queued, control operations first; nil when the writer is
// closed and the queue empty. While few operations wait, ready goroutines run first, so that
// callers that got their results together are in one batch again.
func (w *writer) next() []*op {
	w.mu.Lock()
	defer w.mu.Unlock()
	for len(w.first)+len(w.then) == 0 {
		if w.closed {
			return nil
		}
		w.some.Wait()
	}
	if len(w.first)+len(w.then) < fewOps {
		w.mu.Unlock()
		runtime.Gosched()
		w.mu.Lock()
	}
	batch := make([]*op, 0, min(len(w.first)+len(w.then), maxBatch))
	batch, w.first = take(batch, w.first)
	batch, w.then = take(batch, w.then)
	return batch
}

// take moves operations from queue to batch until the batch is full. It releases a drained queue,
// so that a burst does not stay in memory.
func take(batch, queue []*op) (filled, rest []*op) {
	n := min(len(queue), maxBatch-len(batch))
	batch = append(batch, queue[:n]...)
	if n == len(queue) {
		return batch, nil
	}
	return batch, queue[n:]
}

// perform runs a batch and returns its result to every caller, after the commit and never before.
func (w *writer) perform(ctx context.Context, batch []*op) {
	live := batch[:0]
	for _, o := range batch {
		if o.claimed.CompareAndSwap(false, true) {
			live = append(live, o)
		}
	}
	if len(live) == 0 {
		return
	}
	if err := w.transaction(ctx, live); err != nil {
		w.cfg.Logger.ErrorContext(ctx, "store transaction lost", "operations", len(live), "err", err)
		fail(live, err)
	}
	for _, o := range live {
		close(o.done)
	}
}

// fail gives every operation the batch's error: none of them was committed, so all may be repeated.
func fail(batch []*op, err error) {
	err = explain("write to the database", err)
	if _, known := errors.AsType[*chat.Error](err); !known {
		err = &chat.Error{
			Code: chat.CodeStoreUnavailable, Retryable: true, RetryAfter: chat.ErrStoreUnavailable.RetryAfter, Cause: err,
			Message: "the database refused a transaction; nothing was stored",
		}
	}
	for _, o := range batch {
		o.err = err
	}
}

// transaction runs the operations between one BEGIN and one COMMIT. An error means that the whole
// batch was rolled back.
//
// The first try has no savepoints: under a savepoint SQLite copies every page that an operation
// touches, which was ten writes to a temporary file for each turn. Most failures occur before the
// first write (a fence, a full queue) and leave nothing to undo. When one has written, the batch is
// rolled back and runs again with a savepoint per operation, so that only the failed one is undone.
func (w *writer) transaction(ctx context.Context, batch []*op) error {
	t, err := w.begin(ctx)
	if err != nil {
		return err
	}
	if torn := w.applyAll(ctx, t, batch); torn != nil {
		w.rollback(ctx, torn)
		if len(batch) == 1 {
			return nil // the operation has its error, and no other one is in the batch
		}
		if t, err = w.begin(ctx); err != nil {
			return err
		}
		for _, o := range batch {
			if err := w.applyWithSavepoint(ctx, t, o); err != nil {
				return w.undo(ctx, err)
			}
		}
	}
	w.reach(boundaryApplied)
	if err := t.exec(`COMMIT`); err != nil {
		return w.undo(ctx, fmt.Errorf("commit: %w", err))
	}
	if t.changed {
		w.gate.Changed()
	}
	w.reach(boundaryCommitted)
	return nil
}

func (w *writer) reach(b boundary) {
	if w.cfg.at != nil {
		w.cfg.at(b)
	}
}

func (w *writer) begin(ctx context.Context) (*tx, error) {
	if w.conn == nil {
		conn, err := openWriting(w.cfg.Path, w.cfg.Unsynced)
		if err != nil {
			return nil, err
		}
		w.conn = conn
	}
	if err := w.conn.exec(`BEGIN IMMEDIATE`); err != nil {
		return nil, w.undo(ctx, fmt.Errorf("begin: %w", err))
	}
	version, err := w.conn.number(`PRAGMA data_version`)
	if err != nil {
		return nil, w.undo(ctx, fmt.Errorf("check for changes by other programs: %w", err))
	}
	if version != w.version { // another program has committed
		w.version = version
		w.gate.Changed()
	}
	w.reach(boundaryBegun)
	return &tx{conn: w.conn}, nil
}

// applyAll runs the operations, those of a kind together, and stops at the first that may have left
// changes: it failed after a write, or the engine failed and may have rolled back by itself. It
// returns the cause; nil when no operation did.
func (w *writer) applyAll(ctx context.Context, t *tx, batch []*op) (torn error) {
	for i, o := range batch {
		if list := kindred(batch[i:]); len(list) > 1 {
			if err := w.applyTogether(ctx, t, list); err != nil {
				return err
			}
		}
		if o.applied {
			continue
		}
		if w.apply(ctx, t, o); o.err != nil && t.torn(o.cause) {
			return o.cause
		}
	}
	return nil
}

// torn reports whether an operation that failed because of cause may have left changes.
func (t *tx) torn(cause error) bool { return t.wrote || primary(cause) != 0 }

// kindred returns the operations that may run together with the first one of the batch. They are at
// its beginning.
func kindred(batch []*op) []*op {
	if first := batch[0]; len(batch) == 1 || first.batched == nil || first.applied || first.alone {
		return nil
	}
	kind := batch[0].batched.Kind()
	names := make(map[string]bool, len(batch))
	var list []*op
	for _, o := range batch {
		if o.batched == nil || o.applied || o.alone || o.batched.Kind() != kind || names[o.batched.Name()] {
			continue
		}
		names[o.batched.Name()] = true
		list = append(list, o)
	}
	return list
}

// applyTogether runs operations of one kind. Those that it does not complete run alone afterwards.
// An error means that it may have left changes.
func (w *writer) applyTogether(ctx context.Context, t *tx, list []*op) error {
	ops := make([]sqlstore.Batched, len(list))
	for i, o := range list {
		o.alone = true
		ops[i] = o.batched
	}
	var done []bool
	t.now, t.wrote = w.cfg.Now().UnixMilli(), false
	err := w.guard(ctx, list[0].doing, func() (err error) {
		done, err = ops[0].RunAll(ctx, t, ops)
		return err
	})
	if err == nil {
		for i, o := range list {
			o.applied = done[i]
		}
		return nil
	}
	w.cfg.Logger.DebugContext(ctx, "operations that shared a transaction are tried by themselves", "op", list[0].doing, "err", err)
	if t.torn(err) {
		return err
	}
	return nil
}

// apply runs one operation and stores its result.
func (w *writer) apply(ctx context.Context, t *tx, o *op) {
	t.now, t.wrote = w.cfg.Now().UnixMilli(), false
	o.cause = w.guard(ctx, o.doing, func() error {
		if o.batched != nil {
			return o.batched.Run(ctx, t)
		}
		return o.run(ctx, t)
	})
	o.err = explain(o.doing, o.cause)
}

// applyWithSavepoint is apply under a savepoint. The operation's own failure is its result; the
// returned error means that the transaction is broken: some errors (disk full, input/output) make
// SQLite roll back everything by itself, which also removes the savepoint.
func (w *writer) applyWithSavepoint(ctx context.Context, t *tx, o *op) error {
	if err := t.exec(`SAVEPOINT op`); err != nil {
		return fmt.Errorf("set a savepoint: %w", err)
	}
	if w.apply(ctx, t, o); o.err != nil {
		if err := t.exec(`ROLLBACK TO op`); err != nil {
			return o.cause
		}
	}
	if err := t.exec(`RELEASE op`); err != nil {
		return fmt.Errorf("release a savepoint: %w", err)
	}
	return nil
}

// guard turns a panic of an operation into its error: the other operations of the batch belong to
// other callers.
func (w *writer) guard(ctx context.Context, doing string, run func() error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			w.cfg.Logger.ErrorContext(ctx, "store operation panicked", "operation", doing, "err", fmt.Sprint(r), "stack", string(debug.Stack()))
			err = fmt.Errorf("defect in a store operation: %v", r)
		}
	}()
	return run()
}

// undo is rollback for callers that return the cause.
func (w *writer) undo(ctx context.Context, err error) error {
	w.rollback(ctx, err)
	return err
}

// rollback ends a transaction because of err, and closes the connection when err makes its state
// uncertain.
func (w *writer) rollback(ctx context.Context, err error) {
	if w.conn.inTransaction() { // otherwise SQLite has rolled back by itself
		if failed := w.conn.exec(`ROLLBACK`); failed != nil {
			err = failed
		}
	}
	if !connectionLost(err) {
		return
	}
	if err := w.disconnect(); err != nil {
		w.cfg.Logger.ErrorContext(ctx, "store connection not closed", "err", err)
	}
}

// disconnect closes the connection; the next batch opens another.
func (w *writer) disconnect() error {
	c := w.conn
	w.conn = nil
	if c == nil {
		return nil
	}
	return c.close()
}
