package model_test

import (
	"context"
	"encoding/json"
	"errors"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"laneway/internal/agent"
	"laneway/internal/agent/agenttest"
	"laneway/internal/agent/anthropic"
	"laneway/internal/agent/internal/model"
	"laneway/internal/agent/openai"
	"laneway/internal/chat"
	"laneway/internal/testmodel"
)

// endpoint is how a service answers a turn that calls a tool once, in the shape of its documents.
type endpoint struct {
	anthropic bool
	// stream are the events of the answer with the call; a document if it begins with a brace.
	stream string
	// text is what the person sees of it; args those of the call, {"n":1} if empty; more those of
	// further calls.
	text, args string
	more       []string
	// back are parts of the message that has to return with the result; never those that must not.
	back, never []string
	usage       chat.Usage
}

func event(data string) string { return "data: " + data + "\n\n" }

func delta(members string) string {
	return event(`{"id":"c","object":"chat.completion.chunk","model":"m","choices":[{"index":0,"delta":` + members + `,"finish_reason":null}]}`)
}

func finish(reason string) string {
	return event(`{"id":"c","model":"m","choices":[{"index":0,"delta":{},"finish_reason":"`+reason+`"}]}`) + "data: [DONE]\n\n"
}

const callOf = `"type":"function","function":{"name":"set","arguments":"{\"n\":1}"}`

func endpoints() map[string]endpoint {
	return map[string]endpoint{
		"Gemini": {
			stream: delta(`{"role":"assistant","tool_calls":[{"id":"function-call-7","index":0,`+callOf+`,"extra_content":{"google":{"thought_signature":"c2ln"}}}]}`) +
				event(`{"choices":[{"index":0,"delta":{"role":"assistant"},"finish_reason":"stop"}],"model":"m","usage":{"prompt_tokens":20,"completion_tokens":5,"total_tokens":40}}`) +
				"data: [DONE]\n\n",
			back:  []string{`"extra_content":{"google":{"thought_signature":"c2ln"}}`},
			usage: chat.Usage{InputTokens: 20, OutputTokens: 20},
		},
		"Mistral": {
			stream: delta(`{"role":"assistant","content":[{"type":"thinking","thinking":[{"type":"text","text":"A number."}]}]}`) +
				delta(`{"content":[{"type":"text","text":"Setting"},{"type":"reference","reference_ids":[1]}]}`) + delta(`{"content":" it."}`) +
				event(`{"model":"m","choices":[{"index":0,"delta":{"content":"","tool_calls":[{"id":"D6","index":0,"function":{"name":"set","arguments":"{\"n\":1}"}}]},"finish_reason":"tool_calls"}],"usage":{"prompt_tokens":9,"total_tokens":13,"completion_tokens":4}}`) +
				"data: [DONE]\n\n",
			text:  "Setting it.",
			back:  []string{`"thinking":[{"text":"A number.","type":"text"}]`, `"reference_ids":[1]`, `{"text":" it.","type":"text"}`},
			usage: chat.Usage{InputTokens: 9, OutputTokens: 4},
		},
		"XAI": {
			stream: delta(`{"role":"assistant","reasoning_content":"A "}`) + delta(`{"reasoning_content":"number."}`) +
				delta(`{"content":null,"refusal":null,"tool_calls":[{"id":"call_9","index":0,`+callOf+`}]}`) +
				event(`{"model":"m","choices":[],"usage":{"prompt_tokens":279,"completion_tokens":6,"total_tokens":374,"completion_tokens_details":{"reasoning_tokens":89}}}`) + finish("tool_calls"),
			back: []string{`"reasoning_content":"A number."`}, never: []string{`"refusal"`},
			usage: chat.Usage{InputTokens: 279, OutputTokens: 95},
		},
		"DeepSeek": {
			stream: ": keep-alive\n\n" + delta(`{"role":"assistant","content":null,"reasoning_content":""}`) +
				delta(`{"tool_calls":[{"index":0,"id":"call_0","type":"function","function":{"name":"set","arguments":""}}]}`) +
				delta(`{"tool_calls":[{"index":0,"function":{"arguments":"{\"n\""}}]}`) + delta(`{"tool_calls":[{"index":0,"function":{"arguments":":1}"}}]}`) +
				event(`{"model":"m","choices":[{"index":0,"delta":{"content":"","reasoning_content":null},"logprobs":null,"finish_reason":"tool_calls"}],"usage":{"prompt_tokens":30,"completion_tokens":8,"total_tokens":38,"prompt_cache_hit_tokens":16,"prompt_cache_miss_tokens":14}}`) +
				"data: [DONE]\n\n",
			back:  []string{`"reasoning_content":""`},
			usage: chat.Usage{InputTokens: 30, OutputTokens: 8, CachedTokens: 16},
		},
		"Moonshot": {
			stream: delta(`{"role":"assistant","reasoning_content":"hm"}`) + delta(`{"tool_calls":[{"index":0,"id":"functions.set:0",`+callOf+`}]}`) +
				event(`{"model":"m","choices":[{"index":0,"delta":{},"finish_reason":"tool_calls","usage":{"prompt_tokens":12,"completion_tokens":3,"total_tokens":15,"cached_tokens":4}}]}`) +
				"data: [DONE]\n\n",
			back:  []string{`"reasoning_content":"hm"`, `"id":"functions.set:0"`},
			usage: chat.Usage{InputTokens: 12, OutputTokens: 3, CachedTokens: 4},
		},
		"VLLM": {
			stream: strings.ReplaceAll(delta(`{"role":"assistant","content":""}`)+delta(`{"reasoning":"so"}`)+
				delta(`{"tool_calls":[{"id":"chatcmpl-tool-1","type":"function","index":0,"function":{"name":"set"}}]}`)+
				delta(`{"tool_calls":[{"index":0,"function":{"arguments":"{\"n\": "}}]}`)+delta(`{"tool_calls":[{"index":0,"function":{"arguments":"1}"}}]}`)+finish("tool_calls"), "data: ", "data:"),
			args: `{"n": 1}`, back: []string{`"reasoning":"so"`},
		},
		"LlamaCpp": {
			stream: strings.ReplaceAll(delta(`{"role":"assistant","content":null}`)+delta(`{"tool_calls":[{"index":0,"id":"","type":"function","function":{"name":"set","arguments":"{"}}]}`)+
				delta(`{"tool_calls":[{"index":0,"function":{"arguments":"\"n\":1"}}]}`)+delta(`{"tool_calls":[{"index":0,"function":{"arguments":"}"}}]}`)+
				event(`{"model":"m","choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}],"timings":{"prompt_n":4}}`)+"data: [DONE]\n\n", "\n", "\r\n"),
			back: []string{`"id":"call01001"`},
		},
		"Ollama": {
			stream: `{"id":"c","object":"chat.completion","model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"","reasoning":"I set it.","tool_calls":[{"id":"call_u","index":0,"type":"function","function":{"name":"set","arguments":{"n":1}}}]},"finish_reason":"tool_calls"}],"usage":{"prompt_tokens":7,"completion_tokens":2,"total_tokens":9}}`,
			back:   []string{`"reasoning":"I set it."`},
			usage:  chat.Usage{InputTokens: 7, OutputTokens: 2},
		},
		"GeminiParallel": { // each call has the index 0, and only the first one is signed
			stream: delta(`{"role":"assistant","content":"<think>","extra_content":{"google":{"thought":true}}}`) +
				delta(`{"tool_calls":[{"id":"f-1","index":0,`+callOf+`,"extra_content":{"google":{"thought_signature":"c2ln"}}}]}`) +
				delta(`{"tool_calls":[{"id":"f-2","index":0,"type":"function","function":{"name":"set","arguments":"{\"n\":2}"}}]}`) + finish("STOP"),
			text: "<think>", more: []string{`{"n":2}`},
			back: []string{`"extra_content":{"google":{"thought_signature":"c2ln"}}`, `"id":"f-2"`, `"thought":true`},
		},
		"MistralWithoutIDs": { // "null" is the id of older releases
			stream: `{"id":"c","object":"chat.completion","model":"m","choices":[{"index":0,"message":{"role":"assistant","tool_calls":[{"id":"null","function":{"name":"set","arguments":"{\"n\":1}"}},{"id":"null","function":{"name":"set","arguments":"{\"n\":2}"}}],"content":"","prefix":false},"finish_reason":"tool_calls"}],"usage":{"prompt_tokens":9,"total_tokens":13,"completion_tokens":4}}`,
			more:   []string{`{"n":2}`}, back: []string{`"id":"call01002"`},
			usage: chat.Usage{InputTokens: 9, OutputTokens: 4},
		},
		"VLLMBothNames": {
			stream: delta(`{"role":"assistant","content":"","reasoning_content":null}`) + delta(`{"reasoning":"s","reasoning_content":"s"}`) + delta(`{"reasoning":"o","reasoning_content":"o"}`) +
				delta(`{"tool_calls":[{"index":0,"id":"chatcmpl-tool-9",`+callOf+`}],"function_call":null}`) +
				event(`{"model":"m","choices":[{"index":0,"delta":{"content":""},"logprobs":null,"finish_reason":"tool_calls","stop_reason":128008,"token_ids":null}],"usage":{"prompt_tokens":5,"total_tokens":9,"completion_tokens":4}}`) + event(`{"choices":[],"usage":{"prompt_tokens":5,"total_tokens":9,"completion_tokens":4}}`) + "data: [DONE]\n\n",
			back: []string{`"reasoning":"so"`, `"reasoning_content":"so"`}, never: []string{"function_call\"", "logprobs"},
			usage: chat.Usage{InputTokens: 5, OutputTokens: 4},
		},
		"OllamaStream": { // whole calls, one an event, each with the index 0
			stream: delta(`{"role":"assistant","content":"","reasoning":"two"}`) + delta(`{"role":"assistant","content":"","tool_calls":[{"id":"call_a","index":0,`+callOf+`}]}`) +
				delta(`{"role":"assistant","content":"","tool_calls":[{"id":"call_b","index":0,"type":"function","function":{"name":"set","arguments":"{\"n\":2}"}}]}`) + finish("tool_calls"),
			more: []string{`{"n":2}`}, back: []string{`"reasoning":"two"`, `"id":"call_b"`},
		},
		"LlamaCppWhole": {
			stream: `{"choices":[{"finish_reason":"tool_calls","index":0,"message":{"role":"assistant","reasoning_content":"n","content":null,"tool_calls":[{"type":"function","function":{"name":"set","arguments":"{\"n\":1}"},"id":"L1LMSUSe8bsbSHw8"}]}}],"created":1,"model":"m","system_fingerprint":"b1","object":"chat.completion","usage":{"completion_tokens":3,"prompt_tokens":8,"total_tokens":11},"timings":{"prompt_n":8}}`,
			back:   []string{`"reasoning_content":"n"`, `"id":"L1LMSUSe8bsbSHw8"`},
			usage:  chat.Usage{InputTokens: 8, OutputTokens: 3},
		},
		"OpenRouter": {
			stream: ": OPENROUTER PROCESSING\n\n" + delta(`{"role":"assistant","content":"","reasoning":"on","reasoning_details":[{"type":"reasoning.summary","summary":"on","index":0}]}`) +
				delta(`{"reasoning":"e","reasoning_details":[{"type":"reasoning.summary","summary":"e","index":0},{"type":"reasoning.encrypted","data":"ab","index":1}]}`) +
				delta(`{"annotations":[{"type":"x"}],"tool_calls":[{"index":0,"id":"t",`+callOf+`}]}`) + finish("tool_calls"),
			back:  []string{`"reasoning":"one"`, `"summary":"one"`, `"data":"ab"`},
			never: []string{"annotations"},
		},
		"AnthropicServerTool": { // the endpoint makes a call as well, whose input comes in pieces
			anthropic: true,
			stream: event(`{"type":"message_start","message":{"model":"m","usage":{"input_tokens":5,"output_tokens":1}}}`) +
				event(`{"type":"content_block_start","index":0,"content_block":{"type":"server_tool_use","id":"srvtoolu_1","name":"web_search","input":{}}}`) +
				event(`{"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":""}}`) +
				event(`{"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":"{\"query\": \"ti"}}`) +
				event(`{"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":"des\", \"n\": 12345678901234567890}"}}`) +
				event(`{"type":"content_block_stop","index":0}`) +
				event(`{"type":"content_block_start","index":1,"content_block":{"type":"web_search_tool_result","tool_use_id":"srvtoolu_1","content":[{"type":"web_search_result","url":"https://x.example","encrypted_content":"E"}]}}`) +
				event(`{"type":"content_block_stop","index":1}`) +
				event(`{"type":"content_block_start","index":2,"content_block":{"type":"tool_use","id":"toolu_1","name":"set","input":{}}}`) +
				event(`{"type":"content_block_delta","index":2,"delta":{"type":"input_json_delta","partial_json":"{\"n\":1}"}}`) + event(`{"type":"content_block_stop","index":2}`) +
				event(`{"type":"message_delta","delta":{"stop_reason":"tool_use"},"usage":{"output_tokens":9}}`) + event(`{"type":"message_stop"}`),
			back: []string{
				`{"id":"srvtoolu_1","input":{"query":"tides","n":12345678901234567890},"name":"web_search","type":"server_tool_use"}`, `"encrypted_content":"E"`,
			},
			never: []string{"partial_json", "arguments"},
			usage: chat.Usage{InputTokens: 5, OutputTokens: 9},
		},
		"Anthropic": {
			anthropic: true,
			stream: "event: message_start\n" + event(`{"type":"message_start","message":{"model":"m","usage":{"input_tokens":5,"cache_read_input_tokens":3,"output_tokens":1}}}`) + "event: ping\n" + event(`{"type":"ping"}`) +
				event(`{"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":"","signature":""}}`) +
				event(`{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"A "}}`) + event(`{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"number."}}`) +
				event(`{"type":"content_block_delta","index":0,"delta":{"type":"signature_delta","signature":"EqQB"}}`) +
				event(`{"type":"content_block_start","index":1,"content_block":{"type":"redacted_thinking","data":"xyz"}}`) +
				event(`{"type":"content_block_start","index":2,"content_block":{"type":"text","text":""}}`) + event(`{"type":"content_block_delta","index":2,"delta":{"type":"text_delta","text":"Set."}}`) +
				event(`{"type":"content_block_delta","index":2,"delta":{"type":"citations_delta","citation":{"type":"char_location","cited_text":"c"}}}`) +
				event(`{"type":"content_block_start","index":3,"content_block":{"type":"tool_use","id":"toolu_1","name":"set","input":{},"caller":{"type":"direct"}}}`) +
				event(`{"type":"content_block_delta","index":3,"delta":{"type":"input_json_delta","partial_json":"{\"n\""}}`) + event(`{"type":"content_block_delta","index":3,"delta":{"type":"input_json_delta","partial_json":":1}"}}`) +
				event(`{"type":"message_delta","delta":{"stop_reason":"tool_use"},"usage":{"output_tokens":9}}`) + event(`{"type":"message_stop"}`),
			text: "Set.",
			back: []string{
				`{"signature":"EqQB","thinking":"A number.","type":"thinking"},{"data":"xyz","type":"redacted_thinking"},`, `"cited_text":"c"`, `"caller":{"type":"direct"}`,
			},
			usage: chat.Usage{InputTokens: 8, OutputTokens: 9, CachedTokens: 3},
		},
	}
}

// journal is a toolbox of one tool and the journal of a turn that may be killed in its call.
type journal struct {
	rounds []chat.Round
	input  []chat.Content          // that arrived during the first round
	kill   context.CancelCauseFunc // nil = the turn goes on

	mu     sync.Mutex
	called []string
}

func (*journal) Specs() []agent.ToolSpec {
	return []agent.ToolSpec{{Name: "set", Schema: []byte(`{"type":"object"}`), Idempotent: true}}
}

var errKilled = errors.New("killed")

func (j *journal) Call(_ context.Context, _ string, call chat.ToolCall) chat.ToolResult {
	j.mu.Lock()
	j.called = append(j.called, call.Name+" "+call.Args)
	j.mu.Unlock()
	if j.kill != nil {
		j.kill(errKilled)
	}
	return chat.ToolResult{Text: "set to 1"}
}

func (j *journal) Record(_ context.Context, round chat.Round) error {
	round.Extra = append(json.RawMessage(nil), round.Extra...)
	round.Results = make([]*chat.ToolResult, len(round.Calls))
	j.rounds = append(j.rounds, round)
	return nil
}

func (j *journal) RecordResult(_ context.Context, number, n int, result chat.ToolResult) error {
	j.rounds[number-1].Results[n] = &result
	return nil
}

func (j *journal) Rounds() (out []agent.Round) {
	for i, round := range j.rounds {
		out = append(out, agent.Round{Round: round})
		if i == 0 {
			out[i].Input = j.input
		}
	}
	return out
}

func open(t *testing.T, server *testmodel.Server, isAnthropic bool, name string) *model.Runner {
	t.Helper()
	newRunner, path := openai.New, "/v1"
	if isAnthropic {
		newRunner, path = anthropic.New, ""
	}
	runner, err := newRunner(model.Config{BaseURL: server.URL() + path, Model: name, Retries: -1}, server.Transport(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(runner.Close)
	return runner
}

// messagesOf returns the conversation of a request.
func messagesOf(t *testing.T, call testmodel.Call) string {
	t.Helper()
	var body struct {
		Messages json.RawMessage `json:"messages"`
	}
	if err := json.Unmarshal(call.Body, &body); err != nil {
		t.Fatal(err)
	}
	return string(body.Messages)
}

// TestEndpointsGetBackWhatTheySent plays a round of each endpoint: straight through, and killed in
// the call with a replay of the journal by another process. Both must make the same request with
// the result.
func TestEndpointsGetBackWhatTheySent(t *testing.T) {
	t.Parallel()
	for name, e := range endpoints() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := testmodel.Start(t)
			server.Answer(func(call testmodel.Call) testmodel.Reply {
				switch {
				case strings.Contains(string(call.Body), "set to 1"):
					return testmodel.Reply{Pieces: []string{"done"}}
				case e.stream[0] == '{':
					return testmodel.Reply{Type: "application/json", Body: e.stream}
				default:
					return testmodel.Reply{Type: "text/event-stream", Body: e.stream}
				}
			})
			straight, killed := &journal{}, &journal{}
			req := agenttest.Request("please")
			req.Tools, req.Journal = straight, straight
			result, err := open(t, server, e.anthropic, "m").Run(t.Context(), req, func(agent.Event) {})
			if want := strings.TrimPrefix(e.text+"\n\ndone", "\n\n"); err != nil || result.Text != want {
				t.Fatalf("got %q and %v, want %q", result.Text, err, want)
			}
			got := straight.rounds[0].Usage
			got.Model, got.Provider = "", ""
			if got != e.usage {
				t.Errorf("usage: got %+v, want %+v", got, e.usage)
			}
			ctx, kill := context.WithCancelCause(t.Context())
			killed.kill = kill
			req.Tools, req.Journal = killed, killed
			if _, err := open(t, server, e.anthropic, "m").Run(ctx, req, func(agent.Event) {}); !errors.Is(err, errKilled) {
				t.Fatalf("got %v, want the kill", err)
			}
			killed.kill = nil
			if again, err := open(t, server, e.anthropic, "m").Run(t.Context(), req, func(agent.Event) {}); err != nil || again.Text != result.Text {
				t.Fatalf("after the kill: got %q and %v, want %q", again.Text, err, result.Text)
			}
			args := e.args
			if args == "" {
				args = `{"n":1}`
			}
			for n, args := range append([]string{args}, e.more...) {
				var made int
				for _, call := range append(slices.Clone(straight.called), killed.called...) {
					if call == "set "+args {
						made++
					}
				}
				if made < 2 || n == 0 && len(e.more) == 0 && made != 3 || len(straight.called) != 1+len(e.more) {
					t.Errorf("calls: got %q and %q, want %q in each", straight.called, killed.called, args)
				}
			}
			calls := server.Calls()
			first, second := messagesOf(t, calls[1]), messagesOf(t, calls[len(calls)-1])
			if diff := cmp.Diff(first, second); diff != "" {
				t.Errorf("the replay differs (-straight +replayed):\n%s", diff)
			}
			for _, part := range e.back {
				if !strings.Contains(first, part) {
					t.Errorf("%s did not return:\n%s", part, first)
				}
			}
			for _, part := range e.never {
				if strings.Contains(first, part) {
					t.Errorf("%s returned:\n%s", part, first)
				}
			}
			other := &journal{rounds: straight.rounds}
			req.Tools, req.Journal = other, other
			if _, err := open(t, server, e.anthropic, "other").Run(t.Context(), req, func(agent.Event) {}); err != nil {
				t.Fatal(err)
			}
			calls = server.Calls()
			for _, part := range e.back {
				if elsewhere := messagesOf(t, calls[len(calls)-1]); !strings.Contains(part, `"id"`) && strings.Contains(elsewhere, part) {
					t.Errorf("%s went to another model:\n%s", part, elsewhere)
				}
			}
		})
	}
}

// strict are endpoints that refuse a conversation which others take. Each has its own words for
// what is wrong with the messages of a request; "" accepts it.
func strict() map[string]func(sent string, messages []model.Object) string {
	calls := func(messages []model.Object, refuses func(m, call model.Object) bool) bool {
		return slices.ContainsFunc(messages, func(m model.Object) bool {
			return slices.ContainsFunc(m.List("tool_calls"), func(call model.Object) bool { return refuses(m, call) })
		})
	}
	nine := regexp.MustCompile(`^[a-zA-Z0-9]{9}$`)
	return map[string]func(string, []model.Object) string{
		"Mistral": func(_ string, messages []model.Object) string {
			for i := 1; i < len(messages); i++ {
				if messages[i].String("role") == "user" && messages[i-1].String("role") == "tool" {
					return "Unexpected role 'user' after role 'tool'"
				}
			}
			if calls(messages, func(_, call model.Object) bool { return !nine.MatchString(call.String("id")) }) {
				return "Tool call id was functions.set:0 but must be a-z, A-Z, 0-9, with a length of 9."
			}
			return ""
		},
		"Template": func(_ string, messages []model.Object) string {
			last := ""
			for _, m := range messages {
				role := m.String("role")
				if role == "tool" || len(m.List("tool_calls")) > 0 || role == "system" {
					continue
				}
				if role == last {
					return "After the optional system message, conversation roles must alternate user and assistant roles except for tool calls and results."
				}
				last = role
			}
			return ""
		},
		"Gemini": func(_ string, messages []model.Object) string {
			if calls(messages, func(_, call model.Object) bool {
				return call.Object("extra_content").Object("google").String("thought_signature") == ""
			}) {
				return "Function call is missing a thought_signature in functionCall parts. This is required for tools to work correctly. Function call `default_api:set`, position 2."
			}
			return ""
		},
		"DeepSeek": func(_ string, messages []model.Object) string {
			if calls(messages, func(m, _ model.Object) bool { return m["reasoning_content"] == nil }) {
				return "The `reasoning_content` in the thinking mode must be passed back to the API."
			}
			return ""
		},
		"Moonshot": func(_ string, messages []model.Object) string {
			if calls(messages, func(m, _ model.Object) bool { return m.String("reasoning_content") == "" }) {
				return "thinking is enabled but reasoning_content is missing in assistant tool call message at index 2"
			}
			return ""
		},
		"OpenAI": func(_ string, messages []model.Object) string {
			if calls(messages, func(_, call model.Object) bool { return len(call.String("id")) > 40 }) {
				return "Invalid 'messages[2].tool_calls[0].id': string too long. Expected a string with maximum length 40, but got a string with length 60 instead."
			}
			return ""
		},
		"Anthropic": func(sent string, messages []model.Object) string {
			pattern, thought, called := regexp.MustCompile(`^[a-zA-Z0-9_-]+$`), false, false
			for _, m := range messages {
				for _, block := range m.List("content") {
					switch {
					case strings.Contains(block.String("type"), "thinking"):
						thought = true
					case block.String("type") == "tool_use" && !pattern.MatchString(block.String("id")):
						return "messages.1.content.0.tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'"
					case block.String("type") == "tool_result" && block["is_error"] == true && block.String("content") == "":
						return "messages.2.content.0.tool_result: content cannot be empty if `is_error` is true"
					}
					called = called || block.String("type") == "tool_use"
				}
			}
			if called && !thought && strings.Contains(sent, `"thinking":{"type":"enabled"`) {
				return "messages.1.content.0.type: Expected `thinking` or `redacted_thinking`, but found `tool_use`. When `thinking` is enabled, a final `assistant` message must start with a thinking block."
			}
			return ""
		},
		"Bedrock": func(_ string, messages []model.Object) string {
			for _, m := range messages {
				if m.String("role") == "tool" && strings.TrimSpace(m.String("content")) == "" {
					return "The content field in the Message object at messages.2 is empty. Add a ContentBlock object to the content field and try again."
				}
			}
			return ""
		},
	}
}

// TestStrictEndpointsTakeTheRoundsOfAnother replays a journal that another model has written: its
// ids are long and have other characters, nothing is signed, a tool failed without a word, and a
// message arrived meanwhile.
func TestStrictEndpointsTakeTheRoundsOfAnother(t *testing.T) {
	t.Parallel()
	for name, refuses := range strict() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := testmodel.Start(t)
			server.Answer(func(call testmodel.Call) testmodel.Reply {
				var body struct {
					Messages []model.Object `json:"messages"`
				}
				if err := json.Unmarshal(call.Body, &body); err != nil {
					t.Error(err)
				}
				if says := refuses(string(call.Body), body.Messages); says != "" {
					return testmodel.Reply{Status: 400, Kind: "invalid_request_error", Message: says}
				}
				return testmodel.Reply{Pieces: []string{"done"}}
			})
			kept := &journal{input: []chat.Content{{Text: "and hurry"}}, rounds: []chat.Round{{
				Number: 1, Extra: json.RawMessage(`{"endpoint":"http://elsewhere","model":"m","message":{"reasoning":"r"}}`),
				Calls:   []chat.ToolCall{{ID: "functions.set:0/" + strings.Repeat("x", 44), Name: "set", Args: `{"n":1}`}},
				Results: []*chat.ToolResult{{IsError: true}},
			}}}
			req := agenttest.Request("please")
			req.Tools, req.Journal, req.Thinking = kept, kept, "low"
			runner := open(t, server, name == "Anthropic", "m")
			for range 2 {
				if result, err := runner.Run(t.Context(), req, func(agent.Event) {}); err != nil || result.Text != "done" {
					t.Fatalf("got %q and %v; lacks %v", result.Text, err, runner.Lacks())
				}
			}
			calls := server.Calls()
			if sent := messagesOf(t, calls[len(calls)-1]); len(calls) > 4 || !strings.Contains(sent, "and hurry") || !strings.Contains(sent, `"set"`) || strings.Contains(sent, `"r"`) {
				t.Errorf("%d requests for two turns, the last one has %s", len(calls), sent)
			}
		})
	}
}

// A round whose members are larger than the limit continues without them.
// TestProgramsBringSignaturesBack: a program that makes the calls gets what the endpoint wants back
// with them, and only the endpoint and model that sent it receive it again.
func TestProgramsBringSignaturesBack(t *testing.T) {
	t.Parallel()
	server := testmodel.Start(t)
	gemini := endpoints()["GeminiParallel"]
	server.Answer(func(call testmodel.Call) testmodel.Reply {
		if strings.Contains(string(call.Body), "rain") {
			return testmodel.Reply{Pieces: []string{"done"}}
		}
		return testmodel.Reply{Type: "text/event-stream", Body: gemini.stream}
	})
	run := func(anthropic bool, model string, rounds ...chat.Round) (agent.Result, string) {
		req := agenttest.Request("please")
		req.Client = &chat.ClientTools{Tools: []chat.ClientTool{{Name: "set", Schema: []byte(`{"type":"object"}`)}}, Rounds: rounds}
		result, err := open(t, server, anthropic, model).Run(t.Context(), req, func(agent.Event) {})
		if err != nil {
			t.Fatal(err)
		}
		calls := server.Calls()
		return result, messagesOf(t, calls[len(calls)-1])
	}
	asked, _ := run(false, "m")
	if len(asked.Calls) != 2 || !strings.Contains(asked.Calls[0].Extra, `"thought_signature":"c2ln"`) || strings.Contains(asked.Calls[0].Extra, "127.0.0.1") || asked.Calls[1].Extra != "" {
		t.Fatalf("the program got %+v", asked.Calls)
	}
	rain := []*chat.ToolResult{{Text: "rain", Foreign: true}, {Text: "rain", Foreign: true}}
	foreign := slices.Clone(asked.Calls)
	foreign[0].Extra = `{"google":{"thought_signature":"b3du"}}`
	broken := slices.Clone(asked.Calls)
	broken[0].Extra = `{"google"`
	for name, c := range map[string]struct {
		anthropic bool
		model     string
		calls     []chat.ToolCall
		want      string
	}{
		"the same model": {model: "m", calls: asked.Calls, want: `"extra_content":{"google":{"thought_signature":"c2ln"}}`},
		"another model":  {model: "n", calls: asked.Calls},
		"from Google":    {model: "m", calls: foreign, want: `"extra_content":{"google":{"thought_signature":"b3du"}}`},
		"broken":         {model: "m", calls: broken},
		"the other API":  {anthropic: true, model: "m", calls: foreign},
	} {
		_, sent := run(c.anthropic, c.model, chat.Round{Number: 1, Calls: c.calls, Results: rain})
		if c.want == "" && strings.Contains(sent, "extra_content") || !strings.Contains(sent, c.want) || strings.Contains(sent, "laneway") {
			t.Errorf("%s: sent %s, want %s", name, sent, c.want)
		}
	}
}

func TestTooManyMembersEndNoTurn(t *testing.T) {
	t.Parallel()
	for size, returns := range map[int]bool{200 << 10: true, 300 << 10: false} {
		server := testmodel.Start(t)
		signature := strings.Repeat("s", size)
		server.Answer(func(call testmodel.Call) testmodel.Reply {
			if strings.Contains(string(call.Body), "set to 1") {
				return testmodel.Reply{Pieces: []string{"done"}}
			}
			var events strings.Builder
			events.WriteString(delta(`{"role":"assistant","tool_calls":[{"id":"c1","index":0,` + callOf + `}]}`))
			for piece := signature; piece != ""; piece = piece[min(len(piece), 10<<10):] {
				events.WriteString(delta(`{"reasoning":"` + piece[:min(len(piece), 10<<10)] + `"}`))
			}
			return testmodel.Reply{Type: "text/event-stream", Body: events.String() + finish("tool_calls")}
		})
		kept := &journal{}
		req := agenttest.Request("please")
		req.Tools, req.Journal = kept, kept
		result, err := open(t, server, false, "m").Run(t.Context(), req, func(agent.Event) {})
		if err != nil || result.Text != "done" {
			t.Fatalf("%d bytes: got %q and %v", size, result.Text, err)
		}
		if got := strings.Contains(messagesOf(t, server.Calls()[1]), signature); got != returns {
			t.Errorf("%d bytes returned: %v, want %v", size, got, returns)
		}
		if got := len(kept.rounds[0].Extra); got > 256<<10 || (got > 0) != returns {
			t.Errorf("%d bytes of %d are kept", got, size)
		}
	}
}

// Journals of the release before had only the thoughts: a string, or a list of blocks.
func TestJournalsOfOlderReleasesAreRead(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		anthropic   bool
		extra, back string
	}{
		"OpenAI":            {false, `"I must set it."`, `"reasoning_content":"I must set it."`},
		"Anthropic":         {true, `[{"type":"thinking","thinking":"I must set it.","signature":"c2ln"}]`, `"signature":"c2ln"`},
		"of another runner": {true, `"I must set it."`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := testmodel.Start(t)
			server.Answer(func(testmodel.Call) testmodel.Reply { return testmodel.Reply{Pieces: []string{"done"}} })
			call := chat.ToolCall{ID: "c1", Name: "set", Args: `{"n":1}`}
			kept := &journal{rounds: []chat.Round{{
				Number: 1, Calls: []chat.ToolCall{call}, Extra: json.RawMessage(c.extra), Results: []*chat.ToolResult{{Text: "set to 1"}},
			}}}
			req := agenttest.Request("please")
			req.Tools, req.Journal = kept, kept
			if result, err := open(t, server, c.anthropic, "m").Run(t.Context(), req, func(agent.Event) {}); err != nil || result.Text != "done" {
				t.Fatalf("got %q and %v", result.Text, err)
			}
			sent := messagesOf(t, server.Calls()[0])
			if !strings.Contains(sent, c.back) || c.back == "" && strings.Contains(sent, "I must set it.") {
				t.Errorf("the request has %s, want %s", sent, c.back)
			}
		})
	}
}
