package cron

import (
	"context"
	"time"
)

// History is what the store keeps of the past of jobs besides the ledger.
type History interface {
	// Outages are the times during which no process fired jobs and that end after since, oldest first, at most limit. They are kept for 400 days.
	Outages(ctx context.Context, since time.Time, limit int) ([]Outage, error)
	// JobChanges are what the log of changes has of a job since a moment, by its id or its key, newest first, at most limit.
	JobChanges(ctx context.Context, id, key string, since time.Time, limit int) ([]JobChange, error)
}
