package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"laneway/internal/wire"
)

type agentsCmd struct {
	clientFlags
	JSON bool `help:"Print JSON."`
}

// Help is the example of the command.
func (*agentsCmd) Help() string { return "Example:\n\n    laneway agents" }

// Run lists the agents and the servers of tools.
func (c *agentsCmd) Run(ctx context.Context, env *environment) error {
	var raw json.RawMessage
	if err := c.call(ctx, env, "agents.list", map[string]any{}, &raw); err != nil {
		return err
	}
	if c.JSON {
		return printJSON(env.stdout, raw)
	}
	var list wire.AgentsListResult
	if err := json.Unmarshal(raw, &list); err != nil {
		return fmt.Errorf("the list of agents cannot be read; are the gateway and this program of the same version? %w", err)
	}
	if err := table(env.stdout, env.agentRows(list)); err != nil {
		return err
	}
	if len(list.Servers) == 0 {
		return nil
	}
	if _, err := fmt.Fprintln(env.stdout); err != nil {
		return err
	}
	return table(env.stdout, env.serverRows(list.Servers))
}

func (env *environment) agentRows(list wire.AgentsListResult) [][]string {
	rows := [][]string{{"AGENT", "NAME", "RUNNER", "MODEL", "SERVERS"}}
	for _, a := range list.Agents {
		id, model := a.ID, ""
		if id == list.DefaultID {
			id += " (default)"
		}
		if a.Model != nil {
			model = a.Model.Primary
		}
		rows = append(rows, []string{env.cell(id, 40), env.cell(a.Name, 40), cell(a.Runner, 20), env.cell(model, 40), env.cell(strings.Join(a.Servers, " "), 60)})
	}
	return rows
}

func (env *environment) serverRows(servers []wire.ToolServer) [][]string {
	rows := [][]string{{"SERVER", "STATE", "TOOLS", "LAST ERROR"}}
	for _, s := range servers {
		last := ""
		if s.LastError != nil {
			last = *s.LastError
		}
		rows = append(rows, []string{env.cell(s.Name, 20), cell(s.State, 20), env.cell(strings.Join(s.Tools, " "), 60), env.cell(last, 80)})
	}
	return rows
}
