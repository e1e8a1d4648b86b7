package sqlstore

import (
	"context"

	"laneway/internal/store"
)

// Ratios are the measured ratios between token counts and estimates.
type Ratios struct{ db Engine }

var _ store.TokenRatios = Ratios{}

// TokenRatios lists all ratios; see store.TokenRatios.
func (s Ratios) TokenRatios(ctx context.Context) ([]store.TokenRatio, error) {
	return list(ctx, s.db, query{
		"read how endpoints count tokens", `SELECT endpoint, model, permille FROM token_ratios ORDER BY endpoint, model`, nil,
	}, func(r Row) (t store.TokenRatio, err error) {
		err = r.Scan(&t.Endpoint, &t.Model, &t.Permille)
		return t, err
	})
}

const saveRatiosSQL = `{set endpoint text, model text, permille int}
	INSERT INTO token_ratios (endpoint, model, permille) SELECT v.endpoint, v.model, v.permille {from} WHERE true
	ON CONFLICT (endpoint, model) DO UPDATE SET permille = excluded.permille`

// SaveTokenRatios stores ratios; see store.TokenRatios.
func (s Ratios) SaveTokenRatios(ctx context.Context, list []store.TokenRatio) error {
	rows := make(Set, 0, len(list))
	for _, t := range list {
		rows = append(rows, []any{t.Endpoint, t.Model, t.Permille})
	}
	return s.db.Update(ctx, "keep how endpoints count tokens", func(ctx context.Context, tx Tx) error {
		_, err := tx.Exec(ctx, saveRatiosSQL, rows)
		return err
	})
}
