package dispatch_test

import (
	"testing"
	"time"

	"laneway/internal/agent"
	"laneway/internal/chat"
	"laneway/internal/dispatch"
)

// second adds an agent.
func second(runner agent.Runner) option {
	return func(c *dispatch.Config) {
		c.Agents = append(c.Agents, dispatch.Agent{Info: agent.Info{ID: "second", Runner: "script"}, Runner: runner})
	}
}

// TestAMessageForAnAgentThatThisProcessLacksFails takes over a message that no process has begun to run.
func TestAMessageForAnAgentThatThisProcessLacksFails(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		st := newStore()
		c, off := cord(st)
		killed := open(t, c, second(&script{}), lanes(1))
		killed.send("main", "sleep 1h")
		id := killed.send("agent:second:main", "waits for a slot")
		time.Sleep(time.Second)
		off.Store(true)

		other := open(t, st)
		defer other.close()
		end := other.end(id)
		want(t, "outcome", end.Outcome, chat.OutcomeFailed)
		want(t, "reason", end.Reason, string(chat.FailUnknownAgent))
		want(t, "sentence", end.Message, `there is no agent "second" here; the operator can add it to the configuration`)
		killed.abandon()
	})
}
