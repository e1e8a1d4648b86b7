package acp_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	sdk "github.com/coder/acp-go-sdk"
	"github.com/google/go-cmp/cmp"

	"laneway/internal/agent"
	"laneway/internal/agent/acp"
	"laneway/internal/chat"
)

// toolsOf returns the tools that the agent reports in a turn.
func toolsOf(t *testing.T, runner agent.Runner, req agent.Request) offered {
	t.Helper()
	result, err := run(t, runner, req)
	var o offered
	if err != nil || json.Unmarshal([]byte(result.Text), &o) != nil {
		t.Fatalf("got %q and %v", result.Text, err)
	}
	return o
}

// opens returns a function that grants access.
func opens(access agent.ToolAccess) func(context.Context) (agent.ToolAccess, func()) {
	return func(context.Context) (agent.ToolAccess, func()) { return access, func() {} }
}

func TestAnAgentGetsTheToolsOfTheGateway(t *testing.T) {
	t.Parallel()
	access := agent.ToolAccess{URL: "http://127.0.0.1:1/mcp", Token: "lwturn_secret-of-the-session"}
	bridge := []string{"/opt/laneway", "mcp"}
	overHTTP := []sdk.McpServer{{Http: &sdk.McpServerHttpInline{
		Type: "http", Name: "laneway", Url: access.URL + "?prefix=laneway_", Headers: []sdk.HttpHeader{{Name: "Authorization", Value: "Bearer " + access.Token}},
	}}}
	byProgram := []sdk.McpServer{{Stdio: &sdk.McpServerStdio{
		Name: "laneway", Command: "/opt/laneway", Args: []string{"mcp"},
		Env: []sdk.EnvVariable{{Name: "LANEWAY_MCP_URL", Value: access.URL + "?prefix=laneway_"}, {Name: "LANEWAY_MCP_TOKEN", Value: access.Token}},
	}}}
	for name, tt := range map[string]struct {
		http   bool
		bridge []string
		access agent.ToolAccess
		want   []sdk.McpServer
	}{
		"OverHTTP":  {true, bridge, access, overHTTP},
		"ByProgram": {false, bridge, access, byProgram},
		"NoProgram": {false, nil, access, []sdk.McpServer{}},
		"NoTools":   {true, bridge, agent.ToolAccess{}, []sdk.McpServer{}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var log bytes.Buffer
			runner := openLogged(t, script{Tools: true, HTTP: tt.http}, acp.Config{Bridge: tt.bridge}, slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})))
			req := request("a", "run-1", "go")
			req.OpenTools = opens(tt.access)
			got := toolsOf(t, runner, req)
			if diff := cmp.Diff(tt.want, got.Servers); diff != "" {
				t.Errorf("MCP servers (-want +got):\n%s", diff)
			}
			if got.URL != tt.access.URL || got.Token != tt.access.Token {
				t.Errorf("variables %q and %q", got.URL, got.Token)
			}
			runner.Close() // the log is complete
			if text := log.String(); !strings.Contains(text, "the token is") || strings.Contains(text, access.Token) {
				t.Errorf("the log shows the token, or nothing:\n%s", text)
			}
		})
	}
}

// An agent gets its tools when its session is made, so the first turn with tools makes another session.
func TestToolsComeWithALaterTurn(t *testing.T) {
	t.Parallel()
	runner := open(t, script{Tools: true, HTTP: true}, acp.Config{})
	first := toolsOf(t, runner, request("a", "run-1", "one"))
	history := []chat.TranscriptEntry{entry(1, "run-1", chat.RoleUser, "one"), entry(2, "run-1", chat.RoleAssistant, "answer")}
	var sessions []string
	for _, runID := range []string{"run-2", "run-3"} {
		req := request("a", runID, runID, history...)
		req.OpenTools = opens(agent.ToolAccess{URL: "http://127.0.0.1:1/mcp", Token: "lwturn_x"})
		got := toolsOf(t, runner, req)
		if len(got.Servers) != 1 || got.Session == first.Session {
			t.Errorf("%s: got %+v, want another session with the tools", runID, got)
		}
		sessions = append(sessions, got.Session)
		history = append(history, entry(int64(len(history)+1), runID, chat.RoleUser, runID))
	}
	if sessions[0] != sessions[1] {
		t.Errorf("sessions %q, want one from then on", sessions)
	}
}

// TestToolsAreOpenWhileTheProcessWorksForTheirTurn starts two turns of a session at once, as in groups: the second one opens its tools only after the first one has
// closed its own.
func TestToolsAreOpenWhileTheProcessWorksForTheirTurn(t *testing.T) {
	t.Parallel()
	runner := open(t, script{Asks: 1}, acp.Config{})
	var open, most, total atomic.Int64
	var group sync.WaitGroup
	for i := range 5 {
		group.Go(func() {
			req := request("a", fmt.Sprintf("run-%d", i), "go")
			req.Asker = asker(func(context.Context, agent.Question) (int, error) { return 0, nil })
			req.OpenTools = func(context.Context) (agent.ToolAccess, func()) {
				total.Add(1)
				if n := open.Add(1); n > most.Load() {
					most.Store(n)
				}
				return agent.ToolAccess{URL: "http://127.0.0.1:1/mcp", Token: "lwturn_x"}, func() { open.Add(-1) }
			}
			if _, err := run(t, runner, req); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	if most.Load() != 1 || total.Load() != 5 || open.Load() != 0 {
		t.Errorf("%d open at once, %d in all, %d at the end", most.Load(), total.Load(), open.Load())
	}
}
