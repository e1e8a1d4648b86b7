package teste2e

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"laneway/internal/testmodel"
)

// TestAdministratorsReadWhatTheProviderWrote: the reason of a refusal was in the log only. Now an administrator reads it, in the event of the run and over HTTP;
// a token that may only write reads the sentence for people, and neither reads the key.
func TestAdministratorsReadWhatTheProviderWrote(t *testing.T) {
	const key, words = "sk-secret-0123456789", "model 'llama3.2' not found, try pulling it first"
	onBothStores(t, func(t *testing.T, database string) {
		model := testmodel.Start(t)
		model.Answer(func(testmodel.Call) testmodel.Reply {
			return testmodel.Reply{Status: http.StatusNotFound, Message: words + " (key " + key + ")"}
		})
		g := Install(t, database, strings.Replace(providersConfig(model), "model: test,", "model: llama3.2, api_key: "+key+",", 1)+
			"write_token: writes-0123456789-0123456789-0123\n")
		g.Start()
		for name, tc := range map[string]struct {
			token string
			reads bool
		}{"administrator": {g.Token(), true}, "writer": {"writes-0123456789-0123456789-0123", false}} {
			check := func(where, text string) {
				t.Helper()
				if strings.Contains(text, words) != tc.reads || strings.Contains(text, key) || !strings.Contains(text, "did not accept the request") {
					t.Errorf("%s, %s: %s", name, where, text)
				}
			}
			for _, path := range []string{"/v1/chat/completions", "/v1/responses"} {
				body := `{"model":"laneway","messages":[{"role":"user","content":"x"}],"input":"x"}`
				check(path, g.post(path, []byte(body), map[string]string{"Authorization": "Bearer " + tc.token}).Body)
			}
			events := make(chan string, 16)
			c, err := Dial(g.URL(), tc.token, func(e Event) {
				if e.Name == "chat" && strings.Contains(string(e.Payload), `"error"`) {
					events <- string(e.Payload)
				}
			})
			if err != nil {
				t.Fatal(err)
			}
			var sent struct{ RunID string }
			if err := c.Into(&sent, "chat.send", map[string]any{"sessionKey": "main", "message": "x", "idempotencyKey": "s-" + name}); err != nil {
				t.Fatal(err)
			}
			select {
			case text := <-events:
				var payload struct{ ErrorMessage string }
				if err := json.Unmarshal([]byte(text), &payload); err != nil {
					t.Fatal(err)
				}
				check("event", payload.ErrorMessage)
			case <-time.After(time.Minute):
				t.Fatalf("%s: no event", name)
			}
			c.Close()
		}
		out, errs, code := g.CLI(context.WithoutCancel(t.Context()), "", "send", "hello")
		if code == 0 || !strings.Contains(out+errs, words) {
			t.Errorf("laneway send: %d %s %s", code, out, errs)
		}
	})
}
