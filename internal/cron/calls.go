package cron

import (
	"time"

	"laneway/internal/chat"
)

// Put is the result of writing a job.
type Put struct {
	Job              Job
	Created, Updated bool
	// Keyed: the client gave the key.
	Keyed bool
}

// RunMode is the condition under which a run by hand may start.
type RunMode string

// The modes.
const (
	RunForce     RunMode = "force"
	RunDue       RunMode = "due"
	RunIfEnabled RunMode = "if-enabled"
)

// ExplainParams select the slots of a job to explain: the one at a moment, as a phrase (At, see [schedule.ParsePast]) or as an instant (Moment); all from From
// until Until; or, by default, the newest one that has passed.
type ExplainParams struct {
	ID          string
	At          string
	Moment      time.Time
	From, Until time.Time
}

// Explained is the result, with the time zone of its times.
type Explained struct {
	Zone  string
	Slots []Explanation
}

// BackfillParams select the slots of a job in a range of the past.
type BackfillParams struct {
	ID             string
	From, To       time.Time
	MaxRuns        int
	DryRun, Force  bool
	IdempotencyKey *chat.IdempotencyKey // nil when the call has no key; a dry run has no effect and needs none
	// Spend takes the bytes of the messages of all runs from an allowance of the caller, before any run is created; nil when the caller has no allowance.
	Spend func(bytes int) error
}

// BackfillFire is one slot of a backfill.
type BackfillFire struct {
	Slot   time.Time
	RunID  string
	Exists bool
}
