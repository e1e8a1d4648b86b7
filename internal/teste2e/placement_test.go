package teste2e

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"laneway/internal/testpg"
)

// TestInputForAnAgentOfAnotherReplicaIsAnsweredByIt sends everything through a replica that lacks the agent: while the replica with the agent lives, it answers.
// After its kill new input is refused as soon as its lease has ended, and what was accepted before is answered when it is back.
func TestInputForAnAgentOfAnotherReplicaIsAnsweredByIt(t *testing.T) {
	t.Parallel()
	database := testpg.DB(t)
	const config = "cluster: {lease: 3s, heartbeat: 500ms}\nlimits: {chat: 0, requests: 0}\n"
	lacking := Install(t, database, config+"agents: {main: {runner: echo}}\n")
	having := Install(t, database, config+"agents: {coder: {runner: echo, script: true}}\ndefault_agent: coder\n")
	lacking.Start()
	having.Start()
	c, ends, oracle := mustDial(t, lacking, nil), watch(t, lacking), OpenOracle(t, lacking, database)
	const session = "agent:coder:main"
	answered := func(id, text string) {
		t.Helper()
		if end := ends.await(t, id); end.state != "final" || !strings.Contains(end.text, text) {
			t.Errorf("%s ended %s with %q, want an answer with %q", id, end, end.text, text)
		}
	}
	say(t, c, session, "first", "hello")
	answered("first", "hello")
	say(t, c, session, "interrupted", "sleep 2s")
	say(t, c, session, "queued", "good morning")
	eventually(t, "the turn runs", 10*time.Second, func() bool {
		return oracle.Count(`SELECT count(*) FROM runs WHERE state = 'running'`) == 1
	})
	having.Kill()
	var refused error
	taken := 0
	eventually(t, "input is refused", 10*time.Second, func() bool {
		_, refused = c.Call("chat.send", map[string]any{
			"sessionKey": fmt.Sprintf("agent:coder:s%d", taken), "message": "hello", "idempotencyKey": fmt.Sprintf("late-%d", taken),
		}, 10*time.Second)
		if refused == nil {
			taken++
		}
		return refused != nil
	})
	var refusal *WireError
	if !errors.As(refused, &refusal) || refusal.Details["code"] != "UNKNOWN_AGENT_ID" || !strings.Contains(refusal.Message, `no running gateway has the agent "coder"`) {
		t.Errorf("new input was refused with: %v", refused)
	}
	having.Start()
	answered("queued", "good morning")
	say(t, c, session, "back", "good evening")
	answered("back", "good evening")
	eventually(t, "everything has an end", 20*time.Second, func() bool {
		return oracle.Count(`SELECT count(*) FROM inbox WHERE state <> 'done'`) == 0
	})
	oracle.Check(3 * time.Second)
}
