package postgres

import (
	"cmp"
	"context"
	"slices"

	"github.com/jackc/pgx/v5"

	"laneway/internal/chat"
	"laneway/internal/cron"
	"laneway/internal/store"
	"laneway/internal/store/sqlstore"
)

const (
	// cancelRetryingSQL ends runs that wait for their next attempt: they have no message in an inbox.
	cancelRetryingSQL = `UPDATE cron_run_logs l SET ` + cancelled + `, reason = $3, error = COALESCE(NULLIF($4, ''), l.error)
FROM inbox i WHERE l.id = ANY($2::text[]) AND l.state = 'retrying' AND i.message_id = l.run_id
RETURNING l.id, l.job_id, COALESCE(l.run_id, ''), i.session_key, i.seq, false, ''`

	// cancelWaitingSQL ends runs whose message waits, and the messages. The sessions are locked already.
	cancelWaitingSQL = `
WITH i AS (
	UPDATE inbox i SET state = 'done', outcome = 'stopped', reason = $3, ended_at = ` + nowSQL + `
	FROM cron_run_logs l WHERE l.id = ANY($2::text[]) AND l.state = 'queued' AND i.message_id = l.run_id
	  AND i.ended_at IS NULL AND i.state IN ('held', 'waiting')
	RETURNING l.id, i.session_key, i.seq, i.message_id
)
UPDATE cron_run_logs l SET ` + cancelled + `, reason = $3, error = COALESCE(NULLIF($4, ''), l.error)
FROM i WHERE l.id = i.id
RETURNING l.id, l.job_id, i.message_id, i.session_key, i.seq, false, ''`

	// cancelRunningSQL asks runs to stop; the first requester stays recorded. The ledger row keeps the reason for the end of the attempt.
	cancelRunningSQL = `
WITH r AS (
	UPDATE runs r SET stop_by = CASE WHEN r.stop_by = '' THEN $3 ELSE r.stop_by END
	FROM cron_run_logs l WHERE l.id = ANY($1::text[]) AND l.state = 'running' AND r.id = l.run_id AND r.ended_at IS NULL AND r.state IN ('running', 'yielded')
	RETURNING l.id, r.session_key, r.seq_to, r.owner
)
UPDATE cron_run_logs l SET reason = $2, error = COALESCE(NULLIF($4, ''), l.error)
FROM r WHERE l.id = r.id
RETURNING l.id, l.job_id, l.run_id, r.session_key, r.seq_to, true, r.owner`

	// cancelled are the columns of the ledger row l of a run that ends without having run.
	cancelled = `state = 'cancelled', ` + finishedNow

	// finishedNow are the columns that every ledger row l gets that ends otherwise than by the end of its attempt.
	finishedNow = `finished_at = ` + nowSQL + `, next_attempt_at = NULL,
	duration_ms = CASE WHEN l.started_at IS NULL THEN 0 ELSE GREATEST(` + nowSQL + ` - l.started_at, 0) END`

	// cancelMessagesSQL is a part of statements that end waiting messages. i has the messages; the runs whose attempts they were end as
	// well.
	cancelMessagesSQL = `UPDATE cron_run_logs l SET ` + finishedNow + `,
		state = CASE WHEN i.outcome = 'failed' THEN 'error' WHEN i.outcome IN ('interrupted', 'dead') THEN 'interrupted' ELSE 'cancelled' END,
		reason = CASE WHEN i.outcome IN ('failed', 'interrupted', 'dead') THEN l.reason ELSE COALESCE(l.reason, 'stopped') END,
		error = CASE WHEN i.outcome IN ('failed', 'interrupted', 'dead') THEN i.reason ELSE l.error END
	FROM i WHERE l.id = split_part(i.message_id, '/', 1) AND l.run_id = i.message_id AND l.state = 'queued'`

	// runsOfMessagesSQL reads the ledger rows that ended with these messages. $1 session, $2 sequence numbers.
	runsOfMessagesSQL = `SELECT ` + logColumns + ` FROM inbox i
	JOIN cron_run_logs l ON l.id = split_part(i.message_id, '/', 1) AND l.run_id = i.message_id AND l.finished_at IS NOT NULL
	WHERE i.session_key = $1 AND i.seq = ANY($2::bigint[])`

	// settleManySQL is settleSQL for several sessions.
	settleManySQL = `
UPDATE sessions s SET
	waiting = w.n,
	done_seq = COALESCE(w.first - 1, s.last_seq),
	taken_seq = GREATEST(s.taken_seq, COALESCE(w.first - 1, s.last_seq)),
	updated_at = ` + nowSQL + `
FROM (
	SELECT k.key, count(*) FILTER (WHERE i.state IN ('held', 'waiting')) AS n, min(i.seq) AS first
	FROM unnest($2::text[]) AS k(key) LEFT JOIN inbox i ON i.session_key = k.key AND i.ended_at IS NULL GROUP BY k.key
) w
WHERE s.key = w.key`

	activeOfSQL = `SELECT id FROM cron_run_logs WHERE finished_at IS NULL AND job_id = $1 ORDER BY claimed_at, id`
)

// CancelRuns ends active runs, see cron.JobStore. It uses a control connection, as every stop does.
func (s *Store) CancelRuns(ctx context.Context, p cron.CancelParams) (out cron.Cancelled, err error) {
	if p.RunID == "" && p.JobID == "" {
		return out, chat.Errorf(chat.CodeInvalid, "a run or a job has to be named")
	}
	err = s.control(ctx, "cancelling cron runs", s.ctrl, func(conn *pgx.Conn) error {
		return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
			out, err = sqlstore.Idempotent(ctx, s.shared(tx), p.IdempotencyKey, func() (cron.Cancelled, error) {
				ended, finished, err := s.cancel(ctx, tx, p)
				out := cron.CancelledOf(ended)
				out.Finished = finished
				return out, err
			})
			return err
		})
	})
	return out, err
}

func (s *Store) cancel(ctx context.Context, tx pgx.Tx, p cron.CancelParams) ([]cron.CancelledRun, []cron.Run, error) {
	var ids []string
	b := &pgx.Batch{}
	if p.RunID == "" {
		b.Queue(`SELECT l.id FROM cron_run_logs l WHERE l.finished_at IS NULL AND l.job_id = $1 AND ($2 = '' OR l.owner = $2)`,
			p.JobID, p.Visible).Query(collect(&ids, scanText))
	} else {
		b.Queue(`SELECT l.id FROM cron_run_logs l WHERE l.id = $1 AND ($2 = '' OR l.job_id = $2) AND ($3 = '' OR l.owner = $3)`,
			p.RunID, p.JobID, p.Visible).Query(collect(&ids, scanText))
	}
	if err := send(ctx, tx, b); err != nil {
		return nil, nil, err
	}
	if len(ids) == 0 {
		if p.RunID != "" {
			return nil, nil, chat.ErrNotFound
		}
		var known int
		return nil, nil, orNone(tx.QueryRow(ctx, `SELECT 1 FROM cron_jobs WHERE id = $1 AND ($2 = '' OR owner = $2)`, p.JobID, p.Visible).Scan(&known), chat.ErrNotFound)
	}
	ended, finished, err := s.cancelRuns(ctx, tx, ids, p)
	if err != nil || len(ended) == 0 {
		return nil, nil, err
	}
	b = &pgx.Batch{}
	if err := s.audit(b, p.Audit.Between(cron.CancelledOf(ended).States())); err != nil {
		return nil, nil, err
	}
	return ended, finished, send(ctx, tx, b)
}

// activeRuns lists the runs of a job that are not over, oldest first.
func (s *Store) activeRuns(ctx context.Context, tx pgx.Tx, job string) (ids []string, err error) {
	b := &pgx.Batch{}
	b.Queue(activeOfSQL, job).Query(collect(&ids, scanText))
	return ids, send(ctx, tx, b)
}

// cancelRuns ends those of the named runs that are active, and reads the rows that ended. The caller may hold locks of jobs, but none of
// sessions or runs.
func (s *Store) cancelRuns(ctx context.Context, tx pgx.Tx, ids []string, p cron.CancelParams) ([]cron.CancelledRun, []cron.Run, error) {
	ended, err := s.endRuns(ctx, tx, ids, p)
	var over []string
	for _, r := range ended {
		if !r.Running {
			over = append(over, r.RunID)
		}
	}
	if err != nil || len(over) == 0 {
		return ended, nil, err
	}
	finished, err := finishedRows(ctx, tx, over)
	return ended, finished, err
}

// finishedRows reads rows that ended in this transaction.
func finishedRows(ctx context.Context, tx pgx.Tx, ids []string) ([]cron.Run, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	var rows []loggedRun
	b := &pgx.Batch{}
	b.Queue(logsSQL, ids).Query(collect(&rows, scanLog))
	err := send(ctx, tx, b)
	return column(rows, func(r loggedRun) cron.Run { return r.Run }), err
}

// runsOf reads the ledger rows that ended with these messages, and stores them in the messages. It sends a statement only when a message is
// named like an attempt.
func runsOf(ctx context.Context, tx sender, ended []store.Waiting) error {
	var seqs []int64
	for _, w := range ended {
		if cron.RunOfMessage(w.MessageID) != "" {
			seqs = append(seqs, w.Seq)
		}
	}
	if len(seqs) == 0 {
		return nil
	}
	var rows []loggedRun
	b := &pgx.Batch{}
	b.Queue(runsOfMessagesSQL, ended[0].Session.String(), seqs).Query(collect(&rows, scanLog))
	if err := send(ctx, tx, b); err != nil {
		return err
	}
	attachRuns(ended, rows)
	return nil
}

// attachRuns stores each ledger row in the message that was its attempt.
func attachRuns(ended []store.Waiting, rows []loggedRun) {
	byMessage := make(map[string]*cron.Run, len(rows))
	for i := range rows {
		byMessage[rows[i].message] = &rows[i].Run
	}
	for i := range ended {
		ended[i].CronRun = byMessage[ended[i].MessageID]
	}
}

func (s *Store) endRuns(ctx context.Context, tx pgx.Tx, ids []string, p cron.CancelParams) ([]cron.CancelledRun, error) {
	reason, by, note := string(cmp.Or(p.Reason, cron.ReasonStopped)), cmp.Or(clean(p.By), "cron"), clean(p.Note)
	var (
		ended []cron.CancelledRun
		keys  []string
	)
	b := &pgx.Batch{}
	b.Queue(cancelRetryingSQL, s.clock(), ids, reason, note).Query(collect(&ended, scanCancelled))
	b.Queue(`SELECT DISTINCT i.session_key FROM cron_run_logs l JOIN inbox i ON i.message_id = l.run_id
		WHERE l.id = ANY($1::text[]) AND l.finished_at IS NULL`, ids).Query(collect(&keys, scanText))
	if err := send(ctx, tx, b); err != nil || len(keys) == 0 {
		return ended, err
	}
	b = &pgx.Batch{}
	b.Queue(lockSessionsSQL, keys)
	b.Queue(cancelWaitingSQL, s.clock(), ids, reason, note).Query(collect(&ended, scanCancelled))
	b.Queue(cancelRunningSQL, ids, reason, by, note).Query(collect(&ended, scanCancelled))
	b.Queue(settleManySQL, s.clock(), keys)
	err := send(ctx, tx, b)
	order := map[string]int{}
	for i, id := range ids {
		order[id] = i
	}
	slices.SortStableFunc(ended, func(a, b cron.CancelledRun) int { return cmp.Compare(order[a.RunID], order[b.RunID]) })
	return ended, err
}

func scanCancelled(row pgx.CollectableRow) (cron.CancelledRun, error) {
	var (
		r   cron.CancelledRun
		key string
	)
	err := row.Scan(&r.RunID, &r.JobID, &r.MessageID, &key, &r.Seq, &r.Running, &r.Node)
	r.Session = parseKey(key)
	return r, err
}
