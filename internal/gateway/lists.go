package gateway

import (
	"context"

	"laneway/internal/chat"
	"laneway/internal/gateway/rpc"
	"laneway/internal/wire"
)

func (overview) lists() []*rpc.Method {
	return []*rpc.Method{
		rpc.Define("question.list", chat.ScopeRead, empty[wire.NoParams](wire.QuestionListResult{Questions: []any{}}), rpc.Quick),
		rpc.Define("plugin.approval.list", chat.ScopeRead, empty[wire.NoParams](wire.ApprovalListResult{}), rpc.Quick),
		rpc.Define("taskSuggestions.list", chat.ScopeRead, empty[wire.TaskSuggestionsListParams](wire.TaskSuggestionsListResult{Suggestions: []any{}})),
	}
}

// empty answers methods about features that this gateway does not have; a terminal client calls them at its start.
func empty[P, R any](result R) func(context.Context, *rpc.Call, P) (R, error) {
	return func(context.Context, *rpc.Call, P) (R, error) { return result, nil }
}

func (o overview) agentsList(_ context.Context, c *rpc.Call, _ wire.NoParams) (wire.AgentsListResult, error) {
	out := wire.AgentsListResult{DefaultID: o.srv.backend.DefaultAgent(), MainKey: "main", Scope: sessionScope, Agents: []wire.AgentEntry{}}
	for _, a := range o.srv.backend.Agents() {
		e := wire.AgentEntry{ID: a.ID, Kind: "agent", Name: a.Name}
		if a.Model != "" {
			e.Model = &wire.AgentModel{Primary: a.Model}
		}
		if c.Extended {
			e.Runner, e.Servers = a.Runner, a.Servers
			for _, lack := range a.Lacks {
				one := wire.AgentLack{Model: lack.Model, Part: lack.Part, UntilMs: lack.Until.UnixMilli()}
				if !c.Cred.Own() {
					one.Said = lack.Said
				}
				e.Lacks = append(e.Lacks, one)
			}
		}
		out.Agents = append(out.Agents, e)
	}
	if c.Extended && !c.Cred.Own() && o.srv.cfg.ToolServers != nil {
		out.Servers = toolServers(o.srv.cfg.ToolServers())
	}
	return out, nil
}

func toolServers(list []chat.ToolServer) (out []wire.ToolServer) {
	for _, s := range list {
		one := wire.ToolServer{Name: s.Name, State: s.State, Tools: s.Tools}
		for _, t := range s.Renamed {
			one.Renamed = append(one.Renamed, wire.RenamedTool{Name: t.Name, Own: t.Own})
		}
		for _, t := range s.LeftOut {
			one.LeftOut = append(one.LeftOut, wire.LeftOutTool{Name: t.Name, Reason: t.Why})
		}
		if s.LastError != "" {
			one.LastError = &s.LastError
		}
		out = append(out, one)
	}
	return out
}

func (o overview) commandsList(_ context.Context, c *rpc.Call, p wire.CommandsListParams) (wire.CommandsListResult, error) {
	out := wire.CommandsListResult{Commands: []wire.CommandEntry{}}
	for _, cmd := range o.srv.backend.Commands() {
		e := wire.CommandEntry{
			Name: cmd.Name, TextAliases: []string{"/" + cmd.Name}, Description: cmd.Description, Category: commandCategory(cmd.Category),
			Source: "native", Scope: "both", AcceptsArgs: cmd.ArgsHint != "",
		}
		for _, alias := range cmd.Aliases {
			e.TextAliases = append(e.TextAliases, "/"+alias)
		}
		if e.AcceptsArgs && (p.IncludeArgs == nil || *p.IncludeArgs) {
			e.Args = []wire.CommandArg{{Name: "args", Description: cmd.ArgsHint, Type: "string"}}
		}
		out.Commands = append(out.Commands, e)
	}
	return out, nil
}

// commandCategory maps laneway's categories to those of the standard protocol.
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
