package service

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"
	"time"

	"laneway/internal/agent"
	"laneway/internal/chat"
	"laneway/internal/cron"
	"laneway/internal/store"
)

// Turn is the data that an attempt needs about its turn.
type Turn struct {
	Session     chat.SessionKey
	RunID, Lane string
	Node        string // the node that executes it
	// StartedAt is when the start was committed, by the store's clock; Began is the same instant by the local clock.
	StartedAt, Began time.Time
	// Number counts the starts of the turn. 1 means that no process has died during it.
	Number int
}

// storeNow is the store's clock, extrapolated from the start of the turn.
func (t *Turn) storeNow() time.Time { return t.StartedAt.Add(time.Since(t.Began)) }

// attempts recognises the messages of attempts. All attempts share it.
type attempts struct {
	*parts

	delivery    *Delivery
	maintenance *maintenance
}

// Attempt is one attempt of a run of a job, for the turn that executes it. Its methods are called on the goroutine of the turn; End may be called on another
// one for a turn that does not return.
type Attempt struct {
	*attempts

	runID   string
	number  int // from 1
	trigger cron.Trigger
	jobID   string

	once sync.Once
	job  *cron.Job // as it was when the attempt began; nil when removed meanwhile or not readable
}

// Attempt recognises the message of a run by its channel and id; nil for other messages.
func (s *Service) Attempt(channel, messageID string) *Attempt {
	if channel != cron.Channel {
		return nil
	}
	id, n, retried := strings.Cut(messageID, "/")
	a := &Attempt{attempts: s.attempts, runID: id, number: 1}
	if retried {
		var err error
		if a.number, err = strconv.Atoi(n); err != nil || a.number < 2 {
			return nil
		}
	}
	var err error
	if a.trigger, a.jobID, _, err = cron.ParseRunID(id); err != nil {
		return nil
	}
	return a
}

// readJob reads the job as it is when the attempt begins; later edits do not affect the attempt.
func (a *Attempt) readJob(ctx context.Context) *cron.Job {
	a.once.Do(func() {
		err := a.node.WhileAlive(ctx, func(ctx context.Context) error {
			job, err := a.jobs.Job(ctx, a.jobID, "")
			if err == nil {
				a.job = &job
			}
			return err
		})
		if err != nil && !errors.Is(err, chat.ErrNotFound) {
			a.log.WarnContext(ctx, "the job of a run cannot be read; the message of the run decides alone", "job_id", a.jobID, "run_id", a.runID, "err", err)
		}
	})
	return a.job
}

// Start is the change of the ledger with the start of the turn.
func (a *Attempt) Start(node string) *cron.AttemptStart {
	return &cron.AttemptStart{RunID: a.runID, Attempt: a.number, Node: node}
}

// Started is called when the start of the turn is committed. job is the job that the start has read; may be nil. It publishes the first start of the run.
func (a *Attempt) Started(ctx context.Context, t Turn, job *cron.Job) {
	if job != nil {
		a.once.Do(func() { a.job = job })
	}
	if a.number > 1 || t.Number > 1 {
		return
	}
	started, err := a.jobOrRun(ctx)
	if err != nil {
		a.log.WarnContext(ctx, "a run began and cannot be read; no event is sent", "run_id", a.runID, "err", err)
		return
	}
	_, _, slot, err := cron.ParseRunID(a.runID)
	if err != nil {
		return
	}
	a.events.publish(cron.Event{Action: cron.ActionStarted, Job: started, Run: &cron.Run{
		ID: a.runID, JobID: started.ID, JobName: started.Name, Owner: started.Owner, Agent: started.Agent, Lane: t.Lane, Trigger: a.trigger,
		ScheduledFor: slot, State: cron.RunRunning, StartedAt: t.StartedAt, Attempt: 1, SlotCount: 1, SessionKey: t.Session.String(),
	}})
}

// jobOrRun is the job of a run that begins. For a job that an earlier run removed, it is built from the run.
func (a *Attempt) jobOrRun(ctx context.Context) (cron.Job, error) {
	if job := a.readJob(ctx); job != nil {
		return *job, nil
	}
	run, err := a.jobs.Run(ctx, a.runID, "")
	return jobOf(run), err
}

// JobID is the id of the job.
func (a *Attempt) JobID() string { return a.jobID }

// Isolated reports whether the run gets no history, although other runs may have used its session before.
func (a *Attempt) Isolated() bool { return a.job == nil || a.job.Session == cron.Isolated }

// Unattended reports that the answer is not for a waiting person.
func (*Attempt) Unattended() bool { return true }

// HeldBack is why nothing is sent to an address for the job, as it was when the attempt began; "" when it is sent.
func (a *Attempt) HeldBack(to chat.Target) string {
	if why := a.unnamed(to); why != "" {
		return why
	}
	if a.job == nil || !a.job.State.DeliveryPause.Holds(to) {
		return ""
	}
	return "delivery is paused: " + a.job.State.DeliveryPause.Reason
}

// Execute does the work of a turn that needs no agent; done is false when its payload needs one. A program on the host gets req with the input of the payload
// as its message; emit publishes its progress. A built-in job uses by for summaries.
func (a *Attempt) Execute(ctx context.Context, req agent.Request, by agent.Summariser, emit func(agent.Event)) (res agent.Result, done bool, err error) {
	job := a.readJob(ctx)
	switch {
	case job == nil:
		return agent.Result{}, false, nil
	case job.Owner == cron.SystemOwner:
		text, err := a.maintenance.run(ctx, job.Payload.Text, by)
		return agent.Result{Text: text}, true, err
	case job.Reminds():
		return agent.Result{Text: "Reminder: " + job.Payload.Text}, true, nil
	case job.Payload.Kind == cron.PayloadSystemEvent && job.WakeMode == cron.WakeLater:
		return agent.Result{}, true, nil // its text is in the transcript, which the next turn reads
	case job.Payload.Kind == cron.PayloadCommand, job.Payload.Kind == cron.PayloadScript:
		res, err = a.runOnHost(ctx, *job, req, emit)
		return res, true, err
	}
	return agent.Result{}, false, nil
}

// runOnHost runs a payload of kind command or script, if the operator allows it.
func (a *Attempt) runOnHost(ctx context.Context, job cron.Job, req agent.Request, emit func(agent.Event)) (agent.Result, error) {
	refused := &agent.Error{Reason: chat.FailBadRequest, Message: "the payload kind " + string(job.Payload.Kind) + " is disabled on this gateway"}
	if a.cfg.HostPayload == nil {
		return agent.Result{}, refused
	}
	runner, input, err := a.cfg.HostPayload(job)
	if err != nil {
		refused.Message = chat.SentenceOf(err)
		return agent.Result{}, refused
	}
	lead := req.Messages[len(req.Messages)-1]
	req.Messages = []chat.Content{{Text: input, Sender: lead.Sender}}
	return runner.Run(ctx, req, emit)
}

// MessageEnded publishes the end of the run of which a message was an attempt, if the end of the message has ended the run.
func (s *Service) MessageEnded(ctx context.Context, m store.Waiting) {
	if m.CronRun != nil {
		s.Events.Finished(ctx, []cron.Run{*m.CronRun})
	}
}
