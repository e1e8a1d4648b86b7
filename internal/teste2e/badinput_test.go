package teste2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"laneway/internal/testrun"
)

// The test sends invalid input to every entry point of the binary while another session continues.
// Each input is refused with a code and a sentence, none of it is stored, and no accepted message
// is lost.
func TestBadInputIsRefusedWithACodeAndHarmsNoOtherClient(t *testing.T) {
	onBothStores(t, func(t *testing.T, database string) {
		g := Install(t, database, "agents: {main: {runner: echo}}\nlimits: {chat: 0, requests: 0}\nhooks: {ci: {secret: "+hookSecret+"}}\n")
		g.Start()
		honest := beatOn(t, g)
		badCalls(t, g)
		badFrames(t, g)
		badHTTP(t, g)
		badCommands(t, g)
		sent := honest()
		o := OpenOracle(t, g, database)
		if n := o.Count("SELECT count(*) FROM inbox"); n != sent {
			t.Errorf("%d messages are stored, want the %d of the honest session", n, sent)
		}
		if n := o.Count("SELECT count(*) FROM inbox WHERE outcome = 'answered'"); n != sent {
			t.Errorf("%d of %d honest messages were answered", n, sent)
		}
		if out := g.Output(); strings.Contains(out, "22021") || strings.Contains(out, "22P05") || strings.Contains(out, "level=ERROR") {
			t.Errorf("bad input is in the log as an error of ours:\n%s", out)
		}
		o.Check(15 * time.Second)
	})
}

// beatOn sends messages in a separate session until stop is called, which returns how many it sent;
// each must be answered.
func beatOn(t *testing.T, g *Gateway) (stop func() int) {
	t.Helper()
	e := newEndings()
	c := mustDial(t, g, e.take)
	over := make(chan struct{})
	sent := 0
	var talk sync.WaitGroup
	talk.Go(func() {
		for {
			id := fmt.Sprint("honest", sent)
			if _, err := c.Call("chat.send", map[string]any{"sessionKey": "agent:main:honest", "message": "hello", "idempotencyKey": id}, 20*time.Second); err != nil {
				t.Errorf("the honest session: %v", err)
				return
			}
			sent++
			if got := e.end(t, id); got.text != "hello" {
				t.Errorf("the honest session was answered %+v", got)
			}
			select {
			case <-over:
				return
			default:
				pauseABit()
			}
		}
	})
	return func() int { close(over); talk.Wait(); return sent }
}

func badCalls(t *testing.T, g *Gateway) {
	t.Helper()
	c := mustDial(t, g, nil)
	message := func(text string) map[string]any {
		return map[string]any{"sessionKey": "agent:main:bad", "message": text, "idempotencyKey": "bad"}
	}
	for name, call := range map[string]struct {
		method string
		params any
		says   string
	}{
		"unknown method":    {"no.such.method", nil, "unknown method: no.such.method"},
		"NUL":               {"chat.send", message("a\x00b"), "U+0000"},
		"too long":          {"chat.send", message(strings.Repeat("x", 262_145)), "262144"},
		"empty":             {"chat.send", message(""), "message"},
		"no such agent":     {"chat.send", map[string]any{"sessionKey": "agent:absent:x", "message": "x", "idempotencyKey": "x"}, "absent"},
		"wrong type":        {"chat.send", map[string]any{"sessionKey": 7, "message": "x", "idempotencyKey": "x"}, "sessionKey"},
		"key of a session":  {"chat.send", map[string]any{"sessionKey": "agent:main:\n", "message": "x", "idempotencyKey": "x"}, "sessionKey"},
		"no key":            {"chat.send", map[string]any{"sessionKey": "main", "message": "x"}, "idempotencyKey"},
		"NUL to agent":      {"agent", map[string]any{"message": "a\x00b", "idempotencyKey": "x"}, "U+0000"},
		"NUL to wake":       {"wake", map[string]any{"mode": "now", "text": "a\x00b"}, "U+0000"},
		"NUL in a session":  {"chat.history", map[string]any{"sessionKey": "a\x00b"}, "U+0000"},
		"unknown queueMode": {"chat.send", map[string]any{"sessionKey": "main", "message": "x", "idempotencyKey": "x", "queueMode": "loud"}, "queueMode"},
	} {
		_, err := c.Call(call.method, call.params, 20*time.Second)
		refusal, ok := errors.AsType[*WireError](err)
		if !ok || refusal.Code == "" || refusal.Retryable || !strings.Contains(refusal.Message, call.says) || strings.Contains(refusal.Message, "\n") {
			t.Errorf("%s: got %v, want a refusal that names %q", name, err, call.says)
		}
	}
}

func badFrames(t *testing.T, g *Gateway) {
	t.Helper()
	if _, err := Dial(g.URL(), "wrong-token", nil); err == nil || !strings.Contains(err.Error(), "AUTH_TOKEN_MISMATCH") {
		t.Errorf("a wrong token got %v", err)
	}
	for name, f := range map[string]struct {
		kind int
		data string
		code int
	}{
		"not UTF-8":                {websocket.TextMessage, "{\"id\":\"\xff\"}", 1007},
		"binary":                   {websocket.BinaryMessage, "{}", 1003},
		"large before the connect": {websocket.TextMessage, `{"x":"` + strings.Repeat("x", 70_000) + `"}`, 1009},
	} {
		ws := rawSocket(t, g)
		if err := ws.WriteMessage(f.kind, []byte(f.data)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		var closed *websocket.CloseError
		if err := readToEnd(ws); !errors.As(err, &closed) || closed.Code != f.code || closed.Text == "" {
			t.Errorf("%s: closed with %v, want %d and a sentence", name, err, f.code)
		}
		_ = ws.Close()
	}
	c := mustDial(t, g, nil)
	if err := c.ws.WriteMessage(websocket.TextMessage, []byte(`{"x":"`+strings.Repeat("x", 1<<20)+`"}`)); err == nil {
		<-c.done
	}
	if _, err := c.Call("health", nil, time.Second); err == nil || !strings.Contains(err.Error(), "1009") {
		t.Errorf("a message beyond maxPayload: %v", err)
	}
}

func rawSocket(t *testing.T, g *Gateway) *websocket.Conn {
	t.Helper()
	ws, resp, err := websocket.DefaultDialer.Dial("ws"+strings.TrimPrefix(g.URL(), "http")+"/ws", nil)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	return ws
}

func readToEnd(ws *websocket.Conn) error {
	_ = ws.SetReadDeadline(time.Now().Add(20 * time.Second))
	for {
		if _, _, err := ws.ReadMessage(); err != nil {
			return err
		}
	}
}

func badHTTP(t *testing.T, g *Gateway) {
	t.Helper()
	auth := map[string]string{"Authorization": "Bearer " + g.Token()}
	for name, call := range map[string]struct {
		path, body string
		header     map[string]string
		status     int
	}{
		"no token":            {"/v1/chat/completions", `{}`, nil, http.StatusUnauthorized},
		"no JSON":             {"/v1/chat/completions", `{`, auth, http.StatusBadRequest},
		"NUL":                 {"/v1/chat/completions", `{"model":"laneway","messages":[{"role":"user","content":"a\u0000b"}]}`, auth, http.StatusBadRequest},
		"half a surrogate":    {"/v1/chat/completions", `{"model":"laneway","messages":[{"role":"user","content":"a\ud800b"}]}`, auth, http.StatusBadRequest},
		"not UTF-8":           {"/v1/chat/completions", "{\"model\":\"laneway\",\"messages\":[{\"role\":\"user\",\"content\":\"a\xffb\"}]}", auth, http.StatusBadRequest},
		"no messages":         {"/v1/chat/completions", `{"model":"laneway"}`, auth, http.StatusBadRequest},
		"no such path":        {"/nowhere", `{}`, auth, http.StatusNotFound},
		"hook, no signature":  {"/hooks/ci", `{}`, nil, http.StatusUnauthorized},
		"hook, no such name":  {"/hooks/absent", `{}`, nil, http.StatusUnauthorized},
		"hook, old signature": {"/hooks/ci", `{}`, map[string]string{"X-Laneway-Signature": "t=1,v1=00"}, http.StatusUnauthorized},
	} {
		a := g.post(call.path, []byte(call.body), call.header)
		if a.Err != nil || a.Status != call.status || !strings.Contains(a.Body, "error") && a.Status != http.StatusNotFound {
			t.Errorf("%s: %d %s %v, want %d", name, a.Status, a.Body, a.Err, call.status)
		}
	}
	for name, body := range map[string]string{"NUL": "a\x00b", "not UTF-8": "a\xffb"} {
		if a := g.Hook("ci", hookSecret, body); a.Err != nil || a.Status/100 != 4 {
			t.Errorf("hook with %s: %d %s %v, want a refusal", name, a.Status, a.Body, a.Err)
		}
	}
}

func badCommands(t *testing.T, g *Gateway) {
	t.Helper()
	for name, c := range map[string]struct {
		stdin string
		args  []string
		code  int
		says  string
	}{
		"NUL":           {"a\x00b", []string{"send", "-"}, 1, "U+0000"},
		"not UTF-8":     {"a\xffb", []string{"send", "-"}, 2, "UTF-8"},
		"nothing":       {"", []string{"send", "-"}, 2, ""},
		"wrong flag":    {"", []string{"send", "--loud", "x"}, 2, "--loud"},
		"no such agent": {"", []string{"send", "--agent", "absent", "x"}, 1, "absent"},
	} {
		out, errs, code := g.CLI(withTimeout(t, time.Minute), c.stdin, c.args...)
		if code != c.code || out != "" || !strings.Contains(errs, c.says) || strings.TrimSpace(errs) == "" {
			t.Errorf("%s: %q %q, code %d; want code %d and %q", name, out, errs, code, c.code, c.says)
		}
	}
}

// The gateway runs with files that may not grow, which SQLite sees like a full disk: nothing is
// acknowledged that is not stored, the process lives and answers, and once there is space again
// everything that was acknowledged exists.
func TestAFullDiskRefusesAndRecovers(t *testing.T) {
	NeedsProcesses(t)
	t.Parallel()
	g := Install(t, "", "agents: {main: {runner: echo}}\nlimits: {chat: 0, requests: 0, free_space: 0}\n")
	g.Start()
	c := mustDial(t, g, nil)
	say(t, c, "main", "before", "hello")
	prlimit, err := exec.LookPath("prlimit")
	if err != nil {
		t.Fatalf("prlimit (package util-linux) is needed: %v", err)
	}
	limit := func(bytes string) {
		t.Helper()
		pid := strconv.Itoa(g.pid())
		if out, err := exec.Command(prlimit, "--pid", pid, "--fsize="+bytes+":unlimited").CombinedOutput(); err != nil {
			t.Fatalf("prlimit: %v %s", err, out)
		}
	}
	wal, err := os.Stat(filepath.Join(g.Dir, "data", "laneway.db-wal"))
	if err != nil {
		t.Fatal(err)
	}
	limit(strconv.FormatInt(wal.Size()+64<<10, 10))
	acknowledged := []string{"before"}
	var refusal *WireError
	for i := 0; i < 100 && refusal == nil; i++ {
		id := fmt.Sprint("fill", i)
		_, err := c.Call("chat.send", map[string]any{"sessionKey": fmt.Sprint("agent:main:f", i), "message": strings.Repeat("x", 20_000), "idempotencyKey": id}, 20*time.Second)
		if refusal, _ = errors.AsType[*WireError](err); err == nil {
			acknowledged = append(acknowledged, id)
		} else if refusal == nil {
			t.Fatalf("message %d: %v", i, err)
		}
	}
	if refusal == nil || !refusal.Retryable || refusal.Message == "" {
		t.Fatalf("with a full disk came %v, want a retryable refusal", refusal)
	}
	t.Logf("refused after %d messages: %v", len(acknowledged), refusal)
	if code, _ := g.Get("/healthz"); code != http.StatusOK {
		t.Errorf("/healthz with a full disk: %d", code)
	}
	if !g.ready(t, http.StatusServiceUnavailable, `"database":"failed"`) || !strings.Contains(g.statusOf(t), "not healthy") {
		t.Errorf("neither /readyz nor status reports that messages are refused:\n%s", g.statusOf(t))
	}
	if _, err := c.Call("chat.history", map[string]any{"sessionKey": "main"}, 20*time.Second); err != nil {
		t.Errorf("reading with a full disk: %v", err)
	}
	limit("unlimited")
	testrun.Eventually(t, "messages are taken again", func() bool {
		_, err := c.Call("chat.send", map[string]any{"sessionKey": "main", "message": "after", "idempotencyKey": "after"}, 20*time.Second)
		return err == nil
	})
	testrun.Eventually(t, "readiness", func() bool { return g.ready(t, http.StatusOK, "") })
	o := OpenOracle(t, g, "")
	for _, id := range append(acknowledged, "after") {
		testrun.Eventually(t, id+" is answered", func() bool {
			return o.Count("SELECT count(*) FROM inbox WHERE message_id = '"+id+"' AND outcome = 'answered'") == 1
		})
	}
	o.Check(15 * time.Second)
}

// bound is one limit with the calls that stay below it, reach it, and exceed it by one.
type bound struct {
	name  string
	limit int
	// try uses the size; taken reports that it was accepted, and why is the refusal.
	try func(t *testing.T, size int) (taken bool, why string)
	// says is part of the refusal.
	says string
}

// Every documented limit is exact to the byte (to the character for names): one less and exactly
// that are accepted, and stored completely; one more is refused with the limit.
func TestBoundsHoldToTheByte(t *testing.T) {
	onBothStores(t, func(t *testing.T, database string) {
		g := Install(t, database, "limits: {chat: 0, cron_writes: 0, requests: 0, hooks: 0}\nqueue: {cap: 100}\nhooks: {ci: {secret: "+hookSecret+"}}\n")
		g.Start()
		c := connect(t, g)
		for _, b := range bounds(g, c) {
			for _, size := range []int{b.limit - 1, b.limit, b.limit + 1} {
				taken, why := b.try(t, size)
				switch {
				case taken != (size <= b.limit):
					t.Errorf("%s of %d: taken %v (%.200s), the bound is %d", b.name, size, taken, why, b.limit)
				case !taken && !strings.Contains(why, b.says):
					t.Errorf("%s of %d was refused with %.200q, want %q", b.name, size, why, b.says)
				}
			}
		}
		o := OpenOracle(t, g, database)
		stored := func(column, letter, from string) string { // how often it occurs in each row
			return fmt.Sprintf("SELECT length(%[1]s) - length(replace(%[1]s, '%[2]s', '')) FROM %[3]s ORDER BY 1", column, letter, from)
		}
		for query, want := range map[string]string{
			stored("name", "日", "cron_jobs WHERE name LIKE '日%'"):                 "[199 200]",
			stored("payload", "Q", "cron_jobs WHERE name = 'text'"):               "[65535 65536]",
			stored("body", "Q", "inbox WHERE session_key = 'agent:main:ascii'"):   "[262143 262144]",
			stored("body", "ü", "inbox WHERE session_key = 'agent:main:umlauts'"): "[131071 131072]",
			stored("body", "Q", "inbox WHERE session_key = 'agent:main:hook:ci'"): "[262143 262144]",
		} {
			if got := fmt.Sprint(o.Rows(query)); got != want {
				t.Errorf("%s: %s, want %s", query, got, want)
			}
		}
	})
}

func bounds(g *Gateway, c *Client) []bound {
	call := func(method string, params map[string]any) (bool, string) {
		_, err := c.Call(method, params, 30*time.Second)
		return err == nil, fmt.Sprint(err)
	}
	job := func(name, message string) (bool, string) {
		return call("cron.add", map[string]any{
			"name": name, "schedule": at(time.Now().Add(time.Hour)), "sessionTarget": "isolated", "wakeMode": "now",
			"payload": map[string]any{"kind": "agentTurn", "message": message},
		})
	}
	say := func(session, text string) (bool, string) {
		return call("chat.send", map[string]any{"sessionKey": session, "message": text, "idempotencyKey": fmt.Sprint(session, len(text))})
	}
	return []bound{
		{"name of a job in characters", 200, func(_ *testing.T, n int) (bool, string) { return job(strings.Repeat("日", n), "x") }, "200"},
		{"text of a job", 65_536, func(_ *testing.T, n int) (bool, string) { return job("text", strings.Repeat("Q", n)) }, "65536"},
		{"text of a message", 262_144, func(_ *testing.T, n int) (bool, string) { return say("ascii", strings.Repeat("Q", n)) }, "262144"},
		{"text of two-byte characters", 131_072, func(_ *testing.T, n int) (bool, string) { return say("umlauts", strings.Repeat("ü", n)) }, "262144"},
		{"body of a hook", 262_144, func(_ *testing.T, n int) (bool, string) {
			a := g.Hook("ci", hookSecret, strings.Repeat("Q", n))
			return a.Status == http.StatusAccepted, fmt.Sprint(a.Status, a.Body, a.Err)
		}, "413"},
		{"maxPayload", 1_048_576, func(t *testing.T, n int) (bool, string) { return frameOf(t, g, n) }, "1009"},
		{"message before hello", 65_536, func(t *testing.T, n int) (bool, string) { return connectOf(t, g, n) }, "1009"},
	}
}

// frameOf sends a request of n bytes on an authenticated socket.
func frameOf(t *testing.T, g *Gateway, n int) (bool, string) {
	t.Helper()
	b, err := login(g.addr(), g.Token())
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	const head, tail = `{"type":"req","id":"big","method":"health","x":"`, `"}`
	return sized(t, b, "big", head+strings.Repeat("x", n-len(head)-len(tail))+tail)
}

// connectOf sends a connect of n bytes.
func connectOf(t *testing.T, g *Gateway, n int) (bool, string) {
	t.Helper()
	b, err := upgrade(g.addr())
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	head := `{"type":"req","id":"c","method":"connect","params":{"minProtocol":4,"maxProtocol":4,"auth":{"token":"` + g.Token() +
		`"},"client":{"id":"bare","version":"1","platform":"test","mode":"test"},"scopes":["operator.read"]}`
	return sized(t, b, "c", head+strings.Repeat(" ", n-len(head)-1)+"}")
}

func sized(t *testing.T, b *bare, id, text string) (bool, string) {
	t.Helper()
	_ = b.SetDeadline(time.Now().Add(30 * time.Second))
	err := b.text(text)
	if err == nil {
		_, err = b.answer(id)
	}
	if closed := (*closedError)(nil); err != nil && !errors.As(err, &closed) {
		t.Errorf("%d bytes: %v, want a close frame", len(text), err)
	}
	return err == nil, fmt.Sprint(err)
}

// wantRefusal is a refusal as programs read it. Members of details that are nil must only exist.
type wantRefusal struct {
	code      string
	details   map[string]any
	retryable bool
}

func (w wantRefusal) check(t *testing.T, name string, r Response) {
	t.Helper()
	if r.OK || r.Error == nil {
		t.Errorf("%s: %s, want %s", name, r.Payload, w.details["code"])
		return
	}
	e := r.Error
	if e.Code != w.code || e.Retryable != w.retryable || e.Message == "" || len(e.Details) != len(w.details) {
		t.Errorf("%s: %+v, want %+v", name, e, w)
		return
	}
	for member, want := range w.details {
		got := e.Details[member]
		list, isList := want.([]any)
		given, _ := got.([]any)
		switch {
		case got == nil || got == "", isList && !slices.Equal(given, list), !isList && want != nil && got != want:
			t.Errorf("%s: %s is %v, want %v", name, member, got, want)
		}
	}
}

const refusing = `
agents:
  main: {runner: echo, delay: 1m}
  broken: {runner: command, command: ["/bin/false"]}
queue: {cap: 1, drop: old}
limits: {cron_writes: 1}
read_token: a-read-token-of-thirty-two-characters
`

// The real binary refuses calls, and code, details and retryable are compared exactly. The refusals
// of `agent` in its second frame are caused by operations on an accepted message.
func TestRefusalsOfTheWireHaveTheirCodes(t *testing.T) {
	if testing.Short() {
		t.Skip("starts processes")
	}
	onBothStores(t, func(t *testing.T, database string) {
		g := Install(t, database, refusing)
		g.Start()
		own := dialWhenKnown(t, g, g.named(t, "ann"), nil)
		reader := dialWhenKnown(t, g, "a-read-token-of-thirty-two-characters", nil)
		b, err := login(g.addr(), g.Token())
		if err != nil {
			t.Fatal(err)
		}
		defer b.Close()
		_ = b.SetDeadline(time.Now().Add(60 * time.Second))
		got := map[string][]Response{}
		await := func(id string, frames int) Response {
			t.Helper()
			for len(got[id]) < frames {
				from, r := response(t, b)
				got[from] = append(got[from], r)
			}
			return got[id][frames-1]
		}
		request := func(id, method string, params map[string]any) {
			t.Helper()
			if err := b.request(id, method, params); err != nil {
				t.Fatal(err)
			}
		}
		agentCall := func(id, session string, more map[string]any) {
			t.Helper()
			p := map[string]any{"sessionKey": session, "message": "hello", "idempotencyKey": id}
			maps.Copy(p, more)
			request(id, "agent", p)
			if r := await(id, 1); !r.OK {
				t.Fatalf("%s: %+v", id, r.Error)
			}
		}

		agentCall("runs", "agent:main:a", nil)
		operator := mustDial(t, g, nil)
		testrun.Eventually(t, "the turn runs", func() bool {
			var l lanesStatus
			err := operator.Into(&l, "lanes.status", nil)
			_, active, _ := l.main()
			return err == nil && active == 1
		})
		agentCall("dropped", "agent:main:a", nil)
		agentCall("cleared", "agent:main:a", nil) // takes the only place
		agentCall("late", "agent:main:b", map[string]any{"timeout": 1})
		agentCall("broken", "agent:broken:a", nil)
		ended := func(id, code, status string) {
			t.Helper()
			w := wantRefusal{code: "UNAVAILABLE", details: map[string]any{"code": code, "runId": id}}
			if status != "" {
				w.details["status"] = status
			}
			w.check(t, id, await(id, 2))
		}
		ended("dropped", "QUEUE_DROPPED", "")
		request("clear", "chat.send", map[string]any{"sessionKey": "agent:main:a", "message": "/queue clear", "idempotencyKey": "clear"})
		ended("cleared", "LANE_CLEARED", "")
		request("abort", "chat.abort", map[string]any{"sessionKey": "agent:main:a"})
		ended("runs", "RUN_FAILED", "cancelled")
		ended("late", "RUN_FAILED", "timeout")
		ended("broken", "RUN_FAILED", "error")

		wake := map[string]any{"mode": "next-heartbeat", "text": "hello", "sessionKey": "agent:main:c"}
		request("first", "wake", wake)
		request("second", "wake", wake)
		await("first", 1)
		await("second", 1)
		refused := got["second"][0]
		if refused.OK { // they run concurrently
			refused = got["first"][0]
		}
		if refused.OK && database != "" { // the store did not answer the limiter within 50 ms, so that the process counted one of them by itself
			request("third", "wake", wake)
			refused = await("third", 1)
		}
		wantRefusal{"UNAVAILABLE", map[string]any{"code": "RATE_LIMITED", "method": "wake", "limit": 1.0}, true}.check(t, "a wake too many within the minute", refused)

		for name, call := range map[string]struct {
			c      *Client
			method string
			params map[string]any
			want   wantRefusal
		}{
			"a session of another principal": {
				own, "chat.send",
				map[string]any{"sessionKey": "agent:main:a", "message": "hello", "idempotencyKey": "mine"},
				wantRefusal{"INVALID_REQUEST", map[string]any{"code": "SESSION_NOT_FOUND", "key": "agent:main:a"}, false},
			},
			"a reader that writes": {
				reader, "chat.send",
				map[string]any{"sessionKey": "agent:main:a", "message": "hello", "idempotencyKey": "read"},
				wantRefusal{"FORBIDDEN", map[string]any{"code": "MISSING_SCOPE", "missingScope": "operator.write", "requiredScopes": []any{"operator.write"}}, false},
			},
			"a reader that administers": {
				reader, "sessions.reset",
				map[string]any{"key": "agent:main:a"},
				wantRefusal{"FORBIDDEN", map[string]any{"code": "MISSING_SCOPE", "missingScope": "operator.admin", "requiredScopes": []any{"operator.admin"}}, false},
			},
		} {
			_, err := call.c.Call(call.method, call.params, 20*time.Second)
			e, ok := err.(*WireError) //nolint:errorlint // what Call returns
			if !ok {
				t.Errorf("%s: %v", name, err)
				continue
			}
			call.want.check(t, name, Response{Error: e})
		}
		OpenOracle(t, g, database).Check(15 * time.Second)
	})
}

// response returns the next answer to any request and skips events.
func response(t *testing.T, b *bare) (string, Response) {
	t.Helper()
	data, err := b.until(`"type":"res"`)
	if err != nil {
		t.Fatal(err)
	}
	var r struct {
		Response

		ID string `json:"id"`
	}
	if err := json.Unmarshal(data, &r); err != nil {
		t.Fatal(err)
	}
	return r.ID, r.Response
}
