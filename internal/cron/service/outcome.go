package service

import (
	"context"
	"math/rand/v2"
	"time"

	"laneway/internal/chat"
	"laneway/internal/cron"
	"laneway/internal/store"
)

// Ending is how the turn of an attempt ended.
type Ending struct {
	Outcome chat.Outcome
	Reason  string // a chat.FailReason, or the reason of a stop
	Message string // for people; "" when answered
	// Text is the version for the transcript; Reply is the same without the lines that stand for files. Files reports whether such lines exist.
	Text, Reply string
	Files       bool
	Usage       chat.Usage
	// Outside: the turn received text from outside, which the answer may repeat.
	Outside bool
	// Requeued: the message waits again, for another process.
	Requeued bool
}

// end is how an attempt ended, with the alert that is sent after its commit.
type end struct {
	job   cron.Job
	alert cron.AlertKind
	run   *cron.Run // as the store passed it to the job; nil when it must be read
}

// End adds the end of the attempt to the parameters of the end of its turn: the ledger, the next state of the job, and the outgoing rows that replace the
// answer for a person. Call publish after the commit with the time that the store gave the end: it publishes the end and sends alerts.
func (a *Attempt) End(ctx context.Context, t Turn, how Ending, p *store.FinishParams) (publish func(endedAt time.Time)) {
	job := a.readJob(ctx)
	out := &end{}
	e := &cron.AttemptEnd{
		RunID: a.runID, Error: chat.Cut(how.Message, 2000), ErrorClass: how.Reason, Summary: how.Text, Usage: how.Usage,
		Delivery: cron.DeliveryNotRequested,
	}
	e.Attempt = cron.Attempt{Number: a.number, Error: e.Error, ErrorClass: e.ErrorClass, Node: t.Node, State: attemptState(how)}
	a.setState(t, how, e, job)
	if e.State == cron.RunOK {
		e.Error, e.ErrorClass, e.Attempt.Error, e.Attempt.ErrorClass = "", "", "", ""
	}
	a.delivery.deliver(answer{attempt: a, turn: t, how: how, end: e}, job, p)
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
			*out = end{} // left from a try that was not committed: in the committed one the job was removed, and received no run
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
	switch chat.FailReason(reason) { //nolint:exhaustive // the ones that do not pass
	case chat.FailBadRequest, chat.FailContextLength, chat.FailRefusal, chat.FailDead, chat.FailAuth, chat.FailBudget:
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

// publishEnd publishes an attempt whose end is committed, and sends the alert about its job.
func (a *Attempt) publishEnd(ctx context.Context, how Ending, out *end) {
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

// endedRun is the ended run: as the store passed it to the job, or, when the job was removed, as stored.
func (a *Attempt) endedRun(ctx context.Context, out *end) (cron.Run, error) {
	if out.run != nil {
		return *out.run, nil
	}
	return a.jobs.Run(ctx, a.runID, "")
}
