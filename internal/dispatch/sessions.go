package dispatch

import (
	"context"
	"slices"
	"strings"

	"laneway/internal/agent"
	"laneway/internal/channel"
	"laneway/internal/chat"
	"laneway/internal/cron"
	"laneway/internal/events"
	"laneway/internal/scheduler"
	"laneway/internal/store"
)

// Channel names in the keys of sessions of hooks and of the OpenAI interface.
const (
	hookRoute = "hook"
	apiRoute  = "api"
)

// Names of session notes.
const (
	noteModel = "model"
	noteDir   = "dir"
)

// Session reads one session, if the principal visible may see it ("" = every principal).
func (d *Dispatcher) Session(ctx context.Context, key chat.SessionKey, visible string) (chat.SessionStatus, error) {
	s, err := d.store.Session(ctx, key, visible)
	if err != nil {
		return chat.SessionStatus{}, err
	}
	return d.sessionStatus(s), nil
}

// Sessions lists sessions with the state of their queues in this process.
func (d *Dispatcher) Sessions(ctx context.Context, f store.SessionFilter) ([]chat.SessionStatus, int, error) {
	list, total, err := d.store.ListSessions(ctx, f)
	if err != nil {
		return nil, 0, err
	}
	out := make([]chat.SessionStatus, 0, len(list))
	for _, s := range list {
		out = append(out, d.sessionStatus(s))
	}
	return out, total, nil
}

func (d *Dispatcher) sessionStatus(s store.Session) chat.SessionStatus {
	st := chat.SessionStatus{
		Key: s.Key, SessionID: s.SessionID, Principal: s.Principal, CreatedAt: s.CreatedAt, UpdatedAt: s.UpdatedAt,
		LastMessageAt: s.LastMessageAt, LastRunID: s.LastRunID, LastError: s.LastError, LastPreview: s.Preview,
		TotalTokens: s.TotalTokens, ActiveRuns: slices.Clone(s.ActiveRuns), Mode: s.Mode, QueueDepth: s.Waiting, Lane: s.Lane,
	}
	if st.Mode == "" {
		m := chat.Message{Session: s.Key, Channel: channelOf(s.Key)}
		st.Mode = d.queue.settings(m, "").mode()
	}
	if st.Lane == "" {
		st.Lane = scheduler.LaneMain
	}
	st.Status = statusWord(s)
	return st
}

// channelOf returns the channel whose rules apply to a session: the one in its key, or the web channel, which serves sessions with any
// name.
func channelOf(key chat.SessionKey) string {
	if name := key.Channel(); name != "" {
		return name
	}
	if name, _, ok := strings.Cut(key.Rest, ":"); ok && (name == cron.Channel || name == hookRoute || name == apiRoute) {
		return name
	}
	return channel.Web
}

func statusWord(s store.Session) string {
	switch {
	case len(s.ActiveRuns) > 0:
		return "running"
	case s.Waiting > 0:
		return "queued"
	}
	switch s.LastState {
	case store.RunOK:
		return "done"
	case store.RunStopped:
		return "killed"
	case "":
		return ""
	default:
		if s.LastCause == string(chat.FailTimeout) {
			return "timeout"
		}
		return "failed"
	}
}

// Audit adds a row to the audit log.
func (d *Dispatcher) Audit(ctx context.Context, a chat.Audit) error { return d.store.Audit(ctx, a) }

// Transcript reads a part of a conversation.
func (d *Dispatcher) Transcript(ctx context.Context, q store.TranscriptQuery) (store.Transcript, error) {
	return d.store.Transcript(ctx, q)
}

// FilesOfRuns lists the files that came with the messages of runs, by run and in the order of the messages.
func (d *Dispatcher) FilesOfRuns(ctx context.Context, key chat.SessionKey, runs []string) (map[string][]chat.Attachment, error) {
	return d.store.FilesOfRuns(ctx, key, runs)
}

// Search finds entries of conversations.
func (d *Dispatcher) Search(ctx context.Context, q store.SearchQuery) (store.SearchResult, error) {
	return d.store.SearchTranscripts(ctx, q)
}

// PendingInputs lists messages that are accepted and not yet run.
func (d *Dispatcher) PendingInputs(ctx context.Context, key chat.SessionKey, after int64, limit int) ([]store.Waiting, int, error) {
	return d.store.PendingInputs(ctx, key, after, limit)
}

// endAgentSession releases the agent's resources for a conversation that has ended, whichever process of the cluster ended it.
func (p *parts) endAgentSession(e chat.Event) {
	if e.Kind != chat.EventSession || (e.Reason != reasonReset && e.Reason != events.ReasonDeleted) {
		return
	}
	if host, ok := p.agents[e.Session.Agent].Runner.(agent.Host); ok {
		host.EndSession(e.Session)
	}
}
