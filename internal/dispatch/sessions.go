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

// Names of channels that sessions of hooks and of the OpenAI interface have in their keys.
const (
	hookRoute = "hook"
	apiRoute  = "api"
)

// Names of session notes.
const (
	noteModel = "model"
	noteDir   = "dir"
)

// Session reads one session that visible ("" = every principal) may see.
func (d *Dispatcher) Session(ctx context.Context, key chat.SessionKey, visible string) (chat.SessionStatus, error) {
	s, err := d.store.Session(ctx, key, visible)
	if err != nil {
		return chat.SessionStatus{}, err
	}
	return d.sessionStatus(s), nil
}

// Sessions lists sessions with what this process knows of their queues.
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

// channelOf is the channel whose rules a session has: the one that its key names, else the web, where sessions of any name are spoken to.
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

// Audit adds a row to the log of changes.
func (d *Dispatcher) Audit(ctx context.Context, a chat.Audit) error { return d.store.Audit(ctx, a) }

// Transcript reads a piece of a conversation.
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

// endAgentSession frees what the agent of a session holds for a conversation that has ended, in whatever process of the cluster that was decided.
func (p *parts) endAgentSession(e chat.Event) {
	if e.Kind != chat.EventSession || (e.Reason != reasonReset && e.Reason != events.ReasonDeleted) {
		return
	}
	if host, ok := p.agents[e.Session.Agent].Runner.(agent.Host); ok {
		host.EndSession(e.Session)
	}
}
