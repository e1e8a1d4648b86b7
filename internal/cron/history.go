package cron

import (
	"context"
	"time"
)

// History is what the store keeps of the past of jobs besides the ledger.
type History interface {
	// Past reads what happened to a job since a moment, by its id or its key, at most limit of each kind.
	Past(ctx context.Context, id, key string, since time.Time, limit int) (Past, error)
}

// Past is what happened to a job besides its runs.
type Past struct {
	// Outages are the times during which no process fired jobs, the oldest first. They are kept for 400 days.
	Outages []Outage
	// Changes are what the log of changes has of the job, the newest first.
	Changes []JobChange
}
