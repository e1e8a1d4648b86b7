package postgres

import (
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"laneway/internal/cron"
	"laneway/internal/store"
)

// mostClaimed is how many claimed runs the store remembers: some 2 KB each. When there are more it forgets all of them, and their starts read the rows.
const mostClaimed = 4096

// claimedRun is what a claim remembers of a compact run for its start: the row of the ledger and its job, both as the claim has written them. Each is allocated
// by itself, so that one that never starts does not keep the others of its claim in memory.
type claimedRun struct {
	run                  cron.Run
	principal, sessionID string
	job                  *storedJob // with the version of both rows
}

// claimedRuns are the runs that this process has claimed and not started.
type claimedRuns struct {
	mu sync.Mutex
	of map[string]*claimedRun
}

func newClaimedRuns() *claimedRuns { return &claimedRuns{of: map[string]*claimedRun{}} }

// add remembers runs whose claim is committed.
func (c *claimedRuns) add(list []*claimedRun) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.of)+len(list) > mostClaimed {
		clear(c.of)
	}
	for _, r := range list[:min(len(list), mostClaimed)] {
		c.of[r.run.ID] = r
	}
}

// take returns a run and forgets it: it starts once. nil = it is not remembered.
func (c *claimedRuns) take(id string) *claimedRun {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := c.of[id]
	delete(c.of, id)
	return r
}

// startClaimedSQL is startCompactSQL for runs whose row and job are as their claim has written them: it returns only what has changed since then, and what the
// ledger knows of the job. Parameters: $1 clock, $2 runs, $3 nodes, $4 lanes, $5 entries of the transcript, $6 how many, $7 jobs, $8 versions.
const startClaimedSQL = `
WITH v AS MATERIALIZED (
	SELECT * FROM unnest($2::text[], $3::text[], $4::text[], $5::text[], $6::bigint[], $7::text[], $8::xid[]) WITH ORDINALITY
		AS v(id, node, lane, opening, n, job, version, i)
	WHERE i BETWEEN 1 AND 1000000
), b AS (
	SELECT v.i, v.node, v.opening, v.n, v.job, l.place FROM v CROSS JOIN LATERAL (
		SELECT ctid AS place FROM cron_run_logs
		WHERE id = v.id AND compact = 1 AND state = 'queued' AND node = v.node AND lane = v.lane AND xmin = v.version FOR UPDATE SKIP LOCKED
	) l
	WHERE v.node = ANY (` + liveNodes + `)
		AND EXISTS (SELECT 1 FROM cron_jobs j WHERE j.id = v.job AND j.xmin = v.version)
)
UPDATE cron_run_logs l SET state = 'running', attempt = 1, started_at = ` + nowSQL + `, transcript = b.opening, entries = b.n,
	attempts = '[{"attempt":1,"startedAtMs":' || ` + nowSQL + ` || ',"node":' || to_json(b.node) || '}]'
FROM b WHERE l.ctid = b.place AND l.compact = 1
RETURNING b.i, l.started_at, (SELECT ARRAY[count(*), min(a.started_at) FILTER (WHERE a.state = 'running')] FROM cron_run_logs a
	WHERE a.job_id = b.job AND a.finished_at IS NULL)`

// queueClaimed queues the starts of runs whose claim is remembered, and marks those that have started.
func (s *Store) queueClaimed(b *pgx.Batch, list []*startOp, places []int, done []bool) {
	starts := make([]*startOp, len(places))
	for k, i := range places {
		starts[k] = list[i]
	}
	text := func(of func(g *startOp) string) []string { return column(starts, of) }
	b.Queue(startClaimedSQL, s.clock(), text(func(g *startOp) string { return g.p.RunID }), text(func(g *startOp) string { return g.p.Node }),
		text(func(g *startOp) string { return g.p.Lane }), text(func(g *startOp) string { return g.opening }),
		column(starts, func(g *startOp) int64 { return int64(len(g.p.Transcript)) }), text(func(g *startOp) string { return g.claimed.run.JobID }),
		column(starts, func(g *startOp) uint32 { return g.claimed.job.version })).Query(func(rows pgx.Rows) error {
		var (
			at      = time.Now() //nolint:forbidigo // only to measure how much time passes until the end
			i       int
			started int64
			counts  []pgtype.Int8 // runs of the job that are not over, and the begin of the oldest one that ran before
		)
		_, err := pgx.ForEachRow(rows, []any{&i, &started, &counts}, func() error {
			starts[i-1].startedClaimed(fromMillis(started), counts, at)
			done[places[i-1]] = true
			return nil
		})
		return err
	})
}

// startedClaimed makes the result of the start of a run whose claim is remembered; counts are those of startClaimedSQL.
func (g *startOp) startedClaimed(started time.Time, counts []pgtype.Int8, at time.Time) {
	c, n := g.claimed, int64(len(g.p.Transcript))
	r := c.run
	r.State, r.Attempt, r.StartedAt = cron.RunRunning, 1, started
	r.Attempts = []cron.Attempt{{Number: 1, StartedAt: started, Node: g.p.Node}}
	active := jobActivity{int(counts[0].Int64), started}
	if other := moment(counts[1]); !other.IsZero() && other.Before(started) {
		active.runningAt = other
	}
	job := active.seen(&c.job.Job)
	g.begun = &begun{run: r, entries: n, job: c.job, active: active, at: at}
	g.out = store.Started{
		Seqs: slices.Clone(g.p.Seqs), Attempt: 1, StartedAt: started, Notes: map[string]string{}, Principal: c.principal, SessionID: c.sessionID,
		Entries: numbered(g.p.Transcript, n, started), Job: &job,
	}
}
