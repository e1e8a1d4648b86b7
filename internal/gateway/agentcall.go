package gateway

import (
	"cmp"
	"context"
	"time"

	"laneway/internal/chat"
	"laneway/internal/gateway/fault"
	"laneway/internal/wire"
)

// agentFrames are the two results of the method agent.
type agentFrames = twice[wire.AgentResult]

// agentCall runs one turn of an agent: the first frame says that the message is durable, the second how the run ended.
func agentCall(ctx context.Context, c *call, p wire.AgentParams) (agentFrames, error) {
	if err := c.checkText(p.Message, p.Attachments, p.IdempotencyKey); err != nil {
		return agentFrames{}, err
	}
	key, err := c.sessionOrMain(p.SessionKey, p.AgentID)
	if err != nil {
		return agentFrames{}, err
	}
	if err := c.mayUse(ctx, key); err != nil {
		return agentFrames{}, err
	}
	m := c.message(key, p.Message, p.IdempotencyKey)
	m.Lane = p.Lane
	m.Content.Options = chat.Options{
		NoMerge: true, TimeoutMs: turnLimit(p.Timeout, time.Second), Model: p.Model, Thinking: p.Thinking, SystemPrompt: p.ExtraSystemPrompt,
	}
	if p.Deliver {
		if m.Content.Options.ReplyTo, err = c.replyTo(ctx, agentTarget(&p, key), key); err != nil {
			return agentFrames{}, err
		}
	}
	receipt, err := c.receive(ctx, m)
	if err != nil {
		return agentFrames{}, err
	}
	first := wire.AgentAccepted{
		RunID: chat.ShownRunID(receipt.RunID), Status: "accepted", AcceptedAt: receipt.AcceptedAt.UnixMilli(), SessionKey: receipt.Session.String(), AgentID: receipt.Session.Agent,
	}
	return agentFrames{first: wire.AgentResult{Of: first}, then: func(ctx context.Context) (wire.AgentResult, error) {
		end, err := c.srv.backend.Wait(ctx, receipt.RunID)
		if err != nil {
			return wire.AgentResult{}, err
		}
		return endOf(end)
	}}, nil
}

func (c *call) sessionOrMain(key, agentID string) (chat.SessionKey, error) {
	if key != "" {
		return c.session(key, agentID)
	}
	if agentID == "" {
		agentID = c.srv.backend.DefaultAgent()
	}
	if !chat.ValidAgentID(agentID) {
		return chat.SessionKey{}, c.badParam("/agentId", "is not the id of an agent")
	}
	return chat.MainKey(agentID), nil
}

// target is where the reply goes: what the caller named, else the place of the session.
func agentTarget(p *wire.AgentParams, key chat.SessionKey) chat.Target {
	t := chat.Target{Channel: cmp.Or(p.ReplyChannel, p.Channel), ChatID: p.To, Thread: p.ThreadID}
	if t.Channel == "" || t.ChatID == "" {
		return key.Target()
	}
	if p.AccountID != "" && p.AccountID != defaultAccount {
		t.Channel += ":" + p.AccountID
	}
	return t
}

// replyTo checks a target: on the web it is a session that the caller may use, and nothing besides the transcript when it is the turn's own. A
// caller that sees its own only has no chat on any other channel.
func (c *call) replyTo(ctx context.Context, to chat.Target, own chat.SessionKey) (chat.Target, error) {
	switch {
	case to.Channel == webChannel:
	case c.visible() != "" && !to.IsZero():
		return chat.Target{}, chat.ForeignChat(to.Channel, to.ChatID)
	default:
		return to, nil
	}
	key, err := chat.ParseSessionKey(to.ChatID, own.Agent)
	if err != nil {
		return chat.Target{}, c.badParam("/to", err.Error())
	}
	if key == own {
		return chat.Target{}, nil
	}
	return chat.Target{Channel: webChannel, ChatID: key.String()}, c.mayUse(ctx, key)
}

// endOf is the second frame.
func endOf(end chat.RunEnd) (wire.AgentResult, error) {
	if err := fault.OfRun(end); err != nil {
		return wire.AgentResult{}, err
	}
	return wire.AgentResult{Of: wire.AgentEnd{
		RunID: chat.ShownRunID(end.RunID), Status: "ok", Summary: "completed",
		Result: wire.AgentAnswer{
			Payloads: []wire.AgentText{{Text: end.Text}}, Meta: wire.AgentMeta{DurationMs: end.Duration.Milliseconds(), WaitedMs: end.Waited.Milliseconds()},
		},
	}}, nil
}

// wake says something to a session in the name of the system.
func wake(ctx context.Context, c *call, p wire.WakeParams) (wire.WakeResult, error) {
	if err := c.checkKey(p.IdempotencyKey, false); err != nil {
		return wire.WakeResult{}, err
	}
	if err := chat.CheckText("text", p.Text, 65_536); err != nil {
		return wire.WakeResult{}, c.badParam("/text", err.Error())
	}
	key, err := c.sessionOrMain(p.SessionKey, p.AgentID)
	if err != nil {
		return wire.WakeResult{}, err
	}
	if err := c.mayUse(ctx, key); err != nil {
		return wire.WakeResult{}, err
	}
	m := c.message(key, p.Text, p.IdempotencyKey)
	m.ID = newMessageID()
	m.Content.System = true
	m.Content.Options.NoMerge = true
	if p.Mode == "next-heartbeat" {
		if err := c.srv.backend.Defer(ctx, m, c.caller()); err != nil {
			return wire.WakeResult{}, err
		}
		return wire.WakeResult{OK: true}, nil
	}
	receipt, err := c.srv.backend.ReceiveFrom(ctx, m, c.caller())
	if err != nil {
		return wire.WakeResult{}, err
	}
	return wire.WakeResult{OK: true, RunID: chat.ShownRunID(receipt.RunID)}, nil
}
