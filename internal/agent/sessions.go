package agent

import (
	"context"

	"laneway/internal/chat"
)

// Sessions stores the sessions of agents across restarts. A session is valid for the current transcript of its conversation only.
type Sessions interface {
	// AgentSession returns the session of the agent, or the zero value if no session is stored.
	AgentSession(ctx context.Context, key chat.SessionKey) (chat.AgentSession, error)
	// PutAgentSession stores a session in place of the previous one.
	PutAgentSession(ctx context.Context, key chat.SessionKey, s chat.AgentSession) error
}
