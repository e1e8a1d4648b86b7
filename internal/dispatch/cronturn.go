package dispatch

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

// cronTurn is what a turn knows when its message is an attempt of a run.
type cronTurn struct {
	runID   string
	attempt int
	trigger cron.Trigger
	jobID   string

	once sync.Once
	job  *cron.Job // nil: removed meanwhile, or not readable
}

// cronTurnOf recognises the message of a run by its channel and id.
func (d *Dispatcher) cronTurnOf(lead store.Waiting) *cronTurn {
	if d.jobs == nil || lead.Channel != cron.Channel {
		return nil
	}
	id, n, retried := strings.Cut(lead.MessageID, "/")
	c := &cronTurn{runID: id, attempt: 1}
	if retried {
		var err error
		if c.attempt, err = strconv.Atoi(n); err != nil || c.attempt < 2 {
			return nil
		}
	}
	var err error
	if c.trigger, c.jobID, _, err = cron.ParseRunID(id); err != nil {
		return nil
	}
	return c
}

// read gets the job as it is when the attempt begins; later edits do not reach the attempt.
func (d *Dispatcher) readJob(ctx context.Context, c *cronTurn) *cron.Job {
	c.once.Do(func() {
		err := d.node.WhileAlive(ctx, func(ctx context.Context) error {
			job, err := d.jobs.Job(ctx, c.jobID, "")
			if err == nil {
				c.job = &job
			}
			return err
		})
		if err != nil && !errors.Is(err, chat.ErrNotFound) {
			d.log.WarnContext(ctx, "the job of a run cannot be read; it runs as its message says", "job_id", c.jobID, "run_id", c.runID, "err", err)
		}
	})
	return c.job
}

// know takes the job that the start of the attempt has read already.
func (c *cronTurn) know(job *cron.Job) {
	if c != nil && job != nil {
		c.once.Do(func() { c.job = job })
	}
}

func (c *cronTurn) start(node string) *cron.AttemptStart {
	if c == nil {
		return nil
	}
	return &cron.AttemptStart{RunID: c.runID, Attempt: c.attempt, Node: node}
}

// isolated tells a run that gets no history, although others may have used its session before.
func (c *cronTurn) isolated() bool {
	return c != nil && (c.job == nil || c.job.Session == cron.Isolated)
}

// executeCron does what a job asks for instead of an agent turn; done is false when it asks for one.
func (d *Dispatcher) executeCron(ctx context.Context, t *turn) (res agent.Result, done bool, err error) {
	if t.cron == nil {
		return agent.Result{}, false, nil
	}
	job := d.readJob(ctx, t.cron)
	switch {
	case job == nil:
		return agent.Result{}, false, nil
	case job.Owner == cron.SystemOwner:
		text, err := d.maintain(ctx, job.Payload.Text)
		return agent.Result{Text: text}, true, err
	case job.Reminds():
		return agent.Result{Text: "Reminder: " + job.Payload.Text}, true, nil
	case job.Payload.Kind == cron.PayloadSystemEvent && job.WakeMode == cron.WakeLater:
		return agent.Result{}, true, nil // its text is in the transcript, where the next turn finds it
	case job.Payload.Kind == cron.PayloadCommand, job.Payload.Kind == cron.PayloadScript:
		res, err = d.runOnHost(ctx, t, *job)
		return res, true, err
	}
	return agent.Result{}, false, nil
}

// runOnHost runs a payload of kind command or script, where the operator allows it.
func (d *Dispatcher) runOnHost(ctx context.Context, t *turn, job cron.Job) (agent.Result, error) {
	refused := &agent.Error{Reason: chat.FailBadRequest, Message: "the payload kind " + string(job.Payload.Kind) + " is disabled on this gateway"}
	if d.cfg.HostPayload == nil {
		return agent.Result{}, refused
	}
	runner, input, err := d.cfg.HostPayload(job)
	if err != nil {
		refused.Message = chat.SentenceOf(err)
		return agent.Result{}, refused
	}
	deadline, _ := ctx.Deadline()
	lead := t.rows[len(t.rows)-1]
	return runner.Run(ctx, agent.Request{
		Session: lead.Session, RunID: t.run.RunID, Attempt: t.started.Attempt, IdempotencyKey: lead.Session.String() + "/" + t.run.RunID,
		Deadline: deadline, Messages: []chat.Content{{Text: input, Sender: lead.Content.Sender}}, OutputDir: d.turns.outputOf(t),
	}, func(e agent.Event) { d.turns.emit(t, lead, e) })
}

// cronEnd is how an attempt of a run ended, with what people are to hear once it is committed.
type cronEnd struct {
	params *cron.AttemptEnd
	job    cron.Job
	told   cron.Told
	run    *cron.Run // as it is now; nil = to be read
}

// endAttempt decides the state of the run from the end of its attempt, and adapts what is sent.
func (d *Dispatcher) endAttempt(ctx context.Context, t *turn, end ending, p *store.FinishParams) *cronEnd {
	c := t.cron
	job := d.readJob(ctx, c)
	out := &cronEnd{}
	e := &cron.AttemptEnd{
		RunID: c.runID, Error: chat.Cut(end.message, 2000), ErrorClass: end.reason, Summary: end.text, Usage: end.usage,
		Delivery: cron.DeliveryNotRequested,
	}
	e.Attempt = cron.Attempt{Number: c.attempt, Error: e.Error, ErrorClass: e.ErrorClass, Node: t.claim.Node}
	d.stateOf(t, end, e, job)
	e.Attempt.State = attemptState(end)
	if e.State == cron.RunOK {
		e.Error, e.ErrorClass, e.Attempt.Error, e.Attempt.ErrorClass = "", "", "", ""
	}
	d.deliver(t, end, e, job, p)
	e.Job = func(old cron.Job, r cron.Run, now time.Time) *cron.Job {
		next, told := old.After(r, now)
		out.told, out.job, out.run = told, old, &r
		if next != nil {
			out.job = *next
		}
		return next
	}
	out.params, p.Cron = e, e
	return out
}

func attemptState(end ending) cron.AttemptState {
	switch {
	case end.requeue:
		return cron.AttemptInterrupted
	case end.outcome == chat.OutcomeAnswered:
		return cron.AttemptOK
	case end.outcome == chat.OutcomeFailed && end.reason == string(chat.FailTimeout):
		return cron.AttemptTimeout
	case end.outcome == chat.OutcomeFailed:
		return cron.AttemptError
	case end.outcome == chat.OutcomeInterrupted, end.outcome == chat.OutcomeDead:
		return cron.AttemptInterrupted
	default:
		return cron.AttemptCancelled
	}
}

// stateOf sets the run's state and reason, and the time of the next attempt.
func (d *Dispatcher) stateOf(t *turn, end ending, e *cron.AttemptEnd, job *cron.Job) {
	switch {
	case end.requeue:
		e.State = cron.RunQueued
	case end.outcome == chat.OutcomeAnswered:
		e.State = cron.RunOK
	case end.outcome == chat.OutcomeFailed:
		e.State = cron.RunError
		if job == nil || !retryable(end.reason) {
			return
		}
		if wait, again := job.Retry.Delay(t.cron.attempt, rand.Float64); again {
			e.State, e.NextAttempt = cron.RunRetrying, t.storeNow().Add(wait)
		}
	case end.outcome == chat.OutcomeInterrupted, end.outcome == chat.OutcomeDead:
		e.State = cron.RunInterrupted
	default:
		e.State, e.Reason = cron.RunCancelled, cancelReason(end.reason)
	}
}

// storeNow is the store's clock as it went on since the start of the turn.
func (t *turn) storeNow() time.Time { return t.started.StartedAt.Add(time.Since(t.began)) }

// retryable tells failures that may pass from those that come again.
func retryable(reason string) bool {
	switch chat.FailReason(reason) { //nolint:exhaustive // the ones that do not pass
	case chat.FailBadRequest, chat.FailContextLength, chat.FailRefusal, chat.FailDead, chat.FailAuth:
		return false
	}
	return true
}

func cancelReason(word string) cron.Reason {
	switch r := cron.Reason(word); r { //nolint:exhaustive // the ones that a stop carries
	case cron.ReasonRemoved, cron.ReasonReplaced:
		return r
	case "superseded":
		return cron.ReasonReplaced
	}
	return cron.ReasonStopped
}

// announceCron tells about an attempt whose end is committed, and sends what people are to hear of the job.
func (d *Dispatcher) announceCron(ctx context.Context, t *turn, end ending, c *cronEnd) {
	if c == nil || end.requeue {
		return
	}
	run, err := d.endedRun(ctx, t, c)
	if err != nil {
		d.log.WarnContext(ctx, "a run ended and cannot be read again; nobody is told", "run_id", t.cron.runID, "err", err)
		return
	}
	job := c.job
	if job.ID == "" && t.cron.job != nil {
		job = *t.cron.job
	}
	if job.ID == "" { // removed before the attempt began
		job = jobOf(run)
	}
	if run.State == cron.RunRetrying {
		d.tellCron(cron.Event{Action: cron.ActionScheduled, Job: job, Run: &run})
		return
	}
	d.cfg.Cron.Observer.Ended(run.Trigger, run.State)
	d.tellCron(cron.Event{Action: cron.ActionFinished, Job: job, Run: &run})
	if c.told != cron.TellNothing {
		d.alert(ctx, job, run, c.told)
		d.tellCron(cron.Event{Action: cron.ActionUpdated, Job: job})
	}
}

// endedRun is the run with its end: as the store has shown it to the job, or, where the job is gone or has nothing to learn, as it is stored.
func (d *Dispatcher) endedRun(ctx context.Context, t *turn, c *cronEnd) (cron.Run, error) {
	if c.run != nil {
		return *c.run, nil
	}
	return d.jobs.Run(ctx, t.cron.runID, "")
}

// stopRun cancels an attempt that runs here, or wakes the process that runs it.
func (d *Dispatcher) stopRun(c cron.CancelledRun, why string) {
	if !c.Running {
		d.sched.Drop(c.Session.String(), c.Seq)
		return
	}
	if c.Node != "" && c.Node == d.node.ID() {
		d.sched.StopRun(c.Session.String(), c.MessageID, why)
		return
	}
	d.node.HintStop(c.Node)
}
