package sqlite

import (
	"cmp"
	"context"
	"time"

	"laneway/internal/cron"
	"laneway/internal/store"
)

// lasted is the time from the first start of a run to its end.
func lasted(r *cron.Run) time.Duration {
	if r.StartedAt.IsZero() || r.FinishedAt.Before(r.StartedAt) {
		return 0
	}
	return r.FinishedAt.Sub(r.StartedAt)
}

// beginAttempt writes the begin of an attempt into the ledger. A row that has an outcome keeps it.
func (t *tx) beginAttempt(ctx context.Context, p *store.StartParams) error {
	if done, err := t.beginFirst(ctx, p); done || err != nil {
		return err
	}
	r, known, err := findLedger(ctx, t, p.Cron.RunID)
	if err != nil || !known || !r.State.Active() {
		return err
	}
	at := instant(t.now)
	closeAttempt(&r.Run, cron.AttemptInterrupted, at) // left open by a process that died
	r.Attempt = max(r.Attempt+1, p.Cron.Attempt)
	r.Node = cmp.Or(p.Cron.Node, p.Node)
	r.Attempts = append(r.Attempts, cron.Attempt{Number: r.Attempt, StartedAt: at, Node: r.Node})
	if r.StartedAt.IsZero() {
		r.StartedAt = at
	}
	r.State, r.NextAttempt, r.message = cron.RunRunning, instant(0), p.RunID
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

// closeAttempt ends the open attempt, if there is one.
func closeAttempt(r *cron.Run, state cron.AttemptState, at time.Time) {
	if n := len(r.Attempts); n > 0 && r.Attempts[n-1].FinishedAt.IsZero() {
		r.Attempts[n-1].State, r.Attempts[n-1].FinishedAt = state, at
	}
}

// endAttempt writes the end of an attempt into the ledger and, when the run is finished, into its job.
func (t *tx) endAttempt(ctx context.Context, p *store.FinishParams) error {
	r, known, err := findLedger(ctx, t, p.Cron.RunID)
	if err != nil || !known || !r.State.Active() {
		return err
	}
	t.apply(r, p)
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
	next := p.Cron.Job(cloneJob(&j.Job), r.Run, instant(t.now))
	if next == nil {
		return t.removeJob(ctx, j.ID)
	}
	_, err = t.replaceJob(ctx, j, next)
	return err
}

// apply changes the row by the end of the attempt. The times are the store's; the usage of the attempts adds up to that of the run.
func (t *tx) apply(r *ledgerRow, p *store.FinishParams) {
	e, at := p.Cron, instant(t.now)
	attempt := e.Attempt
	attempt.FinishedAt = at
	fill(&attempt.Node, p.Node)
	if n := len(r.Attempts); n > 0 && r.Attempts[n-1].FinishedAt.IsZero() {
		open := r.Attempts[n-1]
		attempt.Number, attempt.StartedAt = open.Number, open.StartedAt
		r.Attempts = r.Attempts[:n-1]
	}
	r.Attempts = append(r.Attempts, attempt)
	cancelled := r.Reason
	r.State, r.Reason, r.NextAttempt = e.State, e.Reason, instant(0)
	if e.State != cron.RunCancelled {
		r.Error = e.Error
	} else { // the requester of the stop gave the reason
		r.Reason = cmp.Or(cancelled, e.Reason, cron.ReasonStopped)
		r.Error = cmp.Or(r.Error, e.Error)
	}
	r.ErrorClass, r.Delivery, r.DeliveryError, r.SuppressedBy = e.ErrorClass, e.Delivery, e.DeliveryError, e.SuppressedBy
	if e.Summary != "" {
		r.Summary = summaryOf(e.Summary)
	}
	r.Model, r.Provider = cmp.Or(e.Usage.Model, r.Model), cmp.Or(e.Usage.Provider, r.Provider)
	r.InputTokens += int64(e.Usage.InputTokens)
	r.OutputTokens += int64(e.Usage.OutputTokens)
	r.Node = p.Node
	switch {
	case r.State == cron.RunRetrying:
		r.NextAttempt = instant(millis(e.NextAttempt))
	case r.State.Final():
		r.FinishedAt = at
		r.Duration = lasted(&r.Run)
	}
}

// waitAgain puts the run of a message that was running back: its attempt was interrupted, and the message waits for another one.
func (t *tx) waitAgain(ctx context.Context, messageID string) error {
	id := runOf(messageID)
	if id == "" {
		return nil
	}
	r, known, err := findLedger(ctx, t, id)
	if err != nil || !known || r.State != cron.RunRunning || r.message != messageID {
		return err
	}
	closeAttempt(&r.Run, cron.AttemptInterrupted, instant(t.now))
	r.State = cron.RunQueued
	return t.storeRun(ctx, r)
}

// sent is the delivery state of an outgoing message.
type sent struct {
	status     cron.DeliveryStatus // "" = not yet decided
	providerID string
	reason     string
}

// delivered writes the delivery of an answer into the ledger. Only replies and webhooks count: a notice is no answer. One part that failed
// makes the whole answer not delivered.
func (t *tx) delivered(ctx context.Context, messageID, kind string, out sent) error {
	id := runOf(messageID)
	if id == "" || out.status == "" || kind == store.KindNotice {
		return nil
	}
	var jobID, became string
	var startedAt int64
	err := t.change(ctx, `
		UPDATE cron_run_logs SET
			delivery = CASE WHEN ?1 = 'delivered' AND delivery = 'not-delivered' AND delivery_error <> '' THEN delivery ELSE ?1 END,
			delivery_error = CASE WHEN ?1 = 'delivered' AND delivery = 'not-delivered' THEN delivery_error ELSE ?2 END,
			provider_message_id = CASE WHEN ?3 <> '' THEN ?3 ELSE provider_message_id END
		WHERE id = ?4 AND run_id = ?5 RETURNING job_id, delivery, delivery_error, coalesce(started_at, 0)`,
		string(out.status), out.reason, out.providerID, id, messageID).Scan(&jobID, &became, &out.reason, &startedAt)
	if none(err) {
		return nil
	}
	if err == nil {
		_, err = t.exec(ctx, `UPDATE cron_jobs SET last_delivery = ?, last_delivery_error = ? WHERE id = ? AND last_run_at = ?`, became, out.reason, jobID, startedAt)
	}
	return err
}
