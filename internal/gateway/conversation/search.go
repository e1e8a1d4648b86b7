package conversation

import (
	"context"
	"time"

	"laneway/internal/gateway/rpc"
	"laneway/internal/gateway/strictjson"
	"laneway/internal/store"
	"laneway/internal/wire"
	"laneway/internal/words"
)

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
