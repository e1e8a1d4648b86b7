package gateway_test

import (
	"context"
	"testing"
	"time"

	"laneway/internal/chat"
	"laneway/internal/usage"
)

// Usage returns a budget that is nearly used up; a caller that sees only its own data receives less.
func (h *fakeBackend) Usage(_ context.Context, by chat.Caller) (usage.Report, error) {
	r := usage.Report{
		Day: "2026-03-14", Zone: time.UTC, Resets: time.Date(2026, 3, 15, 0, 0, 0, 0, time.UTC), Currency: "EUR",
		Today: usage.Counted{Turns: 2, Requests: 3, InputTokens: 70, OutputTokens: 30, CachedTokens: 5, Cost: usage.MoneyOf(0.25), Unreported: 90 * time.Second},
		Budgets: []usage.State{
			{Scope: usage.Scope{Kind: usage.KindPrincipal, Name: by.Principal}, Limit: usage.Limit{Tokens: 120, Cost: usage.Unit}, Spent: usage.Spent{Tokens: 100, Cost: usage.MoneyOf(0.25)}},
			{Scope: usage.Scope{Kind: usage.KindTurn}, Limit: usage.Limit{Tokens: 50}},
		},
	}
	return r, nil
}

// UsageRows returns one row that contains the caller and the query.
func (h *fakeBackend) UsageRows(_ context.Context, q usage.Query, by chat.Caller) ([]usage.Row, error) {
	name := string(q.By) + " " + by.Principal
	if by.Own {
		name += " own"
	}
	return []usage.Row{{Day: q.From, Name: name, Counted: usage.Counted{InputTokens: 1}}}, nil
}

func TestUsageIsShown(t *testing.T) {
	t.Parallel()
	b := start(t)
	s := b.login(adminToken)
	for method, want := range map[string]string{
		"usage.status": `{"day":"2026-03-14","timezone":"UTC","resetsAtMs":1773532800000,"currency":"EUR",` +
			`"today":{"turns":2,"requests":3,"inputTokens":70,"outputTokens":30,"cachedTokens":5,"totalTokens":100,"costMicros":250000,"unreportedMs":90000},` +
			`"budgets":[{"kind":"principal","limitTokens":120,"limitMicros":1000000,"usedTokens":100,"usedMicros":250000,"level":"near"},{"kind":"turn","limitTokens":50}]}`,
		"usage.list": `{"from":"2026-03-08","to":"2026-03-14","by":"agent","currency":"EUR",` +
			`"rows":[{"day":"2026-03-08","name":"agent gateway","turns":0,"requests":0,"inputTokens":1,"outputTokens":0,"cachedTokens":0,"totalTokens":1,"costMicros":0,"unreportedMs":0}],"hasMore":false}`,
	} {
		p := params{}
		if method == "usage.list" {
			p["by"] = "agent"
		}
		if f := s.call(method, p); string(f.Payload) != want {
			t.Errorf("%s: got %s, want %s", method, f.Payload, want)
		}
	}
	for _, tt := range []struct {
		params  params
		message string
	}{
		{params{"from": "yesterday!"}, "from must be a day such as 2026-03-14"},
		{params{"to": "2026-02-30"}, "to must be a day such as 2026-03-14"},
		{params{"from": "2026-03-15"}, "from must not be after to"},
		{params{"from": "2025-12-04"}, "from and to may be at most 100 days; ask in parts"},
	} {
		if f := s.call("usage.list", tt.params); f.OK || f.Error.Message != tt.message {
			t.Errorf("%v: got %+v, want %q", tt.params, f.Error, tt.message)
		}
	}
}
