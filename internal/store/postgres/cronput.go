package postgres

import (
	"context"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"laneway/internal/chat"
	"laneway/internal/cron"
	"laneway/internal/store/sqlstore"
)

const (
	jobByKeySQL = `SELECT ` + jobView + ` FROM cron_jobs WHERE owner = $1 AND key = $2`

	namesakesSQL = `SELECT id FROM cron_jobs WHERE owner = $1 AND name = $2 ORDER BY created_at, id LIMIT $3`

	jobByIDSQL = `SELECT ` + jobView + ` FROM cron_jobs WHERE id = $1 AND ($2 = '' OR owner = $2)`

	// newJobsSQL lets one transaction at a time make jobs, so that their number stays correct until the commit.
	newJobsSQL = `SELECT pg_advisory_xact_lock(7242166)`

	countJobsSQL = `SELECT count(*), count(*) FILTER (WHERE owner = $1) FROM cron_jobs`

	auditSQL = `INSERT INTO audit_log (id, who, verb, object, before_hash, after_hash, peer, request_id, at)
VALUES ($2, $3, $4, $5, $6, $7, $8, $9, ` + nowSQL + `)`
)

// PutJob makes a job or changes the one with the same owner and key, see cron.JobStore.
func (s *Store) PutJob(ctx context.Context, p cron.PutParams) (cron.PutResult, error) {
	var out cron.PutResult
	err := s.do(ctx, "storing a cron job", func(ctx context.Context) error {
		put := func() error { return s.put(ctx, p, &out) }
		err := put()
		if isUnique(err) { // another transaction has made it meanwhile: now it can be read
			err = put()
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
		*out, err = sqlstore.Idempotent(ctx, s.shared(tx), p.IdempotencyKey, func() (cron.PutResult, error) {
			first = true
			return s.putJob(ctx, tx, p)
		})
		out.Repeated = !first
		return err
	})
}

func (s *Store) putJob(ctx context.Context, tx pgx.Tx, p cron.PutParams) (out cron.PutResult, err error) {
	list, now, err := s.jobToPut(ctx, tx, &p)
	if err != nil {
		return out, err
	}
	if len(list) > 0 {
		return s.putOld(ctx, tx, p, list[0], now)
	}
	if err := s.checkJobLimit(ctx, tx, p); err != nil {
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

// jobToPut locks the job that p changes, by its key or by its name; none = a new one is made. Jobs by name are decided one transaction at a time, so that
// two of them do not both find the name free.
func (s *Store) jobToPut(ctx context.Context, tx pgx.Tx, p *cron.PutParams) ([]storedJob, time.Time, error) {
	if !p.ByName() {
		return s.lockJob(ctx, tx, jobByKeySQL, p.Owner, p.Key)
	}
	if _, err := tx.Exec(ctx, newJobsSQL); err != nil {
		return nil, time.Time{}, err
	}
	list, now, err := s.lockJob(ctx, tx, jobByKeySQL, p.Owner, p.Key)
	if err != nil || len(list) > 0 && p.KeyGiven {
		return list, now, err
	}
	var ids []string
	b := &pgx.Batch{}
	b.Queue(namesakesSQL, p.Owner, p.Name, cron.MaxNamesakes).Query(collect(&ids, scanText))
	if err := send(ctx, tx, b); err != nil {
		return nil, now, err
	}
	id, err := p.Namesake(ids)
	if err != nil || id == "" {
		return list, now, err
	}
	return s.lockJob(ctx, tx, jobByIDSQL, id, p.Owner)
}

// putOld changes a job that exists. A Change that returns nil leaves it.
func (s *Store) putOld(ctx context.Context, tx pgx.Tx, p cron.PutParams, old storedJob, now time.Time) (out cron.PutResult, err error) {
	stored := old
	if p.EndWaiting != "" {
		var fires int
		if out.Ended, out.Finished, fires, err = s.endWaiting(ctx, tx, old.ID, false, cron.CancelParams{Reason: p.EndWaiting}); err != nil {
			return out, err
		}
		old.Job = old.Unfired(fires)
	}
	given := old.Clone()
	job, err := p.Change(&given, now)
	if err != nil {
		return out, err
	}
	out.Job = old.Job
	if job == nil {
		return out, nil
	}
	_, same, err := old.same(*job)
	if err != nil {
		return out, err
	}
	_, kept, err := stored.same(*job)
	if err != nil || same && kept {
		return out, err
	}
	out.Updated = true
	out.Job, err = s.write(ctx, tx, stored, *job, p.Audit)
	return out, err
}

// checkJobLimit refuses a new job when there are too many.
func (s *Store) checkJobLimit(ctx context.Context, tx pgx.Tx, p cron.PutParams) error {
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

// lockJob locks a job and then reads it with the clock. The lock is a statement of its own: the statement that reads
// the job and its runs begins after it, and so sees the commits that the lock has waited for.
func (s *Store) lockJob(ctx context.Context, tx pgx.Tx, sql string, args ...any) ([]storedJob, time.Time, error) {
	var (
		list   []storedJob
		locked []string
		now    int64
	)
	b := &pgx.Batch{}
	b.Queue(`SELECT id`+sql[strings.Index(sql, ` FROM cron_jobs WHERE `):]+` FOR UPDATE`, args...).Query(collect(&locked, scanText))
	b.Queue(readClockSQL, s.clock()).QueryRow(func(row pgx.Row) error { return row.Scan(&now) })
	b.Queue(sql, args...).Query(collect(&list, scanJob))
	err := send(ctx, tx, b)
	if len(locked) == 0 { // it was made between the two statements, so it is not locked
		list = nil
	}
	return list, fromMillis(now), err
}

// write stores a job in place of the old one, which is locked; the zero job = it is new. It returns the job as it is read back.
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
	list, now, err := s.lockJob(ctx, tx, jobByIDSQL, p.ID, p.Visible)
	if err != nil {
		return err
	}
	if len(list) == 0 {
		return chat.ErrNotFound
	}
	stored := list[0]
	old := stored
	if err := s.endActive(ctx, tx, p, &old, out); err != nil {
		return err
	}
	job, err := p.Change(old.Clone(), now)
	if err != nil {
		return err
	}
	out.Old, out.Job = old.Job, job
	if err := s.skipped(ctx, tx, p.Skipped, out); err != nil {
		return err
	}
	return s.changed(ctx, tx, p, stored, out)
}

// changed writes the result of Change, which is in out, and the audit row if anything has changed.
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

// endActive ends the runs that a change cancels, and counts the planned fires among them as skipped.
func (s *Store) endActive(ctx context.Context, tx pgx.Tx, p cron.ChangeParams, old *storedJob, out *cron.Changed) error {
	if p.CancelActive {
		ids, err := s.activeRuns(ctx, tx, p.ID)
		if err != nil || len(ids) == 0 {
			return err
		}
		var finished []cron.Run
		out.Ended, finished, err = s.cancelRuns(ctx, tx, ids, cron.CancelParams{Reason: p.CancelReason, By: p.By})
		out.Finished = append(out.Finished, finished...)
		return err
	}
	if p.EndWaiting == "" {
		return nil
	}
	ended, finished, fires, err := s.endWaiting(ctx, tx, p.ID, p.EndWaiting == cron.ReasonRemoved, cron.CancelParams{Reason: p.EndWaiting, By: p.By})
	out.Ended, old.Job = ended, old.Unfired(fires)
	out.Finished = append(out.Finished, finished...)
	return err
}

func (s *Store) skipped(ctx context.Context, tx pgx.Tx, r *cron.Run, out *cron.Changed) error {
	if r == nil || r.ID == "" {
		return nil
	}
	var added []string
	b := &pgx.Batch{}
	s.record(b, "", []loggedRun{{Run: *r}}, &added)
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
