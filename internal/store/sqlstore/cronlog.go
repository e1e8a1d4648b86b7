package sqlstore

import (
	"context"
	"errors"
	"fmt"

	"laneway/internal/cron"
)

// logColumns are the columns of a ledger row that logScan reads.
const logColumns = `id, job_id, job_name, job_key, owner, agent, lane, session_key, scheduled_for, trigger, state,
	COALESCE(reason, ''), dst, slot_count, slot_until, fire_at, claimed_at, started_at, finished_at, next_attempt_at,
	duration_ms, attempt, attempts, error, error_class, summary, model, provider, input_tokens, output_tokens,
	delivery, delivery_error, provider_message_id, suppressed_by, node, run_id`

// loggedRun is a row of the ledger with the message of its current attempt; "" when it has none.
type loggedRun struct {
	cron.Run

	message string
}

// logScan receives rows of the ledger, one after the other.
type logScan struct {
	row      loggedRun
	took     int64
	attempts string

	targets []any
}

// logScanner returns a scan function for the rows of one statement. Further columns follow those of the ledger.
func logScanner(further ...any) func(Row) (loggedRun, error) {
	v := &logScan{}
	r := &v.row.Run
	v.targets = append([]any{
		&r.ID, &r.JobID, &r.JobName, &r.JobKey, &r.Owner, &r.Agent, &r.Lane, &r.SessionKey,
		instant{&r.ScheduledFor},
		(*string)(&r.Trigger), (*string)(&r.State),
		(*string)(&r.Reason), (*string)(&r.DST), &r.SlotCount,
		instant{&r.SlotUntil},
		instant{&r.FireAt},
		instant{&r.ClaimedAt},
		instant{&r.StartedAt},
		instant{&r.FinishedAt},
		instant{&r.NextAttempt},
		&v.took, &r.Attempt, &v.attempts, &r.Error, &r.ErrorClass, &r.Summary,
		&r.Model, &r.Provider, &r.InputTokens, &r.OutputTokens,
		(*string)(&r.Delivery), &r.DeliveryError, &r.ProviderMessageID, &r.SuppressedBy, &r.Node, &v.row.message,
	}, further...)
	return v.scan
}

func (v *logScan) scan(row Row) (loggedRun, error) {
	v.row = loggedRun{}
	if err := row.Scan(v.targets...); err != nil {
		return loggedRun{}, err
	}
	r := v.row
	r.Duration = lasting(v.took)
	var err error
	if r.Attempts, err = cron.DecodeAttempts(v.attempts); err != nil {
		return r, fmt.Errorf("read run %s: %w", r.ID, err)
	}
	return r, nil
}

// errNotNew means that a run exists, or that another message has the id that the message of a run needs. The operation is then repeated with a check of each
// run, so that one such run does not delay the others.
var errNotNew = errors.New("a run or its message is not new")

// addRunsSQL adds rows of runs that wait to start or never run. A row whose run exists is skipped.
const addRunsSQL = `{set id text, job text, name text, key text, owner text, agent text, lane text, session text, slot int, trigger text, state text, reason text,
		dst text, n int, until int, fire int, claimed int, finished int, error text, class text, summary text, delivery text, suppressed text, node text, message text}
	INSERT INTO cron_run_logs (id, job_id, job_name, job_key, owner, agent, lane, session_key, scheduled_for, trigger, state, reason, dst,
		slot_count, slot_until, fire_at, claimed_at, finished_at, error, error_class, summary, delivery, suppressed_by, node, run_id)
	SELECT v.id, v.job, v.name, v.key, v.owner, v.agent, v.lane, v.session, v.slot, v.trigger, v.state, NULLIF(v.reason, ''), v.dst,
		v.n, NULLIF(v.until, 0), NULLIF(v.fire, 0), v.claimed, NULLIF(v.finished, 0), v.error, v.class, v.summary, v.delivery, v.suppressed, v.node, v.message
	{from} WHERE true ON CONFLICT DO NOTHING`

// addRuns adds rows and returns the ids of the new ones. Without each, all of them must be new.
func addRuns(ctx context.Context, tx Tx, rows []loggedRun, each bool) (map[string]bool, error) {
	if len(rows) == 0 {
		return nil, nil
	}
	set := make(Set, len(rows))
	for i := range rows {
		r := &rows[i].Run
		set[i] = []any{
			r.ID, r.JobID, r.JobName, r.JobKey, r.Owner, r.Agent, r.Lane, r.SessionKey, millis(r.ScheduledFor), string(r.Trigger), string(r.State), string(r.Reason),
			string(r.DST), r.SlotCount, millis(r.SlotUntil), millis(r.FireAt), millis(r.ClaimedAt), millis(r.FinishedAt), r.Error, r.ErrorClass, r.Summary,
			string(r.Delivery), r.SuppressedBy, r.Node, rows[i].message,
		}
	}
	fresh := make(map[string]bool, len(rows))
	if each {
		err := tx.Query(ctx, addRunsSQL+` RETURNING id`, func(r Row) error {
			var id string
			err := r.Scan(&id)
			fresh[id] = true
			return err
		}, set)
		return fresh, err
	}
	n, err := tx.Exec(ctx, addRunsSQL, set)
	if err == nil && int(n) != len(rows) {
		err = errNotNew
	}
	for i := range rows {
		fresh[rows[i].ID] = true
	}
	return fresh, err
}

// storeRunsSQL writes the columns that attempts change.
const storeRunsSQL = `{set id text, state text, reason text, started int, finished int, next int, took int, attempt int, attempts text, error text, class text,
		summary text, model text, provider text, input int, output int, delivery text, suppressed text, undelivered text, node text, message text}
	UPDATE cron_run_logs AS l SET state = v.state, reason = NULLIF(v.reason, ''), started_at = NULLIF(v.started, 0), finished_at = NULLIF(v.finished, 0),
		next_attempt_at = NULLIF(v.next, 0), duration_ms = v.took, attempt = v.attempt, attempts = v.attempts, error = v.error, error_class = v.class,
		summary = v.summary, model = v.model, provider = v.provider, input_tokens = v.input, output_tokens = v.output,
		delivery = v.delivery, suppressed_by = v.suppressed, delivery_error = v.undelivered, node = v.node, run_id = v.message
	{from} WHERE l.id = v.id`

// storeRuns writes existing rows. They, or their sessions, are locked.
func storeRuns(ctx context.Context, tx Tx, rows ...loggedRun) error {
	if len(rows) == 0 {
		return nil
	}
	set := make(Set, len(rows))
	for i := range rows {
		r := &rows[i].Run
		attempts, err := cron.EncodeAttempts(r.Attempts)
		if err != nil {
			return err
		}
		set[i] = []any{
			r.ID, string(r.State), string(r.Reason), millis(r.StartedAt), millis(r.FinishedAt), millis(r.NextAttempt), r.Duration.Milliseconds(), int64(r.Attempt),
			attempts, r.Error, r.ErrorClass, r.Summary, r.Model, r.Provider, r.InputTokens, r.OutputTokens, string(r.Delivery), r.SuppressedBy,
			r.DeliveryError, r.Node, rows[i].message,
		}
	}
	return tx.Later(ctx, storeRunsSQL, nil, set)
}

// idIn is a condition for rows with these ids, and its parameter. A single id needs no list.
func idIn(ids []string) (condition string, arg any) {
	if len(ids) == 1 {
		return `id = $1`, ids[0]
	}
	return `id {in $1}`, ids
}

// readRuns reads rows by their ids.
func readRuns(ctx context.Context, tx Tx, ids []string) (map[string]loggedRun, error) {
	found := make(map[string]loggedRun, len(ids))
	scan := logScanner()
	which, arg := idIn(ids)
	err := tx.Query(ctx, `SELECT `+logColumns+` FROM cron_run_logs WHERE `+which, func(row Row) error {
		r, err := scan(row)
		found[r.ID] = r
		return err
	}, arg)
	return found, err
}
