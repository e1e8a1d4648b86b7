package gateway_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"net/textproto"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"laneway/internal/agent"
	"laneway/internal/chat"
	"laneway/internal/dispatch"
	"laneway/internal/files"
	"laneway/internal/gateway"
	"laneway/internal/gateway/auth"
)

const filesPath = "/v1/files"

// fileDir is a directory for files on a disk that can be full.
type fileDir struct {
	*files.Dir
	full atomic.Bool
}

func startWithFiles(t *testing.T, change ...func(*gateway.Config)) (*bench, *fileDir) {
	t.Helper()
	dir, err := files.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = dir.Close() })
	c := &fileDir{Dir: dir}
	space := func() error {
		if c.full.Load() {
			return chat.ErrStoreUnavailable
		}
		return nil
	}
	return start(t, append(change, func(cfg *gateway.Config) {
		cfg.Files = dispatch.NewUploads(dir, space, func(context.Context) ([]string, error) { return nil, nil })
	})...), c
}

// form returns a request with a file. stated: the request has a Content-Length.
func (b *bench) form(token, name, kind, content string, stated bool) *http.Request {
	b.t.Helper()
	var body bytes.Buffer
	w := multipart.NewWriter(&body)
	_ = w.WriteField("purpose", "user_data")
	head := textproto.MIMEHeader{"Content-Disposition": {`form-data; name="file"; filename="` + name + `"`}}
	if kind != "" {
		head.Set("Content-Type", kind)
	}
	part, err := w.CreatePart(head)
	if err != nil {
		b.t.Fatal(err)
	}
	_, _ = io.WriteString(part, content)
	_ = w.Close()
	var in io.Reader = &body
	if !stated {
		in = io.MultiReader(&body)
	}
	req, err := http.NewRequestWithContext(context.Background(), http.MethodPost, "http://"+b.addr+filesPath, in)
	if err != nil {
		b.t.Fatal(err)
	}
	req.Header.Set("Content-Type", w.FormDataContentType())
	req.Header.Set("Authorization", "Bearer "+token)
	return req
}

func (b *bench) do(req *http.Request) answer {
	b.t.Helper()
	tr := &http.Transport{DisableKeepAlives: true}
	defer tr.CloseIdleConnections()
	resp, err := tr.RoundTrip(req)
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

func (b *bench) look(token, path string) answer { return b.call(http.MethodGet, token, path) }

func (b *bench) remove(token, path string) answer { return b.call(http.MethodDelete, token, path) }

func (b *bench) call(method, token, path string) answer {
	b.t.Helper()
	req, err := http.NewRequestWithContext(context.Background(), method, "http://"+b.addr+path, nil)
	if err != nil {
		b.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	return b.do(req)
}

const png = "\x89PNG\r\n\x1a\n0123456789"

func TestFileIsStoredAndReadByItsOwnerAlone(t *testing.T) {
	t.Parallel()
	b, _ := startWithFiles(t)
	for _, stated := range []bool{true, false} {
		got := b.do(b.form(annaToken, "chart.png", "application/octet-stream", png, stated))
		f := got.json(t)
		if got.status != http.StatusOK || f["object"] != "file" || f["filename"] != "chart.png" || f["bytes"] != float64(len(png)) || f["mime_type"] != "image/png" || f["purpose"] != "user_data" {
			t.Fatalf("%d %s", got.status, got.body)
		}
		one := filesPath + "/" + f["id"].(string)
		if again := b.look(annaToken, one); again.status != http.StatusOK || again.json(t)["id"] != f["id"] {
			t.Errorf("%d %s", again.status, again.body)
		}
		content := b.look(annaToken, one+"/content")
		if string(content.body) != png || content.header.Get("Content-Type") != "image/png" || content.header.Get("X-Content-Type-Options") != "nosniff" ||
			!strings.HasPrefix(content.header.Get("Content-Disposition"), "attachment") || !strings.Contains(content.header.Get("Content-Security-Policy"), "sandbox") {
			t.Errorf("%q %v", content.body, content.header)
		}
		for _, path := range []string{one, one + "/content"} {
			if other := b.look(ottoToken, path); other.status != http.StatusNotFound {
				t.Errorf("another's %s: %d", path, other.status)
			}
			if all := b.look(readToken, path); all.status != http.StatusOK {
				t.Errorf("one that sees everything, %s: %d", path, all.status)
			}
		}
	}
	if list := b.look(annaToken, filesPath).json(t); len(list["data"].([]any)) != 2 || list["object"] != "list" {
		t.Errorf("%v", list)
	}
	if list := b.look(ottoToken, filesPath).json(t); len(list["data"].([]any)) != 0 {
		t.Errorf("another's list: %v", list)
	}
}

func TestFilesAreListedInPagesAndDeleted(t *testing.T) {
	t.Parallel()
	b, _ := startWithFiles(t)
	var ids []string // newest first
	for i := range 3 {
		ids = append([]string{b.do(b.form(annaToken, fmt.Sprintf("%d.txt", i), "", "a", true)).json(t)["id"].(string)}, ids...)
	}
	list := func(query string) (listed []string, more bool) {
		got := b.look(annaToken, filesPath+query)
		if got.status != http.StatusOK {
			t.Fatalf("%s: %d %s", query, got.status, got.body)
		}
		page := got.json(t)
		for _, f := range page["data"].([]any) {
			listed = append(listed, f.(map[string]any)["id"].(string))
		}
		return listed, page["has_more"] == true
	}
	for query, want := range map[string]struct {
		ids  []string
		more bool
	}{
		"?limit=2":                    {ids[:2], true},
		"?limit=2&after=" + ids[1]:    {ids[2:], false},
		"?limit=1&order=asc":          {ids[2:], true},
		"?purpose=user_data":          {ids, false},
		"?purpose=answer":             {nil, false},
		"?after=" + ids[2] + "&limit": {nil, false},
	} {
		if got, more := list(query); !slices.Equal(got, want.ids) || more != want.more {
			t.Errorf("%s: %v, %t, want %v", query, got, more, want)
		}
	}
	for _, query := range []string{"limit=0", "limit=many", "order=up", "after=file-0"} {
		name, _, _ := strings.Cut(query, "=")
		if got := b.look(annaToken, filesPath+"?"+query); got.status != http.StatusBadRequest || got.json(t)["error"].(map[string]any)["param"] != name {
			t.Errorf("%s: %d %s, want 400 with its name in param", query, got.status, got.body)
		}
	}
	for _, tc := range []struct {
		token  string
		status int
	}{{readToken, http.StatusForbidden}, {ottoToken, http.StatusNotFound}, {writeToken, http.StatusNotFound}, {annaToken, http.StatusOK}, {annaToken, http.StatusNotFound}} {
		got := b.remove(tc.token, filesPath+"/"+ids[0])
		if got.status != tc.status || tc.status == http.StatusOK && (got.json(t)["deleted"] != true || got.json(t)["id"] != ids[0]) {
			t.Errorf("%s: %d %s, want %d", tc.token, got.status, got.body, tc.status)
		}
	}
	if got, _ := list(""); !slices.Equal(got, ids[1:]) {
		t.Errorf("%v are left, want %v", got, ids[1:])
	}
}

func TestUploadsAreRefusedBeforeTheyFillTheDisk(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("long")
	}
	b, c := startWithFiles(t, func(cfg *gateway.Config) { cfg.BytesPerMinute = 40 << 20 })
	large := strings.Repeat("x", chat.MaxUpload+1)
	for name, tc := range map[string]struct {
		req    *http.Request
		status int
	}{
		"no token":         {b.form("", "a", "", "a", true), http.StatusUnauthorized},
		"read token":       {b.form(readToken, "a", "", "a", true), http.StatusForbidden},
		"too large":        {b.form(writeToken, "a", "", large, true), http.StatusRequestEntityTooLarge},
		"unstated":         {b.form(annaToken, "a", "", large, false), http.StatusRequestEntityTooLarge},
		"no form":          {b.postRequest(context.Background(), filesPath, "{}"), http.StatusUnsupportedMediaType},
		"form with no end": {b.postRequest(context.Background(), filesPath, "--x\r\n\r\n", header("Content-Type", "multipart/form-data; boundary=x")), http.StatusBadRequest},
		"form with no file": {
			b.postRequest(context.Background(), filesPath, "--x\r\nContent-Disposition: form-data; name=\"purpose\"\r\n\r\na\r\n--x--\r\n", header("Content-Type", "multipart/form-data; boundary=x")),
			http.StatusBadRequest,
		},
	} {
		if got := b.do(tc.req); got.status != tc.status {
			t.Errorf("%s: %d %s, want %d", name, got.status, got.body, tc.status)
		}
	}
	for _, who := range []string{"write", "anna"} {
		if list, err := c.Uploads(who); err != nil || len(list) != 0 {
			t.Errorf("%s has %v, %v", who, list, err)
		}
	}
	c.full.Store(true)
	if got := b.do(b.form(writeToken, "a", "", "a", true)); got.status != http.StatusServiceUnavailable {
		t.Errorf("a full disk: %d %s", got.status, got.body)
	}
}

// The bytes of a file are counted in the allowance of its principal.
func TestUploadsAreCountedInTheAllowanceOfBytes(t *testing.T) {
	t.Parallel()
	b, _ := startWithFiles(t, func(cfg *gateway.Config) { cfg.BytesPerMinute = 1 << 20 })
	content := strings.Repeat("x", 600<<10)
	if got := b.do(b.form(annaToken, "a", "", content, true)); got.status != http.StatusOK {
		t.Fatalf("%d %s", got.status, got.body)
	}
	got := b.do(b.form(annaToken, "a", "", content, true))
	if _, code := got.fault(t); got.status != http.StatusTooManyRequests || code != "rate_limited" || got.header.Get("Retry-After") == "" {
		t.Errorf("%d %s", got.status, got.body)
	}
	if got := b.do(b.form(ottoToken, "a", "", content, true)); got.status != http.StatusOK {
		t.Errorf("another principal: %d %s", got.status, got.body)
	}
}

func TestFilesComeWithMessages(t *testing.T) {
	t.Parallel()
	b, c := startWithFiles(t, func(cfg *gateway.Config) { cfg.ChatsPerMinute = auth.Off })
	id := b.do(b.form(annaToken, "chart.png", "", png, true)).json(t)["id"].(string)
	data := "data:image/png;base64," + base64.StdEncoding.EncodeToString([]byte(png))
	user := func(parts ...any) params { return params{"role": "user", "content": parts} }
	text := params{"type": "text", "text": "what is it?"}
	anna := header("Authorization", "Bearer "+annaToken)
	for name, tc := range map[string]struct {
		path string
		body params
		want []string
	}{
		"image of a completion": {completionsPath, ask("", params{"messages": []any{user(text, params{"type": "image_url", "image_url": params{"url": data}})}}), []string{"image.png"}},
		"files of a completion": {completionsPath, ask("", params{"messages": []any{
			user(params{"type": "file", "file": params{"file_id": id}}), says("assistant", "a chart"), user(text, params{"type": "file", "file": params{"filename": "b.pdf", "file_data": "YQ=="}}),
		}}), []string{"chart.png", "b.pdf"}},
		"image of a response": {responsesPath, respond([]any{user(params{"type": "input_text", "text": "x"}, params{"type": "input_image", "image_url": data})}), []string{"image.png"}},
		"files of a response": {responsesPath, respond([]any{user(params{"type": "input_image", "file_id": id}, params{"type": "input_file", "file_id": id})}), []string{"chart.png", "chart.png"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := b.post(tc.path, tc.body, anna)
			if got.status != http.StatusOK {
				t.Fatalf("%d %s", got.status, got.body)
			}
			m := b.message(got.header.Get("X-Laneway-Run-Id"))
			var names []string
			for _, f := range m.Content.Attachments {
				names = append(names, f.Name)
				if _, err := c.Read(f.Path, 1<<20); err != nil {
					t.Error(err)
				}
			}
			if strings.Join(names, ",") != strings.Join(tc.want, ",") {
				t.Errorf("%v, want %v", names, tc.want)
			}
		})
	}
}

func TestFilesComeWithMessagesOfSockets(t *testing.T) {
	t.Parallel()
	b, _ := startWithFiles(t, func(cfg *gateway.Config) { cfg.ChatsPerMinute = auth.Off })
	id := b.do(b.form(annaToken, "chart.png", "", png, true)).json(t)["id"].(string)
	s := b.login(annaToken)
	for i, method := range []string{"chat.send", "agent"} {
		key := "f-" + method
		if f := s.call(method, params{"sessionKey": "agent:main:anna", "message": "x", "idempotencyKey": key, "attachments": []any{params{"fileId": id}}}); !f.OK {
			t.Fatalf("%s: %+v", method, f.Error)
		}
		if m := b.message(chat.RunIDOf("anna", key)); len(m.Content.Attachments) != 1 || m.Content.Attachments[0].Name != "chart.png" {
			t.Errorf("%s (%d): %+v", method, i, m.Content.Attachments)
		}
	}
	otto := b.login(ottoToken)
	if f := otto.call("chat.send", params{"sessionKey": "agent:main:otto", "message": "x", "idempotencyKey": "o", "attachments": []any{params{"fileId": id}}}); f.OK || !strings.Contains(f.Error.Message, "there is no such file") {
		t.Errorf("another's file: %+v", f)
	}
}

// A request that is refused or repeated leaves no file behind.
func TestFilesOfRefusedRequestsAreRemoved(t *testing.T) {
	t.Parallel()
	b, c := startWithFiles(t)
	data := "data:image/png;base64," + base64.StdEncoding.EncodeToString([]byte(png))
	image := func(url string) params {
		return respond([]any{params{"role": "user", "content": []any{params{"type": "input_text", "text": "x"}, params{"type": "input_image", "image_url": url}}}})
	}
	stored := func() int {
		list, err := c.Uploads("write")
		if err != nil {
			t.Fatal(err)
		}
		return len(list)
	}
	b.core.set(func() { b.core.refuse = chat.ErrQueueFull })
	if got := b.post(responsesPath, image(data)); got.status != http.StatusTooManyRequests || stored() != 0 {
		t.Errorf("refused: %d, %d files", got.status, stored())
	}
	for _, bad := range []string{"https://example.org/cat.png", "data:image/png;base64,%%%", "data:image/png,abc", "file:///etc/passwd"} {
		if got := b.post(responsesPath, image(bad)); got.status != http.StatusBadRequest || stored() != 0 {
			t.Errorf("%s: %d %s", bad, got.status, got.body)
		}
	}
	unknown := respond([]any{params{"role": "user", "content": []any{params{"type": "input_image", "image_url": data}, params{"type": "input_image", "file_id": "file-1"}}}})
	if got := b.post(responsesPath, unknown); got.status != http.StatusNotFound || stored() != 0 {
		t.Errorf("unknown id: %d %s, %d files", got.status, got.body, stored())
	}
	key := header("Idempotency-Key", "k")
	for range 2 {
		if got := b.post(responsesPath, image(data), key); got.status != http.StatusOK || stored() != 1 {
			t.Errorf("%d, %d files, want 1", got.status, stored())
		}
	}
}

// All entry points share one allowance of bytes per credential, and a refused call has no effect.
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
				t.Errorf("two calls of %d bytes had room in 8000", size)
			}
			if f := b.login(adminToken).call("chat.send", send("other", text, "other")); !f.OK {
				t.Errorf("another credential: %+v", f.Error)
			}
		})
	}
}

// withTool gives credentials one tool.
func withTool(c *gateway.Config) { c.Tools = func(string) agent.Toolbox { return oneTool{} } }

type oneTool struct{}

func (oneTool) Specs() []agent.ToolSpec {
	return []agent.ToolSpec{{Name: "note", Description: "Keeps a note.", Schema: json.RawMessage(`{"type":"object"}`)}}
}

func (oneTool) Call(_ context.Context, _ string, call chat.ToolCall) chat.ToolResult {
	return chat.ToolResult{Text: strconv.Itoa(len(call.Args))}
}

// oneTurn is a running turn with the token turnToken.
type oneTurn struct{}

const turnToken = "lwturn_of-the-only-turn"

func (oneTurn) Enter(ctx context.Context, token string) (agent.Toolbox, context.Context, func(), bool) {
	return oneTool{}, ctx, func() {}, token == turnToken
}

// A request that holds many calls would count as one, so none of them runs, whatever stands before
// the array and whoever calls.
func TestBatchAtMCPIsRefused(t *testing.T) {
	t.Parallel()
	b := start(t, withTool, func(c *gateway.Config) { c.TurnTokens = oneTurn{} })
	const call = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"note","arguments":{"text":"x"}}}`
	for _, token := range []string{writeToken, turnToken} {
		for _, version := range []string{"", "2024-11-05", "2025-03-26", "2025-06-18"} {
			headers := func(r *http.Request) {
				r.Header.Set("Authorization", "Bearer "+token)
				r.Header.Set("Content-Type", "application/json")
				r.Header.Set("Accept", "application/json, text/event-stream")
				if version != "" {
					r.Header.Set("Mcp-Protocol-Version", version)
				}
			}
			for _, body := range []string{
				"[]", "[" + call + "]", "[" + call + "," + call + "]", " \t\r\n[" + call + "," + call + "]", "\uFEFF[" + call + "]", "\n\uFEFF [" + call + "]", "\u00a0\v\f[" + call + "]",
			} {
				got := b.post("/mcp", body, headers)
				if got.status != http.StatusBadRequest || !strings.Contains(string(got.body), "send each call in its own request") {
					t.Errorf("version %q, body %.20q: %d %s", version, body, got.status, got.body)
				}
			}
			if got := b.post("/mcp", " \n"+call, headers); got.status != http.StatusOK || !strings.Contains(string(got.body), `"12"`) {
				t.Errorf("version %q, one call: %d %s", version, got.status, got.body)
			}
			if got := b.post("/mcp", call+call, headers); strings.Count(string(got.body), `"12"`) > 1 {
				t.Errorf("version %q, two calls without an array: %d %s", version, got.status, got.body)
			}
		}
	}
}

func TestOnlyToolsAreAnsweredAtMCP(t *testing.T) {
	t.Parallel()
	b := start(t, withTool, func(c *gateway.Config) { c.TurnTokens = oneTurn{} })
	asTurn := func(r *http.Request) {
		r.Header.Set("Authorization", "Bearer "+turnToken)
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Accept", "application/json, text/event-stream")
	}
	post := func(query, method string) string {
		body := `{"jsonrpc":"2.0","id":1,"method":"` + method + `","params":{"level":"info","uri":"a:b","name":"x","ref":{"type":"ref/prompt","name":"x"},"argument":{"name":"a","value":""}}}`
		return string(b.post("/mcp"+query, body, asTurn).body)
	}
	for _, method := range []string{
		"resources/list", "resources/templates/list", "resources/read", "resources/subscribe", "prompts/list", "prompts/get", "logging/setLevel", "completion/complete",
	} {
		if got := post("", method); !strings.Contains(got, "-32601") {
			t.Errorf("%s: %s, want that there is no such method", method, got)
		}
	}
	for body, want := range map[string]string{
		`{"jsonrpc":"2.0","id":"a","method":"foo"}`:                              `{"id":"a"} 200 -32601`,
		`{"jsonrpc":"2.0","id":7,"method":"tools/nosuch","params":{}}`:           `{"id":7} 200 -32601`,
		`{"jsonrpc":"2.0","id":1,"method":"Tools/List"}`:                         `{"id":1} 200 -32601`,
		`{"jsonrpc":"2.0","id":1,"method":"roots/list"}`:                         `{"id":1} 200 -32601`,
		`{"jsonrpc":"2.0","id":1,"method":"","params":[1]}`:                      `{"id":1} 200 -32601`,
		`{"jsonrpc":"2.0","id":1,"method":5}`:                                    `{"id":1} 400 -32600`,
		`{"jsonrpc":"2.0","id":1}`:                                               `{"id":1} 400 -32600`,
		`"tools/list"`:                                                           `{"id":null} 400 -32600`,
		`{"jsonrpc":"2.0","id":1,"method":`:                                      `{"id":null} 400 -32700`,
		`{"jsonrpc":"2.0","method":"notifications/nosuch"}`:                      `202`,
		`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{}}`:       `202`,
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"fly"}}`: `{"id":1} 200 -32602`,
	} {
		got := b.post("/mcp", body, asTurn)
		shown := strconv.Itoa(got.status)
		if len(got.body) > 0 {
			m := decode[struct {
				ID    json.RawMessage
				Error struct{ Code int }
			}](t, got.body)
			shown = fmt.Sprintf(`{"id":%s} %d %d`, m.ID, got.status, m.Error.Code)
		}
		if shown != want {
			t.Errorf("%s: %s, want %s:\n%s", body, shown, want, got.body)
		}
	}
	for query, name := range map[string]string{"": `"note"`, "?prefix=laneway_": `"laneway_note"`} {
		if got := post(query, "tools/list"); !strings.Contains(got, `"name":`+name) || !strings.Contains(got, `"annotations":{"destructiveHint":true`) {
			t.Errorf("the tools: %s", got)
		}
	}
	if got := post("", "ping"); !strings.Contains(got, `"result"`) {
		t.Errorf("ping: %s", got)
	}
}

// noTurns are the tokens of turns when no turn runs.
type noTurns struct{}

func (noTurns) Enter(context.Context, string) (agent.Toolbox, context.Context, func(), bool) {
	return nil, nil, nil, false
}

func TestToolsForCredentialsCountTheirBytes(t *testing.T) {
	t.Parallel()
	b := start(t, withTool, func(c *gateway.Config) { c.BytesPerMinute, c.TurnTokens = 8_000, noTurns{} })
	call := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"note","arguments":{"text":%q}}}`, strings.Repeat("x", 5_000))
	headers := func(r *http.Request) {
		r.Header.Set("Authorization", "Bearer "+writeToken)
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Accept", "application/json, text/event-stream")
	}
	if got := b.post("/mcp", call, headers); got.status != http.StatusOK || !strings.Contains(string(got.body), `"5011"`) {
		t.Errorf("the first call: %d %s", got.status, got.body)
	}
	if got := b.post("/mcp", call, headers); got.status != http.StatusTooManyRequests || got.header.Get("Retry-After") == "" {
		t.Errorf("two calls of 5,000 bytes within 8,000: %d %s", got.status, got.body)
	}
}
