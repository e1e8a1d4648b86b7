package store

import (
	"context"
	"time"

	"laneway/internal/cron"
)

// Hold is the state in which a gateway can be looked at and does nothing on its own. It is one row for all replicas. While it is there [Outbox].ClaimOutgoing,
// cron.JobStore.Claim and [Inbox].Sweep return nothing, and [Nodes].Heartbeat returns it, so that each replica stops to receive from its channels.
type Hold struct {
	Since time.Time
	// Who set it and Reason are for people.
	Who, Reason string
}

// Sentence is for people.
func (h *Hold) Sentence() string {
	s := "held since " + h.Since.UTC().Format(time.DateTime) + " UTC by " + h.Who
	if h.Reason != "" {
		s += " (" + h.Reason + ")"
	}
	return s + ": nothing is sent, received from channels or started by the clock; release it with: laneway release"
}

// Holds read and set the hold.
type Holds interface {
	// Hold reads it; nil = the gateway is not held.
	Hold(ctx context.Context) (*Hold, error)
	// SetHold holds the gateway; one that is held keeps its hold. Since is set by the store. nil releases it; nothing happens when it is not held.
	SetHold(ctx context.Context, h *Hold, by ChangedBy) error
	// Held is what waits for the release.
	Held(ctx context.Context) (HeldWork, error)
}

// HeldWork is what begins when the hold is released.
type HeldWork struct {
	Now time.Time
	// Outgoing messages that wait to be sent, and Unfinished messages whose turns run.
	Outgoing, Unfinished int
	// Due are the jobs with a slot at or before Now.
	Due []cron.Job
}

// Verbs of the log of changes about the hold.
const (
	VerbHold    = "gateway.hold"
	VerbRelease = "gateway.release"
)

// Statements for both engines. $1 is the time in milliseconds, $2 who, $3 the reason.
const (
	HoldSQL        = `SELECT since, who, reason FROM hold`
	SetHoldSQL     = `INSERT INTO hold (id, since, who, reason) VALUES (1, $1, $2, $3) ON CONFLICT (id) DO NOTHING`
	ReleaseHoldSQL = `DELETE FROM hold`
	HeldWorkSQL    = `SELECT (SELECT count(*) FROM outbox WHERE state IN ('pending', 'sending')), (SELECT count(*) FROM inbox WHERE state <> 'done')`
	// NotHeld is a condition.
	NotHeld = `NOT EXISTS (SELECT 1 FROM hold)`
)
