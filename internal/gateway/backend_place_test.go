package gateway_test

import (
	"context"

	"laneway/internal/chat"
)

// Place finds a message and whether it is the newest of its session.
func (h *fakeBackend) Place(_ context.Context, id string) (chat.Place, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	l := h.messages[id]
	if l == nil || h.sessions[l.m.Session.String()] == nil {
		return chat.Place{}, chat.ErrNotFound
	}
	at := chat.Place{Session: l.m.Session, RunID: id, Newest: h.newest[l.m.Session.String()] == l}
	select {
	case <-l.done:
		at.Ended = true
	default:
	}
	return at, nil
}

// BranchAt returns the number of the last entry of a run.
func (h *fakeBackend) BranchAt(_ context.Context, key chat.SessionKey, run string) (chat.Branch, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	r := h.sessions[key.String()]
	if r == nil {
		return chat.Branch{}, chat.ErrNotFound
	}
	for i := len(r.entries); i > 0; i-- {
		if r.entries[i-1].RunID == run {
			return chat.Branch{Session: key, SessionID: "current", Seq: int64(i)}, nil
		}
	}
	return chat.Branch{}, chat.ErrNotFound
}
