package gateway

import (
	"cmp"
	"context"
	"errors"
	"time"

	"laneway/internal/chat"
	"laneway/internal/gateway/strictjson"
	"laneway/internal/store"
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

type sessionRow struct {
	Key                string   `json:"key"`
	SessionID          string   `json:"sessionId,omitempty"`
	Kind               string   `json:"kind"`
	AgentID            string   `json:"agentId"`
	IsMain             bool     `json:"isMain"`
	Channel            string   `json:"channel,omitempty"`
	CreatedAt          int64    `json:"createdAt,omitempty"`
	UpdatedAt          *int64   `json:"updatedAt"`
	LastInteractionAt  int64    `json:"lastInteractionAt,omitempty"`
	Status             string   `json:"status,omitempty"`
	LastRunID          string   `json:"lastRunId,omitempty"`
	LastRunError       string   `json:"lastRunError,omitempty"`
	LastMessagePreview string   `json:"lastMessagePreview,omitempty"`
	TotalTokens        int      `json:"totalTokens,omitempty"`
	HasActiveRun       bool     `json:"hasActiveRun"`
	ActiveRunIDs       []string `json:"activeRunIds"`
	EffectiveQueueMode string   `json:"effectiveQueueMode"`
	QueueDepth         int      `json:"queueDepth"`
	Lane               string   `json:"lane"`
}

func rowOf(st chat.SessionStatus) sessionRow {
	row := sessionRow{
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

type sessionsListParams struct {
	_ struct{} `also:"requireLastInteraction,includeGlobal,includeUnknown,configuredAgentsOnly,includeDerivedTitles,includeLastMessage,label,boardFace,creatorId,ownerId,ownerFirst,involvingMe,involvingProfileId,includePeople,spawnedBy,archived"` //nolint:lll // one list

	Limit         *int64 `json:"limit" p:"min=1,max=200"`
	Offset        int64  `json:"offset" p:"min=0"`
	AgentID       string `json:"agentId" p:"min=1,max=64"`
	Search        string `json:"search" p:"max=256"`
	ActiveMinutes int64  `json:"activeMinutes" p:"min=1,max=5256000"`
	SortBy        string `json:"sortBy" p:"enum=updatedAt|lastInteractionAt"`
	HideCronRuns  bool   `json:"hideCronRuns"` // leaves out the sessions that runs of jobs have for themselves
}

type sessionsResult struct {
	TS           int64          `json:"ts"`
	Count        int            `json:"count"`
	TotalCount   int            `json:"totalCount"`
	LimitApplied int64          `json:"limitApplied"`
	Offset       int64          `json:"offset"`
	NextOffset   *int64         `json:"nextOffset"`
	HasMore      bool           `json:"hasMore"`
	Sessions     []sessionRow   `json:"sessions"`
	Defaults     map[string]any `json:"defaults"`
}

func sessionsList(ctx context.Context, c *call, p sessionsListParams) (any, error) {
	return c.listSessions(ctx, p)
}

func (c *call) listSessions(ctx context.Context, p sessionsListParams) (*sessionsResult, error) {
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
	out := &sessionsResult{
		TS: now.UnixMilli(), TotalCount: total, LimitApplied: int64(f.Limit), Offset: p.Offset,
		Sessions: []sessionRow{}, Defaults: map[string]any{},
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

type describeParams struct {
	_   struct{} `also:"includeDerivedTitles,includeLastMessage"`
	Key string   `json:"key" p:"required,min=1,max=512"`
}

type describeResult struct {
	Session *sessionRow `json:"session"`
}

func (c *call) sessionNamed(key string) (chat.SessionKey, error) {
	out, err := chat.ParseSessionKey(key, c.srv.backend.DefaultAgent())
	if err != nil {
		return out, c.badParam("/key", err.Error())
	}
	return out, nil
}

func sessionsDescribe(ctx context.Context, c *call, p describeParams) (any, error) {
	key, err := c.sessionNamed(p.Key)
	if err != nil {
		return nil, err
	}
	if err := c.lookAt(ctx, key); err != nil {
		return nil, err
	}
	st, err := c.reader().Session(ctx, key, c.visible())
	if errors.Is(err, chat.ErrSessionNotFound) {
		return describeResult{}, nil
	}
	if err != nil {
		return nil, err
	}
	row := rowOf(st)
	return describeResult{&row}, nil
}

type subscribeResult struct {
	Subscribed bool            `json:"subscribed"`
	List       *sessionsResult `json:"list,omitempty"`
}

// sessionsSubscribe is in force before it is answered, and before the list is read: what happens in between is sent as an event.
func sessionsSubscribe(ctx context.Context, c *call, p sessionsListParams) (any, error) {
	if c.conn != nil {
		c.srv.hub.Subscribe(c.conn)
	}
	out := subscribeResult{Subscribed: true}
	if len(c.raw) <= len("{}") || string(c.raw) == "null" {
		return out, nil
	}
	list, err := c.listSessions(ctx, p)
	out.List = list
	return out, err
}

type resetParams struct {
	Key            string `json:"key" p:"required,min=1,max=512"`
	AgentID        string `json:"agentId" p:"min=1"`
	Reason         string `json:"reason" p:"enum=new|reset"`
	IdempotencyKey string `json:"idempotencyKey" p:"min=1,max=128"`
}

type resetResult struct {
	OK    bool       `json:"ok"`
	Key   string     `json:"key"`
	Entry resetEntry `json:"entry"`
}

type resetEntry struct {
	SessionID string `json:"sessionId"`
}

func sessionsReset(ctx context.Context, c *call, p resetParams) (any, error) {
	key, o, err := c.change(p.Key, p.AgentID, p.IdempotencyKey)
	if err != nil {
		return nil, err
	}
	if err := c.mayUse(ctx, key); err != nil {
		return nil, err
	}
	id, err := c.srv.backend.Reset(ctx, key, c.caller(), o)
	if err != nil {
		return nil, err
	}
	return resetResult{OK: true, Key: key.String(), Entry: resetEntry{id}}, nil
}

type deleteParams struct {
	_                 struct{} `also:"expectedLifecycleRevision,expectedSessionUpdatedAt,emitLifecycleHooks,archivedOnly"`
	Key               string   `json:"key" p:"required,min=1,max=512"`
	AgentID           string   `json:"agentId" p:"min=1"`
	DeleteTranscript  *bool    `json:"deleteTranscript"`
	ExpectedSessionID string   `json:"expectedSessionId" p:"min=1,max=128"`
	IdempotencyKey    string   `json:"idempotencyKey" p:"min=1,max=128"`
}

type deleteResult struct {
	OK       bool     `json:"ok"`
	Key      string   `json:"key"`
	Deleted  bool     `json:"deleted"`
	Archived []string `json:"archived"`
}

func sessionsDelete(ctx context.Context, c *call, p deleteParams) (any, error) {
	key, o, err := c.change(p.Key, p.AgentID, p.IdempotencyKey)
	if err != nil {
		return nil, err
	}
	out := deleteResult{OK: true, Key: key.String(), Archived: []string{}}
	if err := c.lookAt(ctx, key); err != nil || c.hidden {
		return out, err
	}
	did, err := c.srv.backend.Delete(ctx, store.DeleteParams{
		Session: key, ExpectID: p.ExpectedSessionID, KeepTranscript: p.DeleteTranscript != nil && !*p.DeleteTranscript, IdempotencyKey: o,
	}, c.caller())
	if err != nil {
		return nil, err
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
