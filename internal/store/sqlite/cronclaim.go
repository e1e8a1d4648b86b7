package sqlite

import (
	"context"
	"slices"
	"time"

	"laneway/internal/chat"
	"laneway/internal/cron"
	"laneway/internal/store/sqlstore"
)

const (
	// maxClaim is how many jobs one claim takes. The writer runs no other operation meanwhile: some ten milliseconds.
	maxClaim = 500
	// plannedJobs is the condition of the index of jobs that may become due.
	plannedJobs = `enabled = 1 AND next_run_at IS NOT NULL AND invalid = '' AND (paused_at IS NULL OR paused_until IS NOT NULL)`
	// ofAgents is the condition that a node with the agents ?2 may claim a job or a run; see agentList.
	ofAgents = `(?2 IS NULL OR owner = '` + cron.SystemOwner + `' OR agent IN (SELECT value FROM json_each(?2)))`
	// maxBudget is how far the runs of an owner are counted. Budgets are smaller, and the count costs the same for every owner.
	maxBudget = 1000
)

// Claim takes the jobs and the retries that are due; see the port. A dead node gets chat.ErrFenced.
func (s *Store) Claim(ctx context.Context, p cron.ClaimParams) (cron.Claimed, error) {
	if p.Limit <= 0 || p.Limit > maxClaim {
		p.Limit = maxClaim
	}
	of, err := pollOf(pollJobs, p.Node, p.Agents)
	if err != nil {
		return cron.Claimed{}, err
	}
	if next, resting, err := s.resting(ctx, of); resting || err != nil {
		return cron.Claimed{Now: instant(s.now().UnixMilli()), Next: next}, err
	}
	return look(ctx, s, of, func(ctx context.Context, t *tx) (f found[cron.Claimed], err error) {
		if err := t.proveAlive(ctx, p.Node); err != nil {
			return f, err
		}
		f.out.Now = instant(t.now)
		if held, err := t.held(ctx); err != nil || held {
			return f, err
		}
		f.out, err = t.claimJobs(ctx, &p)
		f.idle, f.next = len(f.out.Jobs)+len(f.out.Launched) == 0, millis(f.out.Next)
		return f, err
	})
}

func (t *tx) claimJobs(ctx context.Context, p *cron.ClaimParams) (out cron.Claimed, err error) {
	out.Now = instant(t.now)
	agents, err := agentList(p.Agents)
	if err != nil {
		return out, err
	}
	list, err := t.dueRetries(ctx, p, agents)
	if err != nil {
		return out, err
	}
	if out.Next, err = nextWake(ctx, t, "", agents); err != nil {
		return out, err
	}
	c := &claiming{tx: t, out: &out, list: list, agents: agents}
	taken := len(list)
	if taken < p.Limit {
		n, err := c.jobs(ctx, p, p.Limit-taken)
		if err != nil {
			return out, err
		}
		taken += n
	}
	out.More = taken == p.Limit
	out.Launched, err = t.launchAll(ctx, p.Node, c.list)
	out.Finished = t.finished
	return out, err
}

// dueRetries makes the next attempts of runs whose retry is due. The message of an attempt has the content of the one before.
func (t *tx) dueRetries(ctx context.Context, p *cron.ClaimParams, agents any) ([]*launching, error) {
	rows, err := t.query(ctx, `SELECT `+ledgerColumns+` FROM cron_run_logs WHERE state = 'retrying' AND next_attempt_at <= ?1 AND `+ofAgents+`
		ORDER BY next_attempt_at LIMIT +?3`, t.now, agents, p.Limit)
	due, err := collect(rows, err, scanLedger)
	if err != nil {
		return nil, err
	}
	list := make([]*launching, 0, len(due))
	for _, r := range due {
		it := &launching{run: r.Run, row: r}
		it.run.NextAttempt = instant(0)
		last, err := scanMessage(t.one(ctx, `SELECT `+messageColumns+` FROM inbox WHERE message_id = ?`, r.message))
		if err != nil && !none(err) {
			return nil, err
		}
		if err == nil {
			id := attemptID(r.ID, r.Attempt+1)
			it.message = chat.Message{
				Session: last.Session, ID: id, Dedupe: dedupeOf(id), Lane: last.Lane, Principal: last.Principal, Channel: last.Channel,
				ExternalID: last.ExternalID, Content: last.Content,
			}
		}
		list = append(list, it)
	}
	return list, nil
}

// claiming is one claim under way.
type claiming struct {
	*tx
	out    *cron.Claimed
	list   []*launching // launched at the end, all with one statement
	agents any          // of the node, see ofAgents
}

// jobs decides about the due jobs, and returns how many there were.
func (c *claiming) jobs(ctx context.Context, p *cron.ClaimParams, limit int) (int, error) {
	found, err := c.dueJobs(ctx, c.agents, limit)
	if err != nil || len(found) == 0 {
		return 0, err
	}
	jobs, due, err := c.readable(ctx, found)
	if err != nil || len(due) == 0 {
		return len(found), err
	}
	if err := c.addBudgets(ctx, due); err != nil {
		return 0, err
	}
	c.out.Jobs = slices.Grow(c.out.Jobs, len(due))
	for _, v := range p.Decide(c.out.Now, due) {
		job, ok := jobs[v.JobID]
		if !ok {
			continue
		}
		delete(jobs, v.JobID)
		if err := c.settleJob(ctx, job, &v); err != nil {
			return 0, err
		}
	}
	return len(found), nil
}

// readable leaves out jobs that cannot be decoded, and marks them: lists show the mark, and they fire no more.
func (c *claiming) readable(ctx context.Context, found []*jobWithRuns) (map[string]*jobWithRuns, []cron.DueJob, error) {
	jobs := make(map[string]*jobWithRuns, len(found))
	due := make([]cron.DueJob, 0, len(found))
	for _, j := range found {
		if j.unreadable {
			if err := c.invalidate(ctx, j, j.Invalid); err != nil {
				return nil, nil, err
			}
			continue
		}
		jobs[j.ID] = j
		due = append(due, dueJob(&j.Job, j.active))
	}
	return jobs, due, nil
}

func (c *claiming) invalidate(ctx context.Context, j *jobWithRuns, why string) error {
	j.Invalid = why
	if _, err := c.exec(ctx, `UPDATE cron_jobs SET invalid = ? WHERE id = ?`, why, j.ID); err != nil {
		return err
	}
	c.out.Jobs = append(c.out.Jobs, j.Job)
	return c.countChange(ctx)
}

// addBudgets counts what the owners of due jobs ran in the last 24 hours. The gateway's own jobs have no budget.
func (c *claiming) addBudgets(ctx context.Context, due []cron.DueJob) error {
	spent := map[string]int{}
	for i := range due {
		owner := due[i].Job.Owner
		n, known := spent[owner]
		if !known && owner != cron.SystemOwner {
			var err error
			if n, err = c.runsToday(ctx, owner); err != nil {
				return err
			}
			spent[owner] = n
		}
		due[i].RunsToday = n
	}
	return nil
}

// runsToday counts the runs that were claimed within an hour of their planned time by the index of planned times, the others by their own.
func (t *tx) runsToday(ctx context.Context, owner string) (n int, err error) {
	const day = 24 * 60 * 60 * 1000
	err = t.one(ctx, `SELECT
		(SELECT count(*) FROM (SELECT 1 FROM cron_run_logs WHERE owner = ?1 AND scheduled_for > ?2 - 3600000 AND claimed_at > ?2
			AND claimed_at - scheduled_for <= 3600000 AND state NOT IN ('skipped', 'missed') ORDER BY scheduled_for DESC LIMIT +?3)) +
		(SELECT count(*) FROM (SELECT 1 FROM cron_run_logs WHERE owner = ?1 AND claimed_at > ?2
			AND claimed_at - scheduled_for > 3600000 AND state NOT IN ('skipped', 'missed') LIMIT +?3))`,
		owner, t.now-day, maxBudget).Scan(&n)
	return n, err
}

// settleJob writes the decision about one job. The launches are collected: one statement writes them for all jobs.
func (c *claiming) settleJob(ctx context.Context, j *jobWithRuns, v *cron.Verdict) error {
	if v.Invalid != "" {
		return c.invalidate(ctx, j, v.Invalid)
	}
	for _, id := range v.Cancel {
		if !slices.ContainsFunc(j.active, func(r activeRun) bool { return r.id == id }) {
			continue
		}
		if err := c.replaceRun(ctx, id); err != nil {
			return err
		}
	}
	for i := range v.Rows {
		r := v.Rows[i]
		fresh, err := c.record(ctx, &j.Job, &r)
		if err != nil {
			return err
		}
		if fresh {
			c.out.Recorded = append(c.out.Recorded, r)
		}
	}
	for i := range v.Runs {
		c.list = append(c.list, prepared(&j.Job, &v.Runs[i]))
	}
	return c.advance(ctx, j, v)
}

// replaceRun ends a run that is replaced by the next one of its job.
func (c *claiming) replaceRun(ctx context.Context, id string) error {
	r, known, err := findLedger(ctx, c, id)
	if err != nil || !known || !r.State.Active() {
		return err
	}
	one, err := c.cancel(ctx, r, cancellation{reason: cron.ReasonReplaced, by: "cron"})
	if err == nil {
		c.out.Cancelled = append(c.out.Cancelled, one)
	}
	return err
}

// advance moves the job to its next slot, and ends a pause whose end has come.
func (c *claiming) advance(ctx context.Context, j *jobWithRuns, v *cron.Verdict) error {
	resumed := j.Pause != nil
	s := &j.State
	s.Next, s.NextRunAt, s.Fired, s.ConsecutiveSkipped = instant(millis(v.Next)), instant(millis(v.NextRunAt)), v.Fired, v.ConsecutiveSkipped
	var err error
	if !resumed && !v.Disable {
		_, err = c.exec(ctx, `UPDATE cron_jobs SET next_slot = ?, next_run_at = ?, fired = ?, consecutive_skipped = ? WHERE id = ?`,
			zero(millis(s.Next)), zero(millis(s.NextRunAt)), s.Fired, s.ConsecutiveSkipped, j.ID)
		c.out.Jobs = append(c.out.Jobs, j.Job.Clone())
		return err
	}
	j.Enabled, j.Pause = j.Enabled && !v.Disable, nil
	_, err = c.exec(ctx, `UPDATE cron_jobs SET next_slot = ?, next_run_at = ?, fired = ?, consecutive_skipped = ?, enabled = ?,
		paused_note = '', paused_by = '', paused_at = NULL, paused_until = NULL WHERE id = ?`,
		zero(millis(s.Next)), zero(millis(s.NextRunAt)), s.Fired, s.ConsecutiveSkipped, bit(j.Enabled), j.ID)
	if err != nil {
		return err
	}
	c.out.Jobs = append(c.out.Jobs, j.Job.Clone())
	if resumed {
		c.out.Resumed = append(c.out.Resumed, j.Job.Clone())
	}
	return c.countChange(ctx)
}

// nextWake is when the next job or retry is due; zero = nothing is planned.
func nextWake(ctx context.Context, q querier, visible string, agents any) (at time.Time, err error) {
	err = q.one(ctx, `SELECT min(at) FROM (
		SELECT at FROM (SELECT next_run_at AS at FROM cron_jobs WHERE `+plannedJobs+` AND (?1 = '' OR owner = ?1) AND `+ofAgents+` ORDER BY next_run_at LIMIT 1)
		UNION ALL SELECT at FROM (SELECT next_attempt_at AS at FROM cron_run_logs WHERE state = 'retrying' AND (?1 = '' OR owner = ?1) AND `+ofAgents+`
			ORDER BY next_attempt_at LIMIT 1))`, visible, agents).Scan(timeColumn{&at})
	return at, err
}

// EnqueueRuns makes runs that a caller asked for; see the port.
func (s *Store) EnqueueRuns(ctx context.Context, p cron.EnqueueParams) (cron.Enqueued, error) {
	return result(ctx, s.write, ordinary("enqueue runs"), func(ctx context.Context, t *tx) (cron.Enqueued, error) {
		return sqlstore.Idempotent(ctx, t.shared(), p.IdempotencyKey, func() (cron.Enqueued, error) { return t.enqueueRuns(ctx, &p) })
	})
}

func (t *tx) enqueueRuns(ctx context.Context, p *cron.EnqueueParams) (out cron.Enqueued, err error) {
	j, err := findJob(ctx, t, p.JobID, p.Visible)
	if err != nil {
		return out, err
	}
	out.Job = j.Job
	active, err := t.activeRuns(ctx, []string{j.ID})
	if err != nil {
		return out, err
	}
	due := []cron.DueJob{dueJob(&j.Job, active[j.ID])}
	c := &claiming{tx: t}
	if err := c.addBudgets(ctx, due); err != nil {
		return out, err
	}
	if due[0].Ran, err = t.ran(ctx, j.ID, p.Slots); err != nil {
		return out, err
	}
	launches, err := p.Make(due[0], instant(t.now))
	if out.Declined(err) {
		return out, nil
	}
	if err != nil {
		return out, err
	}
	for i := range launches {
		it := prepared(&j.Job, &launches[i])
		out.IDs = append(out.IDs, it.run.ID)
		if !launches[i].Exists {
			c.list = append(c.list, it)
		}
	}
	if out.Launched, err = t.launchAll(ctx, p.Node, c.list); err != nil {
		return out, err
	}
	out.Finished = t.finished
	made := make(map[string]bool, len(out.Launched))
	for i := range out.Launched {
		made[out.Launched[i].Run.ID] = true
	}
	out.Existing = slices.DeleteFunc(slices.Clone(out.IDs), func(id string) bool { return made[id] })
	switch {
	case p.New && len(out.Existing) > 0:
		return out, chat.ErrConflict
	case len(made) == 0:
		return out, nil
	}
	return out, t.audit(ctx, p.Audit.Between(j.Revision, j.Revision), j.ID)
}

// ran lists the runs of some slots of a job.
func (t *tx) ran(ctx context.Context, job string, slots []time.Time) ([]cron.SlotRun, error) {
	if len(slots) == 0 {
		return nil, nil
	}
	list := make([]int64, len(slots))
	for i, slot := range slots {
		list[i] = millis(slot)
	}
	text, err := encode(list)
	if err != nil {
		return nil, err
	}
	rows, err := t.query(ctx, `SELECT scheduled_for, trigger, state FROM cron_run_logs
		WHERE job_id = ? AND scheduled_for IN (SELECT value FROM json_each(?))`, job, text)
	return collect(rows, err, func(row scanner) (r cron.SlotRun, err error) {
		return r, row.Scan(timeColumn{&r.Slot}, &r.Trigger, &r.State)
	})
}
