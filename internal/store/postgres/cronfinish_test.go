package postgres_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"laneway/internal/chat"
	"laneway/internal/cron"
	"laneway/internal/store"
	"laneway/internal/store/postgres"
	"laneway/internal/testpg"
)

func startOf(l cron.Launched) store.StartParams {
	return store.StartParams{
		Claim: store.Claim{Session: l.Message.Session, Node: "n1", Epoch: l.Epoch}, RunID: l.Message.ID, Lane: "cron", Seqs: []int64{l.Seq},
		Cron: &cron.AttemptStart{RunID: l.Run.ID, Attempt: 1, Node: "n1"},
	}
}

func endOf(l cron.Launched) store.FinishParams {
	return store.FinishParams{
		Claim: startOf(l).Claim, RunID: l.Message.ID, State: store.RunOK, Outcome: chat.OutcomeAnswered,
		Cron: &cron.AttemptEnd{
			RunID: l.Run.ID, Attempt: cron.Attempt{Number: 1, State: cron.AttemptOK}, State: cron.RunOK, Summary: "said by " + l.Run.JobName,
			Job: func(j cron.Job, r cron.Run, now time.Time) *cron.Job { next, _ := j.After(r, now); return next },
		},
	}
}

// launchedJobs are runs of jobs 1 to n, in this order, that have not begun.
func (c *nodesOfTest) launchedJobs(n int) []cron.Launched {
	c.t.Helper()
	addJobs(c.t, c.url, n)
	list := make([]cron.Launched, n)
	for _, l := range claimAll(c.t, c.s) {
		var i int
		if _, err := fmt.Sscanf(l.Run.JobName, "job %d", &i); err != nil {
			c.t.Fatal(err)
		}
		list[i-1] = l
	}
	return list
}

// lockWith holds the locks of a statement until the test ends.
func (c *nodesOfTest) lockWith(sql string, args ...any) {
	c.t.Helper()
	conn := connect(c.t, c.url)
	c.t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(c.t.Context())) })
	tx, err := conn.Begin(c.t.Context())
	if err != nil {
		c.t.Fatal(err)
	}
	if _, err := tx.Exec(c.t.Context(), sql, args...); err != nil {
		c.t.Fatal(err)
	}
}

func newCronNodes(t *testing.T) *nodesOfTest {
	t.Helper()
	s, url := cronStore(t)
	return &nodesOfTest{t: t, url: url, s: s}
}

// TestAttemptsEndTogetherEachUnderItsFence checks that a group writes run, ledger and job of each
// attempt that it may end, and nothing of the others.
func TestAttemptsEndTogetherEachUnderItsFence(t *testing.T) {
	t.Parallel()
	c := newCronNodes(t)
	list := c.launchedJobs(8)
	ends := make([]store.FinishParams, 0, len(list)+1)
	for i, l := range list {
		if i != 6 { // one has not begun
			if _, err := c.s.Start(t.Context(), startOf(l)); err != nil {
				t.Fatal(err)
			}
		}
		ends = append(ends, endOf(l))
	}
	ends[1].Epoch--                                                                                  // fenced
	c.lockWith(`SELECT 1 FROM sessions WHERE key = $1 FOR UPDATE`, list[2].Message.Session.String()) // locked by another transaction
	c.lockWith(`SELECT 1 FROM cron_jobs WHERE id = $1 FOR UPDATE`, list[3].Run.JobID)                // locked by another transaction
	exec(t, c.url, fmt.Sprintf(`DELETE FROM cron_jobs WHERE id = '%s'`, list[4].Run.JobID))          // the job was removed
	stopping := ends[5]                                                                              // ended already, its goroutine has not returned
	stopping.State, stopping.Outcome, stopping.StillRunning, stopping.Cron = store.RunStopped, chat.OutcomeStopped, true, nil
	if _, err := c.s.Finish(t.Context(), stopping); err != nil {
		t.Fatal(err)
	}
	ends = append(ends, ends[0]) // another run of the same job
	done, out, err := c.s.FinishTogether(t.Context(), ends)
	c.wantDone(done, err, true, false, false, false, false, false, false, true, false)
	if !out[0].Released || out[0].EndedAt.IsZero() {
		t.Errorf("got %+v, want the session released and a time", out[0])
	}
	c.wantRows(`SELECT job_name || ' ' || state || ' ' || summary FROM cron_run_logs ORDER BY job_name`,
		"job 1 ok said by job 1", "job 2 running ", "job 3 running ", "job 4 running ", "job 5 running ", "job 6 running ", "job 7 queued ",
		"job 8 ok said by job 8")
	c.wantRows(`SELECT name || ' ' || run_count || ' ' || last_state FROM cron_jobs ORDER BY name`,
		"job 1 1 ok", "job 2 0 ", "job 3 0 ", "job 4 0 ", "job 6 0 ", "job 7 0 ", "job 8 1 ok")
	c.wantRows(`SELECT count(*) FROM runs WHERE state = 'ok' AND ended_at IS NOT NULL`, "2")
	c.wantRows(`SELECT count(DISTINCT xmin::text) FROM runs WHERE state = 'ok'`, "1")
	if _, err := c.s.Finish(t.Context(), ends[4]); err != nil { // alone, it ends without its job
		t.Fatal(err)
	}
	c.wantRows(`SELECT job_name || ' ' || state FROM cron_run_logs WHERE job_name = 'job 5'`, "job 5 ok")
}

// TestAttemptsThatBeginTogetherAreInTheLedger checks that each row records when and where its
// attempt began, and that a fenced attempt writes nothing.
func TestAttemptsThatBeginTogetherAreInTheLedger(t *testing.T) {
	t.Parallel()
	c := newCronNodes(t)
	list := c.launchedJobs(4)
	starts := make([]store.StartParams, len(list))
	for i, l := range list {
		starts[i] = startOf(l)
	}
	starts[1].Epoch--
	done, out, err := c.s.StartTogether(t.Context(), starts)
	c.wantDone(done, err, true, false, true, true)
	c.wantRows(`SELECT job_name || ' ' || state || ' ' || attempt || ' ' || node FROM cron_run_logs ORDER BY job_name`,
		"job 1 running 1 n1", "job 2 queued 0 n1", "job 3 running 1 n1", "job 4 running 1 n1")
	run, err := c.s.Run(t.Context(), list[2].Run.ID, "")
	if err != nil {
		t.Fatal(err)
	}
	if len(run.Attempts) != 1 || run.Attempts[0].Node != "n1" || !run.Attempts[0].StartedAt.Equal(out[2].StartedAt) || !run.StartedAt.Equal(out[2].StartedAt) {
		t.Errorf("got %+v, want one attempt on n1 that began at %v", run, out[2].StartedAt)
	}
}

// TestAPageOfRunsReadsFewRows checks what the statements of a list read of a ledger with a long
// history: a page reads rows of an index in the order of the list, and a count reads no finished
// row.
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
