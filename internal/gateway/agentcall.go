package gateway

import (
	"cmp"
	"context"
	"encoding/json"
	"time"

	"laneway/internal/chat"
	"laneway/internal/gateway/fault"
)

type agentParams struct {
	_ struct{} `also:"provider,replyTo,expectedExistingSessionId,replyAccountId,groupId,groupChannel,groupSpace,cwd,cleanupBundleMcpOnRunEnd,modelRun,promptMode,bootstrapContextMode,bootstrapContextRunKind,acpTurnSource,internalRuntimeHandoffId,internalExecutionIdentityRetry,internalExecutionIdentityRecoveryAttempt,execApprovalFollowupExpectedSessionId,internalEvents,inputProvenance,suppressPromptPersistence,sessionEffects,sourceReplyDeliveryMode,disableMessageTool,swarmCollector,swarmOutputSchema,forceRestartSafeTools,forceCodeModeTools,voiceWakeTrigger"` //nolint:lll // one list

	Message           string            `json:"message" p:"required,min=1,max=262144,bytes"`
	IdempotencyKey    string            `json:"idempotencyKey" p:"required,min=1,max=128"`
	SessionKey        string            `json:"sessionKey" p:"max=512"`
	AgentID           string            `json:"agentId" p:"min=1"`
	SessionID         string            `json:"sessionId"`
	Timeout           *int64            `json:"timeout" p:"min=0,max=86400"`
	Lane              string            `json:"lane" p:"max=64"`
	Deliver           bool              `json:"deliver"`
	Channel           string            `json:"channel" p:"max=128"`
	ReplyChannel      string            `json:"replyChannel" p:"max=128"`
	To                string            `json:"to" p:"max=256"`
	AccountID         string            `json:"accountId" p:"max=128"`
	ThreadID          string            `json:"threadId" p:"max=128"`
	BestEffortDeliver bool              `json:"bestEffortDeliver"`
	Model             string            `json:"model" p:"max=256"`
	Thinking          string            `json:"thinking" p:"max=64"`
	ExtraSystemPrompt string            `json:"extraSystemPrompt" p:"max=65536,bytes"`
	Label             string            `json:"label" p:"min=1,max=512"`
	Attachments       []json.RawMessage `json:"attachments"`
}

type agentAccepted struct {
	RunID      string `json:"runId"`
	Status     string `json:"status"`
	AcceptedAt int64  `json:"acceptedAt"`
	SessionKey string `json:"sessionKey"`
	AgentID    string `json:"agentId"`
}

type agentEnd struct {
	RunID   string      `json:"runId"`
	Status  string      `json:"status"`
	Summary string      `json:"summary"`
	Result  agentResult `json:"result"`
}

type agentResult struct {
	Payloads []agentText `json:"payloads"`
	Meta     agentMeta   `json:"meta"`
}

type agentText struct {
	Text string `json:"text"`
}

type agentMeta struct {
	DurationMs int64 `json:"durationMs"`
	WaitedMs   int64 `json:"waitedMs"`
}

// agentCall runs one turn of an agent: the first frame says that the message is durable, the second how the run ended.
func agentCall(ctx context.Context, c *call, p agentParams) (any, error) {
	if err := c.checkText(p.Message, p.Attachments, p.IdempotencyKey); err != nil {
		return nil, err
	}
	key, err := c.sessionOrMain(p.SessionKey, p.AgentID)
	if err != nil {
		return nil, err
	}
	if err := c.mayUse(ctx, key); err != nil {
		return nil, err
	}
	m := c.message(key, p.Message, p.IdempotencyKey)
	m.Lane = p.Lane
	m.Content.Options = chat.Options{
		NoMerge: true, TimeoutMs: turnLimit(p.Timeout, time.Second), Model: p.Model, Thinking: p.Thinking, SystemPrompt: p.ExtraSystemPrompt,
	}
	if p.Deliver {
		if m.Content.Options.ReplyTo, err = c.replyTo(ctx, p.target(key), key); err != nil {
			return nil, err
		}
	}
	receipt, err := c.receive(ctx, m)
	if err != nil {
		return nil, err
	}
	first := agentAccepted{chat.ShownRunID(receipt.RunID), "accepted", receipt.AcceptedAt.UnixMilli(), receipt.Session.String(), receipt.Session.Agent}
	return twice{first: first, then: func(ctx context.Context) (any, error) {
		end, err := c.srv.backend.Wait(ctx, receipt.RunID)
		if err != nil {
			return nil, err
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
func (p *agentParams) target(key chat.SessionKey) chat.Target {
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
func endOf(end chat.RunEnd) (any, error) {
	if err := fault.OfRun(end); err != nil {
		return nil, err
	}
	return agentEnd{
		RunID: chat.ShownRunID(end.RunID), Status: "ok", Summary: "completed",
		Result: agentResult{[]agentText{{end.Text}}, agentMeta{end.Duration.Milliseconds(), end.Waited.Milliseconds()}},
	}, nil
}

type wakeParams struct {
	_              struct{} `open:"true"`
	Mode           string   `json:"mode" p:"required,enum=now|next-heartbeat"`
	Text           string   `json:"text" p:"required,min=1,max=65536,bytes"`
	SessionKey     string   `json:"sessionKey" p:"min=1,max=512"`
	AgentID        string   `json:"agentId" p:"min=1"`
	IdempotencyKey string   `json:"idempotencyKey" p:"min=1,max=128"`
}

type wakeResult struct {
	OK    bool   `json:"ok"`
	RunID string `json:"runId,omitempty"`
}

// wake says something to a session in the name of the system.
func wake(ctx context.Context, c *call, p wakeParams) (any, error) {
	if err := c.checkKey(p.IdempotencyKey, false); err != nil {
		return nil, err
	}
	if err := chat.CheckText("text", p.Text, 65_536); err != nil {
		return nil, c.badParam("/text", err.Error())
	}
	key, err := c.sessionOrMain(p.SessionKey, p.AgentID)
	if err != nil {
		return nil, err
	}
	if err := c.mayUse(ctx, key); err != nil {
		return nil, err
	}
	m := c.message(key, p.Text, p.IdempotencyKey)
	m.ID = newMessageID()
	m.Content.System = true
	m.Content.Options.NoMerge = true
	if p.Mode == "next-heartbeat" {
		if err := c.srv.backend.Defer(ctx, m, c.caller()); err != nil {
			return nil, err
		}
		return wakeResult{OK: true}, nil
	}
	receipt, err := c.srv.backend.ReceiveFrom(ctx, m, c.caller())
	if err != nil {
		return nil, err
	}
	return wakeResult{OK: true, RunID: chat.ShownRunID(receipt.RunID)}, nil
}
