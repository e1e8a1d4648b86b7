package dispatch

import (
	"context"

	"laneway/internal/agent"
	"laneway/internal/chat"
	"laneway/internal/cron"
	"laneway/internal/store"
)

// attempt is what a turn is besides the turn of a message: an attempt of a run of a job, or nothing ([plain]). Its methods are called on the goroutine
// of the turn, except end, which is also called for a turn that does not return.
type attempt interface {
	// start is what the start of the turn writes into the ledger; nil = nothing.
	start(node string) *cron.AttemptStart
	// started is called when the start is committed.
	started(ctx context.Context, t *turn)
	// isolated reports whether the agent gets no history.
	isolated() bool
	// unattended reports whether no person waits for the answer: no sign is shown, and the runner calls its model once.
	unattended() bool
	// execute does the work of a turn that needs no agent; done is false when it needs one.
	execute(ctx context.Context, t *turn) (res agent.Result, done bool, err error)
	// heldBack is why nothing is sent to an address; "" = it is sent.
	heldBack(to chat.Target) string
	// end adds the end of the attempt to what the turn writes. publish is called when that is committed.
	end(ctx context.Context, t *turn, end ending, p *store.FinishParams) (publish func())
}

// plain is the attempt of a turn that is the turn of a message alone.
type plain struct{}

var _ attempt = plain{}

func (plain) start(string) *cron.AttemptStart      { return nil }
func (plain) started(context.Context, *turn)       {}
func (plain) isolated() bool                       { return false }
func (plain) unattended() bool                     { return false }
func (plain) heldBack(chat.Target) (reason string) { return "" }

func (plain) execute(context.Context, *turn) (res agent.Result, done bool, err error) {
	return agent.Result{}, false, nil
}

func (plain) end(context.Context, *turn, ending, *store.FinishParams) (publish func()) {
	return func() {}
}

// jobAttempt is an attempt of a run of a job.
type jobAttempt struct {
	*cronTurn

	d *Dispatcher
}

var _ attempt = jobAttempt{}

// attemptOf recognises the message of a run.
func (d *Dispatcher) attemptOf(t *turn, lead store.Waiting) attempt {
	if t.cron = d.cronTurnOf(lead); t.cron == nil {
		return plain{}
	}
	return jobAttempt{t.cron, d}
}

func (a jobAttempt) started(ctx context.Context, t *turn) {
	a.know(t.started.Job)
	a.d.cronStarted(ctx, t)
}

func (jobAttempt) unattended() bool { return true }

func (a jobAttempt) execute(ctx context.Context, t *turn) (res agent.Result, done bool, err error) {
	return a.d.executeCron(ctx, t)
}

func (a jobAttempt) end(ctx context.Context, t *turn, end ending, p *store.FinishParams) (publish func()) {
	c := a.d.endAttempt(ctx, t, end, p)
	return func() { a.d.announceCron(ctx, t, end, c) }
}
