package sqlite

import (
	"cmp"
	"context"

	"laneway/internal/cron"
	"laneway/internal/store"
)

// beginAttempt writes the begin of an attempt into the ledger. A row that has an outcome keeps it.
func (t *tx) beginAttempt(ctx context.Context, p *store.StartParams) error {
	if done, err := t.beginFirst(ctx, p); done || err != nil {
		return err
	}
	r, known, err := findLedger(ctx, t, p.Cron.RunID)
	if err != nil || !known || !r.State.Active() {
		return err
	}
	begin := *p.Cron
	begin.Node = cmp.Or(begin.Node, p.Node)
	r.Run, _ = r.Began(begin, instant(t.now))
	r.message = p.RunID
	return t.storeRun(ctx, r)
}

// beginFirst is beginAttempt for the first attempt of a run, the usual case: it needs not read the row. done is false when the row has an
// earlier attempt.
func (t *tx) beginFirst(ctx context.Context, p *store.StartParams) (done bool, err error) {
	a := cron.Attempt{Number: max(1, p.Cron.Attempt), StartedAt: instant(t.now), Node: cmp.Or(p.Cron.Node, p.Node)}
	attempts, err := cron.EncodeAttempts([]cron.Attempt{a})
	if err != nil {
		return false, err
	}
	n, err := t.exec(ctx, `
		UPDATE cron_run_logs SET state = 'running', attempt = ?, attempts = ?, started_at = ?, node = ?, run_id = ?
		WHERE id = ? AND state = 'queued' AND attempt = 0 AND attempts = '[]' AND started_at IS NULL`,
		a.Number, attempts, t.now, a.Node, p.RunID, p.Cron.RunID)
	return n == 1, err
}

// endAttempt writes the end of an attempt into the ledger and, when the run is finished, into its job.
func (t *tx) endAttempt(ctx context.Context, p *store.FinishParams) error {
	r, known, err := findLedger(ctx, t, p.Cron.RunID)
	if err != nil || !known {
		return err
	}
	var changes bool
	if r.Run, changes = r.Ended(p.Cron, p.Node, instant(t.now)); !changes {
		return nil
	}
	if err := t.storeRun(ctx, r); err != nil {
		return err
	}
	return t.endOfJob(ctx, p, r)
}

// endOfJob changes the job of a run that is over.
func (t *tx) endOfJob(ctx context.Context, p *store.FinishParams, r *ledgerRow) error {
	if !r.State.Final() || p.Cron.Job == nil {
		return nil
	}
	j, err := t.scanDue(packed{t.one(ctx, `SELECT `+asOne+`id, `+jobColumns+column+` FROM cron_jobs WHERE id = ?`, r.JobID)})
	if none(err) {
		return nil
	}
	if err != nil || j.unreadable {
		return err
	}
	next := p.Cron.Job(j.Clone(), r.Run, instant(t.now))
	if next == nil {
		return t.removeJob(ctx, j.ID)
	}
	_, err = t.replaceJob(ctx, j, next)
	return err
}

// waitAgain puts the run of a message that was running back: its attempt was interrupted, and the message waits for another one.
func (t *tx) waitAgain(ctx context.Context, messageID string) error {
	id := cron.RunOfMessage(messageID)
	if id == "" {
		return nil
	}
	r, known, err := findLedger(ctx, t, id)
	if err != nil || !known || r.message != messageID {
		return err
	}
	var changes bool
	if r.Run, changes = r.WaitsAgain(instant(t.now)); !changes {
		return nil
	}
	return t.storeRun(ctx, r)
}
