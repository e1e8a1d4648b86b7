package teste2e

import (
	"maps"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// pageHeaders are the headers that a browser adds to a request that a page of another site makes without script: an image, a form, a link.
func pageHeaders(dest, mode string) map[string]string {
	return map[string]string{
		"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": mode, "Sec-Fetch-Dest": dest, "Referer": "https://page.example/",
		"User-Agent": "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/142.0.0.0 Safari/537.36",
		"Accept":     "image/avif,image/webp,*/*;q=0.8", "Accept-Language": "en-US,en;q=0.9",
	}
}

// sent sends one request with these headers; Host is used as the host.
func sent(t *testing.T, method, url string, header map[string]string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range header {
		if name == "Host" {
			req.Host = value
			continue
		}
		req.Header.Set(name, value)
	}
	return roundTrip(t, req)
}

// A page of any site can make the browser of the operator send any number of requests. It has no secret to present, so none of them is a
// failed login, and the operator's address is not locked. Wrong secrets still lock it.
func TestAPageThatPresentsNoSecretLocksNoAddressOut(t *testing.T) {
	t.Parallel()
	g := Proxied(t)
	proxy := "http://" + reverseProxy(t, g)
	models := func(from, secret string, more map[string]string) int {
		header := maps.Clone(more)
		if header == nil {
			header = map[string]string{}
		}
		header["From-Address"] = from
		if secret != "" {
			header["Authorization"] = "Bearer " + secret
		}
		code, _ := sent(t, http.MethodGet, proxy+"/v1/models", header)
		return code
	}
	same := pageHeaders("image", "no-cors") // as from a browser on the gateway's own page
	same["Sec-Fetch-Site"] = "same-origin"
	for name, headers := range map[string]map[string]string{"cross-site": pageHeaders("image", "no-cors"), "same-origin": same, "none": nil} {
		want := http.StatusUnauthorized
		if name == "cross-site" {
			want = http.StatusForbidden
		}
		for range 12 {
			if code := models("203.0.113.20", "", headers); code != want {
				t.Fatalf("%s without a secret: %d, want %d", name, code, want)
			}
		}
	}
	for _, scheme := range []string{"Basic b3BlcmF0b3I6cGFzc3dvcmQ=", "Bearer", "Bearer "} {
		for range 4 {
			if code, _ := sent(t, http.MethodGet, proxy+"/v1/models", map[string]string{"From-Address": "203.0.113.20", "Authorization": scheme}); code != http.StatusUnauthorized {
				t.Fatalf("Authorization %q: %d", scheme, code)
			}
		}
	}
	for range 12 { // a connect without a secret is not a failed login either
		b, err := upgrade(strings.TrimPrefix(proxy, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		if err := b.request("1", "connect", map[string]any{
			"minProtocol": 4, "maxProtocol": 4, "client": map[string]string{"id": "page", "version": "1", "platform": "test", "mode": "webchat"},
		}); err != nil {
			t.Fatal(err)
		}
		if code := b.end(20 * time.Second); code != 1008 {
			t.Fatalf("connect without a secret: %d", code)
		}
		_ = b.Close()
	}
	for _, from := range []string{"203.0.113.20", "203.0.113.9"} { // of the requests, and of the sockets
		if code := models(from, g.Token(), nil); code != http.StatusOK {
			t.Errorf("the right token from %s, after requests without any: %d", from, code)
		}
	}
	for range 10 {
		if code := models("203.0.113.21", "not-the-token-0123456789-abcdefghijkl", nil); code != http.StatusUnauthorized {
			t.Fatalf("a wrong secret: %d", code)
		}
	}
	if code := models("203.0.113.21", g.Token(), nil); code != http.StatusTooManyRequests {
		t.Errorf("the right token, after ten wrong secrets: %d", code)
	}
	if code := models("203.0.113.20", g.Token(), nil); code != http.StatusOK {
		t.Errorf("the right token from the other address: %d", code)
	}
}

// A page whose name resolves to loopback could read the metrics and profiles as if it were local. The listener answers only to names of
// this machine.
func TestTheMetricsListenerAnswersUnderLocalNamesAlone(t *testing.T) {
	t.Parallel()
	g := Install(t, "", "pprof: true\n", "--metrics-listen", "127.0.0.1:0")
	g.Start()
	at := metricsAddress.FindStringSubmatch(g.Output())
	if at == nil {
		t.Fatalf("the metrics listener is not named:\n%s", g.Output())
	}
	_, port, err := net.SplitHostPort(at[1])
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/metrics", "/debug/pprof/", "/debug/pprof/cmdline", "/debug/pprof/heap?debug=1", "/nothing"} {
		for host, known := range map[string]bool{
			at[1]: true, "localhost": true, "localhost:" + port: true, "LOCALHOST:" + port: true, "[::1]:" + port: true, "127.0.0.1": true,
			"rebound.example:" + port: false, "rebound.example": false, "localhost.rebound.example": false, "127.0.0.1.nip.example:" + port: false, "": false,
		} {
			if host == "" {
				continue // net/http fills in the address
			}
			code, body := sent(t, http.MethodGet, "http://"+at[1]+path, map[string]string{"Host": host})
			if refused := code == http.StatusMisdirectedRequest; refused == known {
				t.Errorf("%s under the name %q: %d %.200s", path, host, code, body)
			}
		}
		if code, body := sent(t, http.MethodGet, "http://"+at[1]+path, pageHeaders("image", "no-cors")); code != http.StatusForbidden {
			t.Errorf("%s for an image of another site: %d %.200s", path, code, body)
		}
	}
}
