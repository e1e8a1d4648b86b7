package postgres

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"laneway/internal/cron"
	"laneway/internal/store"
)

// begun is what a start remembers of a compact run for its end: the row of the ledger as the start has left it, which nothing else changes while the run
// is compact and runs, and its job with the version of the row.
type begun struct {
	run     cron.Run
	entries int64      // of the transcript
	job     *storedJob // nil = it is gone; it is only read
	active  jobActivity
	at      time.Time   // by the clock of this process, when the start was committed
	used    atomic.Bool // a repetition of the end reads, so that it does not compute the change of the job again
}

// jobActivity is what the ledger says about the runs of a job.
type jobActivity struct {
	queued    int // runs that are not over
	runningAt time.Time
}

// seen is the job with its activity.
func (a jobActivity) seen(j *cron.Job) cron.Job {
	out := clone(*j)
	out.State.Queued, out.State.RunningAt = a.queued, a.runningAt
	return out
}

// maxClockError is by how many milliseconds the time of an end may differ from the database's clock when the end is written.
const maxClockError = "1000"

// finishBegunSQL ends compact runs whose claim holds and whose job is as the start has read it, with their jobs. It passes over rows that another
// transaction has locked. An end that changes one of its two rows only divides by zero, which undoes all. Parameters: $1 clock, $2 runs, $3 nodes, $4
// jobs, $5 their versions, then one array for each column of the ledger and of the jobs; $27 the outgoing messages.
const (
	finishBegunSQL     = endBegun + endedBegun
	finishBegunSendSQL = endBegun + `, sent AS (
	INSERT INTO outbox (` + outgoingColumns + `)
	SELECT o.id, e.id, o.n, o.session, o.channel, o.chat, o.thread, o.kind, o.payload, o.many, o.count, o.word, o.epoch,
		` + nowSQL + ` + o.delay, o.expires, ` + nowSQL + `, ` + partsSQL + `
	FROM e JOIN ` + outgoingFrom + `($27::json)` + outgoingAs + ` ON o.run = e.id
	ORDER BY e.i, o.i
	ON CONFLICT DO NOTHING
)` + endedBegun

	endBegun = `
WITH v AS MATERIALIZED (
	SELECT * FROM unnest($2::text[], $3::text[], $4::text[], $5::xid[], $6::bigint[], $7::bigint[], $8::text[], $9::text[], $10::text[], $11::text[],
		$12::bigint[], $13::bigint[], $14::text[], $15::text[], $16::text[], $17::bigint[], $18::text[], $19::text[],
		$20::bigint[], $21::bigint[], $22::text[], $23::text[], $24::bigint[], $25::bigint[], $26::bigint[]) WITH ORDINALITY
		AS v(id, node, job, version, finished, took, attempts, summary, model, provider, input, output, delivery, suppressed, undelivered, n, added, preview,
		runs, at, job_delivery, job_undelivered, alert, failed, skipped, i)
	WHERE i BETWEEN 1 AND 1000000
), b AS MATERIALIZED (
	SELECT v.*, l.place, j.place AS job_place FROM v CROSS JOIN LATERAL (
		SELECT ctid AS place FROM cron_jobs WHERE id = v.job AND xmin = v.version FOR UPDATE SKIP LOCKED
	) j CROSS JOIN LATERAL (
		SELECT ctid AS place FROM cron_run_logs WHERE id = v.id AND compact = 1 AND state = 'running' AND node = v.node FOR UPDATE SKIP LOCKED
	) l
	WHERE v.node = ANY (` + liveNodes + `)
		AND abs(v.finished - ` + nowSQL + `) <= ` + maxClockError + `
), e AS (
	UPDATE cron_run_logs l SET state = 'ok', finished_at = b.finished, duration_ms = b.took, attempts = b.attempts, summary = b.summary,
		model = b.model, provider = b.provider, input_tokens = b.input, output_tokens = b.output, delivery = b.delivery,
		suppressed_by = b.suppressed, delivery_error = b.undelivered, entries = l.entries + b.n, transcript = l.transcript || b.added, preview = b.preview
	FROM b WHERE l.ctid = b.place AND l.compact = 1
	RETURNING b.i, b.id
), c AS (
	UPDATE cron_jobs j SET run_count = b.runs, last_run_at = NULLIF(b.at, 0), last_state = 'ok', last_error = '', last_error_class = '',
		last_duration_ms = b.took, last_delivery = b.job_delivery, last_delivery_error = b.job_undelivered, last_alert_at = NULLIF(b.alert, 0),
		consecutive_errors = b.failed, consecutive_skipped = b.skipped
	FROM b WHERE j.ctid = b.job_place
	RETURNING 1
)`

	endedBegun = `
SELECT e.i, 1 / ((SELECT count(*) FROM c) = (SELECT count(*) FROM e))::int FROM e`
)

// begunEnd is the end of a run whose start is remembered.
type begunEnd struct {
	*finishOp

	place   int // in the group
	version uint32
	run     cron.Run
	job     *cron.Job
	row     runEnd
}

// finishBegun ends the runs of a group for which no row is to be read before, and marks them as done. It takes one round trip. It leaves the other ones
// as they are: their job has changed since the start, or changes more than the end of a run usually does.
func (s *Store) finishBegun(ctx context.Context, list []*finishOp, done []bool) error {
	var ends []*begunEnd
	used := map[string]bool{}
	for i, e := range list {
		end, ok, err := e.begunEnd()
		if err != nil {
			return err
		}
		if ok && !used[end.job.ID] {
			end.place, used[end.job.ID] = i, true
			ends = append(ends, end)
		}
	}
	if len(ends) == 0 {
		return nil
	}
	sql, args := finishBegunSQL, s.begunArgs(ends)
	if slices.ContainsFunc(ends, func(e *begunEnd) bool { return len(e.p.Outgoing) > 0 }) {
		sql, args = finishBegunSendSQL, append(args, joined(ends, func(e *begunEnd) string { return e.outgoing }))
	}
	b := &pgx.Batch{}
	b.Queue(sql, args...).Query(func(rows pgx.Rows) error {
		var i int
		_, err := pgx.ForEachRow(rows, []any{&i, nil}, func() error {
			ends[i-1].ended(done)
			return nil
		})
		return err
	})
	return send(ctx, s.turns, b)
}

// begunEnd computes the end from what the start remembers; ok is false when the rows must be read.
func (e *finishOp) begunEnd() (end *begunEnd, ok bool, err error) {
	start, known := e.p.Begun.(*begun)
	if !known || start.job == nil || start.run.ID != e.p.Cron.RunID || jobOf(e.p.Cron) != start.job.ID || start.used.Swap(true) {
		return nil, false, nil
	}
	now := start.now(e.s)
	r := start.run
	r.Attempts = slices.Clone(r.Attempts)
	r = ended(r, e.p.Cron, now)
	if r.Error != "" || r.ErrorClass != "" || r.Reason != "" {
		return nil, false, nil
	}
	next := e.p.Cron.Job(withoutEndedRun(start.active.seen(&start.job.Job)), r, now)
	if next == nil {
		return nil, false, nil
	}
	next.ID = start.job.ID
	if st := &next.State; st.LastState != cron.RunOK || st.LastError != "" || st.LastErrorClass != "" || st.LastDuration != r.Duration ||
		st.ErrorCount != start.job.State.ErrorCount || !usualChange(start.job, next) {
		return nil, false, nil
	}
	text, err := cron.EncodeAttempts(r.Attempts)
	if err != nil {
		return nil, false, err
	}
	e.opened = start.entries
	return &begunEnd{finishOp: e, version: start.job.version, run: r, job: next, row: e.runEnd(clean(text), true)}, true, nil
}

// now is the store's clock as it went on since the start.
func (b *begun) now(s *Store) time.Time {
	if s.now != nil {
		return whole(s.now())
	}
	return whole(b.run.StartedAt.Add(time.Since(b.at))) //nolint:forbidigo // the time that has passed is the same on every clock
}

// ended makes the result of an end that is written. It counts when the transaction is committed.
func (e *begunEnd) ended(done []bool) {
	done[e.place] = true
	at := e.run.FinishedAt
	e.out = store.Finished{EndedAt: at, Released: true, Entries: numbered(e.p.Transcript, e.opened+int64(len(e.p.Transcript)), at)}
}

func (s *Store) begunArgs(ends []*begunEnd) []any {
	text := func(of func(e *begunEnd) string) []string { return column(ends, of) }
	number := func(of func(e *begunEnd) int64) []int64 { return column(ends, of) }
	return []any{
		s.clock(), text(func(e *begunEnd) string { return e.run.ID }), text(func(e *begunEnd) string { return e.p.Node }),
		text(func(e *begunEnd) string { return e.job.ID }), column(ends, func(e *begunEnd) uint32 { return e.version }),
		number(func(e *begunEnd) int64 { return ms(e.run.FinishedAt) }), number(func(e *begunEnd) int64 { return e.run.Duration.Milliseconds() }),
		text(func(e *begunEnd) string { return e.row.attempts }), text(func(e *begunEnd) string { return e.run.Summary }),
		text(func(e *begunEnd) string { return e.run.Model }), text(func(e *begunEnd) string { return e.run.Provider }),
		number(func(e *begunEnd) int64 { return e.run.InputTokens }), number(func(e *begunEnd) int64 { return e.run.OutputTokens }),
		text(func(e *begunEnd) string { return string(e.run.Delivery) }), text(func(e *begunEnd) string { return e.run.SuppressedBy }),
		text(func(e *begunEnd) string { return e.run.DeliveryError }), number(func(e *begunEnd) int64 { return e.row.n }),
		text(func(e *begunEnd) string { return e.row.added }), text(func(e *begunEnd) string { return e.row.preview }),
		number(func(e *begunEnd) int64 { return e.job.State.RunCount }), number(func(e *begunEnd) int64 { return ms(e.job.State.LastRunAt) }),
		text(func(e *begunEnd) string { return string(e.job.State.LastDelivery) }),
		text(func(e *begunEnd) string { return clean(e.job.State.LastDeliveryError) }),
		number(func(e *begunEnd) int64 { return ms(e.job.State.LastAlertAt) }),
		number(func(e *begunEnd) int64 { return int64(e.job.State.ConsecutiveErrors) }),
		number(func(e *begunEnd) int64 { return int64(e.job.State.ConsecutiveSkipped) }),
	}
}
