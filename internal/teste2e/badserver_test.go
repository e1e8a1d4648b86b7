package teste2e

import (
	"fmt"
	"strings"
	"testing"

	"laneway/internal/testmcp"
	"laneway/internal/testmodel"
	"laneway/internal/testrun"
)

// serverState is the state of an MCP server as the gateway reports it.
func serverState(t *testing.T, c *Client, name string) string {
	t.Helper()
	var list struct {
		Servers []struct{ Name, State string }
	}
	if err := c.Into(&list, "agents.list", map[string]any{}); err != nil {
		t.Fatal(err)
	}
	for _, s := range list.Servers {
		if s.Name == name {
			return s.State
		}
	}
	return ""
}

// badServers is a gateway whose model may call the tools of four servers of one program: one that is bad in its calls, the same with a short time for
// each of them, one whose list does not end, and one that does not exist.
func badServers(t *testing.T, model *testmodel.Server) string {
	t.Helper()
	self := ownBinary(t)
	tools := strings.Join(testmcp.Tools(), ", ")
	return fmt.Sprintf(`
agents: {main: {runner: openai, model: test, base_url: "%s/v1", mcp: [bad, slow, endless, gone]}}
limits: {chat: 0, requests: 0}
mcp:
  servers:
    bad: {command: [%[2]q], env: {%[3]s: good}, tools: [%[4]s, later]}
    slow: {command: [%[2]q], env: {%[3]s: good}, tools: [echo, hang, flood, deaf], timeout: 2s}
    endless: {command: [%[2]q], env: {%[3]s: endless}, tools: [echo]}
    gone: {command: [/does/not/exist], tools: [echo]}
`, model.URL(), self, testmcp.Variable, tools)
}

// TestABadServerCostsOneSentenceAndNoTurn lets a model call each tool of a server that was written to be bad. The turn goes on with one sentence, the
// gateway stays within its memory, and the server is used again.
func TestABadServerCostsOneSentenceAndNoTurn(t *testing.T) {
	NeedsProcesses(t)
	onBothStores(t, func(t *testing.T, database string) {
		model := testmodel.Start(t)
		model.Answer(obedient)
		g := Install(t, database, badServers(t, model))
		g.Start()
		w, c := watch(t, g), mustDial(t, g, nil)
		connected := func() {
			t.Helper()
			testrun.Eventually(t, "the servers are connected", func() bool {
				return serverState(t, c, "bad") == "connected" && serverState(t, c, "slow") == "connected"
			})
		}
		asked := 0
		ask := func(call string) string {
			asked++
			session, id := fmt.Sprint("agent:main:bad-", asked), fmt.Sprint("bad-", asked)
			say(t, c, session, id, "<<"+call+">>")
			w.await(t, id)
			_, answer, _ := strings.Cut(historyOf(t, c, session), "assistant: ")
			return answer
		}
		for _, tt := range []struct{ call, want string }{
			{`bad_echo {"a":1}`, `{"a":1}`},
			{`slow_hang {}`, "the server slow did not answer within 2s; the call may or may not have been made"},
			{`bad_huge {}`, "the server bad failed on this call; the call may or may not have been made"},
			{`bad_long {}`, "the result has 102400 bytes; the limit is 65536; ask for less"},
			{`bad_garbage {}`, "the server bad failed on this call; the call may or may not have been made"},
			{`bad_die {}`, "the server bad failed on this call; the call may or may not have been made"},
			{`bad_strange {"color":1}`, `the server bad refuses the call: unknown argument "color"`},
			{`bad_echo [1]`, "The arguments are not a JSON object; the call was not made."},
			{`bad_elicit {}`, "the client says: "},
			{`bad_zero {}`, "It says: a"},
			{`bad_nothing {}`, `There is no tool "bad_nothing"; there are `},
			{`endless_echo {}`, `There is no tool "endless_echo"; there are `},
			{`gone_echo {}`, `There is no tool "gone_echo"; there are `},
			{`slow_flood {}`, "it begins"},
			{`slow_echo {"behind":"the flood"}`, `{"behind":"the flood"}`},
			{`slow_deaf {}`, "the server slow did not answer within 2s; the call may or may not have been made"},
			{`bad_change {}`, "changed"},
		} {
			connected()
			if tt.want == "changed" {
				testrun.Eventually(t, "the program that does not read is started again", func() bool { return strings.Contains(ask("slow_echo {}"), "{}") })
			}
			if answer := ask(tt.call); !strings.Contains(answer, tt.want) {
				t.Errorf("%s: the answer is\n%.2000s\nwant %q in it", tt.call, answer, tt.want)
			}
		}
		testrun.Eventually(t, "the list is read again", func() bool {
			stdout, _, code := g.CLI(t.Context(), "", "agents")
			return code == 0 && strings.Contains(stdout, "bad_later") && !strings.Contains(stdout, "bad_echo")
		})
		stdout, _, _ := g.CLI(t.Context(), "", "agents")
		for _, text := range []string{"bad slow endless gone", "connected", "its list of tools does not end", "failed"} {
			if !strings.Contains(stdout, text) {
				t.Errorf("laneway agents prints no %q:\n%s", text, stdout)
			}
		}
		stdout, _, _ = g.CLI(t.Context(), "", "doctor", "--config", g.config)
		for _, text := range []string{"MCP server bad: it is connected and does not have echo, ", "MCP server endless: it is not connected: ", "MCP server gone: it is not connected: "} {
			if !strings.Contains(stdout, text) {
				t.Errorf("laneway doctor prints no %q:\n%s", text, stdout)
			}
		}
		most := abuseMaxRSS
		if len(raceFlag()) > 0 {
			most *= 2
		}
		if got := g.peak(); got > most {
			t.Errorf("the gateway had %d MB, bound %d", got>>20, most>>20)
		} else {
			t.Logf("the gateway had %d MB at most", got>>20)
		}
	})
}
