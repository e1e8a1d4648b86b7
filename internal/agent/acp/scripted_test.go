package acp_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
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
	// Version of the protocol; 0 means the SDK's. Unsigned: it requires a sign-in. Mute: it never answers.
	Version  int
	Unsigned bool
	Mute     bool
	// Blocks answers with the blocks of the prompt as JSON and the id of the session.
	Blocks bool
	// Tools answers with the MCP servers of the session and its variables. HTTP: it supports servers over HTTP.
	Tools bool
	HTTP  bool
	// Burst is how many updates of one character it sends at once.
	Burst int
	// Calls sends tool calls followed by text.
	Calls bool
	// Closes: it can close sessions, and adds a line to the file closed in Dir for each. Pictures: it accepts pictures.
	Closes, Pictures bool
	// Alone refuses MCP servers, Key requires authenticate with this method before it makes a session.
	Alone bool
	Key   string
	// Leaves writes a file into the directory that the prompt names.
	Leaves bool
	// Asks is how many permissions it requests at once; it answers with the outcomes.
	Asks int
	// Wants replaces the permission request.
	Wants *sdk.RequestPermissionRequest
	// Flood sends endless requests to the client and does not read the responses, LongLine sends an endless message.
	Flood    bool
	LongLine bool
	// Noise sends lines that are not messages, and updates that do not belong to the turn: of an unknown kind, of another session, and after the response.
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
	// Replay is a file with recorded lines of another agent, which it sends instead of everything else.
	Replay string
	// Loads: it keeps its sessions in Dir, and replays them when they are loaded. Resumes: it continues them without a replay; together
	// with Loads it only announces this.
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
