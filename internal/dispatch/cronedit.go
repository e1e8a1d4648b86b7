package dispatch

import (
	"context"
	"errors"
	"time"

	"laneway/internal/chat"
	"laneway/internal/cron"
)

// changed tells watchers, and lets the loop look: the job may be due before its next tick.
func (d *Dispatcher) changed(action cron.Action, j cron.Job) {
	d.tellCron(cron.Event{Action: action, Job: j})
	if d.cron != nil {
		d.cron.Nudge()
	}
}

// CronUpdate changes a job by a patch. expected, if not empty, is the revision that the caller read.
func (d *Dispatcher) CronUpdate(ctx context.Context, id string, patch cron.Members, expected string, by chat.Caller) (cron.Job, error) {
	for _, name := range []string{"key", "declarationKey"} {
		if _, given := patch[name]; given {
			return cron.Job{}, chat.Errorf(chat.CodeInvalid, "at /patch: unexpected property '%s': a key never changes", name)
		}
	}
	if _, given := patch["paused"]; given {
		return cron.Job{}, chat.Errorf(chat.CodeInvalid, "at /patch: unexpected property 'paused': cron.pause and cron.resume change it")
	}
	for try := 1; ; try++ {
		judged, err := d.mayPatch(ctx, id, patch, expected, by)
		if err != nil {
			return cron.Job{}, err
		}
		job, stale, err := d.patch(ctx, id, patch, expected, judged, by)
		if !stale || try == mostJudgements {
			return job, err
		}
	}
}

// mostJudgements is how often an edit is tried while the job changes between its judgement and its transaction.
const mostJudgements = 10

// mayPatch decides before the transaction what needs the store: whether the job may run and tell where the patch sends it. It returns the revision that this
// holds for, "" = any.
func (d *Dispatcher) mayPatch(ctx context.Context, id string, patch cron.Members, expected string, by chat.Caller) (revision string, err error) {
	if !by.Own {
		return "", nil
	}
	old, err := d.CronGet(ctx, id, by)
	if err != nil {
		return "", err
	}
	if err := mayEdit(old, expected); err != nil {
		return "", err
	}
	now, err := d.store.Now(ctx)
	if err != nil {
		return "", err
	}
	next, err := d.border(by, now).Apply(old, patch)
	if err != nil {
		return "", wireFault(err)
	}
	return old.Revision, d.mayTarget(ctx, next, by)
}

// patch changes a job by a patch that was judged for a revision of it, "" = for any; stale reports that the job has another revision by now.
func (d *Dispatcher) patch(
	ctx context.Context, id string, patch cron.Members, expected, judged string, by chat.Caller,
) (job cron.Job, stale bool, err error) {
	_, enables := patch["enabled"]
	_, delivers := patch["delivery"]
	job, err = d.change(ctx, id, "cron.update", by, func(old cron.Job, now time.Time) (*cron.Job, error) {
		if err := mayEdit(old, expected); err != nil {
			return nil, err
		}
		if stale = judged != "" && judged != old.Revision; stale {
			return nil, mayEdit(old, judged)
		}
		next, err := d.border(by, now).Apply(old, patch)
		if err != nil {
			return nil, err
		}
		if next.KeyDerived {
			next.Key = cron.Key(next.Name, next.Schedule)
		}
		if enables && next.Enabled {
			if err := d.enabled(&next, now); err != nil {
				return nil, err
			}
		}
		if delivers {
			next.State.DeliveryPause = cron.DeliveryPause{} // also to the same chat: whoever says so knows that it can be reached again
		}
		if cron.RevisionOf(next) == cron.RevisionOf(old) && next.Key == old.Key && next.State.DeliveryPause == old.State.DeliveryPause {
			return &old, nil
		}
		return d.replan(old, next, now)
	})
	if err == nil && enables && !job.Enabled {
		// A job that fires once is switched off by the claim of its fire: whoever switches it off now means that fire.
		before := job
		before.Enabled = true
		d.dropPlanned(ctx, cron.Changed{Old: before, Job: &job, Changed: true})
	}
	return job, stale, err
}

// mayEdit refuses an edit of a built-in job, and one of another revision than the caller read.
func mayEdit(old cron.Job, expected string) error {
	switch {
	case old.Owner == cron.SystemOwner:
		return chat.Errorf(chat.CodeForbidden, "built-in jobs cannot be changed, only paused, resumed and run")
	case expected != "" && expected != old.Revision:
		return chat.Errorf(chat.CodeInvalid, "cron job changed since it was read").With("code", "CRON_JOB_CHANGED").
			With("expectedConfigRevision", expected).With("actualConfigRevision", old.Revision)
	}
	return nil
}

// enabled makes of a job that somebody switches on one that does all that it was made for.
func (d *Dispatcher) enabled(j *cron.Job, now time.Time) error {
	j.Enabled, j.Pause, j.AutoDisabled, j.Invalid = true, nil, false, ""
	j.State.ConsecutiveErrors, j.State.ConsecutiveSkipped, j.State.DeliveryPause = 0, 0, cron.DeliveryPause{}
	return d.fires(*j, now)
}

// fires refuses to enable a job that has no fire any more.
func (d *Dispatcher) fires(j cron.Job, now time.Time) error {
	t, err := d.planner.Timetable(j)
	if err != nil {
		return err
	}
	if _, ok := t.First(now); !ok {
		return &cron.InvalidError{Field: "schedule", Reason: cron.InvalidPast, Sentence: "the job has no fire any more; give it another schedule"}
	}
	return nil
}

// change is what all edits of one job share.
func (d *Dispatcher) change(ctx context.Context, id, verb string, by chat.Caller, f func(old cron.Job, now time.Time) (*cron.Job, error)) (cron.Job, error) {
	return d.changeWith(ctx, cron.ChangeParams{ID: id, Visible: visible(by), Change: f, Audit: by.Audit(verb, id)})
}

func (d *Dispatcher) changeWith(ctx context.Context, p cron.ChangeParams) (cron.Job, error) {
	if d.jobs == nil {
		return cron.Job{}, errNoCron()
	}
	free, err := d.freeSlots(ctx, p.ID)
	if err != nil {
		return cron.Job{}, err
	}
	decide, key := p.Change, ""
	p.Change = func(old cron.Job, now time.Time) (*cron.Job, error) {
		j, err := decide(old, now)
		if j != nil {
			key = j.Key
		}
		if err == nil && j != nil && j.MayFire() {
			free(j)
		}
		return j, err
	}
	res, err := d.jobs.ChangeJob(ctx, p)
	switch {
	case errors.Is(err, chat.ErrNotFound):
		return cron.Job{}, jobGone(p.ID)
	case errors.Is(err, chat.ErrConflict):
		return cron.Job{}, chat.Errorf(chat.CodeInvalid, "another job has the key that this change gives").With("code", "CRON_KEY_CONFLICT").With("key", key).With("jobId", p.ID)
	case err != nil:
		return cron.Job{}, wireFault(err)
	}
	for _, end := range res.Ended {
		d.stopRun(end, joinBy(string(p.CancelReason), p.By))
	}
	d.dropPlanned(ctx, res)
	switch {
	case res.Job == nil:
		d.changed(cron.ActionRemoved, res.Old)
		return res.Old, nil
	case res.Changed:
		d.changed(cron.ActionUpdated, *res.Job)
	}
	return *res.Job, nil
}

// dropPlanned ends runs that the loop had claimed a moment ahead and that the change takes back: their moment has not come, and the job is gone, does
// not fire any more, or has no such slot. A slot that the new schedule has as well stays as it was claimed.
func (d *Dispatcher) dropPlanned(ctx context.Context, c cron.Changed) {
	if c.Old.State.Queued == 0 || !c.Changed {
		return
	}
	now, err := d.store.Now(ctx)
	if err != nil {
		return
	}
	page, err := d.jobs.Runs(ctx, cron.RunFilter{JobID: c.Old.ID, States: []cron.RunState{cron.RunQueued}, Limit: 50})
	if err != nil {
		d.log.WarnContext(ctx, "runs that were claimed ahead cannot be read; they start", "job_id", c.Old.ID, "err", err)
		return
	}
	for _, r := range page.Runs {
		if r.Trigger != cron.TriggerSchedule || !r.FireAt.After(now) || d.stillPlanned(c, r.ScheduledFor) {
			continue
		}
		reason := cron.ReasonReplaced
		if c.Job == nil {
			reason = cron.ReasonRemoved
		}
		done, err := d.jobs.CancelRuns(ctx, cron.CancelParams{RunID: r.ID, Reason: reason, Note: "cancelled: the job was changed before its moment", By: joinBy(string(reason), cron.Channel)})
		if err != nil {
			d.log.WarnContext(ctx, "a run that was claimed ahead starts although its job was changed", "run_id", r.ID, "err", err)
		}
		for _, e := range done.Runs {
			d.stopRun(e, joinBy(string(reason), cron.Channel))
		}
	}
}

// freeSlots is for a job that is to fire (again) at a slot to come whose run was claimed ahead and taken back: its name stands in the ledger as
// cancelled, and no run can have it twice. Such a slot fires a millisecond later, under a name of its own.
func (d *Dispatcher) freeSlots(ctx context.Context, id string) (move func(j *cron.Job), err error) {
	now, err := d.store.Now(ctx)
	if err != nil {
		return nil, err
	}
	page, err := d.jobs.Runs(ctx, cron.RunFilter{JobID: id, States: []cron.RunState{cron.RunCancelled}, Since: now, Limit: 50})
	if err != nil {
		return nil, err
	}
	taken := map[int64]bool{}
	for _, r := range page.Runs {
		taken[r.ScheduledFor.UnixMilli()] = true
	}
	return func(j *cron.Job) {
		for taken[j.State.Next.UnixMilli()] {
			j.State.Next, j.State.NextRunAt = j.State.Next.Add(time.Millisecond), j.State.NextRunAt.Add(time.Millisecond)
		}
	}, nil
}

// stillPlanned tells a slot that a changed job has, too. That the claim of its last fire has switched the job off takes nothing back.
func (d *Dispatcher) stillPlanned(c cron.Changed, slot time.Time) bool {
	j := c.Job
	if j == nil || j.Pause != nil || j.Invalid != "" || (c.Old.Enabled && !j.Enabled) {
		return false
	}
	t, err := d.planner.Timetable(*j)
	if err != nil {
		return false
	}
	t.MaxRuns = 0 // the claim has counted this one
	fire, ok := t.Next(slot.Add(-1))
	return ok && fire.Slot.Equal(slot)
}

// CronRemove removes a job; its history stays. With cancelRunning its active runs end, too.
func (d *Dispatcher) CronRemove(ctx context.Context, id string, cancelRunning bool, by chat.Caller) error {
	_, err := d.changeWith(ctx, cron.ChangeParams{
		ID: id, Visible: visible(by), CancelActive: cancelRunning, CancelReason: cron.ReasonRemoved, By: joinBy(string(cron.ReasonRemoved), by.Principal),
		Audit: by.Audit("cron.remove", id),
		Change: func(old cron.Job, _ time.Time) (*cron.Job, error) {
			if old.Owner == cron.SystemOwner {
				return nil, chat.Errorf(chat.CodeForbidden, "built-in jobs cannot be removed, only paused")
			}
			return nil, nil
		},
	})
	return err
}

// CronPause pauses a job. A zero until means until somebody resumes it.
func (d *Dispatcher) CronPause(ctx context.Context, id, note string, until time.Time, by chat.Caller) (cron.Job, error) {
	return d.change(ctx, id, "cron.pause", by, func(old cron.Job, now time.Time) (*cron.Job, error) {
		if !until.IsZero() && !until.After(now) {
			return nil, &cron.InvalidError{Field: "untilMs", Reason: cron.InvalidPast, Sentence: "choose a moment to come, or none"}
		}
		at := now
		if old.Pause != nil {
			at = old.Pause.At
		}
		old.Pause = &cron.Pause{Note: note, By: by.Principal, At: at, Until: until}
		old.UpdatedAt, old.State.NextRunAt = now, until // the planned slot stays: what passes from there on is told when the job is resumed
		old.Revision = cron.RevisionOf(old)
		return &old, nil
	})
}

// CronResume ends a pause: the next fire is computed from now, and the slots that passed are one entry of the ledger. It ends a pause of the delivery,
// too, and what failures have switched off is on again.
func (d *Dispatcher) CronResume(ctx context.Context, id string, by chat.Caller) (cron.Job, error) {
	p := cron.ChangeParams{ID: id, Visible: visible(by), Audit: by.Audit("cron.resume", id)}
	var row cron.Run
	p.Skipped = nil
	change := func(old cron.Job, now time.Time) (*cron.Job, error) {
		old.State.DeliveryPause = cron.DeliveryPause{}
		if old.Pause == nil && !old.AutoDisabled {
			return &old, nil
		}
		if old.Pause != nil {
			t, err := d.planner.Timetable(old)
			if err != nil {
				return nil, err
			}
			if r, ok := cron.PausedRow(old, t, now); ok {
				row = r
			}
		}
		if old.AutoDisabled {
			if err := d.enabled(&old, now); err != nil {
				return nil, err
			}
		}
		old.Pause = nil
		return d.planned(old, now)
	}
	// The row has to be known before the call: the pause is read first, and the change is decided again in the transaction.
	now, err := d.store.Now(ctx)
	if err != nil {
		return cron.Job{}, err
	}
	before, err := d.CronGet(ctx, id, by)
	if err != nil {
		return cron.Job{}, err
	}
	if before.Pause != nil {
		if _, err := change(before, now); err != nil {
			return cron.Job{}, wireFault(err)
		}
		if row.ID != "" {
			p.Skipped = &row
		}
	}
	p.Change = change
	return d.changeWith(ctx, p)
}
