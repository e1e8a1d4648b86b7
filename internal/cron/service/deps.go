package service

import (
	"context"
	"encoding/json"
	"time"

	"laneway/internal/chat"
	"laneway/internal/cron"
	"laneway/internal/store"
)

// Store is what the service needs of the store besides the jobs themselves. The contracts are those of package store.
type Store interface {
	cron.JobStore
	cron.History

	Hold(ctx context.Context) (*store.Hold, error)
	Now(ctx context.Context) (time.Time, error)
	Cluster(ctx context.Context) (store.Cluster, error)
	IdempotencyRecord(ctx context.Context, o chat.IdempotencyKey) (json.RawMessage, error)
	Enqueue(ctx context.Context, rows []store.Outgoing) error
	Undelivered(ctx context.Context, p store.UndeliveredParams) (store.Gone, error)
	Prune(ctx context.Context, p store.PruneParams) (int, error)
	FilesInUse(ctx context.Context) ([]string, error)
}

// Upkeeper is a store with maintenance of its own to do now and then. Upkeep checks its context between the steps.
type Upkeeper interface {
	Upkeep(ctx context.Context) (report string, err error)
}

// Compacter is a store that gives back what deleted rows have left. Compact blocks no writer for longer than a usual transaction, checks its context between
// the steps, and returns what it gave back.
type Compacter interface {
	Compact(ctx context.Context) (report string, err error)
}

// Node is this process as an owner of sessions.
type Node interface {
	// Alive returns the id of the incarnation, or why it may accept nothing. Draining reports whether the process ends.
	Alive() (id string, err error)
	Draining() bool
	// Final makes a write that must not be lost because its caller went away; what names it in errors.
	Final(ctx context.Context, what string, write func(context.Context) error) error
	// WhileAlive repeats an operation while the store does not answer and ctx lasts.
	WhileAlive(ctx context.Context, op func(context.Context) error) error
}

// Turns executes the runs of jobs. Its methods do not block.
type Turns interface {
	// Launch submits a claimed run to its lane, or wakes the process that owns its session.
	Launch(ctx context.Context, l cron.Launched)
	// Stop cancels a run that was cancelled in the store: it drops one that waits, and stops one that runs, here or in the process that runs it. cause is
	// what [store.StopCause] made.
	Stop(run cron.CancelledRun, cause string)
	// Lanes are the names of the lanes.
	Lanes() []string
}

// Callers decides what callers may do besides editing jobs.
type Callers interface {
	// Admit takes n places among the waiting messages of a caller, or refuses all (chat.CodeRateLimited). leave gives them back. More than may wait at
	// all are admitted when nothing of the caller waits.
	Admit(principal string, own bool, n int) (leave func(), err error)
	// MayUse refuses a session that the principal may not use (chat.CodeSessionNotFound).
	MayUse(ctx context.Context, key chat.SessionKey, principal string) error
}

// Publisher sends cluster events to the other replicas. e points to plain data; shorten makes it shorter when it is too long to be sent.
type Publisher interface {
	Send(topic string, e any, shorten func())
}

// Outbox is woken when a row is due.
type Outbox interface{ Wake() }

// Files is the directory for files, see [files.Dir.Sweep].
type Files interface {
	Sweep(ctx context.Context, now, before time.Time, inUse func(context.Context) ([]string, error)) (int, error)
}
