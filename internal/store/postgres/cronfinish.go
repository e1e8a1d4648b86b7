package postgres

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"

	"laneway/internal/cron"
	"laneway/internal/store"
	"laneway/internal/store/sqlstore"
)

// The statements about ledger rows look them up by id first and then by place (ctid). Without statistics the planner would otherwise use
// the partial index of active rows and read all of it for each row.

// beginManySQL is beginSQL for several attempts. Parameters: arrays of the runs of the ledger, attempts, nodes, messages and epochs.
const beginManySQL = `
UPDATE cron_run_logs l SET state = 'running', error = '', error_class = '', attempt = v.attempt, node = v.node, started_at = COALESCE(l.started_at, r.started_at),
	attempts = CASE WHEN l.attempts IN ('', '[]') THEN '[' ELSE left(l.attempts, -1) || ',' END
		|| '{"attempt":' || v.attempt || ',"startedAtMs":' || r.started_at || ',"node":' || to_json(v.node) || '}]'
FROM unnest($1::text[], $2::bigint[], $3::text[], $4::text[], $5::bigint[]) AS v(id, attempt, node, message, epoch)
JOIN runs r ON r.id = v.message AND r.state = 'running' AND r.owner = v.node AND r.epoch = v.epoch
CROSS JOIN LATERAL (SELECT ctid AS place FROM cron_run_logs WHERE id = v.id OFFSET 0) b
WHERE l.ctid = b.place AND l.run_id = v.message AND l.state = 'queued'`

// The ends of several attempts. Jobs are locked before sessions, as everywhere; no statement waits for the row of a job or of a session.
const (
	lockFreeJobsSQL = `SELECT ` + jobView + ` FROM cron_jobs WHERE id = ANY($1::text[]) ORDER BY id FOR UPDATE SKIP LOCKED`
	jobsSQL         = `SELECT ` + jobView + ` FROM cron_jobs WHERE id = ANY($1::text[])`
	existingJobsSQL = `SELECT id FROM cron_jobs WHERE id = ANY($1::text[])`

	// runningSQL returns the numbers of the proved claims whose run is running under the claim. Parameters: $1 runs, $2 sessions, $3 nodes,
	// $4 epochs.
	runningSQL = `
SELECT n.i FROM ` + numbersSQL + ` CROSS JOIN LATERAL (SELECT i, ($1::text[])[i] AS run OFFSET 0) n JOIN runs r ON r.id = n.run
WHERE n.i = ANY (` + heldSQL + `) AND r.state = 'running'
	AND r.session_key = ($2::text[])[n.i] AND r.owner = ($3::text[])[n.i] AND r.epoch = ($4::bigint[])[n.i]`

	logsSQL = `SELECT ` + logColumns + ` FROM cron_run_logs l WHERE l.id = ANY($1::text[])`

	// narrowSQL sets the numbers of the claims that the next statement reads with heldSQL.
	narrowSQL = `SELECT set_config('laneway.held', $1, true)`

	// endManySQL is endSQL for several attempts: one array for each column.
	endManySQL = `
UPDATE cron_run_logs l SET state = v.state, reason = NULLIF(v.reason, ''), finished_at = NULLIF(v.finished, 0),
	next_attempt_at = NULLIF(v.next, 0), duration_ms = v.took, attempts = v.attempts, error = v.error, error_class = v.class,
	summary = v.summary, model = v.model, provider = v.provider, input_tokens = v.input, output_tokens = v.output,
	delivery = v.delivery, suppressed_by = v.suppressed, delivery_error = v.undelivered, node = v.node
FROM unnest($1::text[], $2::text[], $3::text[], $4::bigint[], $5::bigint[], $6::bigint[], $7::text[], $8::text[], $9::text[], $10::text[],
	$11::text[], $12::text[], $13::bigint[], $14::bigint[], $15::text[], $16::text[], $17::text[], $18::text[])
	AS v(id, state, reason, finished, next, took, attempts, error, class, summary, model, provider, input, output, delivery, suppressed, undelivered, node)
CROSS JOIN LATERAL (SELECT ctid AS place FROM cron_run_logs WHERE id = v.id OFFSET 0) b
WHERE l.ctid = b.place AND l.finished_at IS NULL`

	// jobStatesSQL writes the columns of a job that the end of a run usually changes, and no other column. Parameters: one array for each
	// column.
	jobStatesSQL = `
UPDATE cron_jobs j SET run_count = v.runs, error_count = v.errors, last_run_at = NULLIF(v.at, 0), last_state = v.state, last_error = v.error,
	last_error_class = v.class, last_duration_ms = v.took, last_delivery = v.delivery, last_delivery_error = v.undelivered,
	last_alert_at = NULLIF(v.alert, 0), consecutive_errors = v.failed, consecutive_skipped = v.skipped
FROM unnest($1::text[], $2::bigint[], $3::bigint[], $4::bigint[], $5::text[], $6::text[], $7::text[], $8::bigint[], $9::text[], $10::text[],
	$11::bigint[], $12::bigint[], $13::bigint[])
	AS v(id, runs, errors, at, state, error, class, took, delivery, undelivered, alert, failed, skipped)
WHERE j.id = v.id`
)

// queueBegins queues the ledger updates of starts, and reads their jobs: in a group that costs one statement for all of them.
func queueBegins(b *pgx.Batch, list []*startOp) {
	var some []*startOp
	for _, g := range list {
		if g.p.Cron != nil {
			some = append(some, g)
		}
	}
	switch len(some) {
	case 0:
		return
	case 1:
		b.Queue(beginSQL, some[0].p.Cron.RunID, some[0].p.Cron.Attempt, some[0].p.Node, some[0].p.RunID, some[0].p.Epoch)
	default:
		b.Queue(beginManySQL, column(some, func(g *startOp) string { return g.p.Cron.RunID }),
			column(some, func(g *startOp) int64 { return int64(g.p.Cron.Attempt) }), column(some, func(g *startOp) string { return g.p.Node }),
			column(some, func(g *startOp) string { return g.p.RunID }), column(some, func(g *startOp) int64 { return g.p.Epoch }))
	}
	some[0].s.readJobs(b, some)
}

// readJobs queues the read of the jobs of starts.
func (s *Store) readJobs(b *pgx.Batch, list []*startOp) {
	of := map[string][]*startOp{}
	for _, g := range list {
		if _, job, _, err := cron.ParseRunID(g.p.Cron.RunID); err == nil {
			of[job] = append(of[job], g)
		}
	}
	b.Queue(jobsSQL, slices.Sorted(maps.Keys(of))).Query(each(s.jobScanner(), func(j storedJob) {
		for _, g := range of[j.ID] {
			job := j.Clone()
			g.out.Job = &job
		}
	}))
}

// finishCronOps are ends of attempts that share a transaction of two round trips: the first reads jobs and ledger rows, the second writes
// the results.
type finishCronOps struct {
	s    *Store
	list []*finishOp

	held  map[int]bool // numbers of the ends whose claim holds and whose run is running
	jobs  map[string]storedJob
	known map[string]bool // jobs that exist, locked by another transaction or not
	rows  map[string]loggedRun
	nowMs int64

	done []bool
}

// finishCronGroup is one transaction for attempts of different sessions and jobs. It leaves out an attempt whose job is locked by another
// transaction or is the job of another attempt of the group.
func (s *Store) finishCronGroup(ctx context.Context, list []*finishOp) ([]bool, error) {
	a := finishCronOps{
		s: s, list: list, held: map[int]bool{}, jobs: map[string]storedJob{}, known: map[string]bool{}, rows: map[string]loggedRun{},
		done: make([]bool, len(list)),
	}
	err := s.readThenWrite(ctx, a.read, a.write)
	return a.done, err
}

// jobOf is the job that the end of an attempt changes; "" = none.
func jobOf(e *cron.AttemptEnd) string {
	if e.Job == nil || !e.State.Final() {
		return ""
	}
	_, job, _, err := cron.ParseRunID(e.RunID)
	if err != nil {
		return ""
	}
	return job
}

func (a *finishCronOps) read(b *pgx.Batch) {
	var jobs []string
	for _, e := range a.list {
		if id := jobOf(e.p.Cron); id != "" {
			jobs = append(jobs, id)
		}
	}
	if len(jobs) > 0 {
		b.Queue(lockFreeJobsSQL, jobs).Query(each(a.s.jobScanner(), func(j storedJob) { a.jobs[j.ID] = j }))
		b.Queue(existingJobsSQL, jobs).Query(each(scanText, func(id string) { a.known[id] = true }))
	}
	claims := column(a.list, func(e *finishOp) store.Claim { return e.p.Claim })
	a.s.holdAll(b, claims)
	b.Queue(runningSQL, column(a.list, func(e *finishOp) string { return e.p.RunID }), column(claims, func(c store.Claim) string { return c.Session.String() }),
		column(claims, func(c store.Claim) string { return c.Node }), column(claims, func(c store.Claim) int64 { return c.Epoch })).
		Query(each(pgx.RowTo[int], func(i int) { a.held[i-1] = true }))
	b.Queue(logsSQL, column(a.list, func(e *finishOp) string { return e.p.Cron.RunID })).Query(each(scanLog, func(r loggedRun) { a.rows[r.ID] = r }))
	b.Queue(readClockSQL, a.s.clock()).QueryRow(func(row pgx.Row) error { return row.Scan(&a.nowMs) })
}

// each calls use for every row of a queued statement.
func each[T any](scan pgx.RowToFunc[T], use func(T)) func(pgx.Rows) error {
	return func(rows pgx.Rows) error {
		for rows.Next() {
			v, err := scan(rows)
			if err != nil {
				return err
			}
			use(v)
		}
		return rows.Err()
	}
}

// endable are the numbers of the attempts that this transaction ends.
func (a *finishCronOps) endable() (list []int) {
	used := map[string]bool{}
	for i, e := range a.list {
		job := jobOf(e.p.Cron)
		_, locked := a.jobs[job]
		if !a.held[i] || used[job] || a.known[job] && !locked {
			continue
		}
		used[job] = job != ""
		list = append(list, i)
	}
	return list
}

func (a *finishCronOps) write(b *pgx.Batch) error {
	ours := a.endable()
	if len(ours) == 0 {
		return nil
	}
	list := column(ours, func(i int) *finishOp { return a.list[i] })
	a.queue(b, ours, list)
	return a.record(b, list)
}

// queue queues the ends of the runs.
func (a *finishCronOps) queue(b *pgx.Batch, ours []int, list []*finishOp) {
	sql := finishOneSQL
	if len(list) > 1 {
		sql = finishManySQL
		numbers := make([]string, len(list))
		for i := range list {
			numbers[i] = strconv.Itoa(i + 1)
		}
		b.Queue(narrowSQL, strings.Join(numbers, ","))
	}
	b.Queue(sql, a.s.finishArgs(list)...).Query(func(rows pgx.Rows) error {
		ended := make([]bool, len(list))
		err := scanResults(rows, list, ended, (*finishOp).scan)
		for i, n := range ours {
			a.done[n] = ended[i]
		}
		return err
	})
}

// record queues the ends of the attempts and the resulting changes of their jobs. A ledger row that is finished already stays unchanged.
func (a *finishCronOps) record(b *pgx.Batch, list []*finishOp) error {
	now := fromMillis(a.nowMs)
	var (
		runs    []cron.Run
		texts   []string // their attempts
		changed []cron.Job
		gone    []string
	)
	for _, e := range list {
		row, ok := a.rows[e.p.Cron.RunID]
		if !ok {
			continue
		}
		r, changes := row.Ended(e.p.Cron, e.p.Node, now)
		if !changes {
			continue
		}
		text, err := cron.EncodeAttempts(r.Attempts)
		if err != nil {
			return err
		}
		runs, texts = append(runs, r), append(texts, clean(text))
		old, ok := a.jobs[jobOf(e.p.Cron)]
		if !ok {
			continue
		}
		next := e.p.Cron.Job(old.Clone().WithoutEnded(), r, now)
		if next == nil {
			gone = append(gone, old.ID)
			continue
		}
		if changed, err = addJobState(b, changed, old, *next); err != nil {
			return err
		}
	}
	queueEnds(b, runs, texts)
	queueJobStates(b, changed)
	if len(gone) > 0 {
		b.Queue(`DELETE FROM cron_jobs WHERE id = ANY($1::text[])`, gone)
	}
	return nil
}

// addJobState adds a job to those that differ only in the columns of jobStatesSQL. It queues any other change of a job as a statement of
// its own.
func addJobState(b *pgx.Batch, changed []cron.Job, old storedJob, next cron.Job) ([]cron.Job, error) {
	next.ID = old.ID
	if usualChange(&old, &next) {
		return append(changed, next), nil
	}
	args, same, err := old.same(next)
	if err == nil && !same {
		b.Queue(jobUpdateSQL(), args...)
	}
	return changed, err
}

// usualChange reports whether a job differs only in the columns of jobStatesSQL, and in what follows from the ledger.
func usualChange(old *storedJob, next *cron.Job) bool {
	return old.broken == "" && cron.SameBesidesCounters(&old.Job, next)
}

func queueEnds(b *pgx.Batch, runs []cron.Run, attempts []string) {
	if len(runs) == 0 {
		return
	}
	text := func(of func(r cron.Run) string) []string { return column(runs, of) }
	number := func(of func(r cron.Run) int64) []int64 { return column(runs, of) }
	b.Queue(endManySQL, text(func(r cron.Run) string { return r.ID }), text(func(r cron.Run) string { return string(r.State) }),
		text(func(r cron.Run) string { return string(r.Reason) }), number(func(r cron.Run) int64 { return ms(r.FinishedAt) }),
		number(func(r cron.Run) int64 { return ms(r.NextAttempt) }), number(func(r cron.Run) int64 { return r.Duration.Milliseconds() }),
		attempts, text(func(r cron.Run) string { return r.Error }), text(func(r cron.Run) string { return r.ErrorClass }),
		text(func(r cron.Run) string { return r.Summary }), text(func(r cron.Run) string { return r.Model }),
		text(func(r cron.Run) string { return r.Provider }), number(func(r cron.Run) int64 { return r.InputTokens }),
		number(func(r cron.Run) int64 { return r.OutputTokens }), text(func(r cron.Run) string { return string(r.Delivery) }),
		text(func(r cron.Run) string { return r.SuppressedBy }), text(func(r cron.Run) string { return r.DeliveryError }), text(func(r cron.Run) string { return r.Node }))
}

func queueJobStates(b *pgx.Batch, jobs []cron.Job) {
	if len(jobs) == 0 {
		return
	}
	text := func(of func(s *cron.JobState) string) []string {
		return column(jobs, func(j cron.Job) string { return clean(of(&j.State)) })
	}
	number := func(of func(s *cron.JobState) int64) []int64 {
		return column(jobs, func(j cron.Job) int64 { return of(&j.State) })
	}
	b.Queue(jobStatesSQL, column(jobs, func(j cron.Job) string { return j.ID }),
		number(func(s *cron.JobState) int64 { return s.RunCount }), number(func(s *cron.JobState) int64 { return s.ErrorCount }),
		number(func(s *cron.JobState) int64 { return ms(s.LastRunAt) }), text(func(s *cron.JobState) string { return string(s.LastState) }),
		text(func(s *cron.JobState) string { return s.LastError }), text(func(s *cron.JobState) string { return s.LastErrorClass }),
		number(func(s *cron.JobState) int64 { return s.LastDuration.Milliseconds() }), text(func(s *cron.JobState) string { return string(s.LastDelivery) }),
		text(func(s *cron.JobState) string { return s.LastDeliveryError }), number(func(s *cron.JobState) int64 { return ms(s.LastAlertAt) }),
		number(func(s *cron.JobState) int64 { return int64(s.ConsecutiveErrors) }),
		number(func(s *cron.JobState) int64 { return int64(s.ConsecutiveSkipped) }))
}

// fitsGroup reports whether an end may join a group: a large one would delay the others.
func (e *finishOp) fitsGroup() bool {
	n := len(e.outgoing) + len(e.transcript)
	if e.p.Cron != nil {
		n += min(len(e.p.Cron.Summary), cron.MaxSummary) + len(e.p.Cron.Error)
	}
	return n <= sqlstore.MaxGrouped
}
