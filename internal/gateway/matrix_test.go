package gateway_test

import (
	"cmp"
	"context"
	"crypto/sha256"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"laneway/internal/chat"
	"laneway/internal/cron"
	"laneway/internal/cron/schedule"
	"laneway/internal/gateway"
	"laneway/internal/gateway/auth"
	"laneway/internal/gateway/jobs"
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

// Every method of the table is called with every credential and all its scopes. A call that the
// table allows is never answered with a missing scope, any other call always is. The params are
// invalid for every method, so that the calls have no effect.
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

// A name that is not in the table is refused for every credential, even if it resembles a method;
// its params are not parsed.
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

// A client without a credential can call nothing: the first request that is not connect ends the
// connection and has no effect. A refused connect leaves nothing behind either.
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
	if n := b.core.accepted(); n != 0 {
		t.Errorf("clients without a credential left %d messages", n)
	}
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
	b.core.set(func() { b.core.down = true })
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

func wantAbsent(t *testing.T, what string, f frame) {
	t.Helper()
	if f.OK || f.Error == nil || f.Error.Details["code"] != string(chat.CodeSessionNotFound) {
		t.Errorf("%s: %s %+v", what, f.Payload, f.Error)
	}
}

func TestACallerThatSeesItsOwnDeliversToNoChat(t *testing.T) {
	t.Parallel()
	b := start(t)
	otto, write := b.login(ottoToken), b.login(writeToken)
	to := func(more params) params {
		p := params{"message": "in the name of the bot", "idempotencyKey": uuid.NewString(), "sessionKey": "agent:main:room", "deliver": true}
		maps.Copy(p, more)
		return p
	}
	for name, more := range map[string]params{
		"channel": {"channel": "telegram", "to": "4711"}, "reply channel": {"replyChannel": "telegram", "to": "4711"}, "account": {"channel": "telegram", "to": "4711", "accountId": "work"},
		"web account": {"channel": "web", "to": "agent:main:room", "accountId": "work"}, "web": {"channel": "web", "to": "agent:main:main"},
		"any": {"channel": "box", "to": "1"},
	} {
		wantAbsent(t, name, otto.call("agent", to(more)))
	}
	if n := b.core.accepted(); n != 0 {
		t.Errorf("%d messages were accepted", n)
	}
	otto.must("agent", to(params{"sessionKey": "agent:main:ottos"}))
	otto.must("agent", to(params{"sessionKey": "agent:main:ottos", "channel": "web", "to": "agent:main:ottos-other"}))
	write.must("agent", to(params{"channel": "telegram", "to": "4711"}))
}

// A client that requests no scope, or scopes that the credential does not have, can connect; such a
// connection may call nothing and receives no events.
func TestAConnectionWithoutScopesGetsTheTickAndTheShutdownAlone(t *testing.T) {
	t.Parallel()
	virtual(t, func(t *bubble) {
		asks := map[string]struct {
			token  string
			scopes any
		}{
			"none": {adminToken, []string{}}, "absent": {adminToken, nil}, "unknown": {adminToken, []string{"operator.root", "*", "admin"}},
			"more than a read token gives": {readToken, []string{chat.ScopeWrite, chat.ScopeAdmin}},
		}
		mute := map[string]chan string{}
		for name, ask := range asks {
			s := t.open()
			f := connectFrame(ask.token, "laneway-ext", "tool-events")
			if p := f["params"].(map[string]any); ask.scopes == nil {
				delete(p, "scopes")
			} else {
				p["scopes"] = ask.scopes
			}
			s.send(f)
			if f := s.read(); !f.OK {
				t.Fatalf("%s: connect: %+v", name, f.Error)
			}
			for _, m := range t.srv.Methods() {
				if f := s.call(m.Name, []any{"no object"}); !refusedFor(f, m.Scope) {
					t.Errorf("%s: %s answered %+v", name, m.Name, f.Error)
				}
			}
			all := make(chan string, 100)
			mute[name] = all
			go func() { // ends with the socket
				defer close(all)
				for {
					var f frame
					if s.ws.ReadJSON(&f) != nil {
						return
					}
					all <- f.Event
				}
			}()
		}
		s := t.open().login(adminToken)
		s.must("sessions.subscribe", params{})
		s.must("chat.send", send("main", "hello", "run"))
		s.next(chatState("run", "final"))
		t.core.publish(chat.Event{Kind: chat.EventSession, Session: chat.MainKey("main"), Principal: "gateway", Reason: "created"})
		s.next(func(f frame) bool { return f.Event == "sessions.changed" })
		t.core.set(func() { t.core.down = true })
		s.next(func(f frame) bool { return f.Event == "health" })
		s.next(func(f frame) bool { return f.Event == "tick" })
		pass(time.Second) // the other connections receive theirs at the same time
		t.srv.Drain()
		for name, all := range mute {
			var heard []string
			for event := range all {
				if !slices.Contains(heard, event) {
					heard = append(heard, event)
				}
				if event == "shutdown" {
					break
				}
			}
			slices.Sort(heard)
			if !slices.Equal(heard, []string{"shutdown", "tick"}) {
				t.Errorf("%s: heard %q", name, heard)
			}
		}
	})
}

// jobEvents has the methods of jobs for calls that are refused before they reach it.
type jobEvents struct {
	jobs.Backend

	publish chan func(cron.Event)
}

func (j jobEvents) Subscribe(fn func(cron.Event), _ func() bool) (cancel func()) {
	j.publish <- fn
	return func() {}
}

func withJobs(t *testing.T, change ...func(*gateway.Config)) *bench {
	t.Helper()
	return start(t, append(change, withBook(jobEvents{publish: make(chan func(cron.Event), 1)}))...)
}

func TestEventsOfAJobReachThoseWhoMayReadIt(t *testing.T) {
	t.Parallel()
	published := make(chan func(cron.Event), 1)
	b := start(t, withBook(jobEvents{publish: published}))
	mute := b.dial()
	f := connectFrame(adminToken)
	f["params"].(map[string]any)["scopes"] = []string{}
	mute.send(f)
	if f := mute.read(); !f.OK {
		t.Fatalf("connect: %+v", f.Error)
	}
	anna, otto, reader := b.login(annaToken), b.login(ottoToken), b.login(readToken)
	(<-published)(cron.Event{Action: cron.ActionRemoved, Job: cron.Job{ID: "j", Owner: "anna", Schedule: schedule.Spec{Kind: schedule.KindEvery, EveryMs: 1000}}})
	for name, s := range map[string]*socket{"its owner": anna, "who sees all": reader} {
		if f := s.read(); f.Event != "cron" {
			t.Errorf("%s heard %+v", name, f)
		}
	}
	for name, s := range map[string]*socket{"another owner": otto, "no scope": mute} {
		s.request("last", "no.such.method", nil)
		if f := s.read(); f.ID != "last" {
			t.Errorf("%s heard %+v", name, f)
		}
	}
}

// The allowance of cron writes is a member of the method table. Every method that changes jobs is
// counted in it. The three hundred and first call is refused, and no other method is affected.
func TestEveryMethodThatChangesJobsTakesFromTheAllowance(t *testing.T) {
	t.Parallel()
	b := withJobs(t)
	found := 0
	for _, m := range b.srv.Methods() {
		changes := strings.HasPrefix(m.Name, "cron.") && m.Audited || m.Name == "wake"
		if changes != (m.Limit == auth.LimitCronWrites) {
			t.Errorf("%s changes jobs: %v, and takes from %q", m.Name, changes, m.Limit)
		}
		if !changes {
			continue
		}
		found++
		t.Run(m.Name, func(t *testing.T) {
			t.Parallel()
			b := withJobs(t, func(c *gateway.Config) { c.RequestsPerSecond = auth.Off })
			s := b.login(adminToken)
			began := time.Now()
			for n := range 300 {
				if f := s.call(m.Name, []any{"no object"}); f.OK || f.Error.Details["code"] == "RATE_LIMITED" {
					t.Fatalf("call %d: %+v", n+1, f.Error)
				}
			}
			f := overdrawn(s, m.Name, began)
			if f.OK || f.Error.Code != "UNAVAILABLE" || !f.Error.Retryable || f.Error.Details["code"] != "RATE_LIMITED" || f.Error.Details["method"] != m.Name ||
				f.Error.Details["limit"] != 300.0 || f.Error.RetryAfterMs < 1 || f.Error.RetryAfterMs > 60_000 {
				t.Errorf("call 301: %+v", f.Error)
			}
			if again := overdrawn(b.login(adminToken), m.Name, began); again.OK || again.Error.Details["code"] != "RATE_LIMITED" {
				t.Errorf("over another connection: %+v", again.Error)
			}
			if f := s.call("cron.get", []any{"no object"}); f.Error == nil || f.Error.Details["code"] == "RATE_LIMITED" {
				t.Errorf("a read: %+v", f.Error)
			}
			s.must("chat.send", send("main", "hello", "run-"+strconv.Itoa(len(m.Name))))
		})
	}
	if found < 12 {
		t.Errorf("only %d methods change jobs", found)
	}
}

// A small credential could repeat a write without an allowance as fast as its connection permits.
func TestEveryMethodThatWritesTakesFromAnAllowance(t *testing.T) {
	t.Parallel()
	free := []string{ // they stop runs, or change rows that the operator's network has made
		"chat.abort", "tasks.stop", "channels.pairing.approve", "channels.pairing.dismiss", "channels.pairing.revoke",
	}
	for _, m := range withJobs(t).srv.Methods() {
		if m.Scope != chat.ScopeRead && m.Limit == "" && !slices.Contains(free, m.Name) && (m.Audited || m.Scope == chat.ScopeWrite) {
			t.Errorf("%s takes from no allowance", m.Name)
		}
	}
	for _, name := range []string{"sessions.reset", "sessions.delete"} {
		s := start(t, func(c *gateway.Config) { c.ChatsPerMinute = 2 }).login(adminToken)
		for range 2 {
			s.must(name, params{"key": "main"})
		}
		if f := s.call(name, params{"key": "main"}); f.OK || f.Error.Details["code"] != "RATE_LIMITED" {
			t.Errorf("the third %s in a minute with an allowance of two: %+v", name, f.Error)
		}
	}
}

// overdrawn calls until the allowance refuses, at most as often as it may have been refilled since
// the calls began: five times a second.
func overdrawn(s *socket, method string, began time.Time) (last frame) {
	for n := 0; n < 2+int(5*time.Since(began).Seconds()); n++ {
		if last = s.call(method, []any{"no object"}); last.Error != nil && last.Error.Details["code"] == "RATE_LIMITED" {
			break
		}
	}
	return last
}
