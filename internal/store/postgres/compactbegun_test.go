package postgres_test

import (
	"context"
	"fmt"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"laneway/internal/cron"
	"laneway/internal/store"
	"laneway/internal/store/postgres"
	"laneway/internal/testpg"
)

// begin starts a run and returns its end, which has what the store remembers of the start.
func (c *nodesOfTest) begin(l cron.Launched) store.FinishParams {
	c.t.Helper()
	started, err := c.s.Start(c.t.Context(), startOf(l))
	if err != nil {
		c.t.Fatal(err)
	}
	if started.Begun == nil {
		c.t.Fatal("the store remembers nothing of the start of a compact run")
	}
	end := endOf(l)
	end.Begun = started.Begun
	return end
}

// countedNode is the node n1 on a database of its own, and the number of the statements of its store.
func countedNode(t *testing.T) (*nodesOfTest, *counter) {
	t.Helper()
	url, count := testpg.DB(t), &counter{}
	s := open(t, postgres.Traced(postgres.Config{URL: url}, count))
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := s.Register(t.Context(), store.Node{ID: "n1", Lease: time.Hour}); err != nil {
		t.Fatal(err)
	}
	return &nodesOfTest{t: t, url: url, s: s}, count
}

// TestTheEndOfARunAsItBeganIsOneStatement: nothing is read again that the start has read.
func TestTheEndOfARunAsItBeganIsOneStatement(t *testing.T) {
	t.Parallel()
	c, count := countedNode(t)
	for i, l := range c.launchedJobs(2) {
		end := c.begin(l)
		if i == 1 {
			end.Outgoing = []store.Outgoing{{Session: l.Message.Session, Kind: store.KindReply, Text: "an answer"}}
		}
		before := count.Load()
		f, err := c.s.Finish(t.Context(), end)
		if err != nil {
			t.Fatal(err)
		}
		if n := count.Load() - before; n != 1 {
			t.Errorf("the end took %d statements, want 1", n)
		}
		if late := time.Since(f.EndedAt).Abs(); late > time.Minute || !f.Released {
			t.Errorf("got %+v, want the session released now", f)
		}
	}
	c.wantRows(`SELECT job_name || ' ' || state || ' ' || summary || ' ' || (finished_at >= started_at) FROM cron_run_logs ORDER BY job_name`,
		"job 1 ok said by job 1 true", "job 2 ok said by job 2 true")
	c.wantRows(`SELECT name || ' ' || run_count || ' ' || last_state FROM cron_jobs ORDER BY name`, "job 1 1 ok", "job 2 1 ok")
	c.wantRows(`SELECT payload FROM outbox`, "an answer")
	checkInvariants(t, c.url)
}

// counter counts statements.
type counter struct{ atomic.Int64 }

func (c *counter) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	c.Add(1)
	return ctx
}
func (*counter) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}
func (*counter) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	return ctx
}
func (c *counter) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) { c.Add(1) }
func (*counter) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData)       {}

// TestAnEndForgetsNoChangeOfItsJob: what was changed between start and end stays, and the end counts on what is there.
func TestAnEndForgetsNoChangeOfItsJob(t *testing.T) {
	t.Parallel()
	c := newCompactNodes(t)
	list := c.launchedJobs(4)
	ends := make([]store.FinishParams, len(list))
	for i, l := range list {
		ends[i] = c.begin(l)
	}
	exec(t, c.url, fmt.Sprintf(`UPDATE cron_jobs SET run_count = 7, consecutive_errors = 3, description = 'edited' WHERE id = '%s'`, list[1].Run.JobID))
	exec(t, c.url, fmt.Sprintf(`DELETE FROM cron_jobs WHERE id = '%s'`, list[2].Run.JobID))
	ends[3].Cron.Job = func(j cron.Job, _ cron.Run, _ time.Time) *cron.Job { // more than the counters
		j.State.RunCount++
		j.Enabled = false
		return &j
	}
	done, _, err := c.s.CompactTogether(t.Context(), ends)
	c.wantDone(done, err, true, true, true, true)
	c.wantRows(`SELECT name || ' ' || run_count || ' ' || consecutive_errors || ' ' || description || ' ' || enabled FROM cron_jobs ORDER BY name`,
		"job 1 1 0  true", "job 2 8 0 edited true", "job 4 1 0  false")
	c.wantRows(`SELECT count(*) FROM cron_run_logs WHERE state = 'ok' AND finished_at IS NOT NULL`, "4")
}

// TestAnEndIsNotWrittenForWhatIsNotAsItBegan: a claim that holds no more, rows that another transaction has locked, a run that has rows of its own now.
func TestAnEndIsNotWrittenForWhatIsNotAsItBegan(t *testing.T) {
	t.Parallel()
	c := newCompactNodes(t)
	list := c.launchedJobs(6)
	ends := make([]store.FinishParams, len(list))
	for i, l := range list {
		ends[i] = c.begin(l)
	}
	ends[1].Node = "n2"
	c.lockWith(`SELECT 1 FROM cron_run_logs WHERE id = $1 FOR UPDATE`, list[2].Run.ID)
	c.lockWith(`SELECT 1 FROM cron_jobs WHERE id = $1 FOR UPDATE`, list[3].Run.JobID)
	if err := c.s.SetNote(t.Context(), list[4].Message.Session, "ann", "a", "b"); err != nil { // writes the rows of the session
		t.Fatal(err)
	}
	ends[5].Begun = ends[0].Begun // of another run
	done, _, err := c.s.CompactTogether(t.Context(), ends)
	c.wantDone(done, err, true, false, false, false, false, true)
	c.wantRows(`SELECT job_name || ' ' || state FROM cron_run_logs ORDER BY job_name`,
		"job 1 ok", "job 2 running", "job 3 running", "job 4 running", "job 5 running", "job 6 ok")
	c.wantRows(`SELECT name || ' ' || run_count FROM cron_jobs ORDER BY name`, "job 1 1", "job 2 0", "job 3 0", "job 4 0", "job 5 0", "job 6 1")
	again, _, err := c.s.CompactTogether(t.Context(), ends[:1])
	c.wantDone(again, err, false)
	c.wantRows(`SELECT run_count FROM cron_jobs WHERE name = 'job 1'`, "1")
}

// TestTwoRunsOfAJobEndTogether: the second one counts on what the first has written.
func TestTwoRunsOfAJobEndTogether(t *testing.T) {
	t.Parallel()
	c := newCompactNodes(t)
	first := c.launchedJobs(1)[0]
	exec(t, c.url, `UPDATE cron_jobs SET next_run_at = 2000000, next_slot = 2000000`)
	second := claimAll(t, c.s)[0]
	ends := []store.FinishParams{c.begin(first), c.begin(second)}
	done, _, err := c.s.CompactTogether(t.Context(), ends)
	c.wantDone(done, err, true, true)
	c.wantRows(`SELECT run_count FROM cron_jobs`, "2")
}

// TestRunsOfChangingJobsEndOnceEach: edits come between starts and ends at any moment, and no count is lost.
func TestRunsOfChangingJobsEndOnceEach(t *testing.T) {
	t.Parallel()
	c := newCompactNodes(t)
	const jobs = 100
	var all errgroup.Group
	for _, l := range c.launchedJobs(jobs) {
		all.Go(func() error {
			started, err := c.s.Start(t.Context(), startOf(l))
			if err != nil {
				return err
			}
			end := endOf(l)
			end.Begun = started.Begun
			_, err = c.s.Finish(t.Context(), end)
			return err
		})
		all.Go(func() error {
			_, err := c.s.ChangeJob(t.Context(), cron.ChangeParams{ID: l.Run.JobID, Change: func(j cron.Job, _ time.Time) (*cron.Job, error) {
				j.Description = "edited"
				return &j, nil
			}})
			return err
		})
	}
	if err := all.Wait(); err != nil {
		t.Fatal(err)
	}
	c.wantRows(`SELECT count(*) FROM cron_jobs WHERE run_count = 1 AND description = 'edited'`, strconv.Itoa(jobs))
	c.wantRows(`SELECT count(*) FROM cron_run_logs WHERE state = 'ok' AND attempt = 1`, strconv.Itoa(jobs))
	checkInvariants(t, c.url)
}
