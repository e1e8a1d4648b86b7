package config

import (
	"net"
	"net/url"
	"strings"
)

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

// detectAgent makes the agent main when none is configured: from the well-known variable of a provider, otherwise the echo agent. A runner
// that the environment sets for main counts as configured.
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
		try := "claude, or --agent openai:MODEL@BASE_URL; more: laneway agents detect"
		if found := Installed(lookup); len(found) > 0 {
			try = strings.Join(found, ", or --agent ")
		}
		l.Notes = append(l.Notes, "echo is a demonstration; for a real agent: laneway serve --agent "+try)
		return
	}
	for _, name := range []string{"runner", "model", "base_url"} {
		l.sources["agents.main."+name] = Source{SourceDetected, variable}
	}
	l.Notes = append(l.Notes, "agent main is "+a.Runner+" with the model "+a.Model+", because "+variable+" is set; LANEWAY_AGENTS_MAIN_MODEL names another")
}

// noteUnused notes each provider variable that is set but used by no agent, because the user expects that provider to answer.
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

// ollamaURL returns the address of Ollama's OpenAI-compatible endpoint. OLLAMA_HOST may lack the scheme and the port. It is 0.0.0.0 when
// the server listens on every address, and that address cannot be dialled.
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
	if port == "" {
		port = ollamaPort
	}
	return u.Scheme + "://" + net.JoinHostPort(name, port) + strings.TrimSuffix(u.Path, "/") + "/v1"
}
