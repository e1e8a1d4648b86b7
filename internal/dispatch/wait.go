package dispatch

import (
	"context"
	"errors"

	"laneway/internal/chat"
	"laneway/internal/events"
	"laneway/internal/store"
)

// runEntries exceeds the number of transcript entries of a run: one for each message and each call.
const runEntries = 2 * maxProgramCalls

// endEvent reads from the store how a message ended, as an event.
func (p *parts) endEvent(ctx context.Context, messageID string) (chat.Event, bool, error) {
	m, err := p.store.MessageByID(ctx, messageID)
	if err != nil || m.State != store.StateDone {
		return chat.Event{}, false, err
	}
	end, done, err := p.endOf(ctx, messageID)
	if err != nil || !done {
		return chat.Event{}, false, err
	}
	e := chat.Event{
		Kind: endKind(end.Outcome), Session: m.Session, Principal: m.Principal, RunID: m.MessageID, Seq: events.FirstOfTurn, Lane: m.Lane,
		Text: end.Text, Message: end.Message, Detail: end.Detail, Usage: end.Usage, MergedInto: end.MergedInto, Reason: end.Reason,
	}
	switch {
	case end.Outcome == chat.OutcomeMerged:
		e.Text, e.Reason = "", "merged"
	case e.Kind == chat.EventFinal:
		e.Reason = end.StopReason
	case e.Kind == chat.EventAborted:
		e.Reason = abortReason(end.Reason)
	}
	return e, true, nil
}

// endOf reads from the store how a message ended.
func (p *parts) endOf(ctx context.Context, messageID string) (chat.RunEnd, bool, error) {
	m, err := p.store.MessageByID(ctx, messageID)
	if err != nil || m.State != store.StateDone {
		return chat.RunEnd{}, false, err
	}
	end := chat.RunEnd{RunID: m.MessageID, Session: m.Session, Outcome: m.Outcome, Reason: m.Reason}
	if m.Outcome != chat.OutcomeAnswered && m.Outcome != chat.OutcomeMerged {
		end.Message = sentence(m.Outcome, m.Reason)
	}
	if m.Outcome == chat.OutcomeMerged {
		end.MergedInto = m.RunID
	}
	runID := m.RunID
	if runID == "" {
		runID = m.MessageID // an executed command has no run, but transcript entries
	}
	run, err := p.store.RunByID(ctx, runID)
	switch {
	case err == nil:
		end.Foreign = run.Outside
		end.Usage, end.Duration, end.Waited = run.Usage, run.EndedAt.Sub(run.StartedAt), run.StartedAt.Sub(m.AcceptedAt)
		if run.Error != "" && end.Message != "" {
			end.Reason, end.Message, end.Detail = run.Cause, run.Error, run.Detail
		}
	case !errors.Is(err, chat.ErrNotFound):
		return end, false, err
	}
	tr, err := p.store.Transcript(ctx, store.TranscriptQuery{Session: m.Session, RunID: runID, Limit: runEntries})
	if err != nil {
		return end, false, err
	}
	for _, e := range tr.Entries {
		switch {
		case e.Role == chat.RoleAssistant:
			end.Text, end.StopReason = e.Text, e.StopReason
		case e.StopReason == chat.StopForeign:
			end.Foreign = true
		case e.Role == chat.RoleSystem && e.Text == chat.EmptyAnswer(e.StopReason):
			end.Message, end.StopReason = e.Text, e.StopReason
		}
	}
	return end, true, nil
}
