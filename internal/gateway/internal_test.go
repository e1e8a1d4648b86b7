package gateway

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/go-chi/chi/v5"

	"laneway/internal/chat"
	"laneway/internal/cron"
	"laneway/internal/gateway/auth"
	"laneway/internal/gateway/params"
	"laneway/internal/gateway/socket"
	"laneway/internal/wire"
)

// Most fires have no reader, and an event has some kilobytes.
func TestAnEventWithoutReadersIsNotCopied(t *testing.T) { //nolint:paralleltest // counts allocations
	p := newPublisher(socket.NewHub[*client](socket.HubLimits{}))
	run := &cron.Run{ID: "schedule:j:1", JobID: "j"}
	for what, publish := range map[string]func(){
		"a run of a job": func() {
			p.cron(cron.Event{Action: cron.ActionFinished, Job: cron.Job{ID: "j", Owner: "ann"}, Run: run})
		},
		"a turn": func() { p.event(chat.Event{Kind: chat.EventStarted, RunID: "r"}) },
	} {
		if n := testing.AllocsPerRun(100, publish); n > 0 {
			t.Errorf("%s: an event that no connection reads allocates %v times", what, n)
		}
	}
}

// For any input, a request is either refused with a reason or has an id and a method, and its
// params can be checked.
func FuzzFrame(f *testing.F) {
	for _, s := range []string{
		`{"type":"req","id":"1","method":"chat.send","params":{"sessionKey":"main","message":"x","idempotencyKey":"k"}}`,
		`{"type":"req","id":"1","method":"connect","params":{"minProtocol":4,"maxProtocol":4,"client":{"id":"x","version":"1","platform":"p","mode":"cli"}}}`,
		`[]`, `{"id":"\ud800"}`, `{"id":"\u0000","type":"req"}`, strings.Repeat("[", 70), `{"a":1e999}`, "\"\\u", "{\"\\",
	} {
		f.Add([]byte(s))
	}
	send, connect, history, wake := params.Of[wire.ChatSendParams](), params.Of[wire.ConnectParams](), params.Of[wire.ChatHistoryParams](), params.Of[wire.WakeParams]()
	f.Fuzz(func(t *testing.T, data []byte) {
		if !utf8.Valid(data) {
			return // the connection is closed before it is parsed
		}
		req, err := parseRequest(data)
		if err != nil {
			if !strings.HasPrefix(err.Error(), "invalid request frame: ") {
				t.Errorf("reason %q", err)
			}
			return
		}
		if req.id == "" || req.method == "" || !json.Valid(data) {
			t.Errorf("taken: %q", data)
		}
		for _, err := range []error{
			connect.Decode(req.params, &wire.ConnectParams{}), history.Decode(req.params, &wire.ChatHistoryParams{}), wake.Decode(req.params, &wire.WakeParams{}),
		} {
			var p *params.Error
			if err != nil && (!errors.As(err, &p) || p.Text == "") {
				t.Errorf("refusal without a reason: %v", err)
			}
		}
		var p wire.ChatSendParams
		if send.Decode(req.params, &p) == nil && req.badText == nil && strings.ContainsRune(p.Message, 0) {
			t.Errorf("U+0000 got through: %q", data)
		}
		if out := appendResponse(nil, req.id, []byte("{}")); !json.Valid(out) {
			t.Errorf("the response is no JSON: %q", out)
		}
	})
}

// The test covers every route of the router. Only the probes and the static files of the dashboard
// answer a page of another site, and only the probes answer a request with a foreign host name.
func TestEveryRouteButTheProbesAndStaticFilesRefusesForeignPages(t *testing.T) {
	t.Parallel()
	ok := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) })
	s, err := New(Config{
		Credentials: []auth.Credential{{Name: "gateway", Digest: sha256.Sum256([]byte("a")), Scopes: []string{chat.ScopeAdmin}}},
		Dashboard:   ok, MetricsOnMain: ok, Webhooks: map[string]http.Handler{"/telegram/webhook/default": ok},
	}, nil, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	handler := s.routes(t.Context(), t.Context())
	ask := func(method, path, host string) int {
		r := httptest.NewRequestWithContext(t.Context(), method, "http://"+host+path, nil)
		if host == "localhost" {
			r.Header.Set("Sec-Fetch-Site", "cross-site")
		}
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		return w.Code
	}
	open := map[string]bool{"/healthz": true, "/health": true, "/readyz": true}
	seen := 0
	err = chi.Walk(handler.(chi.Routes), func(method, route string, _ http.Handler, _ ...func(http.Handler) http.Handler) error {
		if open[route] || method == http.MethodConnect { // CONNECT has no path
			return nil
		}
		seen++
		path := strings.NewReplacer("{name}", "ci", "*", "app.js").Replace(route)
		static := strings.HasPrefix(route, "/dashboard")
		if code := ask(method, path, "localhost"); (code != http.StatusForbidden) != static {
			t.Errorf("%s %s of another site: %d", method, route, code)
		}
		if code := ask(method, path, "rebound.example"); code != http.StatusMisdirectedRequest && !strings.HasPrefix(route, "/telegram/") {
			t.Errorf("%s %s under a foreign name: %d", method, route, code)
		}
		return nil
	})
	if err != nil || seen < 10 {
		t.Errorf("%d routes, %v", seen, err)
	}
}
