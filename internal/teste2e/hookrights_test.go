package teste2e

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"testing"
	"time"
)

const ciSecret = "hook-secret-0123456789-abcdefghijk"

// A hook that may name its session can use one of its own agent that no other principal owns. Any other session does not exist for it and
// receives no message.
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

// A recorded delivery of GitHub is the same one, even with additional headers that GitHub does not send.
func TestARecordedDeliveryIsNotNewUnderAnotherKey(t *testing.T) {
	onBothStores(t, func(t *testing.T, database string) {
		g := Install(t, database, "hooks: {push: {secret: "+ciSecret+", scheme: github}}\n")
		g.Start()
		body := []byte(`{"ref":"refs/heads/main"}`)
		mac := hmac.New(sha256.New, []byte(ciSecret))
		_, _ = mac.Write(body)
		recorded := map[string]string{"X-Hub-Signature-256": "sha256=" + hex.EncodeToString(mac.Sum(nil)), "X-GitHub-Delivery": "72d3162e-cc78-11e3-81ab-4c9367dc0958"}
		runs := map[string]bool{}
		for i := range 5 {
			if i > 0 {
				recorded["Idempotency-Key"] = fmt.Sprint("another-", i)
			}
			got := g.post("/hooks/push", body, recorded)
			var answer struct {
				RunID     string
				Duplicate bool
			}
			if err := json.Unmarshal([]byte(got.Body), &answer); err != nil || got.Status != http.StatusAccepted || answer.Duplicate != (i > 0) {
				t.Errorf("delivery %d: %d %s %v", i, got.Status, got.Body, got.Err)
			}
			runs[answer.RunID] = true
		}
		if n := OpenOracle(t, g, database).Count("SELECT count(*) FROM inbox"); n != 1 || len(runs) != 1 {
			t.Errorf("one delivery made %d messages and %d runs", n, len(runs))
		}
	})
}
