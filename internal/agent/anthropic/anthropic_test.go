package anthropic_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"laneway/internal/agent"
	"laneway/internal/agent/agenttest"
	"laneway/internal/agent/anthropic"
	"laneway/internal/chat"
	"laneway/internal/secret"
	"laneway/internal/testmodel"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const key = "sk-ant-secret-0123456789"

//nolint:paralleltest // the suite checks for leftover goroutines
func TestContract(t *testing.T) {
	agenttest.Run(t, testmodel.Subject(testmodel.Words{
		Refusal: "refusal", ServerError: "api_error", TooLong: func(r *testmodel.Reply) { r.Message = "prompt is too long: 9 tokens > 8 maximum" },
	}, func(t *testing.T, model *testmodel.Server, maxAnswer int) agent.Runner {
		t.Helper()
		return open(t, model, anthropic.Config{MaxAnswer: maxAnswer, Retries: -1})
	}))
}

// open returns a runner that calls the model server.
func open(t *testing.T, model *testmodel.Server, cfg anthropic.Config) *anthropic.Runner {
	t.Helper()
	cfg.BaseURL = model.URL()
	cfg.APIKey = secret.New(key)
	if cfg.Model == "" {
		cfg.Model = "test-model"
	}
	runner, err := anthropic.New(cfg, model.Transport(), nil)
	if err != nil {
		t.Fatalf("New: %v", err)
	}
	t.Cleanup(runner.Close)
	return runner
}

// sent runs a turn and returns its only call.
func sent(t *testing.T, cfg anthropic.Config, req agent.Request) testmodel.Call {
	t.Helper()
	model := testmodel.Start(t)
	if _, err := open(t, model, cfg).Run(t.Context(), req, func(agent.Event) {}); err != nil {
		t.Fatalf("Run: %v", err)
	}
	calls := model.Calls()
	if len(calls) != 1 {
		t.Fatalf("got %d calls, want 1", len(calls))
	}
	return calls[0]
}

func fields(call testmodel.Call, names ...string) map[string]any {
	got := map[string]any{}
	for _, name := range names {
		got[name] = call.Field(name)
	}
	return got
}

func TestTheRequestCarriesTheConversation(t *testing.T) {
	t.Parallel()
	req := agenttest.Request("and now?")
	req.History = []chat.TranscriptEntry{
		{Role: chat.RoleAssistant, Text: "a greeting"},
		{Role: chat.RoleUser, Text: "one"},
		{Role: chat.RoleUser, Text: "two"},
		{Role: chat.RoleAssistant, Text: "2"},
	}
	call := sent(t, anthropic.Config{System: "be short", SendUser: true, Temperature: new(0.5), Stop: []string{"end"}}, req)
	want := []testmodel.Message{{Role: "user", Content: "[note] The agent wrote here:\n> a greeting\none\ntwo"}, {Role: "assistant", Content: "2"}, {Role: "user", Content: "and now?"}}
	if diff := cmp.Diff(want, call.Messages); diff != "" {
		t.Errorf("messages (-want +got):\n%s", diff)
	}
	wantFields := map[string]any{
		"model": "test-model", "max_tokens": float64(anthropic.DefaultMaxTokens), "system": "be short", "stream": true, "temperature": 0.5,
		"stop_sequences": []any{"end"}, "metadata": map[string]any{"user_id": "agent:main:main"}, "thinking": nil,
	}
	got := fields(call, "model", "max_tokens", "system", "stream", "temperature", "stop_sequences", "metadata", "thinking")
	if diff := cmp.Diff(wantFields, got); diff != "" {
		t.Errorf("fields (-want +got):\n%s", diff)
	}
	if call.Header.Get("X-Api-Key") != key || call.Header.Get("Anthropic-Version") == "" {
		t.Errorf("headers: got key %q and version %q", call.Header.Get("X-Api-Key"), call.Header.Get("Anthropic-Version"))
	}
}

func TestThinkingIsABudgetOnTop(t *testing.T) {
	t.Parallel()
	req := agenttest.Request("hi")
	req.Thinking, req.Params = "low", map[string]any{"max_tokens": 100, "temperature": 0.2}
	got := fields(sent(t, anthropic.Config{}, req), "max_tokens", "thinking", "temperature")
	want := map[string]any{
		"max_tokens": 2148.0, "thinking": map[string]any{"type": "enabled", "budget_tokens": 2048.0}, "temperature": nil,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("fields (-want +got):\n%s", diff)
	}
}

func TestFaultsEndInTime(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		reply   testmodel.Reply
		reason  chat.FailReason
		text    string
		calls   int
		longest time.Duration
	}{
		"NoFirstByte":           {testmodel.Reply{HangFirst: true}, chat.FailFirstByte, "", 1, time.Minute},
		"SilenceInTheMiddle":    {testmodel.Reply{Pieces: []string{"a"}, Hang: true}, chat.FailSilence, "a", 1, time.Minute},
		"OneBytePerSecond":      {testmodel.Reply{Pieces: []string{strings.Repeat("a", 100)}, EachByte: true, Pause: time.Second}, chat.FailSilence, "", 1, 4 * time.Minute},
		"CutInTheMiddle":        {testmodel.Reply{Pieces: []string{"a"}, Cut: true}, chat.FailConnection, "a", 1, time.Second},
		"NoMarkAfterTheReason":  {testmodel.Reply{Pieces: []string{"a"}, NoDone: true}, "", "a", 1, time.Second},
		"NeitherMarkNorReason":  {testmodel.Reply{Pieces: []string{"a"}, Half: true}, chat.FailConnection, "a", 1, time.Second},
		"NoEndAndNoText":        {testmodel.Reply{Half: true}, chat.FailConnection, "", 4, 10 * time.Second},
		"Garbage":               {testmodel.Reply{Pieces: []string{"a"}, Garbage: "data: {{{\n\n"}, chat.FailBadResponse, "a", 1, time.Second},
		"HTMLBadGateway":        {testmodel.Reply{Status: 502, Body: "<html>bad gateway</html>"}, chat.FailServer, "", 4, 10 * time.Second},
		"Overloaded":            {testmodel.Reply{Status: 529, Kind: "overloaded_error"}, chat.FailOverloaded, "", 4, 10 * time.Second},
		"OverloadedInTheStream": {testmodel.Reply{StreamError: "overloaded_error"}, chat.FailOverloaded, "", 4, 10 * time.Second},
		"OverloadedTooLate":     {testmodel.Reply{Pieces: []string{"a"}, StreamError: "overloaded_error"}, chat.FailOverloaded, "a", 1, time.Second},
		"NoCredit":              {testmodel.Reply{Status: 400, Kind: "billing_error"}, chat.FailRateLimit, "", 1, time.Second},
		"NoStreamAtAll":         {testmodel.Reply{Pieces: []string{"a", "b"}, Whole: true}, "", "ab", 1, time.Second},
		"JSONThatIsNoAnswer":    {testmodel.Reply{Body: `{"hello":"world"}`, Type: "application/json"}, chat.FailBadResponse, "", 1, time.Second},
		"ErrorWithStatus200": {
			testmodel.Reply{Body: `{"type":"error","error":{"type":"authentication_error"}}`, Type: "application/json"}, chat.FailAuth, "", 1, time.Second,
		},
		"RefusalWithText":   {testmodel.Reply{Pieces: []string{"a"}, Finish: "refusal"}, chat.FailRefusal, "a", 1, time.Second},
		"ContextIsExceeded": {testmodel.Reply{Finish: "model_context_window_exceeded"}, chat.FailContextLength, "", 1, time.Second},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				model, end := testmodel.StartInMemory(t)
				defer end()
				model.Answer(func(testmodel.Call) testmodel.Reply { return tt.reply })
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
				defer cancel()
				start := time.Now()
				result, err := open(t, model, anthropic.Config{}).Run(ctx, agenttest.Request("hi"), func(agent.Event) {})
				if reason := agent.ReasonOf(err); reason != tt.reason || result.Text != tt.text {
					t.Errorf("got %q and %q (%v), want %q and %q", result.Text, reason, err, tt.text, tt.reason)
				}
				if calls, took := len(model.Calls()), time.Since(start); calls != tt.calls || took > tt.longest {
					t.Errorf("got %d calls in %s, want %d in at most %s", calls, took, tt.calls, tt.longest)
				}
			})
		})
	}
}

func TestUsageAndStopReasons(t *testing.T) {
	t.Parallel()
	for finish, want := range map[string]string{"end_turn": agent.StopNormal, "stop_sequence": agent.StopNormal, "max_tokens": agent.StopLength} {
		model := testmodel.Start(t)
		model.Answer(func(testmodel.Call) testmodel.Reply {
			return testmodel.Reply{Pieces: []string{"a"}, Finish: finish, InputTokens: 3, OutputTokens: 4}
		})
		result, err := open(t, model, anthropic.Config{}).Run(t.Context(), agenttest.Request("hi"), func(agent.Event) {})
		if err != nil || result.StopReason != want {
			t.Errorf("%s: got %q and %v, want %q", finish, result.StopReason, err, want)
		}
		if diff := cmp.Diff(chat.Usage{InputTokens: 3, OutputTokens: 4, Model: "test-model", Provider: "anthropic"}, result.Usage); diff != "" {
			t.Errorf("%s: usage (-want +got):\n%s", finish, diff)
		}
	}
}

func TestThoughtsAreNotShown(t *testing.T) {
	t.Parallel()
	stream := `data: {"type":"message_start","message":{"model":"m"}}

data: {"type":"content_block_delta","delta":{"type":"thinking_delta","thinking":"hm","text":"hidden"}}

data: {"type":"something_new"}

data: {"type":"content_block_delta","delta":{"type":"text_delta","text":"shown"}}

data: {"type":"message_stop"}

`
	model := testmodel.Start(t)
	model.Answer(func(testmodel.Call) testmodel.Reply { return testmodel.Reply{Body: stream, Type: "text/event-stream"} })
	result, err := open(t, model, anthropic.Config{}).Run(t.Context(), agenttest.Request("hi"), func(agent.Event) {})
	if err != nil || result.Text != "shown" {
		t.Errorf("got %q and %v, want %q", result.Text, err, "shown")
	}
}

func TestNewNamesEveryFault(t *testing.T) {
	t.Parallel()
	for want, cfg := range map[string]anthropic.Config{
		"model":         {},
		"base_url":      {Model: "m", BaseURL: "host"},
		"temperature":   {Model: "m", Temperature: new(1.1)},
		"max_tokens":    {Model: "m", ContextWindow: 10, MaxTokens: 10},
		"not be negati": {Model: "m", MaxAnswer: -1},
	} {
		if _, err := anthropic.New(cfg, nil, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want an error with %q", err, want)
		}
	}
}

func ExampleNew() {
	_, err := anthropic.New(anthropic.Config{APIKey: secret.New("sk-…")}, nil, nil)
	fmt.Println(errors.Unwrap(err))
	// Output: model: must be set
}

// box is a toolbox and a journal; it answers each call with its arguments and keeps nothing.
type box struct{}

func (box) Specs() []agent.ToolSpec {
	return []agent.ToolSpec{{Name: "set", Schema: []byte(`{"type":"object"}`)}}
}

func (box) Call(_ context.Context, _ string, call chat.ToolCall) chat.ToolResult {
	return chat.ToolResult{Text: call.Args, IsError: true}
}

func (box) Rounds() []agent.Round                                         { return nil }
func (box) Record(context.Context, chat.Round) error                      { return nil }
func (box) RecordResult(context.Context, int, int, chat.ToolResult) error { return nil }

// TestARoundGoesBackAsItCame checks the form that the API requires of a round: thoughts with their
// signatures first, inputs as objects, results of all calls in the next message.
func TestARoundGoesBackAsItCame(t *testing.T) {
	t.Parallel()
	for name, whole := range map[string]bool{"Streamed": false, "InOneDocument": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			model := testmodel.Start(t)
			model.Answer(func(call testmodel.Call) testmodel.Reply {
				if call.Number > 1 {
					return testmodel.Reply{Pieces: []string{"done"}}
				}
				return testmodel.Reply{
					Whole: whole, Thoughts: "I think so.", Pieces: []string{"Now."},
					Calls: []testmodel.ToolCall{{ID: "a", Name: "set", Args: `{"n":1}`}, {ID: "b", Name: "set", Args: `{}`}},
				}
			})
			req := agenttest.Request("please")
			req.Thinking = "low"
			req.Tools, req.Journal = box{}, box{}
			if result, err := open(t, model, anthropic.Config{}).Run(t.Context(), req, func(agent.Event) {}); err != nil || result.Text != "Now.\n\ndone" {
				t.Fatalf("got %q and %v, want the answer", result.Text, err)
			}
			var body struct {
				Messages []struct {
					Content json.RawMessage `json:"content"`
				} `json:"messages"`
			}
			if err := json.Unmarshal(model.Calls()[1].Body, &body); err != nil || len(body.Messages) != 3 {
				t.Fatalf("got %d messages and %v, want three", len(body.Messages), err)
			}
			asked := `{"text":"Now.","type":"text"},{"id":"a","input":{"n":1},"name":"set","type":"tool_use"},{"id":"b","input":{},"name":"set","type":"tool_use"}]`
			empty := `{}`
			if whole { // the model server sends no thoughts in one document, and an empty input with the call itself
				asked, empty = "["+asked, "The tool failed and said nothing."
			} else {
				asked = `[{"signature":"signed","thinking":"I think so.","type":"thinking"},` + asked
			}
			given := `[{"type":"tool_result","tool_use_id":"a","content":"{\"n\":1}","is_error":true},{"type":"tool_result","tool_use_id":"b","content":"` + empty + `","is_error":true}]`
			if diff := cmp.Diff([]string{asked, given}, []string{string(body.Messages[1].Content), string(body.Messages[2].Content)}); diff != "" {
				t.Errorf("messages (-want +got):\n%s", diff)
			}
		})
	}
}

// TestCachedTokensAreAPartOfTheInput checks that they are counted separately too, because they have
// another price.
func TestCachedTokensAreAPartOfTheInput(t *testing.T) {
	t.Parallel()
	model := testmodel.Start(t)
	model.Answer(func(testmodel.Call) testmodel.Reply {
		return testmodel.Reply{Type: "application/json", Body: `{"type":"message","model":"m","content":[{"type":"text","text":"x"}],"stop_reason":"end_turn","usage":{"input_tokens":30,"output_tokens":7,"cache_creation_input_tokens":6,"cache_read_input_tokens":64}}`}
	})
	got, err := open(t, model, anthropic.Config{}).Run(t.Context(), agenttest.Request("hi"), func(agent.Event) {})
	want := chat.Usage{InputTokens: 100, OutputTokens: 7, CachedTokens: 64, Model: "m", Provider: "anthropic"}
	if err != nil || got.Usage != want {
		t.Errorf("got %+v and %v, want %+v", got.Usage, err, want)
	}
}
