package dispatch

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"laneway/internal/chat"
	"laneway/internal/cron"
)

const (
	// topicCron is the name of the cluster events about jobs.
	topicCron = "cron"
	// cronReadTime bounds reading the job and the run of one.
	cronReadTime = 5 * time.Second
)

// SubscribeCron calls fn for every cron event of this process, and for those of others that share the store while wanted answers true, until cancel is
// called. Neither may block.
func (d *Dispatcher) SubscribeCron(fn func(cron.Event), wanted func() bool) (cancel func()) {
	return d.cronEvents.Subscribe(fn, func(cron.Event) bool { return wanted() })
}

// clusterEvent is a cron event on its way to another replica, which reads the job and the run from the store. Only what is gone by then travels
// along.
type clusterEvent struct {
	Action cron.Action `json:"a"`
	JobID  string      `json:"j"`
	RunID  string      `json:"r,omitempty"`
	Again  int64       `json:"n,omitempty"` // when a run is tried again, in Unix milliseconds
	Job    *cron.Job   `json:"g,omitempty"`
}

// tellCron tells watchers of this process, and those of the others, of a change that is committed.
func (d *Dispatcher) tellCron(e cron.Event) {
	d.cronEvents.Publish(e)
	n := clusterEvent{Action: e.Action, JobID: e.Job.ID}
	if e.Run != nil {
		n.JobID, n.RunID = e.Run.JobID, e.Run.ID
	}
	if e.Run != nil && !e.Run.NextAttempt.IsZero() {
		n.Again = e.Run.NextAttempt.UnixMilli()
	}
	if e.Action == cron.ActionRemoved || (e.Action == cron.ActionFinished && e.Job.DeleteAfter) {
		n.Job = &e.Job
	}
	d.events.Send(topicCron, &n, func() { n.Job = &cron.Job{ID: e.Job.ID, Owner: e.Job.Owner, Name: e.Job.Name, Agent: e.Job.Agent} })
}

// receiveCron publishes a cron event of another replica here.
func (d *Dispatcher) receiveCron(ctx context.Context, text string) {
	if d.jobs == nil || !d.cronEvents.Wanted(cron.Event{}) {
		return
	}
	var n clusterEvent
	if err := json.Unmarshal([]byte(text), &n); err != nil || n.JobID == "" {
		d.log.DebugContext(ctx, "a cluster event cannot be parsed; another version may have sent it", "err", err)
		return
	}
	ctx, cancel := context.WithTimeoutCause(ctx, cronReadTime, errors.New("reading the job of a cluster event took too long"))
	defer cancel()
	e, err := d.eventOf(ctx, n)
	if err != nil {
		d.log.DebugContext(ctx, "the job of a cluster event cannot be read", "job_id", n.JobID, "run_id", n.RunID, "err", err)
		return
	}
	d.cronEvents.Publish(e)
}

// eventOf reads what a cluster event is about.
func (d *Dispatcher) eventOf(ctx context.Context, n clusterEvent) (e cron.Event, err error) {
	e.Action = n.Action
	if n.RunID != "" {
		run, err := d.jobs.Run(ctx, n.RunID, "")
		if err != nil {
			return e, err
		}
		e.Run = asOf(run, n)
	}
	if e.Action == cron.ActionRemoved && n.Job != nil {
		e.Job = *n.Job
		return e, nil
	}
	e.Job, err = d.jobs.Job(ctx, n.JobID, "")
	switch {
	case !errors.Is(err, chat.ErrNotFound):
		return e, err
	case n.Job != nil:
		e.Job = *n.Job
		return e, nil
	case e.Run != nil:
		e.Job = jobOf(*e.Run)
		return e, nil
	}
	return e, err
}

// asOf is a run as it was when the cluster event was sent: it may have gone on since.
func asOf(r cron.Run, n clusterEvent) *cron.Run {
	if n.Action == cron.ActionFinished {
		return &r
	}
	r.FinishedAt, r.NextAttempt, r.Duration = time.Time{}, time.Time{}, 0
	switch n.Action { //nolint:exhaustive // the two that are about a run that is not over
	case cron.ActionStarted:
		r.State, r.Attempt, r.Error, r.ErrorClass, r.Summary = cron.RunRunning, 1, "", "", ""
	case cron.ActionScheduled:
		r.State, r.NextAttempt = cron.RunRetrying, time.UnixMilli(n.Again)
	}
	return &r
}
