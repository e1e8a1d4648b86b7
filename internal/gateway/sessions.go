package gateway

import (
	"cmp"
	"context"
	"errors"
	"time"

	"laneway/internal/chat"
	"laneway/internal/gateway/strictjson"
	"laneway/internal/store"
	"laneway/internal/wire"
)

const sessionsLimit = 50

func sessionMethods() []*method {
	return []*method{
		define("sessions.list", chat.ScopeRead, sessionsList, lists),
		define("sessions.describe", chat.ScopeRead, sessionsDescribe),
		define("sessions.subscribe", chat.ScopeRead, sessionsSubscribe, lists),
		define("sessions.reset", chat.ScopeAdmin, sessionsReset, audited, orOwner),
		define("sessions.delete", chat.ScopeAdmin, sessionsDelete, audited),
	}
}

func rowOf(st chat.SessionStatus) wire.SessionRow {
	row := wire.SessionRow{
		Key: st.Key.String(), SessionID: st.SessionID, Kind: st.Key.Kind(), AgentID: st.Key.Agent, IsMain: st.Key.Rest == "main",
		Channel: st.Key.Channel(), CreatedAt: millis(st.CreatedAt), LastInteractionAt: millis(st.LastMessageAt), Status: st.Status,
		LastRunID: chat.ShownRunID(st.LastRunID), LastRunError: st.LastError, LastMessagePreview: st.LastPreview, TotalTokens: st.TotalTokens,
		HasActiveRun: len(st.ActiveRuns) > 0, ActiveRunIDs: shownRuns(st.ActiveRuns), EffectiveQueueMode: string(st.Mode), QueueDepth: st.QueueDepth,
		Lane: cmp.Or(st.Lane, "main"),
	}
	if row.EffectiveQueueMode == "" {
		row.EffectiveQueueMode = string(chat.ModeQueue)
	}
	if !st.UpdatedAt.IsZero() {
		ms := st.UpdatedAt.UnixMilli()
		row.UpdatedAt = &ms
	}
	return row
}

func millis(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}

func sessionsList(ctx context.Context, c *call, p wire.SessionsListParams) (*wire.SessionsListResult, error) {
	return c.listSessions(ctx, p)
}

func (c *call) listSessions(ctx context.Context, p wire.SessionsListParams) (*wire.SessionsListResult, error) {
	now := time.Now()
	f := store.SessionFilter{
		Visible: c.visible(), Agent: p.AgentID, Search: p.Search, ByLastMessage: p.SortBy == "lastInteractionAt",
		NoCronRuns: p.HideCronRuns, Limit: int(orElse(p.Limit, sessionsLimit)), Offset: int(p.Offset),
	}
	if p.ActiveMinutes > 0 {
		f.ActiveSince = now.Add(-time.Duration(p.ActiveMinutes) * time.Minute)
	}
	list, total, err := c.srv.backend.Sessions(ctx, f)
	if err != nil {
		return nil, err
	}
	out := &wire.SessionsListResult{
		TS: now.UnixMilli(), TotalCount: total, LimitApplied: int64(f.Limit), Offset: p.Offset,
		Sessions: []wire.SessionRow{}, Defaults: map[string]any{},
	}
	size, read := 0, 0
	for _, st := range list {
		row := rowOf(st)
		if size += len(strictjson.Encode(row)); size > listBytes && len(out.Sessions) > 0 {
			break
		}
		read++
		if f.Visible == "" || st.Key.UsableBy(f.Visible, st.Principal, true) { // made by this caller, perhaps, but not for it
			out.Sessions = append(out.Sessions, row)
		}
	}
	out.Count = len(out.Sessions)
	if next := p.Offset + int64(read); read > 0 && next < int64(total) {
		out.HasMore, out.NextOffset = true, &next
	}
	return out, nil
}

func (c *call) sessionNamed(key string) (chat.SessionKey, error) {
	out, err := chat.ParseSessionKey(key, c.srv.backend.DefaultAgent())
	if err != nil {
		return out, c.badParam("/key", err.Error())
	}
	return out, nil
}

func sessionsDescribe(ctx context.Context, c *call, p wire.SessionsDescribeParams) (wire.SessionsDescribeResult, error) {
	key, err := c.sessionNamed(p.Key)
	if err != nil {
		return wire.SessionsDescribeResult{}, err
	}
	if err := c.lookAt(ctx, key); err != nil {
		return wire.SessionsDescribeResult{}, err
	}
	st, err := c.reader().Session(ctx, key, c.visible())
	if errors.Is(err, chat.ErrSessionNotFound) {
		return wire.SessionsDescribeResult{}, nil
	}
	if err != nil {
		return wire.SessionsDescribeResult{}, err
	}
	row := rowOf(st)
	return wire.SessionsDescribeResult{Session: &row}, nil
}

// sessionsSubscribe is in force before it is answered, and before the list is read: what happens in between is sent as an event.
func sessionsSubscribe(ctx context.Context, c *call, p wire.SessionsListParams) (wire.SessionsSubscribeResult, error) {
	if c.conn != nil {
		c.srv.hub.Subscribe(c.conn)
	}
	out := wire.SessionsSubscribeResult{Subscribed: true}
	if len(c.raw) <= len("{}") || string(c.raw) == "null" {
		return out, nil
	}
	list, err := c.listSessions(ctx, p)
	out.List = list
	return out, err
}

func sessionsReset(ctx context.Context, c *call, p wire.SessionsResetParams) (wire.SessionsResetResult, error) {
	key, o, err := c.change(p.Key, p.AgentID, p.IdempotencyKey)
	if err != nil {
		return wire.SessionsResetResult{}, err
	}
	if err := c.mayUse(ctx, key); err != nil {
		return wire.SessionsResetResult{}, err
	}
	id, err := c.srv.backend.Reset(ctx, key, c.caller(), o)
	if err != nil {
		return wire.SessionsResetResult{}, err
	}
	return wire.SessionsResetResult{OK: true, Key: key.String(), Entry: wire.ResetEntry{SessionID: id}}, nil
}

func sessionsDelete(ctx context.Context, c *call, p wire.SessionsDeleteParams) (wire.SessionsDeleteResult, error) {
	key, o, err := c.change(p.Key, p.AgentID, p.IdempotencyKey)
	if err != nil {
		return wire.SessionsDeleteResult{}, err
	}
	out := wire.SessionsDeleteResult{OK: true, Key: key.String(), Archived: []string{}}
	if err := c.lookAt(ctx, key); err != nil || c.hidden {
		return out, err
	}
	did, err := c.srv.backend.Delete(ctx, store.DeleteParams{
		Session: key, ExpectID: p.ExpectedSessionID, KeepTranscript: p.DeleteTranscript != nil && !*p.DeleteTranscript, IdempotencyKey: o,
	}, c.caller())
	if err != nil {
		return wire.SessionsDeleteResult{}, err
	}
	out.Deleted = did.Deleted
	if did.Kept != "" {
		out.Archived = append(out.Archived, did.Kept)
	}
	return out, nil
}

// change reads what all changes of a session have in common: which one, and the name of the call.
func (c *call) change(name, agentID, key string) (session chat.SessionKey, o *chat.IdempotencyKey, err error) {
	if session, err = c.sessionNamed(name); err != nil {
		return session, nil, err
	}
	if agentID != "" && agentID != session.Agent {
		return session, nil, c.badParam("/agentId", "does not match the agent of the session key")
	}
	o, err = c.onceOf(key)
	return session, o, err
}

// onceOf is the name of a call with an idempotency key, for the store; nil when it has none.
func (c *call) onceOf(key string) (*chat.IdempotencyKey, error) {
	if key == "" {
		return nil, nil //nolint:nilnil // a call without a name is no error
	}
	if err := c.checkKey(key, false); err != nil {
		return nil, err
	}
	return &chat.IdempotencyKey{Owner: c.principal(), Method: c.m.name, Key: key, Hash: paramsHash(c.raw)}, nil
}
