//go:build compat

package testcompat

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"laneway/internal/teste2e"
)

type object = map[string]any

func host(g *teste2e.Gateway) string { return strings.TrimPrefix(g.URL(), "http://") }

// upgrade requests a WebSocket with a raw request, so that every header can be invalid, and returns
// the status and the error code.
func upgrade(t *testing.T, g *teste2e.Gateway, path string, change map[string]string) (status int, code, retry string) {
	t.Helper()
	conn, err := net.Dial("tcp", host(g))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	headers := map[string]string{
		"Host": host(g), "Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
	}
	maps.Copy(headers, change)
	var request strings.Builder
	fmt.Fprintf(&request, "GET %s HTTP/1.1\r\n", cmp.Or(path, "/ws"))
	for k, v := range headers {
		fmt.Fprintf(&request, "%s: %s\r\n", k, v)
	}
	request.WriteString("\r\n")
	if _, err := io.WriteString(conn, request.String()); err != nil {
		t.Fatal(err)
	}
	_ = conn.SetReadDeadline(time.Now().Add(10 * time.Second))
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusSwitchingProtocols {
		return resp.StatusCode, "", ""
	}
	var body struct {
		OK    bool
		Error struct{ Code string }
	}
	if err := json.NewDecoder(resp.Body).Decode(&body); err != nil {
		t.Errorf("status %d without a JSON body: %v", resp.StatusCode, err)
	}
	return resp.StatusCode, body.Error.Code, resp.Header.Get("Retry-After")
}

func TestUpgradesAreRefused(t *testing.T) {
	g := begin(t, "", "allowed_hosts: [chat.example.org]\nallowed_origins: [\"https://friend.example.org\"]\n")
	bearer := map[string]string{"Authorization": "Bearer " + adminToken, "Cookie": "token=" + adminToken}
	for _, tc := range []struct {
		name, path string
		change     map[string]string
		want       int
		code       string
	}{
		{"as it should be", "", nil, 101, ""},
		{"the root", "/", nil, 101, ""},
		{"same origin", "", map[string]string{"Origin": g.URL()}, 101, ""},
		{"listed origin", "", map[string]string{"Origin": "https://friend.example.org"}, 101, ""},
		{"listed host", "", map[string]string{"Host": "chat.example.org"}, 101, ""},
		{"foreign host", "", map[string]string{"Host": "rebound.example.com"}, 421, "INVALID_REQUEST"},
		{"foreign host with the token", "", map[string]string{"Host": "rebound.example.com", "Authorization": bearer["Authorization"]}, 421, "INVALID_REQUEST"},
		{"foreign origin", "", map[string]string{"Origin": "https://evil.example.com"}, 403, "FORBIDDEN"},
		{"foreign origin with the token", "?token=" + adminToken, map[string]string{"Origin": "https://evil.example.com", "Cookie": bearer["Cookie"]}, 403, "FORBIDDEN"},
		{"origin null", "", map[string]string{"Origin": "null"}, 403, "FORBIDDEN"},
		{"origin of another port", "", map[string]string{"Origin": "http://127.0.0.1:1"}, 403, "FORBIDDEN"},
		{"forwarded host of an untrusted peer", "", map[string]string{"Host": "evil.example.com", "X-Forwarded-Host": "localhost", "X-Forwarded-For": "127.0.0.1"}, 421, "INVALID_REQUEST"},
		{"host before origin", "", map[string]string{"Host": "evil.example.com", "Origin": "null"}, 421, "INVALID_REQUEST"},
		{"origin before version", "", map[string]string{"Origin": "null", "Sec-WebSocket-Version": "8"}, 403, "FORBIDDEN"},
		{"old version", "", map[string]string{"Sec-WebSocket-Version": "8"}, 400, "INVALID_REQUEST"},
		{"bad key", "", map[string]string{"Sec-WebSocket-Key": "short"}, 400, "INVALID_REQUEST"},
		{"another path", "/healthz", nil, 404, "INVALID_REQUEST"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			path := tc.path
			if strings.HasPrefix(path, "?") {
				path = "/ws" + path
			}
			if status, code, _ := upgrade(t, g, path, tc.change); status != tc.want || code != tc.code {
				t.Errorf("status %d %s, want %d %s", status, code, tc.want, tc.code)
			}
		})
	}
}

func TestCapacityWithoutACredentialIsBounded(t *testing.T) {
	g := begin(t, "", "limits: {unauthenticated_per_address: 2}\n")
	for range 2 {
		unauthenticated(t, g, nil)
	}
	if status, _, retry := upgrade(t, g, "", nil); status != 503 || retry != "1" {
		t.Errorf("the third connection: status %d, Retry-After %q; want 503 and 1", status, retry)
	}
}

// wire is a socket that sends anything, valid or not.
type wire struct {
	t  *testing.T
	ws *websocket.Conn
}

type frame struct {
	Type, ID, Event string
	OK              bool
	Payload         json.RawMessage
	Error           *struct {
		Code, Message string
		Details       object
		Retryable     bool
		RetryAfterMs  int64
	}
}

func unauthenticated(t *testing.T, g *teste2e.Gateway, header http.Header) *wire {
	t.Helper()
	ws, resp, err := websocket.DefaultDialer.Dial(socketURL(g), header)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	t.Cleanup(func() { _ = ws.Close() })
	w := &wire{t, ws}
	if f, err := w.read(20 * time.Second); err != nil || f.Event != "connect.challenge" {
		t.Fatalf("first frame %+v, %v; want the challenge", f, err)
	}
	return w
}

func (w *wire) read(limit time.Duration) (frame, error) {
	_ = w.ws.SetReadDeadline(time.Now().Add(limit))
	var f frame
	return f, w.ws.ReadJSON(&f)
}

func (w *wire) send(v any) {
	w.t.Helper()
	data, ok := v.(string)
	if !ok {
		raw, err := json.Marshal(v)
		if err != nil {
			w.t.Fatal(err)
		}
		data = string(raw)
	}
	_ = w.ws.WriteMessage(websocket.TextMessage, []byte(data)) // some cases expect the gateway to close during the write
}

// ends reads until the close frame and returns its code and the last answer before it.
func (w *wire) ends(limit time.Duration) (code int, last frame) {
	w.t.Helper()
	until := time.Now().Add(limit)
	for {
		f, err := w.read(time.Until(until))
		var closed *websocket.CloseError
		switch {
		case errors.As(err, &closed):
			return closed.Code, last
		case err != nil:
			w.t.Fatalf("want a close frame, got %v", err)
		case f.Type == "res":
			last = f
		}
	}
}

func hello(auth object, change ...func(object)) object {
	p := object{
		"minProtocol": 4, "maxProtocol": 4, "auth": auth, "scopes": []string{"operator.read", "operator.write", "operator.admin"},
		"client": object{"id": "outside", "version": "1", "platform": "linux", "mode": "test"},
	}
	for _, f := range change {
		f(p)
	}
	return object{"type": "req", "id": "1", "method": "connect", "params": p}
}

func token() object { return object{"token": adminToken} }

// setting changes one param of connect.
func setting(name string, v any) func(object) { return func(p object) { p[name] = v } }

func fault(code, reason string) object {
	return object{"code": code, "authReason": reason, "canRetryWithDeviceToken": false, "recommendedNextStep": "update_auth_credentials"}
}

func mismatch(low, high float64) object {
	return object{"code": "PROTOCOL_MISMATCH", "clientMinProtocol": low, "clientMaxProtocol": high, "expectedProtocol": 4.0, "minimumProbeProtocol": 3.0}
}

func TestHandshakesAreRefused(t *testing.T) {
	g := begin(t, "", "")
	for _, tc := range []struct {
		name    string
		send    any
		close   int
		code    string
		message string
		details object
	}{
		{"not JSON", "hello", 1000, "", "", nil},
		{"not an object", "[]", 1000, "", "", nil},
		{"not connect", object{"type": "req", "id": "1", "method": "health"}, 1008, "INVALID_REQUEST", "invalid handshake: first request must be connect", nil},
		{"no params", object{"type": "req", "id": "1", "method": "connect"}, 1008, "INVALID_REQUEST", "invalid connect params: must have required property 'minProtocol'", nil},
		{"role", hello(token(), setting("role", "node")), 1008, "INVALID_REQUEST", "unsupported role: node", object{"code": "ROLE_NOT_SUPPORTED"}},
		{"too new", hello(token(), setting("minProtocol", 5), setting("maxProtocol", 6)), 1002, "INVALID_REQUEST", "protocol mismatch", mismatch(5, 6)},
		{"too old", hello(token(), setting("minProtocol", 1), setting("maxProtocol", 3)), 1002, "INVALID_REQUEST", "protocol mismatch", mismatch(1, 3)},
		{"no secret", hello(object{}), 1008, "INVALID_REQUEST", "unauthorized: gateway token missing", fault("AUTH_TOKEN_MISSING", "token_missing")},
		{"wrong token", hello(object{"token": "wrong"}), 1008, "INVALID_REQUEST", "unauthorized: gateway token mismatch", fault("AUTH_TOKEN_MISMATCH", "token_mismatch")},
		{"wrong password", hello(object{"password": "wrong"}), 1008, "INVALID_REQUEST", "unauthorized: gateway password mismatch", fault("AUTH_PASSWORD_MISMATCH", "password_mismatch")},
		{"oversized connect", hello(token(), setting("userAgent", strings.Repeat("x", 65_536))), 1009, "", "", nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := unauthenticated(t, g, nil)
			w.send(tc.send)
			code, last := w.ends(20 * time.Second)
			if code != tc.close {
				t.Errorf("close %d, want %d", code, tc.close)
			}
			if tc.code == "" {
				if last.Error != nil {
					t.Errorf("got %+v, want only the close", last.Error)
				}
				return
			}
			if last.Error == nil || last.Error.Code != tc.code || last.Error.Message != tc.message || !reflect.DeepEqual(last.Error.Details, tc.details) {
				t.Errorf("got %+v, want %s %q %v", last.Error, tc.code, tc.message, tc.details)
			}
		})
	}
}

func TestFramesCloseWithTheirCode(t *testing.T) {
	g := begin(t, "", "")
	big := `{"type":"req","id":"1","method":"health","x":"` + strings.Repeat("x", 1<<20) + `"}`
	for _, tc := range []struct {
		name string
		send func(w *wire)
		want int
	}{
		{"binary", func(w *wire) { _ = w.ws.WriteMessage(websocket.BinaryMessage, []byte("{}")) }, 1003},
		{"not UTF-8", func(w *wire) { w.send("{\"id\":\"\xff\"}") }, 1007},
		{"oversized", func(w *wire) { w.send(big) }, 1009},
		{"reserved bit", func(w *wire) { _, _ = w.ws.NetConn().Write([]byte{0xC1, 0x82, 0, 0, 0, 0, '{', '}'}) }, 1002},
		{"ten malformed frames", func(w *wire) {
			for range 10 {
				w.send(`{"type":"req"}`)
			}
		}, 1008},
		{"the client closes", func(w *wire) {
			_ = w.ws.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(4000, "bye"), time.Now().Add(time.Second))
		}, 1000},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := unauthenticated(t, g, nil)
			w.login(token())
			tc.send(w)
			if code, _ := w.ends(20 * time.Second); code != tc.want {
				t.Errorf("close %d, want %d", code, tc.want)
			}
		})
	}
}

func (w *wire) login(auth object) {
	w.t.Helper()
	w.send(hello(auth))
	if f, err := w.read(20 * time.Second); err != nil || !f.OK {
		w.t.Fatalf("connect: %+v %v", f.Error, err)
	}
}

func (w *wire) refused(t *testing.T, send any) (int, frame) {
	t.Helper()
	w.send(send)
	return w.ends(20 * time.Second)
}

// The client address from a trusted proxy is used, also for the lock. Other addresses and the proxy
// itself are not locked.
func TestLockoutThroughATrustedProxy(t *testing.T) {
	g := begin(t, "", "trusted_proxies: [\"127.0.0.1/32\"]\n")
	from := func(addr string) http.Header { return http.Header{"X-Forwarded-For": {"192.0.2.1, " + addr}} }
	for i := range 10 {
		if _, last := unauthenticated(t, g, from("203.0.113.7")).refused(t, hello(object{"token": fmt.Sprintf("guess %d", i)})); last.Error.Details["code"] != "AUTH_TOKEN_MISMATCH" {
			t.Fatalf("guess %d: %+v", i, last.Error)
		}
	}
	code, last := unauthenticated(t, g, from("203.0.113.7")).refused(t, hello(token()))
	if code != 1008 || last.Error.Code != "UNAVAILABLE" || last.Error.Message != "too many failed authentication attempts" || !last.Error.Retryable ||
		last.Error.RetryAfterMs <= 0 || !reflect.DeepEqual(last.Error.Details, object{"code": "AUTH_RATE_LIMITED", "recommendedNextStep": "wait_then_retry"}) {
		t.Errorf("the locked address with the right token: close %d, %+v", code, last.Error)
	}
	unauthenticated(t, g, from("203.0.113.8")).login(token())
	unauthenticated(t, g, nil).login(token())
}

// Without a trusted proxy the header is ignored: a client cannot use it to lock out others or to be
// counted as another client.
func TestAForwardedAddressOfAnUntrustedPeerMeansNothing(t *testing.T) {
	g := begin(t, "", "")
	for range 12 {
		unauthenticated(t, g, http.Header{"X-Forwarded-For": {"203.0.113.7"}}).refused(t, hello(object{"token": "wrong"}))
	}
	unauthenticated(t, g, http.Header{"X-Forwarded-For": {"203.0.113.7"}}).login(token())
}

func TestConnectionsOfACredentialAreBounded(t *testing.T) {
	g := begin(t, "", "limits: {sockets_per_principal: 1}\n")
	unauthenticated(t, g, nil).login(token())
	code, last := unauthenticated(t, g, nil).refused(t, hello(token()))
	if code != 1013 || last.Error.Message != "too many connections" || last.Error.Details["code"] != "TOO_MANY_CONNECTIONS" || !last.Error.Retryable {
		t.Errorf("the second connection: close %d, %+v", code, last.Error)
	}
	unauthenticated(t, g, nil).login(object{"token": readToken})
}

// A gateway that waits for a turn before it stops refuses every connect as draining.
func TestDrainingGatewayRefusesConnects(t *testing.T) {
	g := installGateway(t, "", secrets+"agents: {main: {runner: echo, delay: 10s}}\ndrain_timeout: 30s\n")
	g.Start()
	w := unauthenticated(t, g, nil)
	w.login(token())
	w.send(object{"type": "req", "id": "2", "method": "chat.send", "params": object{"sessionKey": "main", "message": "slow", "idempotencyKey": "slow"}})
	w.until(func(f frame) bool {
		if f.ID == "2" && !f.OK {
			t.Fatalf("chat.send right after the start: %+v", f.Error)
		}
		return f.ID == "2"
	})
	late := unauthenticated(t, g, nil)
	g.Signal(syscall.SIGTERM)
	w.until(func(f frame) bool { return f.Event == "shutdown" })
	code, last := late.refused(t, hello(token()))
	if code != 1012 || last.Error.Message != "gateway is draining" || !last.Error.Retryable || last.Error.RetryAfterMs != 1000 ||
		!reflect.DeepEqual(last.Error.Details, object{"code": "GATEWAY_DRAINING", "reason": "gateway-restarting"}) {
		t.Errorf("a connect while draining: close %d, %+v", code, last.Error)
	}
	if code, _ := w.ends(40 * time.Second); code != 1012 {
		t.Errorf("who was connected is closed with %d, want 1012", code)
	}
}

func (w *wire) until(want func(frame) bool) {
	w.t.Helper()
	var heard []frame
	for {
		f, err := w.read(20 * time.Second)
		if err != nil {
			w.t.Fatalf("%v; heard %+v", err, heard)
		}
		heard = append(heard, f)
		if want(f) {
			return
		}
	}
}
