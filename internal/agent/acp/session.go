package acp

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	sdk "github.com/coder/acp-go-sdk"

	"laneway/internal/agent"
	"laneway/internal/agent/internal/program"
	"laneway/internal/chat"
)

// begin makes a new session, in which the agent has seen nothing of the conversation, and closes
// the previous one.
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

// closeSession closes a session if the agent supports that. It waits for cancelTime at most; the
// end of the process closes all remaining sessions.
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

// endSession ends the session of the agent between turns: by session/close, or by ending the
// process. The next turn makes another session.
func (p *peer) endSession() {
	if !p.closes() {
		p.quit()
		<-p.gone
		return
	}
	p.closeSession(context.Background(), p.id) //nolint:forbidigo // it is bounded, and no turn runs
	p.id, p.memory, p.tools = "", program.Memory{}, false
}

// words describes a failure of the agent: its message and its details, without the values of its
// variables.
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

// servers returns the MCP servers with the tools of the gateway: over HTTP if the agent supports
// it, otherwise by a program that the agent starts. The names of the tools have a prefix, because
// some agents have tools with the same names and do not distinguish tools by their server.
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

// Probe starts a separate process, makes the first exchange and a session, ends the process, and
// returns the agent's description of itself. It sends no prompt. The error is the same as for a
// turn that cannot start.
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

const (
	// A replay has ended after replayQuiet without an update, or after replayTime. Some agents
	// replay after the response.
	replayQuiet = 200 * time.Millisecond
	replayTime  = 5 * time.Second
)

// loads reports whether the agent can continue a session of another process.
func (p *peer) loads() bool {
	can := p.hello.AgentCapabilities
	return p.kept.Sessions != nil && (can.LoadSession || can.SessionCapabilities.Resume != nil)
}

// takeUp continues the session of an earlier process, after that process has ended. It returns
// false when no session is stored or the agent cannot continue it; the agent then needs a new
// session.
func (p *peer) takeUp(ctx context.Context, access agent.ToolAccess) bool {
	if !p.loads() {
		return false
	}
	kept, err := p.kept.Take(ctx)
	if err == nil && kept.ID == "" {
		return false
	}
	if err == nil {
		err = p.load(ctx, kept, access)
	}
	if err != nil {
		p.kept.Lost(ctx, p.hide.Replace(err.Error()))
		return false
	}
	p.id, p.memory, p.tools, p.unstored = sdk.SessionId(kept.ID), program.Remembered(kept), access.Token != "", true
	p.memory.Used = chat.Usage{} // Copilot CLI counts from the start of its process
	return true
}

func (p *peer) load(ctx context.Context, kept chat.AgentSession, access agent.ToolAccess) error {
	id, servers := sdk.SessionId(kept.ID), p.servers(access)
	can := p.hello.AgentCapabilities
	if can.SessionCapabilities.Resume != nil {
		err := p.signedIn(ctx, func() error {
			_, err := p.conn.ResumeSession(ctx, sdk.ResumeSessionRequest{SessionId: id, Cwd: p.dir, McpServers: servers})
			return err
		})
		// Qwen Code announces this capability without the method. OpenClaw finds the sessions of
		// its own processes only by session/load.
		if _, refused := errors.AsType[*sdk.RequestError](err); !refused || !can.LoadSession {
			return p.resumeError("resuming", err)
		}
	}
	err := p.signedIn(ctx, func() error {
		_, err := p.conn.LoadSession(ctx, sdk.LoadSessionRequest{SessionId: id, Cwd: p.dir, McpServers: servers})
		return err
	})
	if err == nil {
		p.awaitQuiet(ctx)
		if len(kept.Runs) > 0 && !p.replayed.Load() {
			err = errNothingReplayed
		}
	}
	return p.resumeError("loading", err)
}

// errNothingReplayed exists because some agents answer session/load for a lost session with an
// empty session.
var errNothingReplayed = errors.New("it replays nothing of the conversation")

// resumeError wraps the error of a call that continues a session.
func (p *peer) resumeError(doing string, err error) error {
	if refused, ok := errors.AsType[*sdk.RequestError](err); ok {
		return fmt.Errorf("%s its session: %s", doing, p.words(refused))
	}
	if err != nil {
		return fmt.Errorf("%s its session: %w", doing, err)
	}
	return nil
}

// awaitQuiet waits for the end of a replay. No turn runs, so its updates are dropped.
func (p *peer) awaitQuiet(ctx context.Context) {
	end := time.NewTimer(replayTime)
	defer end.Stop()
	quiet := time.NewTimer(replayQuiet)
	defer quiet.Stop()
	for {
		select {
		case <-p.strays:
			quiet.Reset(replayQuiet)
		case <-quiet.C:
			return
		case <-end.C:
			return
		case <-p.gone:
			return
		case <-ctx.Done():
			return
		}
	}
}

// remember stores the session of the agent, so that a later process can continue it.
func (p *peer) remember(ctx context.Context) {
	if !p.loads() || p.id == "" {
		return
	}
	p.unstored = false
	p.kept.Put(ctx, string(p.id), p.memory, p.proc.Group(), p.started)
}

// blocks returns the prompt of a turn. A new agent session receives the system prompt and the
// history; a session that remembers the conversation receives only what was added since its last
// turn. blocks makes a new agent session when none is open, when the conversation was reset, and
// for the first turn with tools, because an agent gets its tools when the session is made. dir is
// the directory for the files of the turn; it may be empty.
func (p *peer) blocks(ctx context.Context, req agent.Request, access agent.ToolAccess, dir string) ([]sdk.ContentBlock, error) {
	if p.id == "" || p.memory.Forgot(req) || (access.Token != "" && !p.tools) {
		if err := p.begin(ctx, access); err != nil {
			return nil, err
		}
	}
	before, err := p.memory.Before(req, dir)
	if err != nil {
		return nil, err
	}
	blocks := make([]sdk.ContentBlock, 0, len(before)+1)
	for _, text := range before {
		blocks = append(blocks, sdk.TextBlock(text))
	}
	return append(append(blocks, p.files(req)...), sdk.TextBlock(agent.PromptAfter(req, req.History))), nil
}

// files returns the files that came with the messages: pictures if the agent accepts them,
// otherwise links to the files on this host.
func (p *peer) files(req agent.Request) (blocks []sdk.ContentBlock) {
	if req.Files == nil {
		return nil
	}
	pictures := p.hello.AgentCapabilities.PromptCapabilities.Image
	if pictures {
		images, left := agent.Images(req)
		for _, image := range images {
			blocks = append(blocks, sdk.ImageBlock(base64.StdEncoding.EncodeToString(image.Data), image.MIMEType))
		}
		if left != "" {
			blocks = append(blocks, sdk.TextBlock(left))
		}
	}
	for _, message := range req.Messages {
		for _, file := range message.Attachments {
			if file.Path == "" || (pictures && strings.HasPrefix(file.MIMEType, "image/")) {
				continue
			}
			address := url.URL{Scheme: "file", Path: req.Files.Path(file.Path)}
			blocks = append(blocks, sdk.ResourceLinkBlock(file.Name, address.String()))
		}
	}
	return blocks
}
