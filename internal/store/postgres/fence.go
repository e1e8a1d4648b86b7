package postgres

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"laneway/internal/store"
)

// fenceSQL locks the session's row if the claim holds, and divides by zero if it does not. The lock orders this operation after every
// earlier change of the session; the following statements see those.
const (
	fenceSQL = fenceHead + fenceTail
	// fenceFreeSQL also divides by zero when another transaction has locked the row: it does not wait.
	fenceFreeSQL = fenceHead + ` SKIP LOCKED` + fenceTail

	fenceHead = `
WITH fence AS (
	SELECT 1 FROM sessions s
	WHERE s.key = $2 AND s.owner = $3 AND s.epoch = $4
	  AND EXISTS (SELECT 1 FROM nodes n WHERE n.id = $3 AND n.lease_until > ` + nowSQL + `)
	FOR UPDATE OF s`

	fenceTail = `
)
SELECT 1 / count(*) FROM fence`
)

// holdSQL is the fence of several claims at once. It locks the sessions whose claim holds and skips those that another transaction has
// locked, so a group never waits for a session. It leaves the numbers of the proved claims in a setting of the transaction, where the next
// statement reads them with heldSQL. Parameters: $1 clock, $2 sessions, $3 nodes, $4 epochs.
const holdSQL = `
WITH c AS MATERIALIZED (
	SELECT i, ($2::text[])[i] AS key, ($3::text[])[i] AS node, ($4::bigint[])[i] AS epoch FROM ` + numbersSQL + `
), held AS (
	SELECT c.i FROM c JOIN sessions s ON s.key = c.key AND s.owner = c.node AND s.epoch = c.epoch
	WHERE EXISTS (SELECT 1 FROM nodes n WHERE n.id = c.node AND n.lease_until > ` + nowSQL + `)
	FOR UPDATE OF s SKIP LOCKED
)
SELECT set_config('laneway.held', COALESCE(string_agg(i::text, ','), ''), true) FROM held`

// numbersSQL are the numbers i of a statement's arrays, of which $2 is one. Its bounds exclude nothing. They let the planner expect a
// single row, and so begin with the arrays and look the rows up one by one; else it may read the tables and search the arrays for each row.
const numbersSQL = `(SELECT ordinality::int AS i FROM unnest($2::text[]) WITH ORDINALITY WHERE ordinality BETWEEN 1 AND 1000000) numbers`

// heldSQL are the numbers of the claims that holdSQL has proved.
const heldSQL = `(SELECT string_to_array(current_setting('laneway.held'), ','))::int[]`

// aliveSQL divides by zero when the node's lease has ended.
const aliveSQL = `SELECT 1 / count(*) FROM nodes WHERE id = $2 AND lease_until > ` + nowSQL

// lockSQL locks the row of a session, with any owner.
const lockSQL = `SELECT 1 FROM sessions WHERE key = $1 FOR UPDATE`

// sender is a pool or one connection.
type sender interface {
	SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults
}

func (s *Store) fence(b *pgx.Batch, c store.Claim) {
	b.Queue(fenceSQL, s.clock(), c.Session.String(), c.Node, c.Epoch)
}

// hold queues the fence of a group, which waits for no lock. For several claims it leaves the proved ones to heldSQL; for a single one it
// is fenceFreeSQL.
func (s *Store) hold(b *pgx.Batch, list []store.Claim) {
	if len(list) == 1 {
		c := list[0]
		b.Queue(fenceFreeSQL, s.clock(), c.Session.String(), c.Node, c.Epoch)
		return
	}
	s.holdAll(b, list)
}

// holdAll leaves the proved claims to heldSQL, one or many.
func (s *Store) holdAll(b *pgx.Batch, list []store.Claim) {
	b.Queue(holdSQL, s.clock(), column(list, func(c store.Claim) string { return c.Session.String() }),
		column(list, func(c store.Claim) string { return c.Node }), column(list, func(c store.Claim) int64 { return c.Epoch }))
}

// send runs the statements of a batch as one transaction in one round trip; the callbacks that were queued with them read the rows. The
// first error undoes all of them.
func send(ctx context.Context, to sender, b *pgx.Batch) error {
	return to.SendBatch(ctx, b).Close()
}

// readThenWrite is a transaction of two round trips: BEGIN travels with the reads, COMMIT with the writes.
func (s *Store) readThenWrite(ctx context.Context, read, write func(*pgx.Batch) error) error {
	conn, err := s.turns.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release() // which closes a connection that is still within a transaction
	b := &pgx.Batch{}
	b.Queue("BEGIN")
	if err = read(b); err == nil {
		err = send(ctx, conn, b)
	}
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
