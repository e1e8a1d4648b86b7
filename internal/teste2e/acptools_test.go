package teste2e

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	acp "github.com/coder/acp-go-sdk"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"laneway/internal/testrun"
)

// acpVariable makes the test binary an ACP agent, see [acpAgent]. Its value is the agent's transport for MCP servers: http or stdio.
const acpVariable = "TESTE2E_ACP_AGENT"

// acpAgent uses the MCP server of its session with the official client. Each line of a message is a step: `tools`, `token`, or a call, `NAME ARGUMENTS`.
type acpAgent struct {
	acp.Agent // the methods that the gateway does not call

	conn *acp.AgentSideConnection
	open chan struct{} // closed when conn is set: the first request may arrive earlier

	mu      sync.Mutex
	servers []acp.McpServer
}

func runACPAgent() int {
	a := &acpAgent{open: make(chan struct{})}
	a.conn = acp.NewAgentSideConnection(a, os.Stdout, os.Stdin)
	close(a.open)
	<-a.conn.Done()
	return 0
}

func (*acpAgent) Initialize(context.Context, acp.InitializeRequest) (acp.InitializeResponse, error) {
	return acp.InitializeResponse{
		ProtocolVersion: acp.ProtocolVersionNumber, AuthMethods: []acp.AuthMethod{},
		AgentCapabilities: acp.AgentCapabilities{McpCapabilities: acp.McpCapabilities{Http: os.Getenv(acpVariable) == "http"}},
	}, nil
}

func (a *acpAgent) NewSession(_ context.Context, req acp.NewSessionRequest) (acp.NewSessionResponse, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.servers = req.McpServers
	return acp.NewSessionResponse{SessionId: "one"}, nil
}

func (*acpAgent) Cancel(context.Context, acp.CancelNotification) error { return nil }

func (a *acpAgent) Prompt(ctx context.Context, req acp.PromptRequest) (acp.PromptResponse, error) {
	<-a.open
	a.mu.Lock()
	servers := a.servers
	a.mu.Unlock()
	session, token, err := dialServer(ctx, servers)
	if err != nil {
		return acp.PromptResponse{}, err
	}
	defer func() { _ = session.Close() }()
	for line := range strings.Lines(req.Prompt[len(req.Prompt)-1].Text.Text) {
		word, args, _ := strings.Cut(strings.TrimSpace(line), " ")
		var text string
		switch word {
		case "tools":
			text = strings.Join(toolNames(ctx, session), " ")
		case "token":
			text = token
		default:
			text = callTool(ctx, session, "laneway_"+word, args)
		}
		update := acp.SessionNotification{SessionId: req.SessionId, Update: acp.UpdateAgentMessageText(text + "\n")}
		if err := a.conn.SessionUpdate(ctx, update); err != nil {
			return acp.PromptResponse{}, err
		}
	}
	return acp.PromptResponse{StopReason: acp.StopReasonEndTurn}, nil
}

// dialServer connects to the only server of a session, and returns the token for it.
func dialServer(ctx context.Context, servers []acp.McpServer) (session *mcp.ClientSession, token string, err error) {
	switch {
	case len(servers) != 1:
		return nil, "", fmt.Errorf("the session has %d MCP servers", len(servers))
	case servers[0].Http != nil:
		token = strings.TrimPrefix(servers[0].Http.Headers[0].Value, "Bearer ")
		session, err = dialTools(ctx, servers[0].Http.Url, token)
		return session, token, err
	case servers[0].Stdio == nil:
		return nil, "", errors.New("a server of an unknown kind")
	}
	program := exec.CommandContext(ctx, servers[0].Stdio.Command, servers[0].Stdio.Args...)
	for _, v := range servers[0].Stdio.Env {
		program.Env = append(program.Env, v.Name+"="+v.Value)
		token = v.Value
	}
	session, err = mcp.NewClient(&mcp.Implementation{Name: "teste2e", Version: "1"}, nil).Connect(ctx, &mcp.CommandTransport{Command: program}, nil)
	return session, token, err
}

// Agents call tools in two turns of a session, over HTTP and through `laneway mcp`. Both turns use one process and one token, which is not
// valid between the turns.
func TestAnACPAgentCallsTheToolsOfItsTurns(t *testing.T) {
	NeedsProcesses(t)
	onBothStores(t, func(t *testing.T, database string) {
		self := ownBinary(t)
		var agents strings.Builder
		agents.WriteString("agents:\n")
		for id, how := range map[string]string{"main": "http", "second": "stdio"} {
			fmt.Fprintf(&agents, "  %s: {runner: acp, command: [%q], env: {%s: %s}}\n", id, self, acpVariable, how)
		}
		g := Install(t, database, agents.String())
		g.Start()
		w, c, o := watch(t, g), mustDial(t, g, nil), OpenOracle(t, g, database)
		for _, id := range []string{"main", "second"} {
			session, name := "agent:"+id+":tools", "call "+id
			say(t, c, session, id+"-1", fmt.Sprintf("token\ntools\nremind {\"when\":\"in 5h\",\"text\":%q}", name))
			end := w.await(t, id+"-1")
			lines := strings.Split(end.text, "\n")
			if end.state != "final" || len(lines) < 3 || !strings.Contains(lines[1], "laneway_cron ") || !strings.Contains(lines[1], "laneway_remind") || !strings.Contains(lines[2], "Reminder ") {
				t.Fatalf("%s: %v %q", id, end, end.text)
			}
			token := lines[0]
			call := func() int {
				return g.post("/mcp", []byte(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"remind","arguments":{"when":"in 5h","text":"between"}}}`),
					map[string]string{"Authorization": "Bearer " + token, "Accept": "application/json, text/event-stream"}).Status
			}
			if status := call(); status != http.StatusUnauthorized {
				t.Errorf("%s: between turns the token is answered with %d", id, status)
			}
			say(t, c, session, id+"-2", "token\nsessions {\"action\":\"list\"}")
			if end := w.await(t, id+"-2"); !strings.HasPrefix(end.text, token+"\n") || !strings.Contains(end.text, session) {
				t.Errorf("%s: the second turn: %v %q", id, end, end.text)
			}
			if n := o.Count("SELECT count(*) FROM cron_jobs WHERE name = '" + name + "'"); n != 1 {
				t.Errorf("%s: %d reminders, want 1", id, n)
			}
			if text := historyOf(t, c, session); strings.Count(text, "Tool remind") != 1 {
				t.Errorf("%s: history\n%s", id, text)
			}
		}
		if n := o.Count("SELECT count(*) FROM cron_jobs WHERE name = 'between'"); n != 0 {
			t.Errorf("%d reminders were made between turns", n)
		}
		testrun.Eventually(t, "no journal is left", func() bool { return o.Count("SELECT count(*) FROM turn_rounds") == 0 })
	})
}

// The prefix is in the names that a client lists and calls; another form of it is refused.
func TestAPrefixStandsBeforeEveryTool(t *testing.T) {
	g := Install(t, "", "")
	g.Start()
	ctx, token := withTimeout(t, time.Minute), g.makeToken(t, "pat", "write", "own")
	dialWhenKnown(t, g, token, nil)
	session, err := dialTools(ctx, g.URL()+"/mcp?prefix=our_", token)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = session.Close() }()
	names := toolNames(ctx, session)
	for _, name := range names {
		if !strings.HasPrefix(name, "our_") {
			t.Errorf("a tool is named %q", name)
		}
	}
	if got := callTool(ctx, session, "our_remind", `{"when":"in 5h","text":"eat"}`); len(names) < 4 || !strings.Contains(got, "Reminder ") {
		t.Errorf("of %q, our_remind got %q", names, got)
	}
	if _, err := dialTools(ctx, g.URL()+"/mcp?prefix=Our-", token); err == nil || !strings.Contains(err.Error(), "Bad Request") {
		t.Errorf("a prefix of another form: %v", err)
	}
}
