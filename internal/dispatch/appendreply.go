package dispatch

import (
	"context"

	"laneway/internal/agent"
	"laneway/internal/chat"
	"laneway/internal/cron"
	"laneway/internal/store"
)

// shown publishes an entry that a delivery has added to a conversation.
func (d *Dispatcher) shown(_ context.Context, e *store.ShownEntry) {
	run := e.RunID
	if d.events.Known(e.Session, run) { // as in AppendReply
		run = newID()
	}
	d.events.Publish(chat.Event{
		Kind: chat.EventFinal, Session: e.Session, Principal: e.Principal, RunID: run, Text: e.Text, Reason: "stop", EntrySeq: e.Seq,
	})
}

// AppendReply adds a reply to the transcript of a session and publishes it. The store keeps the reply's id with the entry, so that a
// repeated reply is added once. It is published again, because an interrupted attempt may not have published it. A chat user's reply is
// added only to their own sessions, and what the tools of a credential send only to a session that it owns.
func (d *Dispatcher) AppendReply(ctx context.Context, key chat.SessionKey, r chat.Reply) (seq int64, err error) {
	if err := d.checkAgent(ctx, key.Agent); err != nil {
		return 0, err
	}
	run := r.RunID
	if run == "" {
		run = r.ID
	}
	role := chat.RoleAssistant
	if r.Kind == store.KindNotice && r.RunID == "" {
		role = chat.RoleSystem // about the session, not an answer of its agent
	}
	_, job, _, _ := cron.ParseRunID(cron.RunOfMessage(r.RunID)) // "" for the reply of another run
	origin := r.Origin
	if origin != nil && origin.By == key.String() {
		origin = nil
	}
	appended, err := d.store.AppendReply(ctx, store.ReplyParams{
		ID: r.ID, Session: key, Principal: r.Principal, Job: job, Own: !OperatorOwner(r.Principal) || key.RightOf(r.Principal) == chat.RightMine,
		Entry: chat.TranscriptEntry{RunID: run, Role: role, Text: r.Text, Tokens: agent.EstimateTokens(r.Text), StopReason: "stop", Origin: origin, Outside: r.Origin != nil && r.Origin.Outside},
	})
	if err != nil {
		return 0, err
	}
	if d.events.Known(key, run) { // the run publishes its own end here, and a run has only one: the delivery is published without the run
		run = r.ID
	}
	d.events.Publish(chat.Event{
		Kind: chat.EventFinal, Session: key, Principal: appended.Principal, RunID: run, Text: r.Text, Reason: "stop", EntrySeq: appended.Entry.Seq,
	})
	return appended.Entry.Seq, nil
}
