package gateway

import (
	"context"

	"laneway/internal/agent"
	"laneway/internal/chat"
	"laneway/internal/store"
)

// Backend is what the gateway needs of the house; package dispatch satisfies it. Every method returns *chat.Error values for
// what a caller can act on, and none of them waits for a lane, a slot or an answer, except [Backend.Wait].
type Backend interface {
	// Receive makes a message durable and hands it to its lane, or executes it when it is a chat command.
	Receive(ctx context.Context, m chat.Message) (chat.Receipt, error)
	// Stop stops what p names and returns the ids of the runs and messages that it met. It works with every lane full.
	Stop(ctx context.Context, p store.StopParams) ([]string, error)
	// Wait returns when the message has ended, or when ctx is over (then with its cause). It finds messages of other processes, too.
	Wait(ctx context.Context, messageID string) (chat.RunEnd, error)
	// InFlight is the oldest running turn of a session on this process.
	InFlight(key chat.SessionKey) (chat.InFlight, bool)

	// Session reads one session that visible ("" = everybody) may see; chat.ErrSessionNotFound.
	Session(ctx context.Context, key chat.SessionKey, visible string) (chat.SessionStatus, error)
	Sessions(ctx context.Context, f store.SessionFilter) ([]chat.SessionStatus, int, error)
	Transcript(ctx context.Context, q store.TranscriptQuery) (store.Transcript, error)
	PendingInputs(ctx context.Context, key chat.SessionKey, limit int) ([]store.Waiting, int, error)
	// Reset stops everything of the session and begins an empty transcript; it returns its id.
	Reset(ctx context.Context, key chat.SessionKey, principal, by string) (string, error)
	// Delete stops everything and removes the session.
	Delete(ctx context.Context, key chat.SessionKey, expectID, by string) (bool, error)

	DefaultAgent() string
	Agents() []agent.Info
	Commands() []chat.CommandInfo
	Lanes() chat.LanesStatus
	// Status answers with the database down, too.
	Status(ctx context.Context) chat.SystemStatus
	// Progress does not touch the database.
	Progress() chat.Progress
	// Ready says which check fails: database, migrations, draining; nil = ready.
	Ready(ctx context.Context) error

	// Subscribe calls fn for every event of this process, in order per run, until the returned function is called. fn must not block.
	Subscribe(fn func(chat.Event)) (cancel func())
}
