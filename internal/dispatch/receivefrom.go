package dispatch

import (
	"context"
	"errors"

	"laneway/internal/agent"
	"laneway/internal/chat"
	"laneway/internal/store"
)

// ReceiveFrom is Receive for a caller of the gateway: it may be restricted to sessions of its own, a command needs one of its scopes, and so many
// of its messages may wait (chat.CodeRateLimited).
func (d *Dispatcher) ReceiveFrom(ctx context.Context, m chat.Message, by chat.Caller) (chat.Receipt, error) {
	m.Principal, m.Scope, m.Own = by.Principal, highest(by.Scopes), by.Own
	m.Peer, m.RequestID = by.Peer, by.RequestID
	if err := notMade(m.Session, by); err != nil {
		return chat.Receipt{}, err
	}
	if by.Own {
		d.restrain(&m)
	}
	return d.receive(ctx, m, &by)
}

// highest is the most that a list of scopes allows.
func highest(scopes []string) string {
	best := ""
	for _, s := range scopes {
		if chat.ScopeLevel(s) > chat.ScopeLevel(best) {
			best = s
		}
	}
	return best
}

// Defer makes a system text durable that the next turn of its session sees before its message. It starts nothing. The same Dedupe
// offered again is the same text; a repetition completes what a crash has left half done.
func (d *Dispatcher) Defer(ctx context.Context, m chat.Message, by chat.Caller) error {
	m.Principal = by.Principal
	if err := notMade(m.Session, by); err != nil {
		return err
	}
	if err := d.check(&m); err != nil {
		return err
	}
	if err := d.diskFault(); err != nil {
		return err
	}
	if err := d.mayName(ctx, m.Session, by); err != nil {
		return err
	}
	acc, err := d.store.Accept(ctx, store.AcceptParams{Node: d.NodeID(), Message: m, Unqueued: true, Own: by.Own})
	if errors.Is(err, chat.ErrSessionNotFound) {
		return notTheirs(m.Session)
	}
	if err != nil {
		return err
	}
	id := m.ID
	if acc.Duplicate {
		id = acc.Existing.MessageID
		tr, err := d.store.Transcript(ctx, store.TranscriptQuery{Session: m.Session, RunID: id, Limit: 1, MaxChars: 1})
		if err != nil || len(tr.Entries) > 0 {
			return err
		}
	}
	_, err = d.store.AppendTranscript(ctx, m.Session, m.Principal, []chat.TranscriptEntry{{
		RunID: id, Role: chat.RoleSystem, Text: m.Content.Text, Tokens: agent.EstimateTokens(m.Content.Text),
	}})
	return err
}
