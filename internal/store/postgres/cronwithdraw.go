package postgres

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"laneway/internal/cron"
)

// errStarted: a run that was to be withdrawn has begun meanwhile. The decision about its job was made without that run, so it must be made
// again.
var errStarted = errors.New("a run that was claimed ahead has begun")

// maxDecisions bounds how often an operation decides again: a job has at most one claim ahead.
const maxDecisions = 5

const (
	// unstarted rows of the ledger named l are those whose first attempt has not begun.
	unstarted = `l.state = 'queued' AND l.attempt = 0`

	// ahead is the condition for ledger rows whose slot was claimed ahead and has not come yet. $1 is the clock.
	ahead = `l.finished_at IS NULL AND ` + unstarted + ` AND l.trigger = 'schedule' AND l.fire_at > ` + nowSQL

	// lockAheadSQL locks the sessions of claims ahead of the jobs $2. It waits for a start that is under way; the next statement sees its
	// result.
	lockAheadSQL = `SELECT key FROM sessions WHERE key IN (
		SELECT l.session_key FROM cron_run_logs l WHERE l.job_id = ANY($2::text[]) AND ` + ahead + `) ORDER BY key FOR UPDATE`

	// withdrawSQL deletes the claims ahead of the jobs $2, with their ledger rows, messages and sessions. A session that has or had other
	// messages stays. The tombstone of a deleted session keeps its numbers and its epoch: a process that still has the claim in memory must
	// not match it with a later claim of the same slot.
	withdrawSQL = `
WITH l AS (
	DELETE FROM cron_run_logs l WHERE l.job_id = ANY($2::text[]) AND ` + ahead + `
	RETURNING l.id, l.job_id, l.session_key, l.scheduled_for, l.fire_at
), i AS (
	DELETE FROM inbox i USING l WHERE i.message_id = l.id AND i.session_key = l.session_key AND i.ended_at IS NULL RETURNING i.session_key, i.seq
), s AS (
	DELETE FROM sessions s USING i WHERE s.key = i.session_key AND s.last_seq = i.seq AND s.transcript_seq = 0
		AND NOT EXISTS (SELECT 1 FROM inbox o WHERE o.session_key = s.key AND o.seq <> i.seq)
	RETURNING s.key, s.last_seq, s.epoch
), g AS (
	INSERT INTO graves AS g (key, last_seq, epoch) SELECT key, last_seq, epoch FROM s
	ON CONFLICT (key) DO UPDATE SET last_seq = GREATEST(g.last_seq, excluded.last_seq), epoch = GREATEST(g.epoch, excluded.epoch)
)
SELECT l.job_id, l.scheduled_for, l.fire_at FROM l ORDER BY l.fire_at`

	// planAgainSQL makes the slots of withdrawn claims the next slots of their jobs. Parameters: arrays of jobs, slots and moments.
	planAgainSQL = `
UPDATE cron_jobs j SET next_slot = v.slot, next_run_at = v.at, fired = GREATEST(j.fired - 1, 0), enabled = true
FROM unnest($1::text[], $2::bigint[], $3::bigint[]) AS v(id, slot, at) WHERE j.id = v.id`

	// aheadOfNodeSQL finds the jobs of which a node, $2, has claimed slots ahead.
	aheadOfNodeSQL = `SELECT DISTINCT l.job_id FROM cron_run_logs l WHERE l.node = $2 AND ` + ahead

	lockJobsSQL = `SELECT id FROM cron_jobs WHERE id = ANY($1::text[]) ORDER BY id FOR UPDATE`

	// waitingSQL finds the runs of job $2 that wait to start: all of them, or those that the schedule has made.
	waitingSQL = `SELECT l.id, l.trigger IN ('schedule', 'catchup') FROM cron_run_logs l
WHERE l.job_id = $2 AND l.finished_at IS NULL AND ` + unstarted + ` AND NOT (l.trigger = 'schedule' AND l.fire_at > ` + nowSQL + `)
	AND ($3::boolean OR l.trigger IN ('schedule', 'catchup'))
ORDER BY l.claimed_at, l.id`
)

// withdrawn is a claim that was withdrawn.
type withdrawn struct {
	job      string
	slot, at int64
}

func scanWithdrawn(row pgx.CollectableRow) (w withdrawn, err error) {
	return w, row.Scan(&w.job, &w.slot, &w.at)
}

// withdraw withdraws the claims ahead of jobs, whose rows the caller has locked.
func (s *Store) withdraw(ctx context.Context, tx pgx.Tx, jobs []string) ([]withdrawn, error) {
	var keys []string
	b := &pgx.Batch{}
	b.Queue(expandAheadSQL, s.clock(), jobs)
	b.Queue(expandSQL)
	b.Queue(lockAheadSQL, s.clock(), jobs).Query(collect(&keys, scanText))
	if err := send(ctx, tx, b); err != nil || len(keys) == 0 {
		return nil, err
	}
	var list []withdrawn
	b = &pgx.Batch{}
	b.Queue(withdrawSQL, s.clock(), jobs).Query(collect(&list, scanWithdrawn))
	b.Queue(settleManySQL, s.clock(), keys)
	return list, send(ctx, tx, b)
}

// withdrawSeen withdraws the claim that [Store.seen] has hidden from the caller of a change. errStarted: its run has begun meanwhile.
func (s *Store) withdrawSeen(ctx context.Context, tx pgx.Tx, j storedJob) error {
	if j.ahead == 0 {
		return nil
	}
	list, err := s.withdraw(ctx, tx, []string{j.ID})
	if err == nil && len(list) != j.ahead {
		return errStarted
	}
	return err
}

// retryStarted repeats an operation that got errStarted.
func retryStarted(op func() error) error {
	err := op()
	for try := 1; errors.Is(err, errStarted) && try < maxDecisions; try++ {
		err = op()
	}
	return err
}

// ReleaseClaims withdraws what a node has claimed ahead, see cron.JobStore.
func (s *Store) ReleaseClaims(ctx context.Context, node string) (int, error) {
	n := 0
	err := s.within(ctx, "handing back what was claimed ahead", func(ctx context.Context, tx pgx.Tx) error {
		n = 0
		var jobs []string
		b := &pgx.Batch{}
		b.Queue(aheadOfNodeSQL, s.clock(), node).Query(collect(&jobs, scanText))
		if err := send(ctx, tx, b); err != nil || len(jobs) == 0 {
			return err
		}
		b = &pgx.Batch{}
		b.Queue(lockJobsSQL, jobs)
		if err := send(ctx, tx, b); err != nil {
			return err
		}
		list, err := s.withdraw(ctx, tx, jobs)
		if err != nil {
			return err
		}
		n = len(list)
		_, err = tx.Exec(ctx, planAgainSQL, column(list, func(w withdrawn) string { return w.job }),
			column(list, func(w withdrawn) int64 { return w.slot }), column(list, func(w withdrawn) int64 { return w.at }))
		return err
	})
	return n, err
}

// endWaiting cancels the runs of a job that wait to start, and returns how many of them were planned fires.
func (s *Store) endWaiting(ctx context.Context, tx pgx.Tx, job string, all bool, p cron.CancelParams) (
	ended []cron.CancelledRun, finished []cron.Run, fires int, err error,
) {
	var ids []string
	planned := map[string]bool{}
	b := &pgx.Batch{}
	b.Queue(waitingSQL, s.clock(), job, all).Query(func(rows pgx.Rows) error {
		var id string
		var fire bool
		_, err := pgx.ForEachRow(rows, []any{&id, &fire}, func() error {
			ids, planned[id] = append(ids, id), fire
			return nil
		})
		return err
	})
	if err := send(ctx, tx, b); err != nil || len(ids) == 0 {
		return nil, nil, 0, err
	}
	ended, finished, err = s.cancelRuns(ctx, tx, ids, p)
	for _, e := range ended {
		if planned[e.RunID] && !e.Running {
			fires++
		}
	}
	return ended, finished, fires, err
}

// oldTombstonesSQL deletes the tombstones of withdrawn claims whose slots are older than the ledger: no process has them in memory any
// more. $1 is that moment.
const oldTombstonesSQL = `DELETE FROM graves WHERE substring(key from ':cron:[^:]+:schedule-([0-9]{1,15})$')::bigint < $1`

// forgetWithdrawn is the last step of a Prune.
func forgetWithdrawn(ctx context.Context, tx pgx.Tx, before time.Time) error {
	if before.IsZero() {
		return nil
	}
	_, err := tx.Exec(ctx, oldTombstonesSQL, before.UnixMilli())
	return err
}
