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
	// Leaves writes a file into the directory that the prompt names.
	Leaves bool
	// Asks asks for a permission so many times at once, and answers with the outcomes.
	Asks int
	// Wants replaces the request for a permission.
	Wants *sdk.RequestPermissionRequest
	// Flood are requests to the client without end whose responses it does not read, LongLine is a message without end.
	Flood    bool
	LongLine bool
	// Noise are lines that are no messages, and updates that are none of the turn: of a kind of the future, of another session, and behind the response.
	Noise bool
	// Reason is a reason of the end that the protocol does not know, Used what it reports as its usage.
	Reason string
	Used   *sdk.Usage
	// Refuses is the error of each prompt, after lines of standard error.
	Refuses *sdk.RequestError
	// Crash ends the process, Deaf ignores session/cancel and SIGTERM.
	Crash bool
	Deaf  bool
	// Mutes closes its output a moment after it has answered, and lives.
	Mutes bool
	// Replay is a file with the lines of another agent, which it says instead of everything else.
	Replay string
	// Loads: it keeps its sessions in Dir, can load them, and replays them then. Resumes: it takes them up without that; with
	// Loads it only claims to.
	Loads, Resumes bool
	// Holds is how many MiB a session holds until it is closed.
	Holds int
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
