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

// ExplainParams ask why slots of a job ran or did not: that at a moment, in words (At, see [schedule.ParsePast]) or as an instant (Moment), all from From until Until, or,
// where nothing is given, the newest one that has passed.
type ExplainParams struct {
	ID          string
	At          string
	Moment      time.Time
	From, Until time.Time
}

// Explained is the answer, with the zone of its times.
type Explained struct {
	Zone  string
	Slots []Explanation
}

// BackfillParams ask for the slots of a job in a stretch of the past.
type BackfillParams struct {
	ID             string
	From, To       time.Time
	MaxRuns        int
	DryRun, Force  bool
	IdempotencyKey *chat.IdempotencyKey // nil = the call has none; a dry run has no effect and needs none
	// Spend takes the bytes that the messages of all runs have from an allowance of the caller, before any is made; nil = there is none.
	Spend func(bytes int) error
}

// BackfillFire is one slot of a backfill.
type BackfillFire struct {
	Slot   time.Time
	RunID  string
	Exists bool
}
