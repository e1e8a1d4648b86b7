package gateway_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"strings"
	"testing"
	"time"

	"laneway/internal/agent"
	"laneway/internal/chat"
	"laneway/internal/gateway"
	"laneway/internal/gateway/auth"
	"laneway/internal/store"
	"laneway/internal/testrun"
)

func TestCompletionAnswersWithTheTextOfTheRun(t *testing.T) {
	t.Parallel()
	b := start(t)
	got := b.post(completionsPath, ask("one two three"))
	if got.status != http.StatusOK || got.text(t) != "one two three" {
		t.Fatalf("%d %s", got.status, got.body)
	}
	body := got.json(t)
	run := got.header.Get("X-Laneway-Run-Id")
	if run == "" || body["id"] != "chatcmpl-"+run || body["object"] != "chat.completion" || body["model"] != "laneway" {
		t.Errorf("run %q, body %v", run, body)
	}
	if reason := body["choices"].([]any)[0].(map[string]any)["finish_reason"]; reason != "stop" {
		t.Errorf("finish_reason %v", reason)
	}
	if _, ok := body["usage"].(map[string]any)["total_tokens"]; !ok {
		t.Errorf("no usage: %v", body)
	}
}

// sse parses a stream of events: data lines, comments, and the end.
type sse struct {
	data     []string
	comments []string
}

func readSSE(t *testing.T, r io.Reader) sse {
	t.Helper()
	var out sse
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		line := lines.Text()
		if d, ok := strings.CutPrefix(line, "data: "); ok {
			out.data = append(out.data, d)
		}
		if strings.HasPrefix(line, ":") {
			out.comments = append(out.comments, line)
		}
	}
	return out
}

type streamed struct {
	Choices []struct {
		Delta        struct{ Role, Content string }
		FinishReason *string `json:"finish_reason"` //nolint:tagliatelle // OpenAI's name
	}
	Usage *struct {
		TotalTokens int `json:"total_tokens"` //nolint:tagliatelle // OpenAI's name
	}
	Error *struct{ Type, Code string }
}

func (s sse) chunks(t *testing.T) []streamed {
	t.Helper()
	if len(s.data) == 0 || s.data[len(s.data)-1] != "[DONE]" {
		t.Fatalf("the stream does not end with [DONE]: %q", s.data)
	}
	var out []streamed
	for _, d := range s.data[:len(s.data)-1] {
		out = append(out, decode[streamed](t, json.RawMessage(d)))
	}
	return out
}

func TestStreamedCompletionBeginsWithTheRoleAndEndsWithDone(t *testing.T) {
	t.Parallel()
	b := start(t)
	got := b.post(completionsPath, ask("one two three", params{"stream": true, "stream_options": params{"include_usage": true}}))
	if got.status != http.StatusOK || got.header.Get("Content-Type") != "text/event-stream" || got.header.Get("X-Laneway-Run-Id") == "" {
		t.Fatalf("%d %v", got.status, got.header)
	}
	chunks := readSSE(t, bytes.NewReader(got.body)).chunks(t)
	if chunks[0].Choices[0].Delta.Role != "assistant" {
		t.Errorf("the first chunk has no role: %s", got.body)
	}
	var text strings.Builder
	reasons, usage := 0, 0
	for _, c := range chunks {
		if c.Usage != nil {
			usage++
		}
		for _, choice := range c.Choices {
			text.WriteString(choice.Delta.Content)
			if choice.FinishReason != nil {
				reasons++
			}
		}
	}
	if text.String() != "one two three" || reasons != 1 || usage != 1 || chunks[len(chunks)-1].Usage == nil {
		t.Errorf("text %q, %d reasons, %d usages: %s", &text, reasons, usage, got.body)
	}
}

func conversation(more ...params) params {
	p := params{
		"model": "laneway/main", "temperature": 0.5, "max_tokens": 7, "stop": []string{"END"}, "something_else": true,
		"messages": []any{
			says("system", "be kind"), says("user", "hello"), says("assistant", "hi"), says("developer", "be short"),
			params{"role": "user", "content": []any{params{"type": "text", "text": "how"}, params{"type": "text", "text": "are"}}},
			says("user", "you"),
		},
	}
	for _, m := range more {
		maps.Copy(p, m)
	}
	return p
}

func TestCompletionWithoutASessionBringsItsWholeConversation(t *testing.T) {
	t.Parallel()
	b := start(t)
	if got := b.post(completionsPath, conversation()); got.status != http.StatusOK {
		t.Fatalf("%d %s", got.status, got.body)
	}
	m := b.core.only(t)
	if m.Content.Text != "how\nare\n\nyou" || len(m.Content.Context) != 2 || m.Content.Context[1].Text != "hi" {
		t.Errorf("text %q, context %+v", m.Content.Text, m.Content.Context)
	}
	o := m.Content.Options
	if o.SystemPrompt != "be kind\n\nbe short" || o.Params["temperature"] != 0.5 || o.Params["max_tokens"] != 7 || len(o.Params["stop"].([]string)) != 1 {
		t.Errorf("options %+v", o)
	}
	if !strings.HasPrefix(m.Session.String(), "agent:main:api:") || m.Lane != "" || m.Channel != "api" {
		t.Errorf("session %s lane %q channel %s", m.Session, m.Lane, m.Channel)
	}
}

func TestCompletionWithASessionBringsOnlyWhatIsNew(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		more   params
		header string
		want   string
	}{
		"user":   {more: params{"user": "u1"}, header: "room", want: "agent:main:room"},
		"header": {header: "agent:main:room", want: "agent:main:room"},
		"short":  {header: "room", want: "agent:main:room"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := start(t)
			if got := b.post(completionsPath, conversation(tc.more), header("X-Laneway-Session-Key", tc.header)); got.status != http.StatusOK {
				t.Fatalf("%d %s", got.status, got.body)
			}
			m := b.core.only(t)
			if m.Session.String() != tc.want || len(m.Content.Context) != 0 || m.Content.Text != "how\nare\n\nyou" {
				t.Errorf("session %s, context %v, text %q", m.Session, m.Content.Context, m.Content.Text)
			}
		})
	}
}

// Programs send the id of an account as the user, which must not join the conversations of all its
// requests.
func TestUserIsPassedOnAndNamesNoSession(t *testing.T) {
	t.Parallel()
	b := start(t)
	if got := b.post(completionsPath, conversation(params{"user": "account:7"})); got.status != http.StatusOK {
		t.Fatalf("%d %s", got.status, got.body)
	}
	m := b.core.only(t)
	if strings.Contains(m.Session.String(), "account") || len(m.Content.Context) == 0 || m.Content.Options.Params["user"] != "account:7" {
		t.Errorf("session %s, context %v, parameters %v", m.Session, m.Content.Context, m.Content.Options.Params)
	}
}

func TestTrailingInstructionsFollowTheInput(t *testing.T) {
	t.Parallel()
	messages := []any{says("system", "be kind"), says("user", "Name a river."), says("developer", "One word."), says("system", "Answer in French.")}
	for path, body := range map[string]any{completionsPath: ask("", params{"messages": messages}), responsesPath: respond(messages)} {
		b := start(t)
		if got := b.post(path, body); got.status != http.StatusOK {
			t.Fatalf("%d %s", got.status, got.body)
		}
		m := b.core.only(t).Content
		if m.Text != "Name a river." || m.Options.SystemPrompt != "be kind\n\nOne word.\n\nAnswer in French." || len(m.Context) != 0 {
			t.Errorf("text %q, system %q, context %v", m.Text, m.Options.SystemPrompt, m.Context)
		}
	}
}

func TestMembersThatChangeTheMeaningAreRefused(t *testing.T) {
	t.Parallel()
	b := start(t, func(c *gateway.Config) { c.ChatsPerMinute = auth.Off })
	for member, value := range map[string]any{
		"functions": []any{params{"name": "f"}}, "function_call": params{"name": "f"}, "logprobs": true, "top_logprobs": 2, "seed": 0, "logit_bias": params{"1": 2},
		"presence_penalty": 0.5, "frequency_penalty": -1, "modalities": []any{"text", "audio"}, "audio": params{"voice": "x"}, "web_search_options": params{"a": 1}, "tool_choice": "required",
		"tools": []any{params{"type": "function"}}, "prompt": params{"id": "p"}, "reasoning_effort": "extreme", "n": 2,
	} {
		var refused struct {
			Error struct{ Param *string }
		}
		got := b.post(completionsPath, ask("x", params{member: value}))
		if err := json.Unmarshal(got.body, &refused); err != nil || got.status != http.StatusBadRequest || refused.Error.Param == nil || *refused.Error.Param != member {
			t.Errorf("%s: %d %s", member, got.status, got.body)
		}
	}
	nothing := params{
		"functions": nil, "function_call": "auto", "logprobs": false, "top_logprobs": 0, "seed": nil, "logit_bias": params{}, "presence_penalty": 0, "modalities": []any{"text"},
		"tool_choice": "none", "tools": []any{}, "metadata": params{"a": "b"}, "store": true, "service_tier": "auto", "parallel_tool_calls": true, "prediction": nil, "reasoning_effort": "low",
	}
	if got := b.post(completionsPath, ask("x", nothing)); got.status != http.StatusOK {
		t.Errorf("members that ask for nothing: %d %s", got.status, got.body)
	}
	if o := b.core.only(t).Content.Options; o.Thinking != "low" {
		t.Errorf("options %+v", o)
	}
}

func TestEachNameOfAModelIsRetrieved(t *testing.T) {
	t.Parallel()
	b := start(t)
	for path, want := range map[string]string{
		"laneway": "laneway", "laneway/main": "laneway/main", "laneway%2Fmain": "laneway/main", "laneway/default": "laneway/default", "main": "main", "agent:main": "agent:main", "agent%3Amain": "agent:main",
	} {
		status, _, body := b.get(http.MethodGet, "/v1/models/"+path, header("Authorization", "Bearer "+readToken))
		if status != http.StatusOK || body["id"] != want || body["object"] != "model" {
			t.Errorf("%s: %d %v", path, status, body)
		}
	}
	for _, path := range []string{"gpt-4o", "laneway/absent", "laneway%2Fabsent", ""} {
		if status, _, body := b.get(http.MethodGet, "/v1/models/"+path, header("Authorization", "Bearer "+readToken)); status != http.StatusNotFound {
			t.Errorf("%s: %d %v", path, status, body)
		}
	}
}

func TestCompletionRefusesWhatItCannotDo(t *testing.T) {
	t.Parallel()
	b := start(t, func(c *gateway.Config) { c.ChatsPerMinute = auth.Off })
	image := params{"role": "user", "content": []any{params{"type": "image_url", "image_url": params{"url": "x"}}}}
	for name, tc := range map[string]struct {
		body   any
		change func(*http.Request)
		status int
		kind   string
		code   string
		param  string
		says   string
	}{
		"no token":       {body: ask("x"), change: header("Authorization", ""), status: 401, kind: "authentication_error", code: "auth_token_missing"},
		"wrong token":    {body: ask("x"), change: header("Authorization", "Bearer no"), status: 401, kind: "authentication_error", code: "auth_token_mismatch"},
		"read token":     {body: ask("x"), change: header("Authorization", "Bearer "+readToken), status: 403, kind: "permission_error", code: "missing_scope"},
		"foreign host":   {body: ask("x"), change: func(r *http.Request) { r.Host = "evil.example.org" }, status: 421, kind: "invalid_request_error"},
		"foreign origin": {body: ask("x"), change: header("Origin", "https://evil.example.org"), status: 403, kind: "permission_error"},
		"form":           {body: "a=b", change: header("Content-Type", "application/x-www-form-urlencoded"), status: 415, kind: "invalid_request_error"},
		"no json":        {body: "{", status: 400, kind: "invalid_request_error"},
		"deep json":      {body: strings.Repeat("[", 70), status: 400, kind: "invalid_request_error"},
		"nul":            {body: `{"model":"laneway","messages":[{"role":"user","content":"a\u0000"}]}`, status: 400, kind: "invalid_request_error"},
		"no model":       {body: params{"messages": []any{says("user", "x")}}, status: 400, kind: "invalid_request_error"},
		"other model":    {body: ask("x", params{"model": "gpt-4o"}), status: 404, kind: "invalid_request_error", code: "model_not_found"},
		"other agent":    {body: ask("x", params{"model": "laneway/absent"}), status: 404, kind: "invalid_request_error", code: "model_not_found"},
		"no messages":    {body: ask("x", params{"messages": []any{}}), status: 400, kind: "invalid_request_error", param: "messages"},
		"half a token":   {body: ask("x", params{"max_tokens": 1.5}), status: 400, kind: "invalid_request_error", param: "max_tokens", says: "max_tokens must be a whole number, not number 1.5"},
		"no list":        {body: ask("x", params{"messages": params{}}), status: 400, kind: "invalid_request_error", param: "messages", says: "messages must be a list, not object"},
		"a number":       {body: ask("x", params{"messages": []any{params{"role": "user", "content": 5}}}), status: 400, kind: "invalid_request_error", param: "messages"},
		"answer last":    {body: ask("x", params{"messages": []any{says("assistant", "x")}}), status: 400, kind: "invalid_request_error"},
		"role":           {body: ask("x", params{"messages": []any{says("robot", "x"), says("user", "x")}}), status: 400, kind: "invalid_request_error"},
		"image":          {body: ask("x", params{"messages": []any{image}}), status: 400, kind: "invalid_request_error"},
		"tools":          {body: ask("x", params{"tools": []any{params{"type": "function"}}}), status: 400, kind: "invalid_request_error"},
		"stop":           {body: ask("x", params{"stop": strings.Split(strings.Repeat("x ", 16), " ")}), status: 400, kind: "invalid_request_error"},
		"two answers":    {body: ask("x", params{"n": 2}), status: 400, kind: "invalid_request_error"},
		"user":           {body: ask("x", params{"user": strings.Repeat("u", 129)}), status: 400, kind: "invalid_request_error"},
		"rules alone":    {body: ask("x", params{"messages": []any{says("system", "x")}}), status: 400, kind: "invalid_request_error"},
		"answer, rules":  {body: ask("x", params{"messages": []any{says("assistant", "x"), says("developer", "y")}}), status: 400, kind: "invalid_request_error"},
		"key":            {body: ask("x"), change: header("Idempotency-Key", "two words"), status: 400, kind: "invalid_request_error"},
		"too large":      {body: ask(strings.Repeat("x", 2<<20)), status: 413, kind: "invalid_request_error"},
		"session":        {body: ask("x"), change: header("X-Laneway-Session-Key", "agent:other:x"), status: 400, kind: "invalid_request_error"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			change := tc.change
			if change == nil {
				change = func(*http.Request) {}
			}
			got := b.post(completionsPath, tc.body, change)
			kind, code := got.fault(t)
			if got.status != tc.status || kind != tc.kind || (tc.code != "" && code != tc.code) {
				t.Errorf("got %d %s %s, want %d %s %s", got.status, kind, code, tc.status, tc.kind, tc.code)
			}
			if e := got.json(t)["error"].(map[string]any); tc.param != "" && e["param"] != tc.param || tc.says != "" && e["message"] != tc.says {
				t.Errorf("got %v, want param %s and the sentence %q", e, tc.param, tc.says)
			}
		})
	}
	t.Cleanup(func() {
		if b.core.accepted() != 0 {
			t.Errorf("%d messages were accepted", b.core.accepted())
		}
	})
}

func TestOpenAIModelNamesNameAgents(t *testing.T) {
	t.Parallel()
	b := start(t)
	for _, model := range []string{"laneway", "laneway/default", "laneway/main", "agent:main", "openclaw", "openclaw/default", "openclaw/main"} {
		if got := b.post(completionsPath, ask("x", params{"model": model})); got.status != http.StatusOK {
			t.Errorf("%s: %d %s", model, got.status, got.body)
		}
	}
	status, _, list := b.get(http.MethodGet, "/v1/models", header("Authorization", "Bearer "+readToken))
	if status != http.StatusOK || len(list["data"].([]any)) != 2 || list["object"] != "list" {
		t.Errorf("models: %d %v", status, list)
	}
	if status, _, _ := b.get(http.MethodGet, "/v1/models"); status != http.StatusUnauthorized {
		t.Errorf("models without a token: %d", status)
	}
}

func TestRepeatedCompletionGetsTheFirstAnswer(t *testing.T) {
	t.Parallel()
	b := start(t)
	key := header("Idempotency-Key", "k-1")
	first := b.post(completionsPath, ask("one"), key)
	second := b.post(completionsPath, ask("one"), key)
	if first.text(t) != second.text(t) || first.json(t)["id"] != second.json(t)["id"] || b.core.accepted() != 1 {
		t.Errorf("%s\n%s", first.body, second.body)
	}
	other := b.post(completionsPath, ask("two"), key)
	if _, code := other.fault(t); other.status != http.StatusConflict || code != "idempotency_key_reused" {
		t.Errorf("other params: %d %s", other.status, other.body)
	}
	stream := b.post(completionsPath, ask("one", params{"stream": true}), key)
	if stream.status != http.StatusConflict {
		t.Errorf("streamed repetition: %d %s", stream.status, stream.body)
	}
	command := b.post(completionsPath, ask("/help"), header("Idempotency-Key", "k-2"))
	if got := b.post(completionsPath, ask("/help"), header("Idempotency-Key", "k-2")); got.status != http.StatusOK || got.text(t) != command.text(t) {
		t.Errorf("a repeated command: %d %s", got.status, got.body)
	}
	elsewhere := b.post(completionsPath, ask("one"), key, header("Authorization", "Bearer "+adminToken))
	if elsewhere.status != http.StatusOK || elsewhere.json(t)["id"] == first.json(t)["id"] {
		t.Errorf("the key of another principal: %d %s", elsewhere.status, elsewhere.body)
	}
}

func TestRepeatedRequestWhoseAnswerIsGoneIsRefused(t *testing.T) {
	t.Parallel()
	b := start(t)
	key := header("Idempotency-Key", "k-1")
	for _, stream := range []bool{false, true} {
		first := b.respond(respond("one"), key)
		if got := b.remove(writeToken, responsesPath+"/"+first.ID); got.status != http.StatusOK {
			t.Fatalf("deleting it: %d %s", got.status, got.body)
		}
		got := b.post(responsesPath, respond("one", params{"stream": stream}), key)
		if _, code := got.fault(t); got.status != http.StatusConflict || code != "idempotency_key_reused" || !strings.Contains(string(got.body), "deleted with its session") {
			t.Errorf("stream %v: %d %s", stream, got.status, got.body)
		}
		key = header("Idempotency-Key", "k-2")
	}
}

func TestCompletionsShareTheAllowanceOfChats(t *testing.T) {
	t.Parallel()
	b := start(t, func(c *gateway.Config) { c.ChatsPerMinute = 1 })
	if got := b.post(completionsPath, ask("one")); got.status != http.StatusOK {
		t.Fatalf("%d %s", got.status, got.body)
	}
	got := b.post(completionsPath, ask("two"))
	if _, code := got.fault(t); got.status != http.StatusTooManyRequests || code != "rate_limited" || got.header.Get("Retry-After") == "" {
		t.Errorf("%d %s", got.status, got.body)
	}
	if f := b.login(writeToken).call("chat.send", params{"sessionKey": "main", "message": "x", "idempotencyKey": "a"}); f.OK || f.Error.Details["code"] != "RATE_LIMITED" {
		t.Errorf("chat.send: %+v", f.Error)
	}
}

func TestOwnCredentialCannotSpeakInAForeignSession(t *testing.T) {
	t.Parallel()
	b := start(t)
	place := header("X-Laneway-Session-Key", "agent:main:room")
	if got := b.post(completionsPath, ask("x"), place, header("Authorization", "Bearer "+ottoToken)); got.status != http.StatusOK {
		t.Fatalf("%d %s", got.status, got.body)
	}
	got := b.post(completionsPath, ask("x"), place, header("Authorization", "Bearer "+annaToken))
	if _, code := got.fault(t); got.status != http.StatusNotFound || code != "session_not_found" {
		t.Errorf("%d %s", got.status, got.body)
	}
}

// startWithModel starts a gateway whose agent has a model that calls tools.
func startWithModel(t *testing.T) *bench {
	t.Helper()
	c := newCoreOf(t, agent.Info{ID: "main", Name: "Main", Model: "m", Runner: "openai"})
	return serve(t, c, c)
}

func weather() params {
	return params{"type": "function", "function": params{"name": "weather", "description": "The weather of a city", "parameters": params{"type": "object"}}}
}

// TestClientsBringBackWhatCameWithCalls: a signature of the provider goes through the client in
// both forms of the API, also when streamed.
func TestClientsBringBackWhatCameWithCalls(t *testing.T) {
	t.Parallel()
	const signature = `"extra_content":{"google":{"thought_signature":"c2ln"}}`
	b := startWithModel(t)
	tool := params{"name": "signed", "parameters": params{"type": "object"}}
	flat := params{"type": "function", "name": "signed"}
	extra := params{"google": params{"thought_signature": "c2ln"}}
	asked := params{"role": "assistant", "content": nil, "tool_calls": []any{params{"id": "call_1", "type": "function", "function": params{"name": "signed", "arguments": "{}"}, "extra_content": extra}}}
	call := params{"type": "function_call", "call_id": "call_1", "name": "signed", "arguments": "{}", "extra_content": extra}
	for path, form := range map[string]struct{ ask, back any }{
		completionsPath: {
			ask("mute", params{"tools": []any{params{"type": "function", "function": tool}}}),
			ask("", params{"messages": []any{says("user", "Oslo?"), asked, params{"role": "tool", "tool_call_id": "call_1", "content": "rain"}}}),
		},
		responsesPath: {
			respond("mute", params{"tools": []any{flat}}),
			respond([]any{says("user", "Oslo?"), call, params{"type": "function_call_output", "call_id": "call_1", "output": "rain"}}),
		},
	} {
		if got := b.post(path, form.ask); !strings.Contains(string(got.body), signature) {
			t.Errorf("%s lacks the signature: %s", path, got.body)
		}
		streamed := maps.Clone(form.ask.(params))
		streamed["stream"] = true
		if got := b.post(path, streamed); !strings.Contains(string(got.body), signature) {
			t.Errorf("the stream of %s lacks the signature: %s", path, got.body)
		}
		delete(streamed, "stream")
		for range 2 { // a repetition reads what is stored
			if got := b.post(path, streamed, header("Idempotency-Key", path+"-again")); !strings.Contains(string(got.body), signature) {
				t.Errorf("repeated, %s lacks the signature: %s", path, got.body)
			}
		}
		got := b.post(path, form.back)
		if m := b.message(got.header.Get("X-Laneway-Run-Id")); m.Content.Client == nil || m.Content.Client.Rounds[0].Calls[0].Extra != `{"google":{"thought_signature":"c2ln"}}` {
			t.Errorf("%s: %d, the agent got %+v", path, got.status, m.Content.Client)
		}
	}
}

func TestToolsOfTheClientEndTheTurnWithCalls(t *testing.T) {
	t.Parallel()
	b := startWithModel(t)
	tools := params{"tools": []any{weather()}}
	type called struct {
		Content   *string
		ToolCalls []struct {
			Index    int
			ID, Type string
			Function struct{ Name, Arguments string }
		} `json:"tool_calls"` //nolint:tagliatelle // OpenAI's names
	}
	got := b.post(completionsPath, ask("mute", tools))
	whole := decode[struct {
		Choices []struct {
			Message called
			Finish  string `json:"finish_reason"` //nolint:tagliatelle // OpenAI's name
		}
	}](t, got.body)
	if got.status != http.StatusOK || len(whole.Choices) != 1 || whole.Choices[0].Finish != "tool_calls" || whole.Choices[0].Message.Content != nil {
		t.Fatalf("%d %s", got.status, got.body)
	}
	calls := whole.Choices[0].Message.ToolCalls
	if len(calls) != 1 || calls[0].ID != "call_1" || calls[0].Type != "function" || calls[0].Function.Name != "weather" || calls[0].Function.Arguments != `{"city":"Oslo"}` {
		t.Errorf("calls: %s", got.body)
	}
	if m := b.message(got.header.Get("X-Laneway-Run-Id")); m.Content.Client == nil || len(m.Content.Client.Tools) != 1 || m.Content.Client.Tools[0].Name != "weather" {
		t.Errorf("the agent was given %+v", m.Content.Client)
	}
	for _, parallel := range []bool{true, false} {
		got := b.post(completionsPath, ask("mute", tools, params{"parallel_tool_calls": parallel}))
		if m := b.message(got.header.Get("X-Laneway-Run-Id")); m.Content.Client == nil || m.Content.Client.OneCall == parallel {
			t.Errorf("parallel_tool_calls %v: the agent was given %+v", parallel, m.Content.Client)
		}
	}
	stream := string(b.post(completionsPath, ask("mute", tools, params{"stream": true})).body)
	for _, want := range []string{`"tool_calls":[{"index":0,"id":"call_1","type":"function","function":{"name":"weather","arguments":"{\"city\":\"Oslo\"}"}}]`, `"finish_reason":"tool_calls"`} {
		if !strings.Contains(stream, want) {
			t.Errorf("the stream lacks %s:\n%s", want, stream)
		}
	}
	asked := params{"role": "assistant", "content": nil, "tool_calls": []any{params{"id": "call_1", "type": "function", "function": params{"name": "weather", "arguments": `{"city":"Oslo"}`}}}}
	result := params{"role": "tool", "tool_call_id": "call_1", "content": "rain"}
	got = b.post(completionsPath, ask("", tools, params{"messages": []any{says("user", "Oslo?"), asked, result}}))
	m := b.message(got.header.Get("X-Laneway-Run-Id"))
	if got.status != http.StatusOK || got.text(t) != "Oslo?" || m.Content.Text != "Oslo?" || len(m.Content.Client.Rounds) != 1 {
		t.Fatalf("%d %s: %+v", got.status, got.body, m.Content)
	}
	if r := m.Content.Client.Rounds[0]; r.Number != 1 || r.Calls[0].Name != "weather" || r.Results[0].Text != "rain" || !r.Results[0].Foreign {
		t.Errorf("the round is %+v", r)
	}
	got = b.post(completionsPath, ask("", params{"messages": []any{says("user", "Oslo?"), asked, result, says("assistant", "It rains."), says("user", "thanks")}}))
	m = b.message(got.header.Get("X-Laneway-Run-Id"))
	if c := m.Content.Context; got.status != http.StatusOK || m.Content.Client != nil || m.Content.Text != "thanks" || len(c) != 4 || !c[2].Outside || !strings.Contains(c[2].Text, "rain") {
		t.Errorf("calls of an earlier turn: %d %+v", got.status, m.Content)
	}
	for name, tc := range map[string]struct {
		body   params
		param  string
		change []func(*http.Request)
	}{
		"session":          {ask("x", tools), "tools", []func(*http.Request){header("X-Laneway-Session-Key", "main")}},
		"kind":             {ask("x", params{"tools": []any{params{"type": "web_search"}}}), "tools", nil},
		"name":             {ask("x", params{"tools": []any{params{"type": "function", "function": params{"name": "a b"}}}}), "tools", nil},
		"no result":        {ask("", tools, params{"messages": []any{says("user", "x"), asked, params{"role": "tool", "tool_call_id": "call_2", "content": "x"}}}), "messages", nil},
		"forced":           {ask("x", tools, params{"tool_choice": "required"}), "tool_choice", nil},
		"results, session": {ask("", params{"messages": []any{says("user", "x"), asked, result}}), "messages", []func(*http.Request){header("X-Laneway-Session-Key", "main")}},
	} {
		got := b.post(completionsPath, tc.body, tc.change...)
		if got.status != http.StatusBadRequest || got.json(t)["error"].(map[string]any)["param"] != tc.param {
			t.Errorf("%s: %d %s, want 400 with param %s", name, got.status, got.body, tc.param)
		}
	}
	if got := start(t).post(completionsPath, ask("x", tools)); got.status != http.StatusBadRequest || got.json(t)["error"].(map[string]any)["param"] != "tools" {
		t.Errorf("an agent without a model: %d %s", got.status, got.body)
	}
}

func TestAFormatThatAnAgentCannotKeepIsRefused(t *testing.T) {
	t.Parallel()
	b := start(t)
	for param, got := range map[string]answer{
		"response_format": b.post(completionsPath, ask("x", params{"response_format": params{"type": "json_object"}})),
		"text.format":     b.post("/v1/responses", params{"model": "laneway", "input": "x", "text": params{"format": params{"type": "json_object"}}}),
	} {
		e := got.json(t)["error"].(map[string]any)
		if got.status != http.StatusBadRequest || e["type"] != "invalid_request_error" || e["param"] != param {
			t.Errorf("%s: got %d %s", param, got.status, got.body)
		}
	}
}

// TestParametersOutOfRangeAreRefusedByName checks that a parameter which cannot be used is an error
// that names it, for every agent and before there is a turn, and that a bound of -1 is none.
func TestParametersOutOfRangeAreRefusedByName(t *testing.T) {
	t.Parallel()
	b := start(t)
	for path, all := range map[string]map[string][]any{
		completionsPath: {
			"temperature": {99, -0.1, "hot"}, "top_p": {1.5, -1}, "max_tokens": {0, -2, 1.5, 10_000_001}, "max_completion_tokens": {0, -7}, "n": {2}, "stop": {5},
		},
		responsesPath: {"temperature": {2.5, -1, "hot"}, "top_p": {2}, "max_output_tokens": {0, -2}},
	} {
		for name, values := range all {
			for _, value := range values {
				body := params{"model": "laneway", name: value}
				if path == completionsPath {
					body["messages"] = []any{says("user", "x")}
				} else {
					body["input"] = "x"
				}
				got := b.post(path, body)
				param := got.json(t)["error"].(map[string]any)["param"]
				if kind, _ := got.fault(t); got.status != http.StatusBadRequest || kind != "invalid_request_error" || param != name {
					t.Errorf("%s %s = %v: got %d %s, want 400 with the param", path, name, value, got.status, got.body)
				}
			}
		}
	}
	if b.core.accepted() != 0 {
		t.Errorf("%d messages were accepted", b.core.accepted())
	}
	for _, member := range []string{"max_tokens", "max_completion_tokens"} {
		if got := b.post(completionsPath, ask("x", params{member: -1})); got.status != http.StatusOK {
			t.Errorf("%s = -1: got %d %s", member, got.status, got.body)
		}
	}
}

func TestCompletionSaysHowARunEndedWithoutAnAnswer(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		text   string
		refuse error
		status int
		code   string
	}{
		"timeout":    {text: "fail", status: 504, code: "run_timeout"},
		"too long":   {text: "context_length", status: 400, code: "context_length_exceeded"},
		"filtered":   {text: "refusal", status: 400, code: "content_filter"},
		"limited":    {text: "rate_limit", status: 429, code: "rate_limit_exceeded"},
		"queue full": {text: "x", refuse: chat.ErrQueueFull, status: 429, code: "queue_full"},
		"draining":   {text: "x", refuse: chat.ErrDraining, status: 503, code: "gateway_draining"},
		"database":   {text: "x", refuse: chat.ErrStoreUnavailable, status: 503, code: "database_unavailable"},
		"defect":     {text: "x", refuse: io.ErrUnexpectedEOF, status: 500, code: "internal"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := start(t)
			b.core.set(func() { b.core.refuse = tc.refuse })
			got := b.post(completionsPath, ask(tc.text))
			if _, code := got.fault(t); got.status != tc.status || code != tc.code {
				t.Errorf("got %d %s, want %d %s", got.status, code, tc.status, tc.code)
			}
			if again := got.header.Get("Retry-After") != ""; again != (tc.status == 429 || tc.status == 503) {
				t.Errorf("Retry-After: %v", got.header)
			}
		})
	}
}

func TestFailureInTheMiddleOfAStreamIsAnEvent(t *testing.T) {
	t.Parallel()
	b := start(t)
	got := b.post(completionsPath, ask("one fail", params{"stream": true}))
	chunks := readSSE(t, bytes.NewReader(got.body)).chunks(t)
	last := chunks[len(chunks)-1]
	if got.status != http.StatusOK || last.Error == nil || last.Error.Code != "run_timeout" || last.Error.Type != "server_error" {
		t.Errorf("%d %s", got.status, got.body)
	}
}

func TestStoppedRunIsAConflictForItsCompletion(t *testing.T) {
	t.Parallel()
	b := start(t)
	done := make(chan answer, 1)
	go func() {
		done <- b.post(completionsPath, ask("wait"), header("X-Laneway-Session-Key", "agent:main:api:write:u"))
	}()
	b.core.untilPaused(1)
	if got := b.login(adminToken).must("chat.abort", params{"sessionKey": "agent:main:api:write:u"}); got["aborted"] != true {
		t.Fatalf("abort: %v", got)
	}
	got := <-done
	if _, code := got.fault(t); got.status != http.StatusConflict || code != "run_cancelled" || got.header.Get("X-Should-Retry") != "false" {
		t.Errorf("%d %s %v", got.status, got.body, got.header)
	}
}

func TestClientThatGoesTakesItsRunAlong(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		stream bool
		detach string
	}{"whole": {}, "streamed": {stream: true}, "detached": {detach: "1"}, "streamed and detached": {stream: true, detach: "1"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := start(t)
			ctx, leave := context.WithCancel(context.Background())
			gone := make(chan struct{})
			req := b.postRequest(ctx, completionsPath, ask("wait done", params{"stream": tc.stream}), header("X-Laneway-Session-Key", "agent:main:api:write:u"), header("X-Laneway-Detach", tc.detach))
			go func() {
				defer close(gone)
				tr := &http.Transport{DisableKeepAlives: true}
				resp, err := tr.RoundTrip(req)
				if err == nil {
					_, _ = io.Copy(io.Discard, resp.Body)
					_ = resp.Body.Close()
				}
			}()
			b.core.untilPaused(1)
			leave()
			<-gone
			if tc.detach == "" {
				testrun.Eventually(t, "the run is stopped", func() bool { return len(b.core.stopped()) > 0 })
				if p := b.core.stopped()[0]; p.Scope != store.StopRun || p.By != "write" || p.MessageID == "" {
					t.Errorf("stop %+v", p)
				}
				return
			}
			b.core.proceed()
			if err := b.stop(); err != nil { // waits for the handler
				t.Fatal(err)
			}
			if len(b.core.stopped()) != 0 {
				t.Errorf("a detached run was stopped: %+v", b.core.stopped())
			}
		})
	}
}

func TestGatewayThatStopsLeavesRunsOfCompletionsAlone(t *testing.T) {
	t.Parallel()
	for _, stream := range []bool{false, true} {
		b := start(t)
		done := make(chan answer, 1)
		go func() {
			done <- b.post(completionsPath, ask("wait", params{"stream": stream}), header("X-Laneway-Session-Key", "agent:main:api:write:u"))
		}()
		b.core.untilPaused(1)
		if err := b.stop(); err != nil {
			t.Fatal(err)
		}
		got := <-done
		if !stream {
			if _, code := got.fault(t); got.status != http.StatusServiceUnavailable || code != "gateway_draining" {
				t.Errorf("%d %s", got.status, got.body)
			}
		} else if chunks := readSSE(t, bytes.NewReader(got.body)).chunks(t); chunks[len(chunks)-1].Error.Code != "gateway_draining" {
			t.Errorf("%s", got.body)
		}
		if len(b.core.stopped()) != 0 {
			t.Errorf("stream %v: stopped %+v", stream, b.core.stopped())
		}
	}
}

func TestStreamThatWaitsSaysThatItIsThere(t *testing.T) {
	t.Parallel()
	virtual(t, func(t *bubble) {
		body, err := json.Marshal(ask("wait done", params{"stream": true}))
		if err != nil {
			t.Fatal(err)
		}
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://localhost"+completionsPath, bytes.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Authorization", "Bearer "+writeToken)
		resp, err := t.http.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		go func() {
			pass(50 * time.Second)
			t.core.proceed()
		}()
		got := readSSE(t.T, resp.Body)
		chunks := got.chunks(t.T)
		if len(got.comments) != 3 || chunks[len(chunks)-1].Choices[0].FinishReason == nil {
			t.Errorf("want three comments in 50 s: %+v", got)
		}
	})
}
