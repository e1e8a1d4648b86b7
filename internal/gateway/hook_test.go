package gateway_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"laneway/internal/chat"
	"laneway/internal/gateway"
	"laneway/internal/gateway/hook"
	"laneway/internal/secret"
)

const hookSecret = "hook-secret-0123456789-0123456789"

func withHooks(c *gateway.Config) {
	key := secret.New(hookSecret)
	c.Hooks = map[string]hook.Hook{
		"deploy": {Secret: key, Prefix: "Deployed: "},
		"free":   {Secret: key, AllowSessionKey: true},
		"push":   {Secret: key, Scheme: hook.GitHub, Session: "agent:main:code"},
		"room":   {Secret: key, Session: "agent:main:telegram:direct:42"},
	}
}

func hmacOf(text string) string {
	mac := hmac.New(sha256.New, []byte(hookSecret))
	_, _ = mac.Write([]byte(text))
	return hex.EncodeToString(mac.Sum(nil))
}

func signedAt(at time.Time, body string) func(*http.Request) {
	t := strconv.FormatInt(at.Unix(), 10)
	return header("X-Laneway-Signature", "t="+t+",v1="+hmacOf(t+"."+body))
}

func signed(body string) func(*http.Request) { return signedAt(time.Now(), body) }

func githubSigned(body string) func(*http.Request) {
	return header("X-Hub-Signature-256", "sha256="+hmacOf(body))
}

func anonymous(r *http.Request) { r.Header.Del("Authorization") }

func TestHookMakesAnExternalMessage(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		hook, body, text, session string
		sign                      func(string) func(*http.Request)
	}{
		"text":            {hook: "deploy", body: "v1.2", text: "Deployed: v1.2", session: "agent:main:hook:deploy", sign: signed},
		"message":         {hook: "deploy", body: `{"message":"hello"}`, text: "hello", session: "agent:main:hook:deploy", sign: signed},
		"other json":      {hook: "deploy", body: `{"a":1}`, text: `Deployed: {"a":1}`, session: "agent:main:hook:deploy", sign: signed},
		"message no text": {hook: "deploy", body: `{"message":7}`, text: `Deployed: {"message":7}`, session: "agent:main:hook:deploy", sign: signed},
		"session ignored": {hook: "deploy", body: `{"message":"m","sessionKey":"main"}`, text: "m", session: "agent:main:hook:deploy", sign: signed},
		"session taken":   {hook: "free", body: `{"message":"m","sessionKey":"main"}`, text: "m", session: "agent:main:main", sign: signed},
		"command":         {hook: "deploy", body: `{"message":"hello /stop"}`, text: "hello /stop", session: "agent:main:hook:deploy", sign: signed},
		"github":          {hook: "push", body: `{"ref":"main"}`, text: `{"ref":"main"}`, session: "agent:main:code", sign: githubSigned},
		"to a chat":       {hook: "room", body: "x", text: "x", session: "agent:main:telegram:direct:42", sign: signed},
		"upper-case proof": {hook: "deploy", body: "v", text: "Deployed: v", session: "agent:main:hook:deploy", sign: func(b string) func(*http.Request) {
			at := strconv.FormatInt(time.Now().Unix(), 10)
			return header("X-Laneway-Signature", "t="+at+",v1="+strings.ToUpper(hmacOf(at+"."+b)))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := start(t, withHooks)
			got := b.post("/hooks/"+tc.hook, tc.body, anonymous, tc.sign(tc.body))
			body := got.json(t)
			if got.status != http.StatusAccepted || body["ok"] != true || body["duplicate"] != false || body["sessionKey"] != tc.session {
				t.Fatalf("%d %s", got.status, got.body)
			}
			m := b.core.only(t)
			if m.ID != body["runId"] || m.Content.Text != tc.text || !m.Content.External || m.Session.String() != tc.session || m.Channel != "hook" {
				t.Errorf("message %+v", m)
			}
			if want := tc.hook == "room"; want != (m.Content.Options.ReplyTo == chat.Target{Channel: "telegram", ChatID: "42"}) {
				t.Errorf("reply goes to %+v", m.Content.Options.ReplyTo)
			}
		})
	}
}

func TestHookRefusesWhatItCannotProve(t *testing.T) {
	t.Parallel()
	b := start(t, withHooks)
	const body = `{"message":"x"}`
	now := time.Now()
	unknown := b.post("/hooks/absent", body, anonymous, signed(body))
	for name, tc := range map[string]struct {
		hook string
		sign func(*http.Request)
	}{
		"no signature":     {"deploy", anonymous},
		"other body":       {"deploy", signed(body + " ")},
		"other secret":     {"deploy", header("X-Laneway-Signature", fmt.Sprintf("t=%d,v1=%064d", now.Unix(), 0))},
		"too old":          {"deploy", signedAt(now.Add(-301*time.Second), body)},
		"from the future":  {"deploy", signedAt(now.Add(310*time.Second), body)},
		"far future":       {"deploy", header("X-Laneway-Signature", "t=-9223372036854775808,v1="+hmacOf("-9223372036854775808."+body))},
		"other time":       {"deploy", header("X-Laneway-Signature", fmt.Sprintf("t=%d,v1=%s", now.Unix(), hmacOf(strconv.FormatInt(now.Unix()-1, 10)+"."+body)))},
		"other scheme":     {"deploy", githubSigned(body)},
		"laneway's":        {"push", signed(body)},
		"not hex":          {"push", header("X-Hub-Signature-256", "sha256=zz")},
		"empty":            {"push", header("X-Hub-Signature-256", "sha256=")},
		"token is no help": {"deploy", header("Authorization", "Bearer "+adminToken)},
	} {
		got := b.post("/hooks/"+tc.hook, body, anonymous, tc.sign)
		if got.status != http.StatusUnauthorized || string(got.body) != string(unknown.body) {
			t.Errorf("%s: %d %s, want what an unknown hook answers: %d %s", name, got.status, got.body, unknown.status, unknown.body)
		}
	}
	if b.core.accepted() != 0 {
		t.Errorf("%d messages were accepted", b.core.accepted())
	}
}

func TestRepeatedHookStartsNothing(t *testing.T) {
	t.Parallel()
	b := start(t, withHooks)
	const body = `{"message":"x"}`
	sign := signed(body)
	first := b.post("/hooks/deploy", body, anonymous, sign).json(t)
	again := b.post("/hooks/deploy", body, anonymous, sign).json(t)
	if again["runId"] != first["runId"] || again["duplicate"] != true || b.core.accepted() != 1 {
		t.Errorf("first %v, again %v", first, again)
	}
	if got := b.post("/hooks/deploy", body, anonymous, sign, header("Idempotency-Key", "another")); got.status != http.StatusConflict {
		t.Errorf("a recorded call under another key: %d %s", got.status, got.body)
	}

	key := header("Idempotency-Key", "k")
	one := b.post("/hooks/deploy", body, anonymous, signedAt(time.Now().Add(-time.Minute), body), key).json(t)
	two := b.post("/hooks/deploy", body, anonymous, signedAt(time.Now().Add(-2*time.Minute), body), key).json(t)
	if one["duplicate"] != false || two["duplicate"] != true || one["runId"] != two["runId"] {
		t.Errorf("signed again: %v, %v", one, two)
	}
	if got := b.post("/hooks/deploy", "other", anonymous, signed("other"), key); got.status != http.StatusConflict {
		t.Errorf("the key with another body: %d %s", got.status, got.body)
	}

	delivery := header("X-GitHub-Delivery", "0b6c1f7e")
	hub := b.post("/hooks/push", body, anonymous, githubSigned(body), delivery).json(t)
	if hubAgain := b.post("/hooks/push", body, anonymous, githubSigned(body), delivery).json(t); hubAgain["duplicate"] != true || hub["runId"] != hubAgain["runId"] {
		t.Errorf("github: %v, %v", hub, hubAgain)
	}
}

func TestHooksNameTheEventOfTheirSender(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ header, name, want string }{
		{"X-GitHub-Event", "pull_request", "X-GitHub-Event: pull_request\n"},
		{"X-Gitlab-Event", "Merge Request Hook", "X-Gitlab-Event: Merge Request Hook\n"},
		{"X-GitHub-Event", "push\u00a0[system]", ""},
		{"X-Other-Event", "push", ""},
	} {
		b := start(t, withHooks)
		body := `{"zen":"` + c.header + c.name + `"}`
		got := b.post("/hooks/push", body, anonymous, githubSigned(body), header(c.header, c.name))
		if got.status != http.StatusAccepted {
			t.Fatalf("%s: %d %s", c.header, got.status, got.body)
		}
		m := b.core.only(t)
		if !strings.HasSuffix(m.Content.Text, c.want+body) || c.want == "" && strings.Contains(m.Content.Text, "Event: ") {
			t.Errorf("%s: %s is the message %q", c.header, c.name, m.Content.Text)
		}
	}
}

// GitHub signs only the body: deliveries with the same body have the same signature.
func TestDeliveriesWithOneBodyAreReported(t *testing.T) {
	t.Parallel()
	b := start(t, withHooks)
	const body = `{"zen":"Keep it logically awesome."}`
	seen := map[any]bool{}
	for _, id := range []func(*http.Request){
		header("X-GitHub-Delivery", "d1"), header("X-GitHub-Delivery", "d2"), anonymous,
	} {
		for _, again := range []bool{false, true} {
			got := b.post("/hooks/push", body, anonymous, githubSigned(body), id)
			run := got.json(t)["runId"]
			if got.status != http.StatusAccepted || got.json(t)["duplicate"] != again || seen[run] != again {
				t.Errorf("delivery %d, again %v: %d %s", len(seen)+1, again, got.status, got.body)
			}
			seen[run] = true
		}
	}
	// Headers that GitHub does not send are ignored: a recorded delivery is the same one with every
	// key.
	for _, key := range []string{"k1", "k2"} {
		for _, delivery := range []func(*http.Request){header("X-GitHub-Delivery", "d1"), anonymous} {
			again := b.post("/hooks/push", body, anonymous, githubSigned(body), delivery, header("Idempotency-Key", key)).json(t)
			if again["duplicate"] != true || !seen[again["runId"]] {
				t.Errorf("a recorded delivery under the key %s: %v", key, again)
			}
		}
	}
	if len(seen) != 3 || b.core.accepted() != 3 {
		t.Errorf("%d deliveries made %d messages", len(seen), b.core.accepted())
	}
}

func TestHookAllowanceIsForThoseWhoProveThemselves(t *testing.T) {
	t.Parallel()
	b := start(t, withHooks, func(c *gateway.Config) { c.HooksPerMinute = 2 })
	for range 5 {
		b.post("/hooks/deploy", "x", anonymous)
		b.get(http.MethodGet, "/hooks/deploy")
	}
	for i, want := range []int{http.StatusAccepted, http.StatusAccepted, http.StatusTooManyRequests} {
		body := fmt.Sprint("call ", i)
		if got := b.post("/hooks/deploy", body, anonymous, signed(body)); got.status != want {
			t.Errorf("call %d: %d %s, want %d", i, got.status, got.body, want)
		}
	}
	if got := b.post("/hooks/room", "x", anonymous, signed("x")); got.status != http.StatusAccepted {
		t.Errorf("another hook: %d %s", got.status, got.body)
	}
}

func TestHookAnswersOtherRefusalsByTheirStatus(t *testing.T) {
	t.Parallel()
	large := strings.Repeat("x", 262_145)
	for name, tc := range map[string]struct {
		body   string
		refuse error
		status int
	}{
		"too large":  {body: large, status: 413},
		"not utf-8":  {body: "\xff", status: 400},
		"queue full": {body: "x", refuse: chat.ErrQueueFull, status: 429},
		"draining":   {body: "x", refuse: chat.ErrDraining, status: 503},
		"database":   {body: "x", refuse: chat.ErrStoreUnavailable, status: 503},
	} {
		b := start(t, withHooks)
		b.core.set(func() { b.core.refuse = tc.refuse })
		if got := b.post("/hooks/deploy", tc.body, anonymous, signed(tc.body)); got.status != tc.status {
			t.Errorf("%s: %d %s, want %d", name, got.status, got.body, tc.status)
		}
	}
	b := start(t, withHooks)
	if status, h, _ := b.get(http.MethodGet, "/hooks/deploy"); status != http.StatusMethodNotAllowed || h.Get("Allow") != "POST" {
		t.Errorf("GET: %d %v", status, h)
	}
}

func TestHookConfigurationIsChecked(t *testing.T) {
	t.Parallel()
	good := secret.New(hookSecret)
	for name, hooks := range map[string]map[string]hook.Hook{
		"short secret": {"a": {Secret: secret.New("short")}},
		"no secret":    {"a": {}},
		"name":         {"A b": {Secret: good}},
		"scheme":       {"a": {Secret: good, Scheme: "plain"}},
	} {
		if _, err := gateway.New(gateway.Config{Credentials: credentials(), Hooks: hooks}, nil, nil); err == nil {
			t.Errorf("%s: accepted", name)
		} else if strings.Contains(err.Error(), "short\"") {
			t.Errorf("%s: the error shows the secret: %v", name, err)
		}
	}
}
