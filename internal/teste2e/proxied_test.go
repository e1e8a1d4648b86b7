package teste2e

import (
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"
	"time"
)

// reverseProxy is a typical reverse proxy: it adds the address of its caller to X-Forwarded-For. The callers of a test have the address in the
// header From-Address, because all of them are on this machine.
func reverseProxy(t *testing.T, g *Gateway) string {
	t.Helper()
	target, err := url.Parse(g.URL())
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(&httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(target)
		r.Out.Host = "gateway.example"
		from := r.In.Header.Get("From-Address")
		if from == "" {
			from = "203.0.113.9"
		}
		if before := r.In.Header.Get("X-Forwarded-For"); before != "" {
			from = before + ", " + from
		}
		r.Out.Header.Set("X-Forwarded-For", from)
	}})
	t.Cleanup(srv.Close)
	return strings.TrimPrefix(srv.URL, "http://")
}

// Behind a proxy every client has a local address but is not local: without a credential every route refuses, and a client that guesses is
// locked out by its own address.
func TestAProxyMakesNoClientLocal(t *testing.T) {
	t.Parallel()
	g := Proxied(t)
	proxy := reverseProxy(t, g)
	var methods []string
	for _, m := range table(t) {
		methods = append(methods, m.Name)
	}
	if len(methods) < 40 {
		t.Fatalf("%d methods; that is not the table", len(methods))
	}
	CheckWithoutCredential(t, proxy, methods)
	try := func(from, claimed, token string) int {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+proxy+"/v1/models", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("From-Address", from)
		req.Header.Set("Authorization", "Bearer "+token)
		if claimed != "" {
			req.Header.Set("X-Forwarded-For", claimed)
		}
		status, _ := roundTrip(t, req)
		return status
	}
	began := time.Now()
	for i := range 10 {
		claimed := []string{"", "127.0.0.1", "198.51.100.7"}[i%3] // a different address each time does not help
		if status := try("203.0.113.50", claimed, "a-wrong-token"); status != http.StatusUnauthorized {
			t.Errorf("try %d: %d", i, status)
		}
	}
	if status := try("203.0.113.50", "127.0.0.1", g.Token()); status != http.StatusTooManyRequests && time.Since(began) < 50*time.Second {
		t.Errorf("after ten wrong tokens even the right one is %d, want 429", status)
	}
	if status := try("203.0.113.51", "", g.Token()); status != http.StatusOK {
		t.Errorf("the right token from another address: %d", status)
	}
}
