package config

import (
	"net"
	"net/url"
	"strings"
)

// Models that a detected provider is asked for. LANEWAY_AGENTS_MAIN_MODEL names another.
const (
	detectedOpenAIModel    = "gpt-5-mini"
	detectedAnthropicModel = "claude-sonnet-4-5"
	detectedOllamaModel    = "llama3.2"
	ollamaPort             = "11434"
)

// detectAgent makes the agent main when none is configured: from the well-known variable of a provider, else the echo. A
// runner that the environment names for main counts as configured.
func (l *Loaded) detectAgent(cfg *Config, lookup func(string) (string, bool)) {
	a := newAgent()
	if _, named := lookup("LANEWAY_AGENTS_MAIN_RUNNER"); named {
		cfg.Agents[MainAgent] = a
		return
	}
	a.Runner = RunnerEcho
	variable := ""
	switch {
	case has(lookup, "OPENAI_API_KEY"):
		variable, a.Runner, a.Model = "OPENAI_API_KEY", RunnerOpenAI, detectedOpenAIModel
	case has(lookup, "ANTHROPIC_API_KEY"):
		variable, a.Runner, a.Model = "ANTHROPIC_API_KEY", RunnerAnthropic, detectedAnthropicModel
	case has(lookup, "OLLAMA_HOST"):
		host, _ := lookup("OLLAMA_HOST")
		variable, a.Runner, a.Model, a.BaseURL = "OLLAMA_HOST", RunnerOpenAI, detectedOllamaModel, ollamaURL(host)
	}
	cfg.Agents[MainAgent] = a
	if variable == "" {
		l.Notes = append(l.Notes, "agent main is the echo: a demonstration that answers with your own words; try --agent openai:MODEL@BASE_URL")
		return
	}
	for _, name := range []string{"runner", "model", "base_url"} {
		l.sources["agents.main."+name] = Source{SourceDetected, variable}
	}
	l.Notes = append(l.Notes, "agent main is "+a.Runner+" with the model "+a.Model+", because "+variable+" is set; LANEWAY_AGENTS_MAIN_MODEL names another")
}

// telegramToken is the variable that alone is enough for a bot.
const telegramToken = "TELEGRAM_TOKEN"

// detectBot makes the bot of the well-known variable when no bot is configured.
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
	value, _ := lookup(name)
	return strings.TrimSpace(value) != ""
}

// ollamaURL is the address of Ollama's OpenAI-compatible endpoint. OLLAMA_HOST may lack the scheme and the port, and names
// 0.0.0.0 where the server listens everywhere, which is no address to call.
func ollamaURL(host string) string {
	host = strings.TrimSpace(host)
	if !strings.Contains(host, "://") {
		host = "http://" + host
	}
	u, err := url.Parse(host)
	if err != nil || u.Hostname() == "" {
		return host + "/v1" // refused by the check of base_url, with its value
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
