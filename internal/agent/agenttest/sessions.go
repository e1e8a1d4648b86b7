package agenttest

import (
	"context"
	"maps"
	"sync"

	"laneway/internal/agent"
	"laneway/internal/chat"
)

// Sessions keeps the sessions of agents in memory. It is safe for concurrent use.
type Sessions struct {
	mu  sync.Mutex
	all map[string]chat.AgentSession
}

var _ agent.Sessions = (*Sessions)(nil)

// NewSessions makes an empty one.
func NewSessions() *Sessions { return &Sessions{all: map[string]chat.AgentSession{}} }

// AgentSession implements [agent.Sessions].
func (s *Sessions) AgentSession(_ context.Context, key chat.SessionKey) (chat.AgentSession, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.all[key.String()], nil
}

// PutAgentSession implements [agent.Sessions].
func (s *Sessions) PutAgentSession(_ context.Context, key chat.SessionKey, one chat.AgentSession) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all[key.String()] = one
	return nil
}

// Change changes each session.
func (s *Sessions) Change(by func(*chat.AgentSession)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, one := range maps.Clone(s.all) {
		by(&one)
		s.all[key] = one
	}
}
