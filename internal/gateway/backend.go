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

// Caller is the origin of a call.
type Caller = chat.Caller

// Backend is the core as the gateway uses it; package dispatch implements it. Every method returns *chat.Error values for errors that a
// caller can act on. Except for [Backend.Wait], no method waits for a lane, a slot or an answer.
type Backend interface {
	conversation.Backend

	// Audit adds a row to the audit log for a call that changes nothing else.
	Audit(ctx context.Context, a chat.Audit) error

	// Place finds an accepted message by its id, and BranchAt the end of a run; see [openai.Runs].
	Place(ctx context.Context, messageID string) (chat.Place, error)
	BranchAt(ctx context.Context, key chat.SessionKey, runID string) (chat.Branch, error)

	// Turns lists turns. The map has, by id, what those without an outcome wait for.
	Turns(ctx context.Context, f store.TurnFilter) ([]store.Turn, map[string]chat.Waiting, error)

	Agents() []agent.Info
	Commands() []chat.CommandInfo
	Lanes() chat.LanesStatus
	// Status works even when the database is unavailable. It is called every two seconds.
	Status(ctx context.Context) chat.SystemStatus
	// Channels returns a snapshot of the channels without their waiting messages. It does not block, and is called at each handshake.
	Channels() []chat.ChannelStatus
	// Progress does not use the database.
	Progress() chat.Progress
	// Ready reports the failing check as a [*NotReadyError]; nil = ready.
	Ready(ctx context.Context) error

	// Subscribe calls fn for every event of this process, in order per run, until the returned function is called, and for the ends of runs
	// and the changes of sessions of other processes. Of the latter, an event with a long text is loaded only if wanted returns true for it
	// without that text. Neither function may block. A message that has to wait causes an EventQueued.
	Subscribe(fn func(chat.Event), wanted func(chat.Event) bool) (cancel func())
}

// Check is one condition of readiness.
type Check = chat.Check

// NotReadyError is the error of a backend for a failing check.
type NotReadyError = chat.NotReadyError

// The checks of readiness.
const (
	CheckDatabase   = chat.CheckDatabase
	CheckMigrations = chat.CheckMigrations
	CheckDraining   = chat.CheckDraining
	CheckDisk       = chat.CheckDisk
)

// CronBackend is a [Backend] with jobs.
type CronBackend = jobs.Backend

// PairingBackend is a [Backend] whose channels accept people after an operator approved them.
type PairingBackend = pairing.Backend
