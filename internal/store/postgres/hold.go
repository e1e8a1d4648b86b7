package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"

	"laneway/internal/store"
)

var _ store.Holds = (*Store)(nil)

func scanHold(row pgx.CollectableRow) (h store.Hold, err error) {
	var since int64
	err = row.Scan(&since, &h.Who, &h.Reason)
	h.Since = fromMillis(since)
	return h, err
}

// heldBy is the hold that a statement has read; nil = the gateway is not held.
func heldBy(list []store.Hold) *store.Hold {
	if len(list) == 0 {
		return nil
	}
	return &list[0]
}

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
