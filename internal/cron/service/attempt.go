package service

import (
	"context"
	"errors"
	"math/rand/v2"
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
	// StartedAt is when the start was committed, by the store's clock; Began is the same instant by
	// the local clock.
	StartedAt, Began time.Time
	// Number counts the starts of the turn. 1 means that no process has died during it.
	Number int
}

// storeNow is the store's clock, extrapolated from the start of the turn.
func (t *Turn) storeNow() time.Time { return t.StartedAt.Add(time.Since(t.Began)) }

// attempts recognises the messages of attempts. All attempts share it.
type attempts struct {
	*shared

	delivery    *Delivery
	maintenance *maintenance
}

// Attempt is one attempt of a run of a job, for the turn that executes it. Its methods are called
// on the goroutine of the turn; End may be called on another one for a turn that does not return.
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

// Started is called when the start of the turn is committed. job is the job that the start has
// read; may be nil. It publishes the first start of the run.
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

// jobOrRun is the job of a run that begins. For a job that an earlier run removed, it is built from
// the run.
func (a *Attempt) jobOrRun(ctx context.Context) (cron.Job, error) {
	if job := a.readJob(ctx); job != nil {
		return *job, nil
	}
	run, err := a.jobs.Run(ctx, a.runID, "")
	return jobOf(run), err
}

// JobID is the id of the job.
func (a *Attempt) JobID() string { return a.jobID }

// Isolated reports whether the run gets no history, although other runs may have used its session
// before.
func (a *Attempt) Isolated() bool { return a.job == nil || a.job.Session == cron.Isolated }

// Unattended reports that the answer is not for a waiting person.
func (*Attempt) Unattended() bool { return true }

// HeldBack is why nothing is sent to an address for the job, as it was when the attempt began; ""
// when it is sent.
func (a *Attempt) HeldBack(to chat.Target) string {
	if why := a.unnamed(to); why != "" {
		return why
	}
	if a.job == nil || !a.job.State.DeliveryPause.Holds(to) {
		return ""
	}
	return "delivery is paused: " + a.job.State.DeliveryPause.Reason
}

// Execute does the work of a turn that needs no agent; done is false when its payload needs one. A
// program on the host gets req with the input of the payload as its message; emit publishes its
// progress. A built-in job uses by for summaries.
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

// MessageEnded publishes the end of the run of which a message was an attempt, if the end of the
// message has ended the run.
func (s *Service) MessageEnded(ctx context.Context, m store.Waiting) {
	if m.CronRun != nil {
		s.Events.Finished(ctx, []cron.Run{*m.CronRun})
	}
}

// Ending is how the turn of an attempt ended.
type Ending struct {
	Outcome chat.Outcome
	Reason  string // a chat.FailReason, or the reason of a stop
	Message string // for people; "" when answered
	// Text is the version for the transcript; Reply is the same without the lines that stand for
	// files. Files reports whether such lines exist.
	Text, Reply string
	Files       bool
	Usage       chat.Usage
	// Outside: the turn received text from outside, which the answer may repeat.
	Outside bool
	// Requeued: the message waits again, for another process.
	Requeued bool
}

// conclusion is how an attempt ended, with the alert that is sent after its commit.
type conclusion struct {
	job   cron.Job
	alert cron.AlertKind
	run   *cron.Run // as the store passed it to the job; nil when it must be read
}

// End adds the end of the attempt to the parameters of the end of its turn: the ledger, the next
// state of the job, and the outgoing rows that replace the answer for a person. Call publish after
// the commit with the time that the store gave the end: it publishes the end and sends alerts.
func (a *Attempt) End(ctx context.Context, t Turn, how Ending, p *store.FinishParams) (publish func(endedAt time.Time)) {
	job := a.readJob(ctx)
	out := &conclusion{}
	e := &cron.AttemptEnd{
		RunID: a.runID, Error: chat.Cut(how.Message, 2000), ErrorClass: how.Reason, Summary: how.Text, Usage: how.Usage,
		Delivery: cron.DeliveryNotRequested,
	}
	e.Attempt = cron.Attempt{Number: a.number, Error: e.Error, ErrorClass: e.ErrorClass, Node: t.Node, State: attemptState(how)}
	a.setState(t, how, e, job)
	if e.State == cron.RunOK {
		e.Error, e.ErrorClass, e.Attempt.Error, e.Attempt.ErrorClass = "", "", "", ""
	}
	if e.State == cron.RunOK && how.Suppressed() == NothingToReport {
		e.Summary = strings.TrimLeft(strings.TrimPrefix(how.Text, how.Reply), "\n") // the lines of its files
	}
	a.delivery.deliver(ctx, answer{attempt: a, turn: t, how: how, end: e}, job, p)
	e.Job = func(old cron.Job, r cron.Run, now time.Time) *cron.Job {
		next, alert := old.After(r, now)
		out.alert, out.job, out.run = alert, old, &r
		if next != nil {
			out.job = *next
		}
		return next
	}
	p.Cron = e
	return func(endedAt time.Time) {
		if r := out.run; r != nil && r.State.Final() && !r.FinishedAt.Equal(endedAt) {
			*out = conclusion{} // left from a try that was not committed: in the committed one the job was removed, and received no run
		}
		a.publishEnd(ctx, how, out)
	}
}

func attemptState(how Ending) cron.AttemptState {
	switch {
	case how.Requeued:
		return cron.AttemptInterrupted
	case how.Outcome == chat.OutcomeAnswered:
		return cron.AttemptOK
	case how.Outcome == chat.OutcomeFailed && how.Reason == string(chat.FailTimeout):
		return cron.AttemptTimeout
	case how.Outcome == chat.OutcomeFailed:
		return cron.AttemptError
	case how.Outcome == chat.OutcomeInterrupted, how.Outcome == chat.OutcomeDead:
		return cron.AttemptInterrupted
	default:
		return cron.AttemptCancelled
	}
}

// setState sets the run's state and reason, and the time of the next attempt.
func (a *Attempt) setState(t Turn, how Ending, e *cron.AttemptEnd, job *cron.Job) {
	switch {
	case how.Requeued:
		e.State = cron.RunQueued
	case how.Outcome == chat.OutcomeAnswered:
		e.State = cron.RunOK
	case a.skippedByBudget(how):
		e.State, e.Reason = cron.RunSkipped, cron.ReasonBudget
	case how.Outcome == chat.OutcomeFailed:
		e.State = cron.RunError
		if job == nil || !retryable(how.Reason) {
			return
		}
		if wait, again := job.Retry.Delay(a.number, rand.Float64); again {
			e.State, e.NextAttempt = cron.RunRetrying, t.storeNow().Add(wait)
		}
	case how.Outcome == chat.OutcomeInterrupted, how.Outcome == chat.OutcomeDead:
		e.State = cron.RunInterrupted
	default:
		e.State, e.Reason = cron.RunCancelled, cancelReason(how.Reason)
	}
}

// skippedByBudget reports whether a budget has prevented the run: no model was called.
func (a *Attempt) skippedByBudget(how Ending) bool {
	return how.Outcome == chat.OutcomeFailed && how.Reason == string(chat.FailBudget) && a.number == 1 && how.Usage.InputTokens+how.Usage.OutputTokens == 0
}

// retryable reports whether a failure may be transient. All others recur with the same input.
func retryable(reason string) bool {
	switch chat.FailReason(reason) {
	case chat.FailBadRequest, chat.FailContextLength, chat.FailRefusal, chat.FailDead, chat.FailAuth, chat.FailBudget:
		return false
	default: // the ones that do not pass
	}
	return true
}

func cancelReason(word string) cron.Reason {
	switch r := cron.Reason(word); r {
	case cron.ReasonRemoved, cron.ReasonReplaced:
		return r
	case "superseded":
		return cron.ReasonReplaced
	default: // the ones that a stop carries
	}
	return cron.ReasonStopped
}

// publishEnd publishes an attempt whose end is committed, and sends the alert about its job.
func (a *Attempt) publishEnd(ctx context.Context, how Ending, out *conclusion) {
	if how.Requeued {
		return
	}
	run, err := a.endedRun(ctx, out)
	if err != nil {
		a.log.WarnContext(ctx, "a run ended and cannot be read again; no event is sent", "run_id", a.runID, "err", err)
		return
	}
	job := out.job
	if job.ID == "" && a.job != nil {
		job = *a.job
	}
	if job.ID == "" { // removed before the attempt began
		job = jobOf(run)
	}
	if run.State == cron.RunRetrying {
		a.events.publish(cron.Event{Action: cron.ActionScheduled, Job: job, Run: &run})
		return
	}
	a.cfg.Observer.Ended(run.Trigger, run.State)
	a.events.publish(cron.Event{Action: cron.ActionFinished, Job: job, Run: &run})
	if out.alert != cron.AlertNone {
		a.delivery.alert(ctx, job, run, out.alert)
		a.events.publish(cron.Event{Action: cron.ActionUpdated, Job: job})
	}
}

// endedRun is the ended run: as the store passed it to the job, or, when the job was removed, as
// stored. A removal with its runs has cancelled the context of the turn by then.
func (a *Attempt) endedRun(ctx context.Context, out *conclusion) (cron.Run, error) {
	if out.run != nil {
		return *out.run, nil
	}
	ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), readTime, errors.New("reading an ended run took too long"))
	defer cancel()
	return a.jobs.Run(ctx, a.runID, "")
}
