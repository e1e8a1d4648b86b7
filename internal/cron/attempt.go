package cron

import (
	"time"

	"laneway/internal/chat"
)

// AttemptStart is the change of Start to the ledger row of a cron message: the run is running, its attempt has begun.
type AttemptStart struct {
	RunID   string
	Attempt int
	Node    string
}

// AttemptEnd is the change of Finish to the ledger row of a cron message and to the job, in the same transaction.
type AttemptEnd struct {
	RunID   string
	Attempt Attempt
	// State is the outcome of the run, or RunRetrying with NextAttempt, or RunQueued when a drain interrupted the attempt and its message waits again.
	State             RunState
	Reason            Reason
	NextAttempt       time.Time
	Error, ErrorClass string
	Summary           string
	Usage             chat.Usage
	Delivery          DeliveryStatus
	DeliveryError     string // why the answer is not sent at all; for one that is sent, the outbox records the delivery
	SuppressedBy      string
	// Job receives the stored job and the finished run and returns the job's new state, or nil to remove the job (DeleteAfter). It is not called for retries.
	// The store may call it again when the job has changed meanwhile: the last result is stored.
	Job func(old Job, r Run, now time.Time) *Job
}
