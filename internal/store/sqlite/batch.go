package sqlite

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"

	"laneway/internal/chat"
	"laneway/internal/store/sqlstore"
)

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

// transaction runs the operations between one BEGIN and one COMMIT. An error means that the whole batch was rolled back.
//
// The first try has no savepoints: under a savepoint SQLite copies every page that an operation touches, which was ten writes to a temporary file for each
// turn. Most failures occur before the first write (a fence, a full queue) and leave nothing to undo. When one has written, the batch is rolled back and runs
// again with a savepoint per operation, so that only the failed one is undone.
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

// applyAll runs the operations, those of a kind together, and stops at the first that may have left changes: it failed after a write, or the engine failed and
// may have rolled back by itself. It returns the cause; nil when no operation did.
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

// kindred returns the operations that may run together with the first one of the batch. They are at its beginning.
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

// applyTogether runs operations of one kind. Those that it does not complete run alone afterwards. An error means that it may have left changes.
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

// applyWithSavepoint is apply under a savepoint. The operation's own failure is its result; the returned error means that the transaction is broken: some
// errors (disk full, input/output) make SQLite roll back everything by itself, which also removes the savepoint.
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

// guard turns a panic of an operation into its error: the other operations of the batch belong to other callers.
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

// rollback ends a transaction because of err, and closes the connection when err makes its state uncertain.
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
