package teste2e

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
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

// acpAgent uses the MCP server of its session with the official client. Each line of a message is a step: `tools`, `token`, or a call, `NAME {ARGUMENTS}`. It repeats
// every other line.
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
		text := strings.TrimSpace(line)
		switch {
		case word == "tools":
			text = strings.Join(toolNames(ctx, session), " ")
		case word == "token":
			text = token
		case word == "step": // KIND TITLE: a call of the agent itself, which completes
			text = ""
			kind, title, _ := strings.Cut(args, " ")
			if err := a.step(ctx, req.SessionId, acp.ToolKind(kind), title); err != nil {
				return acp.PromptResponse{}, err
			}
		case word == "hang": // FILE: fetches and hangs, unless an earlier attempt has made the file
			text = ""
			file, err := os.OpenFile(args, os.O_CREATE|os.O_EXCL, 0o600)
			if err != nil {
				continue
			}
			_ = file.Close()
			if err := a.step(ctx, req.SessionId, acp.ToolKindFetch, "https://outside.example"); err != nil {
				return acp.PromptResponse{}, err
			}
			<-ctx.Done()
		case strings.HasPrefix(args, "{"):
			text = callTool(ctx, session, "laneway_"+word, args)
		}
		update := acp.SessionNotification{SessionId: req.SessionId, Update: acp.UpdateAgentMessageText(text + "\n")}
		if err := a.conn.SessionUpdate(ctx, update); err != nil {
			return acp.PromptResponse{}, err
		}
	}
	return acp.PromptResponse{StopReason: acp.StopReasonEndTurn}, nil
}

// step reports a tool call of the agent.
func (a *acpAgent) step(ctx context.Context, session acp.SessionId, kind acp.ToolKind, title string) error {
	id := acp.ToolCallId("call " + title)
	for _, u := range []acp.SessionUpdate{
		acp.StartToolCall(id, title, acp.WithStartKind(kind)), acp.UpdateToolCall(id, acp.WithUpdateStatus(acp.ToolCallStatusCompleted)),
	} {
		if err := a.conn.SessionUpdate(ctx, acp.SessionNotification{SessionId: session, Update: u}); err != nil {
			return err
		}
	}
	return nil
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

// What an agent has read from outside by its own tools must not make reminders and jobs: the person is asked, also in the attempt after the end of the
// process, in the turn that has such an agent as a delegate, and in the next turn.
func TestTextFromOutsideEndsAtProgramAgents(t *testing.T) {
	NeedsProcesses(t)
	onBothStores(t, func(t *testing.T, database string) {
		self := ownBinary(t)
		program := func(more string) string {
			return fmt.Sprintf("{runner: acp, command: [%q], env: {%s: http}%s}", self, acpVariable, more)
		}
		g := Install(t, database, "agents:\n  main: "+program("")+"\n  trusted: "+program(", outside: never")+"\n  strict: "+program(", outside: always")+
			"\n  teller: {runner: command, command: [cat]}\nlimits: {chat: 0, cron_writes: 0}\n")
		g.Start()
		w, c, o := watch(t, g), mustDial(t, g, nil), OpenOracle(t, g, database)
		remind := func(name string) string { return fmt.Sprintf("remind {\"when\":\"in 5h\",\"text\":%q}", name) }
		add := func(name string) string {
			return fmt.Sprintf("cron {\"action\":\"add\",\"when\":\"every 5h\",\"text\":%q}", name)
		}
		const fetch = "step fetch https://outside.example\n"
		for i, one := range []struct {
			agent, text string
			asked       bool
		}{
			{"main", remind("plain"), false},
			{"main", "step other mcp__laneway__laneway_remind\nstep edit notes\n" + remind("own"), false},
			{"main", fetch + remind("fetched"), true},
			{"main", fetch + add("added"), true},
			{"main", "step browse page\n" + remind("browsed"), true},
			{"main", "step execute curl\n" + remind("executed"), true},
			{"trusted", fetch + remind("trusted"), false},
			{"strict", remind("strict"), true},
			{"main", "delegate {\"agent\":\"teller\",\"task\":\"tell me\"}\n" + remind("delegated"), true},
		} {
			id, session := fmt.Sprint("turn-", i), fmt.Sprintf("agent:%s:outside-%d", one.agent, i)
			say(t, c, session, id, one.text)
			end := w.await(t, id)
			if asked := strings.Contains(end.text, "The person is asked"); end.state != "final" || asked != one.asked {
				t.Errorf("%s: %q is answered with %v %q", one.agent, one.text, end.state, end.text)
			}
			if one.asked && i%4 == 0 {
				say(t, c, session, id+"-next", remind("next"))
				if end := w.await(t, id+"-next"); !strings.Contains(end.text, "The person is asked") {
					t.Errorf("%s: the turn after %q: %q", one.agent, one.text, end.text)
				}
			}
		}
		if names := o.Rows("SELECT name FROM cron_jobs WHERE owner <> 'system' ORDER BY name"); fmt.Sprint(names) != "[own plain trusted]" {
			t.Errorf("made without a question: %v", names)
		}

		say(t, c, "agent:main:killed", "killed", "hang "+filepath.Join(t.TempDir(), "hang")+"\n"+remind("killed"))
		testrun.Eventually(t, "the mark is stored", func() bool { return o.Count("SELECT count(*) FROM runs WHERE id = 'killed' AND outside") == 1 })
		g.Kill()
		g.Start()
		testrun.Eventually(t, "the second attempt ends", func() bool { return o.Count("SELECT count(*) FROM runs WHERE id = 'killed' AND state = 'ok'") == 1 })
		if text := historyOf(t, mustDial(t, g, nil), "agent:main:killed"); !strings.Contains(text, "The person is asked") {
			t.Errorf("after the end of the process: %s", text)
		}
		if n := o.Count("SELECT count(*) FROM cron_jobs WHERE name = 'killed'"); n != 0 {
			t.Error("the second attempt has made a reminder without a question")
		}
	})
}
