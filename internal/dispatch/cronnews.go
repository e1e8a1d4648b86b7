package dispatch

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"sync"
	"time"

	"laneway/internal/chat"
	"laneway/internal/cron"
)

// cronHub hands cron events to subscribers, as hub does with those of runs.
type cronHub struct {
	mu   sync.Mutex
	next int
	subs []cronSubscriber // replaced, never changed
}

type cronSubscriber struct {
	id     int
	fn     func(cron.Event)
	wanted func() bool
}

func (h *cronHub) subscribe(fn func(cron.Event), wanted func() bool) func() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.next++
	id := h.next
	h.subs = append(slices.Clone(h.subs), cronSubscriber{id, fn, wanted})
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.subs = slices.DeleteFunc(slices.Clone(h.subs), func(s cronSubscriber) bool { return s.id == id })
	}
}

func (h *cronHub) all() []cronSubscriber {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.subs
}

func (h *cronHub) publish(e cron.Event) {
	for _, s := range h.all() {
		s.fn(e)
	}
}

// wanted reports whether an event of another process would be seen by anybody here.
func (h *cronHub) wanted() bool {
	return slices.ContainsFunc(h.all(), func(s cronSubscriber) bool { return s.wanted() })
}

// SubscribeCron calls fn for every cron event of this process, and for those of others that share the store while wanted answers true, until cancel is
// called. Neither may block.
func (d *Dispatcher) SubscribeCron(fn func(cron.Event), wanted func() bool) (cancel func()) {
	return d.cronEvents.subscribe(fn, wanted)
}

// news is a cron event on its way to another process. That one reads the job and the run from the store: what it tells can be read. Only what is gone
// by then travels along.
type news struct {
	Action cron.Action `json:"a"`
	JobID  string      `json:"j"`
	RunID  string      `json:"r,omitempty"`
	Again  int64       `json:"n,omitempty"` // when a run is tried again, in Unix milliseconds
	Job    *cron.Job   `json:"g,omitempty"`
}

// tellCron tells watchers of this process, and those of the others, of a change that is committed.
func (d *Dispatcher) tellCron(e cron.Event) {
	d.cronEvents.publish(e)
	n := news{Action: e.Action, JobID: e.Job.ID}
	if e.Run != nil {
		n.JobID, n.RunID = e.Run.JobID, e.Run.ID
	}
	if e.Run != nil && !e.Run.NextAttempt.IsZero() {
		n.Again = e.Run.NextAttempt.UnixMilli()
	}
	if e.Action == cron.ActionRemoved || (e.Action == cron.ActionFinished && e.Job.DeleteAfter) {
		n.Job = &e.Job
	}
	d.broadcast(cronNews, &n, func() { n.Job = &cron.Job{ID: e.Job.ID, Owner: e.Job.Owner, Name: e.Job.Name, Agent: e.Job.Agent} })
}

func (d *Dispatcher) hearCron(ctx context.Context, text string) {
	var n news
	if err := json.Unmarshal([]byte(text), &n); err != nil || n.JobID == "" {
		d.log.DebugContext(ctx, "news that cannot be understood, of another version perhaps", "err", err)
		return
	}
	ctx, cancel := context.WithTimeoutCause(ctx, newsWait, errors.New("reading the news took too long"))
	defer cancel()
	e, err := d.eventOf(ctx, n)
	if err != nil {
		d.log.DebugContext(ctx, "news that watchers do not hear", "job_id", n.JobID, "run_id", n.RunID, "err", err)
		return
	}
	d.cronEvents.publish(e)
}

// eventOf reads what news are about.
func (d *Dispatcher) eventOf(ctx context.Context, n news) (e cron.Event, err error) {
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
		e.Job = cron.Job{ID: n.JobID, Owner: e.Run.Owner, Name: e.Run.JobName, Agent: e.Run.Agent}
		return e, nil
	}
	return e, err
}

// asOf is a run as it was when the news were sent: it may have gone on since.
func asOf(r cron.Run, n news) *cron.Run {
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
