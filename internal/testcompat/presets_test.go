//go:build compat

package testcompat

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"laneway/internal/config"
	"laneway/internal/teste2e"
	"laneway/internal/testmodel"
	"laneway/internal/testtelegram"
	messages "laneway/internal/wire"
)

// presetCase is how a preset is put before the model of a test, and what works in it. The table of docs/agents.md has the same.
type presetCase struct {
	env   func(url string) map[string]string
	files map[string]func(url string) string // in its home
	want  string
	// beside are further packages, scripts those whose programs come by a script of the package: nil = none, empty = all.
	beside  []string
	scripts []string
	// before starts what the agent speaks to.
	before func(t *testing.T, dir, home, model string)
}

func presetCases() map[string]presetCase {
	key := "sk-test-0123456789"
	return map[string]presetCase{
		"claude": {
			env: func(url string) map[string]string {
				return map[string]string{"ANTHROPIC_API_KEY": key, "ANTHROPIC_BASE_URL": url}
			},
			want:    "streams, asks, pictures, files, loads, resumes, closes, counts, is told, keeps",
			scripts: []string{},
		},
		"codex": {
			env: func(string) map[string]string {
				return map[string]string{"CODEX_API_KEY": key, "INITIAL_AGENT_MODE": "workspace-write"}
			},
			files: map[string]func(string) string{".codex/config.toml": func(url string) string {
				return "model = \"test\"\nmodel_provider = \"test\"\n[model_providers.test]\nname = \"Test\"\nbase_url = \"" + url + "/v1\"\nwire_api = \"responses\"\nenv_key = \"CODEX_API_KEY\"\n"
			}},
			want:    "streams, asks, pictures, files, loads, resumes, closes, counts, is told, keeps",
			scripts: []string{},
		},
		"gemini": {
			env: func(url string) map[string]string {
				return map[string]string{"GEMINI_API_KEY": key, "GOOGLE_GEMINI_BASE_URL": url}
			},
			want: "streams, asks, pictures, files, loads, counts, is told", // it loses a session that it loads in the minute of its start, and after the kill
		},
		"opencode": {
			env: func(url string) map[string]string {
				return map[string]string{"OPENCODE_CONFIG_CONTENT": `{"model":"test/test","provider":{"test":{"npm":"@ai-sdk/openai-compatible","name":"Test","options":{"baseURL":"` + url + `/v1","apiKey":"` + key + `"},"models":{"test":{"name":"test","attachment":true,"modalities":{"input":["text","image"],"output":["text"]}}}}}}`}
			},
			want:    "streams, pictures, files, loads, resumes, closes, counts, is told, keeps",
			scripts: []string{},
		},
		"qwen": {
			env: func(url string) map[string]string {
				return map[string]string{"OPENAI_API_KEY": key, "OPENAI_BASE_URL": url + "/v1", "OPENAI_MODEL": "test"}
			},
			want: "streams, asks, files, loads, resumes, counts, is told, keeps", // pictures are for models that it knows
		},
		"copilot": {
			env: func(url string) map[string]string {
				return map[string]string{"COPILOT_PROVIDER_BASE_URL": url + "/v1", "COPILOT_PROVIDER_API_KEY": key, "COPILOT_MODEL": "test", "COPILOT_OFFLINE": "true"}
			},
			want:    "streams, asks, pictures, files, loads, closes, counts, is told",
			scripts: []string{},
		},
		"openclaw": {
			env:  func(string) map[string]string { return map[string]string{} },
			want: "pictures, files, loads, resumes, closes, is told", // it cuts the answer into other pieces
			// It needs a Node.js that is newer than that of most systems.
			beside: []string{"node@24.21.0"}, scripts: []string{"node"}, before: startOpenClaw,
		},
	}
}

// The parts of the conversation. The model asks for a command when it reads the order, and not again.
const (
	presetOrder = "run-the-command-now"
	presetCall  = "call_of_the_test"
)

var presetPicture = []byte("\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\x00\x00\x00\x01\x00\x00\x00\x01\x08\x06\x00\x00\x00\x1f\x15\xc4\x89\x00\x00\x00\rIDATx\x9cc\xf8\xcf\xc0\xf0\x1f\x00\x05\x00\x01\xff\x89\x99=\x1d\x00\x00\x00\x00IEND\xaeB`\x82")

// presetAllow is the command that allows what an agent asks for, once.
var presetAllow = regexp.MustCompile(`/allow [0-9a-f]{12}|/answer [0-9a-f]{12} 1`)

// outputOf is the directory for files that the prompt names.
var outputOf = regexp.MustCompile(`write them to the directory (/[^"\\\s]+)`)

// presetModel answers as the conversation needs it.
func presetModel(c testmodel.Call) testmodel.Reply {
	answer := testmodel.Reply{Pieces: []string{"The word ", "is apple."}, InputTokens: 3, OutputTokens: 4}
	if c.Protocol == testmodel.Gemini && !c.Stream { // it chooses a model
		return testmodel.Reply{Pieces: []string{`{"reasoning":"none","model_choice":"flash"}`}, Whole: true, InputTokens: 3, OutputTokens: 4}
	}
	if bytes.Contains(c.Body, []byte(presetCall)) || bytes.Contains(c.Body, []byte("functionResponse")) || bytes.Contains(c.Body, []byte(`"role":"tool"`)) {
		return answer
	}
	var command string
	dirs := outputOf.FindAllSubmatch(c.Body, -1)
	switch {
	case bytes.Contains(c.Body, []byte(presetOrder)) && len(dirs) > 0:
		command = "echo made > " + string(dirs[len(dirs)-1][1]) + "/made.txt"
	case bytes.Contains(c.Body, []byte(presetSlowOrder)) && !bytes.Contains(c.Body, []byte(presetTold)):
		command = presetSlow
	default:
		return answer
	}
	args, err := json.Marshal(map[string]any{"command": command, "description": "Make a file"})
	for _, name := range []string{"Bash", "bash", "run_shell_command", "exec_command", "exec"} {
		if !slices.Contains(c.Tools, name) {
			continue
		}
		if name == "exec_command" {
			args, err = json.Marshal(map[string]any{"cmd": command, "sandbox_permissions": "require_escalated", "justification": "Make a file?"})
		}
		if err != nil {
			panic(err)
		}
		return testmodel.Reply{Calls: []testmodel.ToolCall{{ID: presetCall, Name: name, Args: string(args)}}, InputTokens: 3, OutputTokens: 4}
	}
	return answer
}

// TestPresetsAnswer runs the npm packages of presets, unmodified, behind the gateway and before a model of ours. With LANEWAY_RECORD=DIR it writes what they said, for the
// tests of internal/agent/acp.
func TestPresetsAnswer(t *testing.T) {
	for name, one := range presetCases() {
		t.Run(name, func(t *testing.T) {
			preset, _ := config.PresetNamed(name)
			ctx, cancel := context.WithTimeout(t.Context(), installTime)
			defer cancel()
			dir, run := npmRun(ctx, t, append(one.beside, preset.Package)...)
			if one.scripts != nil {
				if out, err := run(nil, "npm", append([]string{"rebuild", "--foreground-scripts"}, one.scripts...)...); err != nil {
					t.Logf("npm rebuild: %v\n%s", err, out)
				}
			}
			records := t.TempDir()
			bin := filepath.Join(dir, "node_modules", ".bin")
			program := fmt.Sprintf("#!/bin/sh\nPATH=%q:$PATH\n%q \"$@\" | tee -a %q/$$.jsonl\n", bin, filepath.Join(bin, preset.Program), records)
			if err := os.WriteFile(filepath.Join(records, preset.Program), []byte(program), 0o700); err != nil {
				t.Fatal(err)
			}
			t.Setenv("PATH", records+":"+os.Getenv("PATH"))
			model := testmodel.Start(t)
			model.Answer(presetModel)
			home, work := t.TempDir(), t.TempDir()
			for file, text := range one.files {
				path := filepath.Join(home, file)
				if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, []byte(text(model.URL())), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if one.before != nil {
				one.before(t, dir, home, model.URL())
			}
			env := one.env(model.URL())
			env["HOME"] = home
			raw, err := json.Marshal(map[string]any{"main": map[string]any{"preset": name, "question_timeout": "30s", "dir": work + "/{session}", "env": env}})
			if err != nil {
				t.Fatal(err)
			}
			bot := testtelegram.New(testtelegram.Config{})
			bot.AddPrivate(7, "Anna")
			api := httptest.NewServer(bot)
			t.Cleanup(api.Close)
			t.Cleanup(api.CloseClientConnections) // before the close: a poll that hangs must not hold it up
			telegram := fmt.Sprintf("channels: {telegram: {api_url: %q, token: %q, access: open, poll_timeout: 5s}}\n", api.URL, bot.Token())
			p := &presetRun{t: t, ctx: ctx, g: installGateway(t, "", "agents: "+string(raw)+"\n"+telegram), bot: bot, model: model, records: records}
			p.g.Start()
			if got := p.play(); got != one.want {
				t.Errorf("%s: works: %s\nwant: %s", name, got, one.want)
			}
			p.g.Signal(syscall.SIGTERM) // with the gateway its agents end, which write to their home until then
			if took, code := p.g.WaitExit(time.Minute); code != 0 {
				t.Errorf("the gateway ended with %d after %s", code, took)
			}
			if to := os.Getenv("LANEWAY_RECORD"); to != "" {
				p.keep(filepath.Join(to, name+".jsonl"), strings.NewReplacer(home, "/home/user", work, "/work", p.g.Dir, "/gateway", dir, "/npm", model.URL(), "http://model"))
			}
		})
	}
}

// presetRun is one conversation with a preset.
type presetRun struct {
	t     *testing.T
	ctx   context.Context
	g     *teste2e.Gateway
	bot   *testtelegram.Server
	model *testmodel.Server
	// records has a file for each process, with what it wrote.
	records string
}

func (p *presetRun) cli(args ...string) string {
	p.t.Helper()
	out, errs, code := p.g.CLI(p.ctx, "", args...)
	if code != 0 {
		p.t.Errorf("laneway %s: %d\n%s%s", strings.Join(args, " "), code, out, errs)
	}
	return out
}

// play returns what works, in the order of the table.
func (p *presetRun) play() string {
	var works []string
	add := func(what string, ok bool) {
		if ok {
			works = append(works, what)
		}
	}
	abilities := p.cli("doctor", "--agents", "--config", filepath.Join(p.g.Dir, "laneway.yaml"))
	if !strings.Contains(abilities, "answers and made a session") {
		p.t.Errorf("doctor:\n%s", abilities)
	}
	picture := filepath.Join(p.t.TempDir(), "dot.png")
	if err := os.WriteFile(picture, presetPicture, 0o600); err != nil {
		p.t.Fatal(err)
	}
	if out := p.cli("send", "--file", picture, "remember the word apple"); !strings.Contains(out, "The word is apple.") {
		p.t.Fatalf("the first turn: %s\n%s", out, p.g.Output())
	}
	pictured := p.asked(base64.StdEncoding.EncodeToString(presetPicture)[:40])
	p.bot.Say(7, 7, "remember the word apple")
	answered := func() bool {
		return slices.ContainsFunc(p.bot.Texts(7), func(text string) bool { return strings.Contains(text, "The word is apple.") })
	}
	if err := p.bot.Await(p.ctx, answered); err != nil {
		p.t.Errorf("in Telegram: %v, the bot has sent %q", err, p.bot.Texts(7))
	}
	done := make(chan string)
	go func() {
		out, errs, _ := p.g.CLI(p.ctx, "", "send", presetOrder)
		done <- out + errs
	}()
	asked, made := false, ""
	for made == "" {
		select {
		case made = <-done:
		case <-time.After(200 * time.Millisecond):
			history, _, _ := p.g.CLI(p.ctx, "", "sessions", "show", "agent:main:main")
			if answer := presetAllow.FindString(history); answer != "" && !asked {
				asked = true
				p.cli("send", answer)
			}
		}
	}
	if !strings.Contains(made, "The word is apple.") {
		p.t.Errorf("the turn with a command: %s\n%s", made, p.g.Output())
	}
	if out := p.cli("send", "which word was it?"); !strings.Contains(out, "The word is apple.") {
		p.t.Errorf("the last turn: %s", out)
	}
	if !p.asked("remember the word apple") {
		p.t.Error("the last turn does not have the first one")
	}
	var used struct{ Rows []messages.UsageRow }
	if err := json.Unmarshal([]byte(p.cli("usage", "--json")), &used); err != nil {
		p.t.Fatal(err)
	}
	p.t.Logf("usage: %+v, asked %v, after the command: %s", used.Rows, asked, made)
	add("streams", bytes.Contains(p.record(), []byte(`"text":"The word "`)))
	add("asks", asked)
	add("pictures", pictured)
	add("files", strings.Contains(made, "made.txt"))
	add("loads", strings.Contains(abilities, "loading sessions"))
	add("resumes", strings.Contains(abilities, "resuming sessions"))
	add("closes", strings.Contains(abilities, "closing sessions"))
	add("counts", len(used.Rows) == 1 && used.Rows[0].TotalTokens > 0)
	return strings.Join(append(works, p.again()...), ", ")
}

// asked reports whether the last request with tools to the model has a text.
func (p *presetRun) asked(text string) bool {
	calls := p.model.Calls()
	for i := len(calls) - 1; i >= 0; i-- {
		if len(calls[i].Tools) > 0 {
			return bytes.Contains(calls[i].Body, []byte(text))
		}
	}
	return false
}

// record is what the process of the conversation wrote.
func (p *presetRun) record() []byte {
	p.t.Helper()
	files, err := filepath.Glob(filepath.Join(p.records, "*.jsonl"))
	if err != nil {
		p.t.Fatal(err)
	}
	var found []byte
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			p.t.Fatal(err)
		}
		if bytes.Contains(raw, []byte("stopReason")) {
			found = raw
		}
	}
	return found
}

// keep writes the messages of the conversation without the paths of this machine, and without the lists of commands, which are long.
func (p *presetRun) keep(file string, clean *strings.Replacer) {
	p.t.Helper()
	var kept strings.Builder
	for line := range strings.Lines(string(p.record())) {
		if json.Valid([]byte(line)) && !strings.Contains(line, "available_commands_update") {
			kept.WriteString(clean.Replace(line))
		}
	}
	if err := os.WriteFile(file, []byte(kept.String()), 0o600); err != nil {
		p.t.Fatal(err)
	}
}
