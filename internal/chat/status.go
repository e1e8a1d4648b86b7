package chat

import "time"

// LaneStatus is a picture of one lane at one moment.
type LaneStatus struct {
	Name     string
	Capacity int
	// Active turns hold a slot; Stopping of them were stopped and have not returned. Active <= Capacity, but for a lane that was just made smaller.
	Active, Stopping int
	// Waiting counts sessions that are ready and have no slot.
	Waiting                             int
	OldestWait                          time.Duration
	Started, Finished, Failed, Canceled int64
}

// LanesStatus is a picture of this process's scheduler.
type LanesStatus struct {
	At                                   time.Time
	NodeID                               string
	Draining                             bool
	UnknownLaneFallbacks                 int64
	Lanes                                []LaneStatus
	Tracked, Running, Waiting, Debounced int // sessions
	DropsOld, DropsNew, Stale, Cleared   int64
}

// SessionStatus is a session as watchers see it.
type SessionStatus struct {
	Key           SessionKey
	SessionID     string // of the current transcript; changes with a reset
	Principal     string
	CreatedAt     time.Time
	UpdatedAt     time.Time
	LastMessageAt time.Time
	// Status is "", queued, running, done, failed, killed or timeout.
	Status      string
	LastRunID   string
	LastError   string
	LastPreview string // start of the last answer
	TotalTokens int
	ActiveRuns  []string
	Mode        QueueMode
	QueueDepth  int
	Lane        string
}

// NodeStatus is one gateway process that shares the database.
type NodeStatus struct {
	ID, Version string
	Draining    bool
	Lease       time.Duration // left
}
