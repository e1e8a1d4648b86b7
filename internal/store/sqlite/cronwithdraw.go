package sqlite

import (
	"context"
	"slices"

	"laneway/internal/cron"
)

const (
	// unstartedFire is the condition for planned fires whose first attempt has not begun.
	unstartedFire = `state = 'queued' AND attempt = 0 AND trigger = 'schedule'`

	// forgetWithdrawn deletes the tombstones of withdrawn claims whose slots are older than the ledger.
	forgetWithdrawn = `DELETE FROM deleted_sessions WHERE key GLOB 'agent:*:cron:*:schedule-[0-9]*'
		AND CAST(substr(key, instr(key, ':schedule-') + 10) AS INTEGER) < ?`
)

// withdraw withdraws the claims ahead of a job, with their messages and sessions.
func (t *tx) withdraw(ctx context.Context, jobID string) error {
	rows, err := t.activeOf(ctx, jobID)
	if err != nil {
		return err
	}
	for _, r := range rows {
		if !r.Ahead(instant(t.now)) {
			continue
		}
		if err := t.withdrawRun(ctx, r); err != nil {
			return err
		}
	}
	return nil
}

// withdrawRun deletes the row, the message and the session of a claim. A session that has or had other messages stays. The tombstone of a
// deleted session keeps its numbers and its epoch: a process that still has the claim in memory must not match it with a later claim of the
// same slot.
func (t *tx) withdrawRun(ctx context.Context, r *ledgerRow) error {
	if _, err := t.expand(ctx, r.ID); err != nil {
		return err
	}
	if _, err := t.execOf(ctx, r.JobID, `DELETE FROM cron_run_logs WHERE id = ?`, r.ID); err != nil {
		return err
	}
	s, ok, err := t.find(ctx, sessionKey(r.SessionKey))
	if err != nil || !ok {
		return err
	}
	gone, err := t.exec(ctx, `DELETE FROM inbox WHERE message_id = ? AND state IN ('held', 'waiting')`, r.message)
	if err != nil || gone == 0 {
		return err
	}
	s.waiting--
	var used int
	if err := t.one(ctx, `SELECT count(*) FROM (SELECT 1 FROM inbox WHERE session_key = ? LIMIT 1)`, s.key).Scan(&used); err != nil {
		return err
	}
	if used == 0 && s.transcriptSeq == 0 {
		_, err := t.removeSession(ctx, s) // nothing waits in it
		return err
	}
	if _, err := t.settle(ctx, s); err != nil {
		return err
	}
	return t.save(ctx, s)
}

// endWaiting cancels the runs of a job that wait to start: all of them, or those that the schedule has made. It returns how many were
// planned fires.
func (t *tx) endWaiting(ctx context.Context, jobID string, all bool, c cancellation) (ended []cron.CancelledRun, fires int, err error) {
	rows, err := t.activeOf(ctx, jobID)
	if err != nil {
		return nil, 0, err
	}
	rows = slices.DeleteFunc(rows, func(r *ledgerRow) bool {
		return !r.WaitsToStart(instant(t.now)) || !all && !r.Trigger.Planned()
	})
	for _, r := range rows {
		if r.Trigger.Planned() {
			fires++
		}
	}
	ended, err = t.cancelAll(ctx, rows, c)
	return ended, fires, err
}

// ReleaseClaims withdraws what a node has claimed ahead; see the port.
func (s *Store) ReleaseClaims(ctx context.Context, node string) (int, error) {
	return result(ctx, s.write, ordinary("hand back what was claimed ahead"), func(ctx context.Context, t *tx) (n int, err error) {
		rows, err := t.query(ctx, `SELECT `+ledgerColumns+` FROM cron_run_logs WHERE `+runsActive+` AND `+unstartedFire+` AND node = ? AND fire_at > ?
			ORDER BY fire_at DESC`, node, t.now)
		list, err := collect(rows, err, scanLedger)
		if err != nil {
			return 0, err
		}
		for _, r := range list {
			if err := t.withdrawRun(ctx, r); err != nil {
				return 0, err
			}
			if err := t.planAgain(ctx, r.JobID, millis(r.ScheduledFor), millis(r.FireAt)); err != nil {
				return 0, err
			}
		}
		return len(list), nil
	})
}

// planAgain makes the slot of a withdrawn claim the job's next slot.
func (t *tx) planAgain(ctx context.Context, jobID string, slot, at int64) error {
	_, err := t.execOf(ctx, jobID, `UPDATE cron_jobs SET next_slot = ?, next_run_at = ?, fired = max(fired - 1, 0), enabled = 1 WHERE id = ?`, slot, at, jobID)
	return err
}
