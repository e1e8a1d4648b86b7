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

	"laneway/internal/chat"
	"laneway/internal/gateway"
	"laneway/internal/gateway/auth"
	"laneway/internal/store"
)

type answer struct {
	status int
	header http.Header
	body   []byte
}

func (a answer) json(t *testing.T) map[string]any {
	t.Helper()
	return decode[map[string]any](t, a.body)
}

// fault is type and code of an error below /v1.
func (a answer) fault(t *testing.T) (kind, code string) {
	t.Helper()
	f := decode[struct {
		Error struct{ Type, Code, Message string }
	}](t, a.body).Error
	if f.Message == "" {
		t.Errorf("the error says nothing: %s", a.body)
	}
	return f.Type, f.Code
}

// text is the answer of a completion.
func (a answer) text(t *testing.T) string {
	t.Helper()
	c := decode[struct {
		Choices []struct{ Message struct{ Content string } }
	}](t, a.body)
	if len(c.Choices) != 1 {
		t.Fatalf("want one choice: %s", a.body)
	}
	return c.Choices[0].Message.Content
}

func header(k, v string) func(*http.Request) { return func(r *http.Request) { r.Header.Set(k, v) } }

func (b *bench) postRequest(ctx context.Context, path string, body any, change ...func(*http.Request)) *http.Request {
	b.t.Helper()
	raw, ok := body.(string)
	if !ok {
		out, err := json.Marshal(body)
		if err != nil {
			b.t.Fatal(err)
		}
		raw = string(out)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+b.addr+path, strings.NewReader(raw))
	if err != nil {
		b.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer "+writeToken)
	for _, f := range change {
		f(req)
	}
	return req
}

func (b *bench) post(path string, body any, change ...func(*http.Request)) answer {
	b.t.Helper()
	tr := &http.Transport{DisableKeepAlives: true}
	defer tr.CloseIdleConnections()
	resp, err := tr.RoundTrip(b.postRequest(context.Background(), path, body, change...))
	if err != nil {
		b.t.Fatal(err)
	}
	defer resp.Body.Close()
	all, err := io.ReadAll(resp.Body)
	if err != nil {
		b.t.Fatal(err)
	}
	return answer{resp.StatusCode, resp.Header, all}
}

func says(role, text string) map[string]any { return map[string]any{"role": role, "content": text} }

func ask(text string, more ...params) params {
	p := params{"model": "laneway", "messages": []any{says("user", text)}}
	for _, m := range more {
		maps.Copy(p, m)
	}
	return p
}

const completionsPath = "/v1/chat/completions"

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

// sse reads a stream of events: data lines, comments, and the end.
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

func (h *house) only(t *testing.T) chat.Message {
	t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.messages) != 1 {
		t.Fatalf("%d messages, want 1", len(h.messages))
	}
	for _, l := range h.messages {
		return l.m
	}
	return chat.Message{}
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
	m := b.house.only(t)
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
		"user":   {more: params{"user": "u1"}, want: "agent:main:api:write:u1"},
		"header": {header: "agent:main:room", want: "agent:main:room"},
		"short":  {header: "room", want: "agent:main:room"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := start(t)
			if got := b.post(completionsPath, conversation(tc.more), header("X-Laneway-Session-Key", tc.header)); got.status != http.StatusOK {
				t.Fatalf("%d %s", got.status, got.body)
			}
			m := b.house.only(t)
			if m.Session.String() != tc.want || len(m.Content.Context) != 0 || m.Content.Text != "how\nare\n\nyou" {
				t.Errorf("session %s, context %v, text %q", m.Session, m.Content.Context, m.Content.Text)
			}
		})
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
		"other agent":    {body: ask("x", params{"model": "laneway/nobody"}), status: 404, kind: "invalid_request_error", code: "model_not_found"},
		"no messages":    {body: ask("x", params{"messages": []any{}}), status: 400, kind: "invalid_request_error"},
		"answer last":    {body: ask("x", params{"messages": []any{says("assistant", "x")}}), status: 400, kind: "invalid_request_error"},
		"role":           {body: ask("x", params{"messages": []any{says("robot", "x"), says("user", "x")}}), status: 400, kind: "invalid_request_error"},
		"image":          {body: ask("x", params{"messages": []any{image}}), status: 400, kind: "invalid_request_error"},
		"tools":          {body: ask("x", params{"tools": []any{params{"type": "function"}}}), status: 400, kind: "invalid_request_error"},
		"two answers":    {body: ask("x", params{"n": 2}), status: 400, kind: "invalid_request_error"},
		"user":           {body: ask("x", params{"user": "a:b"}), status: 400, kind: "invalid_request_error"},
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
		})
	}
	t.Cleanup(func() {
		if len(b.house.messages) != 0 {
			t.Errorf("%d messages were accepted", len(b.house.messages))
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

func TestCompletionSaysHowARunEndedWithoutAnAnswer(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		text   string
		refuse error
		status int
		code   string
	}{
		"timeout":    {text: "fail", status: 504, code: "run_timeout"},
		"queue full": {text: "x", refuse: chat.ErrQueueFull, status: 429, code: "queue_full"},
		"draining":   {text: "x", refuse: chat.ErrDraining, status: 503, code: "gateway_draining"},
		"database":   {text: "x", refuse: chat.ErrStoreUnavailable, status: 503, code: "database_unavailable"},
		"defect":     {text: "x", refuse: io.ErrUnexpectedEOF, status: 500, code: "internal"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := start(t)
			b.house.set(func() { b.house.refuse = tc.refuse })
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
	go func() { done <- b.post(completionsPath, ask("wait", params{"user": "u"})) }()
	b.house.untilRunning("agent:main:api:write:u")
	if got := b.login(adminToken).must("chat.abort", params{"sessionKey": "agent:main:api:write:u"}); got["aborted"] != true {
		t.Fatalf("abort: %v", got)
	}
	got := <-done
	if _, code := got.fault(t); got.status != http.StatusConflict || code != "run_cancelled" || got.header.Get("X-Should-Retry") != "false" {
		t.Errorf("%d %s %v", got.status, got.body, got.header)
	}
}

// untilRunning waits until a session has a running turn.
func (h *house) untilRunning(key string) {
	h.t.Helper()
	seen := make(chan struct{}, 1)
	look := func(chat.Event) {
		h.mu.Lock()
		r := h.sessions[key]
		running := r != nil && r.running != nil
		h.mu.Unlock()
		if running {
			select {
			case seen <- struct{}{}:
			default:
			}
		}
	}
	defer h.Subscribe(look, nil)()
	look(chat.Event{})
	select {
	case <-seen:
	case <-time.After(patience):
		h.t.Fatalf("no turn of %s runs", key)
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
			req := b.postRequest(ctx, completionsPath, ask("wait done", params{"user": "u", "stream": tc.stream}), header("X-Laneway-Detach", tc.detach))
			go func() {
				defer close(gone)
				tr := &http.Transport{DisableKeepAlives: true}
				resp, err := tr.RoundTrip(req)
				if err == nil {
					_, _ = io.Copy(io.Discard, resp.Body)
					_ = resp.Body.Close()
				}
			}()
			b.house.untilRunning("agent:main:api:write:u")
			leave()
			<-gone
			if tc.detach == "" {
				select {
				case <-b.house.stopped:
				case <-time.After(patience):
					t.Fatal("the run was not stopped")
				}
				if p := b.house.stops[0]; p.Scope != store.StopRun || p.By != "write" || p.MessageID == "" {
					t.Errorf("stop %+v", p)
				}
				return
			}
			b.house.proceed()
			if err := b.stop(); err != nil { // waits for the handler
				t.Fatal(err)
			}
			if len(b.house.stops) != 0 {
				t.Errorf("a detached run was stopped: %+v", b.house.stops)
			}
		})
	}
}

func TestRepeatedCompletionGetsTheFirstAnswer(t *testing.T) {
	t.Parallel()
	b := start(t)
	key := header("Idempotency-Key", "k-1")
	first := b.post(completionsPath, ask("one"), key)
	second := b.post(completionsPath, ask("one"), key)
	if first.text(t) != second.text(t) || first.json(t)["id"] != second.json(t)["id"] || len(b.house.messages) != 1 {
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
	elsewhere := b.post(completionsPath, ask("one"), key, header("Authorization", "Bearer "+adminToken))
	if elsewhere.status != http.StatusOK || elsewhere.json(t)["id"] == first.json(t)["id"] {
		t.Errorf("the key of another principal: %d %s", elsewhere.status, elsewhere.body)
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

func TestGatewayThatStopsLeavesRunsOfCompletionsAlone(t *testing.T) {
	t.Parallel()
	for _, stream := range []bool{false, true} {
		b := start(t)
		done := make(chan answer, 1)
		go func() { done <- b.post(completionsPath, ask("wait", params{"user": "u", "stream": stream})) }()
		b.house.untilRunning("agent:main:api:write:u")
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
		if len(b.house.stops) != 0 {
			t.Errorf("stream %v: stopped %+v", stream, b.house.stops)
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
			t.house.proceed()
		}()
		got := readSSE(t.T, resp.Body)
		chunks := got.chunks(t.T)
		if len(got.comments) != 3 || chunks[len(chunks)-1].Choices[0].FinishReason == nil {
			t.Errorf("want three comments in 50 s: %+v", got)
		}
	})
}
