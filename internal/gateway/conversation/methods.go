package conversation

import (
	"context"
	"slices"

	"laneway/internal/agent"
	"laneway/internal/chat"
	"laneway/internal/gateway/rpc"
	"laneway/internal/store"
)

// Backend has the sessions and runs the messages. Every method returns *chat.Error values for errors that a caller can act on. Except for
// [Backend.Wait], no method waits for a lane, a slot or an answer.
type Backend interface {
	// ReceiveFrom makes a message durable and passes it to its lane, or executes it when it is a chat command that by may use (otherwise
	// the reply is a refusal). It returns chat.ErrSessionNotFound when by is restricted to its own sessions and the session belongs to
	// another principal. The gateway has checked that before, but only the acceptance itself is free of races.
	ReceiveFrom(ctx context.Context, m chat.Message, by chat.Caller) (chat.Receipt, error)
	// Defer makes a system text durable that is put before the next turn of its session, whatever starts that. It starts nothing. A second
	// call with the same Dedupe adds no text.
	Defer(ctx context.Context, m chat.Message, by chat.Caller) error
	// Stop stops what p names and returns the ids of the affected runs and messages. It works even when every lane is full.
	Stop(ctx context.Context, p store.StopParams) ([]string, error)
	// Wait returns when the message has ended, or when ctx is done (then with its cause). It also finds messages of other processes.
	Wait(ctx context.Context, messageID string) (chat.RunEnd, error)
	// InFlight returns the oldest running turn of a session on this process.
	InFlight(key chat.SessionKey) (chat.InFlight, bool)

	// Session reads one session, if the principal visible may see it ("" = every principal); chat.ErrSessionNotFound.
	Session(ctx context.Context, key chat.SessionKey, visible string) (chat.SessionStatus, error)
	Sessions(ctx context.Context, f store.SessionFilter) ([]chat.SessionStatus, int, error)
	Transcript(ctx context.Context, q store.TranscriptQuery) (store.Transcript, error)
	Search(ctx context.Context, q store.SearchQuery) (store.SearchResult, error)
	Toc(ctx context.Context, q store.TocQuery) ([]store.TocNode, error)
	PendingInputs(ctx context.Context, key chat.SessionKey, after int64, limit int) ([]store.Waiting, int, error)
	// Tasks lists sub-turns of turns, newest first.
	Tasks(ctx context.Context, f store.TaskFilter) ([]store.Task, error)
	// OpenQuestions lists the questions that a person (owner "" = any person) can answer, the oldest first, at most limit of them.
	OpenQuestions(ctx context.Context, owner string, limit int) ([]agent.OpenQuestion, error)
	// AnswerQuestion chooses an option, which counts from 1, and returns the effect of the answer; chat.CodeNotFound: the question is not
	// open, or is for another person.
	AnswerQuestion(ctx context.Context, by, id string, option int) (string, error)
	// Reset stops all work of the session and begins an empty transcript; it returns its id. A call with an o that was answered before
	// stops nothing and returns the first answer; chat.ErrKeyReused when that had other params. o may be nil.
	Reset(ctx context.Context, key chat.SessionKey, by chat.Caller, o *chat.IdempotencyKey) (string, error)
	// Delete stops all work of the session and removes it; p.IdempotencyKey as with Reset.
	Delete(ctx context.Context, p store.DeleteParams, by chat.Caller) (store.Deleted, error)

	// DefaultAgent returns the agent of a session key that names no agent.
	DefaultAgent() string
}

// handlers implement the methods of conversations.
type handlers struct{ backend Backend }

// Methods returns the rows of the table for messages, runs and sessions.
func Methods(backend Backend) []*rpc.Method {
	h := handlers{backend}
	return slices.Concat(h.messages(), h.sessions(), h.tasks(), h.toc(), h.questions())
}
