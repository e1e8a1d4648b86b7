package sqlstore

import (
	"context"
	"slices"
	"strconv"
	"strings"

	"laneway/internal/cron"
)

// conditions builds a WHERE clause that contains only the conditions in use: a plan for every filter at once could not use an index.
type conditions struct {
	list []string
	args []any
}

// add adds a condition with one parameter, written as %s.
func (c *conditions) add(wanted bool, condition string, arg any) {
	if wanted {
		c.list = append(c.list, strings.ReplaceAll(condition, "%s", c.arg(arg)))
	}
}

// arg adds a parameter and returns its placeholder.
func (c *conditions) arg(v any) string {
	c.args = append(c.args, v)
	return "$" + strconv.Itoa(len(c.args))
}

func asStrings[T ~string](list []T) []string {
	out := make([]string, len(list))
	for i, v := range list {
		out[i] = string(v)
	}
	return out
}

// runList is the query of a list of runs.
type runList struct {
	f                       *cron.RunFilter
	c                       conditions
	where, active, finished string // conditions for rows, for active ones and for finished ones; "" = no such rows
}

const (
	// PostgreSQL searches in SQL, see jobsFound.
	runsFound = `(position(%s IN lower(id)) > 0 OR position(%s IN lower(error)) > 0 OR position(%s IN lower(summary)) > 0 OR position(%s IN lower(job_name)) > 0)`
	runTexts  = `, error, summary, job_name`

	// ledgerOwners are the owners of ledger rows. It costs one index lookup per owner.
	ledgerOwners = `(WITH RECURSIVE o(owner) AS (
			(SELECT owner FROM cron_run_logs ORDER BY owner LIMIT 1)
			UNION ALL SELECT (SELECT l.owner FROM cron_run_logs l WHERE l.owner > o.owner ORDER BY l.owner LIMIT 1) FROM o WHERE o.owner IS NOT NULL
		) SELECT owner FROM o WHERE owner IS NOT NULL) o`
)

func newRunList(tx Tx, f *cron.RunFilter) *runList {
	l := &runList{f: f}
	c := &l.c
	c.add(f.Visible != "", "owner = %s", f.Visible)
	c.add(f.JobID != "", "job_id = %s", f.JobID)
	c.add(f.RunID != "", "id = %s", f.RunID)
	c.add(f.Agent != "", "agent = %s", f.Agent)
	c.add(len(f.Deliveries) > 0, "delivery {in %s}", asStrings(f.Deliveries))
	c.add(!f.Since.IsZero(), "scheduled_for >= %s", millis(f.Since))
	c.add(!f.Until.IsZero(), "scheduled_for <= %s", millis(f.Until))
	c.add(f.Query != "" && tx.PerEngine("sql", "") != "", runsFound, strings.ToLower(f.Query))
	if len(c.list) == 0 {
		c.list = append(c.list, "scheduled_for > -9000000000000000") // all rows, by the index of planned times
	}
	l.where = strings.Join(c.list, " AND ")
	var open, over []string
	for _, state := range f.States {
		if state.Active() {
			open = append(open, string(state))
		} else {
			over = append(over, string(state))
		}
	}
	switch {
	case f.IncludeActive:
		l.active = `finished_at IS NULL`
	case len(open) > 0:
		l.active = `finished_at IS NULL AND state {in ` + c.arg(open) + `}`
	}
	switch {
	case len(over) > 0:
		l.finished = `finished_at IS NOT NULL AND state {in ` + c.arg(over) + `}`
	case len(f.States) == 0:
		l.finished = `finished_at IS NOT NULL`
	}
	return l
}

func (l *runList) matching() string {
	switch {
	case l.active == "":
		return l.where + " AND " + l.finished
	case l.finished == "":
		return l.where + " AND " + l.active
	}
	return l.where + " AND (" + l.active + " OR " + l.finished + ")"
}

func (l *runList) order() string {
	direction := " DESC"
	if l.f.Ascending {
		direction = ""
	}
	if l.finished == "" { // the plus keeps SQLite from reading the whole ledger in index order to avoid sorting a few rows
		return " ORDER BY +scheduled_for" + direction + ", id" + direction
	}
	return " ORDER BY scheduled_for" + direction + ", id" + direction
}

// text returns the query for the rows of the list in order: an id, the bytes of the row, and the strings that are searched. PostgreSQL has the order in an
// index per owner, SQLite in one of all rows.
func (l *runList) text(tx Tx, texts string) (string, []any) {
	columns := "SELECT id, " + runBytes + texts + " FROM "
	direct := columns + "cron_run_logs WHERE " + l.matching() + l.order()
	f := l.f
	bounded := f.Limit > 0 && texts == ""
	if !bounded {
		return direct, l.c.args
	}
	args := append(slices.Clip(l.c.args), f.Limit, max(f.Offset, 0))
	limit, offset := "$"+strconv.Itoa(len(args)-1), "$"+strconv.Itoa(len(args))
	piece := " {limit " + limit + "} OFFSET " + offset
	if f.JobID != "" || f.RunID != "" || f.Visible != "" || l.finished == "" {
		return direct + piece, args
	}
	return tx.PerEngine(columns+ledgerOwners+" CROSS JOIN LATERAL (SELECT l.* FROM cron_run_logs l WHERE "+l.matching()+" AND l.owner = o.owner"+l.order()+
		" LIMIT CAST("+limit+" AS bigint) + "+offset+") l"+l.order()+piece, direct+piece), args
}

// count counts the rows that match. When all finished rows match, it counts index entries and subtracts the active rows that do not match, so it reads no
// finished row.
func (l *runList) count(ctx context.Context, tx Tx) (n int, err error) {
	most := len(l.c.args) + 1
	text := `SELECT count(*) FROM (SELECT 1 FROM cron_run_logs WHERE %s {limit $` + strconv.Itoa(most) + `}) n`
	if l.finished != `finished_at IS NOT NULL` {
		_, err = one(ctx, tx, strings.Replace(text, "%s", l.matching(), 1), into(&n), append(slices.Clip(l.c.args), mostCounted)...)
		return n, err
	}
	other := 0
	if l.active != `finished_at IS NULL` {
		not := l.where + " AND finished_at IS NULL"
		if l.active != "" {
			not += " AND NOT (" + l.active + ")"
		}
		if _, err := one(ctx, tx, "SELECT count(*) FROM cron_run_logs WHERE "+not, into(&other), l.c.args...); err != nil {
			return 0, err
		}
	}
	_, err = one(ctx, tx, strings.Replace(text, "%s", l.where, 1), into(&n), append(slices.Clip(l.c.args), mostCounted+other)...)
	return n - other, err
}

// Runs lists rows of the ledger; see cron.JobStore.
func (s Cron) Runs(ctx context.Context, f cron.RunFilter) (out cron.RunPage, err error) {
	err = s.db.List(ctx, "list runs", func(ctx context.Context, tx Tx) error {
		out = cron.RunPage{}
		l := newRunList(tx, &f)
		texts := ""
		if f.Query != "" {
			texts = tx.PerEngine("", runTexts)
		}
		text, args := l.text(tx, texts)
		p := idPage{limit: f.Limit, texts: strings.Count(texts, ","), find: strings.ToLower(f.Query), offset: f.Offset}
		if p.texts > 0 {
			p.most = mostCounted
		} else {
			if out.Total, err = l.count(ctx, tx); err != nil {
				return err
			}
			if f.Limit > 0 {
				p.offset = 0 // the statement has already skipped those rows
			}
		}
		if err := p.read(ctx, tx, text, args...); err != nil {
			return err
		}
		if p.texts > 0 {
			out.Total = p.total
		}
		out.Runs, err = runsNamed(ctx, tx, p.ids)
		return err
	})
	return out, err
}

func runsNamed(ctx context.Context, tx Tx, ids []string) ([]cron.Run, error) {
	rows, err := readRuns(ctx, tx, ids)
	if err != nil {
		return nil, err
	}
	var list []cron.Run
	for _, id := range ids {
		if r, ok := rows[id]; ok {
			list = append(list, r.Run)
		}
	}
	return list, nil
}
