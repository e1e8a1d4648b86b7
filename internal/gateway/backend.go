package gateway

import (
	"context"
	"time"

	"laneway/internal/agent"
	"laneway/internal/chat"
	"laneway/internal/store"
)

// Caller is who makes a call.
type Caller = chat.Caller

// Backend is what the gateway needs of the house; package dispatch satisfies it. Every method returns *chat.Error values for
// what a caller can act on, and none of them waits for a lane, a slot or an answer, except [Backend.Wait].
type Backend interface {
	// ReceiveFrom makes a message durable and hands it to its lane, or executes it when it is a chat command that by may give (the
	// reply says so when it may not). It refuses with chat.ErrSessionNotFound when by is restricted to its own sessions and the
	// session belongs to somebody else; the gateway has looked before, but only the acceptance itself can be sure.
	ReceiveFrom(ctx context.Context, m chat.Message, by Caller) (chat.Receipt, error)
	// Defer makes a system text durable that is put before the next turn of its session, whatever starts that. It starts nothing.
	// The same Dedupe offered twice is one text.
	Defer(ctx context.Context, m chat.Message, by Caller) error
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
	PendingInputs(ctx context.Context, key chat.SessionKey, after int64, limit int) ([]store.Waiting, int, error)
	// Reset stops everything of the session and begins an empty transcript; it returns its id. A call that o names and that was answered
	// before stops nothing and returns the first answer; chat.ErrKeyReused when that had other params. nil = it has no name.
	Reset(ctx context.Context, key chat.SessionKey, by Caller, o *chat.IdempotencyKey) (string, error)
	// Delete stops everything and removes the session; p.IdempotencyKey as with Reset.
	Delete(ctx context.Context, p store.DeleteParams, by Caller) (store.Deleted, error)

	// Audit adds a row to the log of changes for what changes nothing else.
	Audit(ctx context.Context, a chat.Audit) error

	DefaultAgent() string
	Agents() []agent.Info
	Commands() []chat.CommandInfo
	Lanes() chat.LanesStatus
	// Status answers with the database down, too. It is asked every two seconds.
	Status(ctx context.Context) chat.SystemStatus
	// Progress does not touch the database.
	Progress() chat.Progress
	// Ready says which check fails, as a [*NotReadyError]; nil = ready.
	Ready(ctx context.Context) error

	// Subscribe calls fn for every event of this process, in order per run, until the returned function is called, and for the ends of runs and the changes
	// of sessions of other processes; of those, one with a long text comes only while wanted answers true for it without that text. Neither
	// blocks. A message that has to wait gets an EventQueued.
	Subscribe(fn func(chat.Event), wanted func(chat.Event) bool) (cancel func())
}

// Check is one condition of readiness.
type Check = chat.Check

// NotReadyError is how a backend says which check fails.
type NotReadyError = chat.NotReadyError

// The checks of readiness.
const (
	CheckDatabase   = chat.CheckDatabase
	CheckMigrations = chat.CheckMigrations
	CheckDraining   = chat.CheckDraining
	CheckDisk       = chat.CheckDisk
)

// ClusterBackend is a [Backend] that knows the lanes of other replicas.
type ClusterBackend interface {
	// ClusterLanes is one picture per live replica, this one included.
	ClusterLanes(ctx context.Context) ([]chat.LanesStatus, error)
}

// CronReporter is a [Backend] with a cron scheduler behind it. Without one, status says that cron is not enabled.
type CronReporter interface {
	CronSummary(ctx context.Context) CronSummary
}

// CronSummary is the cron part of status.
type CronSummary struct {
	Enabled                bool
	Jobs, Running, Backlog int
	// OldestDue is the age of the oldest fire that is due and not started; negative = none.
	OldestDue time.Duration
	// NextWake is the earliest next fire; zero = none.
	NextWake time.Time
}
