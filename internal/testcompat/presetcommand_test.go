//go:build compat

package testcompat

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"laneway/internal/client"
	messages "laneway/internal/wire"
)

// TestCommandAgentsAnswer runs unmodified Claude Code and Codex as programs of the command runner, with a scripted model. It checks text, steps, usage, files, and that
// the second turn continues the session, also after a restart.
func TestCommandAgentsAnswer(t *testing.T) {
	presets := presetCases()
	for name, one := range map[string]struct {
		pkg, program string
		scripts      []string
		args         []string
		tool         string // the name of the step
		reads, sends bool   // it has a tool that reads pictures, and the tools of the gateway
	}{
		"claude": {
			pkg: "@anthropic-ai/claude-code@2", program: "claude", scripts: []string{"@anthropic-ai/claude-code"}, tool: "Bash", reads: true, sends: true,
			args: []string{
				"-p", "--output-format", "stream-json", "--verbose", "--include-partial-messages", "--allowedTools", "Bash,Read,mcp__gateway__send_file", "--mcp-config",
				`{"mcpServers":{"gateway":{"type":"http","url":"${LANEWAY_MCP_URL}","headers":{"Authorization":"Bearer ${LANEWAY_MCP_TOKEN}"}}}}`,
			},
		},
		"codex": {
			pkg: "@openai/codex@0", program: "codex", tool: "command_execution",
			args: []string{"exec", "--json", "--skip-git-repo-check", "--sandbox", "danger-full-access", "-"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := npmInstall(t, []string{one.pkg}, one.scripts...)
			ctx, cancel := context.WithTimeout(t.Context(), presetTime)
			defer cancel()
			model, orders := startPresetModel(t)
			home, env := presets[name].home(t, model.URL())
			bot, channels := presetBot(t)
			raw, err := json.Marshal(map[string]any{"main": map[string]any{
				"runner": "command", "output": name, "command": append([]string{filepath.Join(dir, "node_modules", ".bin", one.program)}, one.args...), "dir": t.TempDir(), "env": env,
			}})
			if err != nil {
				t.Fatal(err)
			}
			p := &presetRun{t: t, ctx: ctx, g: installGateway(t, "", "agents: "+string(raw)+"\n"+channels), bot: bot, model: model, orders: orders}
			p.g.Start()
			_, document := p.remember()
			if document != "as a link" {
				t.Errorf("the document reaches the model: %s", document)
			}
			before := p.used()
			steps, pieces := p.steps(presetOrder)
			if !slices.Equal(steps, []string{"start " + one.tool, "result " + one.tool}) || pieces == 0 {
				t.Errorf("steps %q and %d pieces of text", steps, pieces)
			}
			if shown := p.cli("sessions", "show", "agent:main:main"); !strings.Contains(shown, "made.txt") {
				t.Errorf("the turn with a command sends no file: %s\n%s", shown, p.g.Output())
			}
			if used := p.used().TotalTokens - before.TotalTokens; used != 14 { // two requests
				t.Errorf("the turn with a command used %d tokens, want 14", used)
			}
			if !p.asked("remember the word apple") || p.asked(presetHistory) {
				t.Error("the second turn does not continue the session of the first one")
			}
			if one.reads {
				p.cli("send", presetReadOrder)
				if !p.asked(base64.StdEncoding.EncodeToString(presetPicture)[:40]) {
					t.Error("the program cannot read the picture at the path of the prompt")
				}
			}
			if one.sends && !p.sendFile() {
				t.Error("send_file sends no file")
			}
			p.g.Signal(syscall.SIGTERM)
			if took, code := p.g.WaitExit(time.Minute); code != 0 {
				t.Errorf("the gateway ended with %d after %s", code, took)
			}
			p.g.Start()
			if out := p.cli("send", "which word was it?"); !strings.Contains(out, presetAnswer) {
				t.Errorf("after a restart: %q", out)
			}
			if !p.asked("remember the word apple") || p.asked(presetHistory) {
				t.Error("the turn after a restart does not continue the session")
			}
			p.g.Signal(syscall.SIGTERM)
			p.g.WaitExit(time.Minute)
			_ = os.RemoveAll(home) // the program may have left a process that writes to it
		})
	}
}

// steps sends a message over a connection, and returns the steps of tool calls and the number of pieces of text until the turn has ended.
func (p *presetRun) steps(text string) (steps []string, pieces int) {
	p.t.Helper()
	conn, err := client.Dial(p.ctx, client.Options{URL: p.g.URL(), Token: p.g.Token(), ToolEvents: true})
	if err != nil {
		p.t.Fatal(err)
	}
	params := map[string]string{"sessionKey": "agent:main:main", "message": text, "idempotencyKey": text}
	if err := conn.Call(p.ctx, "chat.send", params, nil); err != nil {
		p.t.Fatal(err)
	}
	for event := range conn.Events() {
		var end messages.ChatEvent
		if event.Name == messages.EventChat && json.Unmarshal(event.Payload, &end) == nil && end.State != messages.ChatDelta {
			if err := conn.Close(); err != nil {
				p.t.Error(err)
			}
		}
		var e messages.AgentEvent[messages.ToolData]
		switch {
		case event.Name != messages.EventAgent || json.Unmarshal(event.Payload, &e) != nil:
		case e.Stream == messages.StreamTool:
			steps = append(steps, e.Data.Phase+" "+e.Data.Name)
		case e.Stream == messages.StreamAssistant:
			pieces++
		}
	}
	return steps, pieces
}
