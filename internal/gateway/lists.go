package gateway

import (
	"context"

	"laneway/internal/chat"
)

func emptyMethods() []*method {
	return []*method{
		define("question.list", chat.ScopeRead, empty[noParams](map[string]any{"questions": []any{}}), quick),
		define("plugin.approval.list", chat.ScopeRead, empty[noParams]([]any{}), quick),
		define("taskSuggestions.list", chat.ScopeRead, empty[suggestionParams](map[string]any{"suggestions": []any{}})),
	}
}

type suggestionParams struct {
	SessionKey string `json:"sessionKey" p:"min=1,max=512"`
	AgentID    string `json:"agentId" p:"min=1,max=128"`
}

// empty answers methods of things that this gateway has none of; a terminal client asks for them at its start.
func empty[P any](result any) func(context.Context, *call, P) (any, error) {
	return func(context.Context, *call, P) (any, error) { return result, nil }
}

type agentsResult struct {
	DefaultID string       `json:"defaultId"`
	MainKey   string       `json:"mainKey"`
	Scope     string       `json:"scope"`
	Agents    []agentEntry `json:"agents"`
}

type agentEntry struct {
	ID    string      `json:"id"`
	Kind  string      `json:"kind"`
	Name  string      `json:"name,omitempty"`
	Model *agentModel `json:"model,omitempty"`
	// Runner is echo, command, openai, …; in the extended view.
	Runner string `json:"runner,omitempty"`
}

type agentModel struct {
	Primary string `json:"primary"`
}

func agentsList(_ context.Context, c *call, _ noParams) (any, error) {
	out := agentsResult{DefaultID: c.srv.backend.DefaultAgent(), MainKey: "main", Scope: sessionScope, Agents: []agentEntry{}}
	for _, a := range c.srv.backend.Agents() {
		e := agentEntry{ID: a.ID, Kind: "agent", Name: a.Name}
		if a.Model != "" {
			e.Model = &agentModel{a.Model}
		}
		if c.extended {
			e.Runner = a.Runner
		}
		out.Agents = append(out.Agents, e)
	}
	return out, nil
}

type commandsParams struct {
	SessionKey  string `json:"sessionKey" p:"min=1"`
	AgentID     string `json:"agentId" p:"min=1"`
	Provider    string `json:"provider" p:"min=1"`
	Scope       string `json:"scope" p:"enum=text|native|both"`
	IncludeArgs *bool  `json:"includeArgs"`
}

type commandsResult struct {
	Commands []commandEntry `json:"commands"`
}

type commandEntry struct {
	Name        string       `json:"name"`
	TextAliases []string     `json:"textAliases"`
	Description string       `json:"description"`
	Category    string       `json:"category"`
	Source      string       `json:"source"`
	Scope       string       `json:"scope"`
	AcceptsArgs bool         `json:"acceptsArgs"`
	Args        []commandArg `json:"args,omitempty"`
}

type commandArg struct {
	Name        string `json:"name"`
	Description string `json:"description"`
	Type        string `json:"type"`
	Required    bool   `json:"required"`
}

func commandsList(_ context.Context, c *call, p commandsParams) (any, error) {
	out := commandsResult{Commands: []commandEntry{}}
	for _, cmd := range c.srv.backend.Commands() {
		e := commandEntry{
			Name: cmd.Name, TextAliases: []string{"/" + cmd.Name}, Description: cmd.Description, Category: commandCategory(cmd.Category),
			Source: "native", Scope: "both", AcceptsArgs: cmd.ArgsHint != "",
		}
		for _, alias := range cmd.Aliases {
			e.TextAliases = append(e.TextAliases, "/"+alias)
		}
		if e.AcceptsArgs && (p.IncludeArgs == nil || *p.IncludeArgs) {
			e.Args = []commandArg{{Name: "args", Description: cmd.ArgsHint, Type: "string"}}
		}
		out.Commands = append(out.Commands, e)
	}
	return out, nil
}

// commandCategory maps our categories to the ones that clients know.
func commandCategory(s string) string {
	switch s {
	case "session", "options", "status", "management", "media", "tools":
		return s
	case "model":
		return "options"
	default:
		return "management"
	}
}
