package postgres

import (
	"context"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"laneway/internal/cron"
)

// mayFire is the condition for jobs with planned fires.
const mayFire = `(enabled AND paused_at IS NULL AND invalid = '')`

// orAll is a LIMIT; 0 = none.
func orAll(limit int) any {
	if limit <= 0 {
		return nil
	}
	return limit
}

const (
	seenSQL = ` FROM cron_jobs WHERE (owner <> 'system' OR $2::boolean) AND ($1 = '' OR owner = $1)`

	// revisionSQL is a number that changes when a job is added, changed or removed, in whatever order the rows are read.
	revisionSQL = `SELECT COALESCE(bit_xor(hashtextextended(id || ' ' || revision || ' ' || updated_at, 0)), 0) # count(*)` + seenSQL

	// jobBytes and runBytes are the bytes of the texts of a row, that of a job without its payload.
	jobBytes = `octet_length(delivery) + octet_length(alert) + octet_length(policy) + octet_length(schedule)
	+ octet_length(description) + octet_length(invalid) + octet_length(last_error) + octet_length(last_delivery_error)`
	runBytes = `octet_length(attempts) + octet_length(error) + octet_length(summary) + octet_length(delivery_error)`

	jobsWhere = seenSQL + ` AND ($3::boolean IS NULL OR ` + mayFire + ` = $3::boolean) AND ($4 = '' OR kind = $4) AND ($5 = '' OR last_state = CASE WHEN $5 = 'never' THEN '' ELSE $5 END)
	AND ($6 = '' OR agent = $6) AND ($7 = '' OR position($7 IN lower(id)) > 0 OR position($7 IN lower(name)) > 0
	OR position($7 IN lower(key)) > 0 OR position($7 IN lower(description)) > 0)`
)

// Jobs lists, see cron.JobFilter. A Limit of 0 is no bound.
func (s *Store) Jobs(ctx context.Context, f cron.JobFilter) (cron.JobPage, error) {
	args := []any{
		f.Visible, f.IncludeSystem, f.Enabled, string(f.Kind), f.LastStateWord(), f.Agent, strings.ToLower(clean(f.Query)),
	}
	var (
		out      cron.JobPage
		list     []storedJob
		revision int64
	)
	err := s.do(ctx, "listing cron jobs", func(ctx context.Context) error {
		list = nil
		b := &pgx.Batch{}
		b.Queue(revisionSQL, args[:2]...).QueryRow(func(row pgx.Row) error { return row.Scan(&revision) })
		b.Queue(`SELECT count(*)`+jobsWhere, args...).QueryRow(func(row pgx.Row) error { return row.Scan(&out.Total) })
		view, size := jobParts(f)
		page := within(`SELECT id AS page_id, `+size+` AS page_size`+jobsWhere+jobOrder(f)+` LIMIT $8 OFFSET $9`, readBytes())
		b.Queue(`SELECT `+view+` FROM cron_jobs JOIN `+page+` page ON page_id = id ORDER BY page_n`,
			append(slices.Clip(args), orAll(f.Limit), max(f.Offset, 0))...).Query(collect(&list, scanJob))
		return send(ctx, s.pool, b)
	})
	out.Jobs = column(list, func(j storedJob) cron.Job { return j.Job })
	out.Revision = "r" + strconv.FormatUint(uint64(revision), 36) //nolint:gosec // only equality counts
	return out, err
}

// jobParts are what is read of a job, and the bytes of its texts.
func jobParts(f cron.JobFilter) (view, size string) {
	if f.WithoutPayload {
		return strings.Replace(jobView, " payload,", " '"+cron.PayloadLeftOut+"',", 1), jobBytes
	}
	return jobView, `octet_length(payload) + ` + jobBytes
}

func jobOrder(f cron.JobFilter) string {
	direction := ""
	if f.Descending {
		direction = " DESC"
	}
	switch f.SortBy {
	case "name":
		return ` ORDER BY name COLLATE "C"` + direction + `, id`
	case "id":
		return ` ORDER BY id` + direction
	case "updatedAt":
		return ` ORDER BY updated_at` + direction + `, id`
	default:
		return ` ORDER BY next_run_at` + direction + ` NULLS LAST, id`
	}
}

// conditions is a WHERE with those conditions only that restrict: a plan for every filter at once could use no index.
type conditions struct {
	list []string
	args []any
}

// add adds a condition with one parameter, written as %s.
func (c *conditions) add(wanted bool, condition string, arg any) {
	if wanted {
		c.args = append(c.args, arg)
		c.list = append(c.list, strings.ReplaceAll(condition, "%s", "$"+strconv.Itoa(len(c.args))))
	}
}

func runConditions(f cron.RunFilter) *conditions {
	c := &conditions{list: []string{"true"}}
	c.add(f.Visible != "", "l.owner = %s", f.Visible)
	c.add(f.JobID != "", "l.job_id = %s", f.JobID)
	c.add(f.RunID != "", "l.id = %s", f.RunID)
	c.add(f.Agent != "", "l.agent = %s", f.Agent)
	c.add(len(f.Deliveries) > 0, "l.delivery = ANY(%s::text[])", column(f.Deliveries, func(d cron.DeliveryStatus) string { return string(d) }))
	c.add(!f.Since.IsZero(), "l.scheduled_for >= %s", ms(f.Since))
	c.add(!f.Until.IsZero(), "l.scheduled_for <= %s", ms(f.Until))
	c.add(f.Query != "", "(position(%s IN lower(l.error)) > 0 OR position(%s IN lower(l.summary)) > 0 OR position(%s IN lower(l.job_name)) > 0)",
		strings.ToLower(clean(f.Query)))
	return c
}

// runStates are the conditions for active rows and for finished ones; "false" = none of them are wanted.
func runStates(f cron.RunFilter, c *conditions) (active, finished string) {
	active, finished = "false", "false"
	var open, over []string
	for _, state := range f.States {
		if state.Active() {
			open = append(open, string(state))
			continue
		}
		over = append(over, string(state))
	}
	if f.IncludeActive || len(open) > 0 {
		active = "l.finished_at IS NULL"
		if !f.IncludeActive {
			active += " AND l.state = ANY('{" + strings.Join(open, ",") + "}')"
		}
	}
	if len(over) > 0 || len(f.States) == 0 {
		finished = "l.finished_at IS NOT NULL"
		if len(over) > 0 {
			c.args = append(c.args, over)
			finished += " AND l.state = ANY($" + strconv.Itoa(len(c.args)) + "::text[])"
		}
	}
	return active, finished
}

// ledgerOwners are the owners of rows of the ledger. Its cost follows their number: each is one look into the index.
const ledgerOwners = `(WITH RECURSIVE o(owner) AS (
	(SELECT owner FROM cron_run_logs ORDER BY owner LIMIT 1)
	UNION ALL SELECT (SELECT l.owner FROM cron_run_logs l WHERE l.owner > o.owner ORDER BY l.owner LIMIT 1) FROM o WHERE o.owner IS NOT NULL
) SELECT owner FROM o WHERE owner IS NOT NULL)`

// mostCounted is how far the rows of a list are counted: to count millions would make every list slow.
const mostCounted = "100000"

// runList are the statements of a list of runs.
type runList struct {
	where, active, finished string
	indexed                 bool // the rows are those of a job, of an owner or active ones, which an index has in the order of the list or which are few
	counted                 bool // all finished rows match
	page                    string
}

func newRunList(f cron.RunFilter, c *conditions) runList {
	l := runList{where: strings.Join(c.list, " AND ")}
	l.active, l.finished = runStates(f, c)
	l.indexed = f.JobID != "" || f.RunID != "" || f.Visible != "" || l.finished == "false" || f.Limit <= 0
	l.counted = l.finished == "l.finished_at IS NOT NULL"
	direction := " DESC"
	if f.Ascending {
		direction = ""
	}
	order := " ORDER BY l.scheduled_for" + direction + ", l.id" + direction
	from := "SELECT l.id, l.scheduled_for FROM cron_run_logs l WHERE " + l.matching()
	piece := " LIMIT " + limitText(f.Limit) + " OFFSET " + strconv.Itoa(max(f.Offset, 0))
	if !l.indexed {
		from = "SELECT l.* FROM " + ledgerOwners + " o CROSS JOIN LATERAL (" + from + " AND l.owner = o.owner" + order +
			" LIMIT " + strconv.Itoa(f.Limit+max(f.Offset, 0)) + ") l"
	}
	l.page = "SELECT " + logColumns + " FROM " + within("SELECT l.*, "+runBytes+" AS page_size FROM ("+from+order+piece+
		") p JOIN cron_run_logs l ON l.id = p.id"+order+" LIMIT ALL", readBytes()) + " l ORDER BY page_n"
	return l
}

func (l *runList) matching() string {
	if l.active == "false" {
		return l.where + " AND " + l.finished
	}
	if l.finished == "false" {
		return l.where + " AND " + l.active
	}
	return l.where + " AND (" + l.active + " OR " + l.finished + ")"
}

// total counts the rows that match. When all finished ones do, it counts entries of an index and subtracts the active rows that do not match: no finished
// row is read.
func (l *runList) total() string {
	if !l.counted {
		return "SELECT count(*) FROM (SELECT 1 FROM cron_run_logs l WHERE " + l.matching() + " LIMIT " + mostCounted + ") n"
	}
	return "SELECT (SELECT count(*) FROM (SELECT 1 FROM cron_run_logs l WHERE " + l.where + " LIMIT " + mostCounted + " + other.n) n) - other.n FROM (SELECT count(*) AS n" +
		" FROM cron_run_logs l WHERE " + l.where + " AND l.finished_at IS NULL AND NOT COALESCE(" + l.active + ", false)) other"
}

// Runs lists rows of the ledger, see cron.RunFilter. A Limit of 0 is no bound.
func (s *Store) Runs(ctx context.Context, f cron.RunFilter) (cron.RunPage, error) {
	c := runConditions(f)
	l := newRunList(f, c)
	var (
		out  cron.RunPage
		list []loggedRun
	)
	if l.active == "false" && l.finished == "false" {
		return out, nil
	}
	err := s.do(ctx, "listing cron runs", func(ctx context.Context) error {
		list = nil
		b := &pgx.Batch{}
		b.Queue(l.total(), c.args...).QueryRow(func(row pgx.Row) error { return row.Scan(&out.Total) })
		b.Queue(l.page, c.args...).Query(collect(&list, scanLog))
		return send(ctx, s.pool, b)
	})
	out.Runs = column(list, func(r loggedRun) cron.Run { return r.Run })
	return out, err
}

func limitText(limit int) string {
	if limit <= 0 {
		return "ALL"
	}
	return strconv.Itoa(limit)
}

// wakeSQL is the earliest planned moment. Each half reads one entry of an index unless an owner is named.
const wakeSQL = `SELECT LEAST(
	(SELECT min(next_run_at) FROM cron_jobs WHERE enabled AND invalid = '' AND (paused_at IS NULL OR paused_until IS NOT NULL) AND ($1 = '' OR owner = $1)),
	(SELECT min(next_attempt_at) FROM cron_run_logs WHERE next_attempt_at IS NOT NULL AND ($1 = '' OR owner = $1)))`

const (
	jobsSummarySQL = `SELECT count(*) FILTER (WHERE owner <> 'system'), count(*) FILTER (WHERE paused_at IS NOT NULL),
	count(*) FILTER (WHERE ` + mayFire + ` AND next_run_at <= ` + nowSQL + `),
	COALESCE(max(` + nowSQL + ` - next_run_at) FILTER (WHERE ` + mayFire + ` AND next_run_at <= ` + nowSQL + `), -1)
FROM cron_jobs WHERE $2 = '' OR owner = $2`

	runsSummarySQL = `SELECT count(*) FILTER (WHERE state = 'running'), count(*) FILTER (WHERE state = 'queued' AND fire_at <= ` + nowSQL + `),
	COALESCE(max(` + nowSQL + ` - fire_at) FILTER (WHERE state = 'queued' AND fire_at <= ` + nowSQL + `), -1)
FROM cron_run_logs WHERE finished_at IS NULL AND ($2 = '' OR owner = $2)`
)

// Summary counts for status pages, see cron.JobStore.
func (s *Store) Summary(ctx context.Context, visible string) (cron.Summary, error) {
	var out cron.Summary
	err := s.do(ctx, "counting cron jobs", func(ctx context.Context) error {
		var (
			due, waiting       int
			oldest, oldestWait int64
			wake               pgtype.Int8
		)
		out = cron.Summary{OldestDue: -1}
		b := &pgx.Batch{}
		b.Queue(jobsSummarySQL, s.clock(), visible).QueryRow(func(row pgx.Row) error { return row.Scan(&out.Jobs, &out.Paused, &due, &oldest) })
		b.Queue(runsSummarySQL, s.clock(), visible).QueryRow(func(row pgx.Row) error { return row.Scan(&out.Running, &waiting, &oldestWait) })
		b.Queue(wakeSQL, visible).QueryRow(func(row pgx.Row) error { return row.Scan(&wake) })
		err := send(ctx, s.pool, b)
		out.Backlog, out.NextWake = due+waiting, moment(wake)
		if late := max(oldest, oldestWait); late >= 0 {
			out.OldestDue = duration(late)
		}
		return err
	})
	return out, err
}

const (
	// oldRunsSQL finds finished rows that are too old, and those beyond the ones of their job that ended last; those that were planned first come first. A row
	// is planned before it ends.
	oldRunsSQL = `
SELECT id, attempt FROM (
	SELECT l.id, l.attempt, l.scheduled_for FROM ` + ledgerOwners + ` o CROSS JOIN LATERAL (
		SELECT l.id, l.attempt, l.scheduled_for FROM cron_run_logs l WHERE l.owner = o.owner AND l.scheduled_for < $1 AND l.finished_at < $1
		ORDER BY l.scheduled_for, l.id LIMIT $3
	) l
	UNION
	SELECT x.id, x.attempt, x.scheduled_for FROM (
		SELECT job_id FROM cron_run_logs WHERE $2 > 0 GROUP BY job_id HAVING count(*) > $2::bigint
	) j CROSS JOIN LATERAL (
		SELECT id, attempt, scheduled_for FROM cron_run_logs l WHERE l.job_id = j.job_id AND l.finished_at IS NOT NULL
		ORDER BY l.finished_at DESC, l.id DESC OFFSET $2::bigint
	) x
) old ORDER BY scheduled_for, id LIMIT $3`

	// A message that still waits or runs is not deleted: a stopped turn may not have returned.
	forgetMessagesSQL = `DELETE FROM inbox WHERE message_id = ANY($1::text[]) AND ended_at IS NOT NULL`
	forgetTurnsSQL    = `DELETE FROM runs WHERE id = ANY($1::text[]) AND ended_at IS NOT NULL`

	// emptySessionsSQL deletes the sessions of isolated runs: each was made for one run and is not used again.
	emptySessionsSQL = `
WITH s AS (
	DELETE FROM sessions s USING cron_run_logs l
	WHERE l.id = ANY($1::text[]) AND s.key = l.session_key AND s.done_seq = s.last_seq
	  AND right(s.key, length(':cron:' || l.job_id || ':' || l.trigger || '-' || l.scheduled_for)) = ':cron:' || l.job_id || ':' || l.trigger || '-' || l.scheduled_for
	  AND NOT EXISTS (SELECT 1 FROM runs r WHERE r.session_key = s.key AND r.ended_at IS NULL)
	RETURNING s.key
), ` + dropTranscriptsSQL + `
SELECT count(*) FROM s`

	// dropTranscriptsSQL is the part of a statement that deletes the transcripts of the sessions s, and their entries of the index.
	dropTranscriptsSQL = `entries AS (
	DELETE FROM search_entries e USING search_transcripts x, s WHERE x.session_key = s.key AND e.transcript = x.id
), transcripts AS (
	DELETE FROM search_transcripts x USING s WHERE x.session_key = s.key
), progress AS (
	DELETE FROM search_progress p USING s WHERE p.session_key = s.key
), said AS (
	DELETE FROM transcript t USING s WHERE t.session_key = s.key
)`
)

// Prune deletes finished rows with their messages and runs, see cron.JobStore. A limit of 0 is no bound.
func (s *Store) Prune(ctx context.Context, p cron.PruneParams) (int, error) {
	gone := 0
	err := s.do(ctx, "pruning cron runs", func(ctx context.Context) error {
		gone = 0
		return pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) (err error) {
			gone, err = prune(ctx, tx, p)
			return err
		})
	})
	return gone, err
}

func prune(ctx context.Context, tx pgx.Tx, p cron.PruneParams) (int, error) {
	rows, err := tx.Query(ctx, oldRunsSQL, ms(p.Before), max(p.Keep, 0), orAll(p.Limit))
	if err != nil {
		return 0, err
	}
	var (
		ids, messages []string
		id            string
		attempts      int
	)
	_, err = pgx.ForEachRow(rows, []any{&id, &attempts}, func() error {
		ids, messages = append(ids, id), append(messages, id)
		for n := 2; n <= attempts+1; n++ {
			messages = append(messages, attemptID(id, n))
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	if len(ids) == 0 {
		return 0, nil
	}
	b := &pgx.Batch{}
	b.Queue(forgetMessagesSQL, messages)
	b.Queue(forgetTurnsSQL, messages)
	b.Queue(emptySessionsSQL, ids)
	b.Queue(`DELETE FROM cron_run_logs WHERE id = ANY($1::text[])`, ids)
	return len(ids), send(ctx, tx, b)
}

// attemptID is the message of the n-th attempt of a run.
func attemptID(run string, n int) string {
	if n <= 1 {
		return run
	}
	return run + "/" + strconv.Itoa(n)
}
