package postgres

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"laneway/internal/chat"
	"laneway/internal/cron"
	"laneway/internal/store/sqlstore"
)

// EnqueueRuns makes runs that a caller asked for, see cron.JobStore.
func (s *Store) EnqueueRuns(ctx context.Context, p cron.EnqueueParams) (cron.Enqueued, error) {
	var out cron.Enqueued
	err := s.do(ctx, "enqueuing cron runs", func(ctx context.Context) error {
		var made []cron.Launched
		err := pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) (err error) {
			out, err = sqlstore.Idempotent(ctx, s.shared(tx), p.IdempotencyKey, func() (cron.Enqueued, error) {
				e, err := s.enqueueRuns(ctx, tx, p)
				made = e.Launched
				return e, err
			})
			return err
		})
		if isUnique(err) {
			return chat.ErrKeyReused
		}
		if err != nil && !errors.Is(err, chat.ErrNotFound) {
			s.unknownLaunches.add(made)
		}
		return err
	})
	if err != nil {
		return cron.Enqueued{}, err
	}
	return out, nil
}

// ranSQL finds the runs of some slots of a job.
const ranSQL = `SELECT scheduled_for, trigger, state FROM cron_run_logs WHERE job_id = $1 AND scheduled_for = ANY($2::bigint[])`

func (s *Store) enqueueRuns(ctx context.Context, tx pgx.Tx, p cron.EnqueueParams) (out cron.Enqueued, err error) {
	list, now, err := s.lockJob(ctx, tx, jobByIDSQL, p.JobID, p.Visible)
	if err != nil {
		return out, err
	}
	if len(list) == 0 {
		return out, chat.ErrNotFound
	}
	due := []cron.DueJob{{Job: list[0].Job}}
	if err := s.complete(ctx, tx, &pgx.Batch{}, due); err != nil {
		return out, err
	}
	if due[0].Ran, err = ran(ctx, tx, p.JobID, p.Slots); err != nil {
		return out, err
	}
	launches, err := p.Make(due[0], now)
	if out.Declined(err) {
		return out, nil
	}
	if err != nil {
		return out, err
	}
	out.IDs = column(launches, func(l cron.Launch) string { return l.Run.ID })
	launches = slices.DeleteFunc(launches, func(l cron.Launch) bool {
		if l.Exists {
			out.Existing = append(out.Existing, l.Run.ID)
		}
		return l.Exists
	})
	l := launching{s: s, node: p.Node, now: now}
	if err := l.run(ctx, tx, launches, nil); err != nil {
		return out, err
	}
	out.Job, out.Launched, out.Existing = list[0].Job, l.launched, append(out.Existing, l.existing...)
	out.Job.State.Queued += len(l.launched)
	switch {
	case p.New && len(out.Existing) > 0:
		return out, chat.ErrConflict
	case len(l.launched) == 0:
		return out, nil
	}
	b := &pgx.Batch{}
	if err := s.audit(b, p.Audit.Between(out.Job.Revision, out.Job.Revision)); err != nil {
		return out, err
	}
	return out, send(ctx, tx, b)
}

func ran(ctx context.Context, tx pgx.Tx, job string, slots []time.Time) (list []cron.SlotRun, err error) {
	if len(slots) == 0 {
		return nil, nil
	}
	b := &pgx.Batch{}
	b.Queue(ranSQL, job, column(slots, ms)).Query(collect(&list, func(row pgx.CollectableRow) (r cron.SlotRun, err error) {
		var slot int64
		err = row.Scan(&slot, &r.Trigger, &r.State)
		r.Slot = fromMillis(slot)
		return r, err
	}))
	return list, send(ctx, tx, b)
}
