package dispatch

import (
	"context"
	"errors"
	"time"

	"laneway/internal/chat"
	"laneway/internal/cron"
	"laneway/internal/cron/schedule"
)

// CronGet reads one job.
func (d *Dispatcher) CronGet(ctx context.Context, id string, by chat.Caller) (cron.Job, error) {
	if d.jobs == nil {
		return cron.Job{}, errNoCron()
	}
	j, err := d.jobs.Job(ctx, id, visible(by))
	if errors.Is(err, chat.ErrNotFound) {
		return j, jobGone(id)
	}
	return j, err
}

// CronList lists jobs.
func (d *Dispatcher) CronList(ctx context.Context, f cron.JobFilter, by chat.Caller) (cron.JobPage, error) {
	if d.jobs == nil {
		return cron.JobPage{Revision: "r0"}, nil
	}
	f.Visible = visible(by)
	return d.jobs.Jobs(ctx, f)
}

// CronRuns lists entries of the ledger.
func (d *Dispatcher) CronRuns(ctx context.Context, f cron.RunFilter, by chat.Caller) (cron.RunPage, error) {
	if d.jobs == nil {
		return cron.RunPage{}, nil
	}
	f.Visible = visible(by)
	return d.jobs.Runs(ctx, f)
}

// CronCounts counts for status pages; what cannot be read is zero.
func (d *Dispatcher) CronCounts(ctx context.Context, by chat.Caller) (s cron.Summary, enabled bool) {
	enabled = d.jobs != nil && d.cfg.Cron.Enabled
	if d.jobs == nil {
		return cron.Summary{OldestDue: -1}, enabled
	}
	ctx, cancel := context.WithTimeout(ctx, statusWait)
	defer cancel()
	s, err := d.jobs.Summary(ctx, visible(by))
	if err != nil {
		d.log.WarnContext(ctx, "the jobs cannot be counted", "err", err)
		return cron.Summary{OldestDue: -1}, enabled
	}
	return s, enabled
}

// CronTicked is when the loop last asked the store; running says whether it turns here.
func (d *Dispatcher) CronTicked() (last time.Time, running bool) {
	if d.cron == nil {
		return time.Time{}, false
	}
	return d.cron.LastTick(), d.cfg.Cron.Fires && d.cfg.Cron.Enabled
}

// CronPreview lists the next fires: of a job, or of a schedule in m when id is empty.
func (d *Dispatcher) CronPreview(ctx context.Context, id string, m cron.Members, from time.Time, count int, by chat.Caller) (cron.Preview, error) { //nolint:revive // six arguments, as the call has them
	now := time.Now()
	if d.jobs != nil {
		var err error
		if now, err = d.store.Now(ctx); err != nil {
			return cron.Preview{}, err
		}
	}
	if from.IsZero() {
		from = now
	}
	if id != "" {
		j, err := d.CronGet(ctx, id, by)
		if err != nil {
			return cron.Preview{}, err
		}
		t, err := d.planner.Timetable(j)
		if err != nil {
			return cron.Preview{}, wireFault(err)
		}
		return t.Preview(from, count), nil
	}
	spec, err := d.border(by, now).Spec(m)
	if err != nil {
		return cron.Preview{}, wireFault(err)
	}
	s, err := schedule.Compile(spec)
	if err != nil {
		return cron.Preview{}, wireFault(err)
	}
	return cron.Timetable{Schedule: s}.Preview(from, count), nil
}
