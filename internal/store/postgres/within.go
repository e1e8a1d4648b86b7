package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// within runs one transaction; it may run again after a conflict.
func (s *Store) within(ctx context.Context, doing string, run func(ctx context.Context, tx pgx.Tx) error) error {
	return s.do(ctx, doing, func(ctx context.Context) error {
		return pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error { return run(ctx, tx) })
	})
}
