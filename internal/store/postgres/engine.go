package postgres

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"laneway/internal/store/sqlstore"
)

// engine runs the operations of sqlstore: a View on any connection of the pool, an Update in a transaction.
type engine struct{ *Store }

// View implements sqlstore.Engine.
func (e engine) View(ctx context.Context, doing string, see func(ctx context.Context, tx sqlstore.Tx) error) error {
	return e.do(ctx, doing, func(ctx context.Context) error { return see(ctx, &engineTx{Store: e.Store, to: e.pool}) })
}

// Update implements sqlstore.Engine.
func (e engine) Update(ctx context.Context, doing string, change func(ctx context.Context, tx sqlstore.Tx) error) error {
	return e.do(ctx, doing, func(ctx context.Context) error {
		return pgx.BeginFunc(ctx, e.pool, func(tx pgx.Tx) error { return change(ctx, &engineTx{Store: e.Store, to: tx}) })
	})
}

// Control implements sqlstore.Engine: each line has a connection of its own.
func (e engine) Control(ctx context.Context, line sqlstore.Line, doing string, change func(ctx context.Context, tx sqlstore.Tx) error) error {
	conn := e.ctrl
	if line == sqlstore.Beat {
		conn = e.beat
	}
	return e.control(ctx, doing, conn, func(conn *pgx.Conn) error {
		return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error { return change(ctx, &engineTx{Store: e.Store, to: tx}) })
	})
}

// engineTx runs statements in a transaction, or each in its own.
type engineTx struct {
	*Store

	to interface {
		Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
		Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	}
}

// Now implements sqlstore.Tx. The clock of a transaction is the time at which it began.
func (t *engineTx) Now(ctx context.Context) (now int64, err error) {
	err = t.Query(ctx, `SELECT {now}`, func(r sqlstore.Row) error { return r.Scan(&now) })
	return now, err
}

// PerEngine implements sqlstore.Tx.
func (t *engineTx) PerEngine(postgres, _ string) string { return postgres }

// statement is a text with its arguments.
func (t *engineTx) statement(text string, args []any) (string, []any, error) {
	s := t.dialect.Of(text)
	plain, rows, err := s.Split(args)
	if err != nil {
		return "", nil, err
	}
	all := make([]any, 0, len(plain)+2)
	for _, v := range plain {
		switch v := v.(type) {
		case string:
			all = append(all, clean(v))
		case []string:
			all = append(all, cleanAll(v))
		default:
			all = append(all, v)
		}
	}
	if s.Now > 0 {
		all = append(all, t.clock())
	}
	if s.HasSet() {
		list, err := s.JSON(cleanSet(rows))
		if err != nil {
			return "", nil, err
		}
		all = append(all, list)
	}
	return s.SQL, all, nil
}

// Exec implements sqlstore.Tx.
func (t *engineTx) Exec(ctx context.Context, text string, args ...any) (int64, error) {
	sql, all, err := t.statement(text, args)
	if err != nil {
		return 0, err
	}
	tag, err := t.to.Exec(ctx, sql, all...)
	return tag.RowsAffected(), err
}

// Query implements sqlstore.Tx.
func (t *engineTx) Query(ctx context.Context, text string, scan func(sqlstore.Row) error, args ...any) error {
	sql, all, err := t.statement(text, args)
	if err != nil {
		return err
	}
	rows, err := t.to.Query(ctx, sql, all...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := scan(rows); err != nil {
			if errors.Is(err, sqlstore.ErrEnough) {
				break
			}
			return err
		}
	}
	rows.Close() // which reads the end of the statement, and its error
	return rows.Err()
}

// shared is a transaction as operations of sqlstore use it.
func (s *Store) shared(tx pgx.Tx) sqlstore.Tx { return &engineTx{Store: s, to: tx} }

func cleanAll(list []string) []string {
	out := make([]string, len(list))
	for i, v := range list {
		out[i] = clean(v)
	}
	return out
}

func cleanSet(rows sqlstore.Set) sqlstore.Set {
	out := make(sqlstore.Set, len(rows))
	for i, row := range rows {
		out[i] = append([]any{}, row...)
		for c, v := range row {
			if text, ok := v.(string); ok {
				out[i][c] = clean(text)
			}
		}
	}
	return out
}
