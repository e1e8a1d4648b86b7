package sqlstore

import (
	"cmp"
	"context"

	"laneway/internal/chat"
	"laneway/internal/cron"
)

// Cron are the jobs and the ledger of their runs.
type Cron struct {
	db      Engine
	parts   *cron.PartsDecoder
	unknown *unknownLaunches
}

var _ cron.JobStore = Cron{}

func newCron(db Engine) Cron {
	return Cron{db: db, parts: &cron.PartsDecoder{}, unknown: &unknownLaunches{list: map[string]cron.Launched{}}}
}

// PutJob creates a job, or changes the one with the same owner and key; see cron.JobStore.
func (s Cron) PutJob(ctx context.Context, p cron.PutParams) (cron.PutResult, error) {
	if p.Owner == "" || p.Key == "" || p.Change == nil {
		return cron.PutResult{}, chat.Errorf(chat.CodeInvalid, "a job needs an owner and a key")
	}
	return result(ctx, s.db.Update, "store a job", func(ctx context.Context, tx Tx) (cron.PutResult, error) {
		first := false
		out, err := idempotent(ctx, tx, p.IdempotencyKey, func() (cron.PutResult, error) {
			first = true
			return s.put(ctx, tx, &p)
		})
		out.Repeated = !first
		return out, err
	})
}

// put changes the job that p names, or creates it. The second lookup finds one that another transaction has created meanwhile.
func (s Cron) put(ctx context.Context, tx Tx, p *cron.PutParams) (out cron.PutResult, err error) {
	for range 2 {
		old, found, err := s.jobToPut(ctx, tx, p)
		switch {
		case err != nil:
			return out, err
		case found:
			return s.putOld(ctx, tx, p, old)
		}
		if out, err = s.putNew(ctx, tx, p); err != nil || out.Created || out.Job.ID == "" {
			return out, err
		}
	}
	return cron.PutResult{}, chat.Errorf(chat.CodeConflict, "another job has the id %s", out.Job.ID)
}

// jobToPut locks the job that p changes, by its key or by its name. Transactions that find a job by name are serialized, so that two of them cannot both find
// the name free.
func (s Cron) jobToPut(ctx context.Context, tx Tx, p *cron.PutParams) (j storedJob, found bool, err error) {
	const byKey = `owner = $1 AND key = $2`
	if !p.ByName() {
		return s.lockJob(ctx, tx, byKey, p.Owner, p.Key)
	}
	if err := lockName(ctx, tx, "cron_jobs", ""); err != nil {
		return j, false, err
	}
	if j, found, err = s.lockJob(ctx, tx, byKey, p.Owner, p.Key); err != nil || found && p.KeyGiven {
		return j, found, err
	}
	ids, err := all(ctx, tx, `SELECT id FROM cron_jobs WHERE owner = $1 AND name = $2 ORDER BY created_at, id {limit $3}`, scanText, p.Owner, p.Name, cron.MaxNamesakes)
	if err != nil {
		return j, false, err
	}
	id, err := p.Namesake(ids)
	if err != nil || id == "" {
		return j, found, err
	}
	return s.lockJob(ctx, tx, `id = $1`, id)
}

// putOld changes an existing job. A Change that returns nil leaves it unchanged.
func (s Cron) putOld(ctx context.Context, tx Tx, p *cron.PutParams, old storedJob) (out cron.PutResult, err error) {
	given := old.Job
	if p.EndWaiting != "" {
		c, fires, err := endWaiting(ctx, tx, old.ID, cron.CancelParams{Reason: p.EndWaiting})
		if err != nil {
			return out, err
		}
		out.Ended, out.Finished = c.Runs, c.Finished
		given = given.Unfired(fires)
	}
	out.Job = given
	change := given.Clone()
	next, err := p.Change(&change, old.now)
	if err != nil || next == nil {
		return out, err
	}
	if out.Updated, err = storeJob(ctx, tx, old, *next); err != nil || !out.Updated {
		return out, err
	}
	read, err := s.findJob(ctx, tx, old.ID, "")
	if err != nil {
		return out, err
	}
	out.Job = read.Job
	return out, audit(ctx, tx, p.Audit.Between(old.Revision, out.Job.Revision), old.ID)
}

// putNew adds a job within the limits, unless a job of its id or key exists.
func (s Cron) putNew(ctx context.Context, tx Tx, p *cron.PutParams) (out cron.PutResult, err error) {
	if err := jobLimits(ctx, tx, p); err != nil {
		return out, err
	}
	now, err := tx.Now(ctx)
	if err != nil {
		return out, err
	}
	next, err := p.Change(nil, fromMillis(now))
	if err != nil || next == nil {
		return out, err
	}
	if next.ID == "" || next.Owner != p.Owner || next.Key != p.Key {
		return out, chat.Errorf(chat.CodeInvalid, "a new job needs an id, and the owner and the key that it was offered under")
	}
	if p.FormerID != "" {
		former := ""
		if _, err := one(ctx, tx, `SELECT job_id FROM cron_run_logs WHERE job_id = $1 AND owner = $2 LIMIT 1`, into(&former), p.FormerID, p.Owner); err != nil {
			return out, err
		}
		next.ID = cmp.Or(former, next.ID)
	}
	out.Job = *next
	if out.Created, err = insertJob(ctx, tx, *next); err != nil || !out.Created {
		return out, err
	}
	read, err := s.findJob(ctx, tx, next.ID, "")
	if err != nil {
		return out, err
	}
	out.Job = read.Job
	return out, audit(ctx, tx, p.Audit.Between("", next.Revision), next.ID)
}

// jobLimits refuses a new job when too many exist. The lock keeps their number constant until the commit.
func jobLimits(ctx context.Context, tx Tx, p *cron.PutParams) error {
	if p.MaxOfOwner <= 0 && p.MaxTotal <= 0 {
		return nil
	}
	if err := lockName(ctx, tx, "cron_jobs", ""); err != nil {
		return err
	}
	var every, own int
	_, err := one(ctx, tx, `SELECT (SELECT count(*) FROM cron_jobs), (SELECT count(*) FROM cron_jobs WHERE owner = $1)`, into(&every, &own), p.Owner)
	switch {
	case err != nil:
		return err
	case p.MaxOfOwner > 0 && own >= p.MaxOfOwner:
		return chat.Errorf(chat.CodeLimit, "there are %d jobs already and %d are allowed: remove one first", own, p.MaxOfOwner).With("limit", p.MaxOfOwner)
	case p.MaxTotal > 0 && every >= p.MaxTotal:
		return chat.Errorf(chat.CodeLimit, "the gateway has %d jobs and %d are allowed: remove some first", every, p.MaxTotal).With("limit", p.MaxTotal)
	}
	return nil
}

// ChangeJob changes or removes a job; see cron.JobStore.
func (s Cron) ChangeJob(ctx context.Context, p cron.ChangeParams) (cron.Changed, error) {
	return result(ctx, s.db.Update, "change a job", func(ctx context.Context, tx Tx) (cron.Changed, error) {
		old, found, err := s.lockJob(ctx, tx, `id = $1 AND ($2 = '' OR owner = $2)`, p.ID, p.Visible)
		if err == nil && !found {
			err = chat.ErrNotFound
		}
		if err != nil {
			return cron.Changed{}, err
		}
		return s.change(ctx, tx, &p, old)
	})
}

func (s Cron) change(ctx context.Context, tx Tx, p *cron.ChangeParams, old storedJob) (out cron.Changed, err error) {
	if out.Old, err = endActive(ctx, tx, p, old.Job, &out); err != nil {
		return out, err
	}
	next, err := p.Change(out.Old.Clone(), old.now)
	if err != nil {
		return cron.Changed{}, err
	}
	if p.Skipped != nil && p.Skipped.ID != "" {
		r := p.Skipped.Recorded("", old.now)
		fresh, err := addRuns(ctx, tx, []loggedRun{{Run: r}}, true)
		if err != nil {
			return out, err
		}
		if fresh[r.ID] {
			out.Finished = append(out.Finished, r)
		}
	}
	if next == nil {
		out.Changed = true
		err = removeJob(ctx, tx, old.ID)
	} else {
		out.Changed, err = storeJob(ctx, tx, old, *next)
	}
	if err != nil {
		return out, err
	}
	if next != nil {
		read, err := s.findJob(ctx, tx, old.ID, "")
		if err != nil {
			return out, err
		}
		out.Job = &read.Job
	}
	if !out.Changed && len(out.Ended) == 0 {
		return out, nil
	}
	return out, audit(ctx, tx, p.Audit.Between(out.Revisions()), old.ID)
}

// endActive ends the runs that a change cancels. It returns the job as the change receives it: planned fires among the waiting runs do not count.
func endActive(ctx context.Context, tx Tx, p *cron.ChangeParams, old cron.Job, out *cron.Changed) (cron.Job, error) {
	var (
		c     cron.Cancelled
		fires int
		err   error
	)
	switch {
	case p.CancelActive:
		c, err = cancelActive(ctx, tx, old.ID, func(*loggedRun) bool { return true }, cron.CancelParams{Reason: p.CancelReason, By: p.By})
	case p.EndWaiting != "":
		c, fires, err = endWaiting(ctx, tx, old.ID, cron.CancelParams{Reason: p.EndWaiting, By: p.By})
	}
	out.Ended, out.Finished = c.Runs, c.Finished
	return old.Unfired(fires), err
}

// Job reads a job that visible may see; chat.ErrNotFound.
func (s Cron) Job(ctx context.Context, id, visible string) (j cron.Job, err error) {
	err = s.db.View(ctx, "read a job", func(ctx context.Context, tx Tx) error {
		read, err := s.findJob(ctx, tx, id, visible)
		j = read.Job
		return err
	})
	return j, err
}
