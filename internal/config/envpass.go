package config

import (
	"maps"
	"slices"
	"strings"
)

// ownPrefixes are the prefixes of the gateway's own variables, which are never passed to a program.
func ownPrefixes() []string { return []string{"LANEWAY_", "GOCLAW_"} }

// validatePass checks a variable or a pattern of env_pass.
func validatePass(at at, pattern string) {
	name := strings.TrimSuffix(pattern, "*")
	bad := func(r rune) bool {
		return r != '_' && (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z')
	}
	switch {
	case name == "" || strings.ContainsFunc(name, bad):
		at.addf("must be the name of a variable, or a prefix of names followed by *, is %q", pattern)
	case name == telegramToken || slices.ContainsFunc(ownPrefixes(), func(own string) bool { return strings.HasPrefix(name, own) }):
		at.addf("must not name a variable of the gateway itself, is %q", pattern)
	}
}

// Passed returns the variables of the gateway that are passed to the program of an agent: those of its preset and of env_pass. environ is
// the environment as NAME=value. It never returns secrets of the gateway: its own variables and those that the configuration names for
// bots, hooks and MCP servers. A variable with the key of a model is passed only by its full name, not by a pattern of env_pass.
func (c Config) Passed(a Agent, environ []string) map[string]string {
	own, keys := c.secretVariables()
	patterns, passed := slices.Clone(a.EnvPass), map[string]string{}
	if p, ok := PresetNamed(a.Preset); ok {
		patterns = append(patterns, append(p.Keys, p.Pass...)...)
		for _, name := range p.Keys {
			delete(keys, name) // the preset needs its key
		}
		maps.Copy(passed, p.Env)
	}
	for _, pair := range environ {
		name, value, _ := strings.Cut(pair, "=")
		if own[name] || slices.ContainsFunc(ownPrefixes(), func(prefix string) bool { return strings.HasPrefix(name, prefix) }) {
			continue
		}
		if slices.ContainsFunc(patterns, func(pattern string) bool {
			prefix, wide := strings.CutSuffix(pattern, "*")
			return name == pattern || (wide && strings.HasPrefix(name, prefix) && !keys[name])
		}) {
			passed[name] = value
		}
	}
	return passed
}

// secretVariables returns the variables with the gateway's own secrets, and those with keys of models.
func (c Config) secretVariables() (own, keys map[string]bool) {
	own, keys = map[string]bool{telegramToken: true}, map[string]bool{}
	bots := append(slices.Collect(maps.Values(c.Channels.Telegram.Accounts)), c.Channels.Telegram)
	for _, bot := range bots {
		own[bot.TokenEnv], own[bot.WebhookSecretEnv] = true, true
	}
	for _, h := range c.Hooks {
		own[h.SecretEnv] = true
	}
	for _, m := range c.MCP.Servers {
		own[m.TokenEnv] = true
	}
	for _, a := range c.Agents {
		own[a.SecretEnv] = true
		keys[a.APIKeyEnv] = true
	}
	return own, keys
}
