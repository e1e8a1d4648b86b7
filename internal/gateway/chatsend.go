package gateway

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"laneway/internal/chat"
	"laneway/internal/gateway/auth"
	"laneway/internal/gateway/fault"
	"laneway/internal/gateway/strictjson"
	"laneway/internal/store"
	"laneway/internal/wire"
)

const (
	maxTurn      = 24 * time.Hour
	abortAnswers = 5 * time.Second // a wait for something that has ended already
)

func chatMethods() []*method {
	return []*method{
		define("chat.send", chat.ScopeWrite, chatSend, limited(auth.LimitChats)),
		define("chat.abort", chat.ScopeWrite, chatAbort, control),
		define("chat.history", chat.ScopeRead, chatHistory, lists),
		define("agent", chat.ScopeWrite, agentCall, limited(auth.LimitChats)),
		define("wake", chat.ScopeWrite, wake, limited(auth.LimitCronWrites)),
	}
}

func chatSend(ctx context.Context, c *call, p wire.ChatSendParams) (wire.ChatSendResult, error) {
	key, err := c.session(p.SessionKey, p.AgentID)
	if err != nil {
		return wire.ChatSendResult{}, err
	}
	if err := c.checkText(p.Message, p.Attachments, p.IdempotencyKey); err != nil {
		return wire.ChatSendResult{}, err
	}
	if err := c.mayUse(ctx, key); err != nil {
		return wire.ChatSendResult{}, err
	}
	m := c.message(key, p.Message, p.IdempotencyKey)
	m.Content.Options.Mode = chat.QueueMode(p.QueueMode)
	m.Content.Options.Thinking = p.Thinking
	m.Content.Options.TimeoutMs = turnLimit(p.TimeoutMs, time.Millisecond)
	if p.Deliver {
		m.Content.Options.ReplyTo = key.Target()
	}
	receipt, err := c.receive(ctx, m)
	if err != nil {
		return wire.ChatSendResult{}, err
	}
	out := wire.ChatSendResult{RunID: chat.ShownRunID(receipt.RunID), Status: c.sendStatus(ctx, receipt)}
	if c.extended {
		out.Queued, out.Position = &receipt.Queued, &receipt.Position
	}
	return out, nil
}

// turnLimit reads a limit of the client: absent = the agent's default, 0 = the ceiling.
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

// sendStatus is how far a message is that is offered again.
func (c *call) sendStatus(ctx context.Context, r chat.Receipt) string {
	switch {
	case !r.Duplicate:
		return "started"
	case r.State != store.StateDone:
		return "in_flight"
	case r.Outcome == chat.OutcomeAnswered || r.Outcome == chat.OutcomeMerged:
		return "ok"
	case r.Outcome == chat.OutcomeFailed && c.endedByTime(ctx, r.RunID):
		return "timeout"
	default:
		return "error"
	}
}

func (c *call) endedByTime(ctx context.Context, run string) bool {
	ctx, cancel := context.WithTimeout(ctx, abortAnswers)
	defer cancel()
	end, err := c.srv.backend.Wait(ctx, run)
	return err == nil && fault.TurnTimedOut(end.Reason)
}

// receive hands the message over. Before, the connection begins to follow its run, with the gate closed: nothing of the run goes
// out before the answer, however fast the run is.
func (c *call) receive(ctx context.Context, m chat.Message) (chat.Receipt, error) {
	open, added := c.follow(m.ID)
	receipt, err := c.srv.backend.ReceiveFrom(ctx, m, c.caller())
	ended := err == nil && receipt.Duplicate && receipt.State == store.StateDone
	// Out of time, the message may be accepted all the same. A connection that followed the run before this call goes on: its last event may be
	// published only after the run was found to have ended.
	if added && (ended || (err != nil && ctx.Err() == nil)) {
		c.srv.hub.Forget(c.conn, m.ID)
	}
	c.whenAnswered(open)
	return receipt, err
}

// follow makes the connection get the events of a run once the returned function was called. added reports that it did not follow the run before.
func (c *call) follow(run string) (open func(), added bool) {
	if c.conn == nil {
		return func() {}, false
	}
	c.conn.Gate(run)
	added = c.srv.hub.Follow(c.conn, run)
	return func() { c.conn.OpenGate(run) }, added
}

func (c *call) caller() Caller {
	by := Caller{Principal: c.principal(), Scopes: c.who.scopes, Own: c.who.cred.Own(), RequestID: c.requestID}
	if c.peer.IsValid() {
		by.Peer = c.peer.String()
	}
	return by
}

// message is a message of this caller whose id and idempotency key are key.
func (c *call) message(session chat.SessionKey, text, key string) chat.Message {
	m := chat.Message{
		Session: session, ID: chat.RunIDOf(c.principal(), key), Principal: c.principal(), Channel: webChannel,
		Content: chat.Content{Text: text, Sender: chat.Sender{ID: c.principal()}},
	}
	if key != "" {
		m.Dedupe, m.ParamsHash = c.dedupe(key), paramsHash(c.raw)
	}
	return m
}

func (c *call) dedupe(key string) string { return c.principal() + "/" + c.m.name + "/" + key }

// paramsHash tells one call from another with the same key: a digest of the canonical JSON of all other params.
func paramsHash(raw json.RawMessage) string {
	var members map[string]any
	dec := json.NewDecoder(strings.NewReader(string(raw)))
	dec.UseNumber()
	if err := dec.Decode(&members); err != nil {
		members = nil // absent params; anything else was refused before
	}
	delete(members, "idempotencyKey")
	sum := sha256.Sum256(strictjson.Encode(members)) // encoding/json sorts the names
	return hex.EncodeToString(sum[:])
}

// session reads the session key of a call; agentID, if given, must be its agent.
func (c *call) session(key, agentID string) (chat.SessionKey, error) {
	out, err := chat.ParseSessionKey(key, c.srv.backend.DefaultAgent())
	if err != nil {
		return out, c.badParam("/sessionKey", err.Error())
	}
	if agentID != "" && agentID != out.Agent {
		return out, c.badParam("/agentId", "does not match the agent of the session key")
	}
	return out, nil
}

func (c *call) checkText(text string, attachments []json.RawMessage, key string) error {
	switch {
	case strings.TrimSpace(text) == "":
		return c.badParam("/message", "must not be blank")
	case len(attachments) > 0:
		return c.badParam("/attachments", "attachments are not supported")
	}
	return c.checkKey(key, true)
}

// checkKey checks an idempotency key. One that becomes the id of a run must not look like the id of a cron fire.
func (c *call) checkKey(key string, run bool) error {
	if key == "" {
		return nil
	}
	if err := chat.CheckMessageID("idempotencyKey", key); err != nil {
		return c.badParam("/idempotencyKey", "must be 1 to 128 printable ASCII characters without blanks")
	}
	if run && strings.Contains(key, ":") {
		return c.badParam("/idempotencyKey", "must not contain ':'")
	}
	return nil
}

func chatAbort(ctx context.Context, c *call, p wire.ChatAbortParams) (wire.ChatAbortResult, error) {
	key, err := c.session(p.SessionKey, p.AgentID)
	if err != nil {
		return wire.ChatAbortResult{}, err
	}
	if err := c.lookAt(ctx, key); err != nil {
		return wire.ChatAbortResult{}, err
	}
	if c.hidden {
		return wire.ChatAbortResult{OK: true, RunIDs: []string{}}, nil
	}
	stop := store.StopParams{Session: key, Scope: store.StopOne, By: c.principal(), Reason: "stop"}
	var ids []string
	switch {
	case p.RunID != "":
		stop.Scope = store.StopRun
		ids, err = c.abortRun(ctx, stop, p.RunID)
	case p.All:
		stop.Scope, stop.Reason = store.StopAll, "stopall"
		fallthrough
	default:
		ids, err = c.srv.backend.Stop(ctx, stop)
	}
	if err != nil {
		return wire.ChatAbortResult{}, err
	}
	return wire.ChatAbortResult{OK: true, Aborted: len(ids) > 0, RunIDs: shownRuns(ids)}, nil
}

// abortRun stops the run of a session that callers see under an id: the caller's own or one of that very id, which needs nothing to be read; else the
// one of another principal that runs there or is among the first that wait.
func (c *call) abortRun(ctx context.Context, stop store.StopParams, id string) ([]string, error) {
	own := chat.RunIDOf(c.principal(), id)
	for _, run := range slices.Compact([]string{own, id}) {
		stop.MessageID = run
		if ids, err := c.srv.backend.Stop(ctx, stop); err != nil || len(ids) > 0 {
			return ids, err
		}
	}
	if c.visible() != "" {
		return nil, nil
	}
	st, err := c.srv.backend.Session(ctx, stop.Session, "")
	if errors.Is(err, chat.ErrSessionNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	waiting, _, err := c.srv.backend.PendingInputs(ctx, stop.Session, 0, maxPending)
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
	return c.srv.backend.Stop(ctx, stop)
}

// shownRuns are ids of runs as callers see them; never nil.
func shownRuns(ids []string) []string {
	shown := make([]string, 0, len(ids))
	for _, id := range ids {
		shown = append(shown, chat.ShownRunID(id))
	}
	return shown
}

func newMessageID() string { return uuid.Must(uuid.NewV7()).String() }
