package gateway_test

import (
	"cmp"
	"context"
	"crypto/sha256"
	"maps"
	"net/http"
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

// Methods that a principal with visibility own may call show it no data of other principals, and
// change none.
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

// hostile returns two people whose credentials see only their own data, each with keys that they
// may not use. None of the sessions exists yet.
func hostile() map[string][]string {
	common := []string{
		"main", "agent:main:main", "agent:main:telegram:direct:4711", "agent:main:telegram:group:-5:topic:9", "agent:main:box:direct:1", "agent:main:hook:deploy",
		"agent:main:api:gateway:phone", "agent:main:api:5c3f5f0e-93c4-4f0b-8a2e-0a1b2c3d4e5f", "agent:main:cron:job:schedule-1803974400000",
	}
	return map[string][]string{
		annaToken: append([]string{"agent:main:api:otto:tablet"}, common...), ottoToken: append([]string{"agent:main:api:anna:tablet"}, common...),
	}
}

func wantAbsent(t *testing.T, what string, f frame) {
	t.Helper()
	if f.OK || f.Error == nil || f.Error.Details["code"] != string(chat.CodeSessionNotFound) {
		t.Errorf("%s: %s %+v", what, f.Payload, f.Error)
	}
}

// absentAnswers has the answers for a session that does not exist, of the methods that only read or
// end existing work.
func absentAnswers() map[string]string {
	return map[string]string{
		"chat.abort": `{"ok":true,"aborted":false,"runIds":[]}`, "sessions.describe": `{"session":null}`, "sessions.delete": `"deleted":false,"archived":[]}`,
		"chat.history": `"sessionId":"","messages":[],"hasMore":false,"totalMessages":0,"deltaCursor":"m:0","pendingInputs":{"items":[],"total":0},"sessionInfo":{"key":`,
	}
}

// wantHidden expects the answer of a method for a session that does not exist.
func wantHidden(t *testing.T, method, what string, f frame) {
	t.Helper()
	answer, looks := absentAnswers()[method]
	if !looks {
		wantAbsent(t, what, f)
		return
	}
	if text := string(f.Payload); !f.OK || !strings.Contains(text, answer) || strings.Contains(text, "hasActiveRun\":true") || strings.Contains(text, "createdAt") {
		t.Errorf("%s: %s %+v", what, f.Payload, f.Error)
	}
}

func TestNoMethodTakesASessionThatIsMadeForAnother(t *testing.T) {
	t.Parallel()
	b := start(t, withHooks)
	admin := b.login(adminToken)
	methods := map[string]string{
		"chat.send": "sessionKey", "chat.abort": "sessionKey", "chat.history": "sessionKey", "agent": "sessionKey", "wake": "sessionKey",
		"sessions.describe": "key", "sessions.reset": "key", "sessions.delete": "key",
	}
	given := map[string]any{"message": "mine now", "text": "mine now", "mode": "now"}
	for token, keys := range hostile() {
		s := b.login(token)
		for _, key := range keys {
			n := 0
			for _, m := range b.srv.Methods() {
				p := params{methods[m.Name]: key}
				if methods[m.Name] == "" {
					continue
				}
				for _, f := range m.Params.Members() {
					if v, ok := given[f.Name]; ok {
						p[f.Name] = v
					}
					if f.Name == "idempotencyKey" && f.Required {
						p[f.Name] = uuid.NewString()
					}
				}
				for _, mode := range []string{"now", "next-heartbeat"} {
					if n++; p["mode"] != nil {
						p["mode"] = mode
					}
					wantHidden(t, m.Name, m.Name+" of "+key, s.call(m.Name, p))
				}
			}
			if n != 2*len(methods) {
				t.Errorf("%d calls were tried", n)
			}
			got := b.post("/v1/chat/completions", ask("mine now"), header("Authorization", "Bearer "+token), header("X-Laneway-Session-Key", key))
			if got.status != http.StatusNotFound {
				t.Errorf("a completion in %s: %d %s", key, got.status, got.body)
			}
			if row := admin.must("sessions.describe", params{"key": key})["session"]; row != nil {
				t.Errorf("%s was made: %v", key, row)
			}
		}
		wantAbsent(t, "agent without a session", s.call("agent", params{"message": "m", "idempotencyKey": uuid.NewString()}))
		wantAbsent(t, "wake without a session", s.call("wake", params{"mode": "now", "text": "m"}))
		// Free names and completions are allowed.
		s.must("chat.send", send("agent:main:"+token[:4]+"-notes", "hello", uuid.NewString()))
		for _, more := range []params{{"conversation": "phone"}, {"conversation": "phone"}, {}} {
			if got := b.post("/v1/responses", respond("hello", more), header("Authorization", "Bearer "+token)); got.status != http.StatusOK {
				t.Errorf("a response of one's own: %d %s", got.status, got.body)
			}
		}
		s.must("chat.history", params{"sessionKey": "agent:main:api:" + token[:4] + ":phone"})
	}
	for _, key := range []string{"agent:main:telegram:direct:4711", "agent:main:api:anna:x", "agent:main:hook:deploy", "agent:main:cron:job:x"} {
		body := `{"message":"mine now","sessionKey":"` + key + `"}`
		if got := b.post("/hooks/free", body, anonymous, signed(body)); got.status != http.StatusNotFound {
			t.Errorf("a hook in %s: %d %s", key, got.status, got.body)
		}
	}
}

// A session with such a key that the caller created before this check existed gives no access, and
// the caller receives none of its events.
func TestASessionThatWasMadeTooEarlyGivesNoAccess(t *testing.T) {
	t.Parallel()
	b := start(t)
	key := chat.SessionKey{Agent: "main", Rest: "telegram:direct:4711"}
	b.fakeBackend.set(func() { b.fakeBackend.fakeSession(key, "otto") })
	admin, otto := b.login(adminToken), b.login(ottoToken)
	otto.must("sessions.subscribe", params{})
	run := uuid.NewString()
	admin.must("chat.send", send(key.String(), "for a person's eyes", run))
	admin.next(chatState(run, "final"))
	wantHidden(t, "chat.history", "history", otto.call("chat.history", params{"sessionKey": key.String()}))
	list := otto.must("sessions.list", params{})
	if n := len(list["sessions"].([]any)); n != 0 {
		t.Errorf("the list has %v", list["sessions"])
	}
	own := uuid.NewString()
	otto.must("chat.send", send("agent:main:ottos", "hello", own))
	otto.next(func(f frame) bool {
		if isEvent("chat", run)(f) || isEvent("agent", run)(f) {
			t.Errorf("otto hears %s %s", f.Event, f.Payload)
		}
		return chatState(own, "final")(f)
	})
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
	b.fakeBackend.set(func() {
		if n := len(b.fakeBackend.messages); n != 0 {
			t.Errorf("%d messages were accepted", n)
		}
	})
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
		t.fakeBackend.publish(chat.Event{Kind: chat.EventSession, Session: chat.MainKey("main"), Principal: "gateway", Reason: "created"})
		s.next(func(f frame) bool { return f.Event == "sessions.changed" })
		t.fakeBackend.set(func() { t.fakeBackend.down = true })
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
