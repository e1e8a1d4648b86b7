package gateway_test

import (
	"maps"
	"net/http"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"laneway/internal/chat"
	"laneway/internal/gateway"
)

func deadline() time.Time { return time.Now().Add(patience) }

func connectWith(change func(params)) map[string]any {
	f := connectFrame(adminToken)
	change(f["params"].(params))
	return f
}

func TestHandshakeRefusals(t *testing.T) {
	t.Parallel()
	mismatch := func(details params) params {
		maps.Copy(details, params{"canRetryWithDeviceToken": false, "recommendedNextStep": "update_auth_credentials"})
		return details
	}
	for _, tc := range []struct {
		name    string
		send    any
		raw     string
		code    string
		message string
		details params
		close   int
	}{
		{name: "not JSON", raw: "hello", close: 1000},
		{name: "not an object", raw: `["req"]`, close: 1000},
		{
			name: "not connect", send: params{"type": "req", "id": "1", "method": "health"},
			code: "INVALID_REQUEST", message: "invalid handshake: first request must be connect", close: 1008,
		},
		{
			name: "no id", raw: `{"type":"req","method":"connect"}`,
			code: "INVALID_REQUEST", message: "invalid request frame: must have required property 'id'", close: 1008,
		},
		{
			name: "no params", send: params{"type": "req", "id": "1", "method": "connect"},
			code: "INVALID_REQUEST", message: "invalid connect params: must have required property 'minProtocol'", close: 1008,
		},
		{
			name: "bad client", send: connectWith(func(p params) { p["client"].(params)["mode"] = "spy" }),
			code: "INVALID_REQUEST", message: "invalid connect params: at /client/mode:", close: 1008,
		},
		{
			name: "bad client id", send: connectWith(func(p params) { p["client"].(params)["id"] = "No Way" }),
			code: "INVALID_REQUEST", message: "invalid connect params: at /client/id:", close: 1008,
		},
		{
			name: "range upside down", send: connectWith(func(p params) { p["minProtocol"] = 5 }),
			code: "INVALID_REQUEST", message: "invalid connect params: at /maxProtocol:", close: 1008,
		},
		{
			name: "role", send: connectWith(func(p params) { p["role"] = "node" }),
			code: "INVALID_REQUEST", message: "unsupported role: node", details: params{"code": "ROLE_NOT_SUPPORTED"}, close: 1008,
		},
		{
			name: "too new", send: connectWith(func(p params) { p["minProtocol"], p["maxProtocol"] = 5, 7 }),
			code: "INVALID_REQUEST", message: "protocol mismatch", close: 1002,
			details: params{
				"code": "PROTOCOL_MISMATCH", "clientMinProtocol": 5.0, "clientMaxProtocol": 7.0, "expectedProtocol": 4.0, "minimumProbeProtocol": 3.0,
			},
		},
		{
			name: "old, and no probe", send: connectWith(func(p params) { p["minProtocol"], p["maxProtocol"] = 3, 3 }),
			code: "INVALID_REQUEST", message: "protocol mismatch", close: 1002,
			details: params{
				"code": "PROTOCOL_MISMATCH", "clientMinProtocol": 3.0, "clientMaxProtocol": 3.0, "expectedProtocol": 4.0, "minimumProbeProtocol": 3.0,
			},
		},
		{
			name: "no secret", send: connectWith(func(p params) { delete(p, "auth") }),
			code: "INVALID_REQUEST", message: "unauthorized: gateway token missing", close: 1008,
			details: mismatch(params{"code": "AUTH_TOKEN_MISSING", "authReason": "token_missing"}),
		},
		{
			name: "wrong token", send: connectWith(func(p params) { p["auth"] = params{"token": "x" + adminToken} }),
			code: "INVALID_REQUEST", message: "unauthorized: gateway token mismatch", close: 1008,
			details: mismatch(params{"code": "AUTH_TOKEN_MISMATCH", "authReason": "token_mismatch"}),
		},
		{
			name: "wrong token, right password", close: 1008, // the token takes precedence over the password
			send: connectWith(func(p params) { p["auth"] = params{"token": "wrong", "password": adminToken} }),
			code: "INVALID_REQUEST", message: "unauthorized: gateway token mismatch",
			details: mismatch(params{"code": "AUTH_TOKEN_MISMATCH", "authReason": "token_mismatch"}),
		},
		{
			name: "wrong password", send: connectWith(func(p params) { p["auth"] = params{"password": "wrong"} }),
			code: "INVALID_REQUEST", message: "unauthorized: gateway password mismatch", close: 1008,
			details: mismatch(params{"code": "AUTH_PASSWORD_MISMATCH", "authReason": "password_mismatch"}),
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			s := start(t).dial()
			if tc.raw != "" {
				s.sendText(tc.raw)
			} else {
				s.send(tc.send)
			}
			code, text, before := s.closed()
			if code != tc.close {
				t.Errorf("close %d %q, want %d", code, text, tc.close)
			}
			if tc.code == "" {
				if len(before) != 0 {
					t.Errorf("got %+v before the close, want nothing", before)
				}
				return
			}
			if len(before) != 1 || before[0].Error == nil {
				t.Fatalf("before the close: %+v, want one error", before)
			}
			e := before[0].Error
			if e.Code != tc.code || !strings.HasPrefix(e.Message, tc.message) {
				t.Errorf("error %s %q, want %s %q", e.Code, e.Message, tc.code, tc.message)
			}
			if !reflect.DeepEqual(tc.details, e.Details) && len(tc.details)+len(e.Details) > 0 {
				t.Errorf("details %v, want %v", e.Details, tc.details)
			}
			if text != e.Message && !strings.HasPrefix(e.Message, text) {
				t.Errorf("close reason %q, want the message %q", text, e.Message)
			}
		})
	}
}

func TestStartingAndDrainingGatewaysRefuseConnects(t *testing.T) {
	t.Parallel()
	b := start(t, func(c *gateway.Config) { c.HoldConnects = true })
	refused := func(message string, details params, after int64, closeCode int) {
		t.Helper()
		s := b.dial()
		s.send(connectFrame(adminToken))
		code, _, before := s.closed()
		e := before[0].Error
		if code != closeCode || e.Code != "UNAVAILABLE" || e.Message != message || !e.Retryable || e.RetryAfterMs != after ||
			!reflect.DeepEqual(e.Details, details) {
			t.Errorf("close %d, error %+v; want %d, %q, %v, retry after %d", code, e, closeCode, message, details, after)
		}
	}
	refused("gateway starting", params{"reason": "startup-sidecars"}, 500, 1013)
	if status, _, _ := b.get("GET", "/readyz"); status != 503 {
		t.Errorf("readyz while starting: %d, want 503", status)
	}
	b.srv.Ready()
	s := b.login(adminToken)
	b.srv.Drain()
	if f := s.next(func(f frame) bool { return f.Event == "shutdown" }); string(f.Payload) != `{"reason":"draining"}` {
		t.Errorf("shutdown %s", f.Payload)
	}
	refused("gateway is draining", params{"code": "GATEWAY_DRAINING", "reason": "gateway-restarting"}, 1000, 1012)
	if status, _, body := b.get("GET", "/healthz"); status != 200 || body["status"] != "draining" {
		t.Errorf("healthz while draining: %d %v", status, body)
	}
	s.must("health", nil) // connected clients continue
}

func TestAStopIsAnEventForEveryClient(t *testing.T) {
	t.Parallel()
	b := start(t)
	s, unauthenticated := b.login(adminToken), b.dial()
	stopped := make(chan error, 1)
	go func() { stopped <- b.stop() }()
	code, _, before := s.closed()
	var reasons []string
	for _, f := range before {
		if f.Event == "shutdown" {
			reasons = append(reasons, string(f.Payload))
		}
	}
	if code != 1012 || !slices.Equal(reasons, []string{`{"reason":"draining"}`, `{"reason":"stopped"}`}) {
		t.Errorf("close %d after %v, want 1012 after draining and stopped", code, reasons)
	}
	if code, _, before := unauthenticated.closed(); code != 1012 || len(before) != 0 {
		t.Errorf("without a credential: close %d after %v, want 1012 and no event", code, before)
	}
	if err := <-stopped; err != nil {
		t.Errorf("Serve: %v", err)
	}
}

// A goroutine that does not end is named, and does not prevent the shutdown.
func TestStopIsBounded(t *testing.T) {
	t.Parallel()
	b := start(t, func(c *gateway.Config) { c.StopTimeout = 20 * time.Millisecond })
	block := make(chan struct{})
	b.core.set(func() { b.core.block = block })
	s := b.login(adminToken)
	s.request("1", "chat.send", send("main", "x", "k"))
	s.must("health", nil) // the first one has started, because the reader handles them in order
	err := b.stop()
	if err == nil || !strings.Contains(err.Error(), "1 connections did not end") {
		t.Errorf("Serve: %v, want it to say what is left", err)
	}
	close(block)
}

func TestHelloSaysWhatTheConnectionMay(t *testing.T) {
	t.Parallel()
	b := start(t)
	hello := decode[struct {
		Type     string
		Protocol int
		Server   struct{ Version, BootID, ConnID string }
		Features struct{ Methods, Events, Capabilities []string }
		Snapshot struct {
			Presence        []any
			Health          map[string]any
			StateVersion    map[string]int
			SessionDefaults map[string]string
			AuthMode        string
		}
		Auth struct {
			Role   string
			Scopes []string
			Name   string
		}
		Policy map[string]int
	}](t, b.login(readToken, "laneway-ext").hello)
	if hello.Type != "hello-ok" || hello.Protocol != 4 || hello.Server.Version != "0.1.0" || hello.Server.BootID != b.srv.BootID() {
		t.Errorf("hello %+v", hello)
	}
	if !slices.Equal(hello.Auth.Scopes, []string{chat.ScopeRead}) || hello.Auth.Role != "operator" {
		t.Errorf("auth %+v: a read token gives read, whatever is asked", hello.Auth)
	}
	if hello.Auth.Name != "read" {
		t.Errorf("the credential is %q, want read", hello.Auth.Name)
	}
	if standard := string(b.login(readToken).hello); strings.Contains(standard, `"name"`) {
		t.Errorf("the standard view has the name of the credential: %s", standard)
	}
	var names []string
	for _, m := range b.srv.Methods() {
		names = append(names, m.Name)
	}
	names = append(names, "connect")
	slices.Sort(names)
	if !slices.Equal(hello.Features.Methods, names) {
		t.Errorf("methods %v, want the table %v", hello.Features.Methods, names)
	}
	if hello.Snapshot.Health["ok"] != true || hello.Snapshot.Health["problems"] != nil || hello.Snapshot.AuthMode != "token" {
		t.Errorf("snapshot %+v: want the standard view", hello.Snapshot)
	}
	if hello.Policy["maxPayload"] != 1<<20 || hello.Policy["maxBufferedBytes"] != 8<<20 || hello.Policy["tickIntervalMs"] != 30_000 {
		t.Errorf("policy %v", hello.Policy)
	}
}

func TestProbeOfTheOldVersionSeesHealthOnly(t *testing.T) {
	t.Parallel()
	s := start(t).dial()
	s.send(connectWith(func(p params) {
		p["minProtocol"], p["maxProtocol"] = 1, 3
		p["client"].(params)["mode"] = "probe"
	}))
	if hello := decode[struct{ Protocol int }](t, s.read().Payload); hello.Protocol != 3 {
		t.Fatalf("protocol %d, want 3", hello.Protocol)
	}
	s.must("health", nil)
	s.must("status", nil)
	if f := s.call("sessions.list", nil); f.OK {
		t.Error("a probe listed the sessions")
	}
}

func TestSecondConnectLeavesTheSocketOpen(t *testing.T) {
	t.Parallel()
	s := start(t).login(adminToken)
	s.send(connectFrame(adminToken))
	f := s.read()
	if f.OK || f.Error.Code != "INVALID_REQUEST" || f.Error.Message != "connect is only valid as the first request" {
		t.Errorf("second connect: %+v", f.Error)
	}
	s.must("health", nil)
}

func TestConnectionsPerPrincipalAreLimited(t *testing.T) {
	t.Parallel()
	b := start(t, func(c *gateway.Config) { c.MaxPerPrincipal = 1 })
	b.login(adminToken)
	s := b.dial()
	s.send(connectFrame(adminToken))
	code, _, before := s.closed()
	if e := before[0].Error; code != 1013 || e.Message != "too many connections" || e.Details["code"] != "TOO_MANY_CONNECTIONS" || !e.Retryable {
		t.Errorf("close %d, %+v; want 1013 TOO_MANY_CONNECTIONS", code, before[0].Error)
	}
	b.login(readToken) // another principal has separate places
}

// The named tokens are in the store, which is not open yet. An unknown token may be valid, and does
// not count for the lock-out of its address.
func TestATokenThatIsNotKnownDuringTheStartIsNotRefusedAsWrong(t *testing.T) {
	t.Parallel()
	b := start(t, func(c *gateway.Config) {
		c.HoldConnects = true
		c.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}
	})
	connect := func(token string) frame {
		ws, err := dialWith(websocket.DefaultDialer, "ws://"+b.addr+"/", http.Header{"X-Forwarded-For": {"203.0.113.7"}})
		if err != nil {
			t.Fatal(err)
		}
		defer ws.Close()
		s := &socket{t: t, ws: ws}
		s.read() // the challenge
		s.send(connectFrame(token))
		return s.read()
	}
	for range 12 { // more than it takes to lock an address
		f := connect("named-token-0123456789-0123456789")
		if e := f.Error; e == nil || e.Code != "UNAVAILABLE" || e.Message != "gateway starting" || !e.Retryable {
			t.Fatalf("a named token during the start: %+v", f.Error)
		}
	}
	b.srv.Ready()
	if f := connect(adminToken); !f.OK {
		t.Errorf("the address is refused after the start: %+v", f.Error)
	}
}
