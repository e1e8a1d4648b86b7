package conversation

import (
	"cmp"
	"context"
	"regexp"

	"laneway/internal/chat"
	"laneway/internal/gateway/rpc"
	"laneway/internal/gateway/strictjson"
	"laneway/internal/store"
	"laneway/internal/wire"
)

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
