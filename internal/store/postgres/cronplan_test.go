package postgres_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"laneway/internal/cron"
	"laneway/internal/store/postgres"
	"laneway/internal/testpg"
)

// TestAPageOfRunsReadsFewRows checks what the statements of a list read of a ledger with a long history: a page reads rows of an index in the order of the
// list, and a count reads no finished row.
func TestAPageOfRunsReadsFewRows(t *testing.T) {
	t.Parallel()
	url := testpg.DB(t)
	seen := &statementsOfRuns{}
	s := open(t, postgres.Traced(postgres.Config{URL: url}, seen))
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	const rows, limit, owners = 30_000, 50, 3
	fillLedger(t, url, rows, owners)
	conn := connect(t, url)
	defer func() { _ = conn.Close(context.WithoutCancel(t.Context())) }()
	page := func(f cron.RunFilter) cron.RunFilter { f.Limit = limit; return f }
	for name, f := range map[string]cron.RunFilter{
		"all":            page(cron.RunFilter{}),
		"second page":    page(cron.RunFilter{Offset: limit}),
		"oldest first":   page(cron.RunFilter{Ascending: true}),
		"with active":    page(cron.RunFilter{IncludeActive: true}),
		"active":         page(cron.RunFilter{States: []cron.RunState{cron.RunRunning}}),
		"job":            page(cron.RunFilter{JobID: "job-7"}),
		"job and owner":  page(cron.RunFilter{JobID: "job-7", Visible: "owner-1"}),
		"owner":          page(cron.RunFilter{Visible: "owner-1"}),
		"run":            page(cron.RunFilter{RunID: "schedule:job-7:1700000007000"}),
		"since":          page(cron.RunFilter{Since: time.UnixMilli(1_700_000_000_000)}),
		"until":          page(cron.RunFilter{Until: time.UnixMilli(1_700_010_000_000)}),
		"job since":      page(cron.RunFilter{JobID: "job-7", Since: time.UnixMilli(1_700_000_000_000), IncludeActive: true}),
		"one common one": page(cron.RunFilter{States: []cron.RunState{cron.RunOK}}),
	} {
		*seen = statementsOfRuns{}
		if _, err := s.Runs(t.Context(), f); err != nil {
			t.Fatal(err)
		}
		for _, q := range seen.list {
			if strings.Contains(q.sql, "count(*)") {
				for _, n := range ledgerScans(t, conn, q.sql, q.args) {
					if n.Kind == "Seq Scan" && len(f.States) == 0 {
						t.Errorf("%s: the count reads rows by %+v", name, n)
					}
				}
				continue
			}
			if n := ledgerRead(t, conn, q.sql, q.args); n > (owners+1)*(f.Limit+f.Offset)+owners+10 {
				t.Errorf("%s: a page of %d reads %d rows of the ledger", name, limit, n)
			}
		}
	}
}

// statementsOfRuns collects the statements that read the ledger.
type statementsOfRuns struct {
	list []struct {
		sql  string
		args []any
	}
}

// TraceQueryStart implements pgx.QueryTracer.
func (c *statementsOfRuns) TraceQueryStart(ctx context.Context, _ *pgx.Conn, d pgx.TraceQueryStartData) context.Context {
	if strings.Contains(d.SQL, "cron_run_logs") {
		c.list = append(c.list, struct {
			sql  string
			args []any
		}{d.SQL, d.Args})
	}
	return ctx
}

// TraceQueryEnd implements pgx.QueryTracer.
func (*statementsOfRuns) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// fillLedger writes finished runs of 100 jobs, one per second.
func fillLedger(t *testing.T, url string, rows, owners int) {
	t.Helper()
	exec(t, url, fmt.Sprintf(`INSERT INTO cron_run_logs (id, job_id, owner, scheduled_for, trigger, state, run_id, claimed_at, started_at, finished_at, summary)
		SELECT 'schedule:job-' || i %% 100 || ':' || at, 'job-' || i %% 100, 'owner-' || i %% %d, at, 'schedule', 'ok', 'schedule:job-' || i %% 100 || ':' || at,
			at, at + 10, at + 1000, repeat('x', 100)
		FROM generate_series(1, %d) i, LATERAL (SELECT 1700000000000 + i * 1000 AS at) t`, owners, rows))
	exec(t, url, `VACUUM ANALYZE cron_run_logs`)
}

// planNode is a step of an executed plan.
type planNode struct {
	Kind     string  `json:"Node Type"`              //nolint:tagliatelle // as PostgreSQL names it
	Relation string  `json:"Relation Name"`          //nolint:tagliatelle // as PostgreSQL names it
	Index    string  `json:"Index Name"`             //nolint:tagliatelle // as PostgreSQL names it
	Rows     float64 `json:"Actual Rows"`            //nolint:tagliatelle // as PostgreSQL names it; of one loop, as the next one
	Removed  float64 `json:"Rows Removed by Filter"` //nolint:tagliatelle // as PostgreSQL names it
	Loops    float64 `json:"Actual Loops"`           //nolint:tagliatelle // as PostgreSQL names it
	Plans    []planNode
}

// ledgerScans executes a statement and returns the steps that read the ledger.
func ledgerScans(t *testing.T, conn *pgx.Conn, sql string, args []any) (found []planNode) {
	t.Helper()
	var text string
	if err := conn.QueryRow(t.Context(), "EXPLAIN (ANALYZE, FORMAT JSON) "+sql, args...).Scan(&text); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	var plans []struct{ Plan planNode }
	if err := json.Unmarshal([]byte(text), &plans); err != nil {
		t.Fatal(err)
	}
	var walk func(n planNode)
	walk = func(n planNode) {
		if n.Relation == "cron_run_logs" {
			found = append(found, n)
		}
		for _, child := range n.Plans {
			walk(child)
		}
	}
	walk(plans[0].Plan)
	if len(found) == 0 {
		t.Fatalf("no step reads the ledger: %s", text)
	}
	return found
}

func ledgerRead(t *testing.T, conn *pgx.Conn, sql string, args []any) (rows int) {
	t.Helper()
	for _, n := range ledgerScans(t, conn, sql, args) {
		rows += int(n.Loops * (n.Rows + n.Removed))
	}
	return rows
}
