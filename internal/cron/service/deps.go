package service

import (
	"context"
	"encoding/json"
	"time"

	"laneway/internal/chat"
	"laneway/internal/cron"
	"laneway/internal/store"
)

// Store is the part of the store that the service needs besides the jobs. The contracts are those of package store.
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

// Upkeeper is a store with periodic maintenance. Upkeep checks its context between the steps.
type Upkeeper interface {
	Upkeep(ctx context.Context) (report string, err error)
}

// Compacter is a store that can free the space of deleted rows. Compact blocks no writer for longer than a usual transaction, checks its context between the
// steps, and returns a report.
type Compacter interface {
	Compact(ctx context.Context) (report string, err error)
}

// Node is this process as an owner of sessions.
type Node interface {
	// Alive returns the id of the incarnation, or why it must not accept work. Draining reports whether the process is shutting down.
	Alive() (id string, err error)
	Draining() bool
	// Final makes a write that must not be lost when its caller has gone away; what names it in errors.
	Final(ctx context.Context, what string, write func(context.Context) error) error
	// WhileAlive retries an operation while the store is unavailable and ctx lasts.
	WhileAlive(ctx context.Context, op func(context.Context) error) error
}

// Turns executes the runs of jobs. Its methods do not block.
type Turns interface {
	// Launch submits a claimed run to its lane, or wakes the process that owns its session.
	Launch(ctx context.Context, l cron.Launched)
	// Stop cancels a run that was cancelled in the store: it drops a waiting one, and stops a running one, here or in the process that runs it. cause is the
	// result of [store.StopCause].
	Stop(run cron.CancelledRun, cause string)
	// Lanes are the names of the lanes.
	Lanes() []string
}

// Callers decides about the rights of callers other than editing jobs.
type Callers interface {
	// Admit takes n places among the waiting messages of a caller, or refuses all (chat.CodeRateLimited). leave returns them. If no message of the caller
	// waits, n may exceed the bound.
	Admit(principal string, own bool, n int) (leave func(), err error)
	// MayUse refuses a session that the principal may not use (chat.CodeSessionNotFound).
	MayUse(ctx context.Context, key chat.SessionKey, principal string) error
}

// Publisher sends cluster events to the other replicas. e points to plain data; shorten shortens it when it is too long to be sent.
type Publisher interface {
	Send(topic string, e any, shorten func())
}

// Outbox is woken when a row is due.
type Outbox interface{ Wake() }

// Files is the attachment directory, see [files.Dir.Sweep].
type Files interface {
	Sweep(ctx context.Context, now, before time.Time, inUse func(context.Context) ([]string, error)) (int, error)
}
