package postgres

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"laneway/internal/chat"
	"laneway/internal/cron"
)

// logColumns are what scanLog reads, of a table named l.
const logColumns = `l.id, l.job_id, l.job_name, l.job_key, l.owner, l.agent, l.lane, l.session_key, l.scheduled_for, l.trigger, l.state,
	COALESCE(l.reason, ''), l.dst, l.slot_count, l.slot_until, l.fire_at, l.claimed_at, l.started_at, l.finished_at, l.next_attempt_at,
	l.duration_ms, l.attempt, l.attempts, l.error, l.error_class, l.summary, l.model, l.provider, l.input_tokens, l.output_tokens,
	l.delivery, l.delivery_error, l.provider_message_id, l.suppressed_by, l.node, COALESCE(l.run_id, '')`

// loggedRun is one row of the ledger with the message of its current attempt; "" = it has none.
type loggedRun struct {
	cron.Run

	message string
}

// logRow receives logColumns.
type logRow struct {
	loggedRun

	scheduled, took                               int64
	until, fire, claimed, started, finished, next pgtype.Int8
	attempts                                      string
}

func (v *logRow) targets() []any {
	r := &v.Run
	return []any{
		&r.ID, &r.JobID, &r.JobName, &r.JobKey, &r.Owner, &r.Agent, &r.Lane, &r.SessionKey, &v.scheduled, &r.Trigger, &r.State,
		&r.Reason, &r.DST, &r.SlotCount, &v.until, &v.fire, &v.claimed, &v.started, &v.finished, &v.next,
		&v.took, &r.Attempt, &v.attempts, &r.Error, &r.ErrorClass, &r.Summary, &r.Model, &r.Provider, &r.InputTokens, &r.OutputTokens,
		&r.Delivery, &r.DeliveryError, &r.ProviderMessageID, &r.SuppressedBy, &r.Node, &v.message,
	}
}

func (v *logRow) logged() (loggedRun, error) {
	r := v.loggedRun
	r.ScheduledFor, r.SlotUntil, r.FireAt = fromMillis(v.scheduled), moment(v.until), moment(v.fire)
	r.ClaimedAt, r.StartedAt, r.FinishedAt, r.NextAttempt = moment(v.claimed), moment(v.started), moment(v.finished), moment(v.next)
	r.Duration = duration(v.took)
	var err error
	if r.Attempts, err = cron.DecodeAttempts(v.attempts); err != nil {
		return r, fmt.Errorf("reading run %s: %w", r.ID, err)
	}
	return r, nil
}

func scanLog(row pgx.CollectableRow) (loggedRun, error) {
	var v logRow
	if err := row.Scan(v.targets()...); err != nil {
		return v.loggedRun, err
	}
	return v.logged()
}

// recordSQL inserts ledger rows; a row whose run or planned slot exists is left out. Rows without a message are finished at once. Existing
// rows are counted and not excluded by NOT EXISTS, which the planner would turn into a scan of the whole ledger. Parameters: $1 clock, $2
// node, then one array for each column.
const recordSQL = `
INSERT INTO cron_run_logs (id, job_id, job_name, job_key, owner, agent, lane, session_key, scheduled_for, trigger, state, reason, dst,
	slot_count, slot_until, fire_at, error, error_class, summary, delivery, suppressed_by, run_id, claimed_at, finished_at, node)
SELECT v.id, v.job, v.name, v.key, v.owner, v.agent, v.lane, v.session, v.slot, v.trigger, v.state, NULLIF(v.reason, ''), v.dst,
	v.n, NULLIF(v.until, 0), NULLIF(v.fire, 0), v.error, v.class, v.summary, v.delivery, v.suppressed, NULLIF(v.message, ''), t.now,
	CASE WHEN v.message = '' THEN t.now END, $2
FROM (SELECT ` + nowSQL + ` AS now) t, unnest($3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[], $9::text[],
	$10::text[], $11::bigint[], $12::text[], $13::text[], $14::text[], $15::text[], $16::bigint[], $17::bigint[], $18::bigint[],
	$19::text[], $20::text[], $21::text[], $22::text[], $23::text[], $24::text[])
	AS v(id, job, name, key, owner, agent, lane, session, slot, trigger, state, reason, dst, n, until, fire, error, class, summary,
	delivery, suppressed, message)
WHERE v.trigger NOT IN ('schedule', 'catchup') OR (
	SELECT count(*) FROM cron_run_logs o WHERE o.job_id = v.job AND o.scheduled_for = v.slot AND o.trigger IN ('schedule', 'catchup')) = 0
ON CONFLICT DO NOTHING
RETURNING id`

// record queues recordSQL; the ids of the rows that are new go to added.
func (s *Store) record(b *pgx.Batch, node string, rows []loggedRun, added *[]string) {
	b.Queue(recordSQL, append([]any{s.clock(), node}, rowArrays(rows)...)...).Query(collect(added, scanText))
}

func rowArrays(rows []loggedRun) []any {
	text := func(of func(r *cron.Run) string) []string {
		return columnOf(rows, func(n *loggedRun) string { return clean(of(&n.Run)) })
	}
	number := func(of func(r *cron.Run) int64) []int64 {
		return columnOf(rows, func(n *loggedRun) int64 { return of(&n.Run) })
	}
	return []any{
		text(func(r *cron.Run) string { return r.ID }), text(func(r *cron.Run) string { return r.JobID }),
		text(func(r *cron.Run) string { return r.JobName }), text(func(r *cron.Run) string { return r.JobKey }),
		text(func(r *cron.Run) string { return r.Owner }), text(func(r *cron.Run) string { return r.Agent }),
		text(func(r *cron.Run) string { return r.Lane }), text(func(r *cron.Run) string { return r.SessionKey }),
		number(func(r *cron.Run) int64 { return ms(r.ScheduledFor) }), text(func(r *cron.Run) string { return string(r.Trigger) }),
		text(func(r *cron.Run) string { return string(r.State) }), text(func(r *cron.Run) string { return string(r.Reason) }),
		text(func(r *cron.Run) string { return string(r.DST) }), number(func(r *cron.Run) int64 { return max(r.SlotCount, 1) }),
		number(func(r *cron.Run) int64 { return ms(r.SlotUntil) }), number(func(r *cron.Run) int64 { return ms(r.FireAt) }),
		text(func(r *cron.Run) string { return r.Error }), text(func(r *cron.Run) string { return r.ErrorClass }),
		text(func(r *cron.Run) string { return chat.Cut(clean(r.Summary), cron.MaxSummary) }), text(func(r *cron.Run) string { return string(r.Delivery) }),
		text(func(r *cron.Run) string { return r.SuppressedBy }), columnOf(rows, func(n *loggedRun) string { return n.message }),
	}
}

// column takes one value of each element.
func column[T, V any](list []T, of func(T) V) []V {
	out := make([]V, len(list))
	for i, v := range list {
		out[i] = of(v)
	}
	return out
}

// columnOf is column for wide elements: it copies none of them.
func columnOf[T, V any](list []T, of func(*T) V) []V {
	out := make([]V, len(list))
	for i := range list {
		out[i] = of(&list[i])
	}
	return out
}

// queueLog reads a row of the ledger inside a batch.
func queueLog(b *pgx.Batch, id string, into *[]loggedRun) {
	b.Queue(`SELECT `+logColumns+` FROM cron_run_logs l WHERE l.id = $1`, id).Query(collect(into, scanLog))
}

// Run reads one row of the ledger with its attempts; chat.ErrNotFound.
func (s *Store) Run(ctx context.Context, id, visible string) (cron.Run, error) {
	var out loggedRun
	err := s.do(ctx, "reading a cron run", func(ctx context.Context) (err error) {
		out, err = one(ctx, s, scanLog,
			`SELECT `+logColumns+` FROM cron_run_logs l WHERE l.id = $1 AND ($2 = '' OR l.owner = $2)`, id, visible)
		return orNone(err, chat.ErrNotFound)
	})
	return out.Run, err
}
