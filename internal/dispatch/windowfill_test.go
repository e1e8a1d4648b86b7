package dispatch_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode"

	"laneway/internal/agent"
	"laneway/internal/agent/openai"
	"laneway/internal/chat"
	"laneway/internal/dispatch"
)

// countingEndpoint is an endpoint that counts a token for a number of letters, and one for each character of another script. It refuses
// input larger than its window. With tools it makes one call in each turn of a person.
type countingEndpoint struct {
	window   int
	perToken float64
	tools    bool

	mu        sync.Mutex
	turn      int // tokens of the last request of a person's turn
	summaries []int
	most      int
	refused   int
}

type endpointRequest struct {
	Messages []struct {
		Role      string
		Content   string
		ToolCalls []json.RawMessage `json:"tool_calls"` //nolint:tagliatelle // as the API names it
	}
	Tools []json.RawMessage
}

// RoundTrip implements [http.RoundTripper].
func (e *countingEndpoint) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	var req endpointRequest
	if err := json.Unmarshal(body, &req); err != nil {
		return nil, err
	}
	var all strings.Builder
	for _, m := range req.Messages {
		all.WriteString(m.Role + m.Content)
		for _, c := range m.ToolCalls {
			all.Write(c)
		}
	}
	for _, tool := range req.Tools {
		all.Write(tool)
	}
	letters, others := 0, 0
	for _, r := range all.String() {
		if r < unicode.MaxASCII {
			letters++
		} else {
			others++
		}
	}
	tokens := int(float64(letters)/e.perToken) + others
	if !strings.HasPrefix(req.Messages[0].Content, "You keep the notes") {
		time.Sleep(time.Second) // in the time of the bubble: a summary is faster than a turn
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.most = max(e.most, tokens)
	answer := func(status int, v any) (*http.Response, error) {
		text, err := json.Marshal(v)
		return &http.Response{
			StatusCode: status, Request: r, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(string(text))),
		}, err
	}
	if tokens > e.window {
		e.refused++
		return answer(http.StatusBadRequest, map[string]any{"error": map[string]any{"message": "maximum context length exceeded"}})
	}
	message := map[string]any{"role": "assistant", "content": "Noted. " + strings.Repeat("yes ", 40)}
	switch last := req.Messages[len(req.Messages)-1]; {
	case strings.HasPrefix(req.Messages[0].Content, "You keep the notes"):
		e.summaries = append(e.summaries, e.turn)
		message["content"] = "They talked."
	case e.tools && last.Role == "user" && len(req.Tools) > 0:
		message = map[string]any{"role": "assistant", "content": "", "tool_calls": []any{map[string]any{
			"id": "a", "type": "function", "function": map[string]any{"name": "sessions", "arguments": `{"action":"list"}`},
		}}}
	default:
		e.turn = tokens
	}
	return answer(http.StatusOK, map[string]any{
		"model": "m", "choices": []any{map[string]any{"message": message, "finish_reason": "stop"}},
		"usage": map[string]any{"prompt_tokens": tokens, "completion_tokens": int(180 / e.perToken)},
	})
}

// open starts a gateway whose only agent is the endpoint.
func (e *countingEndpoint) open(t *testing.T, st dispatch.Store) *harness {
	t.Helper()
	gauge := agent.NewGauge("e")
	runner, err := openai.New(openai.Config{BaseURL: "http://model", Model: "m", ContextWindow: e.window, Gauge: gauge}, e, nil)
	if err != nil {
		t.Fatal(err)
	}
	h := build(t, st, func(c *dispatch.Config) {
		a := &c.Agents[0]
		a.Runner, a.Gauge, a.ContextWindow, a.Compacts, a.Info.Model, a.Tools = runner, gauge, e.window, true, "m", dispatch.Tools{Default: e.tools}
	})
	if err := h.d.Register(t.Context()); err != nil {
		t.Fatal(err)
	}
	h.start()
	return h
}

// With any tokenizer and messages of 4 % of the window, nothing larger than the window is ever sent.
func TestCompactionStartsWhenTheProviderCountsThreeQuarters(t *testing.T) {
	const window = 16_000
	for _, perToken := range []float64{2, 3.3, 4} {
		for _, tools := range []bool{false, true} {
			t.Run(fmt.Sprintf("%v characters a token, tools %t", perToken, tools), func(t *testing.T) {
				inBubble(t, func(t *testing.T) {
					e := &countingEndpoint{window: window, perToken: perToken, tools: tools}
					h := e.open(t, newStore(t))
					text := strings.Repeat("we talk of roses, ", int(window*0.04*perToken)/18)
					for i := range 90 {
						if end := h.end(h.send("agent:main:long", text)); end.Outcome != chat.OutcomeAnswered {
							t.Fatalf("turn %d ended %+v", i, end)
						}
					}
					h.close()
					e.mu.Lock()
					defer e.mu.Unlock()
					if len(e.summaries) < 2 {
						t.Fatalf("there were %d compactions in 90 turns", len(e.summaries))
					}
					for i, tokens := range e.summaries {
						if fill := float64(tokens) / window; fill < 0.70 || fill > 0.80 {
							t.Errorf("compaction %d started when the provider counted %.0f %% of the window, want 70 to 80", i+1, 100*fill)
						}
					}
					if e.refused > 0 || e.most > window {
						t.Errorf("%d requests were larger than the window; the largest has %.0f %% of it", e.refused, 100*float64(e.most)/window)
					}
					t.Logf("compactions started at %v of %d tokens; the largest request has %.0f %%", e.summaries, window, 100*float64(e.most)/window)
				})
			})
		}
	}
}

// A token has four letters, or one of the characters that follow.
func TestAConversationThatChangesItsScriptStaysInItsWindow(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		e := &countingEndpoint{window: 16_000, perToken: 4}
		h := e.open(t, newStore(t))
		for i := range 120 {
			text := strings.Repeat("we talk of roses, ", 140)
			if i/20%2 == 1 {
				text = strings.Repeat("玫瑰在花园里开放。", 80)
			}
			if end := h.end(h.send("agent:main:long", text)); end.Outcome != chat.OutcomeAnswered {
				t.Fatalf("turn %d ended %+v", i, end)
			}
		}
		if end := h.end(h.send("agent:main:new", strings.Repeat("玫瑰在花园里开放。", 1000))); end.Outcome != chat.OutcomeAnswered {
			t.Errorf("a first message in another script ended %+v", end)
		}
		h.close()
		if e.refused > 0 || e.most > e.window {
			t.Errorf("%d requests were larger than the window; the largest has %d of %d tokens", e.refused, e.most, e.window)
		}
	})
}

// A conversation that fills 60 % of the window by the provider's count is not compacted by the next process.
func TestARestartKeepsHowAnEndpointCountsTokens(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		e, st := &countingEndpoint{window: 16_000, perToken: 4}, newStore(t)
		say := func(h *harness, id string) {
			text := strings.Repeat("we talk of roses, ", 140)
			if end := h.end(h.send("agent:main:long", text, func(m *chat.Message) { m.ID = id })); end.Outcome != chat.OutcomeAnswered {
				t.Fatalf("a turn ended %+v", end)
			}
		}
		h := e.open(t, st)
		for i := range 14 {
			say(h, fmt.Sprint("before", i))
		}
		h.close()
		h = e.open(t, st)
		say(h, "after")
		h.close()
		if fill := float64(e.turn) / float64(e.window); fill < 0.55 || len(e.summaries) > 0 {
			t.Errorf("after the restart the provider counts %.0f %% of the window, and there were %d compactions; want the whole conversation", 100*fill, len(e.summaries))
		}
	})
}
