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
	"testing"
	"time"

	"laneway/internal/testrun"
)

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
