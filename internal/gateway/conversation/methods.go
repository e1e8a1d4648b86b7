package conversation

import (
	"context"
	"slices"

	"laneway/internal/agent"
	"laneway/internal/chat"
	"laneway/internal/gateway/rpc"
	"laneway/internal/store"
)

// Backend has the sessions and runs the messages. Every method returns *chat.Error values for what a caller can act on, and none of them waits for a lane, a
// slot or an answer, except [Backend.Wait].
type Backend interface {
	// ReceiveFrom makes a message durable and gives it to its lane, or executes it when it is a chat command that by may give (the
	// reply is a refusal when it may not). It refuses with chat.ErrSessionNotFound when by is restricted to its own sessions and the
	// session belongs to another principal; the gateway has looked before, but only the acceptance itself can be sure.
	ReceiveFrom(ctx context.Context, m chat.Message, by chat.Caller) (chat.Receipt, error)
	// Defer makes a system text durable that is put before the next turn of its session, whatever starts that. It starts nothing.
	// The same Dedupe offered twice is one text.
	Defer(ctx context.Context, m chat.Message, by chat.Caller) error
	// Stop stops what p names and returns the ids of the runs and messages that it met. It works with every lane full.
	Stop(ctx context.Context, p store.StopParams) ([]string, error)
	// Wait returns when the message has ended, or when ctx is over (then with its cause). It finds messages of other processes, too.
	Wait(ctx context.Context, messageID string) (chat.RunEnd, error)
	// InFlight is the oldest running turn of a session on this process.
	InFlight(key chat.SessionKey) (chat.InFlight, bool)

	// Session reads one session that visible ("" = every principal) may see; chat.ErrSessionNotFound.
	Session(ctx context.Context, key chat.SessionKey, visible string) (chat.SessionStatus, error)
	Sessions(ctx context.Context, f store.SessionFilter) ([]chat.SessionStatus, int, error)
	Transcript(ctx context.Context, q store.TranscriptQuery) (store.Transcript, error)
	Search(ctx context.Context, q store.SearchQuery) (store.SearchResult, error)
	Toc(ctx context.Context, q store.TocQuery) ([]store.TocNode, error)
	PendingInputs(ctx context.Context, key chat.SessionKey, after int64, limit int) ([]store.Waiting, int, error)
	// Tasks lists sub-turns of turns, newest first.
	Tasks(ctx context.Context, f store.TaskFilter) ([]store.Task, error)
	// OpenQuestions lists the questions of a person, owner "" = of all, that can be answered, the oldest first, at most limit of them.
	OpenQuestions(ctx context.Context, owner string, limit int) ([]agent.OpenQuestion, error)
	// AnswerQuestion chooses an option, which counts from 1, and returns what the answer has done; chat.CodeNotFound: the question is not open, or is for another
	// person.
	AnswerQuestion(ctx context.Context, by, id string, option int) (string, error)
	// Reset stops everything of the session and begins an empty transcript; it returns its id. A call that o names and that was answered
	// before stops nothing and returns the first answer; chat.ErrKeyReused when that had other params. nil = it has no name.
	Reset(ctx context.Context, key chat.SessionKey, by chat.Caller, o *chat.IdempotencyKey) (string, error)
	// Delete stops everything and removes the session; p.IdempotencyKey as with Reset.
	Delete(ctx context.Context, p store.DeleteParams, by chat.Caller) (store.Deleted, error)

	// DefaultAgent is the agent of a session key that names none.
	DefaultAgent() string
}

// handlers are the methods of conversations.
type handlers struct{ backend Backend }

// Methods are the rows of the table about messages, runs and sessions.
func Methods(backend Backend) []*rpc.Method {
	h := handlers{backend}
	return slices.Concat(h.messages(), h.sessions(), h.tasks(), h.toc(), h.questions())
}
