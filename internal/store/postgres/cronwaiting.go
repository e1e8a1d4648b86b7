package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"

	"laneway/internal/cron"
)

// waitingSQL finds the runs of job $1 that wait to start: all of them, or those that the schedule has made.
const waitingSQL = `SELECT l.id, l.trigger IN ('schedule', 'catchup') FROM cron_run_logs l
WHERE l.job_id = $1 AND l.finished_at IS NULL AND l.state = 'queued' AND l.attempt = 0
	AND ($2::boolean OR l.trigger IN ('schedule', 'catchup'))
ORDER BY l.claimed_at, l.id`

// endWaiting cancels the runs of a job that wait to start, and returns how many of them were planned fires.
func (s *Store) endWaiting(ctx context.Context, tx pgx.Tx, job string, all bool, p cron.CancelParams) (
	ended []cron.CancelledRun, finished []cron.Run, fires int, err error,
) {
	var ids []string
	planned := map[string]bool{}
	b := &pgx.Batch{}
	b.Queue(waitingSQL, job, all).Query(func(rows pgx.Rows) error {
		var id string
		var fire bool
		_, err := pgx.ForEachRow(rows, []any{&id, &fire}, func() error {
			ids, planned[id] = append(ids, id), fire
			return nil
		})
		return err
	})
	if err := send(ctx, tx, b); err != nil || len(ids) == 0 {
		return nil, nil, 0, err
	}
	ended, finished, err = s.cancelRuns(ctx, tx, ids, p)
	for _, e := range ended {
		if planned[e.RunID] && !e.Running {
			fires++
		}
	}
	return ended, finished, fires, err
}
