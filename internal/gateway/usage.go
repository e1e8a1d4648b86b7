package gateway

import (
	"context"
	"time"

	"laneway/internal/chat"
	"laneway/internal/gateway/rpc"
	"laneway/internal/usage"
	"laneway/internal/wire"
)

// UsageBackend is a [Backend] that counts what agents use. A caller that sees only its own data receives only its own usage.
type UsageBackend interface {
	Usage(ctx context.Context, by chat.Caller) (usage.Report, error)
	UsageRows(ctx context.Context, q usage.Query, by chat.Caller) ([]usage.Row, error)
}

func (o overview) usages() []*rpc.Method {
	return []*rpc.Method{
		rpc.Define("usage.status", chat.ScopeRead, o.usageStatus),
		rpc.Define("usage.list", chat.ScopeRead, o.usageList),
	}
}

// usageBackend returns the backend that counts.
func (o overview) usageBackend() (UsageBackend, error) {
	b, ok := o.srv.backend.(UsageBackend)
	if !ok {
		return nil, chat.Errorf(chat.CodeInvalid, "this gateway counts no usage")
	}
	return b, nil
}

func (o overview) usageStatus(ctx context.Context, c *rpc.Call, _ wire.UsageStatusParams) (wire.UsageStatusResult, error) {
	b, err := o.usageBackend()
	if err != nil {
		return wire.UsageStatusResult{}, err
	}
	r, err := b.Usage(ctx, c.Caller())
	if err != nil {
		return wire.UsageStatusResult{}, err
	}
	out := wire.UsageStatusResult{
		Day: r.Day, Timezone: r.Zone.String(), ResetsAtMs: r.Resets.UnixMilli(), Currency: r.Currency, Today: usageCount(r.Today), Budgets: []wire.UsageBudget{},
	}
	for _, s := range r.Budgets {
		out.Budgets = append(out.Budgets, usageBudget(s))
	}
	return out, nil
}

func usageBudget(s usage.State) wire.UsageBudget {
	out := wire.UsageBudget{Kind: string(s.Kind), LimitTokens: s.Limit.Tokens, LimitMicros: micros(s.Limit.Cost)}
	if s.Kind == usage.KindTurn || s.Kind == usage.KindJob {
		return out
	}
	tokens, cost := s.Spent.Tokens, micros(s.Spent.Cost)
	out.UsedTokens, out.UsedMicros = &tokens, &cost
	switch s.Level() {
	case usage.LevelReached:
		out.Level = "reached"
	case usage.LevelNear:
		out.Level = "near"
	case usage.LevelFree:
		out.Level = "free"
	}
	return out
}

// micros returns an amount in millionths of the currency.
func micros(m usage.Money) int64 { return int64(m) / 1000 }

func usageCount(c usage.Counted) wire.UsageCount {
	return wire.UsageCount{
		Turns: c.Turns, Requests: c.Requests, InputTokens: c.InputTokens, OutputTokens: c.OutputTokens, CachedTokens: c.CachedTokens,
		TotalTokens: c.Spent().Tokens, CostMicros: micros(c.Cost), UnreportedMs: c.Unreported.Milliseconds(),
	}
}

// The range of usage.list in days: the maximum, and the default.
const (
	mostUsageDays    = 100
	defaultUsageDays = 7
)

// byDay is the grouping of usage.list by days only.
const byDay = "day"

func (o overview) usageList(ctx context.Context, c *rpc.Call, p wire.UsageListParams) (wire.UsageListResult, error) {
	b, err := o.usageBackend()
	if err != nil {
		return wire.UsageListResult{}, err
	}
	r, err := b.Usage(ctx, c.Caller())
	if err != nil {
		return wire.UsageListResult{}, err
	}
	from, to, err := usageDays(p, r.Day)
	if err != nil {
		return wire.UsageListResult{}, err
	}
	out := wire.UsageListResult{From: from, To: to, By: p.By, Currency: r.Currency, Rows: []wire.UsageRow{}}
	if out.By == "" {
		out.By = byDay
	}
	q := usage.Query{From: from, To: to, Limit: int(p.Limit)}
	if out.By != byDay {
		q.By = usage.Grouping(out.By)
	}
	rows, err := b.UsageRows(ctx, q, c.Caller())
	if err != nil {
		return wire.UsageListResult{}, err
	}
	for _, row := range rows {
		out.Rows = append(out.Rows, wire.UsageRow{Day: row.Day, Name: row.Name, UsageCount: usageCount(row.Counted)})
	}
	out.HasMore = len(rows) == q.Most()
	return out, nil
}

// usageDays returns the first and the last day of a list.
func usageDays(p wire.UsageListParams, today string) (from, to string, err error) {
	if to = p.To; to == "" {
		to = today
	}
	last, err := time.Parse(time.DateOnly, to)
	if err != nil {
		return "", "", chat.Errorf(chat.CodeInvalid, "to must be a day such as 2026-03-14")
	}
	if from = p.From; from == "" {
		from = last.AddDate(0, 0, 1-defaultUsageDays).Format(time.DateOnly)
	}
	first, err := time.Parse(time.DateOnly, from)
	switch {
	case err != nil:
		return "", "", chat.Errorf(chat.CodeInvalid, "from must be a day such as 2026-03-14")
	case last.Before(first):
		return "", "", chat.Errorf(chat.CodeInvalid, "from must not be after to")
	case !last.Before(first.AddDate(0, 0, mostUsageDays)):
		return "", "", chat.Errorf(chat.CodeInvalid, "from and to may be at most %d days; ask in parts", mostUsageDays)
	}
	return from, to, nil
}
