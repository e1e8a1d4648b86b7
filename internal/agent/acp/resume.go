package acp

import (
	"context"
	"errors"
	"fmt"
	"time"

	sdk "github.com/coder/acp-go-sdk"

	"laneway/internal/agent"
	"laneway/internal/agent/internal/program"
	"laneway/internal/chat"
)

const (
	// A replay has ended after replayQuiet without an update, or after replayTime. Some agents replay after the response.
	replayQuiet = 200 * time.Millisecond
	replayTime  = 5 * time.Second
)

// loads reports whether the agent can continue a session of another process.
func (p *peer) loads() bool {
	can := p.hello.AgentCapabilities
	return p.kept.Sessions != nil && (can.LoadSession || can.SessionCapabilities.Resume != nil)
}

// takeUp continues the session of an earlier process, after that process has ended. It returns false when no session is stored or the agent cannot continue it; the
// agent then needs a new session.
func (p *peer) takeUp(ctx context.Context, access agent.ToolAccess) bool {
	if !p.loads() {
		return false
	}
	kept, err := p.kept.Take(ctx)
	if err == nil && kept.ID == "" {
		return false
	}
	if err == nil {
		err = p.load(ctx, kept, access)
	}
	if err != nil {
		p.kept.Lost(ctx, p.hide.Replace(err.Error()))
		return false
	}
	p.id, p.memory, p.tools, p.unstored = sdk.SessionId(kept.ID), program.Remembered(kept), access.Token != "", true
	p.memory.Used = chat.Usage{} // Copilot CLI counts from the start of its process
	return true
}

func (p *peer) load(ctx context.Context, kept chat.AgentSession, access agent.ToolAccess) error {
	id, servers := sdk.SessionId(kept.ID), p.servers(access)
	can := p.hello.AgentCapabilities
	if can.SessionCapabilities.Resume != nil {
		err := p.signedIn(ctx, func() error {
			_, err := p.conn.ResumeSession(ctx, sdk.ResumeSessionRequest{SessionId: id, Cwd: p.dir, McpServers: servers})
			return err
		})
		// Qwen Code announces this capability without the method. OpenClaw finds the sessions of its own processes only by session/load.
		if _, refused := errors.AsType[*sdk.RequestError](err); !refused || !can.LoadSession {
			return p.resumeError("resuming", err)
		}
	}
	err := p.signedIn(ctx, func() error {
		_, err := p.conn.LoadSession(ctx, sdk.LoadSessionRequest{SessionId: id, Cwd: p.dir, McpServers: servers})
		return err
	})
	if err == nil {
		p.awaitQuiet(ctx)
		if len(kept.Runs) > 0 && !p.replayed.Load() {
			err = errNothingReplayed
		}
	}
	return p.resumeError("loading", err)
}

// errNothingReplayed exists because some agents answer session/load for a lost session with an empty session.
var errNothingReplayed = errors.New("it replays nothing of the conversation")

// resumeError wraps the error of a call that continues a session.
func (p *peer) resumeError(doing string, err error) error {
	if refused, ok := errors.AsType[*sdk.RequestError](err); ok {
		return fmt.Errorf("%s its session: %s", doing, p.words(refused))
	}
	if err != nil {
		return fmt.Errorf("%s its session: %w", doing, err)
	}
	return nil
}

// awaitQuiet waits for the end of a replay. No turn runs, so its updates are dropped.
func (p *peer) awaitQuiet(ctx context.Context) {
	end := time.NewTimer(replayTime)
	defer end.Stop()
	quiet := time.NewTimer(replayQuiet)
	defer quiet.Stop()
	for {
		select {
		case <-p.strays:
			quiet.Reset(replayQuiet)
		case <-quiet.C:
			return
		case <-end.C:
			return
		case <-p.gone:
			return
		case <-ctx.Done():
			return
		}
	}
}

// remember stores the session of the agent, so that a later process can continue it.
func (p *peer) remember(ctx context.Context) {
	if !p.loads() || p.id == "" {
		return
	}
	p.unstored = false
	p.kept.Put(ctx, string(p.id), p.memory, p.proc.Group(), p.started)
}
