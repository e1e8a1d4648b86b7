package teste2e

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"laneway/internal/testrun"
)

const hookSecret = "hook-secret-0123456789-abcdefghijk"

// killedAfter makes one call, kills the gateway after the answer, starts it again, repeats the same call and returns both answers.
func killedAfter(t *testing.T, g *Gateway, method string, params map[string]any) (first, second map[string]any) {
	t.Helper()
	answers := make([]map[string]any, 2)
	for i := range answers {
		c, err := Dial(g.URL(), g.Token(), nil)
		if err != nil {
			t.Fatal(err)
		}
		testrun.Eventually(t, method+" is answered", func() bool { // shortly after the start it is not yet registered in its store
			var raw json.RawMessage
			if raw, err = c.Call(method, params, 30*time.Second); err != nil {
				return false
			}
			return json.Unmarshal(raw, &answers[i]) == nil
		})
		if i == 0 {
			g.Kill()
			c.Close()
			g.Start()
			continue
		}
		c.Close()
	}
	return answers[0], answers[1]
}

// After kill -9, everything that was acknowledged exists, and the same call again has no second effect.
func TestWhatWasAcknowledgedSurvivesAKill(t *testing.T) {
	NeedsProcesses(t)
	onBothStores(t, func(t *testing.T, database string) {
		g := Install(t, database, "cluster: {lease: 3s, heartbeat: 500ms}\nhooks: {deploy: {secret: "+hookSecret+"}}\n"+
			"agents: {main: {runner: echo, delay: 300ms}}\n").AtOnce()
		g.Start()
		for _, method := range []string{"chat.send", "agent"} {
			session := "kept-by-" + method
			first, second := killedAfter(t, g, method, map[string]any{"sessionKey": session, "message": "kept", "idempotencyKey": "key-" + method})
			if first["runId"] != "key-"+method || second["runId"] != first["runId"] {
				t.Errorf("%s: %v, then %v", method, first, second)
			}
			g.answeredOnce(t, session)
		}
		job := map[string]any{
			"name": "kept", "schedule": json.RawMessage(yearlyJob), "sessionTarget": "isolated",
			"payload": map[string]any{"kind": "agentTurn", "message": "kept"}, "idempotencyKey": "key-add",
		}
		first, second := killedAfter(t, g, "cron.add", job)
		if first["id"] == nil || second["id"] != first["id"] {
			t.Errorf("cron.add: %v, then %v", first, second)
		}
		reset := map[string]any{"key": "kept-by-reset", "idempotencyKey": "key-reset"}
		first, second = killedAfter(t, g, "sessions.reset", reset)
		if entry(first) == "" || entry(second) != entry(first) {
			t.Errorf("sessions.reset: %v, then %v", first, second)
		}
		g.hookTwice(t)
		g.runOnce(t, job)
		OpenOracle(t, g, database).Check(3 * time.Second)
	})
}

func entry(answer map[string]any) string {
	e, _ := answer["entry"].(map[string]any)
	id, _ := e["sessionId"].(string)
	return id
}

// answeredOnce waits until the only message of a session has its only answer.
func (g *Gateway) answeredOnce(t *testing.T, session string) {
	t.Helper()
	c, err := Dial(g.URL(), g.Token(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	var h struct {
		Messages      []struct{ Role string }
		PendingInputs struct{ Total int }
	}
	testrun.Eventually(t, "the answer in "+session, func() bool {
		return c.Into(&h, "chat.history", map[string]any{"sessionKey": session}) == nil && len(h.Messages) >= 2
	})
	if len(h.Messages) != 2 || h.PendingInputs.Total != 0 {
		t.Errorf("%s has %+v, want one question and one answer", session, h)
	}
}

// runOnce kills the gateway after cron.run was answered: the run exists once.
func (g *Gateway) runOnce(t *testing.T, job map[string]any) {
	t.Helper()
	c, err := Dial(g.URL(), g.Token(), nil)
	if err != nil {
		t.Fatal(err)
	}
	var added struct{ ID string }
	var run struct{ RunID string }
	if err := c.Into(&added, "cron.add", job); err != nil {
		t.Fatal(err)
	}
	if err := c.Into(&run, "cron.run", map[string]any{"id": added.ID}); err != nil {
		t.Fatal(err)
	}
	g.Kill()
	c.Close()
	g.Start()
	if c, err = Dial(g.URL(), g.Token(), nil); err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	var runs struct {
		Entries []struct{ RunID, Status string }
	}
	testrun.Eventually(t, "the run that was asked for", func() bool {
		return c.Into(&runs, "cron.runs", map[string]any{"id": added.ID}) == nil && len(runs.Entries) > 0
	})
	if len(runs.Entries) != 1 || runs.Entries[0].RunID != run.RunID || runs.Entries[0].Status != "ok" {
		t.Errorf("runs %+v, want one ok: %s", runs.Entries, run.RunID)
	}
}

// hookTwice calls a hook, kills the gateway, and calls it again with the same signature.
func (g *Gateway) hookTwice(t *testing.T) {
	t.Helper()
	const body = "version 1.2 is out"
	at := strconv.FormatInt(time.Now().Unix(), 10)
	mac := hmac.New(sha256.New, []byte(hookSecret))
	_, _ = mac.Write([]byte(at + "." + body))
	call := func() (out struct {
		RunID     string
		Duplicate bool
	},
	) {
		t.Helper()
		testrun.Eventually(t, "the hook is answered", func() bool {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, g.URL()+"/hooks/deploy", strings.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("X-Laneway-Signature", "t="+at+",v1="+hex.EncodeToString(mac.Sum(nil)))
			status, text := roundTrip(t, req)
			return status == http.StatusAccepted && json.Unmarshal([]byte(text), &out) == nil
		})
		return out
	}
	first := call()
	g.Kill()
	g.Start()
	if again := call(); first.Duplicate || !again.Duplicate || again.RunID != first.RunID {
		t.Errorf("hook: %+v, then %+v", first, again)
	}
}
