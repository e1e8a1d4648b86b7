package cron

import (
	"time"

	"laneway/internal/chat"
)

// AttemptStart is what Start of a cron message writes into the ledger: the run is running, its attempt has begun.
type AttemptStart struct {
	RunID   string
	Attempt int
	Node    string
}

// AttemptEnd is what Finish of a cron message writes into the ledger and the job, in the same transaction.
type AttemptEnd struct {
	RunID   string
	Attempt Attempt
	// State is the run's outcome, or RunRetrying with NextAttempt, or RunQueued when the attempt was interrupted by a drain and its message waits again.
	State             RunState
	Reason            Reason
	NextAttempt       time.Time
	Error, ErrorClass string
	Summary           string
	Usage             chat.Usage
	Delivery          DeliveryStatus
	DeliveryError     string // why the answer is not sent at all; what becomes of one that is sent, the outbox knows
	SuppressedBy      string
	// Job gets the stored job and the finished run and returns the job's new state, or nil to remove the job (DeleteAfter); not called for retries. The store
	// may call it again when the job has changed meanwhile: the last call is the one that is stored.
	Job func(old Job, r Run, now time.Time) *Job
}
