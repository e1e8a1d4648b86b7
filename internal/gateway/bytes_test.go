package gateway_test

import (
	"net/http"
	"strings"
	"testing"

	"laneway/internal/gateway"
)

// Whatever way its texts come, a credential has one allowance of bytes, and a refused call does nothing.
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
