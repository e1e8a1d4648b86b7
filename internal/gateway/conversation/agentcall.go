package conversation

import (
	"cmp"
	"context"
	"time"

	"laneway/internal/chat"
	"laneway/internal/gateway/fault"
	"laneway/internal/gateway/rpc"
	"laneway/internal/wire"
)

// agentFrames are the two results of the method agent.
type agentFrames = rpc.Twice[wire.AgentResult]

// agentCall runs one turn of an agent: the first frame is sent when the message is durable, the second when the run has ended.
func (h handlers) agentCall(ctx context.Context, c *rpc.Call, p wire.AgentParams) (agentFrames, error) {
	if err := checkText(c, p.Message, p.IdempotencyKey); err != nil {
		return agentFrames{}, err
	}
	key, err := h.sessionOrMain(c, p.SessionKey, p.AgentID)
	if err != nil {
		return agentFrames{}, err
	}
	if err := h.mayUse(ctx, c, key); err != nil {
		return agentFrames{}, err
	}
	m := message(c, key, p.Message, p.IdempotencyKey)
	if m.Content.Attachments, err = h.attachments(c, p.Attachments); err != nil {
		return agentFrames{}, err
	}
	m.Lane = p.Lane
	m.Content.Options = chat.Options{
		NoMerge: true, TimeoutMs: turnLimit(p.Timeout, time.Second), Model: p.Model, Thinking: p.Thinking, SystemPrompt: p.ExtraSystemPrompt,
	}
	if p.Deliver {
		if m.Content.Options.ReplyTo, err = h.replyTo(ctx, c, agentTarget(&p, key), key); err != nil {
			return agentFrames{}, err
		}
	}
	receipt, err := h.receive(ctx, c, m)
	if err != nil {
		return agentFrames{}, err
	}
	first := wire.AgentAccepted{
		RunID: chat.ShownRunID(receipt.RunID), Status: "accepted", AcceptedAt: receipt.AcceptedAt.UnixMilli(), SessionKey: receipt.Session.String(), AgentID: receipt.Session.Agent,
	}
	return agentFrames{First: wire.AgentResult{Of: first}, Then: func(ctx context.Context) (wire.AgentResult, error) {
		end, err := h.backend.Wait(ctx, receipt.RunID)
		if err != nil {
			return wire.AgentResult{}, err
		}
		return endOf(end, c.Cred.Administers(c.Scopes))
	}}, nil
}

func (h handlers) sessionOrMain(c *rpc.Call, key, agentID string) (chat.SessionKey, error) {
	if key != "" {
		return h.session(c, key, agentID)
	}
	if agentID == "" {
		agentID = h.backend.DefaultAgent()
	}
	if !chat.ValidAgentID(agentID) {
		return chat.SessionKey{}, c.BadParam("/agentId", "is not the id of an agent")
	}
	return chat.MainKey(agentID), nil
}

// agentTarget returns where the reply goes: the target that the caller named, or the place of the session.
func agentTarget(p *wire.AgentParams, key chat.SessionKey) chat.Target {
	t := chat.Target{Channel: cmp.Or(p.ReplyChannel, p.Channel), ChatID: p.To, Thread: p.ThreadID}
	if t.Channel == "" || t.ChatID == "" {
		return key.Target()
	}
	if p.AccountID != "" && p.AccountID != wire.AccountDefault {
		t.Channel += ":" + p.AccountID
	}
	return t
}

// replyTo checks a target. On the web it must be a session that the caller may use; for the session of the turn, the answer is only added
// to the transcript. A caller that sees only its own data has no chat on any other channel.
func (h handlers) replyTo(ctx context.Context, c *rpc.Call, to chat.Target, own chat.SessionKey) (chat.Target, error) {
	switch {
	case to.Channel == wire.ChannelWeb:
	case c.Visible() != "" && !to.IsZero():
		return chat.Target{}, chat.ForeignChat(to.Channel, to.ChatID)
	default:
		return to, nil
	}
	key, err := chat.ParseSessionKey(to.ChatID, own.Agent)
	if err != nil {
		return chat.Target{}, c.BadParam("/to", err.Error())
	}
	if key == own {
		return chat.Target{}, nil
	}
	return chat.Target{Channel: wire.ChannelWeb, ChatID: key.String()}, h.mayUse(ctx, c, key)
}

// endOf returns the second frame.
func endOf(end chat.RunEnd, admin bool) (wire.AgentResult, error) {
	if err := fault.OfRun(end, admin); err != nil {
		return wire.AgentResult{}, err
	}
	return wire.AgentResult{Of: wire.AgentEnd{
		RunID: chat.ShownRunID(end.RunID), Status: "ok", Summary: "completed",
		Result: wire.AgentAnswer{
			Payloads: []wire.AgentText{{Text: end.Text}}, Meta: wire.AgentMeta{DurationMs: end.Duration.Milliseconds(), WaitedMs: end.Waited.Milliseconds()},
		},
	}}, nil
}

// wake adds a system text to a session.
func (h handlers) wake(ctx context.Context, c *rpc.Call, p wire.WakeParams) (wire.WakeResult, error) {
	if err := c.CheckKey(p.IdempotencyKey, false); err != nil {
		return wire.WakeResult{}, err
	}
	if err := chat.CheckText("text", p.Text, 65_536); err != nil {
		return wire.WakeResult{}, c.BadParam("/text", err.Error())
	}
	key, err := h.sessionOrMain(c, p.SessionKey, p.AgentID)
	if err != nil {
		return wire.WakeResult{}, err
	}
	if err := h.mayUse(ctx, c, key); err != nil {
		return wire.WakeResult{}, err
	}
	m := message(c, key, p.Text, p.IdempotencyKey)
	m.ID = newMessageID()
	m.Content.System = true
	m.Content.Options.NoMerge = true
	if p.Mode == "next-heartbeat" {
		if err := h.backend.Defer(ctx, m, c.Caller()); err != nil {
			return wire.WakeResult{}, err
		}
		return wire.WakeResult{OK: true}, nil
	}
	receipt, err := h.backend.ReceiveFrom(ctx, m, c.Caller())
	if err != nil {
		return wire.WakeResult{}, err
	}
	return wire.WakeResult{OK: true, RunID: chat.ShownRunID(receipt.RunID)}, nil
}
