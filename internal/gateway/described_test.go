package gateway_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"laneway/internal/chat"
	"laneway/internal/gateway"
	"laneway/internal/wire/schema"
)

// A total of a list stops at its bound and says so. The messages of one transcript are counted to
// the end: a page finds its place by their number.
func TestTotalsOfAllListsSayWhereTheyStop(t *testing.T) {
	t.Parallel()
	_, b := openLobby(t, withBook(&jobBook{}))
	exact := []string{"totalMessages", "totalTokens", "total_tokens"}
	var bounded []string
	seen := map[*schema.Type]bool{}
	var look func(method string, typ *schema.Type)
	look = func(method string, typ *schema.Type) {
		if typ == nil || seen[typ] {
			return
		}
		seen[typ] = true
		members := map[string]bool{}
		for _, f := range typ.Fields {
			members[f.Name] = true
			look(method, f.Type)
		}
		look(method, typ.Items)
		for _, v := range typ.Variants {
			look(method, v)
		}
		for name := range members {
			if !strings.HasPrefix(name, "total") && name != "known" || strings.HasSuffix(name, "IsLowerBound") || slices.Contains(exact, name) {
				continue
			}
			flag := "totalIsLowerBound"
			if name == "known" {
				flag = "knownIsLowerBound"
			}
			if bounded = append(bounded, method+" "+name); !members[flag] {
				t.Errorf("%s: %s of %s has no %s", method, name, typ.Name, flag)
			}
		}
	}
	for _, m := range b.srv.Methods() {
		look(m.Name, m.Result)
	}
	slices.Sort(bounded)
	if want := []string{"chat.history total", "cron.list total", "cron.runs total", "sessions.list totalCount", "sessions.subscribe totalCount", "status known"}; !slices.Equal(bounded, want) {
		t.Errorf("the totals are %v, want %v", bounded, want)
	}
}

func TestParamsAreCheckedInTheWordsOfTheProtocol(t *testing.T) {
	t.Parallel()
	b := start(t)
	s := b.login(adminToken)
	limit := func(field string, n float64) params {
		return params{"code": "LIMIT_EXCEEDED", "field": field, "limit": n}
	}
	with := func(name string, v any) params {
		p := send("main", "x", "k")
		p[name] = v
		return p
	}
	for _, tc := range []struct {
		method  string
		params  any
		message string
		details params
	}{
		{"nope", nil, "unknown method: nope", nil},
		{"cron.toggle.all", params{}, "unknown method: cron.toggle.all", nil},
		{"chat.send", params{"sessionKey": "main", "idempotencyKey": "k"}, "invalid chat.send params: must have required property 'message'", nil},
		{"chat.send", nil, "invalid chat.send params: must have required property 'sessionKey'", nil},
		{"chat.send", []any{}, "invalid chat.send params: must be object", nil},
		{"chat.send", "text", "invalid chat.send params: must be object", nil},
		{"chat.send", with("bogus", 1), "invalid chat.send params: at root: unexpected property 'bogus'", nil},
		{"chat.send", with("Message", "x"), "invalid chat.send params: at root: unexpected property 'Message'", nil},
		{"chat.send", with("message", 5), "invalid chat.send params: at /message: must be string", nil},
		{"chat.send", with("message", nil), "invalid chat.send params: at /message: must be string", nil},
		{"chat.send", with("message", " \n\t"), "invalid chat.send params: at /message: must not be blank", nil},
		{"chat.send", with("message", strings.Repeat("é", 131_073)), "invalid chat.send params: at /message: must NOT have more than 262144 bytes", limit("message", 262_144)},
		{"chat.send", with("timeoutMs", 1.5), "invalid chat.send params: at /timeoutMs: must be integer", nil},
		{"chat.send", with("timeoutMs", "5"), "invalid chat.send params: at /timeoutMs: must be integer", nil},
		{"chat.send", with("timeoutMs", -1), "invalid chat.send params: at /timeoutMs: must be >= 0", nil},
		{"chat.send", with("timeoutMs", 86_400_001), "invalid chat.send params: at /timeoutMs: must be <= 86400000", limit("timeoutMs", 86_400_000)},
		{"chat.send", with("timeoutMs", float64(1<<60)), "invalid chat.send params: at /timeoutMs: must be integer", nil},
		{"chat.send", with("deliver", "yes"), "invalid chat.send params: at /deliver: must be boolean", nil},
		{"chat.send", with("queueMode", "jump"), "invalid chat.send params: at /queueMode: must be one of queue, followup, interrupt, collect, steer", nil},
		{"chat.send", with("attachments", []any{params{}}), "invalid chat.send params: at /attachments/0: must have required property 'fileId'", nil},
		{"chat.send", with("attachments", []any{params{"fileId": "file-1"}}), "invalid chat.send params: at /attachments: this gateway keeps no files", nil},
		{"chat.send", with("attachments", params{}), "invalid chat.send params: at /attachments: must be array", nil},
		{"chat.send", with("idempotencyKey", "a:b"), "invalid chat.send params: at /idempotencyKey: must not contain ':'", nil},
		{"chat.send", with("idempotencyKey", "a b"), "invalid chat.send params: at /idempotencyKey: must be 1 to 128 printable ASCII characters without blanks", nil},
		{"chat.send", with("agentId", "other"), "invalid chat.send params: at /agentId: does not match the agent of the session key", nil},
		{"chat.send", with("sessionKey", "agent:main"), "invalid chat.send params: at /sessionKey: ", nil},
		{"chat.send", with("sessionKey", "a\u202eb"), "invalid chat.send params: at /sessionKey: ", nil},
		{"chat.history", params{"sessionKey": "main", "limit": 1001}, "invalid chat.history params: at /limit: must be <= 1000", limit("limit", 1000)},
		{"chat.history", params{"sessionKey": "main", "limit": 0}, "invalid chat.history params: at /limit: must be >= 1", nil},
		{"wake", params{"mode": "later", "text": "x"}, "invalid wake params: at /mode: must be one of now, next-heartbeat", nil},
		{"sessions.describe", params{"key": ""}, "invalid sessions.describe params: at /key: must NOT have fewer than 1 characters", nil},
		{"health", params{"probe": 1}, "invalid health params: at /probe: must be boolean", nil},
	} {
		f := s.call(tc.method, tc.params)
		if f.OK || f.Error.Code != "INVALID_REQUEST" || !strings.HasPrefix(f.Error.Message, tc.message) || f.Error.Retryable {
			t.Errorf("%s %.60v: %+v, want %q", tc.method, tc.params, f.Error, tc.message)
			continue
		}
		if !reflect.DeepEqual(f.Error.Details, tc.details) {
			t.Errorf("%s %.60v: details %v, want %v", tc.method, tc.params, f.Error.Details, tc.details)
		}
	}
	s.sendText(`{"type":"req","id":"n","method":"health","params":null}`)
	if f := s.next(func(f frame) bool { return f.ID == "n" }); !f.OK {
		t.Errorf("null params: %+v", f.Error)
	}
}

func TestPublishedMembersAreTakenWithoutEffect(t *testing.T) {
	t.Parallel()
	b := start(t)
	s := b.login(adminToken)
	for _, m := range b.srv.Methods() {
		p := params{}
		for _, name := range m.Params.Also {
			p[name] = params{"any": "thing"}
		}
		if len(p) == 0 {
			continue
		}
		f := s.call(m.Name, p)
		if !f.OK && strings.Contains(f.Error.Message, "unexpected property") {
			t.Errorf("%s: %s", m.Name, f.Error.Message)
		}
	}
}

func TestRefusalsOfTheBackendOnTheWire(t *testing.T) {
	t.Parallel()
	b := start(t)
	s := b.login(adminToken)
	for _, tc := range []struct {
		err       error
		code      string
		details   params
		retryable bool
		after     int64
	}{
		{chat.Errorf(chat.CodeUnknownAgent, "no").With("agentId", "x"), "INVALID_REQUEST", params{"code": "UNKNOWN_AGENT_ID", "agentId": "x"}, false, 0},
		{chat.Errorf(chat.CodeLimit, "no").With("field", "f").With("limit", 5), "INVALID_REQUEST", params{"code": "LIMIT_EXCEEDED", "field": "f", "limit": 5.0}, false, 0},
		{chat.ErrKeyReused, "INVALID_REQUEST", params{"code": "IDEMPOTENCY_KEY_REUSED", "idempotencyKey": "k"}, false, 0},
		{chat.ErrInvalid, "INVALID_REQUEST", nil, false, 0},
		{chat.Errorf(chat.CodeQueueFull, "full").With("sessionKey", "s").With("cap", 10), "UNAVAILABLE", params{"code": "QUEUE_FULL", "sessionKey": "s", "cap": 10.0}, true, 1000},
		{fmt.Errorf("receiving: %w", chat.ErrDraining), "UNAVAILABLE", params{"code": "GATEWAY_DRAINING", "reason": "gateway-restarting"}, true, 1000},
		{chat.ErrStoreUnavailable, "UNAVAILABLE", params{"code": "DATABASE_UNAVAILABLE"}, true, 1000},
		{chat.ErrFenced, "UNAVAILABLE", params{"code": "DATABASE_UNAVAILABLE"}, true, 1000},
		{&chat.Error{Code: chat.CodeRateLimited, Message: "slow down", RetryAfter: 5 * time.Second}, "UNAVAILABLE", params{"code": "RATE_LIMITED", "method": "chat.send"}, true, 5000},
	} {
		b.core.set(func() { b.core.refuse = tc.err })
		f := s.call("chat.send", send("main", "x", "k"))
		if f.OK || f.Error.Code != tc.code || f.Error.Retryable != tc.retryable || f.Error.RetryAfterMs != tc.after || !reflect.DeepEqual(f.Error.Details, tc.details) {
			t.Errorf("%v: %+v, want %s %v retryable %v after %d", tc.err, f.Error, tc.code, tc.details, tc.retryable, tc.after)
		}
	}
	for name, prepare := range map[string]func(){
		"an unknown error": func() { b.core.refuse = errors.New("secret: password=hunter2") },
		"a panic":          func() { b.core.panics = true },
	} {
		b.core.set(prepare)
		f := s.call("chat.send", send("main", "x", "k"))
		if f.OK || f.Error.Code != "UNAVAILABLE" || f.Error.Details["code"] != "INTERNAL" || f.Error.Details["errorId"] == "" || f.Error.Retryable ||
			strings.Contains(f.Error.Message, "hunter2") {
			t.Errorf("%s: %+v", name, f.Error)
		}
		b.core.set(func() { b.core.panics = false })
	}
	s.must("health", nil)
}

func TestCallsPerPrincipalAreLimited(t *testing.T) {
	t.Parallel()
	b := start(t, func(c *gateway.Config) { c.ChatsPerMinute, c.CronWritesPerMinute = 2, 1 })
	first, second := b.login(writeToken), b.login(writeToken)
	first.must("chat.send", send("a", "x", "k1"))
	second.must("agent", params{"message": "x", "sessionKey": "b", "idempotencyKey": "k2"})
	f := first.call("chat.send", send("a", "x", "k3"))
	if f.OK || !reflect.DeepEqual(f.Error.Details, params{"code": "RATE_LIMITED", "method": "chat.send", "limit": 2.0}) || !f.Error.Retryable ||
		f.Error.RetryAfterMs < 1000 || !strings.HasPrefix(f.Error.Message, "rate limit exceeded for chat.send; retry after ") {
		t.Errorf("third chat of the principal: %+v", f.Error)
	}
	if n := b.core.accepted(); n != 2 {
		t.Errorf("%d messages were accepted, want 2", n)
	}
	b.login(adminToken).must("chat.send", send("a", "x", "k4"))
	first.must("wake", params{"mode": "now", "text": "x"})
	if f := first.call("wake", params{"mode": "now", "text": "x"}); f.OK || f.Error.Details["code"] != "RATE_LIMITED" {
		t.Errorf("second wake: %+v", f.Error)
	}
}

func TestHealthSaysWhatStandsStill(t *testing.T) {
	t.Parallel()
	b := start(t)
	s := b.login(readToken)
	cases := []struct {
		stall, cron time.Duration
		problem     string
	}{
		{29 * time.Second, 29 * time.Second, ""},
		{31 * time.Second, 0, "work has been ready for 31s and nothing starts"},
		{0, 31 * time.Second, "the cron loop has not turned for 31s"},
	}
	for _, c := range cases {
		b.core.set(func() { b.core.stall, b.core.cronAge = c.stall, c.cron })
		h := s.must("health", params{"probe": true, "extended": true})
		want := []any{}
		if c.problem != "" {
			want = append(want, c.problem)
		}
		if got := h["problems"].([]any); !slices.Equal(got, want) || h["scheduler"].(params)["ok"] != (c.problem == "") {
			t.Errorf("nothing started for %s, cron loop %s old: problems %q, scheduler %v; want %q", c.stall, c.cron, got, h["scheduler"], want)
		}
	}
}

func TestHealthNamesWorkThatNoGatewayCanDo(t *testing.T) {
	t.Parallel()
	b := start(t)
	const missing = "agent coder: 1 message waits for it"
	b.core.set(func() { b.core.stranded = []string{missing} })
	h := b.login(readToken).must("health", params{"probe": true, "extended": true})
	if got := h["problems"].([]any); !slices.Equal(got, []any{missing}) || h["ok"] != nil {
		t.Errorf("problems %q, ok %v", got, h["ok"])
	}
}

func TestHealthStatusAndLanes(t *testing.T) {
	t.Parallel()
	b := start(t)
	b.core.set(func() {
		b.core.channels = []chat.ChannelStatus{{ID: "telegram", AccountID: "default", Label: "Telegram", Configured: true, Running: true, Connected: true, State: "connected", LastPollAge: 1200 * time.Millisecond, Mode: "polling", PollOwner: "gw-1"}}
	})
	s := b.login(readToken)
	h := s.must("health", params{"probe": true})
	channel := h["channels"].(params)["telegram"].(params)
	if h["ok"] != true || channel["lastPollAgeMs"] != 1200.0 || channel["lastError"] != nil || h["problems"] != nil || h["sessions"].(params)["path"] != "sqlite" {
		t.Errorf("health %v", h)
	}
	if x := s.must("health", params{"extended": true}); len(x["problems"].([]any)) != 0 || x["nodeId"] != b.core.NodeID() || x["database"].(params)["ok"] != true {
		t.Errorf("extended %v", x)
	}
	if st := s.must("status", nil); st["ok"] != true {
		t.Errorf("status %v", st)
	}
	b.core.set(func() { b.core.down = true })
	if st := s.must("status", nil); st["ok"] != false {
		t.Errorf("status shows an old picture: %v", st)
	}
	h = s.must("health", params{"probe": true, "extended": true})
	if _, there := h["ok"]; there || h["problems"].([]any)[0] != "database: the database cannot be reached" {
		t.Errorf("database down: %v", h)
	}
	st := s.must("status", nil)
	if st["ok"] != false || st["nodeId"] != b.core.NodeID() || st["clients"] != 1.0 || st["agents"] != 1.0 || st["bootId"] != b.srv.BootID() ||
		st["lanes"].(params)["main"].(params)["capacity"] != 30.0 || st["cron"].(params)["enabled"] != false || len(st["nodes"].([]any)) != 1 {
		t.Errorf("status %v", st)
	}
	l := s.must("lanes.status", nil)
	if l["lanes"].([]any)[1].(params)["name"] != "main" || l["drops"].(params)["stale"] != 0.0 {
		t.Errorf("lanes %v", l)
	}
	ch := s.must("channels.status", nil)
	if !reflect.DeepEqual(ch["channelOrder"], []any{"web", "telegram"}) || ch["channels"].(params)["web"].(params)["connections"] != 1.0 ||
		ch["channelAccounts"].(params)["telegram"].([]any)[0].(params)["pollOwner"] != "gw-1" ||
		ch["channelAccounts"].(params)["telegram"].([]any)[0].(params)["state"] != "connected" {
		t.Errorf("channels %v", ch)
	}
}

// Channels are shown with their current state, not with that of the last check. The last check may
// be two seconds old, and in the first two seconds of a process no channel had started then.
func TestAChannelThatHasBegunIsShownAtOnce(t *testing.T) {
	t.Parallel()
	telegram := chat.ChannelStatus{Name: "telegram:1", ID: "telegram", AccountID: "default", Configured: true, State: "stopped", LastPollAge: -1}
	h := newCore(t)
	h.channels = []chat.ChannelStatus{telegram}
	b := serve(t, h, h, func(c *gateway.Config) { c.Deadlines.Watch = time.Hour })
	first := b.login(readToken, "laneway-ext")
	if got := first.must("health", nil); got["ok"] != nil || !reflect.DeepEqual(got["problems"], []any{"channel telegram: not running"}) {
		t.Errorf("health before the channel runs: %v", got)
	}
	telegram.Running, telegram.Connected, telegram.State = true, true, "connected"
	b.core.set(func() { h.channels = []chat.ChannelStatus{telegram} })

	hello := decode[struct{ Snapshot struct{ Health params } }](t, b.login(readToken).hello).Snapshot.Health
	for name, got := range map[string]params{"the snapshot of hello-ok": hello, "health": first.must("health", nil)} {
		if channel := got["channels"].(params)["telegram"].(params); got["ok"] != true || channel["running"] != true || channel["connected"] != true {
			t.Errorf("%s: %v", name, got)
		}
	}
	account := first.must("channels.status", nil)["channelAccounts"].(params)["telegram"].([]any)[0].(params)
	if account["running"] != true || account["connected"] != true || account["state"] != "connected" {
		t.Errorf("channels.status: %v", account)
	}
}

func TestListsForTerminalClients(t *testing.T) {
	t.Parallel()
	s := start(t).login(readToken)
	for method, want := range map[string]string{
		"question.list":        `{"questions":[]}`,
		"plugin.approval.list": `[]`,
		"taskSuggestions.list": `{"suggestions":[]}`,
		"agents.list":          `{"defaultId":"main","mainKey":"main","scope":"per-sender","agents":[{"id":"main","kind":"agent","name":"Echo","model":{"primary":"echo-1"}}]}`,
	} {
		if f := s.call(method, nil); string(f.Payload) != want {
			t.Errorf("%s: %s %+v\nwant %s", method, f.Payload, f.Error, want)
		}
	}
	commands := s.call("commands.list", nil)
	for _, want := range []string{
		`{"name":"stop","textAliases":["/stop"],"description":"Stop the oldest running turn; if none runs, the oldest waiting message.","category":"session","source":"native","scope":"both","acceptsArgs":false},`,
		`"category":"management","source":"native","scope":"both","acceptsArgs":true,"args":[{"name":"args","description":"[add WHEN TEXT `,
	} {
		if !strings.Contains(string(commands.Payload), want) {
			t.Errorf("commands.list: %s %+v\nwant %s", commands.Payload, commands.Error, want)
		}
	}
	if f := start(t).login(readToken, "laneway-ext").call("agents.list", nil); !strings.Contains(string(f.Payload), `"model":{"primary":"echo-1"},"runner":"echo"}`) {
		t.Errorf("agents.list in the extended view: %s %+v", f.Payload, f.Error)
	}
}

// A credential that sees only its own data does not see the state of servers.
func TestServersOfToolsAreInTheExtendedList(t *testing.T) {
	t.Parallel()
	b := start(t, func(c *gateway.Config) {
		c.ToolServers = func() []chat.ToolServer {
			return []chat.ToolServer{{Name: "files", State: "connected", Tools: []string{"files_read"}}, {Name: "mail", State: "failed", Tools: []string{}, LastError: "no route"}}
		}
	})
	const want = `"servers":[{"name":"files","state":"connected","tools":["files_read"],"lastError":null},{"name":"mail","state":"failed","tools":[],"lastError":"no route"}]}`
	if f := b.login(readToken, "laneway-ext").call("agents.list", nil); !strings.HasSuffix(string(f.Payload), want) {
		t.Errorf("got %s %+v", f.Payload, f.Error)
	}
	for who, f := range map[string]frame{
		"without the extended view": b.login(readToken).call("agents.list", nil), "of a credential that sees its own": b.login(annaToken, "laneway-ext").call("agents.list", nil),
	} {
		if f.Error != nil || strings.Contains(string(f.Payload), "servers") {
			t.Errorf("the list %s is %s %+v", who, f.Payload, f.Error)
		}
	}
}

func TestChangesOfHealthAndLanesArePublished(t *testing.T) {
	t.Parallel()
	b := start(t, func(c *gateway.Config) { c.Deadlines.Watch = 5 * time.Millisecond })
	plain, full := b.login(readToken), b.login(adminToken, "laneway-ext")
	b.core.set(func() { b.core.down = true })
	f := plain.next(func(f frame) bool { return f.Event == "health" })
	if f.StateVersion["health"] != 1 || strings.Contains(string(f.Payload), `"ok"`) || strings.Contains(string(f.Payload), "problems") {
		t.Errorf("health event %+v %s", f, f.Payload)
	}
	if x := full.next(func(f frame) bool { return f.Event == "health" }); !strings.Contains(string(x.Payload), "problems") {
		t.Errorf("extended health event %s", x.Payload)
	}
	b.core.set(func() { b.core.down = false })
	if f := plain.next(func(f frame) bool { return f.Event == "health" }); f.StateVersion["health"] != 2 || !strings.HasPrefix(string(f.Payload), `{"ok":true`) {
		t.Errorf("second health event %+v %s", f, f.Payload)
	}
	full.must("chat.send", send("main", "wait", "r"))
	full.next(func(f frame) bool {
		p := decode[struct{ Sessions struct{ Running int } }](t, f.Payload)
		return f.Event == "lanes" && p.Sessions.Running == 1
	})
	b.core.publish(chat.Event{Kind: chat.EventSession, Session: chat.MainKey("main"), Reason: "run.started"})
	full.next(func(f frame) bool { return f.Event == "lanes" }) // the lanes are the same: the run is on another replica
	b.core.proceed()
	plain.request("end", "health", nil)
	if f := plain.next(func(f frame) bool { return f.Event == "lanes" || f.ID == "end" }); f.Event == "lanes" {
		t.Error("lanes was sent to a client that does not know it")
	}
}

// withPrograms is a backend whose agent keeps a process.
type withPrograms struct{ *core }

func (h withPrograms) Status(ctx context.Context) chat.SystemStatus {
	st := h.core.Status(ctx)
	st.Programs = []chat.ProgramStatus{{Agent: "main", Processes: 1, Limit: 4}}
	return st
}

// The processes of an agent run for every principal, so a credential that sees its own data alone
// is not given their number.
func TestSmallCredentialsSeeNoPrograms(t *testing.T) {
	t.Parallel()
	h := newCore(t)
	b := serve(t, h, withPrograms{h})
	for token, want := range map[string]bool{adminToken: true, readToken: true, annaToken: false} {
		st := b.login(token).must("status", nil)
		if _, got := st["programs"]; got != want {
			t.Errorf("the programs are in the status for %s: %v, want %v", token, got, want)
		}
	}
}
