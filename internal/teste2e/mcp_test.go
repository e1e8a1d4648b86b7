package teste2e

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"laneway/internal/testrun"
)

// programVariable makes the test binary the program of an agent, see toolsProgram.
const programVariable = "TESTE2E_TOOLS_PROGRAM"

// toolsProgram is a program of an agent that uses the official client of the Go SDK. Each line of
// the message is a step: `tools` prints the names of the tools, `token` the token, `print TEXT` the
// text, `hang` waits for the end of the process in the first attempt, and any other line is a call,
// `NAME ARGUMENTS`.
func toolsProgram() int {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	session, err := dialTools(ctx, os.Getenv("LANEWAY_MCP_URL"), os.Getenv("LANEWAY_MCP_TOKEN"))
	if err != nil {
		fmt.Println("no tools:", err)
		return 0
	}
	defer func() { _ = session.Close() }()
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		word, args, _ := strings.Cut(lines.Text(), " ")
		switch word {
		case "tools":
			fmt.Println(strings.Join(toolNames(ctx, session), " "))
		case "token":
			fmt.Println(os.Getenv("LANEWAY_MCP_TOKEN"))
		case "print":
			fmt.Println(args)
		case "hang":
			if os.Getenv("LANEWAY_ATTEMPT") == "1" {
				fmt.Println("hanging")
				<-ctx.Done()
			}
		case "":
		default:
			fmt.Println(callTool(ctx, session, word, args))
		}
	}
	return 0
}

type bearerOf struct{ token string }

func (b bearerOf) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+b.token)
	return http.DefaultTransport.RoundTrip(r)
}

func dialTools(ctx context.Context, url, token string) (*mcp.ClientSession, error) {
	client := mcp.NewClient(&mcp.Implementation{Name: "teste2e", Version: "1"}, nil)
	return client.Connect(ctx, &mcp.StreamableClientTransport{Endpoint: url, MaxRetries: -1, HTTPClient: &http.Client{Transport: bearerOf{token}}}, nil)
}

func toolNames(ctx context.Context, session *mcp.ClientSession) (names []string) {
	for tool, err := range session.Tools(ctx, nil) {
		if err != nil {
			return []string{err.Error()}
		}
		names = append(names, tool.Name)
	}
	slices.Sort(names)
	return names
}

func callTool(ctx context.Context, session *mcp.ClientSession, name, args string) string {
	result, err := session.CallTool(ctx, &mcp.CallToolParams{Name: name, Arguments: json.RawMessage(args)})
	if err != nil {
		return "error: " + err.Error()
	}
	var out strings.Builder
	for _, content := range result.Content {
		if text, ok := content.(*mcp.TextContent); ok {
			out.WriteString(text.Text)
		}
	}
	if result.IsError {
		return "refused: " + out.String()
	}
	return out.String()
}

// programConfig is a gateway whose agent is toolsProgram.
func programConfig(t *testing.T, more string) string {
	t.Helper()
	self := ownBinary(t)
	return fmt.Sprintf("agents:\n  main: {runner: command, command: [%q], env: {%s: \"1\"}}\nlimits: {chat: 0, requests: 0, cron_writes: 0}\n%s", self, programVariable, more)
}

// The gateway is killed after calls of a program, at each commit of the last one. The program makes
// all of its calls again.
func TestAProgramThatRunsAgainDoublesNothing(t *testing.T) {
	NeedsProcesses(t)
	const (
		messages    = "FROM transcript WHERE role = 'assistant' AND content = 'again' AND session_key = 'SESSION'"
		lastMessage = "DELETE " + messages + " AND seq = (SELECT max(seq) " + messages + ")"
	)
	steps := map[string][]string{
		"AfterTheResults":          nil,
		"AfterTheToolHasRun":       {"DELETE FROM turn_rounds WHERE kind = 'result' AND round = 3"},
		"AfterTheRoundIsRecorded":  {"DELETE FROM turn_rounds WHERE kind = 'result' AND round = 3", lastMessage},
		"BeforeTheRoundIsRecorded": {"DELETE FROM turn_rounds WHERE round = 3", lastMessage},
		"AfterNoResultWasRecorded": {"DELETE FROM turn_rounds WHERE kind = 'result'"},
	}
	onBothStores(t, func(t *testing.T, database string) {
		g := Install(t, database, programConfig(t, "cluster: {lease: 3s, heartbeat: 500ms}\n"))
		g.Start()
		o := OpenOracle(t, g, database)
		for name, undo := range steps {
			session, reminder := "agent:main:"+strings.ToLower(name), "call "+name
			c := mustDial(t, g, nil)
			// The same call twice is two calls, also in a repetition.
			say(t, c, session, name, fmt.Sprintf("remind {\"when\":\"in 5h\",\"text\":%q}\nmessage {\"text\":\"again\"}\nmessage {\"text\":\"again\"}\nhang\nsessions {\"action\":\"list\"}", reminder))
			testrun.Eventually(t, "the program hangs", func() bool {
				return o.Count("SELECT count(*) FROM turn_rounds WHERE kind = 'result'") == 3
			})
			g.Kill()
			db := writable(t, g, database)
			for _, statement := range undo {
				statement = strings.ReplaceAll(statement, "SESSION", session)
				if _, err := db.ExecContext(t.Context(), statement); err != nil {
					t.Fatalf("%s: %v", statement, err)
				}
			}
			g.Start()
			testrun.Eventually(t, "the turn has ended", func() bool {
				return o.Count("SELECT count(*) FROM runs WHERE id = '"+name+"' AND state = 'ok'") == 1
			})
			if n := o.Count("SELECT count(*) FROM cron_jobs WHERE name = '" + reminder + "'"); n != 1 {
				t.Errorf("%s: %d reminders, want 1", name, n)
			}
			if n := o.Count("SELECT count(*) " + strings.ReplaceAll(messages, "SESSION", session)); n != 2 {
				t.Errorf("%s: %d messages, want 2", name, n)
			}
			text := historyOf(t, mustDial(t, g, nil), session)
			if strings.Count(text, "Tool remind") != 1 || strings.Count(text, "Tool message") != 2 || strings.Count(text, "Tool sessions") != 1 {
				t.Errorf("%s: history:\n%s", name, text)
			}
		}
	})
}

// declared returns what a server declares: its name and version, its capabilities and its tools.
func declared(ctx context.Context, t *testing.T, session *mcp.ClientSession) []string {
	t.Helper()
	list, err := session.ListTools(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, part := range []any{session.InitializeResult().ServerInfo, session.InitializeResult().Capabilities, list.Tools} {
		raw, err := json.Marshal(part)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, string(raw))
	}
	return out
}

// Every tool is called with a person's token, over HTTP and through `laneway mcp`; jobs and
// sessions of another owner do not exist.
func TestACredentialHasToolsOfItsOwn(t *testing.T) {
	NeedsProcesses(t)
	onBothStores(t, func(t *testing.T, database string) {
		g := Install(t, database, "agents: {main: {runner: echo}}\nlimits: {chat: 0, requests: 0, cron_writes: 0}\n")
		g.Start()
		o := OpenOracle(t, g, database)
		alice, bob := g.makeToken(t, "alice", "write", "own"), g.makeToken(t, "bob", "write", "own")
		reader := g.makeToken(t, "reader", "read", "own")
		ctx := withTimeout(t, 2*time.Minute)
		testrun.Eventually(t, "the tokens are known", func() bool {
			s, err := dialTools(ctx, g.URL()+"/mcp", bob)
			if err == nil {
				_ = s.Close()
			}
			return err == nil
		})
		own, err := dialTools(ctx, g.URL()+"/mcp", alice)
		if err != nil {
			t.Fatal(err)
		}
		stdio := mcp.NewClient(&mcp.Implementation{Name: "teste2e", Version: "1"}, nil)
		child := exec.CommandContext(ctx, Binary(t), "mcp", "--url", g.URL())
		child.Env = []string{"LANEWAY_TOKEN=" + alice, "HOME=" + g.Dir, "PATH=" + os.Getenv("PATH")}
		piped, err := stdio.Connect(ctx, &mcp.CommandTransport{Command: child}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(declared(ctx, t, own), declared(ctx, t, piped)); diff != "" {
			t.Errorf("stdio does not declare what HTTP declares:\n%s", diff)
		}
		for how, session := range map[string]*mcp.ClientSession{"HTTP": own, "stdio": piped} {
			offered := toolNames(ctx, session)
			if diff := cmp.Diff([]string{"cron", "history_search", "message", "remind", "sessions"}, offered); diff != "" {
				t.Errorf("%s: tools (-want +got):\n%s", how, diff)
			}
			note := "a note over " + how
			for _, call := range everyTool(note) {
				if !slices.Contains(offered, call.name) {
					continue // those are tools of a turn
				}
				got := ""
				testrun.Eventually(t, how+": "+call.name+" "+call.args+" has its result", func() bool { // a sent message is found when it is delivered
					got = callTool(ctx, session, call.name, call.args)
					return strings.Contains(got, call.want) || strings.HasPrefix(got, "refused:") || strings.HasPrefix(got, "error:")
				})
				if !strings.Contains(got, call.want) {
					t.Errorf("%s: %s %s: %q, want %q", how, call.name, call.args, got, call.want)
				}
				offered = slices.DeleteFunc(offered, func(name string) bool { return name == call.name })
			}
			if len(offered) > 0 {
				t.Errorf("%s: not called: %q", how, offered)
			}
			if n := o.Count("SELECT count(*) FROM transcript WHERE session_key = 'agent:main:mcp-alice' AND content = '" + note + "'"); n != 1 {
				t.Errorf("%s: the note is %d times in the conversation, want once", how, n)
			}
		}
		if err := piped.Close(); err != nil {
			t.Errorf("the end of laneway mcp: %v", err)
		}
		if n := o.Count(countReminders); n != 1 {
			t.Errorf("%d reminders of the same time and text, want 1", n)
		}
		rows := o.Rows("SELECT id FROM cron_jobs WHERE name = 'call Ada'")
		if len(rows) != 1 {
			t.Fatalf("jobs: %v", rows)
		}
		job := strings.Trim(rows[0], "[] ")
		other, err := dialTools(ctx, g.URL()+"/mcp", bob)
		if err != nil {
			t.Fatal(err)
		}
		for call, want := range map[string]string{
			`cron {"action":"list"}`: "There are no jobs.", `sessions {"action":"list"}`: "There are no sessions.",
			`cron {"action":"remove","id":"` + job + `"}`: "There is no such job any more.", `cron {"action":"pause","id":"` + job + `"}`: "refused:",
			`sessions {"action":"history","session":"agent:main:mcp-alice"}`: "refused: there is no session", `message {"text":"x","session":"agent:main:mcp-alice"}`: "refused: there is no session",
		} {
			name, args, _ := strings.Cut(call, " ")
			if got := callTool(ctx, other, name, args); !strings.HasPrefix(got, want) {
				t.Errorf("another owner, %s: %q, want %q", call, got, want)
			}
		}
		if n := o.Count(countReminders); n != 1 {
			t.Errorf("another owner removed the job")
		}
		if _, err := dialTools(ctx, g.URL()+"/mcp", reader); err == nil {
			t.Error("a token that only reads has tools")
		}
		for _, s := range []*mcp.ClientSession{own, other} {
			if err := s.Close(); err != nil && !errors.Is(err, io.EOF) {
				t.Error(err)
			}
		}
	})
}

const countReminders = "SELECT count(*) FROM cron_jobs WHERE name = 'call Ada'"
