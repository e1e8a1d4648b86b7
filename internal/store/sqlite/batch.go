package sqlite

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"

	"laneway/internal/chat"
)

// perform runs a batch and tells every caller its end. Nobody learns anything before the commit.
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
		w.log.ErrorContext(ctx, "store transaction lost", "operations", len(live), "err", err)
		fail(live, err)
	}
	for _, o := range live {
		close(o.done)
	}
}

// fail gives every operation the batch's end: none of them happened, so all may be tried again.
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

// transaction runs the operations between one BEGIN and one COMMIT, each under a savepoint of its own, so that a refused one takes only
// itself back. An error means that the whole batch is undone.
func (w *writer) transaction(ctx context.Context, batch []*op) error {
	t, err := w.begin(ctx)
	if err != nil {
		return err
	}
	w.reach(boundaryBegun)
	for _, o := range batch {
		if err := w.apply(ctx, t, o); err != nil {
			return w.undo(ctx, err)
		}
	}
	w.reach(boundaryApplied)
	if _, err := t.exec(ctx, "COMMIT"); err != nil {
		return w.undo(ctx, fmt.Errorf("commit: %w", err))
	}
	w.reach(boundaryCommitted)
	return nil
}

func (w *writer) reach(b boundary) {
	if w.at != nil {
		w.at(b)
	}
}

func (w *writer) begin(ctx context.Context) (*tx, error) {
	if w.conn == nil {
		conn, err := connect(ctx, w.db)
		if err != nil {
			return nil, err
		}
		w.conn = conn
	}
	t := &tx{session: w.conn}
	if _, err := t.exec(ctx, "BEGIN IMMEDIATE"); err != nil {
		return nil, w.undo(ctx, fmt.Errorf("begin: %w", err))
	}
	return t, nil
}

// apply runs one operation. Its own failure is the operation's result; the returned error means that the transaction is broken: some
// errors (disk full, input/output) make SQLite roll back everything by itself, and then the savepoint is gone.
func (w *writer) apply(ctx context.Context, t *tx, o *op) error {
	if _, err := t.exec(ctx, "SAVEPOINT op"); err != nil {
		return fmt.Errorf("set a savepoint: %w", err)
	}
	t.now = w.now().UnixMilli()
	if o.err = explain(o.doing, w.guard(ctx, t, o)); o.err != nil {
		if _, err := t.exec(ctx, "ROLLBACK TO op"); err != nil {
			return o.err
		}
	}
	if _, err := t.exec(ctx, "RELEASE op"); err != nil {
		return fmt.Errorf("release a savepoint: %w", err)
	}
	return nil
}

// guard turns a panic of one operation into its error: the others in the batch are other people's messages.
func (w *writer) guard(ctx context.Context, t *tx, o *op) (err error) {
	defer func() {
		if r := recover(); r != nil {
			w.log.ErrorContext(ctx, "store operation panicked", "operation", o.doing, "err", fmt.Sprint(r), "stack", string(debug.Stack()))
			err = fmt.Errorf("defect in a store operation: %v", r)
		}
	}()
	return o.run(ctx, t)
}

// undo ends a broken transaction and gives the connection up when it is not to be trusted. It returns err.
func (w *writer) undo(ctx context.Context, err error) error {
	t := &tx{session: w.conn}
	if _, rollback := t.exec(ctx, "ROLLBACK"); rollback != nil {
		// Usual when SQLite has rolled back by itself; a connection that really hangs in a transaction fails at the next BEGIN.
		w.log.DebugContext(ctx, "store rollback", "err", rollback)
	}
	if gone(err) {
		w.disconnect()
	}
	return err
}

// disconnect gives the connection back to be closed; the next batch opens another.
func (w *writer) disconnect() {
	if w.conn == nil {
		return
	}
	w.conn.discard()
	w.conn = nil
}
