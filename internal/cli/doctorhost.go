package cli

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"

	"laneway/internal/app"
	"laneway/internal/chat"
	"laneway/internal/config"
	"laneway/internal/wire"
)

const (
	mebibyte    = 1 << 20
	littleSpace = 1024 * mebibyte
	noSpace     = 100 * mebibyte
)

// notChecked is the finding when the configuration cannot be read.
func notChecked() []finding { return warning("not checked", "fix the configuration first") }

func findings(list []app.Finding) []finding {
	out := make([]finding, 0, len(list))
	for _, f := range list {
		out = append(out, finding{Level: level(f.Weight), Text: f.Text, Cure: f.Cure})
	}
	return out
}

func checkDatabase(ctx context.Context, p *patient) []finding {
	if p.loaded == nil {
		return notChecked()
	}
	secrets := p.loaded.Secrets()
	if token, err := config.ReadSecretFile(config.TokenPath(p.loaded.Config.Data)); err == nil { // another check reports whether it can be read
		secrets = append(secrets, token)
	}
	return findings(app.ExamineStore(ctx, p.loaded.Config, secrets, p.env.now))
}

func checkAgents(ctx context.Context, p *patient) []finding {
	if p.loaded == nil {
		return notChecked()
	}
	runs, servers, lacks := p.agentsThere(ctx)
	return append(findings(slices.Concat(
		app.ExamineAgents(ctx, p.loaded.Config, runs, p.env.lookupEnv), app.ExamineServers(p.loaded.Config, servers, p.env.lookupEnv))), lacks...)
}

// agentsThere returns the runners by agent, the tool servers of the running gateway and what models have refused; nil when no gateway answers, which
// another check reports.
func (p *patient) agentsThere(ctx context.Context) (runners map[string]string, servers []chat.ToolServer, lacks []finding) {
	var reply wire.AgentsListResult
	if err := p.flags.client().call(ctx, p.env, "agents.list", map[string]any{}, &reply); err != nil {
		return nil, nil, nil
	}
	runners = make(map[string]string, len(reply.Agents))
	for _, a := range reply.Agents {
		runners[a.ID] = a.Runner
		for _, lack := range a.Lacks {
			lacks = append(lacks, warning(lackOf(a.ID, lack), "choose a model that takes it, or wait: it is tried again")...)
		}
	}
	servers = make([]chat.ToolServer, 0, len(reply.Servers))
	for _, s := range reply.Servers {
		one := chat.ToolServer{Name: s.Name, State: s.State, Tools: s.Tools}
		for _, t := range s.Renamed {
			one.Renamed = append(one.Renamed, chat.RenamedTool{Name: t.Name, Own: t.Own})
		}
		for _, t := range s.LeftOut {
			one.LeftOut = append(one.LeftOut, chat.LeftOutTool{Name: t.Name, Why: t.Reason})
		}
		if s.LastError != nil {
			one.LastError = *s.LastError
		}
		servers = append(servers, one)
	}
	return runners, servers, lacks
}

// checkSpace checks the disk of the data directory.
func checkSpace(_ context.Context, p *patient) []finding {
	if p.loaded == nil {
		return notChecked()
	}
	free, err := freeSpace(p.loaded.Config.Data)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return ok("the data directory does not exist yet")
	case errors.Is(err, errors.ErrUnsupported):
		return ok("not measured on this system")
	case err != nil:
		return warning("the free space cannot be read", "")
	default:
		return spaceFinding(free)
	}
}

func spaceFinding(free uint64) []finding {
	text := fmt.Sprintf("%d MiB are free", free/mebibyte)
	switch {
	case free < noSpace:
		return failure(text, "make room before the database cannot write")
	case free < littleSpace:
		return warning(text, "make room")
	default:
		return ok("%s", text)
	}
}

// checkTokenFile checks who can read the token.
func checkTokenFile(_ context.Context, p *patient) []finding {
	if p.loaded == nil {
		return notChecked()
	}
	path, err := p.loaded.CheckToken()
	switch {
	case errors.Is(err, os.ErrNotExist):
		return ok("there is no token file; a token is given, or laneway serve makes one")
	case errors.Is(err, os.ErrPermission):
		return warning("the files of the gateway are closed to this user", "run laneway doctor as root or as the user of the gateway")
	case err != nil:
		return each(err)
	}
	return ok("%s is readable by the gateway and by no other user", path)
}

// checkChannels queries the networks of the configured bots, and the running gateway for its channels.
func checkChannels(ctx context.Context, p *patient) []finding {
	var all []finding
	if p.loaded != nil {
		all = findings(app.ExamineChannels(ctx, p.loaded.Config))
	}
	var report wire.ChannelsStatusResult
	if err := p.flags.client().call(ctx, p.env, "channels.status", map[string]any{}, &report); err != nil {
		return append(all, warning("the gateway's are not checked: no gateway answers", "start it, or give --url and --token")...)
	}
	for _, id := range slices.Sorted(maps.Keys(report.Accounts)) {
		for _, a := range report.Accounts[id] {
			name := cell(id, 40) + " " + cell(a.AccountID, 40)
			switch {
			case a.State == "disabled":
				all = append(all, warning(name+" is switched off: its token is refused", "get a token from @BotFather, put it in, and restart laneway")...)
			case a.State == "standby":
				all = append(all, ok("%s is polled by another node", name)...)
			case !a.Connected:
				why := ""
				if a.LastError != nil {
					why = ": " + oneLine(*a.LastError)
				}
				all = append(all, warning(name+" is not connected"+why, "see the log of the gateway")...)
			case a.OutboxFailed > 0:
				all = append(all, warning(fmt.Sprintf("%s could not deliver %s", name, count(a.OutboxFailed, "message")), "see the log of the gateway")...)
			case a.OutboxMaybeSent > 0:
				all = append(all, warning(fmt.Sprintf("%s: whether %s arrived is not known", name, count(a.OutboxMaybeSent, "message")), "they were being sent when a process ended, and are not sent again; ask their receivers if they matter")...)
			default:
				all = append(all, ok("%s is connected", name)...)
			}
		}
	}
	return all
}

// checkAgentStarts starts the agents over ACP. It runs only on request, because it needs their keys, and a first start may install a
// program.
func checkAgentStarts(ctx context.Context, p *patient) []finding {
	switch {
	case !p.flags.Agents:
		return nil
	case p.loaded == nil:
		return notChecked()
	}
	all := findings(app.ProbeAgents(ctx, p.loaded.Config, p.env.lookupEnv, p.env.environ()))
	if len(all) == 0 {
		return ok("no agent speaks ACP")
	}
	return all
}
