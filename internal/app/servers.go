package app

import (
	"maps"
	"slices"
	"time"

	"laneway/internal/config"
	"laneway/internal/process"
	"laneway/internal/secret"
	"laneway/internal/tool/external"
)

// serversOf returns the MCP servers that agents name, sorted by name.
func serversOf(cfg config.Config, reaper *process.Reaper) []external.Config {
	list := make([]external.Config, 0, len(cfg.MCP.Servers))
	for _, name := range slices.Sorted(maps.Keys(cfg.MCP.Servers)) {
		s := cfg.MCP.Servers[name]
		if !usedServer(cfg, name) {
			continue
		}
		list = append(list, external.Config{
			Name: name, Command: s.Command, Env: s.Env, Dir: s.Dir, URL: s.URL, Token: secret.New(s.Token.Reveal()),
			Tools: s.Tools, ReadOnly: s.ReadOnly, CallTime: time.Duration(s.Timeout), Reaper: reaper,
		})
	}
	return list
}
