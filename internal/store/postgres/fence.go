package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// lockSQL locks the row of a session, with any owner.
const lockSQL = `SELECT 1 FROM sessions WHERE key = $1 FOR UPDATE`

// sender is a pool or one connection.
type sender interface {
	SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults
}

// send runs the statements of a batch as one transaction in one round trip; the callbacks that were queued with them read the rows. The
// first error undoes all of them.
func send(ctx context.Context, to sender, b *pgx.Batch) error {
	return to.SendBatch(ctx, b).Close()
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
