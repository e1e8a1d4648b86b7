package acp

import (
	"context"
	"time"

	sdk "github.com/coder/acp-go-sdk"

	"laneway/internal/agent"
	"laneway/internal/agent/internal/program"
	"laneway/internal/chat"
)

// maxEvents is how many updates are queued for the turn before the agent has to wait.
const maxEvents = 256

// turn is one prompt in progress. The fields above the blank line are also used by the goroutines of the connection.
type turn struct {
	session      sdk.SessionId // of the agent; updates of other sessions are not part of the turn
	updates      chan sdk.SessionUpdate
	ctx          context.Context //nolint:containedctx // ends when the turn ends or is stopped; later updates are dropped
	stop         context.CancelFunc
	asker        agent.Asker
	asking       chan struct{} // a semaphore of maxQuestions
	questionTime time.Duration
	reads        *reads

	answer *agent.Answer
	emit   func(agent.Event)
	calls  map[sdk.ToolCallId]string // names of the calls without a result
	known  map[sdk.ToolCallId]bool   // calls that have started
	gap    bool                      // a call has started since the last piece of text
	pieces chat.Usage                // usage reported with pieces of text
}

func (r *Runner) newTurn(req agent.Request, emit func(agent.Event)) *turn {
	return &turn{
		updates: make(chan sdk.SessionUpdate, maxEvents), asker: req.Asker, asking: make(chan struct{}, maxQuestions), questionTime: r.cfg.QuestionTime,
		reads: newReads(req), answer: agent.NewAnswer(r.cfg.MaxAnswer, emit), emit: emit, calls: map[sdk.ToolCallId]string{}, known: map[sdk.ToolCallId]bool{},
	}
}

// update queues an update. It waits while the queue is full.
func (t *turn) update(u sdk.SessionUpdate) {
	select {
	case t.updates <- u:
	case <-t.ctx.Done():
	}
}

// prompted is the result of a prompt.
type prompted struct {
	response sdk.PromptResponse
	err      error
}

// run makes one turn: it sends the prompt and applies updates until the response ends the turn.
func (p *peer) run(ctx context.Context, req agent.Request, access agent.ToolAccess, t *turn) (agent.Result, error) {
	dir := ""
	if req.OutputDir != nil {
		var err error
		if dir, err = req.OutputDir(); err != nil {
			p.log.WarnContext(ctx, "an agent gets no directory for files", "err", err)
		}
	}
	blocks, err := p.blocks(ctx, req, access, dir)
	if err != nil {
		return agent.Result{}, p.failure(ctx, err)
	}
	if p.unstored {
		p.remember(ctx)
	}
	t.session, p.linesBefore, t.reads.dir = p.id, p.proc.Lines(), p.dir
	defer t.reads.end()
	t.ctx, t.stop = context.WithCancel(ctx)
	defer t.stop()
	p.setTurn(t)
	defer p.setTurn(nil)
	end := make(chan prompted, 1)
	send := func() {
		response, err := p.conn.Prompt(context.WithoutCancel(ctx), sdk.PromptRequest{SessionId: p.id, Prompt: blocks})
		end <- prompted{response, err}
	}
	if !p.pool.spawn(send) {
		return agent.Result{}, agent.NewError(chat.FailUnknown, "The gateway is about to end; try again later.", errClosed)
	}
	p.memory = p.memory.With(req)
	how, err := p.follow(t, end)
	p.remember(ctx)
	result := agent.Result{Text: t.answer.Text(), Usage: p.reported(t, how.response), StopReason: agent.StopNormal}
	t.endCalls()
	switch {
	case agent.Ended(ctx) != nil:
		return result, agent.Ended(ctx)
	case err != nil:
		return result, err
	case how.err != nil:
		return result, p.failure(ctx, how.err)
	}
	if result.Usage.InputTokens+result.Usage.OutputTokens > 0 {
		t.emit(agent.Event{Kind: agent.EventUsage, Usage: result.Usage})
	}
	if result.StopReason, err = stopReason(how.response.StopReason); err != nil {
		return result, err
	}
	result.Attachments, err = program.Files(dir)
	return result, err
}

// follow applies updates until the prompt ends. err is the error of an update; the prompt was then cancelled.
func (p *peer) follow(t *turn, end <-chan prompted) (how prompted, err error) {
	for err == nil {
		select {
		case u := <-t.updates:
			err = t.take(u)
		case how = <-end:
			return how, t.rest()
		case <-t.ctx.Done():
			return p.cancel(end), nil
		}
	}
	t.stop()
	return p.cancel(end), err
}

// cancel ends a prompt by session/cancel, and by ending the process if that does not help. The next turn of the session then starts another process.
func (p *peer) cancel(end <-chan prompted) prompted {
	p.pool.spawn(func() { // an agent that does not read would block this
		_ = p.conn.Cancel(context.Background(), sdk.CancelNotification{SessionId: p.id}) //nolint:errcheck,forbidigo // the timeout below handles a failure
	})
	timer := time.NewTimer(cancelTime)
	defer timer.Stop()
	select {
	case how := <-end:
		return how
	case <-timer.C:
	}
	p.log.Warn("an agent did not end its turn after session/cancel; its process is ended")
	p.kill(errNotCancelled)
	<-p.gone
	return <-end
}

// rest applies the updates that arrived before the response.
func (t *turn) rest() error {
	for {
		select {
		case u := <-t.updates:
			if err := t.take(u); err != nil {
				return err
			}
		default:
			return nil
		}
	}
}

// stopReason maps a stop reason of the protocol.
func stopReason(reason sdk.StopReason) (string, error) {
	switch reason {
	case sdk.StopReasonEndTurn:
		return agent.StopNormal, nil
	case sdk.StopReasonMaxTokens:
		return agent.StopLength, nil
	case sdk.StopReasonMaxTurnRequests:
		return agent.StopNormal, agent.NewError(chat.FailBadResponse, "The agent asked its model more often than it may in one turn; ask for less at once.", nil)
	case sdk.StopReasonRefusal:
		return agent.StopNormal, agent.NewError(chat.FailRefusal, "The agent declined to continue; ask in another way.", nil)
	case sdk.StopReasonCancelled:
		return agent.StopNormal, agent.NewError(chat.FailProgram, "The agent ended the turn before its answer was complete; try again.", nil)
	default:
		return agent.StopNormal, nil
	}
}
