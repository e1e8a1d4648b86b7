package gateway_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"laneway/internal/chat"
	"laneway/internal/gateway"
)

func upgradeHeaders(change map[string]string) func(*http.Request) {
	return func(r *http.Request) {
		for k, v := range map[string]string{
			"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
		} {
			r.Header.Set(k, v)
		}
		for k, v := range change {
			if k == "Host" {
				r.Host = v
				continue
			}
			r.Header.Set(k, v)
		}
	}
}

func TestUpgradeIsRefusedBeforeItHappens(t *testing.T) {
	t.Parallel()
	b := start(t, func(c *gateway.Config) {
		c.AllowedHosts = []string{"chat.example.org"}
		c.AllowedOrigins = []string{"https://friend.example.org"}
	})
	for _, tc := range []struct {
		name   string
		path   string
		change map[string]string
		want   int
		code   string
	}{
		{name: "plain", want: 101},
		{name: "same origin", change: map[string]string{"Origin": "http://" + b.addr}, want: 101},
		{name: "listed origin", change: map[string]string{"Origin": "https://friend.example.org"}, want: 101},
		{name: "listed host", change: map[string]string{"Host": "chat.example.org:9999"}, want: 101},
		{name: "localhost", change: map[string]string{"Host": "localhost"}, want: 101},
		{name: "other path of the protocol", path: "/ws", want: 101},
		{name: "ipv6 loopback", change: map[string]string{"Host": "[::1]:18790"}, want: 101},
		{name: "foreign host", change: map[string]string{"Host": "evil.example.org"}, want: 421, code: "INVALID_REQUEST"},
		{name: "host that only begins well", change: map[string]string{"Host": "localhost.evil.example.org"}, want: 421, code: "INVALID_REQUEST"},
		{name: "foreign origin", change: map[string]string{"Origin": "http://evil.example.org"}, want: 403, code: "FORBIDDEN"},
		{name: "null origin", change: map[string]string{"Origin": "null"}, want: 403, code: "FORBIDDEN"},
		{name: "same host, other port", change: map[string]string{"Origin": "http://127.0.0.1:1"}, want: 403, code: "FORBIDDEN"},
		{name: "same host, other scheme", change: map[string]string{"Origin": "https://" + b.addr}, want: 403, code: "FORBIDDEN"},
		{name: "listed origin, longer", change: map[string]string{"Origin": "https://friend.example.org.evil.org"}, want: 403, code: "FORBIDDEN"},
		{
			name:   "host comes before origin",
			change: map[string]string{"Host": "evil.example.org", "Origin": "http://evil.example.org"}, want: 421, code: "INVALID_REQUEST",
		},
		{name: "old version", change: map[string]string{"Sec-WebSocket-Version": "8"}, want: 400, code: "INVALID_REQUEST"},
		{name: "bad key", change: map[string]string{"Sec-WebSocket-Key": "short"}, want: 400, code: "INVALID_REQUEST"},
		{
			name:   "origin comes before version",
			change: map[string]string{"Origin": "null", "Sec-WebSocket-Version": "8"}, want: 403, code: "FORBIDDEN",
		},
		{name: "another path", path: "/healthz", want: 404, code: "INVALID_REQUEST"},
		{name: "no path at all", path: "/nowhere", want: 404, code: "INVALID_REQUEST"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			path := tc.path
			if path == "" {
				path = "/"
			}
			status, _, body := b.get(http.MethodGet, path, upgradeHeaders(tc.change))
			if status != tc.want {
				t.Fatalf("status %d, want %d (%v)", status, tc.want, body)
			}
			if tc.code == "" {
				return
			}
			e, _ := body["error"].(map[string]any)
			if body["ok"] != false || e["code"] != tc.code || e["message"] == "" {
				t.Errorf("body %v, want ok false and code %s", body, tc.code)
			}
		})
	}
}

func TestCapacityWithoutACredentialIsCountedPerAddress(t *testing.T) {
	t.Parallel()
	b := start(t, func(c *gateway.Config) {
		c.MaxUnauthenticatedPerAddr, c.TrustedProxies = 2, []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}
	})
	dial := func(addr string) *socket {
		ws, err := dialWith(websocket.DefaultDialer, "ws://"+b.addr, http.Header{"X-Forwarded-For": {addr}})
		if err != nil {
			t.Fatalf("no socket for %s: %v", addr, err)
		}
		t.Cleanup(func() { _ = ws.Close() })
		s := &socket{t: t, ws: ws}
		s.read() // the challenge
		return s
	}
	connect := func(s *socket) {
		t.Helper()
		s.send(connectFrame(adminToken))
		if f := s.read(); !f.OK {
			t.Errorf("connect: %+v", f.Error)
		}
	}
	other := dial("203.0.113.1")
	first, second := dial("2001:db8::1"), dial("2001:db8::ffff") // one /64
	third := dial("2001:db8::2")
	if code, text, _ := first.closed(); code != websocket.CloseTryAgainLater || text == "" {
		t.Errorf("the oldest socket without a credential was closed with %d %q, want 1013", code, text)
	}
	for _, s := range []*socket{other, second, third} {
		connect(s)
	}
	connect(dial("2001:db8::3"))
}

// All programs of a machine share loopback: concurrent clients, and sockets that do not
// authenticate, must not block other clients.
func TestUnauthenticatedSocketsOfLoopbackKeepNoClientOut(t *testing.T) {
	t.Parallel()
	b := start(t)
	silent := make([]*socket, 0, 40)
	for range 40 {
		silent = append(silent, b.dial())
	}
	clients := make([]*socket, 0, 50)
	for range 50 {
		clients = append(clients, b.dial()) // all are connected before the first one authenticates
	}
	for _, s := range append(clients, silent...) {
		s.send(connectFrame(adminToken))
		if f := s.read(); !f.OK {
			t.Errorf("connect: %+v", f.Error)
		}
	}
	for range 300 {
		b.open()
	}
	b.login(adminToken)
}

func TestCompressionAndSubprotocolsAreIgnored(t *testing.T) {
	t.Parallel()
	b := start(t)
	d := websocket.Dialer{EnableCompression: true, Subprotocols: []string{"openclaw"}}
	ws, resp, err := d.Dial("ws://"+b.addr, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer ws.Close()
	defer resp.Body.Close()
	if ext, sub := resp.Header.Get("Sec-WebSocket-Extensions"), resp.Header.Get("Sec-WebSocket-Protocol"); ext != "" || sub != "" {
		t.Errorf("extensions %q, subprotocol %q; want none", ext, sub)
	}
}

func TestCredentialsOutsideOfConnectAreNotRead(t *testing.T) {
	t.Parallel()
	b := start(t)
	h := http.Header{"Authorization": {"Bearer " + adminToken}, "Cookie": {"token=" + adminToken}}
	ws, err := dialWith(websocket.DefaultDialer, "ws://"+b.addr+"/?token="+adminToken, h)
	if err != nil {
		t.Fatal(err)
	}
	defer ws.Close()
	s := &socket{t: t, ws: ws}
	s.read()
	s.send(connectFrame(""))
	if f := s.read(); f.OK || f.Error.Details["code"] != "AUTH_TOKEN_MISSING" {
		t.Errorf("connect without a token: %+v, want AUTH_TOKEN_MISSING", f)
	}
}

func TestPlainHTTP(t *testing.T) {
	t.Parallel()
	page := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`{"page":true}`)) })
	with := start(t, func(c *gateway.Config) { c.Dashboard, c.MetricsOnMain = page, page })
	without := start(t)
	bearer := func(token string) func(*http.Request) {
		return func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+token) }
	}
	host := func(r *http.Request) { r.Host = "evil.example.org" }
	for _, tc := range []struct {
		name, method, path string
		b                  *bench
		change             func(*http.Request)
		want               int
		header, value      string
	}{
		{name: "root with dashboard", b: with, path: "/", want: 302, header: "Location", value: "dashboard/"},
		{name: "root without", b: without, path: "/", want: 404},
		{name: "dashboard", b: with, path: "/dashboard", want: 200},
		{name: "dashboard below", b: with, path: "/dashboard/app.js", want: 200},
		{name: "no dashboard", b: without, path: "/dashboard", want: 404},
		{name: "ws without upgrade", b: with, path: "/ws", want: 426, header: "Upgrade", value: "websocket"},
		{name: "probe", b: with, path: "/healthz", want: 200},
		{name: "probe, HEAD", b: with, method: http.MethodHead, path: "/healthz", want: 200},
		{name: "probe, other name", b: with, path: "/health", want: 200},
		{name: "ready", b: with, path: "/readyz", want: 200},
		{name: "probe with a foreign host", b: with, path: "/healthz", change: host, want: 200},
		{name: "page for a module script of a proxy's origin", b: with, path: "/dashboard/app.js", change: func(r *http.Request) { r.Header.Set("Origin", "https://gateway.example") }, want: 200},
		{name: "page with a foreign host", b: with, path: "/dashboard", change: host, want: 421},
		{name: "nothing with a foreign host", b: with, path: "/nothing", change: host, want: 421},
		{name: "wrong method", b: with, method: http.MethodPost, path: "/healthz", want: 405, header: "Allow", value: "GET, HEAD"},
		{name: "upgrade with POST", b: with, method: http.MethodPost, path: "/ws", change: upgradeHeaders(nil), want: 405},
		{name: "nothing", b: with, path: "/nothing", want: 404},
		{name: "metrics without a token", b: with, path: "/metrics", want: 401, header: "WWW-Authenticate", value: "Bearer"},
		{name: "metrics with a wrong token", b: with, path: "/metrics", change: bearer("nope"), want: 401},
		{name: "metrics with a token that is no bearer", b: with, path: "/metrics", change: func(r *http.Request) { r.Header.Set("Authorization", readToken) }, want: 401},
		{name: "metrics with a token", b: with, path: "/metrics", change: bearer(readToken), want: 200},
		{name: "metrics with the token in the URL", b: with, path: "/metrics?token=" + readToken, want: 401},
		{name: "metrics elsewhere", b: without, path: "/metrics", change: bearer(readToken), want: 404},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			method := tc.method
			if method == "" {
				method = http.MethodGet
			}
			change := tc.change
			if change == nil {
				change = func(*http.Request) {}
			}
			status, header, body := tc.b.get(method, tc.path, change)
			if status != tc.want {
				t.Fatalf("%s %s: %d, want %d (%v)", method, tc.path, status, tc.want, body)
			}
			if tc.header != "" && header.Get(tc.header) != tc.value {
				t.Errorf("%s = %q, want %q", tc.header, header.Get(tc.header), tc.value)
			}
			if status >= 400 && method != http.MethodHead && body["ok"] != false {
				t.Errorf("body %v, want an error body", body)
			}
		})
	}
}

func TestForwardedAddressCountsFromTrustedProxiesOnly(t *testing.T) {
	t.Parallel()
	forward := func(list string) func(*http.Request) {
		return func(r *http.Request) {
			r.Header.Set("X-Forwarded-For", list)
			r.Header.Set("Authorization", "Bearer a-token-that-is-not-configured")
		}
	}
	tries := func(b *bench, list string) (last int) {
		for range 12 {
			last, _, _ = b.get(http.MethodGet, "/metrics", forward(list))
		}
		return last
	}
	metrics := func(c *gateway.Config) { c.MetricsOnMain = http.NotFoundHandler() }
	trusting := start(t, metrics, func(c *gateway.Config) { c.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")} })
	if got := tries(trusting, "203.0.113.9, 198.51.100.7"); got != http.StatusTooManyRequests {
		t.Errorf("behind a trusted proxy the client is locked out: got %d, want 429", got)
	}
	if got, _, _ := trusting.get(http.MethodGet, "/metrics", forward("203.0.113.9, 198.51.100.8")); got != http.StatusUnauthorized {
		t.Errorf("the rightmost untrusted address counts; another one is not locked: got %d, want 401", got)
	}
	if got, _, _ := trusting.get(http.MethodGet, "/metrics", forward("1.2.3.4, 198.51.100.7, 127.0.0.3")); got != http.StatusTooManyRequests {
		t.Errorf("trusted hops are passed over and invented ones are not read: got %d, want 429", got)
	}
	if got := tries(start(t, metrics), "198.51.100.7"); got != http.StatusUnauthorized {
		t.Errorf("without a trusted proxy the header is ignored and loopback never locked: got %d, want 401", got)
	}
}

func TestProbesReportTheStateOfTheProcess(t *testing.T) {
	t.Parallel()
	b := start(t)
	status, _, body := b.get(http.MethodGet, "/readyz")
	checks, _ := body["checks"].(map[string]any)
	if status != 200 || checks["database"] != "ok" || checks["migrations"] != "ok" || checks["draining"] != false {
		t.Errorf("ready: %d %v", status, body)
	}
	b.core.set(func() { b.core.down = true })
	if status, header, body := b.get(http.MethodGet, "/readyz"); status != 503 || header.Get("Retry-After") == "" ||
		body["checks"].(map[string]any)["database"] == "ok" {
		t.Errorf("database down: readyz %d %v, want 503 naming it", status, body)
	}
	if status, _, body := b.get(http.MethodGet, "/healthz"); status != 200 || body["status"] != "live" {
		t.Errorf("database down: healthz %d %v, want 200", status, body)
	}
	b.core.set(func() { b.core.stall = 31e9 })
	if status, _, body := b.get(http.MethodGet, "/healthz"); status != 503 || body["ok"] != false || body["status"] != "stalled" {
		t.Errorf("stalled: healthz %d %v, want 503 stalled", status, body)
	}
	b.core.set(func() { b.core.stall, b.core.down, b.core.cronAge = 0, false, 29*time.Second })
	if status, _, body := b.get(http.MethodGet, "/healthz"); status != 200 || body["status"] != "live" {
		t.Errorf("a cron loop that turned 29 s ago: healthz %d %v, want 200", status, body)
	}
	b.core.set(func() { b.core.cronAge = 31 * time.Second })
	status, _, body = b.get(http.MethodGet, "/healthz")
	if ages, _ := body["progress"].(map[string]any); status != 503 || body["status"] != "stalled" || ages["cronTickAgeMs"] != 31000.0 {
		t.Errorf("cron loop is blocked: healthz %d %v, want 503 stalled with its age", status, body)
	}
	b.core.set(func() { b.core.cronAge = 0 })
	b.core.set(func() { b.core.notReady = &chat.NotReadyError{Check: chat.CheckMigrations} })
	if status, _, body := b.get(http.MethodGet, "/readyz"); status != 503 || body["checks"].(map[string]any)["migrations"] == "ok" {
		t.Errorf("old schema: readyz %d %v, want 503 naming migrations", status, body)
	}
	raw, _ := json.Marshal(body)
	for _, secret := range []string{b.addr, "sqlite", "0.1.0"} {
		if bytes.Contains(raw, []byte(secret)) {
			t.Errorf("a probe shows %q: %s", secret, raw)
		}
	}
}

// unreadCase is a request that is refused before its body was read.
type unreadCase struct {
	path, token string
	length      int // of the Content-Length; at most 2 MiB are sent
	status      int
	late        bool // the body is sent after the answer has arrived
}

// Before, a client that sent a large body with "Connection: close", as proxies do, received a reset
// instead of the refusal: the server closed the connection with unread bytes.
func TestTheRefusalOfALargeBodyIsReadByAClientThatStillSends(t *testing.T) {
	t.Parallel()
	b, _ := startWithFiles(t)
	for name, tc := range map[string]unreadCase{
		"over the limit":          {path: completionsPath, token: writeToken, length: 2 << 20, status: http.StatusRequestEntityTooLarge},
		"not read at all":         {path: filesPath, token: writeToken, length: 64 << 20, status: http.StatusRequestEntityTooLarge},
		"without a credential":    {path: completionsPath, token: "wrong", length: 2 << 20, status: http.StatusUnauthorized},
		"of a path that is not":   {path: "/none", token: writeToken, length: 2 << 20, status: http.StatusNotFound},
		"short, not read at all":  {path: "/none", token: writeToken, length: 100 << 10, status: http.StatusNotFound},
		"declared, but not there": {path: "/none", token: writeToken, status: http.StatusNotFound},
		"after the answer":        {path: "/none", token: writeToken, length: 100 << 10, status: http.StatusNotFound, late: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const lingers = 400 * time.Millisecond // less than the 500 ms for which the server waits before it closes the connection
			for attempt := 1; ; attempt++ {
				began := time.Now()
				err := sendUnread(t, b.addr, tc)
				took := time.Since(began)
				if err == nil {
					return
				}
				if took < lingers || attempt == 20 || errors.Is(err, os.ErrDeadlineExceeded) {
					t.Fatalf("attempt %d, after %s: %v", attempt, took, err)
				}
				t.Logf("attempt %d took %s, the server may have stopped waiting: %v", attempt, took, err)
			}
		})
	}
}

// sendUnread sends the request and reads the answer up to the end of the connection, while the body
// is still being sent. The error is a reset of the connection, seen by the reader or the writer; an
// unexpected answer fails the test.
func sendUnread(t *testing.T, addr string, tc unreadCase) error {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
	_, err = fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\nConnection: close\r\n\r\n",
		tc.path, addr, tc.token, max(tc.length, 10))
	if err != nil {
		t.Fatal(err)
	}
	in := bufio.NewReader(conn)
	if tc.late {
		if _, err = in.Peek(1); err != nil {
			return fmt.Errorf("waiting for the answer: %w", err)
		}
	}
	sent := make(chan error, 1)
	go func() { // it ends with the deadline that is set below
		body := strings.NewReader(strings.Repeat("x", min(tc.length, 2<<20)))
		_, err := io.Copy(conn, struct{ io.Reader }{body}) // in pieces: the write after the one that causes a reset fails
		sent <- err
	}()
	status, text, readErr := readAnswer(in)
	_ = conn.SetWriteDeadline(time.Unix(1, 0)) // the server waits, so a body that is not fully sent by now may end here
	sendErr := <-sent
	if errors.Is(sendErr, os.ErrDeadlineExceeded) {
		sendErr = nil
	}
	if readErr == nil && (status != tc.status || text == "") {
		t.Fatalf("%d %q, want %d", status, text, tc.status)
	}
	return errors.Join(readErr, sendErr)
}

// readAnswer reads an answer and then up to the end of the connection, where a reset is an error,
// too.
func readAnswer(r *bufio.Reader) (status int, text string, err error) {
	resp, err := http.ReadResponse(r, nil)
	if err != nil {
		return 0, "", fmt.Errorf("reading the answer: %w", err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil {
		_, err = io.Copy(io.Discard, r)
	}
	if err != nil {
		err = fmt.Errorf("reading the answer to its end: %w", err)
	}
	return resp.StatusCode, string(body), err
}
