package gateway

import (
	"context"

	"laneway/internal/agent"
	"laneway/internal/chat"
	"laneway/internal/gateway/conversation"
	"laneway/internal/gateway/jobs"
	"laneway/internal/gateway/pairing"
	"laneway/internal/store"
)

// Caller is who makes a call.
type Caller = chat.Caller

// Backend is what the gateway needs of the core; package dispatch satisfies it. Every method returns *chat.Error values for
// what a caller can act on, and none of them waits for a lane, a slot or an answer, except [Backend.Wait].
type Backend interface {
	conversation.Backend

	// Audit adds a row to the log of changes for what changes nothing else.
	Audit(ctx context.Context, a chat.Audit) error

	// Place finds an accepted message by its id, and BranchAt the end of a run; see [openai.Runs].
	Place(ctx context.Context, messageID string) (chat.Place, error)
	BranchAt(ctx context.Context, key chat.SessionKey, runID string) (chat.Branch, error)

	// Turns lists turns and says what those without an outcome wait for, by their id.
	Turns(ctx context.Context, f store.TurnFilter) ([]store.Turn, map[string]chat.Waiting, error)

	Agents() []agent.Info
	Commands() []chat.CommandInfo
	Lanes() chat.LanesStatus
	// Status answers with the database down, too. It is asked every two seconds.
	Status(ctx context.Context) chat.SystemStatus
	// Channels is a picture of the channels without what waits for them. It answers from memory and is asked for at each handshake.
	Channels() []chat.ChannelStatus
	// Progress does not touch the database.
	Progress() chat.Progress
	// Ready reports the check that fails, as a [*NotReadyError]; nil = ready.
	Ready(ctx context.Context) error

	// Subscribe calls fn for every event of this process, in order per run, until the returned function is called, and for the ends of runs and the changes
	// of sessions of other processes; of those, one with a long text comes only while wanted answers true for it without that text. Neither
	// blocks. A message that has to wait gets an EventQueued.
	Subscribe(fn func(chat.Event), wanted func(chat.Event) bool) (cancel func())
}

// Check is one condition of readiness.
type Check = chat.Check

// NotReadyError is how a backend reports the check that fails.
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

// CronBackend is a [Backend] that keeps jobs.
type CronBackend = jobs.Backend

// PairingBackend is a [Backend] whose channels let in people whom an operator approved.
type PairingBackend = pairing.Backend
