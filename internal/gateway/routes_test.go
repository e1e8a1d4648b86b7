package gateway

import (
	"crypto/sha256"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/go-chi/chi/v5"

	"laneway/internal/chat"
	"laneway/internal/gateway/auth"
)

// The test covers every route of the router. Only the probes and the static files of the dashboard answer a page of another site, and only
// the probes answer a request with a foreign host name.
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
