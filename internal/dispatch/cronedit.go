package dispatch

import (
	"cmp"
	"context"
	"errors"
	"time"

	"laneway/internal/chat"
	"laneway/internal/cron"
	"laneway/internal/cron/schedule"
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
func (d *Dispatcher) patch( //nolint:revive // six arguments: the patch and for what it was judged
	ctx context.Context, id string, patch cron.Members, expected, judged string, by chat.Caller,
) (job cron.Job, stale bool, err error) {
	_, enables := patch["enabled"]
	_, delivers := patch["delivery"]
	taken, err := d.takenSlots(ctx, id)
	if err != nil {
		return cron.Job{}, false, err
	}
	p := cron.ChangeParams{ID: id, Visible: visible(by), EndWaiting: endedBy(patch), By: joinBy("stop", by.Principal), Audit: by.Audit("cron.update", id)}
	p.Change = func(old cron.Job, now time.Time) (*cron.Job, error) {
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
			next.Key = schedule.Key(next.Name, next.Schedule)
		}
		if enables && next.Enabled {
			if err := d.enabled(&next, now, next.Schedule == old.Schedule); err != nil {
				return nil, err
			}
		}
		if delivers {
			next.State.DeliveryPause = cron.DeliveryPause{} // also to the same chat: whoever says so knows that it can be reached again
		}
		if cron.RevisionOf(next) == cron.RevisionOf(old) && next.Key == old.Key && next.State.DeliveryPause == old.State.DeliveryPause {
			return &old, nil
		}
		j, err := d.replan(old, next, now)
		if err == nil && j.MayFire() && !j.State.Next.IsZero() && !j.State.Next.After(now) && taken[j.State.Next.UnixMilli()] {
			return nil, errNoFire()
		}
		return j, err
	}
	job, err = d.changeWith(ctx, p)
	return job, stale, err
}

// endedBy is what becomes of the fires of a job that wait to start when it is changed by some members: whoever switches it off means them as well.
func endedBy(m cron.Members) cron.Reason {
	if raw, given := m["enabled"]; given && string(raw) == "false" {
		return cron.ReasonStopped
	}
	return cron.ReasonNone
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

// enabled makes of a job that somebody switches on one that does all that it was made for. A schedule that it had before must have a fire to come.
func (d *Dispatcher) enabled(j *cron.Job, now time.Time, sameSchedule bool) error {
	j.Enabled, j.Pause, j.AutoDisabled, j.Invalid = true, nil, false, ""
	j.State.ConsecutiveErrors, j.State.ConsecutiveSkipped, j.State.DeliveryPause = 0, 0, cron.DeliveryPause{}
	t, err := d.planner.Timetable(*j)
	if err != nil {
		return err
	}
	_, ok := t.First(now)
	if sameSchedule {
		_, ok = t.Next(now)
	}
	if !ok {
		return errNoFire()
	}
	return nil
}

// errNoFire refuses to let a job fire that has no fire any more.
func errNoFire() error {
	return &schedule.InvalidError{
		Field: "schedule", Reason: schedule.InvalidPast, Sentence: "the job has no fire any more; give it another schedule, run it by hand or remove it",
	}
}

// atGrace is how old the moment of a job that fires once may be when it is given; see cron.md.
const atGrace = time.Minute

// takenSlots are the slots of a job within the time in which a moment may be given that has passed, and which have an entry in the ledger: no slot fires twice.
func (d *Dispatcher) takenSlots(ctx context.Context, id string) (map[int64]bool, error) {
	if d.jobs == nil {
		return nil, errNoCron()
	}
	now, err := d.store.Now(ctx)
	if err != nil {
		return nil, err
	}
	page, err := d.jobs.Runs(ctx, cron.RunFilter{JobID: id, IncludeActive: true, Since: now.Add(-atGrace - time.Second), Limit: 200})
	if err != nil {
		return nil, err
	}
	taken := map[int64]bool{}
	for _, r := range page.Runs {
		if r.Trigger.Planned() {
			taken[r.ScheduledFor.UnixMilli()] = true
		}
	}
	return taken, nil
}

// changeWith is what all edits of one job share.
func (d *Dispatcher) changeWith(ctx context.Context, p cron.ChangeParams) (cron.Job, error) {
	if d.jobs == nil {
		return cron.Job{}, errNoCron()
	}
	decide, key := p.Change, ""
	p.Change = func(old cron.Job, now time.Time) (*cron.Job, error) {
		j, err := decide(old, now)
		if j != nil {
			key = j.Key
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
	d.stopEnded(res.Ended, joinBy(string(cmp.Or(p.CancelReason, p.EndWaiting)), p.By))
	switch {
	case res.Job == nil:
		d.changed(cron.ActionRemoved, res.Old)
		return res.Old, nil
	case res.Changed:
		d.changed(cron.ActionUpdated, *res.Job)
	}
	return *res.Job, nil
}

// stopEnded ends the turns of runs that a change has cancelled.
func (d *Dispatcher) stopEnded(ended []cron.CancelledRun, why string) {
	for _, end := range ended {
		d.stopRun(end, why)
	}
}

// CronRemove removes a job; its history stays. Runs that wait to start end with it, and with cancelRunning those that run as well.
func (d *Dispatcher) CronRemove(ctx context.Context, id string, cancelRunning bool, by chat.Caller) error {
	_, err := d.changeWith(ctx, cron.ChangeParams{
		ID: id, Visible: visible(by), CancelActive: cancelRunning, CancelReason: cron.ReasonRemoved, EndWaiting: cron.ReasonRemoved, By: joinBy(string(cron.ReasonRemoved), by.Principal),
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

// CronPause pauses a job. A zero until means until somebody resumes it. Fires that wait to start end; what runs goes on.
func (d *Dispatcher) CronPause(ctx context.Context, id, note string, until time.Time, by chat.Caller) (cron.Job, error) {
	p := cron.ChangeParams{ID: id, Visible: visible(by), EndWaiting: cron.ReasonPaused, By: joinBy("stop", by.Principal), Audit: by.Audit("cron.pause", id)}
	p.Change = func(old cron.Job, now time.Time) (*cron.Job, error) {
		if !until.IsZero() && !until.After(now) {
			return nil, &schedule.InvalidError{Field: "untilMs", Reason: schedule.InvalidPast, Sentence: "choose a moment to come, or none"}
		}
		at := now
		if old.Pause != nil {
			at = old.Pause.At
		}
		old.Pause = &cron.Pause{Note: note, By: by.Principal, At: at, Until: until}
		old.UpdatedAt, old.State.NextRunAt = now, until // the planned slot stays: what passes from there on is told when the job is resumed
		old.Revision = cron.RevisionOf(old)
		return &old, nil
	}
	return d.changeWith(ctx, p)
}

// CronResume ends a pause: the next fire is computed from now, and the slots that passed are one entry of the ledger. It ends a pause of the delivery,
// too, and what failures have switched off is on again. A job whose last slot passed while it was paused has nothing to go on with: it is refused.
func (d *Dispatcher) CronResume(ctx context.Context, id string, by chat.Caller) (cron.Job, error) {
	var row cron.Run
	p := cron.ChangeParams{ID: id, Visible: visible(by), Skipped: &row, Audit: by.Audit("cron.resume", id)}
	p.Change = func(old cron.Job, now time.Time) (*cron.Job, error) {
		row = cron.Run{}
		old.State.DeliveryPause = cron.DeliveryPause{}
		if old.Pause == nil && !old.AutoDisabled {
			return &old, nil
		}
		if old.Pause != nil {
			t, err := d.planner.Timetable(old)
			if err != nil {
				return nil, err
			}
			if _, more := t.Next(now); !more && old.Enabled && old.Invalid == "" {
				return nil, errNoFire()
			}
			if r, ok := cron.PausedRow(old, t, now); ok {
				row = r
			}
		}
		if old.AutoDisabled {
			if err := d.enabled(&old, now, true); err != nil {
				return nil, err
			}
		}
		old.Pause = nil
		return d.planned(old, now)
	}
	return d.changeWith(ctx, p)
}
