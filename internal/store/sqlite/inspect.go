package sqlite

import (
	"context"
	"database/sql"
	"fmt"

	"laneway/internal/store"
)

var _ store.Inspector = (*Store)(nil)

// Violations runs one rule on a snapshot.
func (s *Store) Violations(ctx context.Context, rule store.Invariant, values map[string]any, limit int) (rows [][]string, err error) {
	err = s.view(ctx, "check the rule "+rule.ID, func(ctx context.Context, q querier) error {
		rows, err = violations(ctx, q, rule, values, limit)
		return err
	})
	return rows, err
}

func violations(ctx context.Context, q querier, rule store.Invariant, values map[string]any, limit int) ([][]string, error) {
	text, args := rule.Bind(values, func(n int, _ any) string { return fmt.Sprintf("?%d", n) })
	rows, err := q.query(ctx, text, args...)
	if err != nil {
		return nil, err
	}
	return textRows(rows, limit)
}

func textRows(rows *sql.Rows, limit int) ([][]string, error) {
	defer func() { _ = rows.Close() }()
	columns, err := rows.Columns()
	if err != nil {
		return nil, err
	}
	var out [][]string
	for len(out) < limit && rows.Next() {
		cells := make([]sql.NullString, len(columns))
		into := make([]any, len(columns))
		for i := range cells {
			into[i] = &cells[i]
		}
		if err := rows.Scan(into...); err != nil {
			return nil, err
		}
		line := make([]string, len(cells))
		for i, cell := range cells {
			line[i] = cell.String
		}
		out = append(out, line)
	}
	return out, rows.Err()
}
