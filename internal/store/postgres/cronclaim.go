package postgres

import (
	"context"
	"slices"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"laneway/internal/cron"
	"laneway/internal/store"
)

// dueWhere is the condition for jobs that are due, to fire or to resume.
const dueWhere = ` WHERE enabled AND invalid = '' AND next_run_at <= ` + nowSQL + `
	AND (paused_at IS NULL OR paused_until IS NOT NULL)`

// ofAgents is the condition that a node with the agents $2 may claim a job or a run; NULL = all agents.
const ofAgents = `($2::text[] IS NULL OR owner = '` + cron.SystemOwner + `' OR agent = ANY($2))`

const (
	// lookSQL returns when the first job and the first retry are due, NULL while the gateway is held. Each half reads the first entry of an index, however many jobs there are.
	lookSQL = `SELECT ` + nowSQL + `,
	CASE WHEN ` + store.NotHeld + ` THEN (SELECT next_run_at FROM cron_jobs WHERE enabled AND invalid = '' AND next_run_at IS NOT NULL
		AND (paused_at IS NULL OR paused_until IS NOT NULL) AND ` + ofAgents + ` ORDER BY next_run_at, id LIMIT 1) END,
	CASE WHEN ` + store.NotHeld + ` THEN (SELECT next_attempt_at FROM cron_run_logs WHERE next_attempt_at IS NOT NULL AND ` + ofAgents + ` ORDER BY next_attempt_at LIMIT 1) END`

	dueSQL = `SELECT ` + jobColumns + `, 0, NULL::bigint FROM cron_jobs` + dueWhere + ` AND ` + ofAgents + `
ORDER BY next_run_at, id LIMIT `

	// dueCountSQL counts the rows that dueSQL would return if no other transaction had locked any of them.
	dueCountSQL = `SELECT count(*) FROM (SELECT 1 FROM cron_jobs` + dueWhere + ` AND ` + ofAgents + ` ORDER BY next_run_at, id LIMIT `

	activeSQL = `SELECT job_id, id, state, COALESCE(started_at, 0), session_key FROM cron_run_logs
WHERE job_id = ANY($1::text[]) AND finished_at IS NULL ORDER BY claimed_at, id`

	// budgetSQL counts the runs of owners within the time of their budgets: those that were claimed within an hour of their planned time by the index of
	// planned times, the others by their own. It stops at a thousand, so that it costs the same on the busiest day.
	budgetSQL = `SELECT o.owner, (SELECT count(*) FROM (
	SELECT 1 FROM cron_run_logs l WHERE l.owner = o.owner AND l.scheduled_for > ` + nowSQL + ` - 90000000 AND l.claimed_at > ` + nowSQL + ` - 86400000
		AND l.claimed_at - l.scheduled_for <= 3600000 AND l.run_id IS NOT NULL ORDER BY l.scheduled_for DESC LIMIT 1000) used)
	+ (SELECT count(*) FROM (
	SELECT 1 FROM cron_run_logs l WHERE l.owner = o.owner AND l.claimed_at > ` + nowSQL + ` - 86400000
		AND l.claimed_at - l.scheduled_for > 3600000 AND l.run_id IS NOT NULL LIMIT 1000) late)
FROM unnest($2::text[]) AS o(owner)`

	// decidedSQL writes the decisions about jobs, which are locked. A paused job is only decided upon when its pause is over, so the
	// statement ends the pause.
	decidedSQL = `
UPDATE cron_jobs j SET next_slot = NULLIF(v.slot, 0), next_run_at = NULLIF(v.at, 0), fired = v.fired, consecutive_skipped = v.skipped,
	enabled = j.enabled AND NOT v.disable, paused_at = NULL, paused_until = NULL, paused_note = '', paused_by = ''
FROM unnest($1::text[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::boolean[]) AS v(id, slot, at, fired, skipped, disable)
WHERE j.id = v.id`

	// inOrderSQL makes the planner read the index of due jobs in its order. Its statistics of a table that has just been filled are wrong,
	// and sorting all due jobs for each batch would cost more than the claim.
	inOrderSQL = `SELECT set_config('enable_seqscan', 'off', true), set_config('enable_bitmapscan', 'off', true), set_config('enable_sort', 'off', true)`

	invalidSQL = `UPDATE cron_jobs j SET invalid = v.why FROM unnest($1::text[], $2::text[]) AS v(id, why) WHERE j.id = v.id`
)

// Claim claims due jobs and retries, see cron.JobStore. It takes one round trip when nothing is due. A dead node gets chat.ErrFenced.
//
// Lock order: jobs before sessions, as everywhere. Runs that wait for a retry are claimed in a transaction of their own, in which the
// ledger rows are locked first. So no two operations wait for each other in a circle.
func (s *Store) Claim(ctx context.Context, p cron.ClaimParams) (cron.Claimed, error) {
	c := claiming{s: s, p: p}
	err := s.do(ctx, "claiming cron jobs", c.try)
	if err != nil {
		return cron.Claimed{}, err
	}
	s.unknownLaunches.remove(c.found)
	return c.out, nil
}

// claiming is one Claim. Its result grows over the tries: what an earlier try has committed is not done again.
type claiming struct {
	s             *Store
	p             cron.ClaimParams
	out           cron.Claimed
	found         []cron.Launched // of earlier calls whose commit was unknown
	jobs, retries bool            // phases that are committed
	taken         bool            // check first whether message names are in use
}

func (c *claiming) try(ctx context.Context) error {
	due, retries, err := c.look(ctx)
	if err != nil {
		return err
	}
	if err := c.addCommitted(ctx); err != nil {
		return err
	}
	if due && !c.jobs {
		if err := c.claimJobs(ctx); err != nil {
			return err
		}
	}
	c.jobs = true
	if retries && !c.retries {
		return c.claimRetries(ctx)
	}
	return nil
}

func (c *claiming) look(ctx context.Context) (due, retries bool, err error) {
	var now int64
	var job, retry pgtype.Int8
	b := &pgx.Batch{}
	b.Queue(aliveSQL, c.s.clock(), c.p.Node)
	b.Queue(lookSQL, c.s.clock(), c.p.Agents).QueryRow(func(row pgx.Row) error { return row.Scan(&now, &job, &retry) })
	err = send(ctx, c.s.pool, b)
	c.out.Now, c.out.Next = fromMillis(now), cron.Earlier(moment(job), moment(retry))
	return job.Valid && job.Int64 <= now, retry.Valid && retry.Int64 <= now, err
}

// addCommitted adds the launches of an earlier call that was committed although the call got no answer.
func (c *claiming) addCommitted(ctx context.Context) error {
	found, err := c.s.committedLaunches(ctx, c.p.Node)
	if err != nil || len(found) == 0 {
		return err
	}
	c.found = append(c.found, found...)
	c.out.Launched = append(c.out.Launched, found...)
	return nil
}

func (c *claiming) claimJobs(ctx context.Context) error {
	err := c.commitJobs(ctx)
	if isUnique(err) && !c.taken {
		// Another message has the name that the message of a run needs. One such job must not delay the others.
		c.taken = true
		err = c.commitJobs(ctx)
	}
	return err
}

func (c *claiming) commitJobs(ctx context.Context) error {
	b := &claimBatch{claiming: c}
	err := pgx.BeginFunc(ctx, c.s.pool, func(tx pgx.Tx) error {
		if err := b.read(ctx, tx); err != nil || len(b.due) == 0 {
			return err
		}
		return b.write(ctx, tx)
	})
	if err != nil {
		c.s.unknownLaunches.add(b.out.Launched)
		return err
	}
	if len(c.out.Launched) == 0 {
		c.out.Launched = b.out.Launched
	} else {
		c.out.Launched = append(c.out.Launched, b.out.Launched...)
	}
	c.out.Recorded, c.out.Cancelled, c.out.Jobs = b.out.Recorded, b.out.Cancelled, b.out.Jobs
	c.out.Finished, c.out.Resumed = b.out.Finished, b.out.Resumed
	c.out.More, c.out.Passed = b.more, b.out.Passed
	return nil
}

// claimBatch is the transaction of one claim.
type claimBatch struct {
	*claiming

	due    []cron.DueJob
	broken []cron.Job
	more   bool
	out    cron.Claimed
}

// limit is how many rows a claim may still take, plus one that shows whether there are more. It is part of the text of a statement: a
// planner that knows the number reads the index in its order, one that does not may sort the whole table.
func limit(p cron.ClaimParams, taken int) string {
	if p.Limit <= 0 {
		return "ALL"
	}
	return strconv.Itoa(max(p.Limit-taken, 0) + 1)
}

func (b *claimBatch) read(ctx context.Context, tx pgx.Tx) error {
	var now int64
	batch := &pgx.Batch{}
	batch.Queue(inOrderSQL)
	batch.Queue(readClockSQL, b.s.clock()).QueryRow(func(row pgx.Row) error { return row.Scan(&now) })
	batch.Queue(dueSQL+limit(b.p, 0)+` FOR UPDATE SKIP LOCKED`, b.s.clock(), b.p.Agents).Query(b.add)
	if err := send(ctx, tx, batch); err != nil {
		return err
	}
	b.out.Now = fromMillis(now)
	if err := b.markBroken(ctx, tx); err != nil {
		return err
	}
	more := &pgx.Batch{}
	if !b.more { // then no row was passed over that the claim could have taken
		more.Queue(dueCountSQL+limit(b.p, 0)+`) due`, b.s.clock(), b.p.Agents).QueryRow(func(row pgx.Row) error {
			var dueNow int
			err := row.Scan(&dueNow)
			b.out.Passed = max(0, dueNow-len(b.due)) // what is broken is marked and not due any more
			return err
		})
	}
	return b.s.complete(ctx, tx, more, b.due)
}

// fewDue is for how many jobs a claim makes place at first.
const fewDue = 32

// add adds the due jobs, at most as many as the claim may take. Their rows are wide: more than a few get the place for all that the claim may take at once.
func (b *claimBatch) add(rows pgx.Rows) error {
	b.due = make([]cron.DueJob, 0, fewDue)
	scan := b.s.jobScanner()
	for found := 0; rows.Next(); found++ {
		j, err := scan(rows)
		switch {
		case err != nil:
			return err
		case b.p.Limit > 0 && found == b.p.Limit:
			b.more = true
		case j.broken != "":
			b.broken = append(b.broken, j.Job)
		default:
			if n := len(b.due); n == fewDue && b.p.Limit > n {
				b.due = slices.Grow(b.due, b.p.Limit-n)
			}
			b.due = append(b.due, cron.DueJob{Job: j.Job})
		}
	}
	return rows.Err()
}

func (b *claimBatch) markBroken(ctx context.Context, tx pgx.Tx) error {
	if len(b.broken) == 0 {
		return nil
	}
	_, err := tx.Exec(ctx, invalidSQL, column(b.broken, func(j cron.Job) string { return j.ID }),
		column(b.broken, func(j cron.Job) string { return clean(j.Invalid) }))
	b.out.Jobs = append(b.out.Jobs, b.broken...)
	return err
}

// complete adds to due jobs what the overlap policy and the budget need, their active runs and the runs of their owners, in the round trip of a batch.
func (s *Store) complete(ctx context.Context, tx pgx.Tx, b *pgx.Batch, due []cron.DueJob) error {
	if len(due) == 0 {
		return send(ctx, tx, b)
	}
	place := map[string]int{}
	var owners []string
	for i, d := range due {
		place[d.Job.ID] = i
		if d.Job.Owner != cron.SystemOwner && !slices.Contains(owners, d.Job.Owner) {
			owners = append(owners, d.Job.Owner)
		}
	}
	used := map[string]int{}
	b.Queue(activeSQL, column(due, func(d cron.DueJob) string { return d.Job.ID })).Query(func(rows pgx.Rows) error {
		return eachActive(rows, due, place)
	})
	b.Queue(budgetSQL, s.clock(), owners).Query(func(rows pgx.Rows) error {
		return eachCount(rows, func(owner string, n int) { used[owner] = n })
	})
	if err := send(ctx, tx, b); err != nil {
		return err
	}
	for i := range due {
		due[i].RunsToday = used[due[i].Job.Owner]
	}
	return nil
}

func eachActive(rows pgx.Rows, due []cron.DueJob, place map[string]int) error {
	var (
		job, id, session string
		state            cron.RunState
		started          int64
	)
	_, err := pgx.ForEachRow(rows, []any{&job, &id, &state, &started, &session}, func() error {
		d := &due[place[job]]
		d.Active, d.Session = append(d.Active, id), session
		d.Job.State.Queued = len(d.Active)
		if state != cron.RunRunning {
			return nil
		}
		d.Running++
		if st := &d.Job.State; st.RunningAt.IsZero() || fromMillis(started).Before(st.RunningAt) {
			st.RunningAt = fromMillis(started)
		}
		return nil
	})
	return err
}

// write writes the verdicts.
func (b *claimBatch) write(ctx context.Context, tx pgx.Tx) error {
	jobs := make(map[string]*cron.Job, len(b.due))
	for i := range b.due {
		jobs[b.due[i].Job.ID] = &b.due[i].Job
	}
	verdicts := slices.DeleteFunc(b.p.Decide(b.out.Now, b.due), func(v cron.Verdict) bool {
		return jobs[v.JobID] == nil
	})
	var (
		launches = make([]cron.Launch, 0, len(verdicts))
		rows     []cron.Run
		cancel   []string
	)
	for _, v := range verdicts {
		if v.Invalid == "" {
			launches, rows, cancel = append(launches, v.Runs...), append(rows, v.Rows...), append(cancel, v.Cancel...)
		}
	}
	if err := b.cancel(ctx, tx, cancel); err != nil {
		return err
	}
	l := launching{s: b.s, node: b.p.Node, now: b.out.Now, checkNames: b.taken}
	if err := l.run(ctx, tx, launches, rows); err != nil {
		return err
	}
	b.out.Launched, b.out.Recorded = l.launched, l.recorded
	b.out.Finished = append(b.out.Finished, l.recorded...)
	return b.decided(ctx, tx, verdicts, jobs)
}

func (b *claimBatch) cancel(ctx context.Context, tx pgx.Tx, ids []string) (err error) {
	if len(ids) == 0 {
		return nil
	}
	b.out.Cancelled, b.out.Finished, err = b.s.cancelRuns(ctx, tx, ids, cron.CancelParams{Reason: cron.ReasonReplaced, By: "cron"})
	return err
}

// whole is an instant with the precision of the tables.
func whole(t time.Time) time.Time { return fromMillis(ms(t)) }

func eachCount(rows pgx.Rows, use func(channel string, n int)) error {
	var (
		channel string
		n       int
	)
	_, err := pgx.ForEachRow(rows, []any{&channel, &n}, func() error {
		use(channel, n)
		return nil
	})
	return err
}
