package openai_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"laneway/internal/agent"
	"laneway/internal/agent/agenttest"
	"laneway/internal/agent/openai"
	"laneway/internal/chat"
	"laneway/internal/testmodel"
)

// sent runs a turn and returns its only call.
func sent(t *testing.T, cfg openai.Config, req agent.Request) testmodel.Call {
	t.Helper()
	model := testmodel.Start(t)
	if h := ask(t.Context(), open(t, model, cfg), req); h.err != nil {
		t.Fatalf("Run: %v", h.err)
	}
	calls := model.Calls()
	if len(calls) != 1 {
		t.Fatalf("got %d calls, want 1", len(calls))
	}
	return calls[0]
}

func TestTheRequestCarriesTheConversation(t *testing.T) {
	t.Parallel()
	req := agenttest.Request("and now?")
	req.History = []chat.TranscriptEntry{
		{Role: chat.RoleUser, Text: "one"},
		{Role: chat.RoleAssistant, Text: "1"},
		{Role: chat.RoleUser, Text: "/status", Command: true},
		{Role: chat.RoleAssistant, Text: "fine", Command: true},
	}
	call := sent(t, openai.Config{System: "be short", SendUser: true, Headers: map[string]string{"X-Title": "laneway"}}, req)
	want := []testmodel.Message{{Role: "user", Content: "one"}, {Role: "assistant", Content: "1"}, {Role: "user", Content: "and now?"}}
	if diff := cmp.Diff(want, call.Messages); diff != "" {
		t.Errorf("messages (-want +got):\n%s", diff)
	}
	if call.System != "be short" || call.Model != "test-model" || call.User != "agent:main:main" || !call.Stream {
		t.Errorf("got system %q, model %q, user %q, stream %t", call.System, call.Model, call.User, call.Stream)
	}
	if got := call.Header.Get("Authorization"); got != "Bearer "+key {
		t.Errorf("authorization: got %q", got)
	}
	if got := call.Header.Get("X-Title"); got != "laneway" {
		t.Errorf("x-title: got %q", got)
	}
}

func TestARequestOverridesTheConfiguration(t *testing.T) {
	t.Parallel()
	req := agenttest.Request("hi")
	req.Model, req.SystemPrompt, req.Thinking = "other", "be long", "high"
	req.Params = map[string]any{"temperature": 1.5, "max_tokens": float64(9), "top_p": 1, "stop": []any{"a", "b"}, "unknown": true, "user": "account 7", "response_format": map[string]any{"type": "json_object"}}
	call := sent(t, openai.Config{System: "be short", Temperature: new(0.1), MaxTokens: 7, Stop: []string{"z"}}, req)
	got := map[string]any{}
	for _, name := range []string{"model", "temperature", "max_tokens", "top_p", "stop", "reasoning_effort", "response_format", "unknown", "user"} {
		got[name] = call.Field(name)
	}
	want := map[string]any{
		"model": "other", "temperature": 1.5, "max_tokens": 9.0, "top_p": 1.0, "stop": []any{"a", "b"}, "reasoning_effort": "high",
		"response_format": map[string]any{"type": "json_object"}, "unknown": nil, "user": "account 7",
	}
	if diff := cmp.Diff(want, got); diff != "" || call.System != "be long" {
		t.Errorf("system %q, fields (-want +got):\n%s", call.System, diff)
	}
}

func TestParametersAreChecked(t *testing.T) {
	t.Parallel()
	model := testmodel.Start(t)
	runner := open(t, model, openai.Config{})
	for name, value := range map[string]any{
		"temperature": 3.0, "top_p": "high", "max_tokens": 1.5, "stop": []any{1},
	} {
		req := agenttest.Request("hi")
		req.Params = map[string]any{name: value}
		h := ask(t.Context(), runner, req)
		if agent.ReasonOf(h.err) != chat.FailBadRequest || !strings.Contains(h.err.Error(), name) {
			t.Errorf("%s = %v: got %v, want a bad request that names it", name, value, h.err)
		}
	}
	if n := len(model.Calls()); n != 0 {
		t.Errorf("%d requests were sent, want none", n)
	}
}

func TestHistoryIsCutToTheContextWindow(t *testing.T) {
	t.Parallel()
	req := agenttest.Request("last")
	for i := range 100 {
		req.History = append(req.History,
			chat.TranscriptEntry{Role: chat.RoleUser, Text: fmt.Sprintf("question %03d", i) + strings.Repeat(".", 188)}, // 100 tokens
			chat.TranscriptEntry{Role: chat.RoleAssistant, Text: fmt.Sprintf("answer %03d", i) + strings.Repeat(".", 190)})
	}
	call := sent(t, openai.Config{ContextWindow: 2000, MaxTokens: 500}, req)
	if n := len(call.Messages); n < 9 || n > 15 || n%2 != 1 {
		t.Errorf("got %d messages, want an odd number near 13", n)
	}
	if first := call.Messages[0]; first.Role != "user" || call.Last() != "last" {
		t.Errorf("begins with %+v and ends with %q", first, call.Last())
	}
}

// TestEndpointsThatRefuseOptionsAreLearned checks that a refused option costs one additional call in the first turn and none later.
func TestEndpointsThatRefuseOptionsAreLearned(t *testing.T) {
	t.Parallel()
	model := testmodel.Start(t)
	model.Answer(func(call testmodel.Call) testmodel.Reply {
		switch {
		case call.Field("stream_options") != nil:
			return testmodel.Reply{Status: 400, Message: "Extra inputs are not permitted: stream_options"}
		case call.Field("max_tokens") != nil:
			return testmodel.Reply{Status: 400, Message: "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead."}
		default:
			return testmodel.Reply{Pieces: []string{"ok"}}
		}
	})
	runner := open(t, model, openai.Config{MaxTokens: 50})
	for turn, want := range []int{3, 4} {
		if h := ask(t.Context(), runner, agenttest.Request("hi")); h.err != nil || h.result.Text != "ok" {
			t.Errorf("turn %d: got %q and %v", turn, h.result.Text, h.err)
		}
		if n := len(model.Calls()); n != want {
			t.Errorf("turn %d: %d calls so far, want %d", turn, n, want)
		}
	}
	if got := model.Calls()[3].Field("max_completion_tokens"); got != 50.0 {
		t.Errorf("max_completion_tokens: got %v, want 50", got)
	}
}

func TestFinishReasons(t *testing.T) {
	t.Parallel()
	for finish, want := range map[string]string{"stop": agent.StopNormal, "length": agent.StopLength, "tool_calls": agent.StopNormal} {
		model := testmodel.Start(t)
		model.Answer(always(testmodel.Reply{Pieces: []string{"a"}, Finish: finish, InputTokens: 3, OutputTokens: 4}))
		h := ask(t.Context(), open(t, model, openai.Config{}), agenttest.Request("hi"))
		if h.err != nil || h.result.StopReason != want {
			t.Errorf("%s: got %q and %v, want %q", finish, h.result.StopReason, h.err, want)
		}
		if diff := cmp.Diff(chat.Usage{InputTokens: 3, OutputTokens: 4, Model: "test-model", Provider: "openai"}, h.result.Usage); diff != "" {
			t.Errorf("%s: usage (-want +got):\n%s", finish, diff)
		}
	}
}

// TestConnectionsAreUsedAgain checks that a connection is reused if the server closes its stream shortly after the last event, as
// real ones do, and that a server that never closes it costs its connection but hardly any time.
func TestConnectionsAreUsedAgain(t *testing.T) {
	t.Parallel()
	for want, reply := range map[int]testmodel.Reply{1: {CloseAfter: 20 * time.Millisecond}, 3: {KeepOpen: true}} {
		synctest.Test(t, func(t *testing.T) {
			model, end := testmodel.StartInMemory(t)
			defer end()
			model.Answer(always(reply))
			runner := open(t, model, openai.Config{})
			for range 3 {
				if h := ask(t.Context(), runner, agenttest.Request("hi")); h.err != nil || h.took > 200*time.Millisecond {
					t.Errorf("got %v after %s, want an answer within 200ms", h.err, h.took)
				}
			}
			if n := model.Connections(); n != want {
				t.Errorf("three turns made %d connections, want %d", n, want)
			}
		})
	}
}

func TestNewNamesEveryFault(t *testing.T) {
	t.Parallel()
	for want, cfg := range map[string]openai.Config{
		"model":         {},
		"base_url":      {Model: "m", BaseURL: "ftp://host"},
		"has no host":   {Model: "m", BaseURL: "http://"},
		"query":         {Model: "m", BaseURL: "http://host?key=1"},
		"not a URL":     {Model: "m", BaseURL: "http://user:secret@[::1"},
		"temperature":   {Model: "m", Temperature: new(2.1)},
		"top_p":         {Model: "m", TopP: new(-0.1)},
		"stop":          {Model: "m", Stop: make([]string, 17)},
		"max_tokens":    {Model: "m", ContextWindow: 10, MaxTokens: 10},
		"not be negati": {Model: "m", ContextWindow: -1},
		"retries":       {Model: "m", Retries: 11},
	} {
		_, err := openai.New(cfg, nil, nil)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("got %v, want an error with %q and no secret", err, want)
		}
	}
}

func ExampleNew() {
	runner, err := openai.New(openai.Config{BaseURL: "http://127.0.0.1:11434/v1", Model: "some-model"}, nil, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer runner.Close()
	ctx, cancel := context.WithCancel(context.Background())
	cancel() // ends the call before any answer
	_, err = runner.Run(ctx, agent.Request{Messages: []chat.Content{{Text: "hello"}}}, func(event agent.Event) {
		fmt.Print(event.Text)
	})
	fmt.Println(err)
	// Output: context canceled
}
