package sqlstore

import (
	"context"
	"strings"

	"laneway/internal/chat"
	"laneway/internal/store"
)

// AgentSessions are the sessions that agents keep of conversations.
type AgentSessions struct{ db Engine }

var _ store.AgentSessions = AgentSessions{}

const agentSessionSQL = `SELECT a.agent_session, a.runs, a.seen, a.used_input, a.used_output, a.used_cached, a.dir, a.host, a.pid, a.pid_started
	FROM agent_sessions a JOIN sessions s ON s.key = a.session_key AND s.session_id = a.transcript WHERE a.session_key = $1`

// AgentSession reads a session of an agent; see store.AgentSessions.
func (s AgentSessions) AgentSession(ctx context.Context, key chat.SessionKey) (chat.AgentSession, error) {
	found, err := list(ctx, s.db, query{"read the session of an agent", agentSessionSQL, []any{key.String()}}, func(r Row) (a chat.AgentSession, err error) {
		var runs string
		err = r.Scan(&a.ID, &runs, &a.Seen, &a.Used.InputTokens, &a.Used.OutputTokens, &a.Used.CachedTokens, &a.Dir, &a.Host, &a.PID, &a.PIDStarted)
		a.Runs = strings.Fields(runs)
		return a, err
	})
	if err != nil || len(found) == 0 {
		return chat.AgentSession{}, err
	}
	return found[0], nil
}

const putAgentSessionSQL = `INSERT INTO agent_sessions (session_key, transcript, agent_session, runs, seen, used_input, used_output, used_cached, dir, host, pid, pid_started, updated_at)
	SELECT key, session_id, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, {now} FROM sessions WHERE key = $1
	ON CONFLICT (session_key) DO UPDATE SET
		transcript = CASE WHEN agent_sessions.agent_session = excluded.agent_session THEN agent_sessions.transcript ELSE excluded.transcript END,
		agent_session = excluded.agent_session, runs = excluded.runs, seen = excluded.seen,
		used_input = excluded.used_input, used_output = excluded.used_output, used_cached = excluded.used_cached, dir = excluded.dir,
		host = excluded.host, pid = excluded.pid, pid_started = excluded.pid_started, updated_at = excluded.updated_at`

// PutAgentSession stores a session of an agent; see store.AgentSessions.
func (s AgentSessions) PutAgentSession(ctx context.Context, key chat.SessionKey, a chat.AgentSession) error {
	return s.db.Update(ctx, "keep the session of an agent", func(ctx context.Context, tx Tx) error {
		_, err := tx.Exec(ctx, putAgentSessionSQL, key.String(), a.ID, strings.Join(a.Runs, " "), a.Seen, a.Used.InputTokens, a.Used.OutputTokens, a.Used.CachedTokens,
			a.Dir, a.Host, a.PID, a.PIDStarted)
		return err
	})
}
