package model_test

import (
	"bytes"
	"compress/gzip"
	"errors"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"laneway/internal/agent"
	"laneway/internal/agent/agenttest"
	"laneway/internal/agent/internal/model"
	"laneway/internal/chat"
	"laneway/internal/testmodel"
)

// asks runs turns with tools, and returns the members of interest of each request.
func asks(t *testing.T, runner *model.Runner, turns int, change func(*agent.Request)) (failed []chat.FailReason) {
	t.Helper()
	for range turns {
		j := &journal{}
		req := agenttest.Request("hi")
		req.Tools, req.Journal = j, j
		if change != nil {
			change(&req)
		}
		if _, err := runner.Run(t.Context(), req, func(agent.Event) {}); err != nil {
			failed = append(failed, agent.ReasonOf(err))
		}
	}
	return failed
}

// TestRefusalsThatNameAPartAreLearned has sentences in the words of endpoints: the part is left out
// at once, in this turn and the next.
func TestRefusalsThatNameAPartAreLearned(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		anthropic bool
		member    string // that is refused while it is in the request
		status    int
		says      string
		lacks     []string
	}{
		"OllamaTools":      {member: "tools", status: 400, says: `registry/library/m does not support tools`, lacks: []string{"tools"}},
		"VLLMTools":        {member: "tools", status: 400, says: `"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set`, lacks: []string{"tools"}},
		"RouterTools":      {member: "tools", status: 404, says: `No endpoints found that support tool use.`, lacks: []string{"tools"}},
		"Temperature":      {member: "temperature", status: 400, says: `Unsupported value: 'temperature' does not support 0.5 with this model. Only the default (1) value is supported.`, lacks: []string{"temperature"}},
		"TopP":             {member: "top_p", status: 400, says: `Unsupported parameter: 'top_p' is not supported with this model.`, lacks: []string{"top_p"}},
		"Usage":            {member: "stream_options", status: 422, says: `body.stream_options: Extra inputs are not permitted`, lacks: []string{"stream_options"}},
		"NewLimit":         {member: "max_tokens", status: 400, says: `Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.`, lacks: []string{"max_tokens"}},
		"EffortLevel":      {member: "minimal", status: 400, says: `Unsupported value: 'reasoning_effort' does not support 'minimal' with this model. Supported values are: 'low', 'medium', and 'high'.`, lacks: []string{"reasoning_effort minimal"}},
		"Effort":           {member: "reasoning_effort", status: 400, says: `Argument not supported on this model: reasoningEffort`, lacks: []string{"reasoning_effort"}},
		"EffortOfGroq":     {member: "reasoning_effort", status: 400, says: "reasoning_effort must be one of `none` or `default`", lacks: []string{"reasoning_effort"}},
		"OneTemperature":   {member: "temperature", status: 400, says: `invalid temperature: only 1 is allowed for this model`, lacks: []string{"temperature"}},
		"OllamaThinkLevel": {member: "minimal", status: 400, says: `invalid think value: "minimal" (must be "high", "medium", "low", true, or false)`, lacks: []string{"reasoning_effort minimal"}},
		"UnknownVariant":   {member: "minimal", status: 422, says: "Failed to deserialize the JSON body into the target type: reasoning_effort: unknown variant `minimal`, expected one of `low`, `medium`, `high`", lacks: []string{"reasoning_effort minimal"}},
		"ThinkingLevel":    {member: "minimal", status: 400, says: `Thinking level MINIMAL is not supported for this model. Please retry with other thinking level.`, lacks: []string{"reasoning_effort minimal"}},
		"MistralForbidden": {member: "reasoning_effort", status: 422, says: `extra_forbidden body.reasoning_effort Extra inputs are not permitted`, lacks: []string{"reasoning_effort"}},
		"GeminiTools":      {member: "tools", status: 400, says: `Function calling is not enabled for models/m`, lacks: []string{"tools"}},
		"UnknownField":     {member: "stream_options", status: 400, says: `Invalid JSON payload received. Unknown name "stream_options": Cannot find field.`, lacks: []string{"stream_options"}},
		"GoField":          {member: "top_p", status: 400, says: `json: unknown field "top_p"`, lacks: []string{"top_p"}},
		"StreamingTools":   {member: "tools", status: 400, says: `This model doesn't support tool use in streaming mode.`, lacks: []string{"tools"}},
		"BothSamplings":    {anthropic: true, member: "top_p", status: 400, says: "`temperature` and `top_p` cannot both be specified for this model. Please use only one.", lacks: []string{"top_p"}},
		"Thinking":         {member: "reasoning_effort", status: 400, says: `"m" does not support thinking`, lacks: []string{"reasoning_effort"}},
		"System":           {member: `"system"`, status: 400, says: `System role not supported`, lacks: []string{"system role"}},
		"ThinkingBudget":   {anthropic: true, member: `"enabled"`, status: 400, says: `"thinking.type.enabled" is not supported for this model. Use "thinking.type.adaptive" and "output_config.effort".`, lacks: []string{"thinking.enabled"}},
		"NoThinkingAtAll":  {anthropic: true, member: `"thinking"`, status: 400, says: `thinking is not supported on this model`, lacks: []string{"thinking.adaptive", "thinking.enabled"}},
		"AnthropicTopP":    {anthropic: true, member: "top_p", status: 400, says: "`top_p` is deprecated for this model.", lacks: []string{"top_p"}},
		"AnthropicNoTools": {anthropic: true, member: "tools", status: 400, says: `This model does not support tools.`, lacks: []string{"tools"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := testmodel.Start(t)
			server.Answer(func(call testmodel.Call) testmodel.Reply {
				if refusedIn(call, tt.member) {
					return testmodel.Reply{Status: tt.status, Message: tt.says}
				}
				return testmodel.Reply{Pieces: []string{"ok"}}
			})
			runner := open(t, server, tt.anthropic, "m")
			failed := asks(t, runner, 2, func(req *agent.Request) {
				req.SystemPrompt, req.Thinking = "be short", "minimal"
				if !tt.anthropic || !strings.Contains(name, "hinking") {
					req.Params = map[string]any{"temperature": 0.5, "top_p": 0.5, "max_tokens": 100}
				}
				if strings.HasPrefix(name, "Anthropic") || name == "BothSamplings" {
					req.Thinking = ""
				}
			})
			var lacks []string
			for _, lack := range runner.Lacks() {
				lacks = append(lacks, lack.Part)
			}
			if diff := cmp.Diff(tt.lacks, lacks); diff != "" || len(failed) > 0 {
				t.Errorf("failed %v, lacks (-want +got):\n%s", failed, diff)
			}
			if n := len(server.Calls()); n != 2+len(tt.lacks) {
				t.Errorf("got %d requests for two turns, want %d", n, 2+len(tt.lacks))
			}
		})
	}
}

// refusedIn reports whether a request has a member or a word, in contrast to a longer name that
// contains it.
func refusedIn(call testmodel.Call, member string) bool {
	if strings.HasPrefix(member, `"`) || member == "minimal" {
		return strings.Contains(string(call.Body), member)
	}
	return call.Field(member) != nil
}

// TestUnnamedRefusalsDoNotTakeTheTools checks that a 400 without a known cause is repeated once as
// it was, and that tools are left out only after two small turns that ended with it.
func TestUnnamedRefusalsDoNotTakeTheTools(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server, end := testmodel.StartInMemory(t)
		defer end()
		server.Answer(func(call testmodel.Call) testmodel.Reply {
			if len(call.Tools) > 0 {
				return testmodel.Reply{Status: http.StatusBadRequest, Message: "invalid request"}
			}
			return testmodel.Reply{Pieces: []string{"ok"}}
		})
		runner := open(t, server, false, "m")
		large := func(req *agent.Request) { req.Messages[0].Text = strings.Repeat("long ", 9000) }
		if failed := asks(t, runner, 3, large); len(failed) != 3 || len(server.Calls()) != 6 || len(runner.Lacks()) != 0 {
			t.Errorf("large requests: %v after %d requests, lacks %v; want three failures, each repeated once, and nothing learned", failed, len(server.Calls()), runner.Lacks())
		}
		if failed := asks(t, runner, 3, nil); len(failed) != 2 || len(runner.Lacks()) != 1 {
			t.Errorf("small requests: %v, lacks %v; want two failures and then an answer without tools", failed, runner.Lacks())
		}
		time.Sleep(10*time.Minute + time.Second)
		server.Answer(func(testmodel.Call) testmodel.Reply { return testmodel.Reply{Pieces: []string{"ok"}} })
		asks(t, runner, 1, nil)
		calls := server.Calls()
		if last := calls[len(calls)-1]; len(last.Tools) == 0 || len(runner.Lacks()) != 0 {
			t.Errorf("after ten minutes: tools %v, lacks %v; want the tools offered again", last.Tools, runner.Lacks())
		}
	})
}

// TestOneCallAtOnceIsAsked has a model that calls twice at once although it may not, and an
// endpoint that does not know the member.
func TestOneCallAtOnceIsAsked(t *testing.T) {
	t.Parallel()
	for _, isAnthropic := range []bool{false, true} {
		server := testmodel.Start(t)
		server.Answer(func(call testmodel.Call) testmodel.Reply {
			if call.Number == 1 {
				return testmodel.Reply{Status: http.StatusBadRequest, Message: map[bool]string{
					false: "body.parallel_tool_calls: Extra inputs are not permitted", true: "tool_choice.disable_parallel_tool_use: Extra inputs are not permitted",
				}[isAnthropic]}
			}
			return testmodel.Reply{Calls: []testmodel.ToolCall{{ID: "a", Name: "set", Args: `{"n":1}`}, {ID: "b", Name: "set", Args: `{"n":2}`}}}
		})
		req := agenttest.Request("hi")
		req.Client = &chat.ClientTools{OneCall: true, Tools: []chat.ClientTool{{Name: "set", Schema: []byte(`{"type":"object"}`)}}}
		result, err := open(t, server, isAnthropic, "m").Run(t.Context(), req, func(agent.Event) {})
		if err != nil || len(result.Calls) != 1 || result.Calls[0].ID != "a" {
			t.Errorf("got %+v and %v, want the first call", result.Calls, err)
		}
		for i, call := range server.Calls() {
			body := string(call.Body)
			if asked := strings.Contains(body, `"parallel_tool_calls":false`) || strings.Contains(body, `"tool_choice":{"type":"auto","disable_parallel_tool_use":true}`); asked != (i == 0) {
				t.Errorf("request %d: %s", i, body)
			}
		}
	}
}

// TestLacksBelongToOneModel checks that what one model refuses is sent to another one, and that an
// acceptance forgets the refusal.
func TestLacksBelongToOneModel(t *testing.T) {
	t.Parallel()
	server := testmodel.Start(t)
	refuse := true
	server.Answer(func(call testmodel.Call) testmodel.Reply {
		if refuse && call.Model == "m" && len(call.Tools) > 0 {
			return testmodel.Reply{Status: http.StatusBadRequest, Message: "m does not support tools"}
		}
		return testmodel.Reply{Pieces: []string{"ok"}}
	})
	runner := open(t, server, false, "m")
	asks(t, runner, 1, nil)
	asks(t, runner, 1, func(req *agent.Request) { req.Model = "n" })
	calls := server.Calls()
	if last := calls[len(calls)-1]; len(last.Tools) == 0 || len(runner.Lacks()) != 1 || runner.Lacks()[0].Said != "m does not support tools" {
		t.Errorf("tools of the other model: %v; lacks %+v", last.Tools, runner.Lacks())
	}
}

// TestReturnedMembersThatAreRefusedStayOut checks that an endpoint that refuses a member by name
// gets the request once without it.
func TestReturnedMembersThatAreRefusedStayOut(t *testing.T) {
	t.Parallel()
	server := testmodel.Start(t)
	server.Answer(func(call testmodel.Call) testmodel.Reply {
		switch body := string(call.Body); {
		case !strings.Contains(body, "set to 1"):
			return testmodel.Reply{Type: "text/event-stream", Body: delta(`{"reasoning":"hm","reasoning_content":"so"}`) + delta(`{"tool_calls":[{"index":0,"id":"a",`+callOf+`}]}`) + finish("tool_calls")}
		case strings.Contains(body, `"reasoning":`):
			return testmodel.Reply{Status: http.StatusUnprocessableEntity, Message: "messages.1.reasoning: Extra inputs are not permitted"}
		case !strings.Contains(body, `"reasoning_content":"so"`):
			return testmodel.Reply{Status: http.StatusBadRequest, Message: "The `reasoning_content` must be passed back to the API."}
		default:
			return testmodel.Reply{Pieces: []string{"done"}}
		}
	})
	if failed := asks(t, open(t, server, false, "m"), 2, nil); len(failed) != 0 || len(server.Calls()) != 5 {
		t.Errorf("failed %v after %d requests, want two answers after 3 and 2", failed, len(server.Calls()))
	}
}

// TestRefusalsAsTooLongShortenTheConversation checks the second try with a smaller part of the
// history, and that the turn states the refusal.
func TestRefusalsAsTooLongShortenTheConversation(t *testing.T) {
	t.Parallel()
	server := testmodel.Start(t)
	server.Answer(func(call testmodel.Call) testmodel.Reply {
		if len(call.Body) > 20_000 {
			return testmodel.Reply{Status: http.StatusBadRequest, Message: "The input token count (9000) exceeds the maximum number of tokens allowed (5000)."}
		}
		return testmodel.Reply{Pieces: []string{"ok"}}
	})
	req := agenttest.Request("last")
	for range 30 {
		req.History = append(req.History, chat.TranscriptEntry{Role: chat.RoleUser, Text: strings.Repeat("q", 500)}, chat.TranscriptEntry{Role: chat.RoleAssistant, Text: strings.Repeat("a", 500)})
	}
	result, err := open(t, server, false, "m").Run(t.Context(), req, func(agent.Event) {})
	if err != nil || result.Text != "ok" || !result.TooLong || len(server.Calls()) != 2 {
		t.Errorf("got %q, %v and too long %t after %d requests, want the answer after 2", result.Text, err, result.TooLong, len(server.Calls()))
	}
}

// TestErrorsAreReadAnywhere has an error in each of the places where services put it, with status
// 200.
func TestErrorsAreReadAnywhere(t *testing.T) {
	t.Parallel()
	const said = "the probe is out"
	for name, tt := range map[string]struct {
		kind, body string
		reason     chat.FailReason
	}{
		"ListInTheBody":      {"application/json", `[{"error":{"code":400,"message":"` + said + `","status":"INVALID_ARGUMENT"}}]`, chat.FailBadRequest},
		"DocumentAsAStream":  {"text/event-stream", `{"error":{"message":"` + said + `","code":503}}`, chat.FailOverloaded},
		"ListInTheStream":    {"text/event-stream", event(`[{"error":{"code":429,"message":"` + said + `"}}]`), chat.FailRateLimit},
		"StringInTheStream":  {"text/event-stream", event(`{"error":"` + said + `"}`), chat.FailServer},
		"NamedEvent":         {"text/event-stream", "event: error\ndata: " + said + "\n\n", chat.FailServer},
		"LineWithoutAName":   {"text/event-stream", delta(`{"role":"assistant"}`) + `{"error":{"message":"` + said + `","code":500}}` + "\n\n", chat.FailServer},
		"ObjectOfTypeError":  {"text/event-stream", event(`{"object":"error","message":"` + said + `","type":"BadRequestError","code":400}`), chat.FailBadRequest},
		"WithinTheChoice":    {"text/event-stream", event(`{"choices":[{"index":0,"delta":{},"error":{"code":502,"message":"` + said + `"}}]}`), chat.FailServer},
		"DetailInTheBody":    {"application/json", `{"detail":[{"loc":["body"],"msg":"` + said + `"}]}`, chat.FailServer},
		"SentenceOfANumber":  {"application/json", `{"code":20015,"msg":"` + said + `","data":null}`, chat.FailServer},
		"WithEmptyChoices":   {"application/json", `{"choices":[],"base_resp":{"status_code":1008,"status_msg":"` + said + `"}}`, chat.FailServer},
		"NamedInTheStream":   {"text/event-stream", event(`{"error_code":336003,"error_msg":"` + said + `"}`), chat.FailServer},
		"StringWithinString": {"application/json", `{"error":{"message":"{\"error\":{\"message\":\"` + said + `\"}}","code":400}}`, chat.FailBadRequest},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := testmodel.Start(t)
			server.Answer(func(testmodel.Call) testmodel.Reply { return testmodel.Reply{Type: tt.kind, Body: tt.body} })
			_, err := open(t, server, false, "m").Run(t.Context(), agenttest.Request("hi"), func(agent.Event) {})
			if agent.ReasonOf(err) != tt.reason || !strings.Contains(err.Error(), said) {
				t.Errorf("got %s (%v), want %s with the sentence", agent.ReasonOf(err), err, tt.reason)
			}
		})
	}
}

// TestCompressedAnswersAreRead has a server that compresses although it was not asked to.
func TestCompressedAnswersAreRead(t *testing.T) {
	t.Parallel()
	server := testmodel.Start(t)
	server.Answer(func(testmodel.Call) testmodel.Reply {
		var packed bytes.Buffer
		writer := gzip.NewWriter(&packed)
		_, err := writer.Write([]byte(delta(`{"content":"päckt"}`) + finish("stop")))
		if err := errors.Join(err, writer.Close()); err != nil {
			t.Error(err)
		}
		return testmodel.Reply{Type: "text/event-stream", Body: packed.String(), Header: map[string]string{"Content-Encoding": "gzip"}}
	})
	result, err := open(t, server, false, "m").Run(t.Context(), agenttest.Request("hi"), func(agent.Event) {})
	if err != nil || result.Text != "päckt" {
		t.Errorf("got %q and %v", result.Text, err)
	}
}

// TestStreamsEndInKnownWays checks what counts as the end of an answer.
func TestStreamsEndInKnownWays(t *testing.T) {
	t.Parallel()
	said := delta(`{"content":"a"}`)
	const done = "data: [DONE]\n\n"
	for name, tt := range map[string]struct {
		body, text string
		reason     chat.FailReason
	}{
		"ReasonWithoutMark":  {said + event(`{"choices":[{"delta":{},"finish_reason":"stop"}]}`), "a", ""},
		"MarkWithoutReason":  {said + done, "a", ""},
		"Neither":            {said, "a", chat.FailConnection},
		"MarkAlone":          {done, "", chat.FailConnection},
		"NoCallAsAnnounced":  {finish("tool_calls"), "", chat.FailBadResponse},
		"CallCutOff":         {delta(`{"tool_calls":[{"index":0,"id":"a","function":{"name":"set","arguments":""}}]}`) + finish("length"), "", ""},
		"RefusalPart":        {delta(`{"content":[{"type":"refusal","refusal":"no"}]}`) + finish("stop"), "", chat.FailRefusal},
		"Filter":             {said + finish("content_filter"), "a", chat.FailRefusal},
		"FilterWithItsCause": {finish("content_filter: PROHIBITED_CONTENT"), "", chat.FailRefusal},
		"FilterOfPictures":   {finish("IMAGE_PROHIBITED_CONTENT"), "", chat.FailRefusal},
		"MalformedCall":      {finish("function_call_filter: MALFORMED_FUNCTION_CALL"), "", chat.FailBadResponse},
		"UnknownAndEmpty":    {finish("MALFORMED_RESPONSE"), "", chat.FailBadResponse},
		"UnknownWithText":    {said + finish("OTHER"), "a", ""},
		"EmptyAndWell":       {finish("STOP"), "", ""},
		"ReasonInCapitals":   {said + finish("SAFETY"), "a", chat.FailRefusal},
		"UnknownParts":       {delta(`{"content":[{"type":"video","text":"v"},"a"]}`) + finish("stop"), "a", ""},
		"SecondChoice":       {event(`{"choices":[{"index":1,"delta":{"content":"b"}}]}`) + said + finish("stop"), "a", ""},
		"NoChoicesAtTheEnd":  {said + finish("stop")[:len(finish("stop"))-len(done)] + event(`{"choices":[],"usage":null}`) + done, "a", ""},
		"NullEverywhere":     {event(`{"choices":[{"index":null,"delta":{"content":null,"tool_calls":null,"refusal":null},"finish_reason":null}],"usage":null,"error":null}`) + said + done, "a", ""},
		"EmptyErrors":        {event(`{"error":{},"msg":"","choices":[{"delta":{"content":"a"},"error":""}]}`) + finish("stop"), "a", ""},
		"CumulativeMessage":  {event(`{"choices":[{"delta":{"content":"a"},"message":{"content":"a"}}]}`) + event(`{"choices":[{"delta":{"content":"b"},"message":{"content":"ab"}}]}`) + finish("stop"), "ab", ""},
		"MessageAfterwards":  {said + event(`{"choices":[{"delta":{},"message":{"content":"a"},"finish_reason":"stop"}]}`), "a", ""},
		"EndedByTheServer":   {said + finish("network_error"), "a", chat.FailServer},
		"MessageInTheStream": {event(`{"choices":[{"message":{"content":"a"},"finish_reason":"stop"}]}`), "a", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := testmodel.Start(t)
			server.Answer(func(testmodel.Call) testmodel.Reply { return testmodel.Reply{Type: "text/event-stream", Body: tt.body} })
			result, err := open(t, server, false, "m").Run(t.Context(), agenttest.Request("hi"), func(agent.Event) {})
			if agent.ReasonOf(err) != tt.reason || result.Text != tt.text {
				t.Errorf("got %q and %q (%v), want %q and %q", result.Text, agent.ReasonOf(err), err, tt.text, tt.reason)
			}
		})
	}
}
