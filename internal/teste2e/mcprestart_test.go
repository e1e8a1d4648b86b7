package teste2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"laneway/internal/testmcp"
	"laneway/internal/testmodel"
	"laneway/internal/testrun"
)

// TestATurnThatRunsAgainAfterAKillHasTheToolsOfItsServers kills the gateway in a call of an MCP server whose program takes a second to start. The turn that runs
// again waits for the server; its model is offered the tools, and reads that the call may have happened.
func TestATurnThatRunsAgainAfterAKillHasTheToolsOfItsServers(t *testing.T) {
	NeedsProcesses(t)
	onBothStores(t, func(t *testing.T, database string) {
		self := ownBinary(t)
		model := testmodel.Start(t)
		model.Answer(func(call testmodel.Call) testmodel.Reply {
			if results := call.Results(); len(results) > 0 {
				return testmodel.Reply{Pieces: []string{"The call: " + results[0].Text}}
			}
			return testmodel.Reply{Calls: []testmodel.ToolCall{{ID: "a", Name: "bad_hang", Args: "{}"}}}
		})
		g := Install(t, database, fmt.Sprintf(`
agents:
  main: {runner: openai, model: test, base_url: "%s/v1", mcp: [bad]}
mcp: {servers: {bad: {command: ["sh", "-c", "sleep 1; exec \"$0\"", %q], env: {%s: "silent"}, tools: [hang, echo]}}}
limits: {chat: 0, requests: 0}
cluster: {lease: 3s, heartbeat: 500ms}
`, model.URL(), self, testmcp.Variable)).AtOnce()
		g.Start()
		o := OpenOracle(t, g, database)
		say(t, mustDial(t, g, nil), "agent:main:a", "hangs", "call it")
		testrun.Eventually(t, "the call is recorded", func() bool { return o.Count("SELECT count(*) FROM turn_rounds") == 1 })
		g.Kill()
		g.Start()
		testrun.Eventually(t, "the turn has ended", func() bool { return o.Count("SELECT count(*) FROM inbox WHERE state <> 'done'") == 0 })
		calls := model.Calls()
		last := calls[len(calls)-1]
		if !slices.Contains(last.Tools, "bad_hang") {
			t.Errorf("the model was offered %v after the restart, want the tools of the server", last.Tools)
		}
		if results := last.Results(); len(results) != 1 || !strings.Contains(results[0].Text, "it may or may not have happened") {
			t.Errorf("the model was given %+v", results)
		}
	})
}
