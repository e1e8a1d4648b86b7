package teste2e

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	acp "github.com/coder/acp-go-sdk"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"laneway/internal/testrun"
	"laneway/internal/testtelegram"
	"laneway/internal/tool"
)

var allowCommand = regexp.MustCompile(`/allow [0-9a-f]{12}`)

// The example agent of the SDK, unmodified, answers a conversation of the web: it streams, its
// permission question is answered, another one is left unanswered, a turn is stopped, and the end
// of the gateway ends its process.
func TestAnACPAgentBehindTheWeb(t *testing.T) {
	NeedsProcesses(t)
	onBothStores(t, func(t *testing.T, database string) {
		program := buildExample(t, "github.com/coder/acp-go-sdk/example/agent")
		g := Install(t, database, "agents: {main: {runner: acp, command: ["+program+"], question_timeout: 4s}}\n")
		g.Start()
		const session = "agent:main:coder"
		c, w := mustDial(t, g, nil), watch(t, g)

		say(t, c, session, "answered", "change the configuration")
		var answer string
		testrun.Eventually(t, "the agent asks", func() bool {
			answer = allowCommand.FindString(historyOf(t, c, session))
			return answer != ""
		})
		if text := historyOf(t, c, session); !strings.Contains(text, "wants to do this for you: change the file “/home/user/project/config.json” in the directory “") ||
			!strings.Contains(text, ", with the tool “Modifying critical configuration file”") || !strings.Contains(text, answer+" (Allow: this change) or /deny ") || !strings.Contains(text, "within 4s") {
			t.Errorf("the question is\n%s", text)
		}
		if _, ended := w.end("answered"); ended {
			t.Error("the turn did not wait for its answer")
		}
		say(t, c, session, "the-answer", answer)
		if end := w.await(t, "answered"); end.state != "final" || !strings.Contains(end.text, "project structure") || !strings.HasSuffix(end.text, "The changes have been applied.") {
			t.Errorf("with the permission: %v %q", end, end.text)
		}
		deltas := 0
		for _, e := range w.of("answered") {
			if e.name == "chat" && e.state == "delta" {
				deltas++
			}
		}
		if deltas < 3 {
			t.Errorf("%d deltas, want a stream", deltas)
		}
		say(t, c, session, "again", answer)
		if end := w.await(t, "again"); end.text != "The answer is: Allow: this change." {
			t.Errorf("the same answer again got %q", end.text)
		}
		say(t, c, session, "other", strings.Replace(answer, "/allow", "/deny", 1))
		if end := w.await(t, "other"); !strings.Contains(end.text, "no open question") {
			t.Errorf("another answer got %q", end.text)
		}

		say(t, c, session, "unanswered", "change it again")
		if end := w.await(t, "unanswered"); end.state != "final" || !strings.Contains(end.text, "I understand you prefer not to make that change") {
			t.Errorf("without an answer: %v %q", end, end.text)
		}
		testrun.Eventually(t, "the end of the question is reported", func() bool {
			return strings.Count(historyOf(t, c, session), "No answer came within 4s, so the agent main may not: ") == 1
		})

		say(t, c, session, "stopped", "once more")
		testrun.Eventually(t, "the turn has begun to answer", func() bool { return len(w.of("stopped")) > 2 })
		start := time.Now()
		if _, err := c.Call("chat.abort", map[string]any{"sessionKey": session, "runId": "stopped"}, 10*time.Second); err != nil {
			t.Fatal(err)
		}
		if end := w.await(t, "stopped"); end.state != "aborted" || time.Since(start) > 3*time.Second {
			t.Errorf("the stop: %v after %s", end, time.Since(start))
		}
		if n := processesOf(t, program); n != 1 {
			t.Errorf("%d processes of the agent, want the one of the session", n)
		}
		g.Kill()
		testrun.Eventually(t, "the agent has ended with its gateway", func() bool { return processesOf(t, program) == 0 })
	})
}

// processesOf counts the processes of a program.
func processesOf(t *testing.T, program string) (n int) {
	t.Helper()
	links, err := filepath.Glob("/proc/[0-9]*/exe")
	if err != nil {
		t.Fatal(err)
	}
	for _, link := range links {
		if target, err := os.Readlink(link); err == nil && target == program {
			n++
		}
	}
	return n
}

// acpVariable makes the test binary an ACP agent, see [acpAgent]. Its value is the agent's
// transport for MCP servers: http or stdio.
const acpVariable = "TESTE2E_ACP_AGENT"

// acpAgent uses the MCP server of its session with the official client. Each line of a message is a
// step: `tools`, `token`, or a call, `NAME {ARGUMENTS}`. It repeats every other line.
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

// step reports a tool call of the agent. It returns when the gateway has read the report, as an agent
// whose model reads the result before it calls another tool: a request follows the report on the
// same connection, and is refused.
func (a *acpAgent) step(ctx context.Context, session acp.SessionId, kind acp.ToolKind, title string) error {
	id := acp.ToolCallId("call " + title)
	for _, u := range []acp.SessionUpdate{
		acp.StartToolCall(id, title, acp.WithStartKind(kind)), acp.UpdateToolCall(id, acp.WithUpdateStatus(acp.ToolCallStatusCompleted)),
	} {
		if err := a.conn.SessionUpdate(ctx, acp.SessionNotification{SessionId: session, Update: u}); err != nil {
			return err
		}
	}
	if _, err := a.conn.ReadTextFile(ctx, acp.ReadTextFileRequest{SessionId: session, Path: "/nothing"}); err == nil {
		return errors.New("the gateway has read a file")
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

// Agents call tools in two turns of a session, over HTTP and through `laneway mcp`. Both turns use
// one process and one token, which is not valid between the turns.
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

// What an agent has read from outside by its own tools must not make reminders and jobs: the person
// is asked, also in the attempt after the end of the process, in the turn that has such an agent as
// a delegate, and in the next turn.
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

// toolCall is a call with a part of its result.
type toolCall struct{ name, args, want string }

// everyTool is a successful call of each tool; note is what message sends and history_search finds.
// Calls that create or send are first: after a result that may contain text from outside, a person
// would be asked. text from outside, a person would be asked.
func everyTool(note string) []toolCall {
	return []toolCall{
		{"remind", `{"when":"tomorrow 15:00","text":"call Ada"}`, "Reminder "},
		{"cron", `{"action":"list"}`, "call Ada"},
		{"message", fmt.Sprintf(`{"text":%q}`, note), "The text is on its way."},
		{"sessions", `{"action":"list"}`, "agent:main:"},
		{"send_file", `{"name":"list.txt","text":"apples and pears"}`, "The file list.txt is on its way."},
		{"history_search", fmt.Sprintf(`{"query":%q}`, note), ": " + note},
		{"spawn", `{"task":"print spawned and done","wait":true}`, "spawned and done"},
		{"delegate", `{"agent":"sister","task":"the sister repeats it"}`, "the sister repeats it"},
	}
}

// A program calls each tool of its turn with the official client, for a person in Telegram, and the
// test checks the effects.
func TestTheProgramOfAnAgentCallsEveryTool(t *testing.T) {
	onBothStores(t, func(t *testing.T, database string) {
		self := ownBinary(t)
		c := openChatroomOf(t, database, fmt.Sprintf("{runner: command, command: [%q], env: {%s: \"1\"}}, sister: {runner: echo}", self, programVariable), "    allow: [7]\n", testtelegram.Config{})
		c.Start()
		c.Telegram.Say(anna, anna, "print remember: a note of Anna")
		c.Says(anna, "remember: a note of Anna")
		c.rest()

		const note = "a note of Anna" // history_search finds her earlier message
		calls := everyTool(note)
		steps := []string{"tools"}
		for _, call := range calls {
			steps = append(steps, call.name+" "+call.args)
		}
		c.Telegram.Say(anna, anna, strings.Join(steps, "\n"))
		c.Await("the answer", func() bool { return c.Count(anna, "the sister repeats it") == 1 })
		c.rest()

		texts := c.Telegram.Texts(anna)
		at := slices.IndexFunc(texts, func(text string) bool { return strings.Contains(text, "the sister repeats it") })
		offered, results, _ := strings.Cut(texts[at], "\n")
		names := slices.Sorted(slices.Values(tool.Names()))
		if offered != strings.Join(names, " ") {
			t.Errorf("the program was offered %q, want %q", offered, names)
		}
		for _, name := range names {
			if !slices.ContainsFunc(calls, func(call toolCall) bool { return call.name == name }) {
				t.Errorf("%s was not called", name)
			}
		}
		for _, call := range calls {
			before, rest, found := strings.Cut(results, call.want)
			if !found || strings.Contains(before, "refused:") || strings.Contains(before, "error:") {
				t.Errorf("%s %s: no %q in order in\n%s", call.name, call.args, call.want, results)
			}
			results = rest
		}
		c.wantToolEffects(note)
		c.Close()
	})
}

// wantToolEffects checks the effects of the calls of everyTool for Anna.
func (c *Chatroom) wantToolEffects(note string) {
	c.t.Helper()
	for _, shown := range []string{note, "sendDocument list.txt: apples and pears"} {
		if n := len(slices.DeleteFunc(c.seen(anna), func(text string) bool { return text != shown })); n != 1 {
			c.t.Errorf("Anna sees %q %d times in %q", shown, n, c.seen(anna))
		}
	}
	o := OpenOracle(c.t, c.Gateway, c.database)
	for query, want := range map[string]int{
		countReminders: 1,
		"SELECT count(*) FROM inbox WHERE parent IS NOT NULL": 2,
		"SELECT count(*) FROM inbox WHERE parent IS NOT NULL AND lane = 'subagent' AND outcome = 'answered' AND session_key LIKE 'agent:main:task:%'": 1,
		"SELECT count(*) FROM inbox WHERE parent IS NOT NULL AND lane = 'team' AND outcome = 'answered' AND session_key LIKE 'agent:sister:task:%'":   1,
		"SELECT count(*) FROM tool_questions":                                                0,
		"SELECT count(*) FROM outbox WHERE payload = '" + note + "' AND state = 'delivered'": 1,
	} {
		if n := o.Count(query); n != want {
			c.t.Errorf("%s: %d, want %d", query, n, want)
		}
	}
}
