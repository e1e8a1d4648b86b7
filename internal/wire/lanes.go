package wire

// LanesStatusResult is the result of lanes.status: the lanes of the process that answers. A credential that sees only its own data receives names and capacities.
type LanesStatusResult struct {
	TS        int64        `json:"ts"`                   // when, in Unix milliseconds
	NodeID    string       `json:"nodeId"`               // the process
	Draining  bool         `json:"draining"`             // it is about to stop
	Fallbacks int64        `json:"unknownLaneFallbacks"` // messages for a lane that does not exist, which used the lane main
	Lanes     []Lane       `json:"lanes"`                // its lanes
	Sessions  LaneSessions `json:"sessions"`             // how many sessions have work
	Drops     LaneDrops    `json:"drops"`                // messages that did not run, since the start
}

// Lane is a lane of a process. All counts of runs are since the start of the process.
type Lane struct {
	Name         string `json:"name"`         // its name
	Capacity     int    `json:"capacity"`     // its slots
	Active       int    `json:"active"`       // used slots
	Stopping     int    `json:"stopping"`     // used slots whose runs were stopped and have not returned
	Yielded      int    `json:"yielded"`      // runs without a slot: they wait for tasks, or summarise a conversation
	Waiting      int    `json:"waiting"`      // sessions that wait for a slot
	OldestWaitMs int64  `json:"oldestWaitMs"` // how long the first of them has waited
	Started      int64  `json:"started"`      // runs that began
	Finished     int64  `json:"finished"`     // runs that ended with an answer
	Failed       int64  `json:"failed"`       // runs that failed
	Cancelled    int64  `json:"cancelled"`    // runs that were stopped
}

// LaneSessions counts sessions with work.
type LaneSessions struct {
	Tracked    int `json:"tracked"`    // sessions with any work
	Running    int `json:"running"`    // with a run
	Waiting    int `json:"waiting"`    // with a message that waits
	Debouncing int `json:"debouncing"` // with messages that are being collected
}

// LaneDrops counts messages that did not run.
type LaneDrops struct {
	Old     int64 `json:"old"`     // removed from a full queue for newer messages
	New     int64 `json:"new"`     // refused by a full queue
	Stale   int64 `json:"stale"`   // older than a stop of all work
	Cleared int64 `json:"cleared"` // removed by a reset or a deletion
}
