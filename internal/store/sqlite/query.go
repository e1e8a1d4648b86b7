package sqlite

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"

	"laneway/internal/store/sqlstore"
)

// querier is what the writer's transaction and a reader's snapshot have in common.
type querier interface {
	query(ctx context.Context, text string, args ...any) (*sql.Rows, error)
	one(ctx context.Context, text string, args ...any) *sql.Row
}

// session is one connection with its prepared statements. Compiling a statement takes several times as long as running it. The
// texts are constants of this package, so the map is bounded. A limit that is a parameter is written LIMIT +?: with LIMIT ? the planner looks at the
// value, and SQLite compiles the statement again after each binding.
type session struct {
	conn  *sql.Conn
	stmts map[string]*sql.Stmt
	// dialect keeps what the texts of sqlstore are here, as stmts keeps what is prepared.
	dialect *sqlstore.Dialect
}

func connect(ctx context.Context, db *sql.DB) (*session, error) {
	conn, err := db.Conn(ctx)
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	return &session{conn: conn, stmts: map[string]*sql.Stmt{}, dialect: sqlstore.SQLite()}, nil
}

func (s *session) prepared(ctx context.Context, text string) (*sql.Stmt, error) {
	if stmt, ok := s.stmts[text]; ok {
		return stmt, nil
	}
	stmt, err := s.conn.PrepareContext(ctx, text)
	if err != nil {
		return nil, fmt.Errorf("prepare %q: %w", text, err)
	}
	s.stmts[text] = stmt
	return stmt, nil
}

// exec runs a statement and returns how many rows it changed.
func (s *session) exec(ctx context.Context, text string, args ...any) (int64, error) {
	stmt, err := s.prepared(ctx, text) //nolint:sqlclosecheck // kept for the next use; discard closes it
	if err != nil {
		return 0, err
	}
	result, err := stmt.ExecContext(ctx, args...)
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

func (s *session) query(ctx context.Context, text string, args ...any) (*sql.Rows, error) {
	stmt, err := s.prepared(ctx, text) //nolint:sqlclosecheck // kept for the next use; discard closes it
	if err != nil {
		return nil, err
	}
	return stmt.QueryContext(ctx, args...)
}

func (s *session) one(ctx context.Context, text string, args ...any) *sql.Row {
	stmt, err := s.prepared(ctx, text) //nolint:sqlclosecheck // kept for the next use; discard closes it
	if err != nil {
		// The row carries the error to Scan: asking the connection for the same text again returns the same error.
		return s.conn.QueryRowContext(ctx, text, args...)
	}
	return stmt.QueryRowContext(ctx, args...)
}

// discard closes the connection itself. ErrBadConn makes database/sql drop it from the pool.
func (s *session) discard() {
	for _, stmt := range s.stmts {
		_ = stmt.Close()
	}
	_ = s.conn.Raw(func(any) error { return driver.ErrBadConn }) //nolint:errcheck // it returns what we hand in
	_ = s.conn.Close()
}

// tx is the writer's transaction as one operation sees it.
type tx struct {
	*session
	now   int64 // the store's clock at this operation, milliseconds
	wrote bool  // the operation may have changed something
	// changed: an operation of the transaction has changed rows that a poll may look at.
	changed bool
}

// exec runs a statement and returns how many rows it changed.
func (t *tx) exec(ctx context.Context, text string, args ...any) (int64, error) {
	t.wrote = true
	n, err := t.session.exec(ctx, text, args...)
	t.changed = t.changed || n > 0
	return n, err
}
