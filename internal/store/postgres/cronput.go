package postgres

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"laneway/internal/chat"
	"laneway/internal/cron"
)

const (
	jobByKeySQL = `SELECT ` + jobView + ` FROM cron_jobs WHERE owner = $1 AND key = $2 FOR UPDATE`

	jobByIDSQL = `SELECT ` + jobView + ` FROM cron_jobs WHERE id = $1 AND ($2 = '' OR owner = $2)`

	// newJobsSQL lets one process at a time make jobs, so that what is counted stays true until the commit.
	newJobsSQL = `SELECT pg_advisory_xact_lock(7242166)`

	countJobsSQL = `SELECT count(*), count(*) FILTER (WHERE owner = $1) FROM cron_jobs`

	auditSQL = `INSERT INTO audit_log (id, who, verb, object, before_hash, after_hash, peer, request_id, at)
VALUES ($2, $3, $4, $5, $6, $7, $8, $9, ` + nowSQL + `)`
)

// PutJob makes a job or changes the one with the same owner and key, see cron.JobStore.
func (s *Store) PutJob(ctx context.Context, p cron.PutParams) (cron.PutResult, error) {
	var out cron.PutResult
	err := s.do(ctx, "storing a cron job", func(ctx context.Context) error {
		err := s.put(ctx, p, &out)
		if isUnique(err) { // somebody else made it meanwhile: now it can be read
			err = s.put(ctx, p, &out)
		}
		if isUnique(err) {
			return chat.ErrConflict
		}
		return err
	})
	return out, err
}

func (s *Store) put(ctx context.Context, p cron.PutParams, out *cron.PutResult) error {
	return pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) (err error) {
		first := false
		*out, err = once(ctx, s, tx, p.Once, func() (cron.PutResult, error) {
			first = true
			return s.putJob(ctx, tx, p)
		})
		out.Repeated = !first
		return err
	})
}

func (s *Store) putJob(ctx context.Context, tx pgx.Tx, p cron.PutParams) (out cron.PutResult, err error) {
	list, now, err := s.lockJob(ctx, tx, jobByKeySQL, p.Owner, p.Key)
	if err != nil {
		return out, err
	}
	if len(list) > 0 {
		given := clone(list[0].Job)
		job, err := p.Change(&given, now)
		if err != nil {
			return out, err
		}
		return s.putOld(ctx, tx, p, list[0], job)
	}
	if err := s.room(ctx, tx, p); err != nil {
		return out, err
	}
	job, err := p.Change(nil, now)
	if err != nil || job == nil {
		return out, err
	}
	out.Created = true
	out.Job, err = s.write(ctx, tx, storedJob{}, *job, p.Audit)
	return out, err
}

// putOld stores what Change made of a job that exists; nil = nothing.
func (s *Store) putOld(ctx context.Context, tx pgx.Tx, p cron.PutParams, old storedJob, job *cron.Job) (cron.PutResult, error) {
	out := cron.PutResult{Job: old.Job}
	if job == nil {
		return out, nil
	}
	_, same, err := old.same(*job)
	if err != nil || same {
		return out, err
	}
	out.Updated = true
	out.Job, err = s.write(ctx, tx, old, *job, p.Audit)
	return out, err
}

// room refuses a new job when there are too many.
func (s *Store) room(ctx context.Context, tx pgx.Tx, p cron.PutParams) error {
	if p.MaxOfOwner <= 0 && p.MaxTotal <= 0 {
		return nil
	}
	var all, own int
	b := &pgx.Batch{}
	b.Queue(newJobsSQL)
	b.Queue(countJobsSQL, p.Owner).QueryRow(func(row pgx.Row) error { return row.Scan(&all, &own) })
	if err := send(ctx, tx, b); err != nil {
		return err
	}
	if p.MaxOfOwner > 0 && own >= p.MaxOfOwner || p.MaxTotal > 0 && all >= p.MaxTotal {
		return chat.ErrLimit
	}
	return nil
}

// lockJob reads at most one job behind its lock, and the clock.
func (s *Store) lockJob(ctx context.Context, tx pgx.Tx, sql string, args ...any) ([]storedJob, time.Time, error) {
	var (
		list []storedJob
		now  int64
	)
	b := &pgx.Batch{}
	b.Queue(`SELECT `+nowSQL, s.clock()).QueryRow(func(row pgx.Row) error { return row.Scan(&now) })
	b.Queue(sql, args...).Query(collect(&list, scanJob))
	err := send(ctx, tx, b)
	return list, fromMillis(now), err
}

// write stores a job in the place of the old one, which is locked; the zero one = it is new. The result is read back.
func (s *Store) write(ctx context.Context, tx pgx.Tx, old storedJob, j cron.Job, audit *cron.Audit) (cron.Job, error) {
	args, err := jobArgs(j)
	if err != nil {
		return j, err
	}
	sql := jobInsertSQL()
	if old.ID != "" {
		args[0] = old.ID // which never changes
		sql = jobUpdateSQL()
	}
	var list []storedJob
	b := &pgx.Batch{}
	b.Queue(sql, args...)
	b.Queue(jobByIDSQL, args[0], "").Query(collect(&list, scanJob))
	if err := s.audit(b, audit.Between(old.Revision, j.Revision)); err != nil {
		return j, err
	}
	err = send(ctx, tx, b)
	for _, read := range list {
		j = read.Job
	}
	return j, err
}

// audit queues a row of the audit log; nil = none.
func (s *Store) audit(b *pgx.Batch, a *cron.Audit) error {
	if a == nil {
		return nil
	}
	id, err := newID()
	if err != nil {
		return err
	}
	b.Queue(auditSQL, s.clock(), id, clean(a.Who), clean(a.Verb), clean(a.Object), clean(a.Before), clean(a.After), clean(a.Peer), clean(a.RequestID))
	return nil
}

// clone is a copy that shares nothing which a caller could write to.
func clone(j cron.Job) cron.Job {
	if j.Pause != nil {
		pause := *j.Pause
		j.Pause = &pause
	}
	for _, text := range []*[]byte{&j.Payload.Options, &j.Delivery.Options, &j.Alert.Delivery.Options} {
		*text = append([]byte(nil), *text...)
	}
	return j
}

// ChangeJob changes or removes a job, see cron.JobStore.
func (s *Store) ChangeJob(ctx context.Context, p cron.ChangeParams) (cron.Changed, error) {
	var out cron.Changed
	err := s.do(ctx, "changing a cron job", func(ctx context.Context) error {
		out = cron.Changed{}
		err := pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error { return s.change(ctx, tx, p, &out) })
		if isUnique(err) {
			return chat.ErrConflict
		}
		return err
	})
	if err != nil {
		return cron.Changed{}, err
	}
	return out, nil
}

func (s *Store) change(ctx context.Context, tx pgx.Tx, p cron.ChangeParams, out *cron.Changed) error {
	list, now, err := s.lockJob(ctx, tx, jobByIDSQL+` FOR UPDATE`, p.ID, p.Visible)
	if err != nil {
		return err
	}
	if len(list) == 0 {
		return chat.ErrNotFound
	}
	old := list[0]
	job, err := p.Change(clone(old.Job), now)
	if err != nil {
		return err
	}
	out.Old = old.Job
	if err := s.endActive(ctx, tx, p, out); err != nil {
		return err
	}
	if err := s.skipped(ctx, tx, p.Skipped, out); err != nil {
		return err
	}
	out.Job = job
	return s.changed(ctx, tx, p, old, out)
}

// changed writes what Change returned, which is in out, and the audit row if anything happened.
func (s *Store) changed(ctx context.Context, tx pgx.Tx, p cron.ChangeParams, old storedJob, out *cron.Changed) error {
	out.Changed = true
	if out.Job != nil {
		_, same, err := old.same(*out.Job)
		if err != nil {
			return err
		}
		out.Changed = !same
	}
	audit := p.Audit
	if !out.Changed && len(out.Ended) == 0 {
		audit = nil
	}
	if out.Job != nil && out.Changed {
		job, err := s.write(ctx, tx, old, *out.Job, audit)
		out.Job = &job
		return err
	}
	var list []storedJob
	b := &pgx.Batch{}
	if out.Job == nil {
		b.Queue(`DELETE FROM cron_jobs WHERE id = $1`, old.ID)
	}
	b.Queue(jobByIDSQL, old.ID, "").Query(collect(&list, scanJob))
	if err := s.audit(b, audit.Between(out.Revisions())); err != nil {
		return err
	}
	err := send(ctx, tx, b)
	for _, j := range list {
		out.Job = &j.Job
	}
	return err
}

func (s *Store) endActive(ctx context.Context, tx pgx.Tx, p cron.ChangeParams, out *cron.Changed) error {
	if !p.CancelActive {
		return nil
	}
	ids, err := s.activeRuns(ctx, tx, p.ID)
	if err != nil || len(ids) == 0 {
		return err
	}
	var finished []cron.Run
	out.Ended, finished, err = s.cancelRuns(ctx, tx, ids, cron.CancelParams{Reason: p.CancelReason, By: p.By})
	out.Finished = append(out.Finished, finished...)
	return err
}

func (s *Store) skipped(ctx context.Context, tx pgx.Tx, r *cron.Run, out *cron.Changed) error {
	if r == nil || r.ID == "" {
		return nil
	}
	var added []string
	b := &pgx.Batch{}
	s.record(b, "", []newRow{{run: *r}}, &added)
	if err := send(ctx, tx, b); err != nil {
		return err
	}
	finished, err := finishedRows(ctx, tx, added)
	out.Finished = append(out.Finished, finished...)
	return err
}

// Job reads one; chat.ErrNotFound.
func (s *Store) Job(ctx context.Context, id, visible string) (cron.Job, error) {
	var out storedJob
	err := s.do(ctx, "reading a cron job", func(ctx context.Context) (err error) {
		out, err = one(ctx, s, scanJob, jobByIDSQL, id, visible)
		return orNone(err, chat.ErrNotFound)
	})
	return out.Job, err
}

// EnqueueRuns makes runs by hand, see cron.JobStore.
func (s *Store) EnqueueRuns(ctx context.Context, p cron.EnqueueParams) (cron.Enqueued, error) {
	var out cron.Enqueued
	err := s.do(ctx, "enqueuing cron runs", func(ctx context.Context) error {
		var made []cron.Launched
		err := pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) (err error) {
			out, err = once(ctx, s, tx, p.Once, func() (cron.Enqueued, error) {
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
			s.doubts.add(made)
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
	list, now, err := s.lockJob(ctx, tx, jobByIDSQL+` FOR UPDATE`, p.JobID, p.Visible)
	if err != nil {
		return out, err
	}
	if len(list) == 0 {
		return out, chat.ErrNotFound
	}
	due := []cron.DueJob{{Job: list[0].Job}}
	if err := s.complete(ctx, tx, due); err != nil {
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
