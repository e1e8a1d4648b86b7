package sqlstore

import (
	"context"
	"fmt"

	"laneway/internal/store"
)

// Inspection checks the invariants of the tables.
type Inspection struct{ db Engine }

// Violations runs one rule and returns at most limit rows that violate it, as strings.
func (s Inspection) Violations(ctx context.Context, rule store.Invariant, values map[string]any, limit int) (broken [][]string, err error) {
	// The type of each value is given, because some rules compare values only with each other.
	text, args := rule.Bind(values, func(n int, value any) string {
		if _, ok := value.(string); ok {
			return fmt.Sprintf("CAST($%d AS text)", n)
		}
		return fmt.Sprintf("CAST($%d AS bigint)", n)
	})
	err = s.db.View(ctx, "check the rule "+rule.ID, func(ctx context.Context, tx Tx) error {
		broken = nil
		if limit <= 0 {
			return nil
		}
		return tx.Query(ctx, text, func(r Row) error {
			values, err := r.Values()
			if err != nil {
				return err
			}
			line := make([]string, len(values))
			for i, v := range values {
				line[i] = fmt.Sprint(v)
			}
			if broken = append(broken, line); len(broken) >= limit {
				return ErrEnough
			}
			return nil
		}, args...)
	})
	return broken, err
}
