package acp_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	sdk "github.com/coder/acp-go-sdk"
	"go.uber.org/goleak"

	"laneway/internal/agent/agenttest"
	"laneway/internal/chat"
)

// scriptVariable holds a script; with it the test binary is an agent that plays the script.
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
	// Version of the protocol; 0 means the SDK's. Unsigned: it requires a sign-in. Mute: it never
	// answers.
	Version  int
	Unsigned bool
	Mute     bool
	// Blocks answers with the blocks of the prompt as JSON and the id of the session.
	Blocks bool
	// Tools answers with the MCP servers of the session and its variables. HTTP: it supports
	// servers over HTTP.
	Tools bool
	HTTP  bool
	// Burst is how many updates of one character it sends at once.
	Burst int
	// Calls sends tool calls followed by text.
	Calls bool
	// Closes: it can close sessions, and adds a line to the file closed in Dir for each. Pictures:
	// it accepts pictures.
	Closes, Pictures bool
	// Alone refuses MCP servers, Key requires authenticate with this method before it makes a
	// session.
	Alone bool
	Key   string
	// Leaves writes a file into the directory that the prompt names.
	Leaves bool
	// Draws are the kinds of images that it sends before its answer, with their kind as content.
	Draws []string
	// Asks is how many permissions it requests at once; it answers with the outcomes.
	Asks int
	// Wants replaces the permission request.
	Wants *sdk.RequestPermissionRequest
	// Flood sends endless requests to the client and does not read the responses, LongLine sends an
	// endless message.
	Flood    bool
	LongLine bool
	// Noise sends lines that are not messages, and updates that do not belong to the turn: of an
	// unknown kind, of another session, and after the response.
	Noise bool
	// Reason is a stop reason that the protocol does not define, Used the usage that it reports.
	Reason string
	Used   *sdk.Usage
	// Refuses is the error of each prompt, sent after lines on standard error.
	Refuses *sdk.RequestError
	// Crash ends the process, Deaf ignores session/cancel and SIGTERM.
	Crash bool
	Deaf  bool
	// Mutes closes its output shortly after the answer and keeps running.
	Mutes bool
	// Replay is a file with recorded lines of another agent, which it sends instead of everything
	// else.
	Replay string
	// Loads: it keeps its sessions in Dir, and replays them when they are loaded. Resumes: it
	// continues them without a replay; together with Loads it only announces this.
	Loads, Resumes bool
	// Holds is how many MiB a session holds until it is closed.
	Holds int
}

// scripted is the agent.
type scripted struct {
	sdk.Agent // the methods that our client does not call

	script script
	in     input
	link   *sdk.AgentSideConnection
	open   chan struct{} // closed when link is set; the first request may arrive earlier
	mu     sync.Mutex
	stop   map[sdk.SessionId]context.CancelFunc
	n      int
	mcp    []sdk.McpServer // of the latest session
	signed string          // the method of authentication
	held   map[sdk.SessionId][]byte
}

func beAgent(text string) error {
	a := &scripted{open: make(chan struct{}), stop: map[sdk.SessionId]context.CancelFunc{}, held: map[sdk.SessionId][]byte{}}
	if err := json.Unmarshal([]byte(text), &a.script); err != nil {
		return err
	}
	if a.script.Replay != "" {
		return replay(a.script.Replay)
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
	if a.script.Deaf || a.script.Mutes {
		select {}
	}
	return nil
}

// input is the agent's standard input. Reads block once it is stopped.
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
	can.LoadSession = a.script.Loads
	if a.script.Resumes {
		can.SessionCapabilities.Resume = &sdk.SessionResumeCapabilities{}
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
	a.mu.Lock()
	delete(a.held, req.SessionId)
	a.mu.Unlock()
	debug.FreeOSMemory()
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
	id := sdk.SessionId(fmt.Sprintf("session-%d", a.n))
	if a.script.Loads || a.script.Resumes {
		id = sdk.SessionId(fmt.Sprintf("session-%d-%d", os.Getpid(), a.n))
	}
	a.held[id] = bytes.Repeat([]byte{1}, a.script.Holds<<20)
	return sdk.NewSessionResponse{SessionId: id}, nil
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
	if a.script.Mutes {
		time.AfterFunc(50*time.Millisecond, func() { _ = os.Stdout.Close() })
	}
	reason := sdk.StopReasonEndTurn
	if a.script.Fail == chat.FailRefusal {
		reason = sdk.StopReasonRefusal
	}
	if a.script.Reason != "" {
		reason = sdk.StopReason(a.script.Reason)
	}
	used := &sdk.Usage{InputTokens: 3, OutputTokens: 4}
	if a.script.Used != nil {
		used = a.script.Used
	}
	return sdk.PromptResponse{StopReason: reason, Usage: used}, nil
}

func (a *scripted) file(id sdk.SessionId) string { return filepath.Join(a.script.Dir, string(id)) }

// remembered returns the earlier prompts of a session, and adds this one.
func (a *scripted) remembered(req sdk.PromptRequest) (said []string, err error) {
	if !a.script.Loads && !a.script.Resumes {
		return nil, nil
	}
	raw, err := os.ReadFile(a.file(req.SessionId))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	text := blockText(req.Prompt[len(req.Prompt)-1])
	return strings.Split(strings.TrimSuffix(string(raw), "\n"), "\n"), os.WriteFile(a.file(req.SessionId), append(raw, text+"\n"...), 0o600)
}

func (a *scripted) LoadSession(_ context.Context, req sdk.LoadSessionRequest) (sdk.LoadSessionResponse, error) {
	if a.script.Key != a.signed {
		return sdk.LoadSessionResponse{}, sdk.NewAuthRequired(nil)
	}
	raw, err := os.ReadFile(a.file(req.SessionId))
	if err != nil {
		return sdk.LoadSessionResponse{}, &sdk.RequestError{Code: -32602, Message: "there is no such session"}
	}
	replay := func() {
		for text := range strings.Lines(string(raw)) {
			for _, u := range []sdk.SessionUpdate{sdk.UpdateUserMessageText(text), sdk.UpdateAgentMessageText("replayed"), sdk.StartToolCall("old", "replayed")} {
				_ = a.update(sdk.PromptRequest{SessionId: req.SessionId}, u)
			}
		}
	}
	replay()
	go replay() // the response does not wait for it
	return sdk.LoadSessionResponse{}, nil
}

func (a *scripted) ResumeSession(_ context.Context, req sdk.ResumeSessionRequest) (sdk.ResumeSessionResponse, error) {
	if a.script.Loads { // it announces the capability but does not find its sessions
		return sdk.ResumeSessionResponse{}, &sdk.RequestError{Code: -32603, Message: "Internal error"}
	}
	if _, err := os.Stat(a.file(req.SessionId)); err != nil {
		return sdk.ResumeSessionResponse{}, &sdk.RequestError{Code: -32602, Message: "there is no such session"}
	}
	return sdk.ResumeSessionResponse{}, nil
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
		for _, session := range []string{"another", string(req.SessionId)} {
			fmt.Printf(`{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":%q,"update":{"sessionUpdate":"of_the_future","content":{"type":"text","text":"stray"}}}}`+"\n", session)
		}
		fmt.Println(`{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"another","update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"stray"}}}}`)
	}
	if s.Refuses != nil {
		fmt.Fprintln(os.Stderr, "the disk is on fire")
		return s.Refuses
	}
	for _, block := range req.Prompt {
		if _, dir, named := strings.Cut(blockText(block), "write them to the directory "); named && s.Leaves {
			if err := os.WriteFile(filepath.Join(dir, "report.txt"), []byte("done"), 0o600); err != nil {
				return err
			}
		}
	}
	for _, kind := range s.Draws {
		if err := a.update(req, sdk.UpdateAgentMessage(sdk.ImageBlock(base64.StdEncoding.EncodeToString([]byte(kind)), kind))); err != nil {
			return err
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

// answer sends the answer of the script.
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
		said, err := a.remembered(req)
		if err != nil {
			return err
		}
		wd, _ := os.Getwd()
		raw, err := json.Marshal(map[string]any{"session": req.SessionId, "pid": os.Getpid(), "wd": wd, "blocks": texts, "said": said})
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

// blockText returns a block as a string.
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
		a.update(req, sdk.UpdateToolCall("c1", sdk.WithUpdateTitle("Reading a"))),
		a.update(req, sdk.UpdateToolCall("c1", sdk.WithUpdateStatus(sdk.ToolCallStatusCompleted), sdk.WithUpdateRawOutput("content"))),
		a.update(req, sdk.UpdateToolCall("c2", sdk.WithUpdateTitle("Writing"))), // an update of a call that was not announced
		a.update(req, sdk.StartToolCall("c2", "Writing")),
		a.update(req, sdk.UpdateToolCall("c2", sdk.WithUpdateStatus(sdk.ToolCallStatusFailed))),
		a.update(req, sdk.StartToolCall("c3", "Never ending")),
		a.say(req, "Behind."),
	)
}

// ask asks for permissions and answers with the outcomes, in order.
func (a *scripted) ask(ctx context.Context, req sdk.PromptRequest) error {
	outcomes := make([]string, a.script.Asks)
	unstopped := context.WithoutCancel(ctx) // the answer may arrive after session/cancel
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
