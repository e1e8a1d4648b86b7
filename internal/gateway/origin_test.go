package gateway_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"laneway/internal/chat"
	"laneway/internal/gateway"
)

const friend = "https://friend.example.org"

func withHeaders(h map[string]string) func(*http.Request) {
	return func(r *http.Request) {
		for name, value := range h {
			if name == "Host" {
				r.Host = value
				continue
			}
			r.Header.Set(name, value)
		}
	}
}

func TestPreflightOfListedOriginsIsAnswered(t *testing.T) {
	t.Parallel()
	b := start(t, func(c *gateway.Config) { c.AllowedOrigins = []string{friend} })
	ask := func(method, path, origin string) (int, http.Header) {
		status, header, _ := b.get(method, path, func(r *http.Request) {
			r.Header.Del("Authorization") // a browser sends no credential with this question
			r.Header.Set("Origin", origin)
			r.Header.Set("Access-Control-Request-Method", "POST")
			r.Header.Set("Access-Control-Request-Headers", "authorization,content-type,x-stainless-arch")
			r.Header.Set("Access-Control-Request-Private-Network", "true")
		})
		return status, header
	}
	for path, methods := range map[string]string{"/v1/chat/completions": "POST", "/v1/responses": "POST", "/v1/models": "GET, HEAD", "/v1/models/laneway%2Fmain": "GET, HEAD"} {
		status, header := ask(http.MethodOptions, path, friend)
		if status != http.StatusNoContent || header.Get("Access-Control-Allow-Origin") != friend || header.Get("Access-Control-Allow-Methods") != methods ||
			header.Get("Access-Control-Allow-Headers") != "authorization,content-type,x-stainless-arch" || header.Get("Access-Control-Allow-Credentials") != "" ||
			header.Get("Access-Control-Allow-Private-Network") != "true" {
			t.Errorf("%s: %d %v", path, status, header)
		}
	}
	for _, one := range [][3]string{
		{http.MethodOptions, "/v1/models", "https://evil.example.org"}, {http.MethodOptions, "/v1/nothing", friend}, {http.MethodOptions, "/hooks/x", friend}, {http.MethodPut, "/v1/models", friend},
	} {
		if status, header := ask(one[0], one[1], one[2]); status < 400 || header.Get("Access-Control-Allow-Headers") != "" || header.Get("Access-Control-Allow-Private-Network") != "" || header.Get("Access-Control-Allow-Methods") != "" {
			t.Errorf("%v: %d %v", one, status, header)
		}
	}
	if _, header := ask(http.MethodGet, "/v1/models", friend); !strings.Contains(header.Get("Access-Control-Expose-Headers"), "X-Laneway-Run-Id") {
		t.Errorf("a page cannot read the id of its run: %v", header)
	}
}

func TestPagesOfListedOriginsAloneMayReadAnswers(t *testing.T) {
	t.Parallel()
	b := start(t, func(c *gateway.Config) {
		c.AllowedOrigins, c.AllowedHosts = []string{friend}, []string{"chat.example.org"}
	})
	for name, c := range map[string]struct {
		origin string
		status int
		allow  string
	}{
		"none":                        {"", 200, ""},
		"listed":                      {friend, 200, friend},
		"the gateway's own":           {"http://" + b.addr, 200, ""},
		"listed, with its port":       {friend + ":443", 403, ""},
		"listed, in capitals":         {"HTTPS://FRIEND.EXAMPLE.ORG", 403, ""},
		"listed, with a path":         {friend + "/", 403, ""},
		"listed, without encryption":  {"http://friend.example.org", 403, ""},
		"below the listed":            {"https://a.friend.example.org", 403, ""},
		"listed, and a longer name":   {friend + ".evil.org", 403, ""},
		"null":                        {"null", 403, ""},
		"everything":                  {"*", 403, ""},
		"two at once":                 {friend + ", https://evil.example.org", 403, ""},
		"own name, through a browser": {"http://chat.example.org", 403, ""},
	} {
		for _, path := range []string{"/v1/models", "/nothing", "/v1/nothing"} {
			h := map[string]string{"Authorization": "Bearer " + adminToken}
			if c.origin != "" {
				h["Origin"] = c.origin
			}
			want := c.status
			if want == 200 && path != "/v1/models" {
				want = 404
			}
			status, header, body := b.get(http.MethodGet, path, withHeaders(h))
			if status != want || header.Get("Access-Control-Allow-Origin") != c.allow {
				t.Errorf("origin %s, %s: %d allowing %q, want %d allowing %q (%v)", name, path, status, header.Get("Access-Control-Allow-Origin"), want, c.allow, body)
			}
			if !slices.Contains(header.Values("Vary"), "Origin") {
				t.Errorf("origin %s, %s: Vary is %q; a cache would give the answer to another origin", name, path, header.Values("Vary"))
			}
			for name := range header {
				if strings.HasPrefix(name, "Access-Control-") && (c.allow == "" || name != "Access-Control-Allow-Origin" && name != "Access-Control-Expose-Headers") {
					t.Errorf("origin %s, %s: there is a header %s", c.origin, path, name)
				}
			}
		}
	}
	if _, header, _ := b.get(http.MethodGet, "/healthz", withHeaders(map[string]string{"Origin": friend})); header.Get("Access-Control-Allow-Origin") != "" {
		t.Error("the probe, which checks no origin, allows one")
	}
}

func TestATrustedProxySaysThatTheOutsideIsEncrypted(t *testing.T) {
	t.Parallel()
	const own = "chat.example.org"
	made := func(proxies ...netip.Prefix) *bench {
		return start(t, func(c *gateway.Config) { c.AllowedHosts, c.TrustedProxies = []string{own}, proxies })
	}
	trusting, elsewhere, none := made(netip.MustParsePrefix("127.0.0.0/8")), made(netip.MustParsePrefix("203.0.113.0/24")), made()
	for name, c := range map[string]struct {
		b             *bench
		proto, origin string
		want          int
	}{
		"encrypted outside, its origin":           {trusting, "https", "https://" + own, 200},
		"in capitals":                             {trusting, "HTTPS", "https://" + own, 200},
		"with its port":                           {trusting, "https", "https://" + own + ":443", 200},
		"another port":                            {trusting, "https", "https://" + own + ":8443", 403},
		"encrypted outside, an origin in clear":   {trusting, "https", "http://" + own, 403},
		"in clear outside":                        {trusting, "http", "http://" + own, 200},
		"in clear outside, an encrypted origin":   {trusting, "http", "https://" + own, 403},
		"nothing said":                            {trusting, "", "https://" + own, 403},
		"two proxies that say different things":   {trusting, "https, http", "https://" + own, 403},
		"a proxy that is another than the listed": {elsewhere, "https", "https://" + own, 403},
		"its origin in clear":                     {elsewhere, "https", "http://" + own, 200},
		"no proxy is listed":                      {none, "https", "https://" + own, 403},
	} {
		h := map[string]string{"Host": own, "Origin": c.origin, "Authorization": "Bearer " + adminToken}
		if c.proto != "" {
			h["X-Forwarded-Proto"] = c.proto
		}
		if status, header, body := c.b.get(http.MethodGet, "/v1/models", withHeaders(h)); status != c.want || header.Get("Access-Control-Allow-Origin") != "" {
			t.Errorf("%s: %d, want %d (%v)", name, status, c.want, body)
		}
		up := maps.Clone(h)
		delete(up, "Authorization")
		want := c.want
		if want == 200 {
			want = 101
		}
		if status, _, body := c.b.get(http.MethodGet, "/ws", upgradeHeaders(up)); status != want {
			t.Errorf("%s: upgrade %d, want %d (%v)", name, status, want, body)
		}
	}
}

func TestALockedAddressIsRefusedOverHTTP(t *testing.T) {
	t.Parallel()
	b := start(t, func(c *gateway.Config) {
		c.TrustedProxies, c.MetricsOnMain = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, http.NotFoundHandler()
	})
	ask := func(path, addr, token string) (int, http.Header, map[string]any) {
		return b.get(http.MethodGet, path, withHeaders(map[string]string{"X-Forwarded-For": addr, "Authorization": "Bearer " + token}))
	}
	for range 10 {
		if status, _, body := ask("/metrics", "203.0.113.5", "wrong"); status != http.StatusUnauthorized {
			t.Fatalf("within the allowance: %d %v", status, body)
		}
	}
	for _, path := range []string{"/metrics", "/v1/models"} {
		status, header, body := ask(path, "203.0.113.5", adminToken)
		after, err := strconv.Atoi(header.Get("Retry-After"))
		if status != http.StatusTooManyRequests || err != nil || after < 50 || after > 60 {
			t.Errorf("%s for the right token: %d, Retry-After %q (%v)", path, status, header.Get("Retry-After"), body)
		}
		fault, _ := body["error"].(map[string]any)
		details, _ := fault["details"].(map[string]any)
		if path == "/metrics" {
			ms, _ := fault["retryAfterMs"].(float64)
			if body["ok"] != false || fault["code"] != "UNAVAILABLE" || fault["retryable"] != true || ms < 50_000 || ms > 60_000 ||
				details["code"] != "AUTH_RATE_LIMITED" || details["recommendedNextStep"] != "wait_then_retry" || fault["message"] != "too many failed authentication attempts" {
				t.Errorf("body %v", body)
			}
		} else if fault["type"] != "rate_limit_error" || fault["message"] != "too many failed authentication attempts" {
			t.Errorf("body below /v1: %v", body)
		}
	}
	if status, _, _ := ask("/v1/models", "203.0.113.6", adminToken); status != http.StatusOK {
		t.Errorf("another address: %d", status)
	}
}

func TestAnswersWithoutACredentialDiscloseNothing(t *testing.T) {
	t.Parallel()
	const version = "7.31.4159"
	b := start(t, func(c *gateway.Config) { c.Version, c.MetricsOnMain = version, http.NotFoundHandler() })
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	secrets := []string{version, dir, "postgres://", "db.internal", "sqlite", "goroutine", ".go:", "go1.", b.addr}
	if host != "localhost" && len(host) > 3 {
		secrets = append(secrets, host)
	}
	foreign := withHeaders(map[string]string{"Host": "evil.example.org"})
	for _, down := range []bool{false, true} {
		b.core.set(func() {
			if b.core.down = down; down {
				b.core.notReady = &chat.NotReadyError{Check: chat.CheckDatabase, Cause: errors.New("dial postgres://laneway:secret@db.internal:5432/laneway: refused")}
			}
		})
		for _, c := range []struct {
			method, path string
			change       func(*http.Request)
			want         int
		}{
			{http.MethodGet, "/healthz", nil, 200},
			{http.MethodGet, "/health", nil, 200},
			{http.MethodGet, "/readyz", nil, map[bool]int{false: 200, true: 503}[down]},
			{http.MethodGet, "/nothing", nil, 404},
			{http.MethodGet, "/v1/nothing", nil, 404},
			{http.MethodDelete, "/healthz", nil, 405},
			{http.MethodPut, "/v1/models", nil, 405},
			{http.MethodGet, "/metrics", foreign, 421},
			{http.MethodGet, "/v1/models", foreign, 421},
			{http.MethodGet, "/v1/models", nil, 401},
			{http.MethodGet, "/metrics", nil, 401},
			{http.MethodPost, "/hooks/none", nil, 401},
			{http.MethodGet, "/ws", nil, 426},
		} {
			change := c.change
			if change == nil {
				change = func(*http.Request) {}
			}
			status, header, body := b.get(c.method, c.path, change)
			if status != c.want {
				t.Errorf("%s %s: %d, want %d (%v)", c.method, c.path, status, c.want, body)
			}
			raw, err := json.Marshal([]any{header, body})
			if err != nil {
				t.Fatal(err)
			}
			for _, secret := range secrets {
				if bytes.Contains(raw, []byte(secret)) {
					t.Errorf("%s %s shows %q: %s", c.method, c.path, secret, raw)
				}
			}
			if header.Get("Server") != "" || header.Get("X-Powered-By") != "" {
				t.Errorf("%s %s names the server: %v", c.method, c.path, header)
			}
		}
	}
}

// addressedListener is a listener whose connections have a configurable client address and a small
// send buffer.
type addressedListener struct {
	net.Listener

	from atomic.Pointer[net.TCPAddr]
}

type passer struct {
	net.Conn

	from net.Addr
}

func (p passer) RemoteAddr() net.Addr { return p.from }

func (s *addressedListener) Accept() (net.Conn, error) {
	c, err := s.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return passer{c, s.from.Load()}, nil
}

func startAddressed(t *testing.T, change ...func(*gateway.Config)) (*bench, *addressedListener) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &addressedListener{Listener: l}
	s.from.Store(&net.TCPAddr{IP: net.IPv4(203, 0, 113, 7), Port: 1})
	c := newCore(t)
	return serveOn(t, s, c, c, change...), s
}

func (b *bench) plain() net.Conn {
	b.t.Helper()
	c, err := (&net.Dialer{}).DialContext(context.Background(), "tcp", b.addr)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(patience))
	return c
}

// inquire sends a request on the connection and returns the status, or 0 when the connection was
// closed instead.
func inquire(c net.Conn, path, token string) int {
	head := "GET " + path + " HTTP/1.1\r\nHost: localhost\r\n"
	if token != "" {
		head += "Authorization: Bearer " + token + "\r\n"
	}
	if _, err := io.WriteString(c, head+"\r\n"); err != nil {
		return 0
	}
	res, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return 0
	}
	defer func() { _ = res.Body.Close() }()
	_, _ = io.Copy(io.Discard, res.Body)
	return res.StatusCode
}

// A client sends requests and reads no answers. The gateway closes the connection when a write
// exceeds its timeout.
func TestClientThatNeverReadsItsAnswersLosesTheConnection(t *testing.T) {
	t.Parallel()
	b, _ := startAddressed(t, func(c *gateway.Config) { c.Deadlines.Write = 200 * time.Millisecond })
	c := b.plain()
	for {
		if _, err := io.WriteString(c, "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatal("the gateway still waits for a client that does not read")
		} else if err != nil {
			return // reset
		}
	}
}

// Connections without a credential count towards the limit of their address; beyond it, the oldest
// is closed. A connection that presents a credential, becomes a socket or ends no longer counts.
func TestConnectionsCountForTheirAddressFromTheBeginning(t *testing.T) {
	t.Parallel()
	b, s := startAddressed(t, func(c *gateway.Config) {
		c.MaxUnauthenticatedPerAddr = 3
		c.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("198.51.100.0/24")}
	})
	reached := func(when string) net.Conn {
		t.Helper()
		c := b.plain()
		if status := inquire(c, "/healthz", ""); status != http.StatusOK {
			t.Errorf("%s: status %d", when, status)
		}
		return c
	}
	gone := func(when string, c net.Conn) {
		t.Helper()
		if status := inquire(c, "/healthz", ""); status != 0 {
			t.Errorf("%s: the oldest connection is answered with %d, want closed", when, status)
		}
	}
	first, second, third := reached("first"), reached("second"), reached("third")
	fourth := reached("fourth")
	gone("four without a credential", first)
	if status := inquire(second, "/v1/models", "wrong"); status != http.StatusUnauthorized {
		t.Errorf("a wrong token: status %d", status)
	}
	fifth := reached("a wrong token proves nothing")
	gone("a wrong token proves nothing", second)
	if status := inquire(third, "/v1/models", readToken); status != http.StatusOK {
		t.Errorf("the right token: status %d", status)
	}
	ws, res, err := websocket.DefaultDialer.Dial("ws://"+b.addr+"/ws", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer ws.Close()
	_ = res.Body.Close()
	reached("a socket counts elsewhere")
	for name, c := range map[string]net.Conn{"one that has proven who it is": third, "the fourth": fourth, "the fifth": fifth} {
		if status := inquire(c, "/healthz", ""); status != http.StatusOK {
			t.Errorf("%s: status %d", name, status)
		}
	}
	for _, from := range []net.IP{net.IPv4(203, 0, 113, 8), net.IPv4(198, 51, 100, 1), net.IPv4(127, 0, 0, 1)} {
		s.from.Store(&net.TCPAddr{IP: from, Port: 1})
		for range 3 {
			reached(from.String())
		}
	}
	for _, from := range []net.IP{net.IPv4(198, 51, 100, 1), net.IPv4(127, 0, 0, 1)} { // many people may share these addresses
		s.from.Store(&net.TCPAddr{IP: from, Port: 1})
		reached(from.String())
	}
}
