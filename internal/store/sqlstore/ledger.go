package sqlstore

import (
	"context"

	"laneway/internal/cron"
)

// Ledger is what operations of this package need of jobs and the ledger of their runs, while the engines have those.
type Ledger interface {
	// Job reads a job; nil = there is none.
	Job(ctx context.Context, tx Tx, id string) (*cron.Job, error)
}
