package teste2e

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"
)

// Proxied starts a gateway with all HTTP features for a proxy on the same host, which calls it gateway.example.
func Proxied(tb testing.TB) *Gateway {
	tb.Helper()
	g := Install(tb, "", "trusted_proxies: [127.0.0.1]\nbehind_tls_proxy: true\nallowed_hosts: [gateway.example]\nhooks: {ci: {secret: hook-secret-0123456789-abcdefghijk}}\n")
	g.env = append(g.env, "LANEWAY_METRICS_LISTEN=main")
	g.Start()
	return g
}

// CheckWithoutCredential sends requests without a credential through a proxy, to every route and each of the methods. The open routes
// answer, without data about the gateway; all others refuse. The proxy calls from loopback, which grants nothing, and neither do headers of
// the client about its origin.
func CheckWithoutCredential(tb testing.TB, proxy string, methods []string) {
	tb.Helper()
	for _, forwarded := range []string{"", "127.0.0.1", "::1, 127.0.0.1"} {
		for route, want := range map[string]int{
			"GET /healthz": 200, "GET /health": 200, "GET /readyz": 200, "GET /dashboard/": 200,
			"GET /v1/models": 401, "POST /v1/chat/completions": 401, "GET /metrics": 401, "POST /hooks/ci": 401, "POST /hooks/absent": 401,
			"GET /debug/pprof/": 404, "GET /debug/vars": 404, "POST /telegram/webhook/default": 404, "GET /v1/admin": 404, "POST /v1/models": 405, "GET /": 302, "GET /ws": 426,
		} {
			status, body := askWithoutCredential(tb, proxy, route, forwarded)
			if status != want {
				tb.Errorf("%s with X-Forwarded-For %q: %d %s, want %d", route, forwarded, status, body, want)
			}
			if strings.HasPrefix(route, "GET /h") && strings.Contains(strings.ToLower(body), "version") {
				tb.Errorf("%s answers without a credential %s", route, body)
			}
		}
	}
	for _, method := range append([]string{"connect"}, methods...) {
		b, err := upgrade(proxy)
		if err != nil {
			tb.Fatalf("opening a socket through the proxy: %v", err)
		}
		params := map[string]any{}
		if method == "connect" {
			params = map[string]any{"minProtocol": 4, "maxProtocol": 4, "client": map[string]string{"id": "x", "version": "1", "platform": "test", "mode": "test"}}
		}
		if err := b.request("1", method, params); err != nil {
			tb.Fatal(err)
		}
		if code := b.end(20 * time.Second); code != websocket.ClosePolicyViolation {
			tb.Errorf("%s without a credential through the proxy: closed with %d, want %d", method, code, websocket.ClosePolicyViolation)
		}
		_ = b.Close()
	}
}

// askWithoutCredential makes one request; forwarded is the address that the client claims.
func askWithoutCredential(tb testing.TB, proxy, route, forwarded string) (int, string) {
	tb.Helper()
	method, path, _ := strings.Cut(route, " ")
	req, err := http.NewRequestWithContext(tb.Context(), method, fmt.Sprintf("http://%s%s", proxy, path), strings.NewReader("{}"))
	if err != nil {
		tb.Fatal(err)
	}
	if forwarded != "" {
		req.Header.Set("X-Forwarded-For", forwarded)
		req.Header.Set("X-Real-Ip", "127.0.0.1")
	}
	resp, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(req)
	if err != nil {
		tb.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		tb.Fatal(err)
	}
	return resp.StatusCode, string(body)
}
