package teste2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode"

	"laneway/internal/testrun"
)

// forged must not begin a line of the log.
const forged = "level=FATAL"

// hostile are strings, as JSON, that have broken programs: they end a string in C or SQL, forge a
// line, are invalid text, or are too large.
func hostile() map[string]json.RawMessage {
	long := strings.Repeat("x", 20_000) // all values of a method fit into one message
	texts := map[string]string{
		"quotes": `'"` + "`" + `\`, "SQL": `x'); DROP TABLE cron_jobs; --`, "placeholders": `$1 ? :name %s {} %_*[^a]\`, "JSON": `{"a":[1,null]}`,
		"lines": "a\r\n" + forged + " b", "bidi": "a\u202eb\u2066c", "blank": " \u00a0\u200b", "private": "\ufffe\U0010ffff\ue000", "empty": "", "long": long,
	}
	out := map[string]json.RawMessage{
		"NUL": json.RawMessage(`"a\u0000b"`), "half a pair": json.RawMessage(`"a\ud800b"`), "halves in the wrong order": json.RawMessage(`"\udc00\ud800"`),
	}
	for name, text := range texts {
		raw, err := json.Marshal(text)
		if err != nil {
			panic(err)
		}
		out[name] = raw
	}
	return out
}

// publishedMethod is a method in docs/protocol.json.
type publishedMethod struct {
	Name, Scope string
	// IgnoredParams are accepted and ignored.
	IgnoredParams []string
	Params        struct {
		Properties map[string]struct {
			Type  string
			Items struct{ Type string }
		}
	}
}

func publishedMethods(t *testing.T) []publishedMethod {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("..", "..", "docs", "protocol.json"))
	if err != nil {
		t.Fatal(err)
	}
	var doc struct{ Methods []publishedMethod }
	if err := json.Unmarshal(raw, &doc); err != nil || len(doc.Methods) < 30 {
		t.Fatalf("%d methods, %v", len(doc.Methods), err)
	}
	return doc.Methods
}

// honest are params with which a method has an effect; n makes them new.
func honest(method, job string, n int) map[string]any {
	year := map[string]any{"kind": "cron", "expr": "0 0 1 1 *", "tz": "UTC"}
	name := "n" + strconv.Itoa(n)
	switch method {
	case "agent", "chat.send":
		return map[string]any{"sessionKey": "agent:main:hostile", "message": "hello", "idempotencyKey": method + name}
	case "wake":
		return map[string]any{"mode": "next-heartbeat", "text": "hello", "sessionKey": "agent:main:hostile"}
	case "chat.abort", "chat.history":
		return map[string]any{"sessionKey": "agent:main:other"}
	case "sessions.delete", "sessions.describe", "sessions.reset":
		return map[string]any{"key": "agent:main:other"}
	case "cron.add":
		return jobParams(name, year, nil)
	case "cron.create":
		return map[string]any{"name": name, "schedule": year, "message": "work"}
	case "cron.update":
		return map[string]any{"id": job, "patch": map[string]any{}}
	case "cron.backfill":
		return map[string]any{"id": job, "fromMs": 1, "toMs": 2}
	case "cron.pause":
		return map[string]any{"id": job, "note": "because"}
	case "cron.toggle":
		return map[string]any{"jobId": job, "enabled": true}
	case "cron.delete", "cron.remove": // the job of the test is kept
		return map[string]any{"jobId": "none"}
	case "questions.answer":
		return map[string]any{"id": "none", "option": 1}
	case "runs.get", "tasks.get", "tasks.stop":
		return map[string]any{"id": "none"}
	case "cron.get", "cron.resume", "cron.run":
		return map[string]any{"id": job}
	case "channels.pairing.dismiss", "channels.pairing.revoke", "channels.pairing.approve":
		return map[string]any{"channel": "telegram", "accountId": "default", "requestId": "none", "senderId": "7"}
	default:
		return map[string]any{}
	}
}

// inside returns the members of params that are objects which the handler parses.
func inside(param string) []map[string]any {
	member := func(base map[string]any, names ...string) (out []map[string]any) {
		for _, name := range names {
			m := maps.Clone(base)
			m[name] = nil
			out = append(out, m)
		}
		return out
	}
	switch param {
	case "schedule":
		return slices.Concat(
			member(map[string]any{"kind": "cron", "expr": "0 0 1 1 *"}, "kind", "expr", "tz"),
			member(map[string]any{"kind": "at"}, "at"), member(map[string]any{"kind": "every", "everyMs": 86_400_000}, "kind"))
	case "payload":
		return slices.Concat(member(map[string]any{"kind": "agentTurn", "message": "work"}, "kind", "message", "model", "thinking"),
			member(map[string]any{"kind": "systemEvent"}, "text"))
	case "delivery", "failureAlert":
		return slices.Concat(member(map[string]any{"mode": "announce", "channel": "telegram", "to": "7"}, "mode", "channel", "to", "threadId", "accountId"),
			member(map[string]any{"mode": "webhook"}, "to"), member(map[string]any{"mode": "announce", "channel": "web"}, "to"))
	case "owner":
		return member(map[string]any{}, "agentId", "sessionKey", "accountId")
	case "dst":
		return member(map[string]any{}, "gap", "overlap")
	case "missed":
		return member(map[string]any{}, "policy")
	}
	return nil
}

// plant puts a value into the placeholder of inside.
func plant(in map[string]any, value any) map[string]any {
	out := maps.Clone(in)
	for name, v := range out {
		if v == nil {
			out[name] = value
		}
	}
	return out
}

// Hostile strings are put into every field of every published method. Each call is answered, or
// refused with its reason; none causes a defect, and none reaches the database as anything but a
// value. On PostgreSQL a normal run makes one call in four, with a different selection each time,
// because the code before the store is the same.
func TestNoStringInAnyFieldOfAnyMethodBreaksAnything(t *testing.T) {
	if testing.Short() {
		t.Skip("long")
	}
	onBothStores(t, func(t *testing.T, database string) {
		g := Install(t, database, "agents: {main: {runner: echo}}\nlimits: {chat: 0, requests: 0, cron_writes: 0}\n")
		g.Start()
		c := connect(t, g)
		job := addJob(t, c, `Robert'); DROP TABLE cron_jobs; --`, map[string]any{"kind": "cron", "expr": "0 0 1 1 *", "tz": "UTC"}, nil)
		every := 1
		if database != "" {
			every = testrun.Size(4, 1)
		}
		offered, calls := 0, 0
		try := func(method, field, kind string, params map[string]any) {
			if offered++; offered%every != 0 { // maps have no order, so every run selects different calls
				return
			}
			calls++
			_, err := c.Call(method, params, 30*time.Second)
			refusal, refused := errors.AsType[*WireError](err)
			switch {
			case err == nil:
			case !refused:
				t.Fatalf("%s with %s in %s: %v", method, kind, field, err)
			case refusal.Code != "INVALID_REQUEST" || refusal.Retryable || strings.ContainsFunc(refusal.Message, unprintable) || len(refusal.Message) > 2000:
				t.Errorf("%s with %s in %s: %.300v", method, kind, field, refusal)
			}
		}
		for _, m := range publishedMethods(t) {
			for kind, value := range hostile() {
				hostileCalls(m, job.ID, value, func() int { return offered }, func(method, field string, params map[string]any) { try(method, field, kind, params) })
			}
		}
		t.Logf("%d of %d calls", calls, offered)
		if offered < 1500 || calls < 1500/every {
			t.Errorf("only %d calls were made", calls)
		}
		var list struct{ Jobs []map[string]any }
		if err := c.Into(&list, "cron.list", map[string]any{"includeDisabled": true, "query": "Robert');"}); err != nil {
			t.Errorf("listing the jobs: %v", err)
		}
		if lines := suspicious(g.Output()); lines != "" {
			t.Errorf("the log:\n%s", lines)
		}
		o := OpenOracle(t, g, database)
		if n := o.Count("SELECT count(*) FROM cron_jobs WHERE id = '" + job.ID + "'"); n != 1 {
			t.Errorf("the first job is there %d times", n)
		}
		o.Check(15 * time.Second)
	})
}

// unprintable reports characters that make a sentence look different from its content.
func unprintable(r rune) bool {
	return unicode.IsControl(r) || (r >= 0x202a && r <= 0x202e) || (r >= 0x2066 && r <= 0x2069)
}

// hostileCalls makes the calls of a method with a value in each of its fields; ignored fields are
// all set in one call.
func hostileCalls(m publishedMethod, job string, value any, next func() int, try func(method, field string, params map[string]any)) {
	together := map[string]any{}
	for field, shape := range m.Params.Properties {
		planted := value
		switch {
		case shape.Type == "array" && shape.Items.Type == "string":
			planted = []any{value}
		case shape.Type != "" && shape.Type != "string":
			continue
		}
		if slices.Contains(m.IgnoredParams, field) && !strings.HasPrefix(m.Name, "cron.") {
			together[field] = planted
			continue
		}
		p := honest(m.Name, job, next())
		p[field] = planted
		try(m.Name, field, p)
		for _, in := range inside(field) {
			p := honest(m.Name, job, next())
			p[field] = plant(in, value)
			try(m.Name, field+" inside", p)
		}
		if m.Name == "cron.add" {
			try("cron.update", "patch."+field, map[string]any{"id": job, "patch": map[string]any{field: planted}})
			for _, in := range inside(field) {
				try("cron.update", "patch."+field+" inside", map[string]any{"id": job, "patch": map[string]any{field: plant(in, value)}})
			}
		}
	}
	if len(together) > 0 {
		p := honest(m.Name, job, next())
		maps.Copy(p, together)
		try(m.Name, "all fields without an effect", p)
	}
}

// suspicious returns the lines of a log that show a defect, or that a client forged.
func suspicious(log string) string {
	var out []string
	for line := range strings.Lines(log) {
		if strings.Contains(line, "panic") || strings.Contains(line, " level=ERROR ") || strings.HasPrefix(line, forged) || strings.Contains(line, "\u202e") {
			out = append(out, line[:min(len(line), 500)])
		}
	}
	return strings.Join(out, "")
}

const ciSecret = "hook-secret-0123456789-abcdefghijk"

// pageHeaders are the headers that a browser adds to a request that a page of another site makes
// without script: an image, a form, a link.
func pageHeaders(dest, mode string) map[string]string {
	return map[string]string{
		"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": mode, "Sec-Fetch-Dest": dest, "Referer": "https://page.example/",
		"User-Agent": "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/142.0.0.0 Safari/537.36",
		"Accept":     "image/avif,image/webp,*/*;q=0.8", "Accept-Language": "en-US,en;q=0.9",
	}
}

// sent sends one request with these headers; Host is used as the host.
func sent(t *testing.T, method, url string, header map[string]string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range header {
		if name == "Host" {
			req.Host = value
			continue
		}
		req.Header.Set(name, value)
	}
	return roundTrip(t, req)
}

// A page of any site can make the browser of the operator send any number of requests. It has no
// secret to present, so none of them is a failed login, and the operator's address is not locked.
// Wrong secrets still lock it.
func TestAPageThatPresentsNoSecretLocksNoAddressOut(t *testing.T) {
	t.Parallel()
	g := Proxied(t)
	proxy := "http://" + reverseProxy(t, g)
	models := func(from, secret string, more map[string]string) int {
		header := maps.Clone(more)
		if header == nil {
			header = map[string]string{}
		}
		header["From-Address"] = from
		if secret != "" {
			header["Authorization"] = "Bearer " + secret
		}
		code, _ := sent(t, http.MethodGet, proxy+"/v1/models", header)
		return code
	}
	same := pageHeaders("image", "no-cors") // as from a browser on the gateway's own page
	same["Sec-Fetch-Site"] = "same-origin"
	for name, headers := range map[string]map[string]string{"cross-site": pageHeaders("image", "no-cors"), "same-origin": same, "none": nil} {
		want := http.StatusUnauthorized
		if name == "cross-site" {
			want = http.StatusForbidden
		}
		for range 12 {
			if code := models("203.0.113.20", "", headers); code != want {
				t.Fatalf("%s without a secret: %d, want %d", name, code, want)
			}
		}
	}
	for _, scheme := range []string{"Basic b3BlcmF0b3I6cGFzc3dvcmQ=", "Bearer", "Bearer "} {
		for range 4 {
			if code, _ := sent(t, http.MethodGet, proxy+"/v1/models", map[string]string{"From-Address": "203.0.113.20", "Authorization": scheme}); code != http.StatusUnauthorized {
				t.Fatalf("Authorization %q: %d", scheme, code)
			}
		}
	}
	for range 12 { // a connect without a secret is not a failed login either
		b, err := upgrade(strings.TrimPrefix(proxy, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		if err := b.request("1", "connect", map[string]any{
			"minProtocol": 4, "maxProtocol": 4, "client": map[string]string{"id": "page", "version": "1", "platform": "test", "mode": "webchat"},
		}); err != nil {
			t.Fatal(err)
		}
		if code := b.end(20 * time.Second); code != 1008 {
			t.Fatalf("connect without a secret: %d", code)
		}
		_ = b.Close()
	}
	for _, from := range []string{"203.0.113.20", "203.0.113.9"} { // of the requests, and of the sockets
		if code := models(from, g.Token(), nil); code != http.StatusOK {
			t.Errorf("the right token from %s, after requests without any: %d", from, code)
		}
	}
	for range 10 {
		if code := models("203.0.113.21", "not-the-token-0123456789-abcdefghijkl", nil); code != http.StatusUnauthorized {
			t.Fatalf("a wrong secret: %d", code)
		}
	}
	if code := models("203.0.113.21", g.Token(), nil); code != http.StatusTooManyRequests {
		t.Errorf("the right token, after ten wrong secrets: %d", code)
	}
	if code := models("203.0.113.20", g.Token(), nil); code != http.StatusOK {
		t.Errorf("the right token from the other address: %d", code)
	}
}

// A page whose name resolves to loopback could read the metrics and profiles as if it were local.
// The listener answers only to names of this machine.
func TestTheMetricsListenerAnswersUnderLocalNamesAlone(t *testing.T) {
	t.Parallel()
	g := Install(t, "", "pprof: true\n", "--metrics-listen", "127.0.0.1:0")
	g.Start()
	at := metricsAddress.FindStringSubmatch(g.Output())
	if at == nil {
		t.Fatalf("the metrics listener is not named:\n%s", g.Output())
	}
	_, port, err := net.SplitHostPort(at[1])
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/metrics", "/debug/pprof/", "/debug/pprof/cmdline", "/debug/pprof/heap?debug=1", "/nothing"} {
		for host, known := range map[string]bool{
			at[1]: true, "localhost": true, "localhost:" + port: true, "LOCALHOST:" + port: true, "[::1]:" + port: true, "127.0.0.1": true,
			"rebound.example:" + port: false, "rebound.example": false, "localhost.rebound.example": false, "127.0.0.1.nip.example:" + port: false, "": false,
		} {
			if host == "" {
				continue // net/http fills in the address
			}
			code, body := sent(t, http.MethodGet, "http://"+at[1]+path, map[string]string{"Host": host})
			if refused := code == http.StatusMisdirectedRequest; refused == known {
				t.Errorf("%s under the name %q: %d %.200s", path, host, code, body)
			}
		}
		if code, body := sent(t, http.MethodGet, "http://"+at[1]+path, pageHeaders("image", "no-cors")); code != http.StatusForbidden {
			t.Errorf("%s for an image of another site: %d %.200s", path, code, body)
		}
	}
}

// reverseProxy is a typical reverse proxy: it adds the address of its caller to X-Forwarded-For.
// The callers of a test have the address in the header From-Address, because all of them are on
// this machine.
func reverseProxy(t *testing.T, g *Gateway) string {
	t.Helper()
	target, err := url.Parse(g.URL())
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(&httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(target)
		r.Out.Host = "gateway.example"
		from := r.In.Header.Get("From-Address")
		if from == "" {
			from = "203.0.113.9"
		}
		if before := r.In.Header.Get("X-Forwarded-For"); before != "" {
			from = before + ", " + from
		}
		r.Out.Header.Set("X-Forwarded-For", from)
	}})
	t.Cleanup(srv.Close)
	return strings.TrimPrefix(srv.URL, "http://")
}

// Behind a proxy every client has a local address but is not local: without a credential every
// route refuses, and a client that guesses is locked out by its own address.
func TestAProxyMakesNoClientLocal(t *testing.T) {
	t.Parallel()
	g := Proxied(t)
	proxy := reverseProxy(t, g)
	var methods []string
	for _, m := range table(t) {
		methods = append(methods, m.Name)
	}
	if len(methods) < 40 {
		t.Fatalf("%d methods; that is not the table", len(methods))
	}
	CheckWithoutCredential(t, proxy, methods)
	try := func(from, claimed, token string) int {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+proxy+"/v1/models", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("From-Address", from)
		req.Header.Set("Authorization", "Bearer "+token)
		if claimed != "" {
			req.Header.Set("X-Forwarded-For", claimed)
		}
		status, _ := roundTrip(t, req)
		return status
	}
	began := time.Now()
	for i := range 10 {
		claimed := []string{"", "127.0.0.1", "198.51.100.7"}[i%3] // a different address each time does not help
		if status := try("203.0.113.50", claimed, "a-wrong-token"); status != http.StatusUnauthorized {
			t.Errorf("try %d: %d", i, status)
		}
	}
	if status := try("203.0.113.50", "127.0.0.1", g.Token()); status != http.StatusTooManyRequests && time.Since(began) < 50*time.Second {
		t.Errorf("after ten wrong tokens even the right one is %d, want 429", status)
	}
	if status := try("203.0.113.51", "", g.Token()); status != http.StatusOK {
		t.Errorf("the right token from another address: %d", status)
	}
}

// A hook that may name its session can use one of its own agent that no other principal owns. Any
// other session does not exist for it and receives no message.
func TestAHookThatNamesItsSessionReachesNoOther(t *testing.T) {
	onBothStores(t, func(t *testing.T, database string) {
		g := Install(t, database, "agents: {main: {runner: echo}, other: {runner: echo}}\n"+
			"hooks: {ci: {secret: "+ciSecret+", allow_session_key: true}, cd: {secret: "+ciSecret+", allow_session_key: true}, o: {secret: "+ciSecret+", agent: other, allow_session_key: true}}\n")
		g.Start()
		c := connect(t, g)
		for _, key := range []string{"agent:main:notes", "agent:other:notes"} {
			if _, err := c.Call("chat.send", map[string]any{"sessionKey": key, "message": "hello", "idempotencyKey": "k" + key[6:7]}, 30*time.Second); err != nil {
				t.Fatal(err)
			}
		}
		for i, call := range []struct {
			hook, key string
			want      int
		}{
			{"ci", "agent:main:free", 202},
			{"ci", "agent:main:free", 202},
			{"ci", "free", 202},
			{"ci", "main", 202},
			{"ci", "agent:main:hook:ci", 202},
			{"cd", "agent:main:free", 404},
			{"ci", "agent:main:notes", 404},
			{"ci", "notes", 404},
			{"ci", "agent:main:hook:cd", 404},
			{"ci", "agent:other:main", 404},
			{"ci", "agent:other:free", 404},
			{"ci", "agent:other:notes", 404},
			{"ci", "agent:none:free", 404},
			{"ci", "agent:main:telegram:direct:7", 404},
			{"ci", "agent:main:cron:j:manual-1", 404},
			{"ci", "agent:main:api:anna:x", 404},
			{"o", "main", 202},
			{"o", "agent:other:free", 202},
			{"o", "agent:main:main", 404},
			{"o", "agent:main:free", 404},
		} {
			got := g.Hook(call.hook, ciSecret, fmt.Sprintf(`{"message":"from the hook %d","sessionKey":%q}`, i, call.key))
			if got.Err != nil || got.Status != call.want {
				t.Errorf("%s in %s: %d %s %v, want %d", call.hook, call.key, got.Status, got.Body, got.Err, call.want)
			}
		}
		o := OpenOracle(t, g, database)
		for key, want := range map[string]int{"agent:main:notes": 1, "agent:other:notes": 1, "agent:main:free": 3, "agent:other:free": 1} {
			if n := o.Count("SELECT count(*) FROM inbox WHERE session_key = '" + key + "'"); n != want {
				t.Errorf("%s has %d messages, want %d", key, n, want)
			}
		}
	})
}
