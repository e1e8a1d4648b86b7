package wire

// HealthParams are the parameters of health.
type HealthParams struct {
	Probe    bool `json:"probe,omitempty"`    // check now; otherwise the answer may be some seconds old, except for the state of channels
	Extended bool `json:"extended,omitempty"` // asks for the extended view
}

// WantsExtended reports whether the call asks for the extended view.
func (p *HealthParams) WantsExtended() bool { return p.Extended }

// HealthResult is the result of health, and the payload of the event health.
type HealthResult struct {
	OK               bool                     `json:"ok,omitempty"`     // true; absent when there is a problem
	TS               int64                    `json:"ts"`               // when the gateway made the checks, in Unix milliseconds
	DurationMs       int64                    `json:"durationMs"`       // how long the checks took
	Channels         map[string]HealthChannel `json:"channels"`         // the channels, by id
	ChannelOrder     []string                 `json:"channelOrder"`     // their ids in the order of the configuration
	ChannelLabels    map[string]string        `json:"channelLabels"`    // their display names, by id
	HeartbeatSeconds int                      `json:"heartbeatSeconds"` // always 0
	DefaultAgentID   string                   `json:"defaultAgentId"`   // the agent of a key that names none
	Agents           []string                 `json:"agents"`           // always empty; see agents.list
	Sessions         HealthSessions           `json:"sessions"`         // the sessions
	*HealthExtra
}

// HealthExtra has the members that the extended view adds.
type HealthExtra struct {
	Problems  []string        `json:"problems"`  // Extended: the problems, in sentences
	Database  HealthDatabase  `json:"database"`  // Extended: the store
	Scheduler HealthScheduler `json:"scheduler"` // Extended: the loops
	NodeID    string          `json:"nodeId"`    // Extended: the process that answers
}

// HealthDatabase is the state of the store.
type HealthDatabase struct {
	OK        bool  `json:"ok"`        // it answers
	LatencyMs int64 `json:"latencyMs"` // how long the answer took
}

// HealthScheduler is the state of the loops that start work.
type HealthScheduler struct {
	OK            bool   `json:"ok"`            // they make progress
	LastTickAgeMs *int64 `json:"lastTickAgeMs"` // time since the last iteration of the cron loop; null when this process runs no cron loop
}

// HealthSessions counts sessions.
type HealthSessions struct {
	Path   string   `json:"path"`   // which store has them: sqlite or postgres
	Count  int      `json:"count"`  // always 0, as a count of all sessions is slow; see status
	Recent []string `json:"recent"` // always empty; see sessions.list
}

// HealthChannel is the state of a channel.
type HealthChannel struct {
	Configured    bool    `json:"configured"`    // its settings are complete
	Running       bool    `json:"running"`       // it is running
	Connected     bool    `json:"connected"`     // its network answers
	LastPollAgeMs *int64  `json:"lastPollAgeMs"` // time since the last poll for messages; null = never, or it does not poll
	LastError     *string `json:"lastError"`     // the last error; null = no error
}

// StatusResult is the result of status.
type StatusResult struct {
	OK       bool                 `json:"ok"`                             // there is no problem; see problems of health
	Version  string               `json:"version"`                        // of laneway
	BootID   string               `json:"bootId"`                         // of this start of the gateway
	NodeID   string               `json:"nodeId"`                         // the process that answers
	UptimeMs int64                `json:"uptimeMs"`                       // since this start of the gateway
	Draining bool                 `json:"draining"`                       // it is about to stop
	Clients  int                  `json:"clients"`                        // open connections
	Agents   int                  `json:"agents"`                         // how many agents there are
	Sessions StatusSessions       `json:"sessions"`                       // the sessions
	Cron     StatusCron           `json:"cron"`                           // the jobs
	Lanes    map[string]LaneCount `json:"lanes"`                          // the lanes, by name
	Nodes    []StatusNode         `json:"nodes"`                          // the live processes of this store
	Disk     string               `json:"disk,omitempty" rule:"enum=low"` // low = new messages are refused; absent = there is space
	Programs []StatusProgram      `json:"programs,omitempty"`             // the agents that keep processes; absent when no agent does, and for a credential that sees only its own data
}

// StatusProgram counts the processes of an agent.
type StatusProgram struct {
	Agent     string `json:"agent"`                 // its id
	Processes int    `json:"processes"`             // processes that are running
	Limit     int    `json:"limit"`                 // max_processes of the agent
	Memory    int64  `json:"memoryBytes,omitempty"` // memory of the processes and their children; absent = unknown
	Evicted   int64  `json:"evicted"`               // processes that were ended to make room for another session
}

// StatusSessions counts sessions.
type StatusSessions struct {
	Known             int  `json:"known"`                       // in the store; counted up to 1000
	Running           int  `json:"running"`                     // with a run on this process
	Waiting           int  `json:"waiting"`                     // with a waiting message on this process
	KnownIsLowerBound bool `json:"knownIsLowerBound,omitempty"` // there are more than known
}

// StatusCron counts jobs.
type StatusCron struct {
	Enabled      bool   `json:"enabled"`      // jobs fire
	Jobs         int    `json:"jobs"`         // how many there are
	Running      int    `json:"running"`      // how many run
	Backlog      int    `json:"backlog"`      // fires that are due and not started
	OldestDueMs  *int64 `json:"oldestDueMs"`  // the age of the oldest of them; null when nothing is due
	NextWakeAtMs *int64 `json:"nextWakeAtMs"` // the next fire, in Unix milliseconds; null when no fire is planned
}

// LaneCount counts the work of a lane.
type LaneCount struct {
	Capacity int `json:"capacity"` // its slots
	Active   int `json:"active"`   // used slots
	Waiting  int `json:"waiting"`  // sessions that wait for a slot
}

// StatusNode is a process.
type StatusNode struct {
	NodeID   string `json:"nodeId"`   // its id, which changes with each start
	Name     string `json:"name"`     // its name, from the setting cluster.node_id
	Version  string `json:"version"`  // of laneway
	Draining bool   `json:"draining"` // it is about to stop
	LeaseMs  int64  `json:"leaseMs"`  // how long its lease lasts
}
