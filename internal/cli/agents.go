package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"laneway/internal/config"
	"laneway/internal/wire"
)

type agentsCmd struct {
	List   agentsListCmd   `cmd:"" default:"withargs" help:"Show the agents of the gateway and the MCP servers whose tools they call."`
	Detect agentsDetectCmd `cmd:"" help:"Show which coding agents are installed on this host, and what the others need."`
}

// Help is the example of the command.
func (*agentsCmd) Help() string {
	return "Examples:\n\n    laneway agents\n    laneway agents detect"
}

type agentsDetectCmd struct {
	JSON bool `help:"Print JSON."`
}

// Help is the example of the command.
func (*agentsDetectCmd) Help() string { return "Example:\n\n    laneway agents detect" }

// detected is one known agent on this host.
type detected struct {
	Name  string `json:"name"`
	Title string `json:"title"`
	// State is installed, npx or missing.
	State   string   `json:"state"`
	Command []string `json:"command,omitempty"`
	// Key is the variable that authenticates it; "" when it needs its own login.
	Key  string `json:"key,omitempty"`
	Next string `json:"next"`
}

// Run searches for the programs. It starts none.
func (c *agentsDetectCmd) Run(env *environment) error {
	var all []detected
	for _, p := range config.Presets() {
		all = append(all, env.detect(p))
	}
	if c.JSON {
		return printJSON(env.stdout, map[string]any{"agents": all})
	}
	rows := [][]string{{"AGENT", "PROGRAM", "STATE", "NEXT"}}
	for _, d := range all {
		rows = append(rows, []string{d.Name, d.Title, d.State, d.Next})
	}
	return table(env.stdout, rows)
}

func (env *environment) detect(p config.Preset) detected {
	command, installs, err := p.Find(env.lookupEnv)
	d := detected{Name: p.Name, Title: p.Title, State: "installed", Command: command, Key: p.Key(env.lookupEnv), Next: "laneway serve --agent " + p.Name}
	switch {
	case err != nil:
		d.State, d.Next = "missing", "npm install --global "+p.Package
	case installs:
		d.State = "npx"
	}
	if err == nil && d.Key == "" {
		d.Next = "sign in (" + p.Login + ")"
		if len(p.Keys) > 0 {
			d.Next += " or set " + p.Keys[0]
		}
		d.Next += ", then laneway serve --agent " + p.Name
	}
	return d
}

type agentsListCmd struct {
	clientFlags
	JSON bool `help:"Print JSON."`
}

// Help is the example of the command.
func (*agentsListCmd) Help() string { return "Example:\n\n    laneway agents list" }

// Run lists the agents and the servers of tools.
func (c *agentsListCmd) Run(ctx context.Context, env *environment) error {
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
	for _, a := range list.Agents {
		for _, lack := range a.Lacks {
			if _, err := fmt.Fprintln(env.stdout, "\n"+oneLine(lackOf(a.ID, lack))); err != nil {
				return err
			}
		}
	}
	if len(list.Servers) == 0 {
		return nil
	}
	if _, err := fmt.Fprintln(env.stdout); err != nil {
		return err
	}
	if err := table(env.stdout, env.serverRows(list.Servers)); err != nil {
		return err
	}
	for _, s := range list.Servers {
		for _, t := range s.LeftOut {
			if _, err := fmt.Fprintf(env.stdout, "\n%s: the tool %s is not offered: %s\n", oneLine(s.Name), oneLine(t.Name), oneLine(t.Reason)); err != nil {
				return err
			}
		}
	}
	return nil
}

// lackOf returns a sentence about a part of requests that the model of an agent has refused.
func lackOf(id string, lack wire.AgentLack) string {
	text := fmt.Sprintf("%s: the model %s refuses %s; its requests go without until %s", id, lack.Model, lack.Part, time.UnixMilli(lack.UntilMs).Format("15:04:05"))
	if lack.Said != "" {
		text += ": " + lack.Said
	}
	return text
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

// toolCells returns the names of the tools of a server, with its own name for a tool that models know by another.
func toolCells(s wire.ToolServer) []string {
	names := slices.Clone(s.Tools)
	for i, name := range names {
		if at := slices.IndexFunc(s.Renamed, func(t wire.RenamedTool) bool { return t.Name == name }); at >= 0 {
			names[i] += "=" + s.Renamed[at].Own
		}
	}
	return names
}

func (env *environment) serverRows(servers []wire.ToolServer) [][]string {
	rows := [][]string{{"SERVER", "STATE", "TOOLS", "LAST ERROR"}}
	for _, s := range servers {
		last := ""
		if s.LastError != nil {
			last = *s.LastError
		}
		rows = append(rows, []string{env.cell(s.Name, 20), cell(s.State, 20), env.cell(strings.Join(toolCells(s), " "), 60), env.cell(last, 80)})
	}
	return rows
}
