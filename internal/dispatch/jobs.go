package dispatch

import (
	"context"
	"time"

	"laneway/internal/agent"
	"laneway/internal/cron"
	"laneway/internal/cron/service"
	"laneway/internal/store"
)

// jobTurns executes the runs of jobs; it implements [service.Turns].
type jobTurns struct {
	*parts

	queue *queue
}

var _ service.Turns = jobTurns{}

// Launch submits a claimed run to its lane. A run in a session of another process is found by that
// process.
func (j jobTurns) Launch(ctx context.Context, l cron.Launched) {
	if !l.Mine {
		j.node.Hint(l.Owner, l.Message.Session)
		return
	}
	acc := store.Accepted{Seq: l.Seq, AcceptedAt: l.Run.ClaimedAt, Owner: l.Owner, Epoch: l.Epoch, Mine: true, Principal: l.Message.Principal, Behind: l.Behind}
	j.queue.submitNew(ctx, l.Message, acc)
}

// Stop cancels an attempt that runs here, or wakes the process that runs it.
func (j jobTurns) Stop(run cron.CancelledRun, cause string) {
	switch {
	case !run.Running:
		j.sched.Ended(run.Session.String())
	case run.Node != "" && run.Node == j.node.ID():
		j.sched.StopRun(run.Session.String(), run.MessageID, cause)
	default:
		j.node.HintStop(run.Node)
	}
}

// Lanes returns the names of the lanes.
func (j jobTurns) Lanes() []string {
	var names []string
	for _, l := range j.sched.Stats().Lanes {
		names = append(names, l.Name)
	}
	return names
}

// attempt is the part of a turn that goes beyond answering a message: an attempt of a run of a job
// ([service.Attempt]), or nothing ([plain]). Its methods are called on the goroutine of the turn.
// End is also called for a turn that does not return.
type attempt interface {
	// Start returns what the start of the turn writes into the ledger; nil = nothing.
	Start(node string) *cron.AttemptStart
	// Started is called when the start is committed. job is what the start read from the ledger;
	// nil = nothing.
	Started(ctx context.Context, t service.Turn, job *cron.Job)
	// JobID is the job of the attempt, or "".
	JobID() string
	// Isolated reports whether the agent receives no history.
	Isolated() bool
	// Unattended reports whether no person waits for the answer. Then no sign is shown, and the
	// runner calls its model once.
	Unattended() bool
	// Execute does the work of a turn that needs no agent; done is false when it needs one. req has
	// the messages of the turn and no history. by asks its agent for summaries.
	Execute(ctx context.Context, req agent.Request, by agent.Summariser, emit func(agent.Event)) (res agent.Result, done bool, err error)
	// End adds the end of the attempt to the writes of the turn. publish is called with the time of
	// the end when that is committed.
	End(ctx context.Context, t service.Turn, how service.Ending, p *store.FinishParams) (publish func(endedAt time.Time))
}

// plain is the attempt of a turn that only answers a message.
type plain struct{}

var (
	_ attempt = plain{}
	_ attempt = (*service.Attempt)(nil)
)

func (plain) Start(string) *cron.AttemptStart                  { return nil }
func (plain) Started(context.Context, service.Turn, *cron.Job) {}
func (plain) JobID() string                                    { return "" }
func (plain) Isolated() bool                                   { return false }
func (plain) Unattended() bool                                 { return false }

func (plain) Execute(context.Context, agent.Request, agent.Summariser, func(agent.Event)) (res agent.Result, done bool, err error) {
	return agent.Result{}, false, nil
}

func (plain) End(context.Context, service.Turn, service.Ending, *store.FinishParams) (publish func(endedAt time.Time)) {
	return func(time.Time) {}
}

// attemptOf returns the attempt of a run's message.
func (p *parts) attemptOf(lead store.Waiting) attempt {
	if lead.Channel == compactChannel {
		return compactionOf(lead)
	}
	if a := p.jobs.Attempt(lead.Channel, lead.MessageID); a != nil {
		return a
	}
	return plain{}
}

// ofAttempt returns the turn in the form that its attempt uses.
func (t *turn) ofAttempt() service.Turn {
	return service.Turn{
		Session: t.run.Session, RunID: t.run.RunID, Lane: t.run.Lane, Node: t.claim.Node,
		StartedAt: t.started.StartedAt, Began: t.began, Number: t.started.Attempt,
	}
}

// ofAttempt returns the end in the form that its attempt uses.
func (e *ending) ofAttempt(outside bool) service.Ending {
	return service.Ending{
		Outcome: e.outcome, Reason: e.reason, Message: e.message, Text: e.text, Reply: e.reply(), Files: e.lines != "", Usage: e.usage, Outside: outside, Requeued: e.requeue,
	}
}
