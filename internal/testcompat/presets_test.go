//go:build compat

package testcompat

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"flag"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"laneway/internal/client"
	"laneway/internal/config"
	"laneway/internal/testtelegram"
	messages "laneway/internal/wire"
)

// presetCase says how a preset is connected to the model of a test.
type presetCase struct {
	env   func(url string) map[string]string
	files map[string]func(url string) string // in its home
	// beside are additional packages, scripts the packages whose installation scripts must run.
	beside  []string
	scripts []string
	// minute is set for an agent that loses a session that is loaded within the minute in which it
	// began.
	minute bool
	// before starts the server to which the agent connects.
	before func(t *testing.T, dir, home, model string)
}

func presetCases() map[string]presetCase {
	key := "sk-test-0123456789"
	return map[string]presetCase{
		"claude": {
			env: func(url string) map[string]string {
				return map[string]string{"ANTHROPIC_API_KEY": key, "ANTHROPIC_BASE_URL": url}
			},
		},
		"codex": {
			env: func(string) map[string]string {
				return map[string]string{"CODEX_API_KEY": key, "INITIAL_AGENT_MODE": "workspace-write"}
			},
			files: map[string]func(string) string{".codex/config.toml": func(url string) string {
				return "model = \"test\"\nmodel_provider = \"test\"\n[model_providers.test]\nname = \"Test\"\nbase_url = \"" + url + "/v1\"\nwire_api = \"responses\"\nenv_key = \"CODEX_API_KEY\"\n"
			}},
		},
		"gemini": {
			env: func(url string) map[string]string {
				return map[string]string{"GEMINI_API_KEY": key, "GOOGLE_GEMINI_BASE_URL": url}
			},
			files: map[string]func(string) string{".gemini/settings.json": func(string) string {
				return `{"general": {"sessionRetention": {"enabled": false}}}`
			}},
			minute: true,
		},
		"opencode": {
			env: func(url string) map[string]string {
				return map[string]string{"OPENCODE_CONFIG_CONTENT": `{"model":"test/test","provider":{"test":{"npm":"@ai-sdk/openai-compatible","name":"Test","options":{"baseURL":"` + url + `/v1","apiKey":"` + key + `"},"models":{"test":{"name":"test","attachment":true,"modalities":{"input":["text","image"],"output":["text"]}}}}}}`}
			},
			scripts: []string{"opencode-ai"},
		},
		"qwen": {
			env: func(url string) map[string]string {
				return map[string]string{"OPENAI_API_KEY": key, "OPENAI_BASE_URL": url + "/v1", "OPENAI_MODEL": "test"}
			},
		},
		"copilot": {
			env: func(url string) map[string]string {
				return map[string]string{"COPILOT_PROVIDER_BASE_URL": url + "/v1", "COPILOT_PROVIDER_API_KEY": key, "COPILOT_MODEL": "test", "COPILOT_OFFLINE": "true"}
			},
			scripts: []string{},
		},
		"openclaw": {
			env: func(string) map[string]string { return map[string]string{} },
			// It needs a newer Node.js than most systems have.
			beside: []string{"node@24.21.0"}, scripts: []string{"node"}, before: startOpenClaw,
		},
	}
}

// home returns a home directory for the agent with the settings of a model, and its environment.
func (c presetCase) home(t *testing.T, model string) (dir string, env map[string]string) {
	t.Helper()
	dir, env = t.TempDir(), c.env(model)
	env["HOME"] = dir
	for file, text := range c.files {
		path := filepath.Join(dir, file)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text(model)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir, env
}

// presetBot returns a Telegram API with the user Anna, and the configuration of its channel.
func presetBot(t *testing.T) (bot *testtelegram.Server, channels string) {
	t.Helper()
	bot = testtelegram.New(testtelegram.Config{})
	bot.AddPrivate(7, "Anna")
	api := httptest.NewServer(bot)
	t.Cleanup(api.Close)
	t.Cleanup(api.CloseClientConnections) // before the close: a hanging poll must not delay it
	return bot, fmt.Sprintf("channels: {telegram: {api_url: %q, token: %q, access: open, poll_timeout: 5s}}\n", api.URL, bot.Token())
}

// presetTime bounds the conversation with a preset.
const presetTime = 20 * time.Minute

// presetWait bounds each wait in it. OpenClaw starts in 10 s on an idle machine and in two minutes
// on a busy one.
const presetWait = 5 * time.Minute

// TestPresetsAnswer runs the unmodified npm packages of presets behind the gateway, with a scripted
// model. The table of docs/coding-agents.md lists what works; -update writes it. With
// LANEWAY_RECORD=DIR the test records the agents' output for the tests of internal/agent/acp.
func TestPresetsAnswer(t *testing.T) {
	for name, one := range presetCases() {
		t.Run(name, func(t *testing.T) {
			preset, _ := config.PresetNamed(name)
			dir := npmInstall(t, append(one.beside, preset.Package), one.scripts...)
			records := t.TempDir()
			bin := filepath.Join(dir, "node_modules", ".bin")
			program := fmt.Sprintf("#!/bin/sh\nPATH=%q:$PATH\n%q \"$@\" | tee -a %q/$$.jsonl\n", bin, filepath.Join(bin, preset.Program), records)
			if err := os.WriteFile(filepath.Join(records, preset.Program), []byte(program), 0o700); err != nil {
				t.Fatal(err)
			}
			t.Setenv("PATH", records+":"+os.Getenv("PATH"))
			model, orders := startPresetModel(t)
			orders.escalates = true
			home, env := one.home(t, model.URL())
			work := t.TempDir()
			if one.before != nil {
				one.before(t, dir, home, model.URL())
			}
			ctx, cancel := context.WithTimeout(t.Context(), presetTime)
			defer cancel()
			raw, err := json.Marshal(map[string]any{"main": map[string]any{"preset": name, "question_timeout": "30s", "dir": work + "/{session}", "env": env}})
			if err != nil {
				t.Fatal(err)
			}
			bot, channels := presetBot(t)
			p := &presetRun{
				t: t, ctx: ctx, g: installGateway(t, "", "agents: "+string(raw)+"\n"+channels), bot: bot, model: model, orders: orders, records: records,
				clean: strings.NewReplacer(home, "/home/user", work, "/work", dir, "/npm", model.URL(), "http://model", filepath.Dir(orders.source), "/model"),
			}
			p.g.Start()
			row := presetRow{name: name, version: npmVersion(t, dir, preset.Package), works: p.play(name)}
			row.works = append(row.works, p.again(one.minute)...)
			p.g.Signal(syscall.SIGTERM) // this also ends its agents, which write to their home until then
			if took, code := p.g.WaitExit(presetWait); code != 0 {
				t.Errorf("the gateway ended with %d after %s", code, took)
			}
			row.check(t)
		})
	}
}

var update = flag.Bool("update", false, "write the rows of the table of presets in docs/coding-agents.md")

// presetHeader is the first line of the table in docs/coding-agents.md.
const presetHeader = "| preset | version |"

// presetRow is a row of the table. works are the cells after the version.
type presetRow struct {
	name, version string
	works         []string
}

// cells returns the cells of a line of the table.
func cells(line string) (list []string) {
	for cell := range strings.SplitSeq(strings.Trim(line, "|"), "|") {
		list = append(list, strings.TrimSpace(cell))
	}
	return list
}

// check compares the row with the one in the table, or writes it. The version may differ.
func (r presetRow) check(t *testing.T) {
	t.Helper()
	file := filepath.Join("..", "..", "docs", "coding-agents.md")
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(string(raw), "\n")
	header := slices.IndexFunc(lines, func(line string) bool { return strings.HasPrefix(line, presetHeader) })
	if header < 0 {
		t.Fatalf("docs/coding-agents.md has no table that begins with %q", presetHeader)
	}
	first := "`" + r.name + "`"
	row := header + slices.IndexFunc(lines[header:], func(line string) bool { return cells(line)[0] == first })
	if row < header {
		t.Fatalf("the table of docs/coding-agents.md has no row of %s", r.name)
	}
	names, was, is := cells(lines[header]), cells(lines[row]), append([]string{first, r.version}, r.works...)
	if len(is) != len(names) {
		t.Fatalf("%d cells for %d columns: %q", len(is), len(names), is)
	}
	if *update && !t.Failed() {
		lines[row] = "| " + strings.Join(is, " | ") + " |"
		if err := os.WriteFile(file, []byte(strings.Join(lines, "\n")), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	for i, name := range names {
		if i > 1 && (i >= len(was) || was[i] != is[i]) {
			t.Errorf("%s, %s: %q; docs/coding-agents.md has %q", r.name, name, is[i], was[min(i, len(was)-1)])
		}
	}
}

// npmVersion returns the installed version of a package.
func npmVersion(t *testing.T, dir, pkg string) string {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(dir, "node_modules", pkg[:strings.LastIndexByte(pkg, '@')], "package.json"))
	if err != nil {
		t.Fatal(err)
	}
	var is struct{ Version string }
	if err := json.Unmarshal(raw, &is); err != nil {
		t.Fatal(err)
	}
	return is.Version
}

const (
	// presetSlow identifies the processes of that command.
	presetSlow = "tail -f /dev/null --sleep-interval=27"
	// presetTold is what a second attempt reads.
	presetTold = "attempt 2: the first one ended when the gateway stopped"
	// presetHistory precedes a transcript.
	presetHistory = "The conversation before this message, as JSON"
)

// again returns the cells of the table about three processes of the gateway. The first one ends by
// SIGTERM, the second one by SIGKILL while the agent runs a command. With minute, the second
// process starts in a later minute than the first conversation.
func (p *presetRun) again(minute bool) []string {
	p.t.Helper()
	const session, said = "agent:main:again", "the first word is cherry"
	lost := false
	look := func() {
		for line := range strings.Lines(p.g.Output()) {
			if strings.Contains(line, "an agent does not continue its session") {
				lost = true
				p.t.Log(line)
			}
		}
	}
	p.cli("send", "--session", session, said)
	began := time.Now().Truncate(time.Minute)
	p.g.Signal(syscall.SIGTERM)
	if took, code := p.g.WaitExit(presetWait); code != 0 {
		p.t.Errorf("the gateway ended with %d after %s", code, took)
	}
	if minute {
		eventually(p.t, presetWait, func() bool { return time.Now().Truncate(time.Minute) != began })
	}
	p.g.Start()
	slow := make(chan struct{})
	go func() {
		defer close(slow)
		_, _, _ = p.g.CLI(p.ctx, "", "send", "--session", session, "--timeout", "10m", presetSlowOrder)
	}()
	answered := false
	if !eventually(p.t, presetWait, func() bool {
		if !answered {
			answered = p.answer(session, true)
		}
		return len(commandsWith(p.t, presetSlow)) > 0
	}) {
		p.t.Fatalf("the command does not run\n%s", p.g.Output())
	}
	p.g.Kill()
	look()
	p.g.Start()
	<-slow
	told := eventually(p.t, presetWait, func() bool { return p.asked(presetTold) })
	if left := commandsWith(p.t, presetSlow); len(left) > 0 {
		p.t.Errorf("the command of the first attempt still runs beside the second one: %d processes", len(left))
	}
	if out := p.cli("send", "--session", session, "which word was it?"); !strings.Contains(out, "The word is apple.") {
		p.t.Errorf("turn three: %s", out)
	}
	if !p.asked(said) {
		p.t.Error("turn three does not have the first one")
	}
	look()
	return []string{yes(!lost && !p.asked(presetHistory)), yes(told)}
}

// commandsWith returns the processes whose command line contains a string.
func commandsWith(t *testing.T, text string) (pids []string) {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err == nil && bytes.Contains(bytes.ReplaceAll(raw, []byte{0}, []byte(" ")), []byte(text)) {
			pids = append(pids, filepath.Base(filepath.Dir(file)))
		}
	}
	return pids
}

// TestCommandAgentsAnswer runs unmodified Claude Code and Codex as programs of the command runner,
// with a scripted model. It checks text, steps, usage, files, and that the second turn continues
// the session, also after a restart.
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

// steps sends a message over a connection, and returns the steps of tool calls and the number of
// pieces of text until the turn has ended.
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
