package sqlite

import (
	"context"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"laneway/internal/cron"
)

// checked adds to a configuration that each transaction, before its commit, compares the cached jobs with the tables. opened must be called with the store.
// Every test of the package opens its stores so, and the suite of the port.
func checked(tb testing.TB, cfg *Config) (opened func(s *Store)) {
	tb.Helper()
	if _, benchmark := tb.(*testing.B); benchmark {
		return func(*Store) {}
	}
	var of atomic.Pointer[Store]
	cfg.at = func(b boundary) {
		if s := of.Load(); s != nil && b == boundaryApplied {
			if diff := staleJobs(context.WithoutCancel(tb.Context()), &tx{session: s.write.conn}); diff != "" {
				tb.Errorf("the cache of jobs is not as the tables (- table, + cache):\n%s", diff)
			}
		}
	}
	return of.Store
}

// mostCompared is how many cached jobs are compared with the tables after a transaction: of more, as many in the random order of the map.
const mostCompared = 2

// staleJobs compares cached jobs with the tables.
func staleJobs(ctx context.Context, t *tx) (diff string) {
	compared := 0
	for _, generation := range []map[string]*cachedJob{t.jobs.older, t.jobs.recent} {
		for id, j := range generation {
			if compared++; compared > mostCompared {
				return ""
			}
			if diff += staleJob(ctx, t, id, j); diff != "" {
				return diff
			}
		}
	}
	return ""
}

// difference is cmp.Diff, which takes long for equal values.
func difference[T any](want, got T, opts ...cmp.Option) string {
	if reflect.DeepEqual(want, got) {
		return ""
	}
	return cmp.Diff(want, got, opts...)
}

func staleJob(ctx context.Context, t *tx, id string, j *cachedJob) string {
	want, err := t.scanDue(packed{t.one(ctx, `SELECT `+asOne+`id, `+jobColumns+column+` FROM cron_jobs WHERE id = ?`, id)})
	if err != nil {
		return fmt.Sprintf("the job %s: %v", id, err)
	}
	active, err := t.activeRuns(ctx, []string{id})
	if err != nil {
		return err.Error()
	}
	seen, err := findJob(ctx, t, id, "")
	if err != nil {
		return err.Error()
	}
	// Everything is compared in the form that callers get, and the runs one by one.
	diff := difference(want.Job, j.Job) + difference(want.parts, j.parts) + difference(seen.Job, *j.withRuns())
	if len(active[id]) != len(j.active) {
		return diff + fmt.Sprintf("%d active runs, cached are %d of %s", len(active[id]), len(j.active), id)
	}
	for i, r := range active[id] {
		if diff == "" {
			diff = staleRun(ctx, t, r, j.active[i])
		}
	}
	return diff
}

func staleRun(ctx context.Context, t *tx, want, r activeRun) string {
	row := r.row
	if r.row = nil; want != r {
		return fmt.Sprintf("- %+v\n+ %+v", want, r)
	}
	if row == nil {
		return ""
	}
	ledger, known, err := findLedger(ctx, t, r.id)
	if err != nil || !known {
		return fmt.Sprintf("the run %s is cached and there is none (%v)", r.id, err)
	}
	have := compactRow{run: ledger.Run}
	var compact bool
	err = t.one(ctx, `SELECT principal, session_id, entries, compact FROM cron_run_logs WHERE id = ?`, r.id).Scan(&have.principal, &have.transcript, &have.entries, &compact)
	if err != nil || !compact {
		return fmt.Sprintf("the run %s is cached as compact (%v)", r.id, err)
	}
	return difference(have, *row, cmp.AllowUnexported(compactRow{}))
}

// doInWriter runs an operation on the store's tables that the port does not have.
func doInWriter(t *testing.T, s *Store, run work) {
	t.Helper()
	if err := s.write.do(t.Context(), ordinary("test"), run); err != nil {
		t.Fatal(err)
	}
}

// uncheckedJobs is withJobs without the comparison after each transaction.
func uncheckedJobs(t *testing.T, jobs int) (*Store, *time.Time) {
	t.Helper()
	now := time.UnixMilli(startOfTime)
	s, err := Open(t.Context(), Config{Path: migrated(t), Now: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	register(t, s, "node")
	fillJobs(t, s, jobs, now.Add(time.Minute))
	return s, &now
}

// TestTheComparisonSeesAStaleCache: the check of all other tests can fail.
func TestTheComparisonSeesAStaleCache(t *testing.T) {
	t.Parallel()
	for _, statement := range []string{
		`UPDATE cron_jobs SET name = 'another'`, `UPDATE cron_jobs SET run_count = 7`, `UPDATE cron_jobs SET next_slot = 7`, `DELETE FROM cron_jobs`,
		`UPDATE cron_jobs SET policy = '{}'`, `UPDATE cron_run_logs SET state = 'running'`, `UPDATE cron_run_logs SET node = 'x'`,
		`UPDATE cron_run_logs SET compact = 0`, `UPDATE cron_run_logs SET session_id = 'x'`, `UPDATE cron_run_logs SET entries = 2`, `DELETE FROM cron_run_logs`,
	} {
		s, now := uncheckedJobs(t, 1)
		*now = now.Add(time.Minute)
		claimed(t, s, fire)
		doInWriter(t, s, func(ctx context.Context, t2 *tx) error {
			if diff := staleJobs(ctx, t2); diff != "" || t2.jobs.get("job-0000000") == nil {
				t.Errorf("a cache that is right, or empty, differs: %s", diff)
			}
			_, err := t2.execKept(ctx, statement)
			if err == nil && staleJobs(ctx, t2) == "" {
				t.Errorf("nothing differs after %s", statement)
			}
			return err
		})
	}
}

// TestAFireOfACachedJobReadsNothing: the statements that read a job and a row are not even prepared, and the second fire does not read the job.
func TestAFireOfACachedJobReadsNothing(t *testing.T) {
	t.Parallel()
	s, now := uncheckedJobs(t, 1)
	for range 3 {
		*now = now.Add(time.Minute)
		if err := fireThrough(t.Context(), s, claimed(t, s, fire).Launched[0]); err != nil {
			t.Fatal(err)
		}
		doInWriter(t, s, func(_ context.Context, t2 *tx) error {
			j := t2.jobs.get("job-0000000")
			if j == nil || len(j.active) != 0 {
				t.Errorf("the cached job after a fire: %+v", j)
			}
			return nil
		})
	}
	plain := func(text string) bool {
		return strings.Contains(text, "SELECT "+asOne+"id, job_id") || strings.Contains(text, "RETURNING principal, session_id")
	}
	for text := range s.write.conn.stmts {
		if plain(text) {
			t.Errorf("the fires have used %s", text)
		}
	}
	if runs := count(t, s, `SELECT run_count FROM cron_jobs`); runs != 3 {
		t.Errorf("%d runs are counted, want 3", runs)
	}
}

// TestTheStatementIsTheFence: a start and an end write nothing when the row is another one than was cached, whatever the cache has.
func TestTheStatementIsTheFence(t *testing.T) {
	t.Parallel()
	for _, change := range []string{
		`UPDATE cron_run_logs SET state = 'cancelled', finished_at = 1`, `UPDATE cron_run_logs SET session_id = 'another'`, `DELETE FROM cron_run_logs`,
		`UPDATE cron_run_logs SET compact = 0`, `UPDATE cron_run_logs SET node = 'other'`, `UPDATE nodes SET lease_until = 1`, `DELETE FROM nodes`,
	} {
		for _, started := range []bool{false, true} {
			s, now := uncheckedJobs(t, 1)
			*now = now.Add(time.Minute)
			l := claimed(t, s, fire).Launched[0]
			op := func(run func(ctx context.Context, t2 *tx) (bool, error)) (done bool) {
				doInWriter(t, s, func(ctx context.Context, t2 *tx) (err error) {
					done, err = run(ctx, t2)
					return err
				})
				return done
			}
			start := func() bool {
				o, err := newStart(startOf(&l))
				if err != nil || o.job == "" {
					t.Fatalf("no start of a compact run: %v", err)
				}
				return op(func(ctx context.Context, t2 *tx) (bool, error) { _, ok, err := t2.startCached(ctx, o); return ok, err })
			}
			finish := func() bool {
				o, err := newFinish(finishOf(&l))
				if err != nil || o.job == "" {
					t.Fatalf("no end of a compact run: %v", err)
				}
				return op(func(ctx context.Context, t2 *tx) (bool, error) { _, ok, err := t2.finishCached(ctx, o); return ok, err })
			}
			if started && !start() {
				t.Fatal("a cached run has not started")
			}
			op(func(ctx context.Context, t2 *tx) (bool, error) { _, err := t2.execKept(ctx, change); return true, err })
			if !started && start() || started && finish() {
				t.Errorf("after %s (started: %v) the run was changed from the cache", change, started)
			}
			if n := count(t, s, `SELECT count(*) FROM cron_run_logs WHERE state = 'ok'`); n != 0 {
				t.Errorf("after %s (started: %v) the run is ok", change, started)
			}
		}
	}
}

// TestARollbackEmptiesTheCache: a claim that fails after it has moved jobs, alone or in a batch with other operations, leaves no trace of them.
func TestARollbackEmptiesTheCache(t *testing.T) {
	t.Parallel()
	s, now := withJobs(t, 3)
	for _, alone := range []bool{true, false, true} {
		*now = now.Add(time.Minute)
		if c := claimed(t, s, fire); len(c.Launched) != 3 || c.Launched[0].Run.ScheduledFor != now.UTC() {
			t.Fatalf("claimed %+v, want the three runs of this minute", c.Launched)
		}
		*now = now.Add(time.Minute)
		g := block(t, s)
		failed := make(chan error, 1)
		go func() {
			_, err := s.Claim(t.Context(), cron.ClaimParams{Node: "node", Decide: func(at time.Time, due []cron.DueJob) []cron.Verdict {
				all := fire(at, due)
				all[2].Runs[0].Message.Content.Options.Params = map[string]any{"no JSON": func() {}}
				return all
			}})
			failed <- err
		}()
		queueLength(t, s, 1)
		other := make(chan error, 1)
		if alone {
			other <- nil
		} else {
			go func() { _, err := s.Accept(t.Context(), message("node", "room", "m")); other <- err }()
			queueLength(t, s, 2)
		}
		close(g.leave)
		if err := <-failed; err == nil {
			t.Error("a message that cannot be encoded was accepted")
		}
		if err := <-other; err != nil {
			t.Error(err)
		}
		if c := claimed(t, s, fire); len(c.Launched) != 3 || c.Launched[0].Run.ScheduledFor != now.UTC() {
			t.Errorf("alone %v: claimed %+v after it, want the three runs of this minute", alone, c.Launched)
		}
	}
}

// TestTheCacheIsBounded: jobs that are claimed long ago, that have long texts or many runs are not kept.
func TestTheCacheIsBounded(t *testing.T) {
	t.Parallel()
	c := &jobCache{}
	job := func(i int) *cachedJob {
		return &cachedJob{storedJob: &storedJob{Job: cron.Job{ID: strconv.Itoa(i)}}}
	}
	for i := range 10 * maxCachedJobs {
		c.put(job(i))
		c.get("0")
	}
	if n := len(c.recent) + len(c.older); n > 2*maxCachedJobs || c.get("0") == nil || c.get("1") != nil || c.get(strconv.Itoa(10*maxCachedJobs-1)) == nil {
		t.Errorf("%d jobs are kept; want at most %d, with the first, which is asked for again and again", n, 2*maxCachedJobs)
	}
	long, many, broken := job(-1), job(-2), job(-3)
	long.parts.Payload, many.active, broken.unreadable = strings.Repeat("x", maxCachedText+1), make([]activeRun, maxCachedRuns+1), true
	for _, j := range []*cachedJob{long, many, broken} {
		if c.put(j); c.get(j.ID) != nil {
			t.Errorf("the job %s is kept", j.ID)
		}
	}
	c.put(job(-4))
	for i := range maxCachedRuns + 1 {
		c.launched(&activeRun{id: strconv.Itoa(i), row: &compactRow{run: cron.Run{JobID: "-4"}}})
	}
	if c.get("-4") != nil {
		t.Error("a job with too many runs is kept")
	}
}

// TestAStatementThatIsNotKnownEmptiesTheCache: a new statement is safe, in whatever form it is.
func TestAStatementThatIsNotKnownEmptiesTheCache(t *testing.T) {
	t.Parallel()
	s, now := withJobs(t, 2)
	for i, statement := range []string{
		`UPDATE cron_jobs SET fired = fired + 1`, "\n\t\tUPDATE cron_run_logs SET node = 'x' WHERE id = ''", `DELETE FROM cron_run_logs WHERE id = ''`,
		`WITH x AS (SELECT 1) UPDATE cron_jobs SET fired = 0`, `INSERT OR REPLACE INTO cron_jobs SELECT * FROM cron_jobs WHERE id = ''`,
	} {
		*now = now.Add(time.Minute)
		for _, l := range claimed(t, s, fire).Launched {
			if err := fireThrough(t.Context(), s, l); err != nil {
				t.Fatal(err)
			}
		}
		doInWriter(t, s, func(ctx context.Context, t2 *tx) error {
			if t2.jobs.get("job-0000000") == nil {
				t.Error("a claimed job is not cached")
			}
			_, err := t2.exec(ctx, statement)
			if i == 0 {
				err = t2.change(ctx, statement+` RETURNING id`).Scan(new(string))
			}
			if len(t2.jobs.recent)+len(t2.jobs.older) != 0 {
				t.Errorf("jobs are cached after %s", statement)
			}
			return err
		})
	}
}
