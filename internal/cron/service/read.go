package service

import (
	"context"
	"errors"
	"time"

	"laneway/internal/chat"
	"laneway/internal/cron"
)

// Job reads one job.
func (ed *Editor) Job(ctx context.Context, id string, by chat.Caller) (cron.Job, error) {
	j, err := ed.jobs.Job(ctx, id, visible(by))
	if errors.Is(err, chat.ErrNotFound) {
		return j, jobNotFound(id)
	}
	return j, err
}

// Jobs lists jobs.
func (ed *Editor) Jobs(ctx context.Context, f cron.JobFilter, by chat.Caller) (cron.JobPage, error) {
	f.Visible = visible(by)
	return ed.jobs.Jobs(ctx, f)
}

// PreviewParams select the next fires of a job, of the schedule and its bounds in Schedule, or of the job as an edit with these would make it. A zero From means now.
type PreviewParams struct {
	ID       string
	Schedule cron.Members
	From     time.Time
	Count    int
}

// Preview lists the next fires. An edit keeps the fires that a job has had, the anchor of its interval and its jitter, so its preview needs the job.
func (ed *Editor) Preview(ctx context.Context, p PreviewParams, by chat.Caller) (cron.Preview, error) {
	now, err := ed.store.Now(ctx)
	if err != nil {
		return cron.Preview{}, err
	}
	if p.From.IsZero() {
		p.From = now
	}
	var j cron.Job
	if p.ID != "" {
		if j, err = ed.Job(ctx, p.ID, by); err != nil {
			return cron.Preview{}, err
		}
	}
	if p.ID == "" || len(p.Schedule) > 0 {
		if j, err = ed.limits(by, now).Planned(j, p.Schedule); err != nil {
			return cron.Preview{}, wireFault(err)
		}
	}
	t, err := ed.planner.Timetable(j)
	if err != nil {
		return cron.Preview{}, wireFault(err)
	}
	return t.Preview(p.From, p.Count), nil
}
