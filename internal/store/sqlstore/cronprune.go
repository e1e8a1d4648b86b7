package sqlstore

import (
	"context"
	"strconv"

	"laneway/internal/cron"
	"laneway/internal/store"
)

// maxPrune is how many rows one call deletes. Each has a message, a run and often a session of its own; on SQLite no other operation writes meanwhile.
const maxPrune = 1000

const (
	oldRuns = `SELECT id, attempt, job_id, trigger, scheduled_for, session_key FROM `

	// agedSQL finds finished rows that ended before $1; those that were planned first come first. A row is planned before it ends. PostgreSQL has an index of the
	// planned times of each owner, SQLite one of the ends.
	agedSQL = oldRuns + ledgerOwners + ` CROSS JOIN LATERAL (SELECT l.* FROM cron_run_logs l WHERE l.owner = o.owner AND l.scheduled_for < $1 AND l.finished_at < $1
		ORDER BY l.scheduled_for, l.id LIMIT $2) l ORDER BY scheduled_for, id LIMIT $2`
	agedOnSQLite = oldRuns + `cron_run_logs WHERE finished_at < $1 ORDER BY finished_at {limit $2}`

	// beyondSQL finds the finished rows of a job beyond those that ended last.
	beyondSQL = oldRuns + `cron_run_logs WHERE job_id = $1 AND finished_at IS NOT NULL ORDER BY finished_at DESC, scheduled_for DESC, id DESC {limit $3} OFFSET $2`

	// crowdedSQL finds the next job that has more rows than $2.
	crowdedSQL        = `SELECT job_id FROM cron_run_logs WHERE job_id > $1 GROUP BY job_id HAVING count(*) > $2 ORDER BY job_id LIMIT 1`
	nextJobSQL        = `SELECT job_id FROM cron_run_logs WHERE job_id > $1 ORDER BY job_id LIMIT 1`
	forgottenMessages = `DELETE FROM inbox WHERE message_id {in $1} AND ended_at IS NOT NULL`
	forgottenRuns     = `DELETE FROM runs WHERE id {in $1} AND ended_at IS NOT NULL`
	forgottenSessions = `DELETE FROM sessions WHERE key {in $1} AND done_seq = last_seq
		AND NOT EXISTS (SELECT 1 FROM branches b WHERE b.parent_key = sessions.key)
		AND NOT EXISTS (SELECT 1 FROM inbox i WHERE i.session_key = sessions.key AND i.seq > 0) AND NOT EXISTS (SELECT 1 FROM runs r WHERE r.session_key = sessions.key AND r.seq_from > 0) RETURNING key`
	forgottenLedgerRow = `DELETE FROM cron_run_logs WHERE id {in $1} AND finished_at IS NOT NULL`
)

// oldRun is a row to delete.
type oldRun struct{ cron.Run }

func scanOld(row Row) (r oldRun, err error) {
	err = row.Scan(&r.ID, &r.Attempt, &r.JobID, (*string)(&r.Trigger), instant{&r.ScheduledFor}, &r.SessionKey)
	return r, err
}

// messages are those of the attempts of the run.
func (r oldRun) messages() []string {
	list := []string{r.ID}
	for n := 2; n <= r.Attempt+1; n++ {
		list = append(list, r.ID+"/"+strconv.Itoa(n))
	}
	return list
}

// ownSession reports whether the session was made for the run.
func (r oldRun) ownSession() bool {
	key := parseKey(r.SessionKey)
	return key.Rest == "cron:"+r.JobID+":"+string(r.Trigger)+"-"+strconv.FormatInt(millis(r.ScheduledFor), 10)
}

// ledger deletes old rows of the ledger. With each row it deletes what only this run used: its messages, its runs and, unless the conversation was continued,
// the session that was made for it, with its transcript. The rows are selected outside of the transaction that deletes them.
func (s Retention) ledger(ctx context.Context, p store.PruneParams) (int, error) {
	p.Limit = min(p.Most(), maxPrune)
	var old []oldRun
	err := s.db.View(ctx, "find old runs", func(ctx context.Context, tx Tx) (err error) {
		old, err = prunable(ctx, tx, &p)
		return err
	})
	if err != nil || len(old) == 0 {
		return 0, err
	}
	var ids, messages, sessions []string
	for _, r := range old {
		ids, messages = append(ids, r.ID), append(messages, r.messages()...)
		if r.ownSession() {
			sessions = append(sessions, r.SessionKey)
		}
	}
	return result(ctx, s.db.Update, "delete old runs", func(ctx context.Context, tx Tx) (int, error) {
		for _, text := range []string{forgottenMessages, forgottenRuns} {
			if err := tx.Later(ctx, text, nil, messages); err != nil {
				return 0, err
			}
		}
		gone, err := all(ctx, tx, forgottenSessions, scanText, sessions)
		if err != nil {
			return 0, err
		}
		if err := dropTranscripts(ctx, tx, gone); err != nil {
			return 0, err
		}
		n, err := tx.Exec(ctx, forgottenLedgerRow, ids)
		return int(n), err
	})
}

// prunable finds finished rows that are too old, and those beyond the newest ones of their jobs.
func prunable(ctx context.Context, tx Tx, p *store.PruneParams) (old []oldRun, err error) {
	if !p.Before.IsZero() {
		if old, err = all(ctx, tx, tx.PerEngine(agedSQL, agedOnSQLite), scanOld, millis(p.Before), p.Limit); err != nil {
			return nil, err
		}
	}
	if p.Keep <= 0 {
		return old, nil
	}
	have := make(map[string]bool, len(old))
	for _, r := range old {
		have[r.ID] = true
	}
	for job := ""; len(old) < p.Limit; {
		// SQLite visits one job after the other along the index.
		args := []any{job, p.Keep}
		text := tx.PerEngine(crowdedSQL, nextJobSQL)
		if text == nextJobSQL {
			args = args[:1]
		}
		found, err := one(ctx, tx, text, into(&job), args...)
		if err != nil || !found {
			return old, err
		}
		more, err := beyond(ctx, tx, job, p)
		if err != nil {
			return nil, err
		}
		for _, r := range more {
			if !have[r.ID] && len(old) < p.Limit {
				old = append(old, r)
			}
		}
	}
	return old, nil
}

// beyond reads only the index for a job with few rows.
func beyond(ctx context.Context, tx Tx, job string, p *store.PruneParams) ([]oldRun, error) {
	many, err := one(ctx, tx, `SELECT 1 FROM cron_run_logs WHERE job_id = $1 ORDER BY job_id, scheduled_for LIMIT 1 OFFSET $2`, func(Row) error { return nil }, job, p.Keep)
	if err != nil || !many {
		return nil, err
	}
	return all(ctx, tx, beyondSQL, scanOld, job, p.Keep, p.Limit)
}
