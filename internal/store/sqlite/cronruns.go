package sqlite

import (
	"context"
	"math"

	"laneway/internal/chat"
	"laneway/internal/cron"
	"laneway/internal/store"
)

// maxCounted is how far the entries of a list are counted. Paging beyond that is not useful, and counting millions would make every list
// slow.
const maxCounted = 100_000

// The ledger is read by the index of one condition, in the order of the planned time; the other conditions of a filter are checked on the rows. Parameters:
// job, owner, agent (” = all), states of finished runs and deliveries (JSON lists, ” = all), since, until, and states of
// active runs (a JSON list).
const (
	runsOfJob   = `job_id = ?1`
	runsOfOwner = `owner = ?2`
	runsOfAll   = `scheduled_for >= ?6`
	runsActive  = `state IN ('queued', 'running', 'retrying')`
	runsOver    = `state NOT IN ('queued', 'running', 'retrying') AND (?4 = '' OR state IN (SELECT value FROM json_each(?4)))`
	runsOpen    = runsActive + ` AND state IN (SELECT value FROM json_each(?8))`

	runsPlanned  = ` AND scheduled_for >= ?6 AND scheduled_for <= ?7 AND ?8 IS NOT NULL`
	runsMatching = runsPlanned + ` AND (?1 = '' OR job_id = ?1) AND (?2 = '' OR owner = ?2) AND (?3 = '' OR agent = ?3)
		AND (?5 = '' OR delivery IN (SELECT value FROM json_each(?5)))`

	oldestFirst = ` ORDER BY scheduled_for, id`
	newestFirst = ` ORDER BY scheduled_for DESC, id DESC`
	// The plus keeps the planner from reading the whole ledger in its order to avoid sorting a few rows.
	activeOldest = ` ORDER BY +scheduled_for, +id`
	activeNewest = ` ORDER BY +scheduled_for DESC, +id DESC`
)

// runsQuery is a filter of the ledger in the terms of its statements.
type runsQuery struct {
	f            *cron.RunFilter
	base         string // the condition that an index serves
	wanted       string // the condition on states
	active, over bool   // which ones are wanted
	args         []any
}

func queryOf(f *cron.RunFilter) (*runsQuery, error) {
	v := &runsQuery{f: f, base: runsOfAll, active: f.IncludeActive, over: len(f.States) == 0}
	switch {
	case f.JobID != "":
		v.base = runsOfJob
	case f.Visible != "":
		v.base = runsOfOwner
	}
	var open, ended []cron.RunState
	for _, s := range f.States {
		if s.Active() {
			open, v.active = append(open, s), true
			continue
		}
		ended, v.over = append(ended, s), true
	}
	if f.IncludeActive {
		open = []cron.RunState{cron.RunQueued, cron.RunRunning, cron.RunRetrying}
	}
	switch {
	case !v.active:
		v.wanted = runsOver
	case !v.over:
		v.base, v.wanted = runsActive, runsOpen
	default:
		v.wanted = `(` + runsOver + ` OR ` + runsOpen + `)`
	}
	return v, v.setArgs(open, ended)
}

func (v *runsQuery) setArgs(open, ended []cron.RunState) error {
	f := v.f
	states, deliveries, wanted := "", "", "[]"
	var err error
	if len(ended) > 0 {
		if states, err = encode(ended); err != nil {
			return err
		}
	}
	if len(f.Deliveries) > 0 {
		if deliveries, err = encode(f.Deliveries); err != nil {
			return err
		}
	}
	if len(open) > 0 {
		if wanted, err = encode(open); err != nil {
			return err
		}
	}
	since, until := int64(math.MinInt64), int64(math.MaxInt64)
	if !f.Since.IsZero() {
		since = millis(f.Since)
	}
	if !f.Until.IsZero() {
		until = millis(f.Until)
	}
	v.args = []any{f.JobID, f.Visible, f.Agent, states, deliveries, since, until, wanted}
	return nil
}

// where are all conditions.
func (v *runsQuery) where() string { return v.base + ` AND ` + v.wanted + runsMatching }

func (v *runsQuery) order() string {
	switch {
	case v.over && v.f.Ascending:
		return oldestFirst
	case v.over:
		return newestFirst
	case v.f.Ascending:
		return activeOldest
	}
	return activeNewest
}

// Runs lists the ledger; see the port.
func (s *Store) Runs(ctx context.Context, f cron.RunFilter) (out cron.RunPage, err error) {
	err = s.view(ctx, "list runs", func(ctx context.Context, q querier) error {
		v, err := queryOf(&f)
		switch {
		case err != nil:
			return err
		case f.RunID != "":
			return v.one(ctx, q, &out)
		case f.Query != "":
			return v.search(ctx, q, &out)
		}
		return v.list(ctx, q, &out)
	})
	return out, err
}

// one finds a run by its id; the rest of the filter applies.
func (v *runsQuery) one(ctx context.Context, q querier, out *cron.RunPage) error {
	r, err := scanLedger(q.one(ctx, `SELECT `+ledgerColumns+` FROM cron_run_logs WHERE id = ?9 AND `+v.wanted+runsMatching, append(v.args, v.f.RunID)...))
	if none(err) {
		return nil
	}
	if err != nil {
		return err
	}
	if out.Total = 1; v.f.Offset <= 0 {
		out.Runs = []cron.Run{r.Run}
	}
	return nil
}

// list reads one page.
func (v *runsQuery) list(ctx context.Context, q querier, out *cron.RunPage) (err error) {
	if out.Total, err = v.count(ctx, q); err != nil {
		return err
	}
	limit, offset := pageOf(v.f.Limit, v.f.Offset)
	rows, err := q.query(ctx, `SELECT id, `+runBytes+` FROM cron_run_logs WHERE `+v.where()+v.order()+` LIMIT +?9 OFFSET ?10`, append(v.args, limit, offset)...)
	ids, err := idsWithin(rows, err, store.NewBudget(0))
	if err != nil {
		return err
	}
	out.Runs, err = runsNamed(ctx, q, ids)
	return err
}

// count counts the runs. When all finished ones match and an index alone decides that, it counts entries of the index and subtracts the active runs that do
// not match: no finished row is read.
func (v *runsQuery) count(ctx context.Context, q querier) (n int, err error) {
	f := v.f
	if !v.over || f.Agent != "" || len(f.States)+len(f.Deliveries) > 0 || f.JobID != "" && f.Visible != "" {
		err = q.one(ctx, `SELECT count(*) FROM (SELECT 1 FROM cron_run_logs WHERE `+v.where()+` LIMIT +?9)`, append(v.args, maxCounted)...).Scan(&n)
		return n, err
	}
	var open, seen int
	if err := q.one(ctx, `SELECT count(*) FROM cron_run_logs WHERE `+runsActive+runsMatching, v.args...).Scan(&open); err != nil {
		return 0, err
	}
	if err := q.one(ctx, `SELECT count(*) FROM cron_run_logs WHERE `+runsOpen+runsMatching, v.args...).Scan(&seen); err != nil {
		return 0, err
	}
	other := open - seen
	err = q.one(ctx, `SELECT count(*) FROM (SELECT 1 FROM cron_run_logs WHERE `+v.base+runsPlanned+` LIMIT +?9)`, append(v.args, maxCounted+other)...).Scan(&n)
	return n - other, err
}

// runBytes are those of the texts of a run.
const runBytes = `octet_length(attempts) + octet_length(error) + octet_length(summary) + octet_length(delivery_error)`

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
	found := page{budget: store.NewBudget(0)}
	found.limit, found.offset = pageOf(v.f.Limit, v.f.Offset)
	rows, err := q.query(ctx, `SELECT id, `+runBytes+`, error, summary, job_name FROM cron_run_logs WHERE `+v.where()+v.order(), v.args...)
	if err := found.search(rows, err, 3, v.f.Query); err != nil {
		return err
	}
	out.Total = found.total
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
