package sqlite

import (
	"context"
	"hash/fnv"
	"io"
	"strconv"
	"strings"
	"time"

	"laneway/internal/cron"
	"laneway/internal/store"
)

// jobsMatching takes the owner, whether built-in jobs count, whether they fire (-1 = no matter), kind, last state and agent.
const jobsMatching = ` FROM cron_jobs WHERE (?1 = '' OR owner = ?1) AND (?2 OR owner <> 'system')
	AND (?3 < 0 OR (enabled = 1 AND paused_at IS NULL AND invalid = '') = ?3)
	AND (?4 = '' OR kind = ?4) AND (?5 = '' OR last_state = CASE WHEN ?5 = 'never' THEN '' ELSE ?5 END) AND (?6 = '' OR agent = ?6)`

// Texts for every order, because a statement cannot take its order as a parameter. Jobs without the value come last either way.
const (
	byNext        = ` ORDER BY next_run_at IS NULL, next_run_at, id`
	byNextDown    = ` ORDER BY next_run_at IS NULL, next_run_at DESC, id`
	byUpdated     = ` ORDER BY updated_at = 0, updated_at, id`
	byUpdatedDown = ` ORDER BY updated_at = 0, updated_at DESC, id`
	byName        = ` ORDER BY name = '', name, id`
	byNameDown    = ` ORDER BY name = '', name DESC, id`
	byID          = ` ORDER BY id`
	byIDDown      = ` ORDER BY id DESC`
)

func jobOrder(f *cron.JobFilter) string {
	up, down := byNext, byNextDown
	switch f.SortBy {
	case "updatedAt":
		up, down = byUpdated, byUpdatedDown
	case "name":
		up, down = byName, byNameDown
	case "id":
		up, down = byID, byIDDown
	}
	if f.Descending {
		return down
	}
	return up
}

func jobFilterArgs(f *cron.JobFilter) []any {
	fires := int64(-1)
	if f.Enabled != nil {
		fires = bit(*f.Enabled)
	}
	return []any{f.Visible, bit(f.IncludeSystem), fires, string(f.Kind), f.LastStateWord(), f.Agent}
}

// Jobs lists jobs; see the port.
func (s *Store) Jobs(ctx context.Context, f cron.JobFilter) (out cron.JobPage, err error) {
	err = s.view(ctx, "list jobs", func(ctx context.Context, q querier) error {
		if out.Revision, err = listRevision(ctx, q, f.Visible); err != nil {
			return err
		}
		if f.Query != "" {
			return searchJobs(ctx, q, &f, &out)
		}
		args := jobFilterArgs(&f)
		if err := q.one(ctx, `SELECT count(*)`+jobsMatching, args...).Scan(&out.Total); err != nil {
			return err
		}
		limit, offset := pageOf(f.Limit, f.Offset)
		rows, err := q.query(ctx, `SELECT id, `+jobSize(&f)+jobsMatching+jobOrder(&f)+` LIMIT +?7 OFFSET ?8`, append(args, limit, offset)...)
		ids, err := idsWithin(rows, err, store.NewBudget(0))
		if err != nil {
			return err
		}
		out.Jobs, err = jobsNamed(ctx, q, ids, &f)
		return err
	})
	return out, err
}

// listRevision changes when a job is added, changed or removed. For one owner it is computed from that owner's jobs, row by row: the
// counter of all changes would reveal changes of other owners.
func listRevision(ctx context.Context, q querier, visible string) (string, error) {
	if visible == "" {
		var changes int64
		err := q.one(ctx, `SELECT n FROM cron_changes WHERE id = 1`).Scan(&changes)
		return "r" + strconv.FormatInt(changes, 10), err
	}
	rows, err := q.query(ctx, `SELECT id, revision, updated_at FROM cron_jobs WHERE owner = ?`, visible)
	if err != nil {
		return "", err
	}
	defer func() { _ = rows.Close() }()
	var sum, n uint64
	for ; rows.Next(); n++ {
		var id, revision string
		var updated int64
		if err := rows.Scan(&id, &revision, &updated); err != nil {
			return "", err
		}
		h := fnv.New64a()
		_, _ = io.WriteString(h, id+" "+revision+" "+strconv.FormatInt(updated, 10)) //nolint:errcheck // a hash takes everything
		sum ^= h.Sum64()
	}
	return "r" + strconv.FormatUint(sum^n, 36), rows.Err()
}

// pageOf translates the bounds of a filter: no limit means all rows.
func pageOf(limit, offset int) (int, int) {
	if limit <= 0 {
		limit = unlimited
	}
	return limit, max(offset, 0)
}

// jobBytes are the bytes of the texts of a job without its payload.
const jobBytes = `octet_length(delivery) + octet_length(alert) + octet_length(policy) + octet_length(schedule)
	+ octet_length(description) + octet_length(invalid) + octet_length(last_error) + octet_length(last_delivery_error)`

// jobSize are the bytes of the texts that are read of a job.
func jobSize(f *cron.JobFilter) string {
	if f.WithoutPayload {
		return jobBytes
	}
	return `octet_length(payload) + ` + jobBytes
}

// searchJobs finds the jobs in which a text occurs.
func searchJobs(ctx context.Context, q querier, f *cron.JobFilter, out *cron.JobPage) error {
	found := page{budget: store.NewBudget(0)}
	found.limit, found.offset = pageOf(f.Limit, f.Offset)
	rows, err := q.query(ctx, `SELECT id, `+jobSize(f)+`, name, key, description, display_name`+jobsMatching+jobOrder(f), jobFilterArgs(f)...)
	if err := found.search(rows, err, 4, f.Query); err != nil {
		return err
	}
	out.Total = found.total
	out.Jobs, err = jobsNamed(ctx, q, found.ids, f)
	return err
}

func jobsNamed(ctx context.Context, q querier, ids []string, f *cron.JobFilter) (list []cron.Job, err error) {
	statement := selectJob
	if f.WithoutPayload {
		statement = strings.Replace(selectJob, " payload,", " '"+cron.PayloadLeftOut+"',", 1)
	}
	for _, id := range ids {
		j, err := scanJob(q.one(ctx, statement+`WHERE id = ?1`, id))
		if err != nil {
			return nil, err
		}
		list = append(list, j.Job)
	}
	return list, nil
}

// Summary counts for status pages; built-in jobs are not counted as jobs.
func (s *Store) Summary(ctx context.Context, visible string) (out cron.Summary, err error) {
	err = s.view(ctx, "count jobs", func(ctx context.Context, q querier) error {
		now := s.now().UnixMilli()
		var oldest *int64
		err := q.one(ctx, `SELECT
			(SELECT count(*) FROM cron_jobs WHERE owner <> 'system' AND (?1 = '' OR owner = ?1)),
			(SELECT count(*) FROM cron_jobs WHERE owner <> 'system' AND (?1 = '' OR owner = ?1) AND paused_at IS NOT NULL),
			(SELECT count(*) FROM cron_run_logs WHERE state IN ('queued', 'running', 'retrying') AND state = 'running' AND (?1 = '' OR owner = ?1))`,
			visible).Scan(&out.Jobs, &out.Paused, &out.Running)
		if err != nil {
			return err
		}
		err = q.one(ctx, `SELECT count(*), min(at) FROM (
			SELECT next_run_at AS at FROM cron_jobs WHERE `+plannedJobs+` AND next_run_at <= ?2 AND paused_at IS NULL AND (?1 = '' OR owner = ?1)
			UNION ALL SELECT coalesce(fire_at, scheduled_for) FROM cron_run_logs WHERE state IN ('queued', 'running', 'retrying') AND state = 'queued'
				AND coalesce(fire_at, scheduled_for) <= ?2 AND (?1 = '' OR owner = ?1))`,
			visible, now).Scan(&out.Backlog, &oldest)
		if err != nil {
			return err
		}
		out.OldestDue = -1
		if oldest != nil {
			out.OldestDue = time.Duration(now-*oldest) * time.Millisecond
		}
		out.NextWake, err = nextWake(ctx, q, visible, nil)
		return err
	})
	return out, err
}
