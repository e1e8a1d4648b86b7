package cron

import (
	"context"
	"time"
)

// History is the history of jobs that is stored outside of the ledger.
type History interface {
	// Past reads the history of a job since a moment, by its id or its key, at most limit entries of each kind.
	Past(ctx context.Context, id, key string, since time.Time, limit int) (Past, error)
}

// Past is the history of a job besides its runs.
type Past struct {
	// Outages are the times during which no process fired jobs, oldest first. They are kept for 400 days.
	Outages []Outage
	// Changes are the changes of the job in the audit log, newest first.
	Changes []JobChange
}
