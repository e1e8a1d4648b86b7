package gateway_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"laneway/internal/agent"
	"laneway/internal/chat"
	"laneway/internal/gateway"
)

// All entry points share one allowance of bytes per credential, and a refused call has no effect.
func TestEveryEntryCountsItsBytes(t *testing.T) {
	t.Parallel()
	const size = 5_000
	text := strings.Repeat("x", size)
	over := func(b *bench, method string, p params) func(*testing.T) bool {
		return func(t *testing.T) bool {
			t.Helper()
			f := b.login(writeToken).call(method, p)
			if !f.OK && (f.Error.Details["code"] != "RATE_LIMITED" || f.Error.Details["allowance"] != "bytes" || f.Error.Details["limit"] != 8000.0 ||
				f.Error.Details["method"] != method || !f.Error.Retryable || f.Error.RetryAfterMs < 1) {
				t.Errorf("%s: %+v", method, f.Error)
			}
			return f.OK
		}
	}
	entries := map[string]func(b *bench) func(*testing.T) bool{
		"chat.send": func(b *bench) func(*testing.T) bool { return over(b, "chat.send", send("a", text, "k")) },
		"agent": func(b *bench) func(*testing.T) bool {
			return over(b, "agent", params{"message": text, "sessionKey": "b", "idempotencyKey": "k"})
		},
		"system prompt": func(b *bench) func(*testing.T) bool {
			return over(b, "agent", params{"message": "x", "extraSystemPrompt": text, "idempotencyKey": "k"})
		},
		"wake": func(b *bench) func(*testing.T) bool { return over(b, "wake", params{"mode": "now", "text": text}) },
		"wake later": func(b *bench) func(*testing.T) bool {
			return over(b, "wake", params{"mode": "next-heartbeat", "text": text})
		},
		"completions": func(b *bench) func(*testing.T) bool {
			return func(t *testing.T) bool {
				t.Helper()
				got := b.post(completionsPath, ask(text))
				if got.status != http.StatusOK && (got.status != http.StatusTooManyRequests || got.header.Get("Retry-After") == "") {
					t.Errorf("%d %s", got.status, got.body)
				}
				return got.status == http.StatusOK
			}
		},
		"hook": func(b *bench) func(*testing.T) bool {
			return func(t *testing.T) bool {
				t.Helper()
				got := b.post("/hooks/deploy", text, anonymous, signed(text))
				if got.status != http.StatusAccepted && (got.status != http.StatusTooManyRequests || got.header.Get("Retry-After") == "") {
					t.Errorf("%d %s", got.status, got.body)
				}
				return got.status == http.StatusAccepted
			}
		},
	}
	for name, entry := range entries {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := start(t, withHooks, func(c *gateway.Config) { c.BytesPerMinute = 8_000 })
			call := entry(b)
			if !call(t) {
				t.Error("the first call was refused")
			}
			if call(t) {
				t.Errorf("two calls of %d bytes had fakeSession in 8000", size)
			}
			if f := b.login(adminToken).call("chat.send", send("other", text, "other")); !f.OK {
				t.Errorf("another credential: %+v", f.Error)
			}
		})
	}
}

// toolBackend is a backend with one tool, for credentials.
type toolBackend struct{ *fakeBackend }

func (toolBackend) ToolsOf(string) agent.Toolbox { return oneTool{} }

type oneTool struct{}

func (oneTool) Specs() []agent.ToolSpec {
	return []agent.ToolSpec{{Name: "note", Description: "Keeps a note.", Schema: json.RawMessage(`{"type":"object"}`)}}
}

func (oneTool) Call(_ context.Context, _ string, call chat.ToolCall) chat.ToolResult {
	return chat.ToolResult{Text: strconv.Itoa(len(call.Args))}
}

// oneTurn is a running turn with the token turnToken.
type oneTurn struct{}

const turnToken = "lwturn_of-the-only-turn"

func (oneTurn) Enter(ctx context.Context, token string) (agent.Toolbox, context.Context, func(), bool) {
	return oneTool{}, ctx, func() {}, token == turnToken
}

// A request that holds many calls would count as one, so none of them runs, whatever stands before the array and whoever calls.
func TestBatchAtMCPIsRefused(t *testing.T) {
	t.Parallel()
	h := newFakeBackend(t)
	b := serve(t, h, toolBackend{h}, func(c *gateway.Config) { c.TurnTokens = oneTurn{} })
	const call = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"note","arguments":{"text":"x"}}}`
	for _, token := range []string{writeToken, turnToken} {
		for _, version := range []string{"", "2024-11-05", "2025-03-26", "2025-06-18"} {
			headers := func(r *http.Request) {
				r.Header.Set("Authorization", "Bearer "+token)
				r.Header.Set("Content-Type", "application/json")
				r.Header.Set("Accept", "application/json, text/event-stream")
				if version != "" {
					r.Header.Set("Mcp-Protocol-Version", version)
				}
			}
			for _, body := range []string{
				"[]", "[" + call + "]", "[" + call + "," + call + "]", " \t\r\n[" + call + "," + call + "]", "\uFEFF[" + call + "]", "\n\uFEFF [" + call + "]", "\u00a0\v\f[" + call + "]",
			} {
				got := b.post("/mcp", body, headers)
				if got.status != http.StatusBadRequest || !strings.Contains(string(got.body), "send each call in its own request") {
					t.Errorf("version %q, body %.20q: %d %s", version, body, got.status, got.body)
				}
			}
			if got := b.post("/mcp", " \n"+call, headers); got.status != http.StatusOK || !strings.Contains(string(got.body), `"12"`) {
				t.Errorf("version %q, one call: %d %s", version, got.status, got.body)
			}
			if got := b.post("/mcp", call+call, headers); strings.Count(string(got.body), `"12"`) > 1 {
				t.Errorf("version %q, two calls without an array: %d %s", version, got.status, got.body)
			}
		}
	}
}

func TestOnlyToolsAreAnsweredAtMCP(t *testing.T) {
	t.Parallel()
	h := newFakeBackend(t)
	b := serve(t, h, toolBackend{h}, func(c *gateway.Config) { c.TurnTokens = oneTurn{} })
	post := func(query, method string) string {
		got := b.post("/mcp"+query, `{"jsonrpc":"2.0","id":1,"method":"`+method+`","params":{"level":"info","uri":"a:b","name":"x","ref":{"type":"ref/prompt","name":"x"},"argument":{"name":"a","value":""}}}`,
			func(r *http.Request) {
				r.Header.Set("Authorization", "Bearer "+turnToken)
				r.Header.Set("Content-Type", "application/json")
				r.Header.Set("Accept", "application/json, text/event-stream")
			})
		return string(got.body)
	}
	for _, method := range []string{
		"resources/list", "resources/templates/list", "resources/read", "resources/subscribe", "prompts/list", "prompts/get", "logging/setLevel", "completion/complete",
	} {
		if got := post("", method); !strings.Contains(got, "-32601") {
			t.Errorf("%s: %s, want that there is no such method", method, got)
		}
	}
	for query, name := range map[string]string{"": `"note"`, "?prefix=laneway_": `"laneway_note"`} {
		if got := post(query, "tools/list"); !strings.Contains(got, `"name":`+name) || !strings.Contains(got, `"annotations":{"destructiveHint":true`) {
			t.Errorf("the tools: %s", got)
		}
	}
	if got := post("", "ping"); !strings.Contains(got, `"result"`) {
		t.Errorf("ping: %s", got)
	}
}

// noTurns are the tokens of turns when no turn runs.
type noTurns struct{}

func (noTurns) Enter(context.Context, string) (agent.Toolbox, context.Context, func(), bool) {
	return nil, nil, nil, false
}

func TestToolsForCredentialsCountTheirBytes(t *testing.T) {
	t.Parallel()
	h := newFakeBackend(t)
	b := serve(t, h, toolBackend{h}, func(c *gateway.Config) { c.BytesPerMinute, c.TurnTokens = 8_000, noTurns{} })
	call := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"note","arguments":{"text":%q}}}`, strings.Repeat("x", 5_000))
	headers := func(r *http.Request) {
		r.Header.Set("Authorization", "Bearer "+writeToken)
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Accept", "application/json, text/event-stream")
	}
	if got := b.post("/mcp", call, headers); got.status != http.StatusOK || !strings.Contains(string(got.body), `"5011"`) {
		t.Errorf("the first call: %d %s", got.status, got.body)
	}
	if got := b.post("/mcp", call, headers); got.status != http.StatusTooManyRequests || got.header.Get("Retry-After") == "" {
		t.Errorf("two calls of 5,000 bytes within 8,000: %d %s", got.status, got.body)
	}
}
