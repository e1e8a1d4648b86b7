package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"laneway/internal/cron"
)

const (
	// beginSQL writes the begin of an attempt, if its message has become a run under the claim. Parameters: $1 run of the ledger, $2
	// attempt, $3 node, $4 message, $5 epoch.
	beginSQL = `
UPDATE cron_run_logs l SET state = 'running', error = '', error_class = '', attempt = $2, node = $3, started_at = COALESCE(l.started_at, r.started_at),
	attempts = CASE WHEN l.attempts IN ('', '[]') THEN '[' ELSE left(l.attempts, -1) || ',' END
		|| '{"attempt":' || $2::bigint || ',"startedAtMs":' || r.started_at || ',"node":' || to_json($3::text) || '}]'
FROM runs r
WHERE l.id = $1 AND l.run_id = $4 AND l.state = 'queued' AND r.id = $4 AND r.state = 'running' AND r.owner = $3 AND r.epoch = $5`

	// endSQL writes the end of an attempt. Parameters: $1 run of the ledger, then the columns.
	endSQL = `
UPDATE cron_run_logs l SET state = $2, reason = $3, finished_at = $4, next_attempt_at = $5, duration_ms = $6, attempts = $7, error = $8,
	error_class = $9, summary = $10, model = $11, provider = $12, input_tokens = $13, output_tokens = $14, delivery = $15,
	suppressed_by = $16, delivery_error = $17, node = $18
WHERE l.id = $1 AND l.finished_at IS NULL`

	// leftSQL finds ledger rows in state running whose messages wait again.
	leftSQL = `SELECT ` + logColumns + ` FROM inbox i JOIN cron_run_logs l ON l.id = split_part(i.message_id, '/', 1) AND l.run_id = i.message_id
WHERE i.session_key = ANY($1::text[]) AND i.ended_at IS NULL AND i.state = 'held' AND l.state = 'running'`

	waitAgainSQL = `UPDATE cron_run_logs l SET state = 'queued', attempts = v.attempts
FROM unnest($1::text[], $2::text[]) AS v(id, attempts) WHERE l.id = v.id AND l.state = 'running'`
)

// cronFinishOp is the ledger's part of a Finish.
type cronFinishOp struct {
	end   *cron.AttemptEnd
	node  string
	rows  []loggedRun
	jobs  []storedJob
	nowMs int64
}

// lockJob locks the job before the session, as a claim does.
func (a *cronFinishOp) lockJob(b *pgx.Batch) {
	if job := jobOf(a.end); job != "" {
		b.Queue(jobByIDSQL+` FOR UPDATE`, job, "").Query(collect(&a.jobs, scanJob))
	}
}

func (a *cronFinishOp) read(b *pgx.Batch, clock any) {
	queueLog(b, a.end.RunID, &a.rows)
	b.Queue(readClockSQL, clock).QueryRow(func(row pgx.Row) error { return row.Scan(&a.nowMs) })
}

// write queues the end of the attempt and the resulting change of the job. A ledger row that is finished already stays unchanged, and so does
// one whose attempt has ended: a repetition must not compute the change of the job again.
func (a *cronFinishOp) write(b *pgx.Batch) error {
	if len(a.rows) == 0 {
		return nil
	}
	now := fromMillis(a.nowMs)
	r, changes := a.rows[0].Ended(a.end, a.node, now)
	if !changes {
		return nil
	}
	attempts, err := cron.EncodeAttempts(r.Attempts)
	if err != nil {
		return err
	}
	b.Queue(endSQL, r.ID, string(r.State), orNull(string(r.Reason)), millis(r.FinishedAt), millis(r.NextAttempt), r.Duration.Milliseconds(),
		clean(attempts), r.Error, r.ErrorClass, r.Summary, r.Model, r.Provider, r.InputTokens, r.OutputTokens, string(r.Delivery), r.SuppressedBy, r.DeliveryError, r.Node)
	return a.updateJob(b, r, now)
}

func (a *cronFinishOp) updateJob(b *pgx.Batch, r cron.Run, now time.Time) error {
	if len(a.jobs) == 0 {
		return nil
	}
	old := a.jobs[0]
	job := a.end.Job(old.Clone().WithoutEnded(), r, now)
	if job == nil {
		b.Queue(`DELETE FROM cron_jobs WHERE id = $1`, old.ID)
		return nil
	}
	args, same, err := old.same(*job)
	if err != nil || same {
		return err
	}
	args[0] = old.ID
	b.Queue(jobUpdateSQL(), args...)
	return nil
}

// waitAgain clears the running attempt of runs whose messages, in these sessions, wait again. It is part of a takeover.
func (s *Store) waitAgain(ctx context.Context, tx pgx.Tx, left []loggedRun, now time.Time) error {
	if len(left) == 0 {
		return nil
	}
	texts := make([]string, len(left))
	for i, l := range left {
		r, _ := l.WaitsAgain(now)
		text, err := cron.EncodeAttempts(r.Attempts)
		if err != nil {
			return err
		}
		texts[i] = text
	}
	_, err := tx.Exec(ctx, waitAgainSQL, column(left, func(r loggedRun) string { return r.ID }), texts)
	return err
}

