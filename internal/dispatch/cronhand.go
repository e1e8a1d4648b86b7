package dispatch

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"laneway/internal/chat"
	"laneway/internal/cron"
)

// notRunError carries the reason for which a run by hand did not start.
type notRunError string

func (e notRunError) Error() string { return "not run: " + string(e) }

// CronRun starts a run by hand. reason says why there was none: not-due, disabled or already-running.
func (d *Dispatcher) CronRun(ctx context.Context, id string, mode cron.RunMode, by chat.Caller) (runID, reason string, err error) {
	if d.jobs == nil {
		return "", "", errNoCron()
	}
	me, err := d.alive()
	if err != nil {
		return "", "", err
	}
	p := cron.EnqueueParams{Node: me.id, JobID: id, Visible: visible(by), Audit: by.Audit("cron.run", id)}
	shift := time.Duration(0)
	p.Make = func(due cron.DueJob, now time.Time) ([]cron.Launch, error) {
		j := due.Job
		if err := mayRun(due, mode, now); err != nil {
			return nil, err
		}
		slot := now.Add(shift)
		r := cron.PlannedRun{Fire: cron.Fire{Slot: slot, At: slot}, Trigger: cron.TriggerManual}
		return []cron.Launch{d.planner.Launch(j, r, time.Time{})}, nil
	}
	for ; shift < 100*time.Millisecond; shift += time.Millisecond {
		res, err := d.jobs.EnqueueRuns(ctx, p)
		var not notRunError
		switch {
		case errors.As(err, &not):
			return "", string(not), nil
		case errors.Is(err, chat.ErrNotFound):
			return "", "", jobGone(id)
		case err != nil:
			return "", "", wireFault(err)
		case len(res.Launched) > 0:
			d.launchAll(ctx, res.Launched)
			return res.Launched[0].Run.ID, "", nil
		}
	}
	return "", "", chat.Errorf(chat.CodeRateLimited, "this job was started by hand too often within this moment; try again")
}

func mayRun(due cron.DueJob, mode cron.RunMode, now time.Time) error {
	j := due.Job
	switch {
	case mode == cron.RunIfEnabled && !j.MayFire():
		return notRunError("disabled")
	case mode == cron.RunDue && (!j.MayFire() || j.State.NextRunAt.IsZero() || j.State.NextRunAt.After(now)):
		return notRunError("not-due")
	case len(due.Active) > 0 && (j.Overlap == "" || j.Overlap == cron.OverlapSkip):
		return notRunError("already-running")
	case len(due.Active) > 1 && j.Overlap == cron.OverlapBufferOne:
		return notRunError("already-running")
	case len(due.Active) >= cron.MaxConcurrent:
		return notRunError("already-running")
	}
	return nil
}

func (d *Dispatcher) launchAll(ctx context.Context, list []cron.Launched) {
	for _, l := range list {
		house{d}.Launch(ctx, l)
	}
}

// CronCancel ends active runs: one of them, or all of a job. It takes no slot and waits for no turn.
func (d *Dispatcher) CronCancel(ctx context.Context, runID, jobID, note string, by chat.Caller) ([]string, error) {
	if d.jobs == nil {
		return nil, errNoCron()
	}
	why := joinBy("stop", by.Principal)
	p := cron.CancelParams{RunID: runID, JobID: jobID, Visible: visible(by), Reason: cron.ReasonStopped, Note: cancelNote(note), By: why, Audit: by.Audit("cron.cancel", runID+jobID)}
	ended, err := d.jobs.CancelRuns(ctx, p)
	if errors.Is(err, chat.ErrNotFound) {
		return nil, chat.Errorf(chat.CodeInvalid, "cron run not found: %s", chat.Cut(runID, 200)).With("code", "CRON_RUN_NOT_FOUND").With("runId", chat.Cut(runID, 200))
	}
	ids := make([]string, 0, len(ended))
	for _, e := range ended {
		ids = append(ids, e.RunID)
		d.stopRun(e, why)
	}
	if jobID != "" && err == nil && len(ids) == 0 {
		if _, err := d.CronGet(ctx, jobID, by); err != nil {
			return nil, err
		}
	}
	d.tellCancelled(ctx, ended)
	return ids, err
}

func cancelNote(note string) string {
	if note == "" {
		return "cancelled"
	}
	return "cancelled: " + note
}

// tellCancelled tells watchers of runs that ended while they waited; those that run tell it themselves.
func (d *Dispatcher) tellCancelled(ctx context.Context, ended []cron.CancelledRun) {
	for _, e := range ended {
		if e.Running {
			continue
		}
		run, err := d.jobs.Run(ctx, e.RunID, "")
		if err != nil {
			continue
		}
		job, err := d.jobs.Job(ctx, e.JobID, "")
		if err != nil {
			job = cron.Job{ID: e.JobID, Owner: run.Owner, Name: run.JobName, Agent: run.Agent}
		}
		d.cronEvents.publish(cron.Event{Action: cron.ActionFinished, Job: job, Run: &run})
	}
}

// CronBackfill runs the slots of a job in [from, to], one at a time, the oldest first. Slots that ran well already are left alone unless forced.
func (d *Dispatcher) CronBackfill(ctx context.Context, p cron.BackfillParams, by chat.Caller) ([]cron.BackfillFire, error) {
	job, err := d.CronGet(ctx, p.ID, by)
	if err != nil {
		return nil, err
	}
	me, err := d.alive()
	if err != nil {
		return nil, err
	}
	t, err := d.planner.Timetable(job)
	if err != nil {
		return nil, wireFault(err)
	}
	now, err := d.store.Now(ctx)
	if err != nil {
		return nil, err
	}
	if !p.From.Before(p.To) || p.To.After(now) {
		return nil, wireFault(&cron.InvalidError{Field: "toMs", Reason: cron.InvalidRange, Sentence: "fromMs must be before toMs, and toMs not in the future"})
	}
	fires, total := t.Between(p.From.Add(-1), p.To, p.MaxRuns)
	if total > int64(p.MaxRuns) {
		return nil, chat.Errorf(chat.CodeLimit, "there are %d fires in this time; at most %d are run at once, so choose a shorter time or a larger maxRuns", total, p.MaxRuns).
			With("field", "maxRuns").With("limit", p.MaxRuns)
	}
	out, err := d.backfillPlan(ctx, p, fires)
	if err != nil || p.DryRun {
		return out, err
	}
	res, err := d.jobs.EnqueueRuns(ctx, cron.EnqueueParams{
		Node: me.id, JobID: p.ID, Visible: visible(by), Force: p.Force, Audit: by.Audit("cron.backfill", p.ID),
		Make: func(due cron.DueJob, _ time.Time) ([]cron.Launch, error) {
			list := make([]cron.Launch, 0, len(fires))
			for _, f := range fires {
				list = append(list, d.planner.Launch(due.Job, cron.PlannedRun{Fire: f, Trigger: cron.TriggerBackfill}, fires[0].Slot))
			}
			return list, nil
		},
	})
	if err != nil {
		return nil, fmt.Errorf("filling in runs: %w", err)
	}
	d.launchAll(ctx, res.Launched)
	for i := range out {
		out[i].Exists = slices.Contains(res.Existing, out[i].RunID)
	}
	return out, nil
}

// backfillPlan says what a backfill would do.
func (d *Dispatcher) backfillPlan(ctx context.Context, p cron.BackfillParams, fires []cron.Fire) ([]cron.BackfillFire, error) {
	have := map[string]bool{}
	ran := map[int64]bool{}
	for offset := 0; ; offset += 200 {
		page, err := d.jobs.Runs(ctx, cron.RunFilter{JobID: p.ID, Since: p.From, Until: p.To, IncludeActive: true, Limit: 200, Offset: offset})
		if err != nil {
			return nil, err
		}
		for _, r := range page.Runs {
			have[r.ID] = true
			ran[r.ScheduledFor.UnixMilli()] = ran[r.ScheduledFor.UnixMilli()] || r.State == cron.RunOK
		}
		if len(page.Runs) < 200 {
			break
		}
	}
	out := make([]cron.BackfillFire, 0, len(fires))
	for _, f := range fires {
		id := cron.RunID(cron.TriggerBackfill, p.ID, f.Slot)
		out = append(out, cron.BackfillFire{Slot: f.Slot, RunID: id, Exists: have[id] || (ran[f.Slot.UnixMilli()] && !p.Force)})
	}
	return out, nil
}
