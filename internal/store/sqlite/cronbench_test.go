package sqlite

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"laneway/internal/chat"
	"laneway/internal/cron"
	"laneway/internal/cron/schedule"
	"laneway/internal/store"
	"laneway/internal/store/sqlstore"
)

// largeVariable switches on what takes long to prepare.
const largeVariable = "LANEWAY_BENCH_LARGE"

// minutely is a job that fires each minute, first at anchor.
func minutely(id string, anchor time.Time) cron.Job {
	return cron.Job{
		ID: id, Key: "key of " + id, Name: "name of " + id, Owner: "gateway", Principal: "gateway", Agent: "main", Lane: cron.DefaultLane, Session: "isolated",
		Schedule: schedule.Spec{Kind: schedule.KindEvery, EveryMs: 60_000, AnchorMs: anchor.UnixMilli()},
		Payload:  cron.Payload{Kind: cron.PayloadAgentTurn, Text: "Write the digest"}, Delivery: cron.Delivery{Mode: cron.DeliverNone},
		Retry: cron.DefaultRetry(), Timeout: cron.DefaultTimeout, Enabled: true, CreatedAt: anchor, UpdatedAt: anchor,
		State: cron.JobState{Next: anchor, NextRunAt: anchor, ActivatedAt: anchor},
	}
}

// fire is the verdict of a job that runs at its slot, whatever is under way.
func fire(_ time.Time, due []cron.DueJob) []cron.Verdict {
	var all []cron.Verdict
	for _, d := range due {
		slot := d.Job.State.Next
		next := slot.Add(time.Duration(d.Job.Schedule.EveryMs) * time.Millisecond)
		all = append(all, cron.Verdict{
			JobID: d.Job.ID, Next: next, NextRunAt: next, Fired: d.Job.State.Fired + 1,
			Runs: []cron.Launch{launchOf(&d.Job, cron.TriggerSchedule, slot)},
		})
	}
	return all
}

func launchOf(j *cron.Job, trigger cron.Trigger, slot time.Time) cron.Launch {
	id := cron.RunID(trigger, j.ID, slot)
	return cron.Launch{
		Run: cron.Run{
			ID: id, State: cron.RunQueued, Trigger: trigger, ScheduledFor: slot, FireAt: slot, JobID: j.ID, JobName: j.Name, JobKey: j.Key,
			Owner: j.Owner, Agent: j.Agent, Lane: j.Lane,
		},
		Message: chat.Message{
			Session: chat.SessionKey{Agent: j.Agent, Rest: "cron:" + j.ID + ":" + string(trigger) + "-" + strconv.FormatInt(slot.UnixMilli(), 10)},
			ID:      id, Dedupe: "cron:" + id, Principal: j.Owner, Lane: j.Lane, Channel: "cron", Content: chat.Content{Text: j.Payload.Text, System: true},
		},
	}
}

// fillJobs stores n jobs that are due at anchor.
func fillJobs(tb testing.TB, s *Store, n int, anchor time.Time) {
	tb.Helper()
	var group errgroup.Group
	group.SetLimit(64) // which the writer combines
	for i := range n {
		group.Go(func() error {
			j := minutely(fmt.Sprintf("job-%07d", i), anchor)
			_, err := s.PutJob(tb.Context(), cron.PutParams{Owner: j.Owner, Key: j.Key, Change: func(*cron.Job, time.Time) (*cron.Job, error) { return &j, nil }})
			return err
		})
	}
	if err := group.Wait(); err != nil {
		tb.Fatal(err)
	}
}

func claimAll(ctx context.Context, s *Store, node string) (list []cron.Launched, slowest time.Duration, err error) {
	for more := true; more; {
		start := time.Now()
		c, err := s.Claim(ctx, cron.ClaimParams{Node: node, Limit: 500, Decide: fire})
		if err != nil {
			return nil, 0, err
		}
		slowest = max(slowest, time.Since(start))
		list, more = append(list, c.Launched...), c.More
	}
	return list, slowest, nil
}

// BenchmarkClaimDue is how long it takes until 10 000 jobs that are due at once are durable messages.
func BenchmarkClaimDue(b *testing.B) {
	const jobs = 10_000
	now := time.UnixMilli(1_700_000_000_000)
	s := openAt(b, migrated(b), func() time.Time { return now })
	register(b, s, "node")
	fillJobs(b, s, jobs, now.Add(time.Minute))
	var slowest time.Duration
	b.ReportAllocs()
	for b.Loop() {
		now = now.Add(time.Minute)
		list, one, err := claimAll(b.Context(), s, "node")
		if err != nil || len(list) != jobs {
			b.Fatalf("claimed %d runs (%v), want %d", len(list), err, jobs)
		}
		slowest = max(slowest, one)
	}
	b.ReportMetric(float64(b.N*jobs)/b.Elapsed().Seconds(), "fires/s")
	b.ReportMetric(float64(slowest.Milliseconds()), "slowest-claim-ms")
}

// BenchmarkIdleClaim is a tick with nothing to do.
func BenchmarkIdleClaim(b *testing.B) {
	sizes := []int{1_000, 100_000}
	if os.Getenv(largeVariable) != "" {
		sizes = append(sizes, 1_000_000)
	}
	for _, jobs := range sizes {
		b.Run(fmt.Sprintf("jobs=%d", jobs), func(b *testing.B) {
			now := time.UnixMilli(1_700_000_000_000)
			s := openAt(b, migrated(b), func() time.Time { return now })
			register(b, s, "node")
			fillJobs(b, s, jobs, now.Add(time.Hour))
			b.ReportAllocs()
			for b.Loop() {
				c, err := s.Claim(b.Context(), cron.ClaimParams{Node: "node", Limit: 500, Decide: fire})
				if err != nil || len(c.Launched) != 0 {
					b.Fatalf("claimed %d runs (%v), want none", len(c.Launched), err)
				}
			}
		})
	}
}

// BenchmarkFires is the whole way of a fire: claimed, started, finished, with the ledger and the job. One claim feeds many workers.
func BenchmarkFires(b *testing.B) {
	for _, workers := range []int{1, 32, 128} {
		b.Run(fmt.Sprintf("workers=%d", workers), func(b *testing.B) {
			var clock atomic.Int64
			clock.Store(1_700_000_000_000)
			s := openAt(b, migrated(b), func() time.Time { return time.UnixMilli(clock.Load()) })
			register(b, s, "node")
			const jobs = 500
			fillJobs(b, s, jobs, time.UnixMilli(clock.Load()).Add(time.Minute))
			b.ReportAllocs()
			b.ResetTimer()
			queue := make(chan cron.Launched, 2*jobs)
			var group sync.WaitGroup
			for range workers {
				group.Go(func() {
					for l := range queue {
						if err := fireThrough(b.Context(), s, l); err != nil {
							b.Error(err)
						}
					}
				})
			}
			for fired := 0; fired < b.N; {
				clock.Add(time.Minute.Milliseconds())
				if err := s.Register(b.Context(), store.Node{ID: "node", Lease: time.Hour}); err != nil {
					b.Fatal(err)
				}
				c, err := s.Claim(b.Context(), cron.ClaimParams{Node: "node", Limit: min(jobs, b.N-fired), Decide: fire})
				if err != nil {
					b.Fatal(err)
				}
				for _, l := range c.Launched {
					queue <- l
				}
				fired += len(c.Launched)
			}
			close(queue)
			group.Wait()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "fires/s")
		})
	}
}

// BenchmarkBareFires is the least that a durable fire can cost with the same writer, flushes and tables: a claim reads the due jobs, and inserts a row of
// the ledger and moves the job for each; a worker starts and ends its run by one operation each, under the fence, and the end counts in the job. It has
// no decision, no overlap, no retry, no alert and no event. BenchmarkFires beside it in the same run shows what a fire costs more.
func BenchmarkBareFires(b *testing.B) {
	for _, workers := range []int{32, 128} {
		b.Run(fmt.Sprintf("workers=%d", workers), func(b *testing.B) {
			s := openAt(b, migrated(b), time.Now)
			register(b, s, "node")
			const jobs = 500
			fillJobs(b, s, jobs, time.UnixMilli(1_700_000_000_000))
			b.ReportAllocs()
			b.ResetTimer()
			queue := make(chan [2]string, 2*jobs)
			var group sync.WaitGroup
			for range workers {
				group.Go(func() {
					for run := range queue {
						if err := bareRun(b.Context(), s, run[0], run[1]); err != nil {
							b.Error(err)
						}
					}
				})
			}
			for fired := 0; fired < b.N; {
				runs, err := bareClaim(b.Context(), s, min(jobs, b.N-fired))
				if err != nil {
					b.Fatal(err)
				}
				for _, run := range runs {
					queue <- run
				}
				fired += len(runs)
			}
			close(queue)
			group.Wait()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "fires/s")
		})
	}
}

// bareClaim claims due jobs and returns the ids of their runs and their own.
func bareClaim(ctx context.Context, s *Store, limit int) ([][2]string, error) {
	return result(ctx, s.write, ordinary("bare"), func(ctx context.Context, t *tx) ([][2]string, error) {
		type due struct {
			job  string
			slot int64
		}
		var list []due
		err := t.Query(ctx, `SELECT id, next_slot FROM cron_jobs WHERE enabled = 1 AND next_run_at <= $1 ORDER BY next_run_at, id {limit $2}`, func(r sqlstore.Row) error {
			var d due
			err := r.Scan(&d.job, &d.slot)
			list = append(list, d)
			return err
		}, t.now, limit)
		if err != nil {
			return nil, err
		}
		var runs [][2]string
		for _, d := range list {
			id := fmt.Sprintf("schedule:%s:%d", d.job, d.slot)
			_, err := t.Exec(ctx, `INSERT INTO cron_run_logs (id, job_id, job_name, job_key, owner, agent, lane, session_key, scheduled_for, trigger, state, fire_at, claimed_at,
					run_id, node)
				VALUES (?, ?, 'a name', 'a key', 'gateway', 'main', 'cron', ?, ?, 'schedule', 'queued', ?, ?, ?, 'node')`,
				id, d.job, "agent:main:cron:"+id, d.slot, d.slot, t.now, id)
			if err != nil {
				return nil, err
			}
			_, err = t.Exec(ctx, `UPDATE cron_jobs SET next_slot = ?, next_run_at = ?, fired = fired + 1 WHERE id = ?`, d.slot+60_000, d.slot+60_000, d.job)
			if err != nil {
				return nil, err
			}
			runs = append(runs, [2]string{id, d.job})
		}
		return runs, nil
	})
}

// bareRun starts and ends a run.
func bareRun(ctx context.Context, s *Store, id, job string) error {
	err := s.write.do(ctx, ordinary("bare"), func(ctx context.Context, t *tx) error {
		n, err := t.Exec(ctx, `UPDATE cron_run_logs SET state = 'running', attempt = 1, attempts = '[{"number":1}]', started_at = ?
			WHERE id = ? AND state = 'queued' AND node = 'node' AND EXISTS (SELECT 1 FROM nodes WHERE id = 'node' AND lease_until > ?)`, t.now, id, t.now)
		return oneRow(n, err)
	})
	if err != nil {
		return err
	}
	return s.write.do(ctx, ordinary("bare"), func(ctx context.Context, t *tx) error {
		n, err := t.Exec(ctx, `UPDATE cron_run_logs SET state = 'ok', finished_at = ?, duration_ms = 1, attempts = '[{"number":1,"state":"ok"}]', summary = 'done'
			WHERE id = ? AND state = 'running' AND node = 'node' AND EXISTS (SELECT 1 FROM nodes WHERE id = 'node' AND lease_until > ?)`, t.now, id, t.now)
		if err := oneRow(n, err); err != nil {
			return err
		}
		n, err = t.Exec(ctx, `UPDATE cron_jobs SET run_count = run_count + 1, last_run_at = ?, last_state = 'ok' WHERE id = ?`, t.now, job)
		return oneRow(n, err)
	})
}

// oneRow is the error of a statement that was to change one row.
func oneRow(n int64, err error) error {
	if err == nil && n != 1 {
		return fmt.Errorf("%d rows were changed, want 1", n)
	}
	return err
}

// startOf and finishOf are the start and the successful end of a run.
func startOf(l *cron.Launched) *store.StartParams {
	return &store.StartParams{
		Claim: store.Claim{Session: l.Message.Session, Node: l.Owner, Epoch: l.Epoch}, RunID: l.Message.ID, Lane: "cron", Seqs: []int64{l.Seq},
		Cron:       &cron.AttemptStart{RunID: l.Run.ID, Attempt: 1, Node: l.Owner},
		Transcript: []chat.TranscriptEntry{{Role: chat.RoleUser, Text: l.Message.Content.Text}},
	}
}

func finishOf(l *cron.Launched) *store.FinishParams {
	return &store.FinishParams{
		Claim: store.Claim{Session: l.Message.Session, Node: l.Owner, Epoch: l.Epoch}, RunID: l.Message.ID, State: store.RunOK,
		Outcome: chat.OutcomeAnswered, Preview: "done", Transcript: []chat.TranscriptEntry{{Role: chat.RoleAssistant, Text: "done"}},
		Cron: &cron.AttemptEnd{
			RunID: l.Run.ID, State: cron.RunOK, Attempt: cron.Attempt{State: cron.AttemptOK}, Summary: "done", Delivery: cron.DeliveryNotRequested,
			Job: func(old cron.Job, r cron.Run, _ time.Time) *cron.Job {
				old.State.RunCount++
				old.State.LastRunAt, old.State.LastState, old.State.LastDuration = r.StartedAt, r.State, r.Duration
				return &old
			},
		},
	}
}

// fireThrough starts and finishes one run.
func fireThrough(ctx context.Context, s *Store, l cron.Launched) error {
	if _, err := s.Start(ctx, *startOf(&l)); err != nil {
		return err
	}
	_, err := s.Finish(ctx, *finishOf(&l))
	return err
}

// BenchmarkLedger is a look at a long history: the first pages of everything, of one owner and of one job.
func BenchmarkLedger(b *testing.B) {
	rows := 100_000
	if os.Getenv(largeVariable) != "" {
		rows = 1_000_000
	}
	s := open(b)
	_, err := outside(b, s.path).Exec(`
		WITH RECURSIVE n (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i + 1 < ?)
		INSERT INTO cron_run_logs (id, job_id, job_name, owner, scheduled_for, trigger, state, claimed_at, started_at, finished_at, run_id, summary)
		SELECT 'schedule:job-' || (i % 1000) || ':' || i, 'job-' || (i % 1000), 'name', 'owner-' || (i % 10), i * 1000, 'schedule', 'ok', i * 1000 + 1, i * 1000 + 1, i * 1000 + 1,
			'schedule:job-' || (i % 1000) || ':' || i, printf('%200c', 'x') FROM n`, rows)
	if err != nil {
		b.Fatal(err)
	}
	for name, f := range map[string]cron.RunFilter{
		"all": {}, "owner": {Visible: "owner-3"}, "job": {JobID: "job-77"}, "page100": {Offset: 5_000}, "since": {Since: time.UnixMilli(int64(rows-1000) * 1000)},
	} {
		f.Limit = 50
		b.Run(fmt.Sprintf("rows=%d/%s", rows, name), func(b *testing.B) {
			for b.Loop() {
				p, err := s.Runs(b.Context(), f)
				if err != nil || len(p.Runs) != f.Limit {
					b.Fatalf("got %d runs (%v), want %d", len(p.Runs), err, f.Limit)
				}
			}
		})
	}
}
