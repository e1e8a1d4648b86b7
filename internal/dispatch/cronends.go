package dispatch

import (
	"context"
	"errors"

	"laneway/internal/cron"
	"laneway/internal/store"
)

// announcing is the store of jobs, with watchers who learn what each operation has ended once it is committed, whichever caller asked for it. The rows that are
// over come from the store; no caller of an operation has to think of them.
type announcing struct {
	cron.JobStore

	d *Dispatcher
}

// PutJob implements cron.JobStore.
func (a announcing) PutJob(ctx context.Context, p cron.PutParams) (cron.PutResult, error) {
	res, err := a.JobStore.PutJob(ctx, p)
	if err == nil {
		a.finished(ctx, res.Finished, res.Job)
	}
	return res, err
}

// ChangeJob implements cron.JobStore.
func (a announcing) ChangeJob(ctx context.Context, p cron.ChangeParams) (cron.Changed, error) {
	res, err := a.JobStore.ChangeJob(ctx, p)
	if err != nil {
		return res, err
	}
	job := res.Old
	if res.Job != nil {
		job = *res.Job
	}
	a.finished(ctx, res.Finished, job)
	return res, nil
}

// Claim implements cron.JobStore. A pause that the claim has ended is a change of the job.
func (a announcing) Claim(ctx context.Context, p cron.ClaimParams) (cron.Claimed, error) {
	res, err := a.JobStore.Claim(ctx, p)
	if err != nil {
		return res, err
	}
	a.finished(ctx, res.Finished, res.Jobs...)
	for _, j := range res.Resumed {
		a.d.tellCron(cron.Event{Action: cron.ActionUpdated, Job: j})
	}
	return res, nil
}

// EnqueueRuns implements cron.JobStore.
func (a announcing) EnqueueRuns(ctx context.Context, p cron.EnqueueParams) (cron.Enqueued, error) {
	res, err := a.JobStore.EnqueueRuns(ctx, p)
	if err == nil {
		a.finished(ctx, res.Finished, res.Job)
	}
	return res, err
}

// CancelRuns implements cron.JobStore.
func (a announcing) CancelRuns(ctx context.Context, p cron.CancelParams) (cron.Cancelled, error) {
	res, err := a.JobStore.CancelRuns(ctx, p)
	if err == nil {
		a.finished(ctx, res.Finished)
	}
	return res, err
}

// finished publishes the ends of runs. Jobs that are not given are read.
func (a announcing) finished(ctx context.Context, runs []cron.Run, jobs ...cron.Job) {
	a.d.cronFinished(ctx, runs, jobs...)
}

// cronMessageEnded publishes the end of the run whose attempt a message was, if its end has ended one.
func (d *Dispatcher) cronMessageEnded(ctx context.Context, m store.Waiting) {
	if m.CronRun != nil {
		d.cronFinished(ctx, []cron.Run{*m.CronRun})
	}
}

// cronFinished publishes the ends of runs. Jobs that are not given are read; the events do not depend on the caller's context.
func (d *Dispatcher) cronFinished(ctx context.Context, runs []cron.Run, jobs ...cron.Job) {
	if len(runs) == 0 || d.jobs == nil {
		return
	}
	ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), cronReadTime, errors.New("reading the job of a run took too long"))
	defer cancel()
	byID := make(map[string]cron.Job, len(jobs))
	for _, j := range jobs {
		byID[j.ID] = j
	}
	for _, run := range runs {
		job, known := byID[run.JobID]
		if !known {
			var err error
			if job, err = d.jobs.Job(ctx, run.JobID, ""); err != nil { // removed, or out of reach: the run says enough
				job = jobOf(run)
			}
			byID[run.JobID] = job
		}
		d.tellCron(cron.Event{Action: cron.ActionFinished, Job: job, Run: &run})
	}
}

// jobOf is what a run says of its job.
func jobOf(r cron.Run) cron.Job {
	return cron.Job{ID: r.JobID, Owner: r.Owner, Name: r.JobName, Agent: r.Agent}
}
