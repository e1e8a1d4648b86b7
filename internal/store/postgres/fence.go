package postgres

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"laneway/internal/store"
)

// fenceSQL locks the session's row if the claim holds, and divides by zero if it does not. The lock orders this
// operation after whatever changed the session before; the statements behind it see that.
const fenceSQL = `
WITH fence AS (
	SELECT 1 FROM sessions s
	WHERE s.key = $2 AND s.owner = $3 AND s.epoch = $4
	  AND EXISTS (SELECT 1 FROM nodes n WHERE n.id = $3 AND n.lease_until > ` + nowSQL + `)
	FOR UPDATE OF s
)
SELECT 1 / count(*) FROM fence`

// aliveSQL divides by zero when the node's lease is over.
const aliveSQL = `SELECT 1 / count(*) FROM nodes WHERE id = $2 AND lease_until > ` + nowSQL

// lockSQL locks the row of a session, whoever owns it.
const lockSQL = `SELECT 1 FROM sessions WHERE key = $1 FOR UPDATE`

// sender is a pool or one connection.
type sender interface {
	SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults
}

func (s *Store) fence(b *pgx.Batch, c store.Claim) {
	b.Queue(fenceSQL, s.clock(), c.Session.String(), c.Node, c.Epoch)
}

// send runs the statements of a batch as one transaction and one round trip; what each of them does with its rows was said
// when it was queued. The first error undoes all of them.
func send(ctx context.Context, to sender, b *pgx.Batch) error {
	return to.SendBatch(ctx, b).Close()
}

// readThenWrite is a transaction of two round trips: begin travels with what is read, commit with what is written.
func (s *Store) readThenWrite(ctx context.Context, read func(*pgx.Batch), write func(*pgx.Batch) error) error {
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release() // which closes a connection that is left within a transaction
	b := &pgx.Batch{}
	b.Queue("BEGIN")
	read(b)
	err = send(ctx, conn, b)
	if err == nil {
		b = &pgx.Batch{}
		if err = write(b); err == nil {
			b.Queue("COMMIT")
			err = send(ctx, conn, b)
		}
	}
	if err == nil || conn.Conn().IsClosed() {
		return err
	}
	if _, undo := conn.Exec(ctx, "ROLLBACK"); undo != nil && !repeatable(undo) {
		return errors.Join(err, undo)
	}
	return err
}

// isFence reports whether err is the division by zero that undoes an operation.
func isFence(err error) bool {
	var pgErr *pgconn.PgError
	return errors.As(err, &pgErr) && pgErr.Code == codeFence
}

// isUnique reports whether err is a second row where only one may be.
func isUnique(err error) bool {
	var pgErr *pgconn.PgError
	return errors.As(err, &pgErr) && pgErr.Code == codeUnique
}

// collect appends the rows of a queued statement to list.
func collect[T any](list *[]T, scan pgx.RowToFunc[T]) func(pgx.Rows) error {
	return func(rows pgx.Rows) error {
		found, err := pgx.AppendRows(*list, rows, scan)
		if err == nil {
			*list = found
		}
		return err
	}
}
