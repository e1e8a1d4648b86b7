package config

import (
	"cmp"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Preset is a coding agent that is known by its name. It supports the Agent Client Protocol itself
// or through an adapter.
type Preset struct {
	Name, Title string
	// Program is searched in PATH first. Args select the protocol.
	Program string
	Args    []string
	// Package is the npm package with its major version, which npx runs when Program is not
	// installed.
	Package string
	// Keys are variables; the first one that is set authenticates the agent. Without one, the agent
	// needs its own login (Login) on this machine.
	Keys  []string
	Login string
	// Auth is the authentication method for a key, for agents that require the call `authenticate`;
	// "" = the call is not needed.
	Auth string
	// Pass are additional variables that are passed to the agent, such as addresses and models.
	Pass []string
	// Env are variables that the agent gets unless the environment of the gateway or the
	// configuration has them.
	Env map[string]string
	// UsageOfSession: the agent reports the tokens of its session instead of those of the turn.
	UsageOfSession bool
	// NoServers: the agent refuses MCP servers, so its sessions have no tools of the gateway.
	NoServers bool
}

// Presets returns the known agents, in the order in which they are offered.
func Presets() []Preset {
	return []Preset{
		{
			Name: "claude", Title: "Claude Code", Program: "claude-agent-acp", Package: "@agentclientprotocol/claude-agent-acp@0",
			Keys: []string{"ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN"}, Login: "claude /login",
			Pass: []string{"ANTHROPIC_*", "CLAUDE_*"},
		},
		{
			Name: "codex", Title: "Codex", Program: "codex-acp", Package: "@agentclientprotocol/codex-acp@2",
			Keys: []string{"CODEX_API_KEY", "OPENAI_API_KEY"}, Login: "codex login", Auth: "api-key", Pass: []string{"CODEX_*", "OPENAI_BASE_URL", "INITIAL_AGENT_MODE"},
		},
		{
			Name: "gemini", Title: "Gemini CLI", Program: "gemini", Args: []string{"--acp"}, Package: "@google/gemini-cli@0",
			Keys: []string{"GEMINI_API_KEY"}, Login: "gemini", Auth: "gemini-api-key", Pass: []string{"GEMINI_*", "GOOGLE_GEMINI_BASE_URL", "GOOGLE_CLOUD_PROJECT"},
			// It connects to no MCP server in a directory that it does not trust, and asks about
			// the trust in its terminal alone.
			Env: map[string]string{"GEMINI_CLI_TRUST_WORKSPACE": "true"},
		},
		{
			Name: "opencode", Title: "opencode", Program: "opencode", Args: []string{"acp"}, Package: "opencode-ai@1",
			Keys: []string{"OPENCODE_API_KEY", "ANTHROPIC_API_KEY", "OPENAI_API_KEY"}, Login: "opencode auth login", Pass: []string{"OPENCODE_*"},
			// Without it, a command and a change of a file in its directory run unasked, and the
			// other presets ask about both.
			Env: map[string]string{"OPENCODE_PERMISSION": `{"bash":"ask","edit":"ask","webfetch":"ask"}`},
		},
		{
			Name: "qwen", Title: "Qwen Code", Program: "qwen", Args: []string{"--acp"}, Package: "@qwen-code/qwen-code@0",
			Keys: []string{"OPENAI_API_KEY", "DASHSCOPE_API_KEY"}, Login: "qwen", Auth: "openai", Pass: []string{"QWEN_*", "OPENAI_BASE_URL", "OPENAI_MODEL"},
		},
		{
			Name: "copilot", Title: "GitHub Copilot CLI", Program: "copilot", Args: []string{"--acp"}, Package: "@github/copilot@1",
			Keys: []string{"COPILOT_GITHUB_TOKEN", "GH_TOKEN", "GITHUB_TOKEN"}, Login: "copilot login", Pass: []string{"COPILOT_*"}, UsageOfSession: true,
		},
		{
			Name: "openclaw", Title: "OpenClaw", Program: "openclaw", Args: []string{"acp"}, Package: "openclaw@2026",
			Login: "openclaw onboard", Pass: []string{"OPENCLAW_*"}, NoServers: true,
		},
	}
}

// PresetNamed finds a preset.
func PresetNamed(name string) (Preset, bool) {
	all := Presets()
	if i := slices.IndexFunc(all, func(p Preset) bool { return p.Name == name }); i >= 0 {
		return all[i], true
	}
	return Preset{}, false
}

func presetNames() []string {
	var names []string
	for _, p := range Presets() {
		names = append(names, p.Name)
	}
	return names
}

// npx runs programs of npm packages, and installs them at their first start.
const npx = "npx"

// Find returns the command that starts the agent. installs reports that npx installs the package,
// which takes a minute the first time. The error says what to install.
func (p Preset) Find(lookup func(string) (string, bool)) (command []string, installs bool, err error) {
	if inPath(p.Program, lookup) != "" {
		return append([]string{p.Program}, p.Args...), false, nil
	}
	if inPath(npx, lookup) != "" {
		return append([]string{npx, "--yes", p.Package}, p.Args...), true, nil
	}
	return nil, false, fmt.Errorf("%s is not installed: neither %s nor npx is in PATH; install Node.js, or run: npm install --global %s", p.Title, p.Program, p.Package)
}

// Installed returns the names of the presets whose program is in PATH.
func Installed(lookup func(string) (string, bool)) []string {
	var found []string
	for _, p := range Presets() {
		if inPath(p.Program, lookup) != "" {
			found = append(found, p.Name)
		}
	}
	return found
}

// Key returns the variable that authenticates the agent; "" when none is set and it needs its own
// login.
func (p Preset) Key(lookup func(string) (string, bool)) string {
	for _, name := range p.Keys {
		if has(lookup, name) {
			return name
		}
	}
	return ""
}

// inPath returns the path of an installed program; "" when it is not installed.
func inPath(program string, lookup func(string) (string, bool)) string {
	path, _ := lookup("PATH")
	for _, dir := range filepath.SplitList(path) {
		if !filepath.IsAbs(dir) {
			continue
		}
		file := filepath.Join(dir, program)
		if info, err := os.Stat(file); err == nil && !info.IsDir() && info.Mode()&0o111 != 0 {
			return file
		}
	}
	return ""
}

// Endpoint is a model provider that is known by its name and has an OpenAI-compatible API.
type Endpoint struct {
	Name, URL string
	// Key is the variable with the key; "" for a server on this machine, which needs no key.
	Key string
}

// Endpoints returns the known providers.
func Endpoints() []Endpoint {
	return []Endpoint{
		{"openrouter", "https://openrouter.ai/api/v1", "OPENROUTER_API_KEY"},
		{"groq", "https://api.groq.com/openai/v1", "GROQ_API_KEY"},
		{"deepseek", "https://api.deepseek.com/v1", "DEEPSEEK_API_KEY"},
		{"gemini-api", "https://generativelanguage.googleapis.com/v1beta/openai", "GEMINI_API_KEY"},
		{"mistral", "https://api.mistral.ai/v1", "MISTRAL_API_KEY"},
		{"xai", "https://api.x.ai/v1", "XAI_API_KEY"},
		{ollamaName, "http://127.0.0.1:" + ollamaPort + "/v1", ""},
		{"lmstudio", "http://127.0.0.1:1234/v1", ""},
		{"vllm", "http://127.0.0.1:8000/v1", ""},
	}
}

const ollamaName = "ollama"

// ModelAuto selects the first model that the endpoint lists.
const ModelAuto = "auto"

// endpointAgent returns the agent of NAME:MODEL; ok reports whether name is an endpoint.
func endpointAgent(a Agent, name, model string) (Agent, bool, error) {
	all := Endpoints()
	i := slices.IndexFunc(all, func(e Endpoint) bool { return e.Name == name })
	if i < 0 {
		return Agent{}, false, nil
	}
	e := all[i]
	a.Runner, a.APIKeyEnv = RunnerOpenAI, e.Key
	a.Model, a.BaseURL = cutModel(model)
	if a.BaseURL == "" {
		a.BaseURL = e.URL
	} else {
		a.APIKeyEnv = "" // a key is sent only to the address that it is for
	}
	if a.Model == "" && e.Key != "" {
		return Agent{}, true, fmt.Errorf("needs a model: %s:MODEL", name)
	}
	a.Model = cmp.Or(a.Model, ModelAuto)
	return a, true, nil
}

func endpointNames() string {
	var names []string
	for _, e := range Endpoints() {
		names = append(names, e.Name)
	}
	return strings.Join(names, ", ")
}

// The models of detected providers. LANEWAY_AGENTS_MAIN_MODEL overrides them.
const (
	detectedOpenAIModel    = "gpt-5-mini"
	detectedAnthropicModel = "claude-sonnet-4-5"
	detectedOllamaModel    = "llama3.2"
	ollamaPort             = "11434"
)

// Variables of providers that select an agent when none is configured.
const (
	openAIKey    = "OPENAI_API_KEY"
	anthropicKey = "ANTHROPIC_API_KEY"
	ollamaHost   = "OLLAMA_HOST"
)

// detectAgent makes the agent main when none is configured: from the well-known variable of a
// provider, otherwise the echo agent. A runner that the environment sets for main counts as
// configured.
func (l *Loaded) detectAgent(cfg *Config, lookup func(string) (string, bool)) {
	a := newAgent()
	if _, named := lookup("LANEWAY_AGENTS_MAIN_RUNNER"); named {
		cfg.Agents[MainAgent] = a
		return
	}
	a.Runner = RunnerEcho
	variable := ""
	switch {
	case has(lookup, openAIKey):
		variable, a.Runner, a.Model = openAIKey, RunnerOpenAI, detectedOpenAIModel
	case has(lookup, anthropicKey):
		variable, a.Runner, a.Model = anthropicKey, RunnerAnthropic, detectedAnthropicModel
	case has(lookup, ollamaHost):
		host, _ := lookup(ollamaHost)
		variable, a.Runner, a.Model, a.BaseURL = ollamaHost, RunnerOpenAI, detectedOllamaModel, ollamaURL(host)
	}
	cfg.Agents[MainAgent] = a
	if variable == "" {
		try := "claude, or --agent openai:MODEL@BASE_URL; laneway agents detect lists what you have"
		if found := Installed(lookup); len(found) > 0 {
			try = strings.Join(found, ", or --agent ")
		}
		l.Notes = append(l.Notes, "for a real agent: laneway serve --agent "+try)
		return
	}
	for _, name := range []string{"runner", "model", "base_url"} {
		l.sources["agents.main."+name] = Source{SourceDetected, variable}
	}
	l.Notes = append(l.Notes, "agent main is "+a.Runner+" with the model "+a.Model+", because "+variable+" is set; LANEWAY_AGENTS_MAIN_MODEL names another")
}

// noteUnused notes each provider variable that is set but used by no agent, because the user
// expects that provider to answer.
func (l *Loaded) noteUnused(cfg *Config) {
	place := l.Source("agents." + cfg.DefaultAgent + ".runner").Place
	for _, name := range []string{openAIKey, anthropicKey, ollamaHost} {
		value, set := l.env(name)
		used := false
		for _, a := range cfg.Agents {
			_, own := a.Env[name]
			used = used || own || a.APIKeyEnv == name || len(cfg.Passed(a, []string{name + "="})) > 0 || name == ollamaHost && a.BaseURL == ollamaURL(value)
		}
		if set && !used && place != "" {
			l.Notes = append(l.Notes, name+" is set, but no agent uses it: agent "+cfg.DefaultAgent+" is "+cfg.Agents[cfg.DefaultAgent].Runner+", by "+place)
		}
	}
}

// telegramToken is the variable that suffices to configure a bot.
const telegramToken = "TELEGRAM_TOKEN"

// detectBot makes a bot from the well-known variable when no bot is configured.
func (l *Loaded) detectBot(cfg *Config) {
	tg := &cfg.Channels.Telegram
	if !tg.Enabled || tg.Token.IsSet() || tg.TokenEnv != "" || tg.TokenFile != "" || len(tg.Accounts) > 0 || !has(l.env, telegramToken) {
		return
	}
	tg.TokenEnv = telegramToken
	l.sources["channels.telegram.token_env"] = Source{SourceDetected, telegramToken}
	l.Notes = append(l.Notes, "there is a Telegram bot, because "+telegramToken+" is set; it lets in people whose code you approve: laneway pair approve CODE")
}

func has(lookup func(string) (string, bool), name string) bool {
	_, found := lookup(name)
	return found
}

// ollamaURL returns the address of Ollama's OpenAI-compatible endpoint. OLLAMA_HOST may lack the
// scheme and the port. It is 0.0.0.0 when the server listens on every address, and that address
// cannot be dialled.
func ollamaURL(host string) string {
	host = strings.TrimSpace(host)
	if !strings.Contains(host, "://") {
		host = "http://" + host
	}
	u, err := url.Parse(host)
	if err != nil || u.Hostname() == "" {
		return host + "/v1" // the check of base_url refuses it and shows its value
	}
	name, port := u.Hostname(), u.Port()
	if name == "0.0.0.0" {
		name = "127.0.0.1"
	}
	port = cmp.Or(port, ollamaPort)
	return u.Scheme + "://" + net.JoinHostPort(name, port) + strings.TrimSuffix(u.Path, "/") + "/v1"
}
