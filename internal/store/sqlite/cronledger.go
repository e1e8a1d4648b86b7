package sqlite

import (
	"context"
	"time"

	"laneway/internal/chat"
	"laneway/internal/cron"
	"laneway/internal/store/sqlstore"
)

// maxSummary is how much of an answer the ledger keeps, in bytes.
const maxSummary = 16384

// ledgerColumns are written by ledgerArgs and read by ledgerRow.fields, in this order.
const ledgerColumns = `id, job_id, job_name, job_key, owner, agent, lane, session_key, scheduled_for, trigger, state, reason, dst, slot_count, slot_until,
	fire_at, claimed_at, started_at, finished_at, next_attempt_at, duration_ms, attempt, attempts, error, error_class, summary, model, provider,
	input_tokens, output_tokens, run_id, delivery, delivery_error, provider_message_id, suppressed_by, node`

const ledgerMarks = `?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?`

// ledgerRow is a run with the message of its current attempt.
type ledgerRow struct {
	cron.Run
	message    string
	attempts   string
	reason     *string
	durationMs int64
}

func (r *ledgerRow) fields() []any {
	return []any{
		&r.ID, &r.JobID, &r.JobName, &r.JobKey, &r.Owner, &r.Agent, &r.Lane, &r.SessionKey,
		timeColumn{&r.ScheduledFor},
		&r.Trigger, &r.State,
		&r.reason, &r.DST, &r.SlotCount,
		timeColumn{&r.SlotUntil},
		timeColumn{&r.FireAt},
		timeColumn{&r.ClaimedAt},
		timeColumn{&r.StartedAt},
		timeColumn{&r.FinishedAt},
		timeColumn{&r.NextAttempt},
		&r.durationMs, &r.Attempt, &r.attempts, &r.Error, &r.ErrorClass, &r.Summary,
		&r.Model, &r.Provider, &r.InputTokens, &r.OutputTokens, &r.message, &r.Delivery, &r.DeliveryError, &r.ProviderMessageID, &r.SuppressedBy,
		&r.Node,
	}
}

func scanLedger(row scanner) (*ledgerRow, error) {
	r := &ledgerRow{}
	if err := row.Scan(r.fields()...); err != nil {
		return nil, err
	}
	return r, r.decode()
}

// decode completes a row that was scanned.
func (r *ledgerRow) decode() (err error) {
	if r.reason != nil {
		r.Reason = cron.Reason(*r.reason)
	}
	r.Run.Duration = span(r.durationMs)
	r.Attempts, err = cron.DecodeAttempts(r.attempts)
	return err
}

// span is a stored length of time.
func span(ms int64) time.Duration { return time.Duration(ms) * time.Millisecond }

func ledgerArgs(r *cron.Run, message string) ([]any, error) {
	attempts, err := cron.EncodeAttempts(r.Attempts)
	if err != nil {
		return nil, err
	}
	return []any{
		r.ID, r.JobID, r.JobName, r.JobKey, r.Owner, r.Agent, r.Lane, r.SessionKey, millis(r.ScheduledFor), string(r.Trigger), string(r.State),
		null(string(r.Reason)), string(r.DST), max(r.SlotCount, 1), zero(millis(r.SlotUntil)), zero(millis(r.FireAt)), zero(millis(r.ClaimedAt)),
		zero(millis(r.StartedAt)), zero(millis(r.FinishedAt)), zero(millis(r.NextAttempt)), r.Duration.Milliseconds(), r.Attempt, attempts,
		chat.CleanText(r.Error), r.ErrorClass, summaryOf(r.Summary), r.Model, r.Provider, r.InputTokens, r.OutputTokens, message,
		string(r.Delivery), r.DeliveryError, r.ProviderMessageID, r.SuppressedBy, r.Node,
	}, nil
}

func summaryOf(text string) string { return chat.Cut(chat.CleanText(text), maxSummary) }

// insertRun adds a row to the ledger; fresh is false when the slot has one.
func (t *tx) insertRun(ctx context.Context, r *cron.Run, message string) (fresh bool, err error) {
	args, err := ledgerArgs(r, message)
	if err != nil {
		return false, err
	}
	n, err := t.exec(ctx, `INSERT INTO cron_run_logs (`+ledgerColumns+`) VALUES (`+ledgerMarks+`) ON CONFLICT DO NOTHING`, args...)
	if n == 1 && err == nil {
		t.noteEnd(r)
	}
	return n == 1, err
}

// noteEnd keeps a row that was written, if it is finished, for the result of the operation. A finished row is not written again.
func (t *tx) noteEnd(r *cron.Run) {
	if r.State.Final() {
		t.finished = append(t.finished, *r)
	}
}

// insertQueued adds a row of a run that is queued: most columns are empty yet.
func (t *tx) insertQueued(ctx context.Context, r *cron.Run, message string) error {
	_, err := t.exec(ctx, `
		INSERT INTO cron_run_logs (id, job_id, job_name, job_key, owner, agent, lane, session_key, scheduled_for, trigger, state, dst,
			fire_at, claimed_at, run_id, node)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 'queued', ?, ?, ?, ?, ?)`,
		r.ID, r.JobID, r.JobName, r.JobKey, r.Owner, r.Agent, r.Lane, r.SessionKey, millis(r.ScheduledFor), string(r.Trigger), string(r.DST),
		zero(millis(r.FireAt)), t.now, message, r.Node)
	return err
}

// record adds a row of a slot that does not run, if the slot has none.
func (t *tx) record(ctx context.Context, j *cron.Job, r *cron.Run) (fresh bool, err error) {
	complete(r, j)
	at := instant(t.now)
	r.ClaimedAt, r.FinishedAt = at, at
	return t.insertRun(ctx, r, "")
}

// complete fills in what a run has from its job.
func complete(r *cron.Run, j *cron.Job) {
	fill(&r.JobID, j.ID)
	fill(&r.JobName, j.Name)
	fill(&r.JobKey, j.Key)
	fill(&r.Owner, j.Owner)
	fill(&r.Agent, j.Agent)
	fill(&r.Lane, j.Lane)
	fill(&r.Trigger, cron.TriggerSchedule)
	fill(&r.ID, cron.RunID(r.Trigger, r.JobID, r.ScheduledFor))
	r.SlotCount = max(r.SlotCount, 1)
	r.ScheduledFor, r.SlotUntil, r.FireAt = instant(millis(r.ScheduledFor)), instant(millis(r.SlotUntil)), instant(millis(r.FireAt))
}

func fill[T ~string](to *T, with T) {
	if *to == "" {
		*to = with
	}
}

// storeRun writes the columns that attempts change.
func (t *tx) storeRun(ctx context.Context, r *ledgerRow) error {
	attempts, err := cron.EncodeAttempts(r.Attempts)
	if err != nil {
		return err
	}
	_, err = t.exec(ctx, `
		UPDATE cron_run_logs SET state = ?, reason = ?, fire_at = ?, started_at = ?, finished_at = ?, next_attempt_at = ?, duration_ms = ?, attempt = ?,
			attempts = ?, error = ?, error_class = ?, summary = ?, model = ?, provider = ?, input_tokens = ?, output_tokens = ?, run_id = ?,
			delivery = ?, delivery_error = ?, suppressed_by = ?, node = ?
		WHERE id = ?`,
		string(r.State), null(string(r.Reason)), zero(millis(r.FireAt)), zero(millis(r.StartedAt)), zero(millis(r.FinishedAt)), zero(millis(r.NextAttempt)),
		r.Duration.Milliseconds(), r.Attempt, attempts, chat.CleanText(r.Error), r.ErrorClass, summaryOf(r.Summary), r.Model, r.Provider,
		r.InputTokens, r.OutputTokens, r.message, string(r.Delivery), r.DeliveryError, r.SuppressedBy, r.Node, r.ID)
	if err == nil {
		t.noteEnd(&r.Run)
	}
	return err
}

// findLedger reads one row of the ledger; known is false when there is none.
func findLedger(ctx context.Context, q querier, id string) (r *ledgerRow, known bool, err error) {
	r, err = scanLedger(packed{q.one(ctx, `SELECT `+asOne+ledgerColumns+column+` FROM cron_run_logs WHERE id = ?`, id)})
	if none(err) {
		return nil, false, nil
	}
	return r, err == nil, err
}

// audit writes the audit row in the transaction of the change.
func (t *tx) audit(ctx context.Context, a *cron.Audit, object string) error {
	return sqlstore.Audit(ctx, t.shared(), a, object)
}
