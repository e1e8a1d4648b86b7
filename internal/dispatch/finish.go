package dispatch

import (
	"context"
	"errors"
	"strconv"
	"time"

	"laneway/internal/agent"
	"laneway/internal/chat"
	"laneway/internal/events"
	"laneway/internal/scheduler"
	"laneway/internal/store"
)

var (
	errDead        = errors.New("the turn ended its process three times")
	errInterrupted = errors.New("the turn must not run a second time")
)

// ending is how a turn ended: what is written and what is told.
type ending struct {
	outcome chat.Outcome
	state   string // of the run row
	reason  string // closed set: a chat.FailReason or stop, stopall, superseded, draining, …
	message string // for a person; "" when answered
	text    string // the answer, or what was said before the end
	lines   string // the end of text that stands for the files
	files   []chat.Attachment
	stop    string // stop reason of the transcript entry
	usage   chat.Usage
	requeue bool // the messages wait again
	nothing bool // nothing may be written: somebody else owns the session
}

// judge decides how a turn ended from what the agent returned and why its context ended.
func (d *Dispatcher) judge(ctx context.Context, t *turn, res agent.Result, err error) ending {
	end := ending{usage: res.Usage}
	var (
		cause  *scheduler.CancelCause
		failed *agent.Error
		app    *chat.Error
	)
	switch {
	case err == nil:
		end.outcome, end.state, end.stop = chat.OutcomeAnswered, store.RunOK, "stop"
		end.text = chat.CleanText(res.Text)
		if res.StopReason != "" {
			end.stop = res.StopReason
		}
		return end
	case errors.As(err, &cause):
		d.judgeCancelled(t, cause, &end)
	case errors.Is(err, errDead):
		end.fail(chat.OutcomeDead, store.RunDead, string(chat.FailDead), sentence(chat.OutcomeDead, ""))
	case errors.Is(err, errInterrupted):
		end.fail(chat.OutcomeInterrupted, store.RunInterrupted, "crashed", sentence(chat.OutcomeInterrupted, ""))
	case errors.Is(err, errTurnTimeout):
		end.fail(chat.OutcomeFailed, store.RunFailed, string(chat.FailTimeout), "the answer took too long and was ended; try again or ask for less")
	case errors.As(err, &failed):
		end.fail(chat.OutcomeFailed, store.RunFailed, string(failed.Reason), failed.Message)
	case errors.As(err, &app):
		end.fail(chat.OutcomeFailed, store.RunFailed, string(chat.FailUnknown), app.Message)
	case ctx.Err() != nil:
		end.fail(chat.OutcomeInterrupted, store.RunInterrupted, "draining", sentence(chat.OutcomeInterrupted, ""))
		end.requeue = !d.atMostOnce(t)
	default:
		end.fail(chat.OutcomeFailed, store.RunFailed, string(chat.FailUnknown), "the agent failed; try again")
	}
	if end.outcome == chat.OutcomeFailed {
		d.log.WarnContext(ctx, "turn failed", "session", t.run.Session.String(), "run_id", t.run.RunID, "reason", end.reason, "attempt", t.started.Attempt, "err", err)
	}
	return end
}

func (e *ending) fail(outcome chat.Outcome, state, reason, message string) {
	e.outcome, e.state, e.reason, e.message, e.stop = outcome, state, reason, message, "error"
}

func (d *Dispatcher) judgeCancelled(t *turn, cause *scheduler.CancelCause, end *ending) {
	switch cause.Reason {
	case scheduler.ReasonStopped:
		why := reasonOf(cause.By)
		end.fail(chat.OutcomeStopped, store.RunStopped, why, "stopped")
		end.stop = "stopped"
	case scheduler.ReasonSuperseded:
		end.fail(chat.OutcomeSuperseded, store.RunStopped, "superseded", sentence(chat.OutcomeSuperseded, ""))
		end.stop = "superseded"
	case scheduler.ReasonLeaseLost, scheduler.ReasonReset:
		end.fail(chat.OutcomeInterrupted, store.RunInterrupted, "lease_lost", sentence(chat.OutcomeInterrupted, ""))
		end.nothing = cause.Reason == scheduler.ReasonLeaseLost
		end.requeue = !d.atMostOnce(t)
	default:
		end.fail(chat.OutcomeInterrupted, store.RunInterrupted, "draining", sentence(chat.OutcomeInterrupted, ""))
		end.requeue = !d.atMostOnce(t)
	}
}

// finishTurn writes the end of a turn and tells everybody. It is called on the turn's goroutine after the agent has returned.
func (d *Dispatcher) finishTurn(ctx context.Context, t *turn, end ending) {
	said, mine := t.run.Close()
	if !mine { // stuck has decided it while the agent did not return; only the goroutine's end is left to write
		d.endStopping(ctx, t)
		return
	}
	if end.nothing {
		d.obs.Fenced("finish")
		return
	}
	if end.outcome != chat.OutcomeAnswered {
		end.text = said
	}
	d.writeFinish(ctx, t, end, false)
}

// stuck is called by the scheduler when a cancelled turn has not returned within the grace: its outcome is written now, and
// whatever it says later is discarded. It keeps its slot and its place in the session.
func (d *Dispatcher) stuck(st *scheduler.Turn[work]) {
	was, ok := d.running.get(st)
	cause := st.Cause()
	if !ok || cause == nil {
		return
	}
	run := was.run
	t := &turn{run: run, agent: was.agent, started: was.started, began: was.began}
	for _, it := range st.Items() {
		t.rows = append(t.rows, it.Payload.rows...)
		if it.Payload.claim.Epoch >= t.claim.Epoch {
			t.claim = it.Payload.claim
		}
	}
	t.cron = d.cronTurnOf(t.rows[len(t.rows)-1])
	var end ending
	d.judgeCancelled(t, cause, &end)
	said, mine := run.Close()
	if !mine || end.nothing {
		return
	}
	end.text = said
	d.log.Warn("a stopped turn has not returned; it is finished without it", "session", run.Session.String(), "run_id", run.RunID, "reason", end.reason)
	if !d.writeFinish(context.Background(), t, end, true) { //nolint:forbidigo // the turn's own context is over and nobody else's is near
		run.Reopen()
	}
}

// writeFinish is the one transaction that ends a turn.
func (d *Dispatcher) writeFinish(ctx context.Context, t *turn, end ending, stillRunning bool) bool {
	lead := t.rows[len(t.rows)-1]
	p := store.FinishParams{
		Claim: t.claim, RunID: t.run.RunID, State: end.state, Outcome: end.outcome, Cause: end.reason, Error: chat.Cut(end.message, 2000),
		Usage: end.usage, Requeue: end.requeue, StillRunning: stillRunning && !end.requeue, Preview: chat.Cut(end.text, 200),
	}
	if !end.requeue {
		p.Transcript = d.answer(t, end)
		p.Outgoing = outgoing(lead, t.run.RunID, end)
	}
	var cronEnd *cronEnd
	if t.cron != nil {
		cronEnd = d.endAttempt(ctx, t, end, &p)
	}
	var fin store.Finished
	err := d.node.Final(ctx, "finishing a turn", func(ctx context.Context) (err error) {
		fin, err = d.store.Finish(ctx, p)
		return err
	})
	if errors.Is(err, chat.ErrFenced) && d.wroteIt(ctx, p) {
		err, fin.EndedAt = nil, time.Now() // an earlier try was committed and its answer lost
	}
	switch {
	case errors.Is(err, chat.ErrFenced):
		d.obs.Fenced("finish")
		d.log.InfoContext(ctx, "a turn's end was refused: the session belongs to somebody else", "session", lead.Session.String(), "run_id", t.run.RunID)
		return false
	case err != nil:
		d.log.ErrorContext(ctx, "a turn's end could not be written; it will run again", "session", lead.Session.String(), "run_id", t.run.RunID, "err", err)
		return false
	}
	d.announce(ctx, t, end, fin)
	d.announceCron(ctx, t, end, cronEnd)
	return true
}

// wroteIt reports whether the run ended as p says, under the same claim.
func (d *Dispatcher) wroteIt(ctx context.Context, p store.FinishParams) bool {
	run, err := d.store.RunByID(context.WithoutCancel(ctx), p.RunID)
	return err == nil && run.Owner == p.Node && run.Epoch == p.Epoch && run.State == p.State && !p.Requeue
}

// answer is what the transcript keeps of an end: what was said, and behind a turn that was stopped that it was.
func (d *Dispatcher) answer(t *turn, end ending) []chat.TranscriptEntry {
	var entries []chat.TranscriptEntry
	if end.text != "" {
		tokens := end.usage.OutputTokens
		if tokens == 0 {
			tokens = agent.EstimateTokens(end.text)
		}
		entries = append(entries, chat.TranscriptEntry{RunID: t.run.RunID, Role: chat.RoleAssistant, Text: end.text, Tokens: tokens, StopReason: end.stop})
	}
	if note := stopNote(t.rows[len(t.rows)-1], end.outcome); note != "" {
		entries = append(entries, chat.TranscriptEntry{RunID: t.run.RunID, Role: chat.RoleSystem, Text: note, Tokens: agent.EstimateTokens(note), StopReason: end.stop})
	}
	return entries
}

// notedText is how many bytes of a message its note repeats, to tell it from others that ran at the same time.
const notedText = 80

// stopNote says to whoever reads the transcript, the next turn's agent before all, that a message was not carried out. Without it the next prompt would
// hold the stopped text as if it were asked still. "" = nothing is to be said.
func stopNote(lead store.Waiting, outcome chat.Outcome) string {
	what := strconv.Quote(chat.Cut(chat.Printable(lead.Content.Text), notedText))
	switch outcome {
	case chat.OutcomeStopped:
		return "Stopped before its answer was complete, and not to be carried out: " + what
	case chat.OutcomeSuperseded:
		return "Interrupted by a newer message before its answer was complete: " + what
	default:
		return ""
	}
}

// outgoing is what goes to the person's channel: the answer, or the notice that there is none.
func outgoing(lead store.Waiting, runID string, end ending) []store.Outgoing {
	to := lead.Content.Options.ReplyTo
	if to.IsZero() {
		return nil
	}
	if end.outcome == chat.OutcomeAnswered && end.text != "" {
		return replies(lead, runID, end)
	}
	n := notice(lead, end.outcome, end.reason, end.message)
	if n == nil {
		return nil
	}
	n.RunID, n.N = runID, 1
	n.ExpiresAt = time.Now().Add(noticeLife)
	return []store.Outgoing{*n}
}

// announce tells everybody about an end that is committed.
func (d *Dispatcher) announce(ctx context.Context, t *turn, end ending, fin store.Finished) {
	d.outbox.Wake()
	lead := t.rows[len(t.rows)-1]
	if fin.Released {
		d.handover.release(lead.Session, t.claim.Epoch)
	}
	d.endPreview(lead.Content.Options.ReplyTo, t.run.RunID)
	if end.requeue {
		d.node.SweepNow()
		return
	}
	for _, m := range fin.Merged {
		d.events.Publish(chat.Event{Kind: chat.EventFinal, Session: m.Session, Principal: t.run.Principal, RunID: m.MessageID, Seq: events.FirstOfTurn, Lane: t.run.Lane, MergedInto: t.run.RunID, Reason: "merged"})
		d.obs.Ended(t.run.Lane, chat.OutcomeMerged, "")
		d.events.Ended(chat.RunEnd{RunID: m.MessageID, Session: m.Session, Outcome: chat.OutcomeMerged, MergedInto: t.run.RunID, Text: end.text, StopReason: end.stop, Usage: end.usage})
	}
	if end.outcome != chat.OutcomeAnswered {
		for _, r := range t.rows[:len(t.rows)-1] {
			d.tellEnded(ctx, r, end.outcome, end.reason)
		}
	}
	d.events.Publish(t.endEvent(end, fin))
	d.events.PublishSession(lead.Session, t.run.Principal, "run.finished", t.run.RunID)
	d.obs.Ended(t.run.Lane, end.outcome, end.reason)
	d.events.Ended(chat.RunEnd{
		RunID: lead.MessageID, Session: lead.Session, Outcome: end.outcome, Reason: end.reason, Message: end.message, Text: end.text, StopReason: end.stop,
		Usage: end.usage, Duration: fin.EndedAt.Sub(t.started.StartedAt), Waited: t.started.StartedAt.Sub(lead.AcceptedAt),
	})
}

func (t *turn) endEvent(end ending, fin store.Finished) chat.Event {
	kind := chat.EventAborted
	switch end.outcome {
	case chat.OutcomeAnswered:
		kind = chat.EventFinal
	case chat.OutcomeFailed, chat.OutcomeDead, chat.OutcomeInterrupted:
		kind = chat.EventFailed
	default:
	}
	e := t.run.Event(kind)
	e.Text, e.Reason, e.Message, e.Usage = end.text, end.reason, end.message, end.usage
	switch kind { //nolint:exhaustive // a failure has the reason of its ending
	case chat.EventFinal:
		e.Reason = end.stop
	case chat.EventAborted:
		e.Reason = abortReason(end.reason)
	}
	for _, entry := range fin.Entries {
		if entry.Role == chat.RoleAssistant {
			e.EntrySeq = entry.Seq
		}
	}
	return e
}

// endStopping writes that a turn which was finished without its goroutine has returned at last.
func (d *Dispatcher) endStopping(ctx context.Context, t *turn) {
	err := d.node.Final(ctx, "ending a stopped turn", func(ctx context.Context) error {
		return d.store.EndStopping(ctx, t.claim, t.run.RunID)
	})
	if err != nil && !errors.Is(err, chat.ErrFenced) {
		d.log.ErrorContext(ctx, "a stopped turn stays stopping until its lease ends", "run_id", t.run.RunID, "err", err)
	}
}
