package gateway_test

import (
	"maps"
	"net/http"
	"strings"
	"testing"

	"github.com/google/uuid"

	"laneway/internal/chat"
)

// hostile returns two people whose credentials see only their own data, each with keys that they may not use. None of the sessions exists
// yet.
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

// absentAnswers has the answers for a session that does not exist, of the methods that only read or end existing work.
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

// A session with such a key that the caller created before this check existed gives no access, and the caller receives none of its events.
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
