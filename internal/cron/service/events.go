package service

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"laneway/internal/chat"
	"laneway/internal/cron"
	"laneway/internal/events"
)

const (
	// Topic is the name of the cluster events about jobs.
	Topic = "cron"
	// readTime bounds reading the job and the run of an event.
	readTime = 5 * time.Second
)

// Events publishes events about jobs and runs, after their commit.
type Events struct {
	*shared

	hub events.Hub[cron.Event]
}

// Subscribe calls fn for every event of this process, and for those of other replicas while wanted
// returns true, until cancel is called. Neither function may block.
func (e *Events) Subscribe(fn func(cron.Event), wanted func() bool) (cancel func()) {
	return e.hub.Subscribe(fn, func(cron.Event) bool { return wanted() })
}

// clusterEvent is an event for another replica, which reads the job and the run from the store. It
// carries only data that may be deleted by then.
type clusterEvent struct {
	Action cron.Action `json:"a"`
	JobID  string      `json:"j"`
	RunID  string      `json:"r,omitempty"`
	Again  int64       `json:"n,omitempty"` // the time of the next attempt, in Unix milliseconds
	Failed int         `json:"k,omitempty"` // the failed attempt before it
	Job    *cron.Job   `json:"g,omitempty"`
}

// publish publishes an event here and sends it to the other replicas. It keeps no pointer into ev,
// because the job would then be copied to the heap for each event.
func (e *Events) publish(ev cron.Event) {
	e.hub.Publish(ev)
	n := &clusterEvent{Action: ev.Action, JobID: ev.Job.ID}
	if ev.Run != nil {
		n.JobID, n.RunID = ev.Run.JobID, ev.Run.ID
	}
	if ev.Run != nil && !ev.Run.NextAttempt.IsZero() {
		n.Again, n.Failed = ev.Run.NextAttempt.UnixMilli(), ev.Run.Attempt
	}
	if ev.Action == cron.ActionRemoved || (ev.Action == cron.ActionFinished && ev.Job.DeleteAfter) {
		job := ev.Job
		n.Job = &job
	}
	e.send(Topic, n, n.shorten)
}

// shorten reduces the job to the members that identify its owner.
func (n *clusterEvent) shorten() {
	if j := n.Job; j != nil {
		n.Job = &cron.Job{ID: j.ID, Owner: j.Owner, Name: j.Name, Agent: j.Agent}
	}
}

// Receive publishes a cluster event of another replica here.
func (e *Events) Receive(ctx context.Context, text string) {
	if !e.hub.Wanted(cron.Event{}) {
		return
	}
	var n clusterEvent
	if err := json.Unmarshal([]byte(text), &n); err != nil || n.JobID == "" {
		e.log.DebugContext(ctx, "a cluster event cannot be parsed; another version may have sent it", "err", err)
		return
	}
	ctx, cancel := context.WithTimeoutCause(ctx, readTime, errors.New("reading the job of a cluster event took too long"))
	defer cancel()
	ev, err := e.read(ctx, n)
	if err != nil {
		e.log.DebugContext(ctx, "the job of a cluster event cannot be read", "job_id", n.JobID, "run_id", n.RunID, "err", err)
		return
	}
	e.hub.Publish(ev)
}

// read reads the job and the run of a cluster event.
func (e *Events) read(ctx context.Context, n clusterEvent) (ev cron.Event, err error) {
	ev.Action = n.Action
	if n.RunID != "" {
		run, err := e.jobs.Run(ctx, n.RunID, "")
		if err != nil {
			return ev, err
		}
		ev.Run = asOf(run, n)
	}
	if ev.Action == cron.ActionRemoved && n.Job != nil {
		ev.Job = *n.Job
		return ev, nil
	}
	ev.Job, err = e.jobs.Job(ctx, n.JobID, "")
	switch {
	case !errors.Is(err, chat.ErrNotFound):
		return ev, err
	case n.Job != nil:
		ev.Job = *n.Job
		return ev, nil
	case ev.Run != nil:
		ev.Job = jobOf(*ev.Run)
		return ev, nil
	}
	return ev, err
}

// asOf is a run as it was when the cluster event was sent: it may have changed since.
func asOf(r cron.Run, n clusterEvent) *cron.Run {
	if n.Action == cron.ActionFinished {
		return &r
	}
	r.FinishedAt, r.NextAttempt, r.Duration = time.Time{}, time.Time{}, 0
	switch n.Action {
	case cron.ActionStarted:
		r.State, r.Attempt, r.Error, r.ErrorClass, r.Summary = cron.RunRunning, 1, "", "", ""
	case cron.ActionScheduled:
		r.State, r.NextAttempt, r.Attempt = cron.RunRetrying, time.UnixMilli(n.Again), n.Failed
		// The next attempt may have begun: its start clears the error of the run.
		r.Attempts = slices.DeleteFunc(r.Attempts, func(a cron.Attempt) bool { return a.Number > n.Failed })
		if a := len(r.Attempts); a > 0 {
			r.Error, r.ErrorClass = r.Attempts[a-1].Error, r.Attempts[a-1].ErrorClass
		}
	default: // the two that are about a run that is not over
	}
	return &r
}

// Finished publishes the ends of runs. Jobs that are not given are read; the events do not depend
// on the caller's context.
func (e *Events) Finished(ctx context.Context, runs []cron.Run, jobs ...cron.Job) {
	if len(runs) == 0 {
		return
	}
	ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), readTime, errors.New("reading the job of a run took too long"))
	defer cancel()
	byID := make(map[string]cron.Job, len(jobs))
	for _, j := range jobs {
		byID[j.ID] = j
	}
	for _, run := range runs {
		job, known := byID[run.JobID]
		if !known {
			var err error
			if job, err = e.jobs.Job(ctx, run.JobID, ""); err != nil { // removed, or the store is unavailable: the run has what the event needs
				job = jobOf(run)
			}
			byID[run.JobID] = job
		}
		e.publish(cron.Event{Action: cron.ActionFinished, Job: job, Run: &run})
	}
}

// jobOf is the job as far as a run contains it.
func jobOf(r cron.Run) cron.Job {
	return cron.Job{ID: r.JobID, Owner: r.Owner, Name: r.JobName, Agent: r.Agent}
}

// publishingStore is the store of jobs. After the commit of an operation it publishes the runs that
// the operation has ended, for every caller: the store returns their rows, so the callers need not
// handle them.
type publishingStore struct {
	cron.JobStore

	events   *Events
	accounts *accounts
	taken    func(ctx context.Context, ended []cron.Run) // sends the alerts about runs whose sessions are taken
}

// PutJob implements [cron.JobStore].
func (s publishingStore) PutJob(ctx context.Context, p cron.PutParams) (cron.PutResult, error) {
	res, err := s.JobStore.PutJob(ctx, p)
	if err == nil {
		s.events.Finished(ctx, res.Finished, res.Job)
	}
	return res, err
}

// ChangeJob implements [cron.JobStore].
func (s publishingStore) ChangeJob(ctx context.Context, p cron.ChangeParams) (cron.Changed, error) {
	res, err := s.JobStore.ChangeJob(ctx, p)
	if err != nil {
		return res, err
	}
	job := res.Old
	if res.Job != nil {
		job = *res.Job
	}
	s.events.Finished(ctx, res.Finished, job)
	return res, nil
}

// Claim implements [cron.JobStore]. A pause that the claim has ended is a change of the job. The
// launched runs get addresses, so the accounts are read first.
func (s publishingStore) Claim(ctx context.Context, p cron.ClaimParams) (cron.Claimed, error) {
	if err := s.accounts.read(ctx); err != nil {
		return cron.Claimed{}, err
	}
	res, err := s.JobStore.Claim(ctx, p)
	if err != nil {
		return res, err
	}
	s.events.Finished(ctx, res.Finished, res.Jobs...)
	s.taken(ctx, res.Finished)
	for _, j := range res.Resumed {
		s.events.publish(cron.Event{Action: cron.ActionUpdated, Job: j})
	}
	return res, nil
}

// EnqueueRuns implements [cron.JobStore].
func (s publishingStore) EnqueueRuns(ctx context.Context, p cron.EnqueueParams) (cron.Enqueued, error) {
	if err := s.accounts.read(ctx); err != nil {
		return cron.Enqueued{}, err
	}
	res, err := s.JobStore.EnqueueRuns(ctx, p)
	if err == nil {
		s.events.Finished(ctx, res.Finished, res.Job)
		s.taken(ctx, res.Finished)
	}
	return res, err
}

// CancelRuns implements [cron.JobStore].
func (s publishingStore) CancelRuns(ctx context.Context, p cron.CancelParams) (cron.Cancelled, error) {
	res, err := s.JobStore.CancelRuns(ctx, p)
	if err == nil {
		s.events.Finished(ctx, res.Finished)
	}
	return res, err
}
