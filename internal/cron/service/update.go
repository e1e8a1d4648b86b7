package service

import (
	"context"
	"time"

	"laneway/internal/chat"
	"laneway/internal/cron"
	"laneway/internal/cron/schedule"
	"laneway/internal/store"
)

// maxPatchTries is how often an update is tried while the job changes between the check of its target and its transaction.
const maxPatchTries = 10

// atGrace is how old the given moment of a job that fires once may be.
const atGrace = time.Minute

// Update changes a job by a patch. expected, if not empty, is the revision that the caller read.
func (ed *Editor) Update(ctx context.Context, id string, patch cron.Members, expected string, by chat.Caller) (cron.Job, error) {
	for _, name := range []string{"key", "declarationKey"} {
		if _, given := patch[name]; given {
			return cron.Job{}, chat.Errorf(chat.CodeInvalid, "at /patch: unexpected property '%s': a key never changes", name)
		}
	}
	if _, given := patch["paused"]; given {
		return cron.Job{}, chat.Errorf(chat.CodeInvalid, "at /patch: unexpected property 'paused': cron.pause and cron.resume change it")
	}
	for try := 1; ; try++ {
		checked, err := ed.mayPatch(ctx, id, patch, expected, by)
		if err != nil {
			return cron.Job{}, err
		}
		job, stale, err := ed.patch(ctx, id, patch, revisions{expected, checked}, by)
		if !stale || try == maxPatchTries {
			return job, err
		}
	}
}

// mayPatch makes the decisions that need the store before the transaction: whether the job may run in and deliver to the sessions in the patch. It returns the
// revision for which this holds, "" = any.
func (ed *Editor) mayPatch(ctx context.Context, id string, patch cron.Members, expected string, by chat.Caller) (revision string, err error) {
	if !by.Own {
		return "", nil
	}
	old, err := ed.Job(ctx, id, by)
	if err != nil {
		return "", err
	}
	if err := mayEdit(old, expected); err != nil {
		return "", err
	}
	now, err := ed.store.Now(ctx)
	if err != nil {
		return "", err
	}
	next, err := ed.limits(by, now).Apply(old, patch)
	if err != nil {
		return "", wireFault(err)
	}
	if err := ed.mayTarget(ctx, old, next, by); err != nil {
		return "", err
	}
	return old.Revision, ed.mayDeliver(ctx, old, next)
}

// revisions are the revisions to which a patch may be applied; "" = any: expected by the caller, checked by mayPatch.
type revisions struct{ expected, checked string }

// patch changes a job by a patch. stale reports that the revision of the job differs from the checked one.
func (ed *Editor) patch(ctx context.Context, id string, patch cron.Members, at revisions, by chat.Caller) (job cron.Job, stale bool, err error) {
	_, enables := patch["enabled"]
	_, delivers := patch["delivery"]
	taken, err := ed.takenSlots(ctx, id)
	if err != nil {
		return cron.Job{}, false, err
	}
	p := cron.ChangeParams{ID: id, Visible: visible(by), EndWaiting: endsWaiting(patch), By: store.StopCause(store.ReasonStop, by.Principal), Audit: by.Audit("cron.update", id)}
	p.Change = func(old cron.Job, now time.Time) (*cron.Job, error) {
		if err := mayEdit(old, at.expected); err != nil {
			return nil, err
		}
		if stale = at.checked != "" && at.checked != old.Revision; stale {
			return nil, mayEdit(old, at.checked)
		}
		next, err := ed.limits(by, now).Apply(old, patch)
		if err != nil {
			return nil, err
		}
		if next.KeyDerived {
			next.Key = schedule.Key(next.Name, next.Schedule)
		}
		if enables && next.Enabled {
			if err := ed.enable(&next, now, next.Schedule == old.Schedule); err != nil {
				return nil, err
			}
		}
		if delivers {
			next.State.DeliveryPause = cron.DeliveryPause{} // even if it names the same chat: the caller has made sure that it is reachable again
		}
		if cron.RevisionOf(next) == cron.RevisionOf(old) && next.Key == old.Key && next.State.DeliveryPause == old.State.DeliveryPause {
			return &old, nil
		}
		j, err := ed.replan(old, next, now)
		if err == nil && j.MayFire() && !j.State.Next.IsZero() && !j.State.Next.After(now) && taken[j.State.Next.UnixMilli()] {
			return nil, errNoFire()
		}
		return j, err
	}
	job, err = ed.change(ctx, p)
	return job, stale, err
}

// enable makes a job that a caller enables fire and deliver again. If its schedule is unchanged, it must have a future fire.
func (ed *Editor) enable(j *cron.Job, now time.Time, sameSchedule bool) error {
	j.Enabled, j.Pause, j.AutoDisabled, j.Invalid = true, nil, false, ""
	j.State.ConsecutiveErrors, j.State.ConsecutiveSkipped, j.State.DeliveryPause = 0, 0, cron.DeliveryPause{}
	t, err := ed.planner.Timetable(*j)
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

// takenSlots are the slots of a job with a row in the ledger, within the time in which a past moment may be given: no slot fires twice.
func (ed *Editor) takenSlots(ctx context.Context, id string) (map[int64]bool, error) {
	now, err := ed.store.Now(ctx)
	if err != nil {
		return nil, err
	}
	page, err := ed.jobs.Runs(ctx, cron.RunFilter{JobID: id, IncludeActive: true, Since: now.Add(-atGrace - time.Second), Limit: 200})
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

// Remove removes a job; its history stays. Runs that wait to start end with it, and with cancelRunning the running ones as well.
func (ed *Editor) Remove(ctx context.Context, id string, cancelRunning bool, by chat.Caller) error {
	_, err := ed.change(ctx, cron.ChangeParams{
		ID: id, Visible: visible(by), CancelActive: cancelRunning, CancelReason: cron.ReasonRemoved, EndWaiting: cron.ReasonRemoved,
		By: store.StopCause(string(cron.ReasonRemoved), by.Principal), Audit: by.Audit("cron.remove", id),
		Change: func(old cron.Job, _ time.Time) (*cron.Job, error) {
			if old.Owner == cron.SystemOwner {
				return nil, chat.Errorf(chat.CodeForbidden, "built-in jobs cannot be removed, only paused")
			}
			return nil, nil
		},
	})
	return err
}

// Pause pauses a job. With a zero until it stays paused until it is resumed. Fires that wait to start end; running ones continue.
func (ed *Editor) Pause(ctx context.Context, id, note string, until time.Time, by chat.Caller) (cron.Job, error) {
	p := cron.ChangeParams{ID: id, Visible: visible(by), EndWaiting: cron.ReasonPaused, By: store.StopCause(store.ReasonStop, by.Principal), Audit: by.Audit("cron.pause", id)}
	p.Change = func(old cron.Job, now time.Time) (*cron.Job, error) {
		if !until.IsZero() && !until.After(now) {
			return nil, &schedule.InvalidError{Field: "untilMs", Reason: schedule.InvalidPast, Sentence: "choose a moment to come, or none"}
		}
		at := now
		if old.Pause != nil {
			at = old.Pause.At
		}
		old.Pause = &cron.Pause{Note: note, By: by.Principal, At: at, Until: until}
		old.UpdatedAt, old.State.NextRunAt = now, until // the planned slot stays: slots that pass from then on are recorded when the job is resumed
		old.Revision = cron.RevisionOf(old)
		return &old, nil
	}
	return ed.change(ctx, p)
}

// Resume ends a pause: the next fire is computed from now, and the slots that passed become one row of the ledger. It also ends a pause of the delivery, and
// enables a job that failures have disabled. A job whose last slot passed while it was paused has no fire left: it is refused.
func (ed *Editor) Resume(ctx context.Context, id string, by chat.Caller) (cron.Job, error) {
	var row cron.Run
	p := cron.ChangeParams{ID: id, Visible: visible(by), Skipped: &row, Audit: by.Audit("cron.resume", id)}
	p.Change = func(old cron.Job, now time.Time) (*cron.Job, error) {
		row = cron.Run{}
		old.State.DeliveryPause = cron.DeliveryPause{}
		if old.Pause == nil && !old.AutoDisabled {
			return &old, nil
		}
		if old.Pause != nil {
			t, err := ed.planner.Timetable(old)
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
			if err := ed.enable(&old, now, true); err != nil {
				return nil, err
			}
		}
		old.Pause = nil
		return ed.planned(old, now)
	}
	return ed.change(ctx, p)
}
