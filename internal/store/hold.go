package store

import (
	"context"
	"time"

	"laneway/internal/cron"
)

// Hold is the state in which a gateway can be inspected but starts nothing on its own. It is one row for all replicas. While the row exists
// [Outbox].ClaimOutgoing, cron.JobStore.Claim and [Inbox].Sweep return nothing, and [Nodes].Heartbeat returns it, so that each replica stops receiving from its
// channels.
type Hold struct {
	Since time.Time
	// Who is the principal that set the hold. Who and Reason are shown to operators.
	Who, Reason string
}

// Sentence describes the hold for operators.
func (h *Hold) Sentence() string {
	s := "held since " + h.Since.UTC().Format(time.DateTime) + " UTC by " + h.Who
	if h.Reason != "" {
		s += " (" + h.Reason + ")"
	}
	return s + ": nothing is sent, received from channels or started by the clock; release it with: laneway release"
}

// Holds read and set the hold.
type Holds interface {
	// Hold reads the hold; nil when the gateway is not held.
	Hold(ctx context.Context) (*Hold, error)
	// SetHold holds the gateway; an existing hold stays unchanged. The store sets Since. nil releases the hold, and is a no-op when the gateway is not held.
	SetHold(ctx context.Context, h *Hold, by ChangedBy) error
	// Held counts the work that waits for the release.
	Held(ctx context.Context) (HeldWork, error)
}

// HeldWork is the work that starts when the hold is released.
type HeldWork struct {
	Now time.Time
	// Outgoing messages that wait to be sent, and Unfinished messages whose turns run.
	Outgoing, Unfinished int
	// Due are the jobs with a slot at or before Now.
	Due []cron.Job
}

// Verbs of the audit log about the hold.
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
	// NotHeld is the SQL condition that the gateway is not held.
	NotHeld = `NOT EXISTS (SELECT 1 FROM hold)`
)
