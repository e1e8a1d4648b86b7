package config

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestAgentsByName(t *testing.T) {
	t.Parallel()
	rows := []struct {
		short string
		env   []string
		check func(Agent) bool
	}{
		{"claude", nil, func(a Agent) bool { return a.Runner == RunnerACP && a.Preset == "claude" && len(a.Command) == 0 }},
		{"groq:llama-3.3", []string{"GROQ_API_KEY", "gsk"}, func(a Agent) bool {
			return a.Runner == RunnerOpenAI && a.Model == "llama-3.3" && a.BaseURL == "https://api.groq.com/openai/v1" && a.APIKey.Reveal() == "gsk"
		}},
		{"ollama:", nil, func(a Agent) bool {
			return a.Model == ModelAuto && a.BaseURL == "http://127.0.0.1:11434/v1" && !a.APIKey.IsSet()
		}},
		{"ollama:qwen3", []string{"OLLAMA_HOST", "10.0.0.9"}, func(a Agent) bool { return a.Model == "qwen3" && a.BaseURL == "http://10.0.0.9:11434/v1" }},
		{"vllm:m@http://10.0.0.9:8000/v1", nil, func(a Agent) bool { return a.Model == "m" && a.BaseURL == "http://10.0.0.9:8000/v1" }},
		// A key is sent only to the address that it is for.
		{"groq:m@http://10.0.0.9:8000/v1", []string{"GROQ_API_KEY", "gsk"}, func(a Agent) bool { return !a.APIKey.IsSet() }},
	}
	for _, row := range rows {
		t.Run(row.short, func(t *testing.T) {
			t.Parallel()
			loaded, err := Load(Options{LookupEnv: environ(append(row.env, "LANEWAY_AGENT", row.short, "LANEWAY_DATA", t.TempDir())...)})
			if err != nil {
				t.Fatal(err)
			}
			if a := loaded.Config.Agents[MainAgent]; !row.check(a) {
				t.Errorf("got %+v", a)
			}
		})
	}
	for short, want := range map[string]string{
		"claude:opus": "must be claude, codex", "groq:": "needs a model", "clade": "must be claude, codex", "groq:m": "GROQ_API_KEY, which is not set",
	} {
		if _, err := Load(Options{LookupEnv: environ("LANEWAY_AGENT", short, "LANEWAY_DATA", t.TempDir())}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", short, err, want)
		}
	}
}

// It says what to install when neither the program nor npx exists.
func TestAPresetPrefersTheInstalledProgram(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	install := func(name string) {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	lookup := environ("PATH", dir)
	preset, _ := PresetNamed("gemini")
	if _, _, err := preset.Find(lookup); err == nil || !strings.Contains(err.Error(), "npm install --global @google/gemini-cli@0") {
		t.Errorf("nothing is installed: %v", err)
	}
	install("npx")
	if got, installs, err := preset.Find(lookup); err != nil || !installs || !slices.Equal(got, []string{"npx", "--yes", "@google/gemini-cli@0", "--acp"}) {
		t.Errorf("with npx: %q, %v, %v", got, installs, err)
	}
	install("gemini")
	if got, installs, err := preset.Find(lookup); err != nil || installs || !slices.Equal(got, []string{"gemini", "--acp"}) {
		t.Errorf("with the program: %q, %v, %v", got, installs, err)
	}
	if got := Installed(lookup); !slices.Equal(got, []string{"gemini"}) {
		t.Errorf("installed: %q", got)
	}
}

// Each directory must be absolute and listed once, apart from the agent's own.
func TestDirectoriesToChooseFromAreChecked(t *testing.T) {
	t.Parallel()
	many := strings.Repeat("/x, ", 21)
	for agent, fault := range map[string]string{
		`preset: claude, dir: /srv/a, dirs: [/srv/b, "/srv/{session}"]`: "",
		`preset: claude, dirs: [/srv/b]`:                                "needs dir",
		`preset: claude, dir: /srv/a, dirs: [srv/b]`:                    `"srv/b" is not absolute`,
		`preset: claude, dir: /srv/a, dirs: [/srv/a]`:                   `"/srv/a" is named twice`,
		`preset: claude, dir: /srv/a, dirs: [/srv/b, /srv/b]`:           `"/srv/b" is named twice`,
		`preset: claude, dir: /srv/a, dirs: [` + many + `]`:             "at most 20 are possible",
		`runner: echo, dirs: [/srv/b]`:                                  "is a setting of the runner command and acp",
	} {
		file := filepath.Join(t.TempDir(), "laneway.yaml")
		if err := os.WriteFile(file, []byte("agents: {main: {"+agent+"}}"), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := Load(Options{File: file, LookupEnv: environ("LANEWAY_DATA", t.TempDir())})
		if (err == nil) != (fault == "") || (err != nil && !strings.Contains(err.Error(), fault)) {
			t.Errorf("%s: got %v, want %q", agent, err, fault)
		}
	}
}

// It passes the variables of its preset and of env_pass, and never a secret of the gateway.
func TestOnlyWhatAnAgentNeedsPassesToIt(t *testing.T) {
	t.Parallel()
	cfg := Default()
	cfg.Channels.Telegram.TokenEnv = "MY_BOT"
	cfg.Agents = map[string]Agent{"other": {Runner: RunnerOpenAI, APIKeyEnv: "OPENAI_API_KEY"}}
	all := []string{
		"ANTHROPIC_API_KEY=a", "ANTHROPIC_BASE_URL=b", "OPENAI_API_KEY=c", "OPENAI_BASE_URL=d", "LANEWAY_TOKEN=e", "TELEGRAM_TOKEN=f", "MY_BOT=g", "MY_VALUE=h", "OTHER=i",
	}
	for name, tt := range map[string]struct {
		agent Agent
		want  []string
	}{
		"preset":           {Agent{Preset: "claude"}, []string{"ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL"}},
		"key of a preset":  {Agent{Preset: "codex"}, []string{"OPENAI_API_KEY", "OPENAI_BASE_URL"}},
		"pattern":          {Agent{EnvPass: []string{"MY_*"}}, []string{"MY_VALUE"}},
		"key by a pattern": {Agent{EnvPass: []string{"OPENAI_*"}}, []string{"OPENAI_BASE_URL"}},
		"key by its name":  {Agent{EnvPass: []string{"OPENAI_API_KEY"}}, []string{"OPENAI_API_KEY"}},
		"own secrets":      {Agent{EnvPass: []string{"MY_BOT", "L*", "T*"}}, nil},
		"set by a preset":  {Agent{Preset: "opencode"}, []string{"ANTHROPIC_API_KEY", "OPENAI_API_KEY", "OPENCODE_PERMISSION"}},
		"nothing":          {Agent{}, nil},
	} {
		if got := slices.Sorted(maps.Keys(cfg.Passed(tt.agent, all))); !slices.Equal(got, tt.want) {
			t.Errorf("%s: got %q, want %q", name, got, tt.want)
		}
	}
	if got := cfg.Passed(Agent{Preset: "opencode"}, []string{"OPENCODE_PERMISSION={}"})["OPENCODE_PERMISSION"]; got != "{}" {
		t.Errorf("the environment of the gateway has {} for a variable of a preset, the agent gets %q", got)
	}
	for _, pattern := range []string{"LANEWAY_TOKEN", "TELEGRAM_TOKEN", "*", "A B"} {
		loaded := "agents: {main: {preset: claude, env_pass: [\"" + pattern + "\"]}}"
		file := filepath.Join(t.TempDir(), "config.yaml")
		if err := os.WriteFile(file, []byte(loaded), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Load(Options{File: file, LookupEnv: environ("LANEWAY_DATA", t.TempDir())}); err == nil || !strings.Contains(err.Error(), "env_pass") {
			t.Errorf("%s: got %v, want a fault of env_pass", pattern, err)
		}
	}
}

func TestServersOfToolsAreChecked(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ server, fault string }{
		{`files: {command: [files-mcp, --root, /srv], env: {KEY: v}, dir: /srv, tools: [read, write], read_only: [read], timeout: 55s}`, ""},
		{`files: {url: "https://tools.example.org/mcp", token: key, tools: [search]}`, ""},
		{`Files: {command: [x], tools: [read]}`, "mcp.servers.Files is not the name of a server"},
		{`files_more: {command: [x], tools: [read]}`, "mcp.servers.files_more is not the name of a server"},
		{`a-name-of-17-char: {command: [x], tools: [read]}`, "is not the name of a server"},
		{`files: {tools: [read]}`, "mcp.servers.files needs either command or url"},
		{`files: {command: [x], url: "http://127.0.0.1:1", tools: [read]}`, "mcp.servers.files needs either command or url"},
		{`files: {url: "127.0.0.1:1", tools: [read]}`, "mcp.servers.files.url must look like"},
		{`files: {url: "https://a:b@host/mcp", tools: [read]}`, "mcp.servers.files.url must look like"},
		{`files: {command: [x], token: key, tools: [read]}`, "mcp.servers.files.token is for a url"},
		{`files: {command: [x]}`, "mcp.servers.files.tools names no tool"},
		{`files: {command: [x], tools: [read], read_only: [write]}`, `mcp.servers.files.read_only names "write", which is not in tools`},
		{`files: {command: [x], tools: [read], timeout: 56s}`, "mcp.servers.files.timeout must be between 1s and 55s"},
		{`send: {command: [x], tools: [file]}`, `mcp.servers.send.tools names "file": send_file is a tool of the gateway`},
		{`files: {command: [x], tools: [read], colour: red}`, "colour"},
	} {
		name, _, _ := strings.Cut(tt.server, ":")
		_, err := loadText(t, "agents: {main: {runner: openai, model: m, base_url: \"http://127.0.0.1:1/v1\", mcp: ["+name+"]}}\nmcp: {servers: {"+tt.server+"}}\n")
		switch {
		case tt.fault == "" && err != nil:
			t.Errorf("%s: %v", tt.server, err)
		case tt.fault != "" && (err == nil || !strings.Contains(err.Error(), tt.fault)):
			t.Errorf("%s: got %v, want %q", tt.server, err, tt.fault)
		}
	}
}

func TestAnAgentNamesServersThatAreThere(t *testing.T) {
	t.Parallel()
	_, err := loadText(t, "agents: {main: {runner: openai, model: m, base_url: \"http://127.0.0.1:1/v1\", mcp: [mail]}}\n")
	if err == nil || !strings.Contains(err.Error(), `agents.main.mcp names "mail", which is not in mcp.servers`) {
		t.Errorf("got %v", err)
	}
	_, err = loadText(t, "agents: {main: {runner: echo, mcp: [mail]}}\nmcp: {servers: {mail: {command: [x], tools: [read]}}}\n")
	if err == nil || !strings.Contains(err.Error(), "not of echo") {
		t.Errorf("servers of echo: got %v", err)
	}
}

func TestToolsAreAListOrOff(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		tools string
		want  ToolNames
		fault string
	}{
		{"", nil, ""},
		{"tools: off", ToolNames{"off"}, ""},
		{"tools: [remind, cron]", ToolNames{"remind", "cron"}, ""},
		{"tools: [fly]", nil, "tools must be one of remind, cron, message, sessions, history_search, send_file, spawn, delegate, is"},
		{"tools: []", nil, "tools names no tool; use off for none"},
		{"tools: on", nil, "tools must be a list"},
	} {
		cfg, err := loadText(t, "agents: {main: {runner: openai, model: m, base_url: \"http://127.0.0.1:1/v1\", "+tt.tools+"}}\n")
		if tt.fault != "" {
			if err == nil || !strings.Contains(err.Error(), tt.fault) {
				t.Errorf("%s: got %v, want %q", tt.tools, err, tt.fault)
			}
			continue
		}
		if got := cfg.Agents["main"].Tools; err != nil || !slices.Equal(got, tt.want) || got.Off() != (tt.tools == "tools: off") {
			t.Errorf("%s: got %q and %v, want %q", tt.tools, got, err, tt.want)
		}
	}
	if _, err := loadText(t, "agents: {main: {runner: echo, tools: [cron]}}\n"); err == nil || !strings.Contains(err.Error(), "not of echo") {
		t.Errorf("tools of echo: got %v, want a refusal", err)
	}
}

func loadText(t *testing.T, text string) (Config, error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "laneway.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	loaded, err := Load(Options{File: file, LookupEnv: environ()})
	if err != nil {
		return Config{}, err
	}
	return loaded.Config, nil
}

func TestSummariesNeedAModel(t *testing.T) {
	t.Parallel()
	agents := "agents: {main: {runner: echo}, notes: {runner: openai, model: m, base_url: \"http://127.0.0.1:1/v1\"}}\n"
	cfg, err := loadText(t, agents+"history: {summary_agent: notes}\n")
	if err != nil || cfg.History.SummaryAgent != "notes" {
		t.Errorf("got %q, %v", cfg.History.SummaryAgent, err)
	}
	for name, want := range map[string]string{"main": "is an agent of runner echo", "other": "there is no agent"} {
		if _, err := loadText(t, agents+"history: {summary_agent: "+name+"}\n"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", name, err, want)
		}
	}
}
