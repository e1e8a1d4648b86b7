package sqlite

import (
	"context"
	"slices"
	"time"

	"laneway/internal/chat"
	"laneway/internal/cron"
	"laneway/internal/store"
)

// maxCounted is how far the entries of a list are counted. Paging beyond that is not useful, and counting millions would make every list
// slow.
const maxCounted = 100_000

// The ledger is read by the index of one condition; the other conditions of a filter are checked on the rows. Parameters: job, owner,
// agent, states, deliveries (JSON lists, ” = all), since, until, and the earliest end that can belong to since.
const (
	runsOfJob   = `job_id = ?1 AND finished_at >= ?8`
	runsOfOwner = `owner = ?2 AND finished_at >= ?8`
	runsOfAll   = `finished_at >= ?8`
	runsActive  = `state IN ('queued', 'running', 'retrying')`
	// runsSeen excludes claims of slots that have not come; ?9 is the clock, 0 includes them.
	runsSeen = runsActive + ` AND NOT (` + unstartedFire + ` AND fire_at > ?9 AND ?9 > 0)`

	runsMatching = ` AND (?1 = '' OR job_id = ?1) AND (?2 = '' OR owner = ?2) AND (?3 = '' OR agent = ?3)
		AND (?4 = '' OR state IN (SELECT value FROM json_each(?4))) AND (?5 = '' OR delivery IN (SELECT value FROM json_each(?5)))
		AND (?6 = 0 OR scheduled_for >= ?6) AND (?7 = 0 OR scheduled_for <= ?7) AND ?8 IS NOT NULL`

	oldestFirst = ` ORDER BY finished_at, id`
	newestFirst = ` ORDER BY finished_at DESC, id DESC`
	// The plus keeps the planner from reading the whole ledger in the order of its ids to avoid sorting a few rows.
	activeOldest = ` ORDER BY +id`
	activeNewest = ` ORDER BY +id DESC`
)

// early is how long before its slot a run can have ended: claims look ahead a little.
const early = time.Minute

// runsQuery is a filter of the ledger in the terms of its statements.
type runsQuery struct {
	f    *cron.RunFilter
	base string
	args []any
	now  int64
}

func queryOf(f *cron.RunFilter, now int64) (*runsQuery, error) {
	v := &runsQuery{f: f, base: runsOfAll, now: now}
	if f.Ahead {
		v.now = 0
	}
	switch {
	case f.JobID != "":
		v.base = runsOfJob
	case f.Visible != "":
		v.base = runsOfOwner
	}
	states, deliveries := "", ""
	var err error
	if len(f.States) > 0 {
		if states, err = encode(f.States); err != nil {
			return nil, err
		}
	}
	if len(f.Deliveries) > 0 {
		if deliveries, err = encode(f.Deliveries); err != nil {
			return nil, err
		}
	}
	ended := int64(0)
	if !f.Since.IsZero() {
		ended = millis(f.Since.Add(-early))
	}
	v.args = []any{f.JobID, f.Visible, f.Agent, states, deliveries, millis(f.Since), millis(f.Until), ended}
	return v, nil
}

// wantsActive reports whether the filter includes active runs.
func (v *runsQuery) wantsActive() bool {
	for _, s := range v.f.States {
		if s.Active() {
			return true
		}
	}
	return v.f.IncludeActive
}

// Runs lists the ledger; see the port. Active runs count as newer than all finished ones. Total is exact up to 100 000 finished runs.
func (s *Store) Runs(ctx context.Context, f cron.RunFilter) (out cron.RunPage, err error) {
	err = s.view(ctx, "list runs", func(ctx context.Context, q querier) error {
		if f.RunID != "" {
			return oneRun(ctx, q, s.now().UnixMilli(), &f, &out)
		}
		v, err := queryOf(&f, s.now().UnixMilli())
		if err != nil {
			return err
		}
		if f.Query != "" {
			return v.search(ctx, q, &out)
		}
		return v.list(ctx, q, &out)
	})
	return out, err
}

// oneRun finds a run by its id; the rest of the filter applies.
func oneRun(ctx context.Context, q querier, now int64, f *cron.RunFilter, out *cron.RunPage) error {
	v, err := queryOf(f, now)
	if err != nil {
		return err
	}
	r, err := scanLedger(q.one(ctx, `SELECT `+ledgerColumns+` FROM cron_run_logs WHERE id = ?9 AND state NOT IN ('queued', 'running', 'retrying')`+runsMatching,
		append(v.args, f.RunID)...))
	if none(err) && v.wantsActive() {
		r, err = scanLedger(q.one(ctx, `SELECT `+ledgerColumns+` FROM cron_run_logs WHERE id = ?10 AND `+runsSeen+runsMatching,
			append(v.activeArgs(), f.RunID)...))
	}
	if none(err) {
		return nil
	}
	if err != nil {
		return err
	}
	if out.Total = 1; f.Offset <= 0 {
		out.Runs = []cron.Run{r.Run}
	}
	return nil
}

// list reads one page: of the active runs, then of the finished ones.
func (v *runsQuery) list(ctx context.Context, q querier, out *cron.RunPage) error {
	active, err := v.countActive(ctx, q)
	if err != nil {
		return err
	}
	finished, err := v.count(ctx, q)
	if err != nil {
		return err
	}
	out.Total = finished + active
	limit, offset := pageOf(v.f.Limit, v.f.Offset)
	budget := store.NewBudget(0)
	parts := []func(limit, offset int) ([]string, error){
		func(limit, offset int) ([]string, error) { return v.active(ctx, q, budget, limit, offset) },
		func(limit, offset int) ([]string, error) { return v.finished(ctx, q, budget, limit, offset) },
	}
	counts := []int{active, finished}
	if v.f.Ascending {
		slices.Reverse(parts)
		slices.Reverse(counts)
	}
	ids, err := parts[0](limit, offset)
	if err != nil {
		return err
	}
	if want := left(counts[0], offset); len(ids) == max(want, 0) { // all rows of the first part after the offset
		more, err := parts[1](left(limit, len(ids)), max(-want, 0))
		if err != nil {
			return err
		}
		ids = append(ids, more...)
	}
	out.Runs, err = runsNamed(ctx, q, ids)
	return err
}

// count counts finished runs. When the index alone decides, their rows are not read.
func (v *runsQuery) count(ctx context.Context, q querier) (n int, err error) {
	f := v.f
	conditions := v.base + runsMatching
	if f.Agent == "" && len(f.States)+len(f.Deliveries) == 0 && f.Since.IsZero() && f.Until.IsZero() && (f.JobID == "" || f.Visible == "") {
		conditions = v.base + ` AND ?1 IS NOT NULL AND ?8 IS NOT NULL`
	}
	err = q.one(ctx, `SELECT count(*) FROM (SELECT 1 FROM cron_run_logs WHERE `+conditions+` LIMIT ?9)`, append(v.args, maxCounted)...).Scan(&n)
	return n, err
}

// left is how much of a bound is left after n.
func left(limit, n int) int {
	if limit == unlimited {
		return limit
	}
	return limit - n
}

// runBytes are those of the texts of a run.
const runBytes = `octet_length(attempts) + octet_length(error) + octet_length(summary) + octet_length(delivery_error)`

func (v *runsQuery) countActive(ctx context.Context, q querier) (n int, err error) {
	if v.wantsActive() {
		err = q.one(ctx, `SELECT count(*) FROM cron_run_logs WHERE `+runsSeen+runsMatching, v.activeArgs()...).Scan(&n)
	}
	return n, err
}

func (v *runsQuery) active(ctx context.Context, q querier, b *store.Budget, limit, offset int) ([]string, error) {
	if !v.wantsActive() {
		return nil, nil
	}
	order := activeNewest
	if v.f.Ascending {
		order = activeOldest
	}
	rows, err := q.query(ctx, `SELECT id, `+runBytes+` FROM cron_run_logs WHERE `+runsSeen+runsMatching+order+` LIMIT ?10 OFFSET ?11`,
		append(v.activeArgs(), limit, max(offset, 0))...)
	return idsWithin(rows, err, b)
}

// activeArgs are args for active runs: a filter that includes active runs besides named states gets all of them.
func (v *runsQuery) activeArgs() []any {
	args := slices.Clone(v.args)
	if v.f.IncludeActive {
		args[3] = ""
	}
	return append(args, v.now)
}

func (v *runsQuery) finished(ctx context.Context, q querier, b *store.Budget, limit, offset int) ([]string, error) {
	order := newestFirst
	if v.f.Ascending {
		order = oldestFirst
	}
	rows, err := q.query(ctx, `SELECT id, `+runBytes+` FROM cron_run_logs WHERE `+v.base+runsMatching+order+` LIMIT ?9 OFFSET ?10`,
		append(v.args, limit, max(offset, 0))...)
	return idsWithin(rows, err, b)
}

func runsNamed(ctx context.Context, q querier, ids []string) (list []cron.Run, err error) {
	for _, id := range ids {
		r, known, err := findLedger(ctx, q, id)
		if err != nil {
			return nil, err
		}
		if known {
			list = append(list, r.Run)
		}
	}
	return list, nil
}

// search finds the runs in which a text occurs.
func (v *runsQuery) search(ctx context.Context, q querier, out *cron.RunPage) error {
	const texts = `SELECT id, ` + runBytes + `, error, summary, job_name FROM cron_run_logs WHERE `
	found := page{budget: store.NewBudget(0)}
	found.limit, found.offset = pageOf(v.f.Limit, v.f.Offset)
	ended, active := newestFirst, activeNewest
	if v.f.Ascending {
		ended, active = oldestFirst, activeOldest
	}
	parts := []func() error{
		func() error {
			if !v.wantsActive() {
				return nil
			}
			rows, err := q.query(ctx, texts+runsSeen+runsMatching+active, v.activeArgs()...)
			return found.search(rows, err, 3, v.f.Query)
		},
		func() error {
			rows, err := q.query(ctx, texts+v.base+runsMatching+ended, v.args...)
			return found.search(rows, err, 3, v.f.Query)
		},
	}
	if v.f.Ascending {
		slices.Reverse(parts)
	}
	for _, part := range parts {
		if err := part(); err != nil {
			return err
		}
	}
	out.Total = found.total
	var err error
	out.Runs, err = runsNamed(ctx, q, found.ids)
	return err
}

// Run reads one row of the ledger; chat.ErrNotFound.
func (s *Store) Run(ctx context.Context, id, visible string) (out cron.Run, err error) {
	err = s.view(ctx, "read a run", func(ctx context.Context, q querier) error {
		r, known, err := findLedger(ctx, q, id)
		if err != nil {
			return err
		}
		if !known || visible != "" && r.Owner != visible {
			return chat.ErrNotFound
		}
		out = r.Run
		return nil
	})
	return out, err
}
