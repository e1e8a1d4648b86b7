package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"

	"laneway/internal/store"
)

var _ store.Holds = (*Store)(nil)

// Held is what waits for the release, see store.Holds.
func (s *Store) Held(ctx context.Context) (w store.HeldWork, err error) {
	err = s.do(ctx, "reading what is held", func(ctx context.Context) error {
		var (
			now  int64
			jobs []storedJob
		)
		w = store.HeldWork{}
		b := &pgx.Batch{}
		b.Queue(readClockSQL, s.clock()).QueryRow(func(row pgx.Row) error { return row.Scan(&now) })
		b.Queue(store.HeldWorkSQL).QueryRow(func(row pgx.Row) error { return row.Scan(&w.Outgoing, &w.Unfinished) })
		b.Queue(`SELECT `+jobColumns+`, 0, NULL::bigint FROM cron_jobs`+dueWhere+` ORDER BY next_run_at, id`, s.clock()).Query(collect(&jobs, scanJob))
		if err := send(ctx, s.pool, b); err != nil {
			return err
		}
		w.Now = fromMillis(now)
		for i := range jobs {
			w.Due = append(w.Due, jobs[i].Job)
		}
		return nil
	})
	return w, err
}
