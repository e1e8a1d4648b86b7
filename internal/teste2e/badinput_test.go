package teste2e

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"laneway/internal/testrun"
)

// The test sends invalid input to every entry point of the binary while another session continues. Each input is refused with a code and a
// sentence, none of it is stored, and no accepted message is lost.
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

// beatOn sends messages in a separate session until stop is called, which returns how many it sent; each must be answered.
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

// The gateway runs with files that may not grow, which SQLite sees like a full disk: nothing is acknowledged that is not stored, the
// process lives and answers, and once there is space again everything that was acknowledged exists.
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
