package dispatch

import (
	"context"
	"errors"

	"laneway/internal/chat"
	"laneway/internal/store"
)

// runEntries is more than a run has rows in its transcript: one for each message and each call.
const runEntries = 2 * maxProgramCalls

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
		runID = m.MessageID // an executed command: no run, but lines in the transcript
	}
	run, err := p.store.RunByID(ctx, runID)
	switch {
	case err == nil:
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
		}
	}
	return end, true, nil
}
