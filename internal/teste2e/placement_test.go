package teste2e

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"laneway/internal/testpg"
	"laneway/internal/testrun"
)

// Messages are sent to every agent through each of three replicas while they restart one after the other with one additional agent. Input
// is answered, or refused because no replica has its agent at that time. After a kill the remaining replicas report what the work of the
// dead one waits for.
func TestReplicasWithDifferentAgentsRestartOneAfterTheOther(t *testing.T) {
	NeedsProcesses(t)
	t.Parallel()
	database := testpg.DB(t)
	const config = "cluster: {lease: 3s, heartbeat: 500ms}\nlimits: {chat: 0, requests: 0}\ndefault_agent: main\nagents: {main: {runner: echo, script: true}%s}\n"
	var replicas []*Gateway
	for _, own := range []string{"", ", coder: {runner: echo, script: true}", ", writer: {runner: echo, script: true}"} {
		g := Install(t, database, fmt.Sprintf(config, own))
		g.Start()
		replicas = append(replicas, g)
	}
	oracle := OpenOracle(t, replicas[0], database)
	accepted, refused := 0, 0
	talk := func(round string, agents ...string) {
		t.Helper()
		for i, g := range replicas {
			c := mustDial(t, g, nil)
			for _, agent := range agents {
				_, err := c.Call("chat.send", map[string]any{
					"sessionKey": fmt.Sprintf("agent:%s:s%d", agent, i), "message": "sleep 20ms", "idempotencyKey": fmt.Sprintf("%s-%s-%d", round, agent, i),
				}, 10*time.Second)
				var refusal *WireError
				switch {
				case err == nil:
					accepted++
				case errors.As(err, &refusal) && refusal.Details["code"] == "UNKNOWN_AGENT_ID":
					refused++
				default:
					t.Errorf("%s, agent %s through replica %d: %v", round, agent, i, err)
				}
			}
		}
	}
	talk("before", "main", "coder", "writer")
	if accepted != 9 || refused != 0 {
		t.Errorf("%d messages were accepted and %d refused, want 9 and none", accepted, refused)
	}
	for i, g := range replicas {
		g.Signal(syscall.SIGTERM)
		if took, code := g.WaitExit(40 * time.Second); code != 0 {
			t.Errorf("replica %d ended with %d after %s", i, code, took)
		}
		whole, err := os.ReadFile(g.config)
		if err != nil {
			t.Fatal(err)
		}
		more := strings.Replace(string(whole), "agents: {main: {runner: echo, script: true}", "agents: {main: {runner: echo, script: true}, editor: {runner: echo, script: true}", 1)
		if err := os.WriteFile(g.config, []byte(more), 0o600); err != nil || more == string(whole) {
			t.Fatal("the configuration was not changed", err)
		}
		g.Start()
		talk(fmt.Sprintf("restart-%d", i), "main", "coder", "writer", "editor")
	}
	talk("after", "main", "coder", "writer", "editor")
	if refused != 0 {
		t.Errorf("%d messages were refused although a replica had their agent", refused)
	}
	ended := func(what string) {
		t.Helper()
		testrun.Eventually(t, what, func() bool { return oracle.Count(`SELECT count(*) FROM inbox WHERE state <> 'done'`) == 0 })
		if n := oracle.Count(`SELECT count(*) FROM inbox WHERE outcome <> 'answered'`); n != 0 {
			t.Errorf("%s: %d messages were not answered", what, n)
		}
	}
	ended("everything has an end")

	c := mustDial(t, replicas[0], nil)
	say(t, c, "agent:coder:s0", "left", "sleep 1s")
	testrun.Eventually(t, "the turn runs", func() bool { return oracle.Count(`SELECT count(*) FROM runs WHERE state = 'running'`) == 1 })
	replicas[1].Kill()
	const cause = "agent coder: 1 message waits for it, and no running gateway has it"
	said := ""
	testrun.Eventually(t, "status names the cause", func() bool {
		said, _, _ = replicas[0].CLI(t.Context(), "", "status")
		return strings.Contains(said, cause)
	})
	testrun.Eventually(t, "doctor names the cause", func() bool {
		said, _, _ = replicas[0].CLI(t.Context(), "", "doctor", "--config", replicas[0].config)
		return strings.Contains(said, cause) && !strings.Contains(said, "rule I5")
	})
	replicas[1].Start()
	ended("the work of the dead replica has an end")
	for i, g := range replicas {
		if strings.Contains(g.Output(), "panic") {
			t.Errorf("replica %d panicked:\n%s", i, g.Output())
		}
	}
	oracle.Check(3 * time.Second)
}
