package sqlite

import (
	"context"

	"laneway/internal/chat"
	"laneway/internal/cron"
	"laneway/internal/store/sqlstore"
)

var _ cron.JobStore = (*Store)(nil)

// PutJob makes a job, or changes the one with the same owner and key; see the port.
func (s *Store) PutJob(ctx context.Context, p cron.PutParams) (cron.PutResult, error) {
	if p.Owner == "" || p.Key == "" || p.Change == nil {
		return cron.PutResult{}, chat.Errorf(chat.CodeInvalid, "a job needs an owner and a key")
	}
	return result(ctx, s.write, ordinary("store a job"), func(ctx context.Context, t *tx) (cron.PutResult, error) {
		first := false
		out, err := sqlstore.Idempotent(ctx, t.shared(), p.IdempotencyKey, func() (cron.PutResult, error) {
			first = true
			return t.putJob(ctx, &p)
		})
		out.Repeated, out.Finished = !first, t.finished
		return out, err
	})
}

func (t *tx) putJob(ctx context.Context, p *cron.PutParams) (cron.PutResult, error) {
	old, err := scanJob(t.one(ctx, selectJob+`WHERE owner = ? AND key = ?`, p.Owner, p.Key))
	if err != nil && !none(err) {
		return cron.PutResult{}, err
	}
	if p.ByName() && (err != nil || !p.KeyGiven) {
		named, err := t.namesake(ctx, p)
		if err != nil {
			return cron.PutResult{}, err
		}
		if named != nil {
			return t.putOld(ctx, p, named)
		}
	}
	if none(err) {
		return t.makeJob(ctx, p)
	}
	return t.putOld(ctx, p, old)
}

// namesake is the job that p changes by its name; nil = there is none.
func (t *tx) namesake(ctx context.Context, p *cron.PutParams) (*storedJob, error) {
	rows, err := t.query(ctx, `SELECT id FROM cron_jobs WHERE owner = ? AND name = ? ORDER BY created_at, id LIMIT +?`, p.Owner, p.Name, cron.MaxNamesakes)
	ids, err := collect(rows, err, text)
	if err != nil {
		return nil, err
	}
	id, err := p.Namesake(ids)
	if err != nil || id == "" {
		return nil, err
	}
	return scanJob(t.one(ctx, selectJob+`WHERE id = ?`, id))
}

// putOld changes a job that exists.
func (t *tx) putOld(ctx context.Context, p *cron.PutParams, old *storedJob) (out cron.PutResult, err error) {
	given := old.Job.Clone()
	if p.EndWaiting != "" {
		var fires int
		if out.Ended, fires, err = t.endWaiting(ctx, old.ID, false, cancellation{reason: p.EndWaiting}); err != nil {
			return out, err
		}
		given = given.Unfired(fires)
	}
	next, err := p.Change(&given, instant(t.now))
	if err != nil {
		return cron.PutResult{}, err
	}
	out.Updated, err = t.replaceJob(ctx, old, next)
	if err != nil || !out.Updated {
		out.Job = old.Job
		return out, err
	}
	out.Job, err = t.reread(ctx, old.ID)
	if err != nil {
		return out, err
	}
	return out, t.audit(ctx, p.Audit.Between(old.Revision, out.Job.Revision), old.ID)
}

// makeJob adds a job that does not exist, within the limits.
func (t *tx) makeJob(ctx context.Context, p *cron.PutParams) (out cron.PutResult, err error) {
	if err := t.checkJobLimit(ctx, p); err != nil {
		return out, err
	}
	next, err := p.Change(nil, instant(t.now))
	if err != nil || next == nil {
		return out, err
	}
	if next.ID == "" || next.Owner != p.Owner || next.Key != p.Key {
		return out, chat.Errorf(chat.CodeInvalid, "a new job needs an id, and the owner and the key that it was offered under")
	}
	var taken int
	if err := t.one(ctx, `SELECT count(*) FROM cron_jobs WHERE id = ?`, next.ID).Scan(&taken); err != nil {
		return out, err
	}
	if taken > 0 {
		return out, chat.Errorf(chat.CodeConflict, "another job has the id %s", next.ID)
	}
	if err := t.insertJob(ctx, next); err != nil {
		return out, err
	}
	if out.Job, err = t.reread(ctx, next.ID); err != nil {
		return out, err
	}
	out.Created = true
	return out, t.audit(ctx, p.Audit.Between("", next.Revision), next.ID)
}

func (t *tx) checkJobLimit(ctx context.Context, p *cron.PutParams) error {
	for _, bound := range []struct {
		most int
		text string
		what string
	}{
		{p.MaxOfOwner, `SELECT count(*) FROM cron_jobs WHERE owner = ?`, "there are %d jobs already and %d are allowed: remove one first"},
		{p.MaxTotal, `SELECT count(*) FROM cron_jobs WHERE owner <> '' OR owner = ?`, "the gateway has %d jobs and %d are allowed: remove some first"},
	} {
		if bound.most <= 0 {
			continue
		}
		var n int
		if err := t.one(ctx, bound.text, p.Owner).Scan(&n); err != nil {
			return err
		}
		if n >= bound.most {
			return chat.Errorf(chat.CodeLimit, bound.what, n, bound.most).With("limit", bound.most)
		}
	}
	return nil
}

// replaceJob stores next in place of old, whose id and owner stay; nil changes nothing.
func (t *tx) replaceJob(ctx context.Context, old *storedJob, next *cron.Job) (changed bool, err error) {
	if next == nil {
		return false, nil
	}
	if next.ID != old.ID || next.Owner != old.Owner {
		return false, chat.Errorf(chat.CodeInvalid, "the id and the owner of a job never change")
	}
	if next.Key != old.Key {
		var taken int
		if err := t.one(ctx, `SELECT count(*) FROM cron_jobs WHERE owner = ? AND key = ?`, next.Owner, next.Key).Scan(&taken); err != nil {
			return false, err
		}
		if taken > 0 || next.Key == "" {
			return false, chat.Errorf(chat.CodeConflict, "another job has the key %q: choose another name or schedule", next.Key)
		}
	}
	return t.storeJob(ctx, old, next)
}

func (t *tx) reread(ctx context.Context, id string) (cron.Job, error) {
	j, err := findJob(ctx, t, id, "")
	if err != nil {
		return cron.Job{}, err
	}
	return j.Job, nil
}

// ChangeJob changes or removes a job; see the port.
func (s *Store) ChangeJob(ctx context.Context, p cron.ChangeParams) (cron.Changed, error) {
	return result(ctx, s.write, ordinary("change a job"), func(ctx context.Context, t *tx) (cron.Changed, error) {
		old, err := findJob(ctx, t, p.ID, p.Visible)
		if err != nil {
			return cron.Changed{}, err
		}
		return t.changeJob(ctx, &p, old)
	})
}

func (t *tx) changeJob(ctx context.Context, p *cron.ChangeParams, old *storedJob) (out cron.Changed, err error) {
	given := old.Job.Clone()
	fires, err := t.endActive(ctx, p, old, &out)
	if err != nil {
		return out, err
	}
	given = given.Unfired(fires)
	out.Old = given
	next, err := p.Change(given.Clone(), instant(t.now))
	if err != nil {
		return cron.Changed{}, err
	}
	if p.Skipped != nil && !p.Skipped.ScheduledFor.IsZero() {
		if _, err := t.record(ctx, &old.Job, p.Skipped); err != nil {
			return out, err
		}
	}
	if next == nil {
		out.Changed = true
		err = t.removeJob(ctx, old.ID)
	} else {
		out.Changed, err = t.replaceJob(ctx, old, next)
	}
	if err != nil {
		return out, err
	}
	if next != nil {
		job, err := t.reread(ctx, old.ID)
		if err != nil {
			return out, err
		}
		out.Job = &job
	}
	out.Finished = t.finished
	if !out.Changed && len(out.Ended) == 0 {
		return out, nil
	}
	return out, t.audit(ctx, p.Audit.Between(out.Revisions()), old.ID)
}

// endActive ends the runs that a change cancels, and returns how many of them were fires that never began.
func (t *tx) endActive(ctx context.Context, p *cron.ChangeParams, old *storedJob, out *cron.Changed) (fires int, err error) {
	switch {
	case p.CancelActive:
		rows, err := t.activeOf(ctx, old.ID)
		if err != nil {
			return 0, err
		}
		out.Ended, err = t.cancelAll(ctx, rows, cancellation{reason: p.CancelReason, by: p.By})
		return 0, err
	case p.EndWaiting != "":
		out.Ended, fires, err = t.endWaiting(ctx, old.ID, p.EndWaiting == cron.ReasonRemoved, cancellation{reason: p.EndWaiting, by: p.By})
	}
	return fires, err
}

// Job reads one job that visible may see; chat.ErrNotFound.
func (s *Store) Job(ctx context.Context, id, visible string) (out cron.Job, err error) {
	err = s.view(ctx, "read a job", func(ctx context.Context, q querier) error {
		j, err := findJob(ctx, q, id, visible)
		if err != nil {
			return err
		}
		out = j.Job
		return nil
	})
	return out, err
}
