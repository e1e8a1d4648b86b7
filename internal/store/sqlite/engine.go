package sqlite

import (
	"context"
	"database/sql"
	"errors"

	"laneway/internal/store"
	"laneway/internal/store/sqlstore"
)

// engine runs the operations of sqlstore: a View on one of the readers, an Update in the writer's transaction.
type engine struct{ *Store }

// View implements sqlstore.Engine.
func (e engine) View(ctx context.Context, doing string, see func(ctx context.Context, tx sqlstore.Tx) error) error {
	return e.view(ctx, doing, func(ctx context.Context, q querier) error {
		return see(ctx, &engineTx{session: q.(*session), now: e.now().UnixMilli()}) //nolint:forcetypeassert,errcheck // the readers give sessions
	})
}

// Snapshot implements sqlstore.Engine.
func (e engine) Snapshot(ctx context.Context, doing string, see func(ctx context.Context, tx sqlstore.Tx) error) error {
	return e.View(ctx, doing, see)
}

// Update implements sqlstore.Engine.
func (e engine) Update(ctx context.Context, doing string, change func(ctx context.Context, tx sqlstore.Tx) error) error {
	return e.write.do(ctx, ordinary(doing), func(ctx context.Context, t *tx) error {
		return change(ctx, t.shared())
	})
}

// Control implements sqlstore.Engine: the operation goes to the front of the writer's queue.
func (e engine) Control(ctx context.Context, line sqlstore.Line, doing string, change func(ctx context.Context, tx sqlstore.Tx) error) error {
	return e.write.do(ctx, urgent(doing), func(ctx context.Context, t *tx) error {
		changed := t.changed
		err := change(ctx, t.shared())
		if line == sqlstore.Beat {
			t.changed = changed // a longer lease makes nothing due
		}
		return err
	})
}

// Turn implements sqlstore.Engine.
func (e engine) Turn(ctx context.Context, doing string, _ sqlstore.Share, change func(ctx context.Context, tx sqlstore.Tx) error) error {
	return e.Update(ctx, doing, change)
}

// Poll implements sqlstore.Engine.
func (e engine) Poll(ctx context.Context, p store.Poll, see func(ctx context.Context, tx sqlstore.Tx) (sqlstore.Rest, error)) (*sqlstore.Rested, error) {
	if next, resting, err := e.resting(ctx, p); resting || err != nil {
		return &sqlstore.Rested{Now: instant(e.now().UnixMilli()), Next: next}, err
	}
	changes := e.gate.Changes()
	f, err := result(ctx, e.write, ordinary(p.Kind), func(ctx context.Context, t *tx) (f rest, err error) {
		r, err := see(ctx, t.shared())
		f.idle, f.now = r.Idle, t.now
		if err == nil && p.Kind == pollSweep {
			more, shrink := t.shrink(ctx)
			f.idle, err = f.idle && !more, shrink
		}
		if err == nil && f.idle && r.Next != nil {
			f.next, err = r.Next(ctx, t.shared())
		}
		return f, err
	})
	if err == nil && f.idle {
		e.gate.Rest(p, changes, instant(f.now), instant(f.next))
	}
	return nil, err
}

// Groups implements sqlstore.Engine: the writer takes everything that waits into one transaction.
func (engine) Groups() bool { return false }

// engineRow adds Values to a row of database/sql.
type engineRow struct{ *sql.Rows }

// Values implements sqlstore.Row.
func (r engineRow) Values() ([]any, error) {
	columns, err := r.Columns()
	if err != nil {
		return nil, err
	}
	values, into := make([]any, len(columns)), make([]any, len(columns))
	for i := range values {
		into[i] = &values[i]
	}
	return values, r.Scan(into...)
}

// packedRow is a row whose only column has all of them.
type packedRow struct{ engineRow }

// Scan implements sqlstore.Row.
func (r packedRow) Scan(dest ...any) error { return packed{r.Rows}.Scan(dest...) }

// engineTx runs statements on a connection.
type engineTx struct {
	session *session
	now     int64
	wrote   *bool // nil = a View
	changed *bool // as wrote; of the transaction
	args    []any
}

// shared is the transaction as operations of sqlstore use it.
func (t *tx) shared() *engineTx {
	return &engineTx{session: t.session, now: t.now, wrote: &t.wrote, changed: &t.changed}
}

// Now implements sqlstore.Tx.
func (t *engineTx) Now(context.Context) (int64, error) { return t.now, nil }

// Repeated implements sqlstore.Tx: what fails was not committed.
func (t *engineTx) Repeated() bool { return false }

// Later implements sqlstore.Tx.
func (t *engineTx) Later(ctx context.Context, text string, scan func(sqlstore.Row) error, args ...any) error {
	if scan != nil {
		return t.Query(ctx, text, scan, args...)
	}
	_, err := t.Exec(ctx, text, args...)
	return err
}

// PerEngine implements sqlstore.Tx.
func (t *engineTx) PerEngine(_, sqlite string) string { return sqlite }

// each calls run with the arguments of each execution of a statement.
func (t *engineTx) each(text string, args []any, run func(s *sqlstore.Statement, args []any) error) error {
	s := t.session.dialect.Of(text)
	if t.wrote != nil && s.Writes {
		*t.wrote = true
	}
	plain, rows, err := s.Split(args)
	if err != nil {
		return err
	}
	t.args = t.args[:0]
	for _, v := range plain {
		var err error
		switch list := v.(type) {
		case []string:
			v, err = encode(append([]string{}, list...))
		case []int64:
			v, err = encode(append([]int64{}, list...))
		}
		if err != nil {
			return err
		}
		t.args = append(t.args, v)
	}
	if s.Now > 0 {
		t.args = append(t.args, t.now)
	}
	if !s.HasSet() {
		return run(s, t.args)
	}
	for _, row := range rows {
		all, err := s.Parameters(t.args, row)
		if err != nil {
			return err
		}
		if err := run(s, all); err != nil {
			return err
		}
	}
	return nil
}

// Exec implements sqlstore.Tx.
func (t *engineTx) Exec(ctx context.Context, text string, args ...any) (changed int64, err error) {
	err = t.each(text, args, func(s *sqlstore.Statement, args []any) error {
		n, err := t.session.exec(ctx, s.SQL, args...)
		if changed += n; n > 0 && t.changed != nil {
			*t.changed = true
		}
		return err
	})
	return changed, err
}

// Query implements sqlstore.Tx.
func (t *engineTx) Query(ctx context.Context, text string, scan func(sqlstore.Row) error, args ...any) error {
	err := t.each(text, args, func(s *sqlstore.Statement, args []any) (err error) {
		if t.changed != nil && s.Writes {
			*t.changed = true
		}
		rows, err := t.session.query(ctx, s.SQL, args...)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, rows.Close()) }()
		var row sqlstore.Row = engineRow{rows}
		if s.Packed {
			row = packedRow{engineRow{rows}}
		}
		for rows.Next() {
			if err := scan(row); err != nil {
				return err
			}
		}
		return rows.Err()
	})
	if errors.Is(err, sqlstore.ErrEnough) {
		return nil
	}
	return err
}
