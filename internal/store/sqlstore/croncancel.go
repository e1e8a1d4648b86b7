package sqlstore

import (
	"cmp"
	"context"
	"slices"

	"laneway/internal/chat"
	"laneway/internal/cron"
)

// CancelRuns ends active runs; see cron.JobStore.
func (s Cron) CancelRuns(ctx context.Context, p cron.CancelParams) (cron.Cancelled, error) {
	if p.RunID == "" && p.JobID == "" {
		return cron.Cancelled{}, chat.Errorf(chat.CodeInvalid, "a run or a job has to be named")
	}
	return result(ctx, control(s.db, Stop), "cancel runs", func(ctx context.Context, tx Tx) (cron.Cancelled, error) {
		return idempotent(ctx, tx, p.IdempotencyKey, func() (cron.Cancelled, error) {
			ids, err := meant(ctx, tx, &p)
			if err != nil {
				return cron.Cancelled{}, err
			}
			out, err := cancelRuns(ctx, tx, ids, p)
			if err != nil || len(out.Runs) == 0 {
				return out, err
			}
			return out, audit(ctx, tx, p.Audit.Between(out.States()), cmp.Or(p.RunID, p.JobID))
		})
	})
}

// meant are the ids of the runs that a cancellation names.
func meant(ctx context.Context, tx Tx, p *cron.CancelParams) (ids []string, err error) {
	if p.RunID != "" {
		ids, err = all(ctx, tx, `SELECT id FROM cron_run_logs WHERE id = $1 AND ($2 = '' OR job_id = $2) AND ($3 = '' OR owner = $3)`, scanText, p.RunID, p.JobID, p.Visible)
		if err == nil && len(ids) == 0 {
			err = chat.ErrNotFound
		}
		return ids, err
	}
	ids, err = all(ctx, tx, `SELECT id FROM cron_run_logs WHERE finished_at IS NULL AND job_id = $1 AND ($2 = '' OR owner = $2) ORDER BY claimed_at, scheduled_for, id`,
		scanText, p.JobID, p.Visible)
	if err != nil || len(ids) > 0 {
		return ids, err
	}
	known, err := one(ctx, tx, `SELECT 1 FROM cron_jobs WHERE id = $1 AND ($2 = '' OR owner = $2)`, func(Row) error { return nil }, p.JobID, p.Visible)
	if err == nil && !known {
		err = chat.ErrNotFound
	}
	return nil, err
}

// cancelActive cancels the active runs of a job that which selects, oldest first.
func cancelActive(ctx context.Context, tx Tx, job string, which func(*loggedRun) bool, p cron.CancelParams) (cron.Cancelled, error) {
	scan := logScanner()
	rows, err := all(ctx, tx, `SELECT `+logColumns+` FROM cron_run_logs WHERE finished_at IS NULL AND job_id = $1 ORDER BY claimed_at, scheduled_for, id`, scan, job)
	if err != nil {
		return cron.Cancelled{}, err
	}
	var ids []string
	for i := range rows {
		if which(&rows[i]) {
			ids = append(ids, rows[i].ID)
		}
	}
	return cancelRuns(ctx, tx, ids, p)
}

// endWaiting cancels the waiting runs of a job: those that the schedule created, or, when the job is removed, all of them. It returns how many were planned
// fires.
func endWaiting(ctx context.Context, tx Tx, job string, p cron.CancelParams) (c cron.Cancelled, fires int, err error) {
	planned := map[string]bool{}
	c, err = cancelActive(ctx, tx, job, func(r *loggedRun) bool {
		planned[r.ID] = r.Trigger.Planned()
		return r.WaitsToStart() && (planned[r.ID] || p.Reason == cron.ReasonRemoved)
	}, p)
	for _, r := range c.Runs {
		if planned[r.RunID] && !r.Running {
			fires++
		}
	}
	return c, fires, err
}

const (
	lockSessionsSQL = `SELECT 1 FROM sessions WHERE key {in $1} ORDER BY key {lock}`

	stopMessagesSQL = `UPDATE inbox SET state = 'done', outcome = 'stopped', reason = $2, ended_at = {now}
		WHERE message_id {in $1} AND state IN ('held', 'waiting') AND ended_at IS NULL`

	// askToStopSQL requests runs to stop; the first requester stays recorded.
	askToStopSQL = `UPDATE runs SET stop_by = CASE WHEN COALESCE(stop_by, '') = '' THEN $2 ELSE stop_by END
		WHERE id {in $1} AND ended_at IS NULL AND state IN ('running', 'yielded')`

	unfinished         = ` FROM inbox i WHERE i.session_key = sessions.key AND i.ended_at IS NULL AND i.state <> 'done'`
	unfinishedOnSQLite = ` FROM inbox AS i INDEXED BY inbox_unfinished WHERE i.session_key = sessions.key AND i.ended_at IS NULL AND i.state <> 'done'`

	settleWaiting = `UPDATE sessions SET updated_at = {now}, waiting = (SELECT count(*)`
	settleDone    = ` AND i.state IN ('held', 'waiting')), done_seq = COALESCE((SELECT min(i.seq) - 1`
	settleTaken   = `), last_seq), taken_seq = {greatest}(taken_seq, COALESCE((SELECT min(i.seq) - 1`
	settleWhich   = `), last_seq)) WHERE key {in $1}`
)

// cancelRuns cancels the active ones of the named runs, and their messages. The caller may hold locks of jobs, but not of sessions or runs.
func cancelRuns(ctx context.Context, tx Tx, ids []string, p cron.CancelParams) (cron.Cancelled, error) {
	rows, err := lockRuns(ctx, tx, ids)
	if err != nil || len(rows) == 0 {
		return cron.CancelledOf(nil), err
	}
	now, err := tx.Now(ctx)
	if err != nil {
		return cron.Cancelled{}, err
	}
	var (
		changed          []loggedRun
		waiting, running []string // messages
		settled          []string // sessions
		runs             []cron.CancelledRun
		finished         []cron.Run
		order            = map[string]int{}
	)
	for i, id := range ids {
		order[id] = i
	}
	slices.SortFunc(rows, func(a, b seatedRun) int { return cmp.Compare(order[a.ID], order[b.ID]) })
	for _, r := range rows {
		was := r.State
		var ok bool
		if r.Run, ok = r.Cancel(p.Reason, p.Note, fromMillis(now)); !ok {
			continue
		}
		one := cron.CancelledRun{RunID: r.ID, JobID: r.JobID, MessageID: r.message, Session: parseKey(r.SessionKey), Seq: r.seq}
		switch was { //nolint:exhaustive // the active states
		case cron.RunRunning:
			one.Running, one.Node = true, r.Node
			running = append(running, r.message)
		case cron.RunQueued:
			waiting, settled = append(waiting, r.message), append(settled, r.SessionKey)
		}
		if r.State.Final() {
			finished = append(finished, r.Run)
		}
		changed, runs = append(changed, r.loggedRun), append(runs, one)
	}
	out := cron.CancelledOf(runs)
	out.Finished = finished
	if err := storeRuns(ctx, tx, changed...); err != nil {
		return out, err
	}
	if len(running) > 0 {
		if err := tx.Later(ctx, askToStopSQL, nil, running, cmp.Or(p.By, "cron")); err != nil {
			return out, err
		}
	}
	return out, stopMessages(ctx, tx, waiting, settled, string(cmp.Or(p.Reason, cron.ReasonStopped)))
}

func stopMessages(ctx context.Context, tx Tx, messages, sessions []string, reason string) error {
	if len(messages) == 0 {
		return nil
	}
	if err := tx.Later(ctx, stopMessagesSQL, nil, messages, reason); err != nil {
		return err
	}
	return settle(ctx, tx, sessions)
}

// settle updates the counters of locked sessions from their messages.
func settle(ctx context.Context, tx Tx, sessions []string) error {
	return tx.Later(ctx, tx.PerEngine(
		settleWaiting+unfinished+settleDone+unfinished+settleTaken+unfinished+settleWhich,
		settleWaiting+unfinishedOnSQLite+settleDone+unfinishedOnSQLite+settleTaken+unfinishedOnSQLite+settleWhich), nil, sessions)
}

// seatedRun is a run with the number of its message.
type seatedRun struct {
	loggedRun

	seq int64
}

// lockRuns locks the active ones of the named runs and the sessions of their messages, and then reads the runs. Runs that wait for a retry have no waiting
// message: they are locked first, as in a claim of retries.
func lockRuns(ctx context.Context, tx Tx, ids []string) (rows []seatedRun, err error) {
	if len(ids) == 0 {
		return nil, nil
	}
	if text := tx.PerEngine(`SELECT id FROM cron_run_logs WHERE id {in $1} AND state = 'retrying' ORDER BY id {lock}`, ""); text != "" {
		keys, err := all(ctx, tx, `SELECT session_key FROM cron_run_logs WHERE id {in $1} AND state IN ('queued', 'running')`, scanText, ids)
		if err != nil {
			return nil, err
		}
		if err := tx.Later(ctx, text, nil, ids); err != nil {
			return nil, err
		}
		if err := tx.Later(ctx, lockSessionsSQL, nil, keys); err != nil {
			return nil, err
		}
	}
	var seq int64
	scan := logScanner(&seq)
	return all(ctx, tx, `SELECT `+logColumns+`, COALESCE((SELECT i.seq FROM inbox i WHERE i.message_id = l.run_id), 0) FROM cron_run_logs l WHERE id {in $1}`,
		func(row Row) (seatedRun, error) {
			r, err := scan(row)
			return seatedRun{r, seq}, err
		}, ids)
}
