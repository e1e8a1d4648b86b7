package teste2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"laneway/internal/chat"
	"laneway/internal/testrun"
)

// An idempotency key belongs to the principal that uses it. The same key of another principal is another call with its own run. Each
// principal sees its run under that key and receives no event of the other's.
func TestAKeyThatAnotherUsesIsFree(t *testing.T) {
	onBothStores(t, func(t *testing.T, database string) {
		const write = "write-token-0123456789-abcdefghijklmnopq"
		g := Install(t, database, "agents: {main: {runner: echo, script: true}}\nlimits: {cron_writes: 0, chat: 0}\n")
		g.env = append(g.env, "LANEWAY_WRITE_TOKEN="+write)
		g.Start()
		all := []string{chat.ScopeRead, chat.ScopeWrite, chat.ScopeAdmin}
		tokens := map[string]string{"gateway": g.Token(), "write": write, "anna": g.named(t, "anna"), "otto": g.namedFor(t, "otto", "write")}
		callers := map[string]*resetter{}
		for name, token := range tokens {
			callers[name] = newResetter(t, g, token, all...)
		}
		session := func(name string) string { return "agent:main:of-" + name }
		for _, method := range []string{"chat.send", "agent"} {
			key := "one-key-" + method[:4]
			for name, c := range callers {
				for again := range 2 {
					p := map[string]any{"sessionKey": session(name), "message": "hello of " + name, "idempotencyKey": key}
					raw, err := c.Call(method, p, 30*time.Second)
					var first struct{ RunID, Status string }
					if err != nil || json.Unmarshal(raw, &first) != nil || first.RunID != key {
						t.Errorf("%s by %s, time %d: %s %v", method, name, again+1, raw, err)
					}
				}
			}
		}
		for name, c := range callers {
			testrun.Eventually(t, name+" hears its own end", func() bool {
				c.mu.Lock()
				defer c.mu.Unlock()
				return c.ends["one-key-chat"] != "" && c.ends["one-key-agen"] != ""
			})
			var h struct {
				Messages []struct {
					RunID    string
					Openclaw struct{ IdempotencyKey string } `json:"__openclaw"` //nolint:tagliatelle // the name of the other gateway
				}
				SessionInfo struct{ LastRunID string }
			}
			if err := c.Into(&h, "chat.history", map[string]any{"sessionKey": session(name)}); err != nil {
				t.Fatal(err)
			}
			if len(h.Messages) != 4 || h.Messages[0].RunID != "one-key-chat" || h.Messages[0].Openclaw.IdempotencyKey != "one-key-chat:user" || h.SessionInfo.LastRunID != "one-key-agen" {
				t.Errorf("%s reads %+v", name, h)
			}
		}
		for name, c := range callers {
			for _, key := range []string{"one-key-chat", "one-key-agen"} {
				for _, method := range []string{"chat.send", "agent"} {
					_, err := c.Call(method, map[string]any{"sessionKey": session(name), "message": "something else", "idempotencyKey": key}, 30*time.Second)
					if wire, ok := errors.AsType[*WireError](err); !ok || wire.Details["code"] != "IDEMPOTENCY_KEY_REUSED" || wire.Details["idempotencyKey"] != key {
						t.Errorf("%s by %s with the key of another call of its own: %v", method, name, err)
					}
				}
			}
		}
		if n := OpenOracle(t, g, database).Count("SELECT count(*) FROM inbox"); n != 2*len(callers) {
			t.Errorf("%d messages of %d calls", n, 2*len(callers))
		}
		abortUnderOneKey(t, callers, session)
	})
}

// abortUnderOneKey runs a long turn of each caller under one key, and each stops its own; an operator stops that of another by the id that
// it sees.
func abortUnderOneKey(t *testing.T, callers map[string]*resetter, session func(string) string) {
	t.Helper()
	const key = "long"
	var starts sync.WaitGroup
	for name, c := range callers {
		starts.Go(func() {
			if _, err := c.Call("chat.send", map[string]any{"sessionKey": session(name), "message": "sleep 60s", "idempotencyKey": key}, 30*time.Second); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		})
	}
	starts.Wait()
	active := func(name string) string {
		var row struct {
			Session struct{ ActiveRunIDs []string }
		}
		if err := callers["gateway"].Into(&row, "sessions.describe", map[string]any{"key": session(name)}); err != nil {
			t.Fatal(err)
		}
		return fmt.Sprint(row.Session.ActiveRunIDs)
	}
	for name := range callers {
		testrun.Eventually(t, "the turn of "+name+" runs", func() bool { return active(name) == "[long]" })
	}
	for _, c := range []struct{ by, of string }{{"anna", "anna"}, {"gateway", "otto"}, {"write", "write"}, {"gateway", "gateway"}} {
		var out struct {
			Aborted bool
			RunIDs  []string
		}
		err := callers[c.by].Into(&out, "chat.abort", map[string]any{"sessionKey": session(c.of), "runId": key})
		if err != nil || !out.Aborted || fmt.Sprint(out.RunIDs) != "[long]" {
			t.Errorf("%s stops the run of %s: %+v %v", c.by, c.of, out, err)
		}
	}
}
