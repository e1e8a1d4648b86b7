package sqlite

import (
	"context"
	"errors"
	"time"

	"laneway/internal/chat"
	"laneway/internal/cron"
)

// activeRun is what a claim sees of an active run.
type activeRun struct {
	id, session string
	state       cron.RunState
	startedAt   time.Time
}

// jobWithRuns is a job with its active runs, those that were claimed first at first.
type jobWithRuns struct {
	*storedJob

	active []activeRun
}

// dueJobs reads the jobs that are due in the order of their times, with their active runs.
func (t *tx) dueJobs(ctx context.Context, agents any, limit int) ([]*jobWithRuns, error) {
	rows, err := t.query(ctx, `SELECT `+asOne+`id, `+jobColumns+column+` FROM cron_jobs WHERE `+plannedJobs+` AND next_run_at <= ?1 AND `+ofAgents+`
		ORDER BY next_run_at, id LIMIT +?3`, t.now, agents, limit)
	list, err := collect(rows, err, func(row scanner) (*jobWithRuns, error) {
		j, err := t.scanDue(packed{row})
		return &jobWithRuns{storedJob: j}, err
	})
	if err != nil || len(list) == 0 {
		return nil, err
	}
	ids := make([]string, len(list))
	for i, j := range list {
		ids[i] = j.ID
	}
	active, err := t.activeRuns(ctx, ids)
	for _, j := range list {
		j.active = active[j.ID]
	}
	return list, err
}

// activeRuns reads the active runs of jobs, those that were claimed first at first.
func (t *tx) activeRuns(ctx context.Context, jobs []string) (map[string][]activeRun, error) {
	names, err := encode(jobs)
	if err != nil {
		return nil, err
	}
	rows, err := t.query(ctx, `SELECT job_id, id, session_key, state, started_at FROM cron_run_logs
		WHERE state IN ('queued', 'running', 'retrying') AND job_id IN (SELECT value FROM json_each(?)) ORDER BY claimed_at, scheduled_for, id`, names)
	all := map[string][]activeRun{}
	var job string
	var r activeRun
	columns := []any{&job, &r.id, &r.session, (*string)(&r.state), timeColumn{&r.startedAt}}
	_, err = collect(rows, err, func(row scanner) (none struct{}, err error) {
		if err = row.Scan(columns...); err == nil {
			all[job] = append(all[job], r)
		}
		return none, err
	})
	return all, err
}

// dueJob is a job with its active runs, as a decision gets it.
func dueJob(j *cron.Job, active []activeRun) cron.DueJob {
	d := cron.DueJob{Job: j.Clone()}
	for i := range active {
		r := &active[i]
		d.Active, d.Session = append(d.Active, r.id), r.session
		if r.state != cron.RunRunning {
			continue
		}
		if d.Running++; d.Running == 1 {
			d.Job.State.RunningAt = r.startedAt
		}
	}
	d.Job.State.Queued = len(d.Active)
	return d
}

// jobOf reads the job of a run with the start of the run, because a transaction of its own costs more than the statement. It returns nil when the job was
// removed or cannot be decoded.
func (t *tx) jobOf(ctx context.Context, runID string) (*cron.Job, error) {
	_, id, _, err := cron.ParseRunID(runID)
	if err != nil {
		return nil, nil //nolint:nilerr,nilnil // the run of no job
	}
	j, err := findJob(ctx, t, id, "")
	if errors.Is(err, chat.ErrNotFound) || err == nil && j.unreadable {
		return nil, nil //nolint:nilnil // see above
	}
	if err != nil {
		return nil, err
	}
	return &j.Job, nil
}
