package sqlite

import (
	"cmp"
	"context"

	"laneway/internal/chat"
	"laneway/internal/cron"
	"laneway/internal/store"
	"laneway/internal/store/sqlstore"
)

// cancellation is why runs end before their time.
type cancellation struct {
	reason   cron.Reason
	note, by string
}

// CancelRuns ends active runs; see the port. It goes to the front of the writer's queue.
func (s *Store) CancelRuns(ctx context.Context, p cron.CancelParams) (cron.Cancelled, error) {
	return result(ctx, s.write, urgent("cancel runs"), func(ctx context.Context, t *tx) (cron.Cancelled, error) {
		return sqlstore.Idempotent(ctx, t.shared(), p.IdempotencyKey, func() (cron.Cancelled, error) { return t.cancelRuns(ctx, &p) })
	})
}

func (t *tx) cancelRuns(ctx context.Context, p *cron.CancelParams) (cron.Cancelled, error) {
	rows, err := t.meant(ctx, p)
	if err != nil || len(rows) == 0 {
		return cron.CancelledOf(nil), err
	}
	ended, err := t.cancelAll(ctx, rows, cancellation{reason: p.Reason, note: p.Note, by: p.By})
	if err != nil {
		return cron.Cancelled{}, err
	}
	out := cron.CancelledOf(ended)
	out.Finished = t.finished
	return out, t.audit(ctx, p.Audit.Between(out.States()), cmp.Or(p.RunID, p.JobID))
}

// meant finds the active runs that a cancellation selects.
func (t *tx) meant(ctx context.Context, p *cron.CancelParams) ([]*ledgerRow, error) {
	if p.RunID == "" {
		rows, err := t.activeOf(ctx, p.JobID)
		rows = visibleOnly(rows, p.Visible)
		if err == nil && len(rows) == 0 {
			_, err = findJob(ctx, t, p.JobID, p.Visible)
		}
		return rows, err
	}
	r, known, err := findLedger(ctx, t, p.RunID)
	if err != nil {
		return nil, err
	}
	if !known || p.Visible != "" && r.Owner != p.Visible || p.JobID != "" && r.JobID != p.JobID {
		return nil, chat.ErrNotFound
	}
	if !r.State.Active() {
		return nil, nil
	}
	return []*ledgerRow{r}, nil
}

func visibleOnly(rows []*ledgerRow, visible string) []*ledgerRow {
	var out []*ledgerRow
	for _, r := range rows {
		if visible == "" || r.Owner == visible {
			out = append(out, r)
		}
	}
	return out
}

// activeOf reads the active runs of a job, oldest first.
func (t *tx) activeOf(ctx context.Context, jobID string) ([]*ledgerRow, error) {
	rows, err := t.query(ctx, `SELECT `+ledgerColumns+` FROM cron_run_logs
		WHERE state IN ('queued', 'running', 'retrying') AND job_id = ? ORDER BY claimed_at, scheduled_for, id`, jobID)
	return collect(rows, err, scanLedger)
}

func (t *tx) cancelAll(ctx context.Context, rows []*ledgerRow, c cancellation) ([]cron.CancelledRun, error) {
	var out []cron.CancelledRun
	for _, r := range rows {
		one, err := t.cancel(ctx, r, c)
		if err != nil {
			return nil, err
		}
		out = append(out, one)
	}
	return out, nil
}

// cancel ends a run that waits, with its message. It asks a running one to stop; the row keeps the reason until its turn has ended.
func (t *tx) cancel(ctx context.Context, r *ledgerRow, c cancellation) (out cron.CancelledRun, err error) {
	fill(&c.reason, cron.ReasonStopped)
	out = cron.CancelledRun{RunID: r.ID, JobID: r.JobID, MessageID: r.message, Session: sessionKey(r.SessionKey)}
	err = t.one(ctx, `SELECT seq FROM inbox WHERE message_id = ?`, r.message).Scan(&out.Seq)
	if err != nil && !none(err) {
		return out, err
	}
	r.Run, _ = r.Cancel(c.reason, c.note, instant(t.now))
	if r.State == cron.RunRunning {
		out.Running, out.Node = true, r.Node
		_, err := t.exec(ctx, `UPDATE runs SET stop_by = coalesce(stop_by, ?) WHERE id = ? AND state IN ('running', 'yielded')`,
			cmp.Or(c.by, "cron"), r.message)
		if err != nil {
			return out, err
		}
		return out, t.storeRun(ctx, r)
	}
	if err := t.storeRun(ctx, r); err != nil {
		return out, err
	}
	return out, t.endMessage(ctx, out.Session, out.Seq, string(c.reason))
}

// endMessage ends the message of a cancelled run, if it waits.
func (t *tx) endMessage(ctx context.Context, key chat.SessionKey, seq int64, reason string) error {
	r, ok, err := t.find(ctx, key)
	if err != nil || !ok {
		return err
	}
	list, err := t.startable(ctx, r.key, []int64{seq})
	if err != nil || len(list) == 0 {
		return err
	}
	if err := t.end(ctx, r, list, ending{outcome: chat.OutcomeStopped, reason: reason}); err != nil {
		return err
	}
	if _, err := t.settle(ctx, r); err != nil {
		return err
	}
	return t.save(ctx, r)
}

// endedRun is the row of the ledger that is over for a message; nil = there is none.
func (t *tx) endedRun(ctx context.Context, messageID string) (*cron.Run, error) {
	id := cron.RunOfMessage(messageID)
	if id == "" {
		return nil, nil //nolint:nilnil // most messages are of no job
	}
	r, known, err := findLedger(ctx, t, id)
	if err != nil || !known || r.State.Active() || r.message != messageID {
		return nil, err
	}
	return &r.Run, nil
}

// endUnrun ends the run of a message that got an outcome without running.
func (t *tx) endUnrun(ctx context.Context, m *store.Waiting) error {
	id := cron.RunOfMessage(m.MessageID)
	if id == "" {
		return nil
	}
	r, known, err := findLedger(ctx, t, id)
	if err != nil || !known || r.message != m.MessageID {
		return err
	}
	var changes bool
	if r.Run, changes = r.EndedWaiting(m.Outcome, m.Reason, instant(t.now)); !changes {
		return nil
	}
	m.CronRun = &r.Run
	return t.storeRun(ctx, r)
}
