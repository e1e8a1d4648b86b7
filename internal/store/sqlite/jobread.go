package sqlite

import (
	"context"

	"laneway/internal/cron"
)

// dueRow is a job that a claim takes, and where its row is within the transaction.
type dueRow struct {
	id    string
	place int64
}

func scanDueRow(row scanner) (d dueRow, err error) {
	err = row.Scan(&d.id, &d.place)
	return d, err
}

// jobsWithRuns returns jobs with their active runs, in the order of the rows. It reads those that are not cached.
func (t *tx) jobsWithRuns(ctx context.Context, due []dueRow) ([]*cachedJob, error) {
	list := make([]*cachedJob, len(due))
	at := map[string]int{}
	var places []int64
	var ids []string
	for i, d := range due {
		if list[i] = t.jobs.get(d.id); list[i] == nil {
			at[d.id], places, ids = i, append(places, d.place), append(ids, d.id)
		}
	}
	if len(ids) == 0 {
		return list, nil
	}
	named, err := encode(places)
	if err != nil {
		return nil, err
	}
	rows, err := t.query(ctx, `SELECT `+asOne+`id, `+jobColumns+column+` FROM cron_jobs WHERE rowid IN (SELECT value FROM json_each(?))`, named)
	found, err := collect(rows, err, func(row scanner) (*storedJob, error) { return t.scanDue(packed{row}) })
	if err != nil {
		return nil, err
	}
	active, err := t.activeRuns(ctx, ids)
	if err != nil {
		return nil, err
	}
	for _, j := range found {
		known := &cachedJob{storedJob: j, active: active[j.ID]}
		list[at[j.ID]] = known
		t.jobs.put(known)
	}
	return list, nil
}

// activeRuns reads the active runs of jobs, those that were claimed first at first.
func (t *tx) activeRuns(ctx context.Context, jobs []string) (map[string][]activeRun, error) {
	names, err := encode(jobs)
	if err != nil {
		return nil, err
	}
	rows, err := t.query(ctx, `SELECT job_id, id, session_key, state, claimed_at, started_at, scheduled_for FROM cron_run_logs
		WHERE state IN ('queued', 'running', 'retrying') AND job_id IN (SELECT value FROM json_each(?)) ORDER BY claimed_at, scheduled_for, id`, names)
	all := map[string][]activeRun{}
	var job string
	var r activeRun
	columns := []any{&job, &r.id, &r.session, (*string)(&r.state), timeColumn{&r.claimedAt}, timeColumn{&r.startedAt}, timeColumn{&r.slot}}
	_, err = collect(rows, err, func(row scanner) (none struct{}, err error) {
		if err = row.Scan(columns...); err == nil {
			all[job] = append(all[job], r)
		}
		return none, err
	})
	return all, err
}

// cachedRun is the cached job of a compact run and that run, which has a state; nil = they are not cached.
func (t *tx) cachedRun(runID, job string, state cron.RunState) (*cachedJob, *activeRun) {
	if j := t.jobs.get(job); j != nil {
		if r := j.compactRun(runID, state); r != nil {
			return j, r
		}
	}
	return nil, nil
}
