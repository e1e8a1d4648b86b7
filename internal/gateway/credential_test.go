package gateway_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"laneway/internal/chat"
	"laneway/internal/gateway"
	"laneway/internal/gateway/auth"
	"laneway/internal/testrun"
)

func TestLockoutHoldsForTheRightTokenToo(t *testing.T) {
	t.Parallel()
	b := start(t, func(c *gateway.Config) { c.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")} })
	from := func(addr, token string) (int, *frameError) {
		ws, err := dialWith(websocket.DefaultDialer, "ws://"+b.addr, http.Header{"X-Forwarded-For": {addr}})
		if err != nil {
			t.Fatal(err)
		}
		defer ws.Close()
		s := &socket{t: t, ws: ws}
		s.read()
		s.send(connectFrame(token))
		f := s.read()
		if f.OK {
			return 0, nil
		}
		code, _, _ := s.closed()
		return code, f.Error
	}
	for range 10 {
		if _, e := from("203.0.113.5", "wrong"); e.Details["code"] != "AUTH_TOKEN_MISMATCH" {
			t.Fatalf("within the allowance: %+v", e)
		}
	}
	code, e := from("203.0.113.5", adminToken)
	if code != 1008 || e == nil || e.Code != "UNAVAILABLE" || e.Details["code"] != "AUTH_RATE_LIMITED" || !e.Retryable ||
		e.Details["recommendedNextStep"] != "wait_then_retry" || e.RetryAfterMs < 50_000 || e.RetryAfterMs > 60_000 {
		t.Errorf("locked address: close %d, %+v", code, e)
	}
	if _, e := from("203.0.113.6", adminToken); e != nil {
		t.Errorf("another address: %+v", e)
	}
	for range 12 {
		_, e = from("127.0.0.1", "wrong")
	}
	if e.Details["code"] != "AUTH_TOKEN_MISMATCH" {
		t.Errorf("loopback is never locked: %+v", e)
	}
}

// Only a credential is accepted, and a refused connection receives no event.
func TestAWrongTokenIsRefusedAndGetsNoEvent(t *testing.T) {
	t.Parallel()
	b := start(t)
	worker := b.login(adminToken)
	silent := b.dial()
	for _, token := range []string{"", " ", adminToken[:20], strings.ToUpper(adminToken), adminToken + " ", " " + adminToken, adminToken + "\n", "gateway", "null"} {
		s := b.dial()
		f := connectFrame(token)
		f["params"].(params)["user_id"], f["params"].(params)["owner"] = "gateway", "gateway"
		f["params"].(params)["device"] = params{"id": "known", "token": adminToken}
		s.send(f)
		code, _, before := s.closed()
		want := "AUTH_TOKEN_MISMATCH"
		if token == "" {
			want = "AUTH_TOKEN_MISSING"
		}
		if code != 1008 || len(before) != 1 || before[0].Error == nil || before[0].Error.Details["code"] != want {
			t.Errorf("token %q: close %d after %+v, want 1008 %s", token, code, before, want)
		}
	}
	worker.request("1", "chat.send", params{"sessionKey": "main", "message": "one two", "idempotencyKey": "k-1"})
	worker.next(chatState("k-1", "final"))
	silent.sendText("{}")
	if _, _, before := silent.closed(); len(before) != 1 || before[0].Event != "" {
		t.Errorf("a connection without a credential got %+v, want one answer and no event", before)
	}
}

func TestRevokedCredentialClosesItsSocketsOnly(t *testing.T) {
	t.Parallel()
	named := auth.Credential{Name: "ci", Digest: sha256.Sum256([]byte("ci-secret")), Scopes: []string{chat.ScopeRead}}
	src := &tokens{list: []auth.Credential{named}}
	b := start(t, func(c *gateway.Config) {
		c.Sources, c.Deadlines.Watch = []auth.Source{src}, 5*time.Millisecond
	})
	gone, stays := b.login("ci-secret"), b.login(adminToken)
	src.put(nil, errors.New("the database is down"))
	gone.must("health", nil) // a source that fails does not invalidate a known credential
	src.put(nil, nil)
	if code, text, _ := gone.closed(); code != 1008 || text != "credential was revoked" {
		t.Errorf("close %d %q, want 1008", code, text)
	}
	stays.must("health", nil)
	s := b.dial()
	s.send(connectFrame("ci-secret"))
	if f := s.read(); f.OK {
		t.Error("a revoked credential was let in")
	}
	named.ExpiresAt = time.Now().Add(200 * time.Millisecond)
	src.put([]auth.Credential{named}, nil)
	var expires *socket
	testrun.Eventually(t, "the new list to count", func() bool {
		s := b.dial()
		s.send(connectFrame("ci-secret"))
		expires = s
		return s.read().OK || time.Now().After(named.ExpiresAt)
	})
	if code, text, _ := expires.closed(); code != 1008 || text != "credential has expired" {
		t.Errorf("expired: close %d %q, want 1008", code, text)
	}
	late := b.dial()
	late.send(connectFrame("ci-secret"))
	if e := late.read().Error; e == nil || e.Details["code"] != "AUTH_TOKEN_MISMATCH" || e.Details["authReason"] != "token_expired" {
		t.Errorf("an expired token: %+v, want the reason token_expired", e)
	}
}

// A secret can be replaced while another source of credentials is unavailable.
func TestExchangedSecretClosesItsSocketsWhateverOtherSourcesDo(t *testing.T) {
	t.Parallel()
	secret := func(text string) []auth.Credential {
		return []auth.Credential{{Name: "gateway", Digest: sha256.Sum256([]byte(text)), Scopes: []string{chat.ScopeRead}}}
	}
	named := auth.Credential{Name: "ci", Digest: sha256.Sum256([]byte("ci-secret")), Scopes: []string{chat.ScopeRead}}
	own, store := &tokens{list: secret("old")}, &tokens{list: []auth.Credential{named}}
	b := start(t, func(c *gateway.Config) {
		c.Credentials, c.Sources, c.Deadlines.Watch = nil, []auth.Source{own, store}, 5*time.Millisecond
	})
	gone, stays := b.login("old"), b.login("ci-secret")
	store.put(nil, errors.New("the database is down"))
	own.put(secret("new"), nil)
	if code, text, _ := gone.closed(); code != 1008 || text != "credential was revoked" {
		t.Errorf("close %d %q, want 1008", code, text)
	}
	stays.must("health", nil)
	b.login("new").must("health", nil)
	late := b.dial()
	late.send(connectFrame("old"))
	if f := late.read(); f.OK {
		t.Error("the old secret was let in")
	}
}

func TestBadConfigurationNamesEveryFault(t *testing.T) {
	t.Parallel()
	_, err := gateway.New(gateway.Config{
		MaxPayload: 1, AllowedOrigins: []string{"*", "https://a.example/path"}, TrustedProxies: []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0")},
		Credentials: []auth.Credential{{Name: "gateway", Digest: sha256.Sum256(nil)}, {Name: "x", Digest: sha256.Sum256([]byte("x")), Scopes: []string{"root"}}},
	}, nil, nil)
	if err == nil {
		t.Fatal("no error")
	}
	for _, part := range []string{"payload", `"*"`, "a.example/path", "trusts every address", "empty secret", `"root"`} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("the error does not name %s: %v", part, err)
		}
	}
	if _, err := gateway.New(gateway.Config{}, nil, nil); err == nil {
		t.Error("a gateway without any credential was made")
	}
}

func TestScopesAreAskedAndGiven(t *testing.T) {
	t.Parallel()
	b := start(t)
	for _, tc := range []struct {
		name, token string
		asked, want []string
	}{
		{"nothing asked, nothing given", adminToken, nil, []string{}},
		{"asking does not grant", readToken, []string{chat.ScopeAdmin, chat.ScopeWrite}, []string{}},
		{"in the order asked, once", adminToken, []string{chat.ScopeWrite, "operator.root", chat.ScopeRead, chat.ScopeWrite}, []string{chat.ScopeWrite, chat.ScopeRead}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			s := b.dial()
			f := connectFrame(tc.token)
			f["params"].(params)["scopes"] = append([]string{}, tc.asked...)
			s.send(f)
			hello := decode[struct{ Auth struct{ Scopes []string } }](t, s.read().Payload)
			if !slices.Equal(hello.Auth.Scopes, tc.want) {
				t.Errorf("scopes %v, want %v", hello.Auth.Scopes, tc.want)
			}
			if len(tc.want) > 0 {
				return
			}
			if f := s.call("health", nil); f.OK || f.Error.Code != "FORBIDDEN" || f.Error.Details["missingScope"] != chat.ScopeRead {
				t.Errorf("health without a scope: %+v", f.Error)
			}
		})
	}
}

// tokens is a source whose list changes.
type tokens struct {
	mu   sync.Mutex
	list []auth.Credential
	err  error
}

func (s *tokens) Credentials(context.Context) ([]auth.Credential, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.list), s.err
}

func (s *tokens) put(list []auth.Credential, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.list, s.err = list, err
}

// An answer that a client waits for, streamed or not, ends with its credential, and its run is
// stopped.
func TestRevokedCredentialEndsItsHTTPRequestsOnly(t *testing.T) {
	t.Parallel()
	named := auth.Credential{Name: "ci", Digest: sha256.Sum256([]byte("ci-secret")), Scopes: []string{chat.ScopeRead, chat.ScopeWrite}}
	src := &tokens{list: []auth.Credential{named}}
	b := start(t, func(c *gateway.Config) {
		c.Sources, c.Deadlines.Watch = []auth.Source{src}, 5*time.Millisecond
	})
	as := func(token string) func(*http.Request) {
		return func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+token) }
	}
	var calls sync.WaitGroup
	results := map[string]*answer{"whole": {}, "stream": {}, "of another": {}}
	for name, token := range map[string]string{"whole": "ci-secret", "stream": "ci-secret", "of another": writeToken} {
		calls.Go(func() {
			*results[name] = b.post(completionsPath, ask("one wait two", params{"stream": name == "stream"}), as(token))
		})
	}
	b.core.untilPaused(3)
	src.put(nil, nil)
	b.core.untilPaused(1)
	if n := len(b.core.stopped()); n != 2 {
		t.Errorf("%d runs were stopped, want those of the credential", n)
	}
	b.core.proceed()
	calls.Wait()
	if got := results["whole"]; got.status != http.StatusUnauthorized || !strings.Contains(string(got.body), "credential was revoked") {
		t.Errorf("whole: %d %s", got.status, got.body)
	}
	if got := results["stream"]; !strings.Contains(string(got.body), "credential was revoked") {
		t.Errorf("stream: %d %s", got.status, got.body)
	}
	if got := results["of another"]; got.status != http.StatusOK || !strings.Contains(string(got.body), "two") {
		t.Errorf("of another credential: %d %s", got.status, got.body)
	}
}

// The message of an agent's service is for administrators: not for a token with fewer permissions,
// a connection that did not request them, or an administrator of only its own sessions.
func TestOnlyAdministratorsReadWhatTheServiceWrote(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		token  string
		scopes []string
		reads  bool
	}{
		"administrator":      {adminToken, []string{chat.ScopeRead, chat.ScopeWrite, chat.ScopeAdmin}, true},
		"with fewer scopes":  {adminToken, []string{chat.ScopeRead, chat.ScopeWrite}, false},
		"writer":             {writeToken, []string{chat.ScopeRead, chat.ScopeWrite}, false},
		"of its own, though": {annaToken, []string{chat.ScopeRead, chat.ScopeWrite, chat.ScopeAdmin}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := start(t)
			s := b.dial()
			f := connectFrame(tc.token)
			f["params"].(params)["scopes"] = tc.scopes
			s.send(f)
			if f := s.read(); !f.OK {
				t.Fatalf("%+v", f.Error)
			}
			s.request("1", "agent", params{"message": "refused", "idempotencyKey": "k-1", "sessionKey": "agent:main:x"})
			check := func(where, text string) {
				if strings.Contains(text, "no such model") != tc.reads || !strings.HasPrefix(text, "the model service did not accept it") {
					t.Errorf("%s: %q", where, text)
				}
			}
			for ends := 0; ends < 3; {
				switch f := s.read(); {
				case f.Type == "res" && !f.OK:
					check("answer", f.Error.Message)
					ends++
				case f.Event == "chat":
					check("event", decode[struct{ ErrorMessage string }](t, f.Payload).ErrorMessage)
					ends++
				case f.Event == "agent" && strings.Contains(string(f.Payload), `"error"`):
					check("life cycle", decode[struct{ Data struct{ Error string } }](t, f.Payload).Data.Error)
					ends++
				}
			}
		})
	}
}
