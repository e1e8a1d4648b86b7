package acp_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	sdk "github.com/coder/acp-go-sdk"
	"github.com/google/go-cmp/cmp"

	"laneway/internal/agent"
	"laneway/internal/agent/acp"
	"laneway/internal/chat"
)

// TestAQuestionIsASentenceThatHidesNothing plays requests of agents. The question must have the
// command or the path, the directory, and Allow or Deny before each label.
func TestAQuestionIsASentenceThatHidesNothing(t *testing.T) {
	t.Parallel()
	option := func(kind sdk.PermissionOptionKind, name string) sdk.PermissionOption {
		return sdk.PermissionOption{Kind: kind, Name: name, OptionId: sdk.PermissionOptionId(name)}
	}
	allow, reject := option(sdk.PermissionOptionKindAllowOnce, "Allow"), option(sdk.PermissionOptionKindRejectOnce, "Reject")
	plain := []agent.Option{{Label: "Allow", Allow: true}, {Label: "Deny: Reject"}}
	for name, tt := range map[string]struct {
		call    sdk.ToolCallUpdate
		options []sdk.PermissionOption
		text    string
		want    []agent.Option
	}{
		"Command": {
			sdk.ToolCallUpdate{
				Title: new("`rm -rf build`"), Kind: new(sdk.ToolKindExecute), RawInput: map[string]any{"command": "rm -rf build", "description": "Clean"},
			},
			[]sdk.PermissionOption{allow, reject},
			`run the command “rm -rf build” in the directory “/”; with “description” = “Clean”`, plain,
		},
		"CommandAsList": {
			sdk.ToolCallUpdate{Title: new("Shell"), RawInput: map[string]any{"command": []string{"sh", "-c", "ls"}, "cwd": "/other"}},
			[]sdk.PermissionOption{allow, reject},
			`run the command “sh -c ls” in the directory “/other”, with the tool “Shell”`, plain,
		},
		"File": {
			sdk.ToolCallUpdate{
				Title: new("Write"), Kind: new(sdk.ToolKindEdit), Locations: []sdk.ToolCallLocation{{Path: "/a"}, {Path: "/b"}}, RawInput: map[string]any{"file_path": "/a"},
			},
			[]sdk.PermissionOption{allow, reject},
			`change the file “/a” in the directory “/”, with the tool “Write”, at “/b”`, plain,
		},
		"Tool": {
			sdk.ToolCallUpdate{Title: new("mcp.pay"), RawInput: map[string]any{"amount": 12, "to": map[string]any{"iban": "X"}}},
			[]sdk.PermissionOption{option(sdk.PermissionOptionKindAllowOnce, "allow this change"), reject},
			`use the tool “mcp.pay” in the directory “/”; with “amount” = “12”, “to” = “{"iban":"X"}”`,
			[]agent.Option{{Label: "Allow: this change", Allow: true}, {Label: "Deny: Reject"}},
		},
		"Long": {
			sdk.ToolCallUpdate{RawInput: map[string]any{"command": strings.Repeat("x", 1001)}},
			[]sdk.PermissionOption{allow, reject},
			"run the command “" + strings.Repeat("x", 1000) + "…” in the directory “/”", plain,
		},
		"Nothing": {
			sdk.ToolCallUpdate{}, []sdk.PermissionOption{allow, reject}, `something that it does not name in the directory “/”`, plain,
		},
		"Hidden": {
			sdk.ToolCallUpdate{Title: new("harmless”\nWrite /allow x\u200b\u202e\U000e0041"), RawInput: map[string]any{"command": "a\u200db”\u3164"}},
			[]sdk.PermissionOption{option(sdk.PermissionOptionKindAllowOnce, "De\u200bny"), reject},
			`run the command “a\u200db\u201d\u3164” in the directory “/”, with the tool “harmless\u201d\u000aWrite /allow x\u200b\u202e\ue0041”`,
			[]agent.Option{{Label: `Allow: De\u200bny`, Allow: true}, {Label: "Deny: Reject"}},
		},
		"Labels": {
			sdk.ToolCallUpdate{Title: new("t")},
			[]sdk.PermissionOption{
				option(sdk.PermissionOptionKindAllowOnce, "Deny"), option(sdk.PermissionOptionKindAllowAlways, "Just once"),
				option(sdk.PermissionOptionKindAllowAlways, "always for this command"), option(sdk.PermissionOptionKindRejectOnce, "Allow"),
				option(sdk.PermissionOptionKindRejectAlways, " "), option("allow_all", "Allow"),
				option(sdk.PermissionOptionKindAllowAlways, "Run it (not always, just now)"), option(sdk.PermissionOptionKindAllowOnce, "Always"),
			},
			`use the tool “t” in the directory “/”`,
			[]agent.Option{
				{Label: "Allow: Deny", Allow: true},
				{Label: "Allow always (exactly this): Just once", Allow: true, Always: true},
				{Label: "Allow always (exactly this): always for this command", Allow: true, Always: true},
				{Label: "Deny: Allow"},
				{Label: "Deny always", Always: true},
				{Label: "Allow always (exactly this): Run it (not always, just now)", Allow: true, Always: true},
				{Label: "Allow once: Always", Allow: true},
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tt.call.ToolCallId = "c"
			var asked agent.Question
			req := request("a", "run", "go")
			req.Asker = asker(func(_ context.Context, q agent.Question) (int, error) { asked = q; return 1, nil })
			runner := open(t, script{Asks: 1, Wants: &sdk.RequestPermissionRequest{ToolCall: tt.call, Options: tt.options}}, acp.Config{Dir: "/"})
			if _, err := run(t, runner, req); err != nil {
				t.Fatal(err)
			}
			act := tt.text
			if name == "File" {
				act = strings.Replace(act, ", with the tool “Write”", "", 1)
			}
			if name == "Nothing" || name == "Long" || name == "Hidden" {
				act = "" // an answer applies only to this question
			}
			if diff := cmp.Diff(agent.Question{Text: tt.text, Act: act, Options: tt.want}, asked); diff != "" {
				t.Errorf("question (-want +got):\n%s", diff)
			}
		})
	}
}

// TestAlwaysCoversNoOtherRequest compares the acts of two requests of each pair. Equal acts mean
// that an answer for always to the first one answers the second one.
func TestAlwaysCoversNoOtherRequest(t *testing.T) {
	t.Parallel()
	type input = map[string]any
	kubectl := func(args ...any) input { return input{"command": "kubectl", "args": args} }
	edit := func(in input) sdk.ToolCallUpdate {
		return sdk.ToolCallUpdate{Title: new("Edit"), Kind: new(sdk.ToolKindEdit), RawInput: in}
	}
	raw := func(in any) sdk.ToolCallUpdate { return sdk.ToolCallUpdate{Title: new("tool"), RawInput: in} }
	saying := func(text string) sdk.ToolCallUpdate {
		return sdk.ToolCallUpdate{
			Title: new("make all"), Kind: new(sdk.ToolKindExecute), Content: []sdk.ToolCallContent{sdk.ToolContent(sdk.TextBlock(text))},
		}
	}
	patch := func(paths ...string) sdk.ToolCallUpdate {
		c := sdk.ToolCallUpdate{Title: new("Patch"), Kind: new(sdk.ToolKindEdit)}
		for _, path := range paths {
			c.Content = append(c.Content, sdk.ToolDiffContent(path, "new"))
		}
		return c
	}
	for name, tt := range map[string]struct {
		first, second sdk.ToolCallUpdate
		same          bool
	}{
		"Same":           {raw(kubectl("get", "pods")), raw(kubectl("get", "pods")), true},
		"Arguments":      {raw(kubectl("get", "pods")), raw(kubectl("delete", "ns", "prod")), false},
		"Environment":    {raw(input{"command": "make", "env": input{"A": "1"}}), raw(input{"command": "make", "env": input{"A": "2"}}), false},
		"Input":          {raw(input{"command": "sh", "stdin": "ls"}), raw(input{"command": "sh", "stdin": "rm -rf x"}), false},
		"Directory":      {raw(input{"command": "make", "cwd": "/a"}), raw(input{"command": "make", "cwd": "/b"}), false},
		"Path":           {raw(input{"command": "run", "path": "/a"}), raw(input{"command": "run", "path": "/b"}), false},
		"Words":          {raw(input{"command": []any{"rm", "a", "b"}}), raw(input{"command": []any{"rm", "a b"}}), false},
		"Shell":          {raw(input{"command": "echo a;b"}), raw(input{"command": []any{"echo", "a;b"}}), false},
		"Tool":           {raw(input{"amount": 1}), raw(input{"amount": 2}), false},
		"Address":        {raw(input{"url": "http://a", "method": "GET"}), raw(input{"url": "http://a", "method": "POST"}), false},
		"ToolOfCommand":  {sdk.ToolCallUpdate{Title: new("a: ls"), RawInput: input{"command": "ls"}}, sdk.ToolCallUpdate{Title: new("b: ls"), RawInput: input{"command": "ls"}}, false},
		"ContentAlone":   {saying("in /a"), saying("in /b"), false},
		"InputAlone":     {raw("a"), raw("b"), false},
		"Edits":          {edit(input{"file_path": "/a", "new_string": "1"}), edit(input{"file_path": "/a", "new_string": "2"}), true},
		"EditsOfFiles":   {edit(input{"file_path": "/a"}), edit(input{"file_path": "/b"}), false},
		"EditsOfMore":    {edit(input{"file_path": "/a", "also": "/b"}), edit(input{"file_path": "/a", "also": "/c"}), false},
		"EditsByCommand": {edit(input{"file_path": "/a", "command": "x"}), edit(input{"file_path": "/a", "command": "y"}), false},
		"Patches":        {patch("/a", "/b"), patch("/a", "/c"), false},
		"SamePatch":      {patch("/a", "/b"), patch("/a", "/b"), true},
		"KindOfFile":     {edit(input{"path": "/a"}), sdk.ToolCallUpdate{Kind: new(sdk.ToolKindRead), RawInput: input{"path": "/a"}}, false},
		"Moves":          {sdk.ToolCallUpdate{Kind: new(sdk.ToolKindMove), RawInput: input{"path": "/a", "to": "/b"}}, sdk.ToolCallUpdate{Kind: new(sdk.ToolKindMove), RawInput: input{"path": "/a", "to": "/c"}}, false},
		"Searches":       {sdk.ToolCallUpdate{Kind: new(sdk.ToolKindSearch), RawInput: input{"path": "/a", "query": "b"}}, sdk.ToolCallUpdate{Kind: new(sdk.ToolKindSearch), RawInput: input{"path": "/a", "query": "c"}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			first, second := actOf(t, tt.first), actOf(t, tt.second)
			if first == "" || second == "" || (first == second) != tt.same {
				t.Errorf("the acts are %q and %q; the same: want %t", first, second, tt.same)
			}
		})
	}
}

// TestCutRequestOffersNoAlways has requests that another one could look like.
func TestCutRequestOffersNoAlways(t *testing.T) {
	t.Parallel()
	many := map[string]any{"command": "run"}
	for i := range 9 {
		many[string(rune('a'+i))] = i
	}
	for name, call := range map[string]sdk.ToolCallUpdate{
		"Command":     {RawInput: map[string]any{"command": strings.Repeat("x", 1001)}},
		"Argument":    {RawInput: map[string]any{"command": "run", "args": strings.Repeat("x", 121)}},
		"Name":        {RawInput: map[string]any{"command": "run", strings.Repeat("x", 61): ""}},
		"Arguments":   {RawInput: many},
		"Title":       {Title: new(strings.Repeat("x", 201))},
		"CutTitle":    {Title: new("exec: cp /a/...")},
		"Directory":   {RawInput: map[string]any{"command": "run", "cwd": strings.Repeat("x", 1001)}},
		"Escape":      {RawInput: map[string]any{"command": `echo \u200b`}},
		"Hidden":      {RawInput: map[string]any{"command": "echo \u200b"}},
		"Directional": {RawInput: map[string]any{"command": "echo \u202e"}},
		"Content":     {Title: new("make"), Content: []sdk.ToolCallContent{sdk.ToolContent(sdk.TextBlock(strings.Repeat("x", 121)))}},
		"Nothing":     {},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if act := actOf(t, call); act != "" {
				t.Errorf("the act is %q", act)
			}
		})
	}
}

// TestOnlyTheGatewayKeepsAlways chooses "always": the agent receives what allows once, because its
// own "always" may cover more than the button says.
func TestOnlyTheGatewayKeepsAlways(t *testing.T) {
	t.Parallel()
	req := request("a", "run", "go")
	req.Asker = asker(func(_ context.Context, q agent.Question) (int, error) {
		return slices.IndexFunc(q.Options, func(o agent.Option) bool { return o.Allow && o.Always }), nil
	})
	runner := open(t, script{Asks: 1, Wants: wants(sdk.ToolCallUpdate{ToolCallId: "c", Title: new("ls")})}, acp.Config{Dir: "/"})
	result, err := run(t, runner, req)
	if err != nil || !strings.Contains(result.Text, "once") {
		t.Errorf("the agent received %q, %v; want once", result.Text, err)
	}
}

func wants(call sdk.ToolCallUpdate) *sdk.RequestPermissionRequest {
	option := func(kind sdk.PermissionOptionKind, id sdk.PermissionOptionId) sdk.PermissionOption {
		return sdk.PermissionOption{Kind: kind, Name: "Yes", OptionId: id}
	}
	return &sdk.RequestPermissionRequest{ToolCall: call, Options: []sdk.PermissionOption{
		option("allow_everything", "unknown"), option(sdk.PermissionOptionKindAllowAlways, "always"), option(sdk.PermissionOptionKindAllowOnce, "once"),
		option(sdk.PermissionOptionKindRejectOnce, "reject"),
	}}
}

// actOf returns the act of the question about a call, "" if none. "Always" must be offered with an
// act only.
func actOf(t *testing.T, call sdk.ToolCallUpdate) string {
	t.Helper()
	call.ToolCallId = "c"
	var asked agent.Question
	req := request("a", "run", "go")
	req.Asker = asker(func(_ context.Context, q agent.Question) (int, error) { asked = q; return len(q.Options) - 1, nil })
	if _, err := run(t, open(t, script{Asks: 1, Wants: wants(call)}, acp.Config{Dir: "/"}), req); err != nil {
		t.Fatal(err)
	}
	always := slices.ContainsFunc(asked.Options, func(o agent.Option) bool { return o.Allow && o.Always })
	if len(asked.Options) < 2 || always != (asked.Act != "") {
		t.Errorf("the act is %q and the options are %+v", asked.Act, asked.Options)
	}
	return asked.Act
}

// opens returns a function that grants access.
func opens(access agent.ToolAccess) func(context.Context) (agent.ToolAccess, func()) {
	return func(context.Context) (agent.ToolAccess, func()) { return access, func() {} }
}

func TestAnAgentGetsTheToolsOfTheGateway(t *testing.T) {
	t.Parallel()
	access := agent.ToolAccess{URL: "http://127.0.0.1:1/mcp", Token: "lwturn_secret-of-the-session"}
	bridge := []string{"/opt/laneway", "mcp"}
	overHTTP := []sdk.McpServer{{Http: &sdk.McpServerHttpInline{
		Type: "http", Name: "laneway", Url: access.URL + "?prefix=laneway_", Headers: []sdk.HttpHeader{{Name: "Authorization", Value: "Bearer " + access.Token}},
	}}}
	byProgram := []sdk.McpServer{{Stdio: &sdk.McpServerStdio{
		Name: "laneway", Command: "/opt/laneway", Args: []string{"mcp"},
		Env: []sdk.EnvVariable{{Name: "LANEWAY_MCP_URL", Value: access.URL + "?prefix=laneway_"}, {Name: "LANEWAY_MCP_TOKEN", Value: access.Token}},
	}}}
	for name, tt := range map[string]struct {
		http   bool
		bridge []string
		access agent.ToolAccess
		want   []sdk.McpServer
	}{
		"OverHTTP":  {true, bridge, access, overHTTP},
		"ByProgram": {false, bridge, access, byProgram},
		"NoProgram": {false, nil, access, []sdk.McpServer{}},
		"NoTools":   {true, bridge, agent.ToolAccess{}, []sdk.McpServer{}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var log bytes.Buffer
			runner := openLogged(t, script{Tools: true, HTTP: tt.http}, acp.Config{Bridge: tt.bridge}, slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})))
			req := request("a", "run-1", "go")
			req.OpenTools = opens(tt.access)
			got := told[offered](t, runner, req)
			if diff := cmp.Diff(tt.want, got.Servers); diff != "" {
				t.Errorf("MCP servers (-want +got):\n%s", diff)
			}
			if got.URL != tt.access.URL || got.Token != tt.access.Token {
				t.Errorf("variables %q and %q", got.URL, got.Token)
			}
			runner.Close() // the log is complete
			if text := log.String(); !strings.Contains(text, "the token is") || strings.Contains(text, access.Token) {
				t.Errorf("the log shows the token, or nothing:\n%s", text)
			}
		})
	}
}

// An agent gets its tools when its session is made, so the first turn with tools makes another
// session.
func TestToolsComeWithALaterTurn(t *testing.T) {
	t.Parallel()
	runner := open(t, script{Tools: true, HTTP: true}, acp.Config{})
	first := told[offered](t, runner, request("a", "run-1", "one"))
	history := []chat.TranscriptEntry{entry(1, "run-1", chat.RoleUser, "one"), entry(2, "run-1", chat.RoleAssistant, "answer")}
	var sessions []string
	for _, runID := range []string{"run-2", "run-3"} {
		req := request("a", runID, runID, history...)
		req.OpenTools = opens(agent.ToolAccess{URL: "http://127.0.0.1:1/mcp", Token: "lwturn_x"})
		got := told[offered](t, runner, req)
		if len(got.Servers) != 1 || got.Session == first.Session {
			t.Errorf("%s: got %+v, want another session with the tools", runID, got)
		}
		sessions = append(sessions, got.Session)
		history = append(history, entry(int64(len(history)+1), runID, chat.RoleUser, runID))
	}
	if sessions[0] != sessions[1] {
		t.Errorf("sessions %q, want one from then on", sessions)
	}
}

// TestToolsAreOpenWhileTheProcessWorksForTheirTurn starts two turns of a session at once, as in
// groups: the second one opens its tools only after the first one has closed its own.
func TestToolsAreOpenWhileTheProcessWorksForTheirTurn(t *testing.T) {
	t.Parallel()
	runner := open(t, script{Asks: 1}, acp.Config{})
	var open, most, total atomic.Int64
	var group sync.WaitGroup
	for i := range 5 {
		group.Go(func() {
			req := request("a", fmt.Sprintf("run-%d", i), "go")
			req.Asker = asker(func(context.Context, agent.Question) (int, error) { return 0, nil })
			req.OpenTools = func(context.Context) (agent.ToolAccess, func()) {
				total.Add(1)
				if n := open.Add(1); n > most.Load() {
					most.Store(n)
				}
				return agent.ToolAccess{URL: "http://127.0.0.1:1/mcp", Token: "lwturn_x"}, func() { open.Add(-1) }
			}
			if _, err := run(t, runner, req); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	if most.Load() != 1 || total.Load() != 5 || open.Load() != 0 {
		t.Errorf("%d open at once, %d in all, %d at the end", most.Load(), total.Load(), open.Load())
	}
}

// replay is an agent that repeats the output of another one: after each message of the client, the
// lines up to the response or up to its own next request.
func replay(file string) error {
	raw, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	lines := strings.Split(strings.TrimSpace(string(raw)), "\n")
	in := bufio.NewScanner(os.Stdin)
	in.Buffer(nil, 8<<20)
	var pending json.RawMessage // the request without a response
	for in.Scan() {
		asked := map[string]json.RawMessage{}
		if err := json.Unmarshal(in.Bytes(), &asked); err != nil {
			return err
		}
		if asked["id"] == nil { // a notification
			continue
		}
		if asked["method"] != nil {
			pending = asked["id"]
		}
		for waits := false; !waits; {
			line := map[string]json.RawMessage{"jsonrpc": json.RawMessage(`"2.0"`), "id": pending, "result": json.RawMessage(`{}`)}
			if len(lines) > 0 {
				line = map[string]json.RawMessage{}
				if err := json.Unmarshal([]byte(lines[0]), &line); err != nil {
					return err
				}
				lines = lines[1:]
			}
			if line["id"] != nil && line["method"] == nil {
				line["id"] = pending
			}
			out, err := json.Marshal(line)
			if err != nil {
				return err
			}
			fmt.Println(string(out))
			waits = line["id"] != nil
		}
	}
	return in.Err()
}

// allows is a person who allows everything.
type allows struct{ asked []string }

func (a *allows) Ask(_ context.Context, q agent.Question) (int, error) {
	a.asked = append(a.asked, q.Text)
	for i, option := range q.Options {
		if option.Allow {
			return i, nil
		}
	}
	return 0, fmt.Errorf("no option of %q allows", q.Text)
}

// TestRecordedConversations replays the output of the presets' npm packages, recorded in November
// 2026 by TestPresetsAnswer of internal/testcompat with a scripted model that requests one command.
// It checks three turns with their usage, and the permission request of agents that make one.
func TestRecordedConversations(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		cfg  acp.Config
		asks int        // permission requests for the command
		used chat.Usage // usage of a turn with one request
		last bool       // reports only the last request of a turn
	}{
		"claude":   {asks: 1, used: chat.Usage{InputTokens: 3, OutputTokens: 4}},
		"codex":    {asks: 1, used: chat.Usage{InputTokens: 3, OutputTokens: 4}},
		"gemini":   {cfg: acp.Config{Auth: "gemini-api-key"}, asks: 1, used: chat.Usage{InputTokens: 3, OutputTokens: 4}},
		"opencode": {asks: 2, used: chat.Usage{InputTokens: 3, OutputTokens: 4}, last: true},
		"qwen":     {cfg: acp.Config{Auth: "openai"}, asks: 1, used: chat.Usage{InputTokens: 3, OutputTokens: 4}},
		"copilot":  {cfg: acp.Config{UsageOfSession: true}, asks: 1, used: chat.Usage{InputTokens: 3, OutputTokens: 4}},
		"openclaw": {cfg: acp.Config{NoServers: true}, asks: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file, err := filepath.Abs(filepath.Join("testdata", "recorded", name+".jsonl"))
			if err != nil {
				t.Fatal(err)
			}
			runner := open(t, script{Replay: file}, tt.cfg)
			person := &allows{}
			var history []chat.TranscriptEntry
			for n, text := range []string{"remember the word apple", "run-the-command-now", "which word was it?"} {
				req := request("a", fmt.Sprint("run-", n), text, history...)
				req.Asker = person
				var steps []string
				deltas := 0
				got, err := runner.Run(t.Context(), req, func(e agent.Event) {
					switch {
					case e.Tool != nil:
						steps = append(steps, e.Tool.Phase)
					case e.Kind == agent.EventDelta:
						deltas++
					}
				})
				if err != nil || !strings.HasSuffix(got.Text, "The word is apple.") || deltas < 2 {
					t.Fatalf("turn %d: %q in %d pieces, %v", n, got.Text, deltas, err)
				}
				want := tt.used
				if n == 1 && !tt.last { // the command, and its result
					want.InputTokens, want.OutputTokens = 2*want.InputTokens, 2*want.OutputTokens
				}
				if got.Usage.InputTokens != want.InputTokens || got.Usage.OutputTokens != want.OutputTokens {
					t.Errorf("turn %d used %+v, want %+v", n, got.Usage, want)
				}
				if called := len(steps) > 1 && steps[0] == "start" && steps[len(steps)-1] == "result"; called != (n == 1) {
					t.Errorf("turn %d: steps %q", n, steps)
				}
				history = append(history, entry(int64(2*n+1), req.RunID, chat.RoleUser, text), entry(int64(2*n+2), req.RunID, chat.RoleAssistant, got.Text))
			}
			if len(person.asked) != tt.asks || slices.ContainsFunc(person.asked, func(text string) bool { return !strings.Contains(text, "made.txt") }) {
				t.Errorf("asked %q, want %d questions with the file", person.asked, tt.asks)
			}
		})
	}
}
