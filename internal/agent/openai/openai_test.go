package openai_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"laneway/internal/agent"
	"laneway/internal/agent/agenttest"
	"laneway/internal/agent/openai"
	"laneway/internal/chat"
	"laneway/internal/secret"
	"laneway/internal/testmodel"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const key = "sk-very-secret-0123456789"

//nolint:paralleltest // the suite checks for leftover goroutines
func TestContract(t *testing.T) {
	agenttest.Run(t, testmodel.Subject(testmodel.Words{
		Refusal: "content_filter", ServerError: "server_error", TooLong: func(r *testmodel.Reply) { r.Code = "context_length_exceeded" },
	}, func(t *testing.T, model *testmodel.Server, maxAnswer int) agent.Runner {
		t.Helper()
		return open(t, model, openai.Config{MaxAnswer: maxAnswer, Retries: -1})
	}))
}

// open returns a runner that calls the model server.
func open(t *testing.T, model *testmodel.Server, cfg openai.Config) *openai.Runner {
	t.Helper()
	cfg.BaseURL = model.URL() + "/v1"
	cfg.APIKey = secret.New(key)
	if cfg.Model == "" {
		cfg.Model = "test-model"
	}
	runner, err := openai.New(cfg, model.Transport(), nil)
	if err != nil {
		t.Fatalf("New: %v", err)
	}
	t.Cleanup(runner.Close)
	return runner
}

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

// TestEndpointsThatRefuseOptionsAreLearned checks that a refused option costs one additional call
// in the first turn and none later.
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

// TestConnectionsAreUsedAgain checks that a connection is reused if the server closes its stream
// shortly after the last event, as real ones do, and that a server that never closes it costs its
// connection but hardly any time.
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

// box is a toolbox and a journal; it answers each call with its arguments and keeps nothing.
type box struct{}

func (box) Specs() []agent.ToolSpec {
	return []agent.ToolSpec{{Name: "set", Schema: []byte(`{"type":"object"}`)}}
}

func (box) Call(_ context.Context, _ string, call chat.ToolCall) chat.ToolResult {
	return chat.ToolResult{Text: call.Args}
}

func (box) Rounds() []agent.Round                                         { return nil }
func (box) Record(context.Context, chat.Round) error                      { return nil }
func (box) RecordResult(context.Context, int, int, chat.ToolResult) error { return nil }

// wordy is a box whose tool has a description of about a thousand tokens.
type wordy struct{ box }

func (wordy) Specs() []agent.ToolSpec {
	specs := box{}.Specs()
	specs[0].Description = strings.Repeat("word ", 800)
	return specs
}

// TestToolsCountAgainstTheWindow checks that the descriptions of tools reduce the room for history.
func TestToolsCountAgainstTheWindow(t *testing.T) {
	t.Parallel()
	messages := func(tools agent.Toolbox, journal agent.Journal) int {
		req := agenttest.Request("last")
		req.Tools, req.Journal = tools, journal
		for i := range 50 {
			req.History = append(req.History,
				chat.TranscriptEntry{Role: chat.RoleUser, Text: fmt.Sprintf("question %d", i), Tokens: 100},
				chat.TranscriptEntry{Role: chat.RoleAssistant, Text: fmt.Sprintf("answer %d", i), Tokens: 100})
		}
		return len(sent(t, openai.Config{ContextWindow: 3000, MaxTokens: 500}, req).Messages)
	}
	without, few, many := messages(nil, nil), messages(box{}, box{}), messages(wordy{}, wordy{})
	if few > without || many > few-8 || many < 3 {
		t.Errorf("%d messages without tools, %d with a small one, %d with one of a thousand tokens", without, few, many)
	}
}

// secondQuestion runs a turn whose model first answers with reply, and returns the request after
// the calls.
func secondQuestion(t *testing.T, reply testmodel.Reply) testmodel.Call {
	t.Helper()
	model := testmodel.Start(t)
	model.Answer(func(call testmodel.Call) testmodel.Reply {
		if call.Number == 1 {
			return reply
		}
		return testmodel.Reply{Pieces: []string{"done"}}
	})
	req := agenttest.Request("please")
	req.Tools, req.Journal = box{}, box{}
	result, err := open(t, model, openai.Config{}).Run(t.Context(), req, func(agent.Event) {})
	if err != nil || result.Text != "done" {
		t.Fatalf("got %q and %v, want the answer", result.Text, err)
	}
	return model.Calls()[1]
}

func TestCallsOfEndpointsThatDiffer(t *testing.T) {
	t.Parallel()
	event := func(delta string) string { return `data: {"choices":[{"index":0,"delta":` + delta + `}]}` + "\n\n" }
	const end = "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n"
	two := []testmodel.ToolCall{{ID: "a", Name: "set", Args: `{"n":1}`}, {ID: "b", Name: "set", Args: `{"n":2}`}}
	for name, reply := range map[string]testmodel.Reply{
		"InPieces":      {Calls: two},
		"InOneDocument": {Calls: two, Whole: true},
		"WithoutNumbers": {Type: "text/event-stream", Body: event(`{"tool_calls":[{"id":"a","function":{"name":"set","arguments":"{\"n\":1}"}}]}`) +
			event(`{"tool_calls":[{"id":"b","function":{"name":"set","arguments":"{\"n\":2}"}}]}`) + end},
		"WithoutFunction":  {Type: "text/event-stream", Body: event(`{"tool_calls":[{"id":"a","name":"set","arguments":"{\"n\":1}"},{"id":"b","name":"set","arguments":{"n":2}}]}`) + end},
		"OtherNameOfInput": {Type: "text/event-stream", Body: event(`{"tool_calls":[{"id":"a","function":{"name":"set","parameters":{"n":1}}},{"id":"b","function":{"name":"set","input":{"n":2}}}]}`) + end},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			asked := secondQuestion(t, reply)
			want := []testmodel.ToolResult{{ID: "a", Text: `{"n":1}`}, {ID: "b", Text: `{"n":2}`}}
			if diff := cmp.Diff(want, asked.Results()); diff != "" {
				t.Errorf("results (-want +got):\n%s", diff)
			}
		})
	}
}

func TestThoughtsGoBackWithTheirRound(t *testing.T) {
	t.Parallel()
	asked := secondQuestion(t, testmodel.Reply{Thoughts: "I think so.", Calls: []testmodel.ToolCall{{ID: "a", Name: "set", Args: `{}`}}})
	var body struct {
		Messages []struct {
			Reasoning string `json:"reasoning_content"`
		} `json:"messages"`
	}
	if err := json.Unmarshal(asked.Body, &body); err != nil || len(body.Messages) != 3 || body.Messages[1].Reasoning != "I think so." {
		t.Errorf("got %+v and %v, want the thoughts in the message with the call", body, err)
	}
}

// TestUsageIsCountedOnceInEachForm: what is thought, read from a cache or written to it is inside of
// the prompt and the completion, or beside them.
func TestUsageIsCountedOnceInEachForm(t *testing.T) {
	t.Parallel()
	chunk := func(usage string) string { return `data: {"model":"m","choices":[],"usage":` + usage + "}\n\n" }
	for name, c := range map[string]struct {
		usage           string // in pieces, if it has several
		in, out, cached int
	}{
		"thoughts inside":             {usage: `{"prompt_tokens":100,"completion_tokens":50,"total_tokens":150,"completion_tokens_details":{"reasoning_tokens":40}}`, in: 100, out: 50},
		"thoughts beside (xAI)":       {usage: `{"prompt_tokens":279,"completion_tokens":6,"total_tokens":374,"completion_tokens_details":{"reasoning_tokens":89}}`, in: 279, out: 95},
		"thoughts beside (Gemini)":    {usage: `{"prompt_tokens":20,"completion_tokens":5,"total_tokens":40}`, in: 20, out: 20},
		"no total, inside":            {usage: `{"prompt_tokens":100,"completion_tokens":50,"completion_tokens_details":{"reasoning_tokens":40}}`, in: 100, out: 50},
		"no total, beside":            {usage: `{"prompt_tokens":279,"completion_tokens":6,"completion_tokens_details":{"reasoning_tokens":89}}`, in: 279, out: 95},
		"no total, beside, flat":      {usage: `{"prompt_tokens":279,"completion_tokens":6,"reasoning_tokens":89}`, in: 279, out: 95},
		"null details":                {usage: `{"prompt_tokens":10,"completion_tokens":5,"total_tokens":15,"prompt_tokens_details":null,"completion_tokens_details":null}`, in: 10, out: 5},
		"cache inside (OpenAI)":       {usage: `{"prompt_tokens":100,"completion_tokens":7,"total_tokens":107,"prompt_tokens_details":{"cached_tokens":64}}`, in: 100, out: 7, cached: 64},
		"cache inside (DeepSeek)":     {usage: `{"prompt_tokens":100,"completion_tokens":7,"total_tokens":107,"prompt_cache_hit_tokens":64,"prompt_cache_miss_tokens":36}`, in: 100, out: 7, cached: 64},
		"cache beside":                {usage: `{"prompt_tokens":10,"completion_tokens":5,"total_tokens":315,"cache_read_input_tokens":300}`, in: 310, out: 5, cached: 300},
		"cache read and written":      {usage: `{"prompt_tokens":10,"completion_tokens":5,"total_tokens":515,"cache_read_input_tokens":300,"cache_creation_input_tokens":200}`, in: 510, out: 5, cached: 300},
		"cache and thoughts beside":   {usage: `{"prompt_tokens":10,"completion_tokens":5,"total_tokens":395,"prompt_tokens_details":{"cached_tokens":300},"completion_tokens_details":{"reasoning_tokens":80}}`, in: 310, out: 85, cached: 300},
		"cache beside, thoughts in":   {usage: `{"prompt_tokens":10,"completion_tokens":90,"total_tokens":400,"prompt_tokens_details":{"cached_tokens":300},"completion_tokens_details":{"reasoning_tokens":80}}`, in: 310, out: 90, cached: 300},
		"no total, cache beside":      {usage: `{"prompt_tokens":10,"completion_tokens":5,"cache_read_input_tokens":300,"cache_creation_input_tokens":20}`, in: 330, out: 5, cached: 300},
		"names of responses":          {usage: `{"input_tokens":100,"output_tokens":7,"total_tokens":107,"input_tokens_details":{"cached_tokens":64},"output_tokens_details":{"reasoning_tokens":3}}`, in: 100, out: 7, cached: 64},
		"a total below the sum":       {usage: `{"prompt_tokens":10,"completion_tokens":5,"total_tokens":5}`, in: 10, out: 5},
		"growing":                     {usage: `{"prompt_tokens":10,"completion_tokens":1,"total_tokens":11}|{"prompt_tokens":10,"completion_tokens":5,"total_tokens":15}`, in: 10, out: 5},
		"null and zero before, after": {usage: `null|{"prompt_tokens":0,"completion_tokens":0,"total_tokens":0}|{"prompt_tokens":10,"completion_tokens":5,"total_tokens":15}|{"prompt_tokens":0,"completion_tokens":0,"total_tokens":0}|null`, in: 10, out: 5},
		"floats and negative counts":  {usage: `{"prompt_tokens":10.0,"completion_tokens":-5,"total_tokens":10}`, in: 10},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := testmodel.Start(t)
			server.Answer(func(testmodel.Call) testmodel.Reply {
				var body strings.Builder
				body.WriteString(`data: {"model":"m","choices":[{"index":0,"delta":{"content":"x"},"finish_reason":"stop"}],"usage":null}` + "\n\n")
				for piece := range strings.SplitSeq(c.usage, "|") {
					body.WriteString(chunk(piece))
				}
				return testmodel.Reply{Type: "text/event-stream", Body: body.String() + "data: [DONE]\n\n"}
			})
			got, err := open(t, server, openai.Config{}).Run(t.Context(), agenttest.Request("hi"), func(agent.Event) {})
			if want := (chat.Usage{InputTokens: c.in, OutputTokens: c.out, CachedTokens: c.cached, Model: "m", Provider: "openai"}); err != nil || got.Usage != want {
				t.Errorf("got %+v and %v, want %+v", got.Usage, err, want)
			}
		})
	}
}
