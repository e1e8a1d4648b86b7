package postgres

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"laneway/internal/store"
)

var _ store.Inspector = (*Store)(nil)

// Violations runs one rule in a read-only transaction.
func (s *Store) Violations(ctx context.Context, rule store.Invariant, values map[string]any, limit int) ([][]string, error) {
	text, args := rule.Bind(values, parameter)
	var out [][]string
	err := s.do(ctx, "checking the rule "+rule.ID, func(ctx context.Context) error {
		return pgx.BeginTxFunc(ctx, s.pool, pgx.TxOptions{AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
			rows, err := tx.Query(ctx, text, args...)
			if err != nil {
				return err
			}
			out, err = textRows(rows, limit)
			return err
		})
	})
	return out, err
}

// parameter gives a value its type, because some rules compare values only with each other.
func parameter(n int, value any) string {
	if _, text := value.(string); text {
		return fmt.Sprintf("$%d::text", n)
	}
	return fmt.Sprintf("$%d::bigint", n)
}

func textRows(rows pgx.Rows, limit int) ([][]string, error) {
	defer rows.Close()
	var out [][]string
	for len(out) < limit && rows.Next() {
		values, err := rows.Values()
		if err != nil {
			return nil, err
		}
		line := make([]string, len(values))
		for i, v := range values {
			line[i] = fmt.Sprint(v)
		}
		out = append(out, line)
	}
	rows.Close()
	return out, rows.Err()
}
