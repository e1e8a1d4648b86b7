package teste2e

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"laneway/internal/testmodel"
	"laneway/internal/testrun"
)

// providersConfig is a gateway whose agents use the model server, each with the API of its provider.
func providersConfig(model *testmodel.Server) string {
	return fmt.Sprintf(`
agents:
  main: {runner: openai, model: test, base_url: "%[1]s/v1"}
  sister: {runner: anthropic, model: test, base_url: "%[1]s"}
limits: {chat: 0, requests: 0, cron_writes: 0}
`, model.URL())
}

// The model refuses every call with 503, and the job decides how often that is repeated. A message of a person, which nothing else repeats,
// is still retried by the runner.
func TestAnAttemptOfAJobCallsTheModelOnce(t *testing.T) {
	onBothStores(t, func(t *testing.T, database string) {
		model := testmodel.Start(t)
		model.Answer(func(testmodel.Call) testmodel.Reply {
			return testmodel.Reply{Status: http.StatusServiceUnavailable, Message: "try later"}
		})
		g := Install(t, database, providersConfig(model))
		g.Start()
		c, o := connect(t, g), OpenOracle(t, g, database)
		calls := func(word string) (n int) {
			for _, call := range model.Calls() {
				if strings.Contains(string(call.Body), word) {
					n++
				}
			}
			return n
		}
		for _, agent := range []string{"main", "sister"} {
			for retries, word := range []string{"once-" + agent, "twice-" + agent} {
				j := addJob(t, c, word, every(time.Hour), map[string]any{
					"agentId": agent, "payload": map[string]any{"kind": "agentTurn", "message": word},
					"retry": map[string]any{"maxRetries": retries, "baseMs": 100, "maxMs": 100},
				})
				run := runByHand(t, c, j.ID)
				testrun.Eventually(t, word+" has failed", func() bool {
					return o.Count("SELECT count(*) FROM cron_run_logs WHERE id = '"+run+"' AND state = 'error'") == 1
				})
				if n := calls(word); n != retries+1 {
					t.Errorf("%s with %d retries called the model %d times, want %d", word, retries, n, retries+1)
				}
			}
		}
		if _, err := c.Call("chat.send", map[string]any{"sessionKey": "main", "message": "typed", "idempotencyKey": "typed-1"}, 10*time.Second); err != nil {
			t.Fatal(err)
		}
		testrun.Eventually(t, "the message of a person is tried again", func() bool { return calls("typed") > 1 })
	})
}
