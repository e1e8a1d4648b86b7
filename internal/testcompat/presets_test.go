//go:build compat

package testcompat

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"laneway/internal/config"
	"laneway/internal/testtelegram"
)

// presetCase says how a preset is connected to the model of a test.
type presetCase struct {
	env   func(url string) map[string]string
	files map[string]func(url string) string // in its home
	// beside are additional packages, scripts the packages whose installation scripts must run.
	beside  []string
	scripts []string
	// minute is set for an agent that loses a session that is loaded within the minute in which it began.
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

// presetWait bounds each wait in it. OpenClaw starts in 10 s on an idle machine and in two minutes on a busy one.
const presetWait = 5 * time.Minute

// TestPresetsAnswer runs the unmodified npm packages of presets behind the gateway, with a scripted model. The table of docs/agents.md lists what works; -update writes
// it. With LANEWAY_RECORD=DIR the test records the agents' output for the tests of internal/agent/acp.
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
