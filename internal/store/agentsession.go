package store

import (
	"context"

	"laneway/internal/chat"
)

// AgentSessions are the sessions that agents keep of conversations. Each belongs to one transcript: the reset or the deletion of a conversation removes it.
type AgentSessions interface {
	// AgentSession is the session of the agent for the current transcript of a conversation, or the zero value when none is stored.
	AgentSession(ctx context.Context, key chat.SessionKey) (chat.AgentSession, error)
	// PutAgentSession replaces the stored session. A session with the id of the stored one keeps its transcript, because its turn may end after a reset. For a
	// deleted conversation nothing is stored.
	PutAgentSession(ctx context.Context, key chat.SessionKey, s chat.AgentSession) error
}
