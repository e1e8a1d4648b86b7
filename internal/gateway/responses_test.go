package gateway_test

import (
	"bytes"
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"laneway/internal/chat"
	"laneway/internal/gateway"
	"laneway/internal/gateway/auth"
)

const responsesPath = "/v1/responses"

func respond(input any, more ...params) params {
	p := params{"model": "laneway", "input": input}
	for _, m := range more {
		maps.Copy(p, m)
	}
	return p
}

// reply is a response as clients read it.
type reply struct {
	ID, Object, Status, Model string
	Previous                  *string `json:"previous_response_id"` //nolint:tagliatelle // OpenAI's name
	Conversation              *struct{ ID string }
	Incomplete                *struct{ Reason string } `json:"incomplete_details"` //nolint:tagliatelle // OpenAI's name
	Error                     *struct{ Code, Message string }
	Output                    []struct {
		Type, ID, Status, Role string
		Content                []struct{ Type, Text string }
	}
	Usage *struct {
		TotalTokens *int `json:"total_tokens"` //nolint:tagliatelle // OpenAI's name
	}
}

func (r reply) text() string {
	if len(r.Output) != 1 || len(r.Output[0].Content) != 1 {
		return ""
	}
	return r.Output[0].Content[0].Text
}

func (b *bench) respond(body params, change ...func(*http.Request)) reply {
	b.t.Helper()
	got := b.post(responsesPath, body, change...)
	if got.status != http.StatusOK {
		b.t.Fatalf("%d %s", got.status, got.body)
	}
	return decode[reply](b.t, got.body)
}

func (b *bench) message(id string) chat.Message {
	b.t.Helper()
	return b.core.message(b.t, id)
}

func TestResponseAnswersWithTheTextOfTheRun(t *testing.T) {
	t.Parallel()
	b := start(t)
	got := b.post(responsesPath, respond("one two three"))
	r := decode[reply](t, got.body)
	if got.status != http.StatusOK || r.text() != "one two three" || r.Status != "completed" || r.Object != "response" || r.Model != "laneway" || r.Error != nil {
		t.Fatalf("%d %s", got.status, got.body)
	}
	if run := got.header.Get("X-Laneway-Run-Id"); run == "" || r.ID != "resp_"+run || r.Output[0].ID != "msg_"+run || r.Output[0].Role != "assistant" {
		t.Errorf("run %q, %s", run, got.body)
	}
	if r.Usage == nil || r.Usage.TotalTokens == nil {
		t.Errorf("no usage: %s", got.body)
	}
}

func TestResponseBringsInstructionsSettingsAndItsWholeInput(t *testing.T) {
	t.Parallel()
	b := start(t)
	r := b.respond(respond([]any{
		says("user", "hello"),
		params{"type": "message", "role": "assistant", "content": []any{params{"type": "output_text", "text": "hi"}}},
		params{"type": "reasoning", "summary": []any{}},
		says("developer", "be short"),
		params{"role": "user", "content": []any{params{"type": "input_text", "text": "how"}, params{"type": "input_text", "text": "are you"}}},
	}, params{"instructions": "be kind", "temperature": 0.5, "max_output_tokens": 7, "reasoning": params{"effort": "low"}, "model": "main", "something_else": true}))
	m := b.message(r.ID)
	if m.Content.Text != "how\nare you" || len(m.Content.Context) != 2 || m.Content.Context[1].Text != "hi" || !m.Content.Options.KeepContext {
		t.Errorf("text %q, context %+v", m.Content.Text, m.Content.Context)
	}
	o := m.Content.Options
	if o.SystemPrompt != "be kind\n\nbe short" || o.Params["temperature"] != 0.5 || o.Params["max_tokens"] != 7 || o.Thinking != "low" {
		t.Errorf("options %+v", o)
	}
}

// streamedResponse checks the order and the numbers of the events and returns the types, the joined
// text, and the last response.
func streamedResponse(t *testing.T, body []byte) (types []string, text string, last reply) {
	t.Helper()
	for i, d := range readSSE(t, bytes.NewReader(body)).data {
		ev := decode[struct {
			Type     string
			Sequence int `json:"sequence_number"` //nolint:tagliatelle // OpenAI's name
			Delta    string
			Response *reply
		}](t, json.RawMessage(d))
		if ev.Sequence != i || !bytes.Contains(body, []byte("event: "+ev.Type+"\n")) {
			t.Errorf("event %d is %s with number %d", i, ev.Type, ev.Sequence)
		}
		types, text = append(types, ev.Type), text+ev.Delta
		if ev.Response != nil {
			last = *ev.Response
		}
	}
	return types, text, last
}

func TestStreamedResponseHasTheEventsOfTheVendor(t *testing.T) {
	t.Parallel()
	b := start(t)
	got := b.post(responsesPath, respond("one two three", params{"stream": true}))
	types, text, last := streamedResponse(t, got.body)
	want := "response.created response.in_progress response.output_item.added response.content_part.added " +
		"response.output_text.done response.content_part.done response.output_item.done response.completed"
	kinds := strings.ReplaceAll(strings.Join(types, " "), "response.output_text.delta ", "")
	if got.status != http.StatusOK || kinds != want || text != "one two three" || last.text() != "one two three" || last.Status != "completed" {
		t.Errorf("%s\n%q %+v", kinds, text, last)
	}
}

func TestStreamedResponseThatFailsEndsAsFailed(t *testing.T) {
	t.Parallel()
	b := start(t)
	got := b.post(responsesPath, respond("one fail", params{"stream": true}))
	types, _, last := streamedResponse(t, got.body)
	if types[len(types)-1] != "response.failed" || last.Status != "failed" || last.Error == nil || last.Error.Code != "run_timeout" || last.text() != "one" {
		t.Errorf("%s %+v", types, last)
	}
	whole := b.post(responsesPath, respond("fail"))
	if _, code := whole.fault(t); whole.status != http.StatusGatewayTimeout || code != "run_timeout" {
		t.Errorf("%d %s", whole.status, whole.body)
	}
}

func TestNewestResponseGoesOnInItsSessionAndAnEarlierOneBranches(t *testing.T) {
	t.Parallel()
	b := start(t)
	after := func(text string, r reply) reply {
		return b.respond(respond(text, params{"previous_response_id": r.ID}))
	}
	first := b.respond(respond("one"))
	second := after("two", first)
	third := after("three", second)
	home := b.message(first.ID).Session
	for _, r := range []reply{second, third} {
		if m := b.message(r.ID); m.Session != home || len(m.Content.Context) != 0 {
			t.Errorf("%s is in %s with %d entries, want %s", r.ID, m.Session, len(m.Content.Context), home)
		}
	}
	if *third.Previous != second.ID {
		t.Errorf("previous %s", *third.Previous)
	}
	branch := after("other", second)
	m := b.message(branch.ID)
	if m.Session == home || m.Branch == nil || m.Branch.Session != home || m.Branch.SessionID == "" || m.Branch.Seq != 4 || len(m.Content.Context) != 0 {
		t.Errorf("the branch is in %s (home %s) and begins at %+v with %d entries", m.Session, home, m.Branch, len(m.Content.Context))
	}
	if again := b.message(after("more", branch).ID).Session; again != m.Session {
		t.Errorf("a branch continues in %s, want %s", again, m.Session)
	}
}

func TestResponseIsReadAndDeletedWithItsSession(t *testing.T) {
	t.Parallel()
	b := start(t)
	alone, failed := b.respond(respond("one two")), b.post(responsesPath, respond("server fail"))
	got := b.look(readToken, responsesPath+"/"+alone.ID)
	if r := decode[reply](t, got.body); got.status != http.StatusOK || r.ID != alone.ID || r.Status != "completed" || r.text() != "one two" || r.Model != "laneway/main" {
		t.Errorf("%d %s", got.status, got.body)
	}
	r := decode[reply](t, b.look(readToken, responsesPath+"/resp_"+failed.header.Get("X-Laneway-Run-Id")).body)
	if r.Status != "failed" || r.Error == nil || r.Error.Code != "run_timeout" {
		t.Errorf("a failed response: %+v", r)
	}
	second := b.respond(respond("two", params{"previous_response_id": alone.ID}))
	for _, id := range []string{alone.ID, second.ID} {
		got := b.remove(writeToken, responsesPath+"/"+id)
		if got.status != http.StatusConflict || !strings.Contains(string(got.body), "laneway sessions delete agent:main:api:") {
			t.Errorf("a part of a session: %d %s, want a conflict that names the command", got.status, got.body)
		}
	}
	only := b.respond(respond("three"))
	for _, tc := range []struct {
		token  string
		status int
	}{{readToken, http.StatusForbidden}, {ottoToken, http.StatusNotFound}, {writeToken, http.StatusOK}, {writeToken, http.StatusNotFound}} {
		if got := b.remove(tc.token, responsesPath+"/"+only.ID); got.status != tc.status {
			t.Errorf("%s deletes: %d %s, want %d", tc.token, got.status, got.body, tc.status)
		}
	}
	for _, path := range []string{only.ID, "resp_0", "0"} {
		if got := b.look(writeToken, responsesPath+"/"+path); got.status != http.StatusNotFound {
			t.Errorf("%s: %d %s", path, got.status, got.body)
		}
	}
}

func TestCallsOfAResponseAreItemsAndReturn(t *testing.T) {
	t.Parallel()
	b := startWithModel(t)
	tools := params{"tools": []any{params{"type": "function", "name": "weather", "parameters": params{"type": "object"}, "strict": true}}}
	got := b.post(responsesPath, respond("mute", tools))
	type item struct {
		Type, ID, Name, Arguments, Status string
		CallID                            string `json:"call_id"` //nolint:tagliatelle // OpenAI's name
	}
	made := decode[struct{ Output []item }](t, got.body).Output
	if got.status != http.StatusOK || len(made) != 1 || made[0].Type != "function_call" || made[0].CallID != "call_1" || made[0].Name != "weather" || made[0].Arguments != `{"city":"Oslo"}` {
		t.Fatalf("%d %s", got.status, got.body)
	}
	one := b.post(responsesPath, respond("mute", tools, params{"parallel_tool_calls": false}))
	if m := b.message(one.header.Get("X-Laneway-Run-Id")); !m.Content.Client.OneCall || one.json(t)["parallel_tool_calls"] != false {
		t.Errorf("one call at once: %+v, %s", m.Content.Client, one.body)
	}
	types, _, _ := streamedResponse(t, b.post(responsesPath, respond("mute", tools, params{"stream": true})).body)
	want := []string{
		"response.created", "response.in_progress", "response.output_item.added", "response.function_call_arguments.delta", "response.function_call_arguments.done",
		"response.output_item.done", "response.completed",
	}
	if !slices.Equal(types, want) {
		t.Errorf("events %v, want %v", types, want)
	}
	output := params{"type": "function_call_output", "call_id": "call_1", "output": "rain"}
	call := params{"type": "function_call", "call_id": "call_1", "name": "weather", "arguments": `{"city":"Oslo"}`}
	for name, asked := range map[string]params{"call": call, "reference": {"type": "item_reference", "id": made[0].ID}} {
		m := b.message(b.respond(respond([]any{says("user", "Oslo?"), asked, output}, tools)).ID)
		if c := m.Content.Client; m.Content.Text != "Oslo?" || c == nil || len(c.Rounds) != 1 || c.Rounds[0].Calls[0] != (chat.ToolCall{ID: "call_1", Name: "weather", Args: `{"city":"Oslo"}`}) ||
			c.Rounds[0].Results[0].Text != "rain" {
			t.Errorf("%s: %+v", name, m.Content)
		}
	}
	for param, body := range map[string]params{
		"tools": respond("x", tools, params{"conversation": "talk"}),
		"input": respond([]any{output}, params{"previous_response_id": "resp_0"}),
	} {
		if got := b.post(responsesPath, body); got.status != http.StatusBadRequest || got.json(t)["error"].(map[string]any)["param"] != param {
			t.Errorf("%s: %d %s", param, got.status, got.body)
		}
	}
}

func TestRequestWithoutStoreHasAPassingSession(t *testing.T) {
	t.Parallel()
	b := start(t)
	unstored := params{"store": false}
	first := b.respond(respond("one", unstored))
	if !b.message(first.ID).Session.Passing() {
		t.Errorf("the session of a response is %s", b.message(first.ID).Session)
	}
	whole := b.post(completionsPath, ask("one", unstored))
	if key := b.message(whole.header.Get("X-Laneway-Run-Id")).Session; !key.Passing() {
		t.Errorf("the session of a completion is %s", key)
	}
	if got := b.look(writeToken, responsesPath+"/"+first.ID); got.status != http.StatusNotFound {
		t.Errorf("it is read: %d %s", got.status, got.body)
	}
	if key := b.message(b.respond(respond("one", params{"store": true})).ID).Session; key.Passing() {
		t.Errorf("with store the session is %s", key)
	}
	for name, got := range map[string]answer{
		"conversation": b.post(responsesPath, respond("x", unstored, params{"conversation": "talk"})),
		"session":      b.post(completionsPath, ask("x", unstored), header("X-Laneway-Session-Key", "main")),
	} {
		if got.status != http.StatusBadRequest || got.json(t)["error"].(map[string]any)["param"] != "store" {
			t.Errorf("%s: %d %s, want 400 with param store", name, got.status, got.body)
		}
	}
	if got := b.post(responsesPath, respond("x", params{"previous_response_id": first.ID})); got.status != http.StatusNotFound {
		t.Errorf("it is continued: %d %s", got.status, got.body)
	}
}

func TestReferenceToAnAnswerIsItsText(t *testing.T) {
	t.Parallel()
	b := start(t)
	first := b.respond(respond("one two"))
	ask := func(ref params) params {
		return respond([]any{says("user", "one two"), ref, says("user", "three")})
	}
	for _, ref := range []params{{"type": "item_reference", "id": first.Output[0].ID}, {"id": first.Output[0].ID}} {
		m := b.message(b.respond(ask(ref)).ID)
		if got := m.Content.Context; len(got) != 2 || got[1].Role != "assistant" || got[1].Text != "one two" || got[1].RunID != "" || m.Content.Text != "three" {
			t.Errorf("%v: %+v", ref, m.Content)
		}
	}
	for id, want := range map[string]int{"msg_0": http.StatusNotFound, "rs_1": http.StatusBadRequest} {
		got := b.post(responsesPath, ask(params{"type": "item_reference", "id": id}))
		if got.status != want || got.json(t)["error"].(map[string]any)["param"] != "input" {
			t.Errorf("%s: %d %s, want %d with param input", id, got.status, got.body, want)
		}
	}
	if got := b.post(responsesPath, ask(params{"type": "item_reference", "id": first.Output[0].ID}), header("Authorization", "Bearer "+ottoToken)); got.status != http.StatusNotFound {
		t.Errorf("an answer to another principal: %d %s", got.status, got.body)
	}
}

// Of two concurrent requests that continue the same response, one continues in the session, the
// other branches, and none is lost.
func TestOnlyOneOfTwoContinuationsGetsTheSession(t *testing.T) {
	t.Parallel()
	b := start(t)
	first := b.respond(respond("one"))
	home := b.message(first.ID).Session
	const n = 8
	got := make(chan reply, n)
	for range n {
		go func() {
			r := decode[reply](t, b.post(responsesPath, respond("two", params{"previous_response_id": first.ID})).body)
			got <- r
		}()
	}
	stayed := 0
	for range n {
		r := <-got
		if r.text() != "two" {
			t.Errorf("%+v", r)
			continue
		}
		if b.message(r.ID).Session == home {
			stayed++
		}
	}
	if stayed != 1 {
		t.Errorf("%d continuations are in the session, want 1", stayed)
	}
}

func TestConversationNamesTheSession(t *testing.T) {
	t.Parallel()
	b := start(t)
	for _, given := range []any{"trip", params{"id": "trip"}} {
		r := b.respond(respond("one", params{"conversation": given}))
		if key := b.message(r.ID).Session.String(); key != "agent:main:api:write:trip" || r.Conversation == nil || r.Conversation.ID != "trip" {
			t.Errorf("%s %+v", key, r.Conversation)
		}
	}
}

func TestResponsesRefuseWhatTheyCannotDo(t *testing.T) {
	t.Parallel()
	b := start(t, func(c *gateway.Config) { c.ChatsPerMinute = auth.Off })
	owned := b.respond(respond("mine"), header("Authorization", "Bearer "+ottoToken))
	before := b.core.accepted()
	previous := func(id string) params { return respond("x", params{"previous_response_id": id}) }
	anna := header("Authorization", "Bearer "+annaToken)
	for name, tc := range map[string]struct {
		body   any
		change func(*http.Request)
		status int
		code   string
	}{
		"no token":            {body: respond("x"), change: header("Authorization", ""), status: 401, code: "auth_token_missing"},
		"read token":          {body: respond("x"), change: header("Authorization", "Bearer "+readToken), status: 403, code: "missing_scope"},
		"no input":            {body: params{"model": "laneway"}, status: 400},
		"empty input":         {body: respond([]any{}), status: 400},
		"number":              {body: respond(7), status: 400},
		"answer last":         {body: respond([]any{says("assistant", "x")}), status: 400},
		"call":                {body: respond([]any{params{"type": "function_call_output", "call_id": "c", "output": "x"}}), status: 400},
		"tools":               {body: respond("x", params{"tools": []any{params{"type": "web_search"}}}), status: 400},
		"background":          {body: respond("x", params{"background": true}), status: 400},
		"json schema":         {body: respond("x", params{"text": params{"format": params{"type": "json_schema"}}}), status: 400},
		"other model":         {body: respond("x", params{"model": "gpt-5"}), status: 404, code: "model_not_found"},
		"unknown":             {body: previous("resp_0192"), status: 404, code: "not_found"},
		"no id":               {body: previous("nonsense"), status: 404, code: "not_found"},
		"another's":           {body: previous(owned.ID), change: anna, status: 404, code: "not_found"},
		"two places":          {body: respond("x", params{"previous_response_id": owned.ID, "conversation": "c"}), status: 400},
		"previous and header": {body: previous(owned.ID), change: header("X-Laneway-Session-Key", "main"), status: 400},
		"conversation":        {body: respond("x", params{"conversation": "a:b"}), status: 400},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			change := tc.change
			if change == nil {
				change = func(*http.Request) {}
			}
			got := b.post(responsesPath, tc.body, change)
			if _, code := got.fault(t); got.status != tc.status || (tc.code != "" && code != tc.code) {
				t.Errorf("got %d %s, want %d %s: %s", got.status, code, tc.status, tc.code, got.body)
			}
		})
	}
	t.Cleanup(func() {
		if n := b.core.accepted(); n != before {
			t.Errorf("%d messages were accepted", n-before)
		}
	})
}

func TestRepeatedResponseGetsTheFirstAnswer(t *testing.T) {
	t.Parallel()
	b := start(t)
	first := b.respond(respond("one"))
	key := header("Idempotency-Key", "k-1")
	next := respond("two", params{"previous_response_id": first.ID})
	a, again := b.respond(next, key), b.respond(next, key)
	if a.ID != again.ID || a.text() != again.text() || b.core.accepted() != 2 {
		t.Errorf("%+v\n%+v\n%d messages", a, again, b.core.accepted())
	}
	other := b.post(responsesPath, respond("three", params{"previous_response_id": first.ID}), key)
	if _, code := other.fault(t); other.status != http.StatusConflict || code != "idempotency_key_reused" {
		t.Errorf("%d %s", other.status, other.body)
	}
	if done := b.post(completionsPath, ask("one"), key); done.status != http.StatusOK {
		t.Errorf("the same key for a completion: %d %s", done.status, done.body)
	}
}
