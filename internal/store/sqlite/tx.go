package sqlite

import (
	"context"
	"errors"

	"laneway/internal/store/sqlstore"
)

// tx is a transaction from the view of one operation.
type tx struct {
	*conn
	now   int64 // the store's clock at this operation, milliseconds
	wrote bool  // the operation may have changed something
	// changed: an operation of the transaction has changed rows that a poll may look at.
	changed bool
}

var _ sqlstore.Tx = (*tx)(nil)

// Now implements sqlstore.Tx.
func (t *tx) Now(context.Context) (int64, error) { return t.now, nil }

// Repeated implements sqlstore.Tx: a failed transaction was never committed.
func (t *tx) Repeated() bool { return false }

// PerEngine implements sqlstore.Tx.
func (t *tx) PerEngine(_, sqlite string) string { return sqlite }

// Exec implements sqlstore.Tx.
func (t *tx) Exec(_ context.Context, text string, args ...any) (int64, error) {
	return t.run(text, nil, args)
}

// Query implements sqlstore.Tx.
func (t *tx) Query(_ context.Context, text string, scan func(sqlstore.Row) error, args ...any) error {
	if _, err := t.run(text, scan, args); !errors.Is(err, sqlstore.ErrEnough) {
		return err
	}
	return nil
}

// Later implements sqlstore.Tx.
func (t *tx) Later(_ context.Context, text string, scan func(sqlstore.Row) error, args ...any) error {
	_, err := t.run(text, scan, args)
	return err
}

// run executes a statement, once for each row of its set, and returns how many rows it has changed.
func (t *tx) run(text string, scan func(sqlstore.Row) error, args []any) (changed int64, err error) {
	s := t.dialect.Of(text)
	t.wrote = t.wrote || s.Writes
	plain, rows, err := s.Split(args)
	if err != nil {
		return 0, err
	}
	stmt, err := t.prepare(s.SQL, plain)
	if err != nil {
		return 0, err
	}
	if s.Now > 0 {
		stmt.BindInt64(s.Now, t.now)
	}
	if !s.HasSet() {
		rows = sqlstore.Set{nil}
	}
	for _, row := range rows {
		if err = s.Parameters(row, func(n int, v any) error { return bind(stmt, n, v) }); err == nil {
			err = t.step(stmt, scan)
		}
		if s.Writes {
			changed += int64(t.db.Changes()) // also when scan ends the rows of a RETURNING early
		}
		if err != nil {
			break
		}
	}
	t.changed = t.changed || changed > 0
	return changed, t.finish(stmt, err)
}
