package conversation

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"laneway/internal/chat"
	"laneway/internal/gateway/auth"
	"laneway/internal/gateway/fault"
	"laneway/internal/gateway/rpc"
	"laneway/internal/store"
	"laneway/internal/wire"
)

const (
	maxTurn      = 24 * time.Hour
	abortAnswers = 5 * time.Second // a wait for a run that has already ended
)

func (h handlers) messages() []*rpc.Method {
	return []*rpc.Method{
		rpc.Define("chat.send", chat.ScopeWrite, h.chatSend, rpc.Limited(auth.LimitChats), rpc.InOrder),
		rpc.Define("chat.abort", chat.ScopeWrite, h.chatAbort, rpc.Control),
		rpc.Define("chat.history", chat.ScopeRead, h.chatHistory, rpc.Lists),
		rpc.Define("agent", chat.ScopeWrite, h.agentCall, rpc.Limited(auth.LimitChats), rpc.InOrder),
		rpc.Define("wake", chat.ScopeWrite, h.wake, rpc.Limited(auth.LimitCronWrites), rpc.InOrder),
	}
}

func (h handlers) chatSend(ctx context.Context, c *rpc.Call, p wire.ChatSendParams) (wire.ChatSendResult, error) {
	key, err := h.session(c, p.SessionKey, p.AgentID)
	if err != nil {
		return wire.ChatSendResult{}, err
	}
	if err := checkText(c, p.Message, p.IdempotencyKey); err != nil {
		return wire.ChatSendResult{}, err
	}
	if err := h.mayUse(ctx, c, key); err != nil {
		return wire.ChatSendResult{}, err
	}
	m := message(c, key, p.Message, p.IdempotencyKey)
	if m.Content.Attachments, err = h.attachments(c, p.Attachments); err != nil {
		return wire.ChatSendResult{}, err
	}
	if p.ReplyTo > 0 {
		if m.Content.Answered, err = h.answered(ctx, c, key, p.ReplyTo); err != nil {
			return wire.ChatSendResult{}, err
		}
	}
	m.Content.Options.Mode = chat.QueueMode(p.QueueMode)
	m.Content.Options.Thinking = p.Thinking
	m.Content.Options.TimeoutMs = turnLimit(p.TimeoutMs, time.Millisecond)
	if p.Deliver {
		m.Content.Options.ReplyTo = key.Target()
	}
	receipt, err := h.receive(ctx, c, m)
	if err != nil {
		return wire.ChatSendResult{}, err
	}
	out := wire.ChatSendResult{RunID: chat.ShownRunID(receipt.RunID), Status: h.sendStatus(ctx, receipt)}
	if c.Extended {
		out.Queued, out.Position = &receipt.Queued, &receipt.Position
	}
	return out, nil
}

// answered returns an entry of the current transcript that a message answers.
func (h handlers) answered(ctx context.Context, c *rpc.Call, key chat.SessionKey, seq int64) (*chat.Answered, error) {
	tr, err := h.backend.Transcript(ctx, store.TranscriptQuery{Session: key, After: seq - 1, FromStart: true, Limit: 1})
	if err != nil {
		return nil, err
	}
	if len(tr.Entries) == 0 || tr.Entries[0].Seq != seq {
		return nil, c.BadParam("/replyTo", fmt.Sprintf("names message %d, which is not in this conversation", seq))
	}
	e := tr.Entries[0]
	a := &chat.Answered{Message: e.RunID, Run: e.RunID, Author: cmp.Or(e.Sender.Name, e.Sender.ID), Text: e.Text, Ours: e.Role != chat.RoleUser, Own: e.Role == chat.RoleUser && e.Sender.ID == c.Principal()}
	a.Outside = e.Outside || !a.Ours && !a.Own
	if e.Origin != nil {
		a.Origin = e.Origin.Who()
	}
	return a.Bound(), nil
}

// turnLimit parses a limit of the client: absent = the agent's default, 0 = the maximum.
func turnLimit(v *int64, unit time.Duration) int64 {
	switch {
	case v == nil:
		return 0
	case *v == 0:
		return maxTurn.Milliseconds()
	default:
		return *v * unit.Milliseconds()
	}
}

// sendStatus returns the progress of a message that is sent again.
func (h handlers) sendStatus(ctx context.Context, r chat.Receipt) string {
	switch {
	case !r.Duplicate:
		return "started"
	case r.State != store.StateDone:
		return "in_flight"
	case r.Outcome == chat.OutcomeAnswered || r.Outcome == chat.OutcomeMerged:
		return "ok"
	case r.Outcome == chat.OutcomeFailed && h.endedByTime(ctx, r.RunID):
		return "timeout"
	default:
		return "error"
	}
}

func (h handlers) endedByTime(ctx context.Context, run string) bool {
	ctx, cancel := context.WithTimeout(ctx, abortAnswers)
	defer cancel()
	end, err := h.backend.Wait(ctx, run)
	return err == nil && fault.TurnTimedOut(end.Reason)
}

// receive passes the message to the backend. Before that, the connection starts to follow its run,
// with the gate closed: no event of the run is sent before the answer, even if the run ends at
// once.
func (h handlers) receive(ctx context.Context, c *rpc.Call, m chat.Message) (chat.Receipt, error) {
	open, added := c.Events.Follow(m.ID)
	receipt, err := h.backend.ReceiveFrom(ctx, m, c.Caller())
	ended := err == nil && receipt.Duplicate && receipt.State == store.StateDone
	// After a timeout, the message may still be accepted. A connection that followed the run before
	// this call continues to follow it: the last event may be published only after the run was
	// found to have ended.
	if added && (ended || (err != nil && ctx.Err() == nil)) {
		c.Events.Forget(m.ID)
	}
	c.WhenAnswered(open)
	return receipt, err
}

// message returns a message of this caller with key as its id and idempotency key.
func message(c *rpc.Call, session chat.SessionKey, text, key string) chat.Message {
	m := chat.Message{
		Session: session, ID: chat.RunIDOf(c.Principal(), key), Principal: c.Principal(), Channel: wire.ChannelWeb,
		Content: chat.Content{Text: text, Sender: chat.Sender{ID: c.Principal()}},
	}
	if key != "" {
		m.Dedupe, m.ParamsHash = c.Dedupe(key), c.ParamsHash()
	}
	return m
}

// session parses the session key of a call; agentID, if given, must be its agent.
func (h handlers) session(c *rpc.Call, key, agentID string) (chat.SessionKey, error) {
	out, err := chat.ParseSessionKey(key, h.backend.DefaultAgent())
	if err != nil {
		return out, c.BadParam("/sessionKey", err.Error())
	}
	if agentID != "" && agentID != out.Agent {
		return out, c.BadParam("/agentId", "does not match the agent of the session key")
	}
	return out, nil
}

func checkText(c *rpc.Call, text, key string) error {
	if strings.TrimSpace(text) == "" {
		return c.BadParam("/message", "must not be blank")
	}
	return c.CheckKey(key, true)
}

// Files finds files that clients have uploaded.
type Files interface {
	// Use returns a file by its id, for a message that is about to name it; with own, only a
	// file of this principal. chat.ErrNotFound.
	Use(principal string, own bool, id string) (chat.Attachment, error)
}

// attachments returns the files that a call names.
func (h handlers) attachments(c *rpc.Call, named []wire.Attachment) ([]chat.Attachment, error) {
	if len(named) == 0 {
		return nil, nil
	}
	if h.files == nil {
		return nil, c.BadParam("/attachments", "this gateway keeps no files")
	}
	found := make([]chat.Attachment, 0, len(named))
	for i, f := range named {
		file, err := h.files.Use(c.Principal(), c.Cred.Own(), f.FileID)
		if errors.Is(err, chat.ErrNotFound) {
			return nil, c.BadParam(fmt.Sprintf("/attachments/%d/fileId", i), "there is no such file; send it with POST /v1/files first")
		}
		if err != nil {
			return nil, err
		}
		found = append(found, file)
	}
	return found, nil
}

func (h handlers) chatAbort(ctx context.Context, c *rpc.Call, p wire.ChatAbortParams) (wire.ChatAbortResult, error) {
	key, err := h.session(c, p.SessionKey, p.AgentID)
	if err != nil {
		return wire.ChatAbortResult{}, err
	}
	seen, err := h.lookAt(ctx, c, key)
	if err != nil {
		return wire.ChatAbortResult{}, err
	}
	if seen.hidden {
		return wire.ChatAbortResult{OK: true, RunIDs: []string{}}, nil
	}
	stop := store.StopParams{Session: key, Scope: store.StopOne, By: c.Principal(), Reason: "stop"}
	var ids []string
	switch {
	case p.RunID != "":
		stop.Scope = store.StopRun
		ids, err = h.abortRun(ctx, c, stop, p.RunID)
	case p.All:
		stop.Scope, stop.Reason = store.StopAll, "stopall"
		fallthrough
	default:
		ids, err = h.backend.Stop(ctx, stop)
	}
	if err != nil {
		return wire.ChatAbortResult{}, err
	}
	return wire.ChatAbortResult{OK: true, Aborted: len(ids) > 0, RunIDs: shownRuns(ids)}, nil
}

// abortRun stops the run of a session that callers see under an id. A run of the caller, or one
// with exactly this id, is found without a query. Otherwise it may be one of another principal that
// is running or is among the first that wait.
func (h handlers) abortRun(ctx context.Context, c *rpc.Call, stop store.StopParams, id string) ([]string, error) {
	own := chat.RunIDOf(c.Principal(), id)
	for _, run := range slices.Compact([]string{own, id}) {
		stop.MessageID = run
		if ids, err := h.backend.Stop(ctx, stop); err != nil || len(ids) > 0 {
			return ids, err
		}
	}
	if c.Visible() != "" {
		return nil, nil
	}
	st, err := h.backend.Session(ctx, stop.Session, "")
	if errors.Is(err, chat.ErrSessionNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	waiting, _, err := h.backend.PendingInputs(ctx, stop.Session, 0, maxPending)
	if err != nil {
		return nil, err
	}
	there := st.ActiveRuns
	for _, w := range waiting {
		there = append(there, w.MessageID)
	}
	i := slices.IndexFunc(there, func(run string) bool { return run != own && run != id && chat.ShownRunID(run) == id })
	if i < 0 {
		return nil, nil
	}
	stop.MessageID = there[i]
	return h.backend.Stop(ctx, stop)
}

// shownRuns returns ids of runs in the form for callers; never nil.
func shownRuns(ids []string) []string {
	shown := make([]string, 0, len(ids))
	for _, id := range ids {
		shown = append(shown, chat.ShownRunID(id))
	}
	return shown
}

// agentFrames are the two results of the method agent.
type agentFrames = rpc.Twice[wire.AgentResult]

// agentCall runs one turn of an agent: the first frame is sent when the message is durable, the
// second when the run has ended.
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

// agentTarget returns where the reply goes: the target that the caller named, or the place of the
// session.
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

// replyTo checks a target. On the web it must be a session that the caller may use; for the session
// of the turn, the answer is only added to the transcript. A caller that sees only its own data has
// no chat on any other channel.
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
	m.ID = uuid.Must(uuid.NewV7()).String()
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
