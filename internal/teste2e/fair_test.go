package teste2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"laneway/internal/testrun"
)

// A token that may write and sees its own only sent 31 messages with a lane and a time of its choice, and no other principal had a turn in that lane until
// they were over: neither the message of the operator nor a job of theirs.
func TestAWriteTokenThatSeesItsOwnDelaysNoOther(t *testing.T) {
	onBothStores(t, func(t *testing.T, database string) {
		g := Install(t, database, "agents: {main: {runner: echo, script: true}}\nlimits: {requests: 0}\n").AtOnce()
		g.Start()
		operator := connect(t, g)
		lab := dialWhenKnown(t, g, g.makeToken(t, "lab", "write", "own"), nil)
		send := func(i int, lane string) error {
			_, err := lab.Call("agent", map[string]any{
				"sessionKey": fmt.Sprintf("agent:main:lab%s-%d", lane, i), "message": "sleep 4m", "idempotencyKey": fmt.Sprintf("lab%s-%d", lane, i),
				"lane": lane, "timeout": 0,
			}, 30*time.Second)
			return err
		}
		for i := range 31 {
			for _, lane := range []string{"cron", ""} {
				if err := send(i, lane); err != nil {
					t.Fatalf("message %d for the lane %q: %v", i, lane, err)
				}
			}
		}
		answered := func(session, text string) func() bool {
			return func() bool {
				raw, err := operator.Call("chat.history", map[string]any{"sessionKey": session}, 30*time.Second)
				return err == nil && strings.Contains(string(raw), `"role":"assistant"`) && strings.Contains(string(raw), text)
			}
		}
		if _, err := operator.Call("chat.send", map[string]any{"sessionKey": "operator", "message": "hello there", "idempotencyKey": "operator-1"}, 30*time.Second); err != nil {
			t.Fatal(err)
		}
		testrun.Eventually(t, "the operator is answered", answered("operator", "hello there"))
		var job struct{ ID string }
		if err := operator.Into(&job, "cron.add", map[string]any{
			"name": "tick", "schedule": json.RawMessage(yearlyJob), "sessionTarget": "session:agent:main:ticks",
			"payload": map[string]any{"kind": "agentTurn", "message": "tick tock"},
		}); err != nil {
			t.Fatal(err)
		}
		if _, err := operator.Call("cron.run", map[string]any{"id": job.ID, "mode": "force"}, 30*time.Second); err != nil {
			t.Fatal(err)
		}
		testrun.Eventually(t, "the job of the operator ran", answered("agent:main:ticks", "tick tock"))
		testrun.Eventually(t, "ten turns of the token run, and no other", func() bool { // the slot of the job is free shortly after its answer
			var st struct {
				Lanes []struct {
					Name   string
					Active int
				}
			}
			if err := operator.Into(&st, "lanes.status", nil); err != nil {
				t.Fatal(err)
			}
			active := map[string]int{}
			for _, l := range st.Lanes {
				if l.Active > 0 {
					active[l.Name] = l.Active
				}
			}
			return maps.Equal(active, map[string]int{"main": 10})
		})
		// 52 wait already; 100 may.
		refused := error(nil)
		waiting := 52
		for i := 31; refused == nil && i < 131; i++ {
			if refused = send(i, "cron"); refused == nil {
				waiting++
			}
		}
		var e *WireError
		if !errors.As(refused, &e) || e.Code != "UNAVAILABLE" || e.Details["code"] != "RATE_LIMITED" || !e.Retryable || e.RetryAfterMs <= 0 || e.Details["method"] != "agent" {
			t.Errorf("the refusal is %v", refused)
		}
		if waiting != 100 {
			t.Errorf("%d messages wait, want 100", waiting)
		}
	})
}
