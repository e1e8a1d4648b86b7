package teste2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	acp "github.com/coder/acp-go-sdk"
)

// acpMemory in [acpVariable] makes the test binary an agent that keeps its sessions in files of its working directory and loads them.
const acpMemory = "memory"

// memoryAgent answers with all that was said in its session and how many blocks its prompt has. What it replays says so.
type memoryAgent struct{ *acpAgent }

func (a memoryAgent) Initialize(ctx context.Context, req acp.InitializeRequest) (acp.InitializeResponse, error) {
	hello, err := a.acpAgent.Initialize(ctx, req)
	hello.AgentCapabilities.LoadSession = true
	return hello, err
}

func (memoryAgent) NewSession(context.Context, acp.NewSessionRequest) (acp.NewSessionResponse, error) {
	return acp.NewSessionResponse{SessionId: acp.SessionId(fmt.Sprint("session-", os.Getpid()))}, nil
}

func (a memoryAgent) LoadSession(ctx context.Context, req acp.LoadSessionRequest) (acp.LoadSessionResponse, error) {
	if _, err := os.Stat(string(req.SessionId)); err != nil {
		return acp.LoadSessionResponse{}, err
	}
	return acp.LoadSessionResponse{}, a.say(ctx, req.SessionId, "replayed")
}

func (a memoryAgent) Prompt(ctx context.Context, req acp.PromptRequest) (acp.PromptResponse, error) {
	f, err := os.OpenFile(string(req.SessionId), os.O_APPEND|os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return acp.PromptResponse{}, err
	}
	defer func() { _ = f.Close() }()
	if _, err := fmt.Fprintln(f, req.Prompt[len(req.Prompt)-1].Text.Text); err != nil {
		return acp.PromptResponse{}, err
	}
	raw, err := os.ReadFile(string(req.SessionId))
	if err != nil {
		return acp.PromptResponse{}, err
	}
	transcript := ""
	for _, block := range req.Prompt {
		if block.Text != nil && strings.HasPrefix(block.Text.Text, "The conversation before") {
			transcript = " and the transcript"
		}
	}
	return acp.PromptResponse{StopReason: acp.StopReasonEndTurn}, a.say(ctx, req.SessionId, strings.Join(strings.Fields(string(raw)), " ")+transcript)
}

func (a memoryAgent) say(ctx context.Context, id acp.SessionId, text string) error {
	<-a.open
	return a.conn.SessionUpdate(ctx, acp.SessionNotification{SessionId: id, Update: acp.UpdateAgentMessageText(text)})
}

// TestAnACPAgentKnowsItsConversationAfterKills kills the gateway after each turn. In turn three the agent knows turn one, without the transcript; /new ends that.
func TestAnACPAgentKnowsItsConversationAfterKills(t *testing.T) {
	NeedsProcesses(t)
	onBothStores(t, func(t *testing.T, database string) {
		dir := filepath.Join(t.TempDir(), "work")
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		g := Install(t, database, fmt.Sprintf("agents: {main: {runner: acp, command: [%q], dir: %q, env: {%s: %s}}}\ncluster: {lease: 3s, heartbeat: 500ms}\n",
			copyOfSelf(t), dir, acpVariable, acpMemory))
		const session = "agent:main:memory"
		for _, turn := range []struct{ text, want string }{{"one", "one"}, {"two", "one two"}, {"three", "one two three"}} {
			g.Start()
			w, c := watch(t, g), mustDial(t, g, nil)
			say(t, c, session, turn.text, turn.text)
			if end := w.await(t, turn.text); end.state != "final" || end.text != turn.want {
				t.Fatalf("%v %q, want %q", end, end.text, turn.want)
			}
			g.Kill()
		}
		g.Start()
		w, c := watch(t, g), mustDial(t, g, nil)
		say(t, c, session, "new", "/new")
		w.await(t, "new")
		say(t, c, session, "four", "four")
		if end := w.await(t, "four"); end.text != "four" {
			t.Errorf("after /new the agent knows %q", end.text)
		}
	})
}
