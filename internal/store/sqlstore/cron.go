package sqlstore

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"laneway/internal/chat"
	"laneway/internal/cron"
)

// Cron are the jobs and the ledger of their runs.
type Cron struct {
	db      Engine
	parts   *cron.PartsDecoder
	unknown *unknownLaunches
}

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

// put changes the job that p names, or creates it. The second lookup finds one that another
// transaction has created meanwhile.
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

// jobToPut locks the job that p changes, by its key or by its name. Transactions that find a job by
// name are serialized, so that two of them cannot both find the name free.
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

// jobLimits refuses a new job when too many exist. The lock keeps their number constant until the
// commit.
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

// endActive ends the runs that a change cancels. It returns the job as the change receives it:
// planned fires among the waiting runs do not count.
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

// CancelRuns ends active runs; see cron.JobStore.
func (s Cron) CancelRuns(ctx context.Context, p cron.CancelParams) (cron.Cancelled, error) {
	if p.RunID == "" && p.JobID == "" {
		return cron.Cancelled{}, chat.Errorf(chat.CodeInvalid, "a run or a job has to be named")
	}
	return result(ctx, control(s.db, Stop), "cancel runs", func(ctx context.Context, tx Tx) (cron.Cancelled, error) {
		return idempotent(ctx, tx, p.IdempotencyKey, func() (cron.Cancelled, error) {
			ids, err := meant(ctx, tx, &p)
			if err != nil {
				return cron.Cancelled{}, err
			}
			out, err := cancelRuns(ctx, tx, ids, p)
			if err != nil || len(out.Runs) == 0 {
				return out, err
			}
			return out, audit(ctx, tx, p.Audit.Between(out.States()), cmp.Or(p.RunID, p.JobID))
		})
	})
}

// meant are the ids of the runs that a cancellation names.
func meant(ctx context.Context, tx Tx, p *cron.CancelParams) (ids []string, err error) {
	if p.RunID != "" {
		ids, err = all(ctx, tx, `SELECT id FROM cron_run_logs WHERE id = $1 AND ($2 = '' OR job_id = $2) AND ($3 = '' OR owner = $3)`, scanText, p.RunID, p.JobID, p.Visible)
		if err == nil && len(ids) == 0 {
			err = chat.ErrNotFound
		}
		return ids, err
	}
	ids, err = all(ctx, tx, `SELECT id FROM cron_run_logs WHERE finished_at IS NULL AND job_id = $1 AND ($2 = '' OR owner = $2) ORDER BY claimed_at, scheduled_for, id`,
		scanText, p.JobID, p.Visible)
	if err != nil || len(ids) > 0 {
		return ids, err
	}
	known, err := one(ctx, tx, `SELECT 1 FROM cron_jobs WHERE id = $1 AND ($2 = '' OR owner = $2)`, func(Row) error { return nil }, p.JobID, p.Visible)
	if err == nil && !known {
		err = chat.ErrNotFound
	}
	return nil, err
}

// cancelActive cancels the active runs of a job that which selects, oldest first.
func cancelActive(ctx context.Context, tx Tx, job string, which func(*loggedRun) bool, p cron.CancelParams) (cron.Cancelled, error) {
	scan := logScanner()
	rows, err := all(ctx, tx, `SELECT `+logColumns+` FROM cron_run_logs WHERE finished_at IS NULL AND job_id = $1 ORDER BY claimed_at, scheduled_for, id`, scan, job)
	if err != nil {
		return cron.Cancelled{}, err
	}
	var ids []string
	for i := range rows {
		if which(&rows[i]) {
			ids = append(ids, rows[i].ID)
		}
	}
	return cancelRuns(ctx, tx, ids, p)
}

// endWaiting cancels the waiting runs of a job: those that the schedule created, or, when the job
// is removed, all of them. It returns how many were planned fires.
func endWaiting(ctx context.Context, tx Tx, job string, p cron.CancelParams) (c cron.Cancelled, fires int, err error) {
	planned := map[string]bool{}
	c, err = cancelActive(ctx, tx, job, func(r *loggedRun) bool {
		planned[r.ID] = r.Trigger.Planned()
		return r.WaitsToStart() && (planned[r.ID] || p.Reason == cron.ReasonRemoved)
	}, p)
	for _, r := range c.Runs {
		if planned[r.RunID] && !r.Running {
			fires++
		}
	}
	return c, fires, err
}

const (
	lockSessionsSQL = `SELECT 1 FROM sessions WHERE key {in $1} ORDER BY key {lock}`

	stopMessagesSQL = `UPDATE inbox SET state = 'done', outcome = 'stopped', reason = $2, ended_at = {now}
		WHERE message_id {in $1} AND state = 'waiting' AND ended_at IS NULL`

	// askToStopSQL requests runs to stop; the first requester stays recorded.
	askToStopSQL = `UPDATE runs SET stop_by = CASE WHEN COALESCE(stop_by, '') = '' THEN $2 ELSE stop_by END
		WHERE id {in $1} AND ended_at IS NULL AND state IN ('running', 'yielded')`

	unfinished         = ` FROM inbox i WHERE i.session_key = sessions.key AND i.ended_at IS NULL AND i.state <> 'done'`
	unfinishedOnSQLite = ` FROM inbox AS i INDEXED BY inbox_unfinished WHERE i.session_key = sessions.key AND i.ended_at IS NULL AND i.state <> 'done'`

	settleWaiting = `UPDATE sessions SET updated_at = {now}, waiting = (SELECT count(*)`
	settleDone    = ` AND i.state <> 'running'), done_seq = COALESCE((SELECT min(i.seq) - 1`
	settleTaken   = `), last_seq), taken_seq = {greatest}(taken_seq, COALESCE((SELECT min(i.seq) - 1`
	settleWhich   = `), last_seq)) WHERE key {in $1}`
)

// cancelRuns cancels the active ones of the named runs, and their messages. The caller may hold
// locks of jobs, but not of sessions or runs.
func cancelRuns(ctx context.Context, tx Tx, ids []string, p cron.CancelParams) (cron.Cancelled, error) {
	rows, err := lockRuns(ctx, tx, ids)
	if err != nil || len(rows) == 0 {
		return cron.CancelledOf(nil), err
	}
	now, err := tx.Now(ctx)
	if err != nil {
		return cron.Cancelled{}, err
	}
	var (
		changed          []loggedRun
		waiting, running []string // messages
		settled          []string // sessions
		runs             []cron.CancelledRun
		finished         []cron.Run
		order            = map[string]int{}
	)
	for i, id := range ids {
		order[id] = i
	}
	slices.SortFunc(rows, func(a, b seatedRun) int { return cmp.Compare(order[a.ID], order[b.ID]) })
	for _, r := range rows {
		was := r.State
		var ok bool
		if r.Run, ok = r.Cancel(p.Reason, p.Note, fromMillis(now)); !ok {
			continue
		}
		one := cron.CancelledRun{RunID: r.ID, JobID: r.JobID, MessageID: r.message, Session: parseKey(r.SessionKey), Seq: r.seq}
		switch was {
		case cron.RunRunning:
			one.Running, one.Node = true, r.Node
			running = append(running, r.message)
		case cron.RunQueued:
			waiting, settled = append(waiting, r.message), append(settled, r.SessionKey)
		default: // the active states
		}
		if r.State.Final() {
			finished = append(finished, r.Run)
		}
		changed, runs = append(changed, r.loggedRun), append(runs, one)
	}
	out := cron.CancelledOf(runs)
	out.Finished = finished
	if err := storeRuns(ctx, tx, changed...); err != nil {
		return out, err
	}
	if len(running) > 0 {
		if err := tx.Later(ctx, askToStopSQL, nil, running, cmp.Or(p.By, "cron")); err != nil {
			return out, err
		}
	}
	return out, stopMessages(ctx, tx, waiting, settled, string(cmp.Or(p.Reason, cron.ReasonStopped)))
}

func stopMessages(ctx context.Context, tx Tx, messages, sessions []string, reason string) error {
	if len(messages) == 0 {
		return nil
	}
	if err := tx.Later(ctx, stopMessagesSQL, nil, messages, reason); err != nil {
		return err
	}
	return settle(ctx, tx, sessions)
}

// settle updates the counters of locked sessions from their messages.
func settle(ctx context.Context, tx Tx, sessions []string) error {
	return tx.Later(ctx, tx.PerEngine(
		settleWaiting+unfinished+settleDone+unfinished+settleTaken+unfinished+settleWhich,
		settleWaiting+unfinishedOnSQLite+settleDone+unfinishedOnSQLite+settleTaken+unfinishedOnSQLite+settleWhich), nil, sessions)
}

// seatedRun is a run with the number of its message.
type seatedRun struct {
	loggedRun

	seq int64
}

// lockRuns locks the active ones of the named runs and the sessions of their messages, and then
// reads the runs. Runs that wait for a retry have no waiting message: they are locked first, as in
// a claim of retries.
func lockRuns(ctx context.Context, tx Tx, ids []string) (rows []seatedRun, err error) {
	if len(ids) == 0 {
		return nil, nil
	}
	if text := tx.PerEngine(`SELECT id FROM cron_run_logs WHERE id {in $1} AND state = 'retrying' ORDER BY id {lock}`, ""); text != "" {
		keys, err := all(ctx, tx, `SELECT session_key FROM cron_run_logs WHERE id {in $1} AND state IN ('queued', 'running')`, scanText, ids)
		if err != nil {
			return nil, err
		}
		if err := tx.Later(ctx, text, nil, ids); err != nil {
			return nil, err
		}
		if err := tx.Later(ctx, lockSessionsSQL, nil, keys); err != nil {
			return nil, err
		}
	}
	var seq int64
	scan := logScanner(&seq)
	return all(ctx, tx, `SELECT `+logColumns+`, COALESCE((SELECT i.seq FROM inbox i WHERE i.message_id = l.run_id), 0) FROM cron_run_logs l WHERE id {in $1}`,
		func(row Row) (seatedRun, error) {
			r, err := scan(row)
			return seatedRun{r, seq}, err
		}, ids)
}
