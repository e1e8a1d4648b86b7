package agent

import (
	"context"

	"laneway/internal/chat"
)

// Sessions keeps the sessions of agents over restarts. It has one for the current transcript of a conversation alone.
type Sessions interface {
	// AgentSession is the session of the agent; the zero value = none is known.
	AgentSession(ctx context.Context, key chat.SessionKey) (chat.AgentSession, error)
	// PutAgentSession stores it in place of the one before.
	PutAgentSession(ctx context.Context, key chat.SessionKey, s chat.AgentSession) error
}
