package sqlstore

import (
	"context"
	"errors"
	"slices"
	"time"

	"laneway/internal/chat"
	"laneway/internal/cron"
)

// EnqueueRuns creates runs that a caller requested; see cron.JobStore.
func (s Cron) EnqueueRuns(ctx context.Context, p cron.EnqueueParams) (cron.Enqueued, error) {
	tried := &unknownLaunches{list: map[string]cron.Launched{}}
	try := func(each bool) (cron.Enqueued, error) {
		return result(ctx, s.db.Update, "enqueue runs", func(ctx context.Context, tx Tx) (cron.Enqueued, error) {
			return idempotent(ctx, tx, p.IdempotencyKey, func() (cron.Enqueued, error) {
				out, err := s.enqueue(ctx, tx, &p, each)
				if err == nil {
					tried.add(out.Launched)
				}
				return out, err
			})
		})
	}
	out, err := try(false)
	if errors.Is(err, errNotNew) {
		out, err = try(true)
	}
	tried.remove(out.Launched)
	s.unknown.add(tried.all()) // of a try with an unknown commit; the next claim checks them
	return out, err
}

func (s Cron) enqueue(ctx context.Context, tx Tx, p *cron.EnqueueParams, each bool) (out cron.Enqueued, err error) {
	j, found, err := s.lockJob(ctx, tx, `id = $1 AND ($2 = '' OR owner = $2)`, p.JobID, p.Visible)
	if err == nil && !found {
		err = chat.ErrNotFound
	}
	if err != nil {
		return out, err
	}
	due := []cron.DueJob{{Job: j.Job}}
	if err := complete(ctx, tx, due); err != nil {
		return out, err
	}
	if due[0].Ran, err = ran(ctx, tx, j.ID, p.Slots); err != nil {
		return out, err
	}
	launches, err := p.Make(due[0], j.now)
	if out.Declined(err) {
		return out, nil
	}
	if err != nil {
		return out, err
	}
	for _, l := range launches {
		out.IDs = append(out.IDs, l.Run.ID)
		if l.Exists {
			out.Existing = append(out.Existing, l.Run.ID)
		}
	}
	l := launching{node: p.Node, now: millis(j.now), each: each}
	if err := l.run(ctx, tx, slices.DeleteFunc(launches, func(l cron.Launch) bool { return l.Exists }), nil); err != nil {
		return out, err
	}
	out.Job, out.Launched, out.Finished = j.Job, l.launched, l.refused
	out.Existing = append(out.Existing, l.existing...)
	out.Job.State.Queued += len(l.launched)
	switch {
	case p.New && len(out.Existing) > 0:
		return out, chat.ErrConflict
	case len(l.launched) == 0:
		return out, nil
	}
	return out, audit(ctx, tx, p.Audit.Between(j.Revision, j.Revision), j.ID)
}

// ran lists the runs for some slots of a job.
func ran(ctx context.Context, tx Tx, job string, slots []time.Time) ([]cron.SlotRun, error) {
	if len(slots) == 0 {
		return nil, nil
	}
	at := make([]int64, len(slots))
	for i, slot := range slots {
		at[i] = millis(slot)
	}
	return all(ctx, tx, `SELECT scheduled_for, trigger, state FROM cron_run_logs WHERE job_id = $1 AND scheduled_for {ints $2}`, func(row Row) (r cron.SlotRun, err error) {
		return r, row.Scan(instant{&r.Slot}, (*string)(&r.Trigger), (*string)(&r.State))
	}, job, at)
}
