package gateway_test

import (
	"cmp"
	"context"
	"crypto/sha256"
	"slices"
	"strings"
	"testing"
	"time"

	"laneway/internal/chat"
	"laneway/internal/gateway"
	"laneway/internal/gateway/auth"
)

// admission is a credential with its highest scope according to the table of credentials.
type admission struct {
	name, token string
	level       int
	password    bool // it is sent as a password
}

const (
	housePassword = "password-0123456789-0123456789-01"
	namedWrite    = "named-write-0123456789-0123456789"
	namedOwn      = "named-own-read-0123456789-0123456"
)

func admissions() []admission {
	return []admission{
		{"gateway", adminToken, 3, false},
		{"write", writeToken, 2, false},
		{"read", readToken, 1, false},
		{"own visibility", annaToken, 3, false},
		{"password", housePassword, 3, true},
		{"named token with write", namedWrite, 2, false},
		{"named token with read and own visibility", namedOwn, 1, false},
	}
}

// namedTokens are named tokens in the form of the store.
type namedTokens []auth.Credential

func (k namedTokens) Credentials(context.Context) ([]auth.Credential, error) { return k, nil }

// admitting configures a credential for every admission.
func admitting(c *gateway.Config) {
	c.Credentials = append(c.Credentials, auth.Credential{
		Name: "password", Digest: sha256.Sum256([]byte(housePassword)), Scopes: []string{chat.ScopeRead, chat.ScopeWrite, chat.ScopeAdmin},
	})
	c.Sources = append(c.Sources, namedTokens{
		{Name: "deploy", Digest: sha256.Sum256([]byte(namedWrite)), Scopes: []string{chat.ScopeRead, chat.ScopeWrite}},
		{Name: "phone", Digest: sha256.Sum256([]byte(namedOwn)), Scopes: []string{chat.ScopeRead}, Visible: auth.VisibleOwn},
	})
}

// admit authenticates with the credential, as a token or password, and requests every scope.
func (b *bench) admit(who admission) *socket {
	b.t.Helper()
	if !who.password {
		return b.login(who.token)
	}
	s, f := b.dial(), connectFrame("")
	f["params"].(params)["auth"] = params{"password": who.token}
	s.send(f)
	if answer := s.read(); !answer.OK {
		b.t.Fatalf("connect as %s: %+v", who.name, answer.Error)
	}
	return s
}

func levelOfScope(scope string) int {
	return 1 + slices.Index([]string{chat.ScopeRead, chat.ScopeWrite, chat.ScopeAdmin}, scope)
}

// least returns the lowest scope that a method accepts before it knows the owner of the session.
func least(m gateway.MethodInfo) string { return cmp.Or(m.OwnerScope, m.Scope) }

// Every method of the table is called with every credential and all its scopes. A call that the table allows is never answered with a
// missing scope, any other call always is. The params are invalid for every method, so that the calls have no effect.
func TestEveryMethodWithEveryCredential(t *testing.T) {
	t.Parallel()
	b := start(t, admitting)
	for _, who := range admissions() {
		t.Run(who.name, func(t *testing.T) {
			t.Parallel()
			s := b.admit(who)
			for _, m := range b.srv.Methods() {
				f := s.call(m.Name, []any{"no object"})
				allowed := levelOfScope(least(m)) <= who.level
				switch {
				case f.OK:
					t.Errorf("%s took params that are no object: %s", m.Name, f.Payload)
				case allowed && (f.Error.Code != "INVALID_REQUEST" || !strings.HasPrefix(f.Error.Message, "invalid "+m.Name+" params: ")):
					t.Errorf("%s (%s) is allowed, got %+v", m.Name, m.Scope, f.Error)
				case !allowed && !refusedFor(f, m.Scope):
					t.Errorf("%s (%s) is not allowed, got %+v", m.Name, m.Scope, f.Error)
				}
			}
		})
	}
}

func refusedFor(f frame, scope string) bool {
	if f.OK || f.Error.Code != "FORBIDDEN" || f.Error.Message != "missing scope: "+scope {
		return false
	}
	required, _ := f.Error.Details["requiredScopes"].([]any)
	return f.Error.Details["code"] == "MISSING_SCOPE" && f.Error.Details["missingScope"] == scope && slices.Equal(required, []any{scope})
}

// A name that is not in the table is refused for every credential, even if it resembles a method; its params are not parsed.
func TestUnknownMethodsAreRefusedToEveryCredential(t *testing.T) {
	t.Parallel()
	b := start(t, admitting)
	known := map[string]bool{"connect": true}
	names := []string{"", "*", "constructor", "chat", "chat.", ".send", "chat.send.", "config.set", "exec.run", "node.invoke"}
	for _, m := range b.srv.Methods() {
		known[m.Name] = true
		names = append(names, m.Name+" ", " "+m.Name, strings.ToUpper(m.Name), m.Name+".x", m.Name+"\u200b")
	}
	for _, who := range admissions() {
		t.Run(who.name, func(t *testing.T) {
			t.Parallel()
			s := b.admit(who)
			for _, name := range names {
				if known[name] {
					continue
				}
				f := s.call(name, params{"sessionKey": "main"})
				unknown := name == "" || (f.Error != nil && strings.HasPrefix(f.Error.Message, "unknown method: "))
				if f.OK || f.Error.Code != "INVALID_REQUEST" || !unknown {
					t.Errorf("%q: ok %v, %+v", name, f.OK, f.Error)
				}
			}
		})
	}
}

// A client without a credential can call nothing: the first request that is not connect ends the connection and has no effect. A refused
// connect leaves nothing behind either.
func TestNoMethodIsCalledWithoutACredential(t *testing.T) {
	t.Parallel()
	b := start(t, func(c *gateway.Config) { c.MaxUnauthenticatedPerAddr = 512 }) // the sockets of the test stay open until its end
	for _, m := range b.srv.Methods() {
		s := b.dial()
		s.request("1", m.Name, send("main", "without a credential", "unauthenticated"))
		code, _, before := s.closed()
		if code != 1008 || len(before) != 1 || before[0].Error == nil || before[0].Error.Message != "invalid handshake: first request must be connect" {
			t.Errorf("%s before connect: close %d after %+v", m.Name, code, before)
		}
	}
	for _, m := range b.srv.Methods() {
		s := b.dial()
		s.send(connectFrame("a-token-that-is-not-configured"))
		_ = s.ws.WriteJSON(params{"type": "req", "id": "2", "method": m.Name, "params": send("main", "without a credential", "unauthenticated")})
		code, _, before := s.closed()
		if code != 1008 || len(before) != 1 || before[0].ID != "connect" || before[0].Error.Details["code"] != "AUTH_TOKEN_MISMATCH" {
			t.Errorf("%s after a wrong token: close %d after %+v", m.Name, code, before)
		}
	}
	b.fakeBackend.set(func() {
		if len(b.fakeBackend.messages) != 0 {
			t.Errorf("clients without a credential left %d messages", len(b.fakeBackend.messages))
		}
	})
}

// While runs publish events, unauthenticated sockets receive only the challenge.
func TestNothingIsSentBeforeAuthentication(t *testing.T) {
	t.Parallel()
	b := start(t, func(c *gateway.Config) { c.Deadlines.Watch = 5 * time.Millisecond })
	silent, wrong := b.open(), b.open()
	wrong.send(connectFrame("a-token-that-is-not-configured"))
	s := b.login(adminToken)
	s.must("sessions.subscribe", params{})
	for _, run := range []string{"r1", "r2", "r3"} {
		s.must("chat.send", send("main", "hello", run))
		s.next(chatState(run, "final"))
	}
	b.fakeBackend.set(func() { b.fakeBackend.down = true })
	s.next(func(f frame) bool { return f.Event == "health" })
	if f := silent.read(); f.Event != "connect.challenge" {
		t.Errorf("first frame to a client without a credential: %+v", f)
	}
	silent.request("1", "health", nil)
	if _, _, before := silent.closed(); len(before) != 1 || before[0].ID != "1" || before[0].OK {
		t.Errorf("a client that did not connect got %+v, want only the refusal of its request", before)
	}
	_, _, before := wrong.closed()
	if len(before) != 2 || before[0].Event != "connect.challenge" || before[1].ID != "connect" || before[1].OK {
		t.Errorf("a client with a wrong token got %+v", before)
	}
}

// Methods that a principal with visibility own may call show it no data of other principals, and change none.
func TestOwnVisibilitySeesNoTraceInAnyMethod(t *testing.T) {
	t.Parallel()
	b := start(t)
	admin, anna := b.login(adminToken), b.login(annaToken)
	admin.must("chat.send", send("agent:main:secret-room", "the hidden words", "hidden-run"))
	admin.next(chatState("hidden-run", "final"))
	for _, m := range b.srv.Methods() {
		p := params{}
		for _, f := range m.Params.Members() {
			switch name := f.Name; name {
			case "sessionKey", "key":
				p[name] = "agent:main:secret-room"
			case "runId":
				p[name] = "hidden-run"
			case "message", "text":
				p[name] = "from anna"
			case "idempotencyKey":
				p[name] = "anna-" + strings.ReplaceAll(m.Name, ".", "-")
			case "mode":
				p[name] = "now"
			}
		}
		f := anna.call(m.Name, p)
		if _, looks := absentAnswers()[m.Name]; looks {
			wantHidden(t, m.Name, m.Name, f)
			continue
		}
		if text := string(f.Payload); strings.Contains(text, "hidden") || (f.OK && strings.Contains(text, "secret-room")) {
			t.Errorf("%s shows %s", m.Name, text)
		}
		if _, session := p["sessionKey"]; session && f.OK && m.Scope != chat.ScopeRead {
			t.Errorf("%s on a foreign session: %s", m.Name, f.Payload)
		}
	}
	h := admin.must("chat.history", params{"sessionKey": "agent:main:secret-room"})
	if messages := h["messages"].([]any); len(messages) != 2 {
		t.Errorf("the session of the other has %d messages, want 2", len(messages))
	}
}
