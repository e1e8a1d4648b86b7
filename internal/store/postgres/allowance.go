package postgres

import (
	"context"
	"math"
	"time"

	"laneway/internal/chat"
	"laneway/internal/store"
)

var _ store.Allowances = (*Store)(nil)

// allowanceSQL refills the allowance for the elapsed time, and takes whole calls from it. A clock that was set back refills nothing. $1 clock, $2 name, $3 how
// many, $4 calls per minute.
const allowanceSQL = `
INSERT INTO allowances AS a (name, tokens, got, at) VALUES ($2, $4::bigint - LEAST($3::bigint, $4::bigint), LEAST($3::bigint, $4::bigint), ` + nowSQL + `)
ON CONFLICT (name) DO UPDATE SET
	got    = LEAST($3::bigint, floor(` + availableSQL + `)),
	tokens = ` + availableSQL + ` - LEAST($3::bigint, floor(` + availableSQL + `)),
	at     = GREATEST(a.at, excluded.at)
RETURNING got, tokens`

const availableSQL = `LEAST($4::bigint, a.tokens + GREATEST(excluded.at - a.at, 0) * $4::bigint / 60000.0)`

// TakeAllowance takes calls from an allowance, see store.Allowances.
func (s *Store) TakeAllowance(ctx context.Context, name string, n, perMinute int) (got int, wait time.Duration, err error) {
	var left float64
	err = s.do(ctx, "taking an allowance", func(ctx context.Context) error {
		return s.pool.QueryRow(ctx, allowanceSQL, s.clock(), chat.CleanText(name), n, perMinute).Scan(&got, &left)
	})
	if err != nil || got > 0 {
		return got, 0, err
	}
	return 0, time.Duration(math.Ceil((1-left)*60_000/float64(perMinute))) * time.Millisecond, nil
}
