package app

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"laneway/internal/chat"
	"laneway/internal/config"
	"laneway/internal/tool/external"
)

// ExamineServers checks whether the configured MCP servers can be used: that agents name them, that programs exist, and their states in the
// running gateway. states is nil when there is no gateway or it has no servers. It starts no program and sends nothing to an address.
func ExamineServers(cfg config.Config, states []chat.ToolServer, lookup func(string) (string, bool)) []Finding {
	var found []Finding
	for _, name := range slices.Sorted(maps.Keys(cfg.MCP.Servers)) {
		f := examineServer(cfg, name, states, lookup)
		f.Text = "MCP server " + name + ": " + f.Text
		found = append(found, f)
	}
	return found
}

func examineServer(cfg config.Config, name string, states []chat.ToolServer, lookup func(string) (string, bool)) Finding {
	s := cfg.MCP.Servers[name]
	if !usedServer(cfg, name) {
		return Finding{Warning, "no agent has it, so it is not connected", "name it in agents.ID.mcp, or remove it"}
	}
	at := slices.IndexFunc(states, func(state chat.ToolServer) bool { return state.Name == name })
	switch {
	case at >= 0:
		return examineState(s, states[at])
	case states != nil:
		return Finding{Warning, "the running gateway does not have it", "restart the gateway, or give doctor the configuration that it runs with"}
	case s.URL != "":
		return Finding{Weight: Fine, Text: "not checked: no gateway answers"}
	default:
		return examineProgram(s.Command[0], lookup)
	}
}

func examineState(s config.MCPServer, state chat.ToolServer) Finding {
	why := ""
	if state.LastError != "" {
		why = ": " + state.LastError
	}
	switch state.State {
	case external.StateConnecting:
		return Finding{Warning, "it is being connected" + why, "look again in a moment"}
	case external.StateFailed:
		return Finding{Warning, "it is not connected" + why, "see the log of the gateway; agents work without its tools"}
	case external.StateSuspended:
		return Finding{Warning, "it has failed several times and receives no calls for a while", "see the log of the gateway"}
	}
	if len(state.LeftOut) > 0 {
		out := make([]string, 0, len(state.LeftOut))
		for _, one := range state.LeftOut {
			out = append(out, one.Name+" ("+one.Why+")")
		}
		return Finding{Warning, "it is connected; agents do not have " + strings.Join(out, ", "), "fix the list mcp.servers." + state.Name + ".tools, or the server"}
	}
	return Finding{Weight: Fine, Text: fmt.Sprintf("it is connected, with %d tools", len(state.Tools))}
}

// usedServer reports whether an agent names a server.
func usedServer(cfg config.Config, name string) bool {
	for _, a := range cfg.Agents {
		if slices.Contains(a.MCP, name) {
			return true
		}
	}
	return false
}
