package acp

import (
	"context"
	"errors"
	"fmt"
	"strings"

	sdk "github.com/coder/acp-go-sdk"

	"laneway/internal/agent"
	"laneway/internal/agent/internal/program"
	"laneway/internal/chat"
)

// begin makes a new session, in which the agent has seen nothing of the conversation, and closes the previous one.
func (p *peer) begin(ctx context.Context, access agent.ToolAccess) error {
	servers := p.servers(access)
	session, err := p.newSession(ctx, servers)
	if refused, ok := errors.AsType[*sdk.RequestError](err); ok && refused.Code != authRequired && len(servers) > 0 && ctx.Err() == nil {
		p.log.WarnContext(ctx, "an agent makes no session with the tools of the gateway; trying without them", "err", p.words(refused))
		p.refusesServers = true
		session, err = p.newSession(ctx, []sdk.McpServer{})
	}
	if err != nil {
		return fmt.Errorf("making a session: %w", orCause(ctx, err))
	}
	p.closeSession(ctx, p.id)
	p.id, p.memory, p.tools, p.unstored = session.SessionId, program.Memory{}, access.Token != "", true
	return nil
}

func (p *peer) newSession(ctx context.Context, servers []sdk.McpServer) (session sdk.NewSessionResponse, err error) {
	err = p.signedIn(ctx, func() error {
		session, err = p.conn.NewSession(ctx, sdk.NewSessionRequest{Cwd: p.dir, McpServers: servers})
		return err
	})
	return session, err
}

// signedIn makes a call, and repeats it after authenticating if the agent requires that.
func (p *peer) signedIn(ctx context.Context, call func() error) error {
	err := call()
	if refused, ok := errors.AsType[*sdk.RequestError](err); !ok || refused.Code != authRequired || p.cfg.Auth == "" {
		return err
	}
	if _, err := p.conn.Authenticate(ctx, sdk.AuthenticateRequest{MethodId: p.cfg.Auth}); err != nil {
		return fmt.Errorf("authenticating: %w", err)
	}
	return call()
}

// closeSession closes a session if the agent supports that. It waits for cancelTime at most; the end of the process closes all remaining sessions.
func (p *peer) closeSession(ctx context.Context, id sdk.SessionId) {
	if id == "" || !p.closes() || p.ended() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, cancelTime)
	defer cancel()
	if _, err := p.conn.CloseSession(ctx, sdk.CloseSessionRequest{SessionId: id}); err != nil {
		p.log.DebugContext(ctx, "an agent did not close a session", "err", err)
	}
}

// endSession ends the session of the agent between turns: by session/close, or by ending the process. The next turn makes another session.
func (p *peer) endSession() {
	if !p.closes() {
		p.quit()
		<-p.gone
		return
	}
	p.closeSession(context.Background(), p.id) //nolint:forbidigo // it is bounded, and no turn runs
	p.id, p.memory, p.tools = "", program.Memory{}, false
}

// words describes a failure of the agent: its message and its details, without the values of its variables.
func (p *peer) words(refused *sdk.RequestError) string {
	const most = 300
	text := refused.Message
	if data, ok := refused.Data.(map[string]any); ok {
		for _, name := range []string{"details", "message", "error"} {
			if more, ok := data[name].(string); ok && more != "" && !strings.Contains(text, more) {
				text = strings.TrimRight(text, ". ") + ": " + more
				break
			}
		}
	} else if more, ok := refused.Data.(string); ok && more != "" {
		text = strings.TrimRight(text, ". ") + ": " + more
	}
	return strings.TrimRight(chat.Cut(chat.Printable(chat.CleanText(p.hide.Replace(text))), most), ". ")
}

// servers returns the MCP servers with the tools of the gateway: over HTTP if the agent supports it, otherwise by a program that the agent starts. The names of the
// tools have a prefix, because some agents have tools with the same names and do not distinguish tools by their server.
func (p *peer) servers(access agent.ToolAccess) []sdk.McpServer {
	const name = "laneway"
	address := access.URL + "?prefix=" + name + "_"
	switch {
	case access.Token == "", p.refusesServers, p.cfg.NoServers:
		return []sdk.McpServer{}
	case p.hello.AgentCapabilities.McpCapabilities.Http:
		return []sdk.McpServer{{Http: &sdk.McpServerHttpInline{
			Type: "http", Name: name, Url: address, Headers: []sdk.HttpHeader{{Name: "Authorization", Value: "Bearer " + access.Token}},
		}}}
	case len(p.cfg.Bridge) > 0:
		return []sdk.McpServer{{Stdio: &sdk.McpServerStdio{
			Name: name, Command: p.cfg.Bridge[0], Args: p.cfg.Bridge[1:],
			Env: []sdk.EnvVariable{{Name: urlVariable, Value: address}, {Name: tokenVariable, Value: access.Token}},
		}}}
	default:
		return []sdk.McpServer{}
	}
}

// Identity is an agent's description of itself.
type Identity struct {
	Name, Version string
	// Abilities are the capabilities that this gateway uses, in words.
	Abilities []string
}

// Probe starts a separate process, makes the first exchange and a session, ends the process, and returns the agent's description of itself. It sends no prompt. The
// error is the same as for a turn that cannot start.
func (r *Runner) Probe(ctx context.Context) (Identity, error) {
	session := chat.SessionKey{Agent: "probe", Rest: "probe"}
	dir, err := program.Dir(r.cfg.Dir, session)
	if err != nil {
		return Identity{}, err
	}
	p, err := r.start(ctx, session, dir, agent.ToolAccess{}, nil)
	if err != nil {
		return Identity{}, err
	}
	p.quit()
	<-p.gone
	can := p.hello.AgentCapabilities
	var who Identity
	if info := p.hello.AgentInfo; info != nil {
		who.Name, who.Version = chat.Cut(chat.Printable(info.Name), maxTitle), chat.Cut(chat.Printable(info.Version), maxTitle)
		if info.Title != nil && *info.Title != "" {
			who.Name = chat.Cut(chat.Printable(*info.Title), maxTitle)
		}
	}
	for _, one := range []struct {
		can   bool
		words string
	}{
		{can.PromptCapabilities.Image, "pictures"},
		{can.McpCapabilities.Http, "tools over HTTP"},
		{p.closes(), "closing sessions"},
		{can.LoadSession, "loading sessions"},
		{can.SessionCapabilities.Resume != nil, "resuming sessions"},
	} {
		if one.can {
			who.Abilities = append(who.Abilities, one.words)
		}
	}
	return who, nil
}
