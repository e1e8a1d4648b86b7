package scheduler

import "time"

// Row is what a decision about a waiting message reads: columns of the store, never its body.
type Row struct {
	// Seq is its position in the session's order of acceptance.
	Seq int64
	// RunID is the run that took it before, for a message that waits again; otherwise empty.
	RunID string
	// Sender, Thread and Lane must be equal for messages to share a turn.
	Sender, Thread, Lane string
	// Accepted is when the store accepted it, by the store's clock.
	Accepted time.Time
	// Size is the number of bytes that count towards BatchBytes.
	Size int
	// Mode is what it asks for; "" = the mode of its session.
	Mode QueueMode
	// Typed: a person typed it, and may type more. Alone: it shares no turn. Gathers: its turn may
	// include the following messages that also gather.
	Typed, Alone, Gathers bool
}
