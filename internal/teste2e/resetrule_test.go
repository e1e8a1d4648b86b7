package teste2e

import (
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"laneway/internal/testrun"
)

// resetter is a connection that tries to reset sessions, by method and by command.
type resetter struct {
	*Client

	mu   sync.Mutex
	ends map[string]string // of runs, by id
}

func newResetter(t *testing.T, g *Gateway, token string, scopes ...string) *resetter {
	t.Helper()
	r := &resetter{ends: map[string]string{}}
	hear := func(e Event) {
		var p struct {
			RunID, State string
			Message      json.RawMessage
		}
		if json.Unmarshal(e.Payload, &p) == nil && e.Name == "chat" && p.State == "final" {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.ends[p.RunID] = string(p.Message)
		}
	}
	testrun.Eventually(t, "the gateway takes the token", func() bool {
		c, err := DialAs(g.URL(), token, scopes, hear)
		r.Client = c
		return err == nil
	})
	t.Cleanup(r.Close)
	return r
}

// say sends a message and waits for the end of its run.
func (r *resetter) say(t *testing.T, session, text, run string) (string, error) {
	t.Helper()
	if _, err := r.Call("chat.send", map[string]any{"sessionKey": session, "message": text, "idempotencyKey": run}, 30*time.Second); err != nil {
		return "", err
	}
	answer := ""
	testrun.Eventually(t, "the end of "+run, func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		answer = r.ends[run]
		return answer != ""
	})
	return answer, nil
}

// /reset, /new and sessions.reset have one rule: admin, or write for a session that the caller owns. A session that a caller may not see
// does not exist.
func TestResetHasOneRuleForMethodAndCommand(t *testing.T) {
	onBothStores(t, func(t *testing.T, database string) {
		const write = "write-token-0123456789-abcdefghijklmnopq"
		g := Install(t, database, "limits: {cron_writes: 0, chat: 0}\n")
		g.env = append(g.env, "LANEWAY_WRITE_TOKEN="+write)
		g.Start()
		all := []string{"operator.read", "operator.write", "operator.admin"}
		admin := newResetter(t, g, g.Token(), all...)
		callers := map[string]*resetter{
			"gateway": admin, "gateway, write asked": newResetter(t, g, g.Token(), all[:2]...), "gateway, read asked": newResetter(t, g, g.Token(), all[0]),
			"write": newResetter(t, g, write, all...), "anna": newResetter(t, g, g.namedFor(t, "anna", "write"), all...),
		}
		n := 0
		run := func() string { n++; return "run-" + strconv.Itoa(n) }
		makers := map[string]string{"agent:main:main": "gateway", "agent:main:drafts": "write", "agent:main:diary": "anna"}
		for key, maker := range makers {
			if _, err := callers[maker].say(t, key, "hello", run()); err != nil {
				t.Fatal(err)
			}
		}
		may := map[string][]string{
			"gateway": {"agent:main:main", "agent:main:drafts", "agent:main:diary"}, "gateway, write asked": {"agent:main:main"}, "gateway, read asked": nil,
			"write": {"agent:main:drafts"}, "anna": {"agent:main:diary"},
		}
		session := func(key string) string {
			var row struct{ Session struct{ SessionID string } }
			if err := admin.Into(&row, "sessions.describe", map[string]any{"key": key}); err != nil {
				t.Fatal(err)
			}
			return row.Session.SessionID
		}
		for name, caller := range callers {
			for key := range makers {
				for _, way := range []string{"/reset", "/new", "/NEW@bot now", "sessions.reset"} {
					before, allowed := session(key), slices.Contains(may[name], key)
					var answer string
					var err error
					if way == "sessions.reset" {
						_, err = caller.Call(way, map[string]any{"key": key}, 30*time.Second)
					} else {
						answer, err = caller.say(t, key, way, run())
					}
					if changed := session(key) != before; changed != allowed {
						t.Errorf("%s of %s by %s: reset %t, want %t (%s %v)", way, key, name, changed, allowed, answer, err)
					}
					refused := strings.Contains(answer, "operator.admin")
					if wire, ok := errors.AsType[*WireError](err); ok {
						hidden := name == "anna" && wire.Details["code"] == "SESSION_NOT_FOUND"
						lacks := wire.Code == "FORBIDDEN" && wire.Details["code"] == "MISSING_SCOPE" && wire.Details["missingScope"] != ""
						refused = hidden || name != "anna" && lacks
					}
					if refused == allowed {
						t.Errorf("%s of %s by %s: %q %v", way, key, name, answer, err)
					}
				}
			}
		}
		// Each reset has a row with its origin, for methods and commands.
		rows := OpenOracle(t, g, database).Rows("SELECT who, peer, request_id FROM audit_log WHERE verb = 'sessions.reset'")
		want := 4 * (3 + 1 + 1 + 1)
		for _, row := range rows {
			part := strings.Split(row, "|")
			if part[1] != "127.0.0.1" || !strings.HasPrefix(part[2], "c-") {
				t.Errorf("a reset left the row %q", row)
			}
		}
		if len(rows) != want {
			t.Errorf("%d rows for %d resets", len(rows), want)
		}
	})
}
