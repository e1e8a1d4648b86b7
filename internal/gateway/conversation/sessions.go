package conversation

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"regexp"
	"time"

	"laneway/internal/chat"
	"laneway/internal/gateway/auth"
	"laneway/internal/gateway/rpc"
	"laneway/internal/gateway/strictjson"
	"laneway/internal/store"
	"laneway/internal/wire"
	"laneway/internal/words"
)

const sessionsLimit = 50

func (h handlers) sessions() []*rpc.Method {
	return []*rpc.Method{
		rpc.Define("sessions.list", chat.ScopeRead, h.sessionsList, rpc.Lists),
		rpc.Define("sessions.describe", chat.ScopeRead, h.sessionsDescribe),
		rpc.Define("sessions.search", chat.ScopeRead, h.sessionsSearch, rpc.Lists),
		rpc.Define("sessions.subscribe", chat.ScopeRead, h.sessionsSubscribe, rpc.Lists),
		rpc.Define("sessions.unsubscribe", chat.ScopeRead, sessionsUnsubscribe),
		rpc.Define("sessions.reset", chat.ScopeAdmin, h.sessionsReset, rpc.Audited, rpc.OrOwner, rpc.Limited(auth.LimitChats), rpc.InOrder),
		rpc.Define("sessions.delete", chat.ScopeAdmin, h.sessionsDelete, rpc.Audited, rpc.Limited(auth.LimitChats), rpc.InOrder),
	}
}

func rowOf(st chat.SessionStatus, by chat.Caller) wire.SessionRow {
	row := wire.SessionRow{
		Key: st.Key.String(), SessionID: st.SessionID, Kind: st.Key.Kind(), AgentID: st.Key.Agent, IsMain: st.Key.Rest == "main",
		Channel: st.Key.Channel(), CreatedAt: rpc.Millis(st.CreatedAt), LastInteractionAt: rpc.Millis(st.LastMessageAt), Status: st.Status,
		LastRunID: chat.ShownRunID(st.LastRunID), LastRunError: st.LastError, LastMessagePreview: st.LastPreview, TotalTokens: st.TotalTokens,
		HasActiveRun: len(st.ActiveRuns) > 0, ActiveRunIDs: shownRuns(st.ActiveRuns), EffectiveQueueMode: string(st.Mode), QueueDepth: st.QueueDepth,
		Lane: cmp.Or(st.Lane, "main"), MayReset: by.MayChange(st.Key, st.Principal, !st.UpdatedAt.IsZero()),
	}
	row.EffectiveQueueMode = cmp.Or(row.EffectiveQueueMode, string(chat.ModeQueue))
	if !st.UpdatedAt.IsZero() {
		ms := st.UpdatedAt.UnixMilli()
		row.UpdatedAt = &ms
	}
	return row
}

func (h handlers) sessionsList(ctx context.Context, c *rpc.Call, p wire.SessionsListParams) (*wire.SessionsListResult, error) {
	now := time.Now()
	f := store.SessionFilter{
		Visible: c.Visible(), Agent: p.AgentID, Search: p.Search, ByLastMessage: p.SortBy == "lastInteractionAt",
		NoRuns: p.HideCronRuns, Limit: int(orElse(p.Limit, sessionsLimit)), Offset: int(p.Offset),
	}
	if p.ActiveMinutes > 0 {
		f.ActiveSince = now.Add(-time.Duration(p.ActiveMinutes) * time.Minute)
	}
	list, total, err := h.backend.Sessions(ctx, f)
	if err != nil {
		return nil, err
	}
	_, _, most := f.Bounds()
	out := &wire.SessionsListResult{
		TS: now.UnixMilli(), TotalCount: min(total, most), TotalIsLowerBound: total > most, LimitApplied: int64(f.Limit), Offset: p.Offset,
		Sessions: []wire.SessionRow{}, Defaults: map[string]any{},
	}
	size, read := 0, 0
	for _, st := range list {
		row := rowOf(st, c.Caller())
		if size += len(strictjson.Encode(row)); size > rpc.ListBytes && len(out.Sessions) > 0 {
			break
		}
		read++
		if f.Visible == "" || st.Key.UsableBy(f.Visible, st.Principal, true) { // the caller may have made it, but it belongs to another principal
			out.Sessions = append(out.Sessions, row)
		}
	}
	out.Count = len(out.Sessions)
	if next := p.Offset + int64(read); read > 0 && next < int64(total) {
		out.HasMore, out.NextOffset = true, &next
	}
	return out, nil
}

func (h handlers) sessionNamed(c *rpc.Call, key string) (chat.SessionKey, error) {
	out, err := chat.ParseSessionKey(key, h.backend.DefaultAgent())
	if err != nil {
		return out, c.BadParam("/key", err.Error())
	}
	return out, nil
}

func (h handlers) sessionsDescribe(ctx context.Context, c *rpc.Call, p wire.SessionsDescribeParams) (wire.SessionsDescribeResult, error) {
	key, err := h.sessionNamed(c, p.Key)
	if err != nil {
		return wire.SessionsDescribeResult{}, err
	}
	seen, err := h.lookAt(ctx, c, key)
	if err != nil {
		return wire.SessionsDescribeResult{}, err
	}
	st, err := seen.Session(ctx, key, c.Visible())
	if errors.Is(err, chat.ErrSessionNotFound) {
		return wire.SessionsDescribeResult{}, nil
	}
	if err != nil {
		return wire.SessionsDescribeResult{}, err
	}
	row := rowOf(st, c.Caller())
	return wire.SessionsDescribeResult{Session: &row}, nil
}

// sessionsSubscribe subscribes before it answers, and before it reads the list: changes in between
// are sent as events.
func (h handlers) sessionsSubscribe(ctx context.Context, c *rpc.Call, p wire.SessionsSubscribeParams) (wire.SessionsSubscribeResult, error) {
	var of chat.SessionKey
	if p.DeltasOf != "" {
		var err error
		if of, err = chat.ParseSessionKey(p.DeltasOf, h.backend.DefaultAgent()); err != nil {
			return wire.SessionsSubscribeResult{}, c.BadParam("/deltasOf", err.Error())
		}
	}
	c.Events.Subscribe(orElse(p.Deltas, true), of)
	out := wire.SessionsSubscribeResult{Subscribed: true}
	if !listed(c.Raw) {
		return out, nil
	}
	list, err := h.sessionsList(ctx, c, p.SessionsListParams)
	out.List = list
	return out, err
}

// listed reports whether a subscription also has the parameters of a list.
func listed(raw json.RawMessage) bool {
	var members map[string]json.RawMessage
	_ = json.Unmarshal(raw, &members) // it was parsed before
	delete(members, "deltas")
	delete(members, "deltasOf")
	return len(members) > 0
}

// sessionsUnsubscribe unsubscribes before it answers: no event of a session is queued after the
// answer.
func sessionsUnsubscribe(_ context.Context, c *rpc.Call, _ wire.NoParams) (wire.SessionsUnsubscribeResult, error) {
	c.Events.Unsubscribe()
	return wire.SessionsUnsubscribeResult{Subscribed: false}, nil
}

func (h handlers) sessionsReset(ctx context.Context, c *rpc.Call, p wire.SessionsResetParams) (wire.SessionsResetResult, error) {
	key, o, err := h.change(c, p.Key, p.AgentID, p.IdempotencyKey)
	if err != nil {
		return wire.SessionsResetResult{}, err
	}
	if err := h.mayUse(ctx, c, key); err != nil {
		return wire.SessionsResetResult{}, err
	}
	id, err := h.backend.Reset(ctx, key, c.Caller(), o)
	if err != nil {
		return wire.SessionsResetResult{}, err
	}
	return wire.SessionsResetResult{OK: true, Key: key.String(), Entry: wire.ResetEntry{SessionID: id}}, nil
}

func (h handlers) sessionsDelete(ctx context.Context, c *rpc.Call, p wire.SessionsDeleteParams) (wire.SessionsDeleteResult, error) {
	key, o, err := h.change(c, p.Key, p.AgentID, p.IdempotencyKey)
	if err != nil {
		return wire.SessionsDeleteResult{}, err
	}
	out := wire.SessionsDeleteResult{OK: true, Key: key.String(), Archived: []string{}}
	if seen, err := h.lookAt(ctx, c, key); err != nil || seen.hidden {
		return out, err
	}
	did, err := h.backend.Delete(ctx, store.DeleteParams{
		Session: key, ExpectID: p.ExpectedSessionID, KeepTranscript: p.DeleteTranscript != nil && !*p.DeleteTranscript, Branches: p.DeleteBranches,
		IdempotencyKey: o,
	}, c.Caller())
	if err != nil {
		return wire.SessionsDeleteResult{}, err
	}
	out.Deleted = did.Deleted
	if did.Kept != "" {
		out.Archived = append(out.Archived, did.Kept)
	}
	return out, nil
}

// change parses the common parameters of all changes of a session: the session and the idempotency
// key.
func (h handlers) change(c *rpc.Call, name, agentID, key string) (session chat.SessionKey, o *chat.IdempotencyKey, err error) {
	if session, err = h.sessionNamed(c, name); err != nil {
		return session, nil, err
	}
	if agentID != "" && agentID != session.Agent {
		return session, nil, c.BadParam("/agentId", "does not match the agent of the session key")
	}
	o, err = c.Once(key)
	return session, o, err
}

func (h handlers) sessionsSearch(ctx context.Context, c *rpc.Call, p wire.SessionsSearchParams) (wire.SessionsSearchResult, error) {
	out := wire.SessionsSearchResult{Hits: []wire.SearchHit{}}
	q, err := h.searchQuery(c, p)
	if err != nil {
		return out, err
	}
	if p.Key != "" {
		if seen, err := h.lookAt(ctx, c, q.Session); err != nil || seen.hidden {
			return out, err
		}
	}
	found, err := h.backend.Search(ctx, q)
	if err != nil {
		return out, err
	}
	size := 0
	for _, hit := range found.Hits {
		row := hitOf(hit)
		if size += len(strictjson.Encode(row)); size > rpc.ListBytes && len(out.Hits) > 0 {
			found.More, found.Back = true, hit.Entry.At
			break
		}
		if q.Visible == "" || hit.Session.UsableBy(q.Visible, hit.Principal, true) { // the caller may have made it, but it belongs to another principal
			out.Hits = append(out.Hits, row)
		}
	}
	out.Count = len(out.Hits)
	if found.More {
		back := found.Back.UnixMilli()
		out.HasMore, out.NextUntilMs = true, &back
	}
	return out, nil
}

func (h handlers) searchQuery(c *rpc.Call, p wire.SessionsSearchParams) (store.SearchQuery, error) {
	q := store.SearchQuery{Visible: c.Visible(), Agent: p.AgentID, Limit: int(orElse(p.Limit, store.DefaultHits)), Excerpt: int(orElse(p.MaxChars, store.DefaultExcerpt))}
	var err error
	if q.Words, err = words.Parse(p.Query); err != nil {
		return q, c.BadParam("/query", err.Error())
	}
	if p.Key != "" {
		if q.Session, err = h.sessionNamed(c, p.Key); err != nil {
			return q, err
		}
	}
	if p.SinceMs != nil {
		q.Since = time.UnixMilli(*p.SinceMs)
	}
	if p.UntilMs != nil {
		q.Until = time.UnixMilli(*p.UntilMs)
	}
	return q, nil
}

func hitOf(h store.Hit) wire.SearchHit {
	m := messageOf(h.Entry, store.MaxExcerpt+2)
	return wire.SearchHit{
		SessionKey: h.Session.String(), SessionID: h.SessionID, AgentID: h.Session.Agent, MessageID: m.ID, Seq: m.Seq, Role: m.Role, Timestamp: m.Timestamp,
		RunID: m.RunID, Excerpt: h.Entry.Text,
	}
}

func (h handlers) toc() []*rpc.Method {
	return []*rpc.Method{rpc.Define("toc.list", chat.ScopeRead, h.tocList, rpc.Lists)}
}

var (
	dayForm   = regexp.MustCompile(`^\d{4}-\d\d-\d\d$`)
	weekForm  = regexp.MustCompile(`^\d{4}-W\d\d$`)
	monthForm = regexp.MustCompile(`^\d{4}-\d\d$`)
)

// names reports whether text is a period of a level.
func names(level store.TocLevel, text string) bool {
	switch level {
	case store.TocWeek:
		return weekForm.MatchString(text)
	case store.TocMonth:
		return monthForm.MatchString(text)
	default:
		return dayForm.MatchString(text)
	}
}

func (h handlers) tocList(ctx context.Context, c *rpc.Call, p wire.TocListParams) (wire.TocListResult, error) {
	out := wire.TocListResult{Nodes: []wire.TocNode{}}
	q, err := h.tocQuery(c, p)
	if err != nil {
		return out, err
	}
	if p.Key != "" {
		if seen, err := h.lookAt(ctx, c, q.Session); err != nil || seen.hidden {
			return out, err
		}
	}
	found, err := h.backend.Toc(ctx, q)
	if err != nil {
		return out, err
	}
	size, read := 0, 0
	for _, n := range found {
		row := tocNodeOf(n)
		if size += len(strictjson.Encode(row)); size > rpc.ListBytes && read > 0 {
			break
		}
		read++
		if q.Visible == "" || n.Level != store.TocDay || n.Session.UsableBy(q.Visible, n.Owner, true) { // the caller may have made it, but it belongs to another principal
			out.Nodes = append(out.Nodes, row)
		}
	}
	out.Count = len(out.Nodes)
	if read == q.Most() || read < len(found) {
		next := p.Offset + int64(read)
		out.HasMore, out.NextOffset = true, &next
	}
	return out, nil
}

func (h handlers) tocQuery(c *rpc.Call, p wire.TocListParams) (store.TocQuery, error) {
	q := store.TocQuery{
		Level: cmp.Or(store.TocLevel(p.Level), store.TocDay), Visible: c.Visible(), From: p.From, To: p.To,
		Limit: int(orElse(p.Limit, store.DefaultTocNodes)), Offset: int(p.Offset),
	}
	for name, text := range map[string]string{"/from": p.From, "/to": p.To} {
		if text != "" && !names(q.Level, text) {
			return q, c.BadParam(name, "a day is named as 2026-03-14, a week as 2026-W11, a month as 2026-03")
		}
	}
	if p.Key == "" {
		return q, nil
	}
	if q.Level != store.TocDay {
		return q, c.BadParam("/key", "only days have a summary for each session; leave out key or level")
	}
	var err error
	q.Session, err = h.sessionNamed(c, p.Key)
	return q, err
}

func tocNodeOf(n store.TocNode) wire.TocNode {
	row := wire.TocNode{
		Level: string(n.Level), Period: n.Period, Principal: n.Owner, FromSeq: n.From, ToSeq: n.To, Messages: n.Entries, Text: n.Text,
		MadeAt: n.MadeAt.UnixMilli(), Stale: n.Stale,
	}
	if !n.Session.IsZero() {
		row.SessionKey = n.Session.String()
	}
	return row
}
