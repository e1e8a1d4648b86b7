package store

import (
	"context"

	"laneway/internal/chat"
)

// AgentSessions are the sessions that agents keep of conversations. They belong to one transcript: after the reset of a conversation none exists, and its deletion
// removes them.
type AgentSessions interface {
	// AgentSession is the session of the agent for the current transcript of a conversation; the zero value = none is known.
	AgentSession(ctx context.Context, key chat.SessionKey) (chat.AgentSession, error)
	// PutAgentSession stores it in place of the one before. One with the id of the one before keeps its transcript: its turn may end after a reset. A conversation
	// that was deleted gets none.
	PutAgentSession(ctx context.Context, key chat.SessionKey, s chat.AgentSession) error
}
