package storetest

import (
	"laneway/internal/chat"
	"laneway/internal/store"
)

func agentSessionTests() []test {
	return []test{
		{"OutlivesTheProcessAndIsReplaced", agentSessionIsKept},
		{"EndsWithItsTranscript", agentSessionEndsWithReset},
		{"OfADeletedConversationIsNotStored", agentSessionOfDeleted},
	}
}

func (w *world) agentSession(key chat.SessionKey) chat.AgentSession {
	w.Helper()
	return try(w.st.AgentSession(w.ctx, key)).ok(w)
}

func agentSessionIsKept(w *world) {
	key, other := w.key(), w.key()
	w.write(key, 1, 1)
	w.write(other, 1, 1)
	equal(w, "before", w.agentSession(key), chat.AgentSession{})
	used := chat.Usage{InputTokens: 30, OutputTokens: 4, CachedTokens: 20}
	first := chat.AgentSession{ID: "a-1", Runs: []string{"run-1", "run-2"}, Seen: 7, Used: used, Dir: "/a", Host: "here", PID: 42, PIDStarted: "boot 99"}
	w.ok(w.st.PutAgentSession(w.ctx, key, first))
	w.st = w.h.Reopen()
	equal(w, "kept", w.agentSession(key), first)
	equal(w, "of another conversation", w.agentSession(other), chat.AgentSession{})
	second := chat.AgentSession{ID: "a-2", Runs: []string{"run-3"}, Seen: 9, Dir: "/b", Host: "there", PID: 43, PIDStarted: "boot 100"}
	w.ok(w.st.PutAgentSession(w.ctx, key, second))
	equal(w, "replaced", w.agentSession(key), second)
}

func agentSessionEndsWithReset(w *world) {
	key := w.key()
	w.write(key, 1, 1)
	old := chat.AgentSession{ID: "a-1", Runs: []string{"run-1"}}
	w.ok(w.st.PutAgentSession(w.ctx, key, old))
	try(w.st.ResetSession(w.ctx, store.ResetParams{Session: key, Principal: "ann", NewID: "second"})).ok(w)
	equal(w, "after the reset", w.agentSession(key), chat.AgentSession{})
	w.ok(w.st.PutAgentSession(w.ctx, key, old)) // its last turn ends after the reset
	equal(w, "of the old transcript", w.agentSession(key), chat.AgentSession{})
	next := chat.AgentSession{ID: "a-2", Runs: []string{"run-2"}}
	w.ok(w.st.PutAgentSession(w.ctx, key, next))
	equal(w, "of the new transcript", w.agentSession(key), next)
}

func agentSessionOfDeleted(w *world) {
	key := w.key()
	w.write(key, 1, 1)
	try(w.st.DeleteSession(w.ctx, store.DeleteParams{Session: key})).ok(w)
	w.ok(w.st.PutAgentSession(w.ctx, key, chat.AgentSession{ID: "a-1"}))
	equal(w, "rows", len(w.h.Query(w.tb, `SELECT 1 FROM agent_sessions`)), 0)
}
