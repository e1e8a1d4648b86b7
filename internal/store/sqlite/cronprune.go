package sqlite

import (
	"context"
	"strconv"

	"laneway/internal/chat"
	"laneway/internal/cron"
)

// maxPrune is how many rows one call deletes. Each has a message, a run and often a session of its own; the writer runs no other operation
// meanwhile.
const maxPrune = 1000

// Prune deletes old rows of the ledger; see the port. A row is deleted with what the run had for itself: its messages, its run rows and,
// unless the session has other messages, the session that was made for it, with its transcript. The rows are searched on a read connection.
func (s *Store) Prune(ctx context.Context, p cron.PruneParams) (int, error) {
	if p.Limit <= 0 || p.Limit > maxPrune {
		p.Limit = maxPrune
	}
	var ids []string
	err := s.view(ctx, "look for old runs", func(ctx context.Context, q querier) (err error) {
		ids, err = prunable(ctx, q, &p)
		return err
	})
	if err != nil || len(ids) == 0 {
		return 0, err
	}
	return result(ctx, s.write, ordinary("delete old runs"), func(ctx context.Context, t *tx) (n int, err error) {
		for _, id := range ids {
			gone, err := t.prune(ctx, id)
			if err != nil {
				return 0, err
			}
			n += gone
		}
		return n, nil
	})
}

// prunable finds finished rows that are too old, and those beyond the newest ones of their jobs.
func prunable(ctx context.Context, q querier, p *cron.PruneParams) (ids []string, err error) {
	if !p.Before.IsZero() {
		rows, err := q.query(ctx, `SELECT id FROM cron_run_logs WHERE finished_at < ? ORDER BY finished_at LIMIT +?`, millis(p.Before), p.Limit)
		if ids, err = collect(rows, err, text); err != nil {
			return nil, err
		}
	}
	if p.Keep <= 0 {
		return ids, nil
	}
	have := make(map[string]bool, len(ids))
	for _, id := range ids {
		have[id] = true
	}
	for job := ""; len(ids) < p.Limit; {
		job, err = nextJob(ctx, q, job)
		if err != nil || job == "" {
			return ids, err
		}
		more, err := beyond(ctx, q, job, p)
		if err != nil {
			return nil, err
		}
		for _, id := range more {
			if !have[id] && len(ids) < p.Limit {
				ids = append(ids, id)
			}
		}
	}
	return ids, nil
}

// beyond finds the finished rows of a job beyond those that ended last. Of a job with few rows it reads the index only.
func beyond(ctx context.Context, q querier, job string, p *cron.PruneParams) ([]string, error) {
	var many bool
	err := q.one(ctx, `SELECT EXISTS (SELECT 1 FROM cron_run_logs WHERE job_id = ?1 LIMIT 1 OFFSET ?2)`, job, p.Keep).Scan(&many)
	if err != nil || !many {
		return nil, err
	}
	rows, err := q.query(ctx, `SELECT id FROM cron_run_logs WHERE job_id = ? AND finished_at IS NOT NULL
		ORDER BY finished_at DESC, scheduled_for DESC, id DESC LIMIT +? OFFSET ?`, job, p.Limit, p.Keep)
	return collect(rows, err, text)
}

// nextJob goes from job to job along the index, not from row to row; "" = there is no further one.
func nextJob(ctx context.Context, q querier, after string) (job string, err error) {
	err = q.one(ctx, `SELECT coalesce((SELECT job_id FROM cron_run_logs WHERE job_id > ? ORDER BY job_id LIMIT 1), '')`, after).Scan(&job)
	return job, err
}

// prune deletes one finished row and what belongs only to it.
func (t *tx) prune(ctx context.Context, id string) (n int, err error) {
	r, known, err := findLedger(ctx, t, id)
	if err != nil || !known || !r.State.Final() {
		return 0, err
	}
	// Attempts are <id> and <id>/<n>; 0 is the character after the slash.
	for _, statement := range []string{
		`DELETE FROM inbox WHERE state = 'done' AND (message_id = ?1 OR message_id > ?1 || '/' AND message_id < ?1 || '0')`,
		`DELETE FROM runs WHERE state NOT IN ('running', 'stopping', 'yielded') AND (id = ?1 OR id > ?1 || '/' AND id < ?1 || '0')`,
		`DELETE FROM cron_run_logs WHERE id = ?1`,
	} {
		if _, err := t.exec(ctx, statement, id); err != nil {
			return 0, err
		}
	}
	return 1, t.pruneSession(ctx, r)
}

// pruneSession deletes the session that a run had for itself, when nothing else is left in it.
func (t *tx) pruneSession(ctx context.Context, r *ledgerRow) error {
	key := sessionKey(r.SessionKey)
	if key != ownSession(key.Agent, &r.Run) {
		return nil
	}
	var left int
	err := t.one(ctx, `SELECT EXISTS (SELECT 1 FROM inbox WHERE session_key = ?1 AND seq > 0)
		OR EXISTS (SELECT 1 FROM runs WHERE session_key = ?1 AND seq_from > 0)`, r.SessionKey).Scan(&left)
	if err != nil || left > 0 {
		return err
	}
	return t.dropSession(ctx, r.SessionKey)
}

// dropSession deletes a session that will not be used again, without a tombstone. The entries of the index go with the transcript.
func (t *tx) dropSession(ctx context.Context, key string) error {
	for _, statement := range []string{
		`DELETE FROM transcript WHERE session_key = ?`,
		`DELETE FROM sessions WHERE key = ?`,
		`DELETE FROM tombstones WHERE key = ?`,
	} {
		if _, err := t.exec(ctx, statement, key); err != nil {
			return err
		}
	}
	return nil
}

// ownSession is the key of the session that an isolated run has for itself.
func ownSession(agent string, r *cron.Run) chat.SessionKey {
	return chat.SessionKey{Agent: agent, Rest: "cron:" + r.JobID + ":" + string(r.Trigger) + "-" + slotText(r)}
}

func slotText(r *cron.Run) string { return strconv.FormatInt(millis(r.ScheduledFor), 10) }
