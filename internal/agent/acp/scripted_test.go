package acp_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	sdk "github.com/coder/acp-go-sdk"
	"go.uber.org/goleak"

	"laneway/internal/agent/agenttest"
	"laneway/internal/chat"
)

// scriptVariable makes the test binary an agent that plays the script in it.
const scriptVariable = "LANEWAY_TEST_ACP_SCRIPT"

func TestMain(m *testing.M) {
	if text, ok := os.LookupEnv(scriptVariable); ok {
		if err := beAgent(text); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	goleak.VerifyTestMain(m)
}

// script is what the agent does with each prompt, in the order of the fields.
type script struct {
	agenttest.Script

	// Dir has a file for each prompt that runs, and `starts` with a line for each process.
	Dir string
	// Version of the protocol; 0 = the SDK's. Unsigned: it wants to be signed in. Mute: it never answers.
	Version  int
	Unsigned bool
	Mute     bool
	// Blocks answers with the texts of the prompt as JSON and the id of the session.
	Blocks bool
	// Tools answers with the MCP servers of the session and its variables; HTTP: it takes such over HTTP.
	Tools bool
	HTTP  bool
	// Burst is how many updates of one character come at once.
	Burst int
	// Calls are calls of tools with their text behind them.
	Calls bool
	// Closes: it can close sessions, and leaves a line in the file closed of Dir for each. Pictures: it takes pictures.
	Closes, Pictures bool
	// Alone refuses MCP servers, Key wants authenticate with this method before it makes a session.
	Alone bool
	Key   string
	// Details fails with an error that has details, after a line of standard error.
	Details bool
	// Leaves writes a file into the directory that the prompt names.
	Leaves bool
	// Asks asks for a permission so many times at once, and answers with the outcomes.
	Asks int
	// Wants replaces the request for a permission.
	Wants *sdk.RequestPermissionRequest
	// Flood are requests to the client without end whose responses it does not read, LongLine is a message without end.
	Flood    bool
	LongLine bool
	// Noise are lines that are no messages.
	Noise bool
	// Crash ends the process, Deaf ignores session/cancel and SIGTERM.
	Crash bool
	Deaf  bool
}

// scripted is the agent.
type scripted struct {
	sdk.Agent // the methods that no client of ours calls

	script script
	in     input
	link   *sdk.AgentSideConnection
	open   chan struct{} // closed when link is set: the first request may be faster
	mu     sync.Mutex
	stop   map[sdk.SessionId]context.CancelFunc
	n      int
	mcp    []sdk.McpServer // of the latest session
	signed string          // the method of authentication
}

func beAgent(text string) error {
	a := &scripted{open: make(chan struct{}), stop: map[sdk.SessionId]context.CancelFunc{}}
	if err := json.Unmarshal([]byte(text), &a.script); err != nil {
		return err
	}
	if a.script.Dir != "" {
		f, err := os.OpenFile(filepath.Join(a.script.Dir, "starts"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		if err != nil {
			return err
		}
		fmt.Fprintln(f, os.Getpid(), os.Getenv("LANEWAY_SESSION"))
		_ = f.Close()
	}
	if a.script.Deaf {
		ignoreSignals()
	}
	a.link = sdk.NewAgentSideConnection(a, os.Stdout, &a.in)
	close(a.open)
	<-a.link.Done()
	if a.script.Deaf {
		select {}
	}
	return nil
}

// input is what the agent reads, until it is stopped.
type input struct{ stopped atomic.Bool }

func (in *input) Read(p []byte) (int, error) {
	if in.stopped.Load() {
		select {}
	}
	return os.Stdin.Read(p)
}

func (a *scripted) conn() *sdk.AgentSideConnection {
	<-a.open
	return a.link
}

func (a *scripted) Initialize(ctx context.Context, _ sdk.InitializeRequest) (sdk.InitializeResponse, error) {
	if a.script.Mute {
		<-ctx.Done()
	}
	version := sdk.ProtocolVersionNumber
	if a.script.Version != 0 {
		version = a.script.Version
	}
	return sdk.InitializeResponse{
		ProtocolVersion: sdk.ProtocolVersion(version), AuthMethods: []sdk.AuthMethod{},
		AgentCapabilities: a.capabilities(), AgentInfo: &sdk.Implementation{Name: "scripted", Version: "7"},
	}, nil
}

func (a *scripted) capabilities() sdk.AgentCapabilities {
	can := sdk.AgentCapabilities{
		McpCapabilities: sdk.McpCapabilities{Http: a.script.HTTP}, PromptCapabilities: sdk.PromptCapabilities{Image: a.script.Pictures},
	}
	if a.script.Closes {
		can.SessionCapabilities.Close = &sdk.SessionCloseCapabilities{}
	}
	return can
}

func (a *scripted) Authenticate(_ context.Context, req sdk.AuthenticateRequest) (sdk.AuthenticateResponse, error) {
	a.signed = req.MethodId
	return sdk.AuthenticateResponse{}, nil
}

func (a *scripted) CloseSession(_ context.Context, req sdk.CloseSessionRequest) (sdk.CloseSessionResponse, error) {
	f, err := os.OpenFile(filepath.Join(a.script.Dir, "closed"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return sdk.CloseSessionResponse{}, err
	}
	fmt.Fprintln(f, req.SessionId)
	return sdk.CloseSessionResponse{}, f.Close()
}

func (a *scripted) NewSession(_ context.Context, req sdk.NewSessionRequest) (sdk.NewSessionResponse, error) {
	if a.script.Unsigned || a.script.Key != a.signed {
		return sdk.NewSessionResponse{}, sdk.NewAuthRequired(nil)
	}
	if a.script.Alone && len(req.McpServers) > 0 {
		return sdk.NewSessionResponse{}, &sdk.RequestError{Code: -32603, Message: "Internal error", Data: map[string]any{"details": "no servers per session"}}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.n++
	a.mcp = req.McpServers
	return sdk.NewSessionResponse{SessionId: sdk.SessionId(fmt.Sprintf("session-%d", a.n))}, nil
}

func (a *scripted) Cancel(_ context.Context, n sdk.CancelNotification) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if stop := a.stop[n.SessionId]; stop != nil && !a.script.Deaf {
		stop()
	}
	return nil
}

func (a *scripted) Prompt(_ context.Context, req sdk.PromptRequest) (sdk.PromptResponse, error) {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	a.mu.Lock()
	a.stop[req.SessionId] = stop
	a.n++
	mark := filepath.Join(a.script.Dir, fmt.Sprintf("prompt-%d-%d", os.Getpid(), a.n))
	a.mu.Unlock()
	if a.script.Dir != "" {
		if err := os.WriteFile(mark, nil, 0o600); err != nil {
			return sdk.PromptResponse{}, err
		}
		defer os.Remove(mark)
	}
	if err := a.play(ctx, req); err != nil {
		if ctx.Err() != nil {
			return sdk.PromptResponse{StopReason: sdk.StopReasonCancelled}, nil
		}
		return sdk.PromptResponse{}, err
	}
	reason := sdk.StopReasonEndTurn
	if a.script.Fail == chat.FailRefusal {
		reason = sdk.StopReasonRefusal
	}
	return sdk.PromptResponse{StopReason: reason, Usage: &sdk.Usage{InputTokens: 3, OutputTokens: 4}}, nil
}

func (a *scripted) say(req sdk.PromptRequest, text string) error {
	return a.update(req, sdk.UpdateAgentMessageText(text))
}

func (a *scripted) update(req sdk.PromptRequest, u sdk.SessionUpdate) error {
	return a.conn().SessionUpdate(context.Background(), sdk.SessionNotification{SessionId: req.SessionId, Update: u})
}

func (a *scripted) play(ctx context.Context, req sdk.PromptRequest) error {
	s := a.script
	if s.Noise {
		fmt.Println("a line of a library")
		fmt.Println(`{"jsonrpc":"2.0"}`)
		fmt.Println(`{"jsonrpc":"2.0","method":"session/update","params":{"update":{"sessionUpdate":"of_the_future"}}}`)
		fmt.Println(`{"jsonrpc":"2.0","method":"_vendor/thing"}`)
	}
	if s.Details {
		fmt.Fprintln(os.Stderr, "the disk is on fire")
		return &sdk.RequestError{Code: -32603, Message: "Internal error", Data: map[string]any{"details": "quota of key-12345 is used up"}}
	}
	for _, block := range req.Prompt {
		if _, dir, named := strings.Cut(blockText(block), "write them to the directory "); named && s.Leaves {
			if err := os.WriteFile(filepath.Join(dir, "report.txt"), []byte("done"), 0o600); err != nil {
				return err
			}
		}
	}
	if err := a.answer(req); err != nil {
		return err
	}
	if s.Calls {
		if err := a.calls(req); err != nil {
			return err
		}
	}
	if s.Asks > 0 {
		if err := a.ask(ctx, req); err != nil {
			return err
		}
	}
	if s.Flood {
		a.in.stopped.Store(true)
		for i := 0; ; i++ {
			if _, err := fmt.Printf(`{"jsonrpc":"2.0","id":"r%d","method":"session/request_permission","params":{"sessionId":%q,"options":[{"kind":"allow_once","name":"a","optionId":"a"}],"toolCall":{"toolCallId":"c"}}}`+"\n", i, req.SessionId); err != nil {
				return err
			}
		}
	}
	if s.LongLine {
		for {
			if _, err := os.Stdout.WriteString(strings.Repeat("x", 1<<20)); err != nil {
				return err
			}
		}
	}
	switch {
	case s.Crash, s.Fail == chat.FailProgram:
		fmt.Fprintln(os.Stderr, "it went wrong")
		os.Exit(3)
	case s.Hang:
		<-ctx.Done()
		return ctx.Err()
	}
	return nil
}

// answer is the text of the script.
func (a *scripted) answer(req sdk.PromptRequest) error {
	s := a.script
	pieces := s.Pieces
	if s.Repeat {
		pieces = []string{req.Prompt[len(req.Prompt)-1].Text.Text}
	}
	if s.Blocks {
		var texts []string
		for _, b := range req.Prompt {
			texts = append(texts, blockText(b))
		}
		raw, err := json.Marshal(map[string]any{"session": req.SessionId, "pid": os.Getpid(), "blocks": texts})
		if err != nil {
			return err
		}
		pieces = []string{string(raw)}
	}
	if s.Tools {
		a.mu.Lock()
		raw, err := json.Marshal(offered{a.mcp, os.Getenv("LANEWAY_MCP_URL"), os.Getenv("LANEWAY_MCP_TOKEN"), string(req.SessionId)})
		a.mu.Unlock()
		if err != nil {
			return err
		}
		fmt.Fprintln(os.Stderr, "the token is", os.Getenv("LANEWAY_MCP_TOKEN"))
		pieces = []string{string(raw)}
	}
	for range s.Burst {
		pieces = append(pieces, "x")
	}
	for _, piece := range pieces {
		if err := a.say(req, piece); err != nil {
			return err
		}
	}
	return nil
}

// blockText is a block in words.
func blockText(b sdk.ContentBlock) string {
	switch {
	case b.Image != nil:
		return "image " + b.Image.MimeType + " " + b.Image.Data
	case b.ResourceLink != nil:
		return "link " + b.ResourceLink.Name + " " + b.ResourceLink.Uri
	case b.Text != nil:
		return b.Text.Text
	default:
		return "?"
	}
}

// offered is what an agent with Tools answers.
type offered struct {
	Servers             []sdk.McpServer
	URL, Token, Session string
}

func (a *scripted) calls(req sdk.PromptRequest) error {
	return errors.Join(
		a.update(req, sdk.StartToolCall("c1", "Reading a\u202efile", sdk.WithStartRawInput(map[string]any{"path": "a"}))),
		a.update(req, sdk.UpdateToolCall("c1", sdk.WithUpdateStatus(sdk.ToolCallStatusInProgress))),
		a.update(req, sdk.UpdateToolCall("c1", sdk.WithUpdateStatus(sdk.ToolCallStatusCompleted), sdk.WithUpdateRawOutput("content"))),
		a.update(req, sdk.StartToolCall("c2", "Writing")),
		a.update(req, sdk.UpdateToolCall("c2", sdk.WithUpdateStatus(sdk.ToolCallStatusFailed))),
		a.update(req, sdk.StartToolCall("c3", "Never ending")),
		a.say(req, "Behind."),
	)
}

// ask asks for permissions and answers with the outcomes, in order.
func (a *scripted) ask(ctx context.Context, req sdk.PromptRequest) error {
	outcomes := make([]string, a.script.Asks)
	unstopped := context.WithoutCancel(ctx) // the answer may come behind session/cancel
	var group sync.WaitGroup
	for i := range outcomes {
		group.Go(func() {
			title := fmt.Sprintf("Deleting %d\u202e", i)
			want := sdk.RequestPermissionRequest{
				SessionId: req.SessionId,
				ToolCall:  sdk.ToolCallUpdate{ToolCallId: "c", Title: &title, RawInput: map[string]any{"path": "/a"}},
				Options: []sdk.PermissionOption{
					{Kind: sdk.PermissionOptionKindAllowOnce, Name: "Allow", OptionId: "allow"},
					{Kind: sdk.PermissionOptionKindRejectOnce, Name: "Reject", OptionId: "reject"},
				},
			}
			if a.script.Wants != nil {
				want = *a.script.Wants
				want.SessionId = req.SessionId
			}
			response, err := a.conn().RequestPermission(unstopped, want)
			switch {
			case err != nil:
				outcomes[i] = err.Error()
			case response.Outcome.Selected != nil:
				outcomes[i] = string(response.Outcome.Selected.OptionId)
			default:
				outcomes[i] = "cancelled"
			}
		})
	}
	group.Wait()
	if a.script.Dir != "" {
		if err := os.WriteFile(filepath.Join(a.script.Dir, "outcomes"), []byte(strings.Join(outcomes, " ")), 0o600); err != nil {
			return err
		}
	}
	return a.say(req, strings.Join(outcomes, " "))
}
