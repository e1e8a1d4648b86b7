package wire

// HealthParams are the parameters of health.
type HealthParams struct {
	Probe    bool `json:"probe,omitempty"`    // look now; else the answer may be some seconds old, except for the state of channels
	Extended bool `json:"extended,omitempty"` // asks for the extended view
}

// WantsExtended reports whether the call asks for the extended view.
func (p *HealthParams) WantsExtended() bool { return p.Extended }

// HealthResult is the result of health, and the payload of the event health.
type HealthResult struct {
	OK               bool                     `json:"ok,omitempty"`     // true; absent when something is wrong
	TS               int64                    `json:"ts"`               // when the gateway looked, in Unix milliseconds
	DurationMs       int64                    `json:"durationMs"`       // how long it took
	Channels         map[string]HealthChannel `json:"channels"`         // the channels, by id
	ChannelOrder     []string                 `json:"channelOrder"`     // their ids in the order of the configuration
	ChannelLabels    map[string]string        `json:"channelLabels"`    // their names for people, by id
	HeartbeatSeconds int                      `json:"heartbeatSeconds"` // always 0
	DefaultAgentID   string                   `json:"defaultAgentId"`   // the agent of a key that names none
	Agents           []string                 `json:"agents"`           // always empty; see agents.list
	Sessions         HealthSessions           `json:"sessions"`         // the sessions
	*HealthExtra
}

// HealthExtra is what the extended view adds.
type HealthExtra struct {
	Problems  []string        `json:"problems"`  // Extended: what is wrong, in sentences
	Database  HealthDatabase  `json:"database"`  // Extended: the store
	Scheduler HealthScheduler `json:"scheduler"` // Extended: the loops
	NodeID    string          `json:"nodeId"`    // Extended: which process answers
}

// HealthDatabase is the state of the store.
type HealthDatabase struct {
	OK        bool  `json:"ok"`        // it answers
	LatencyMs int64 `json:"latencyMs"` // how long that took
}

// HealthScheduler is the state of the loops that start work.
type HealthScheduler struct {
	OK            bool   `json:"ok"`            // they do their work
	LastTickAgeMs *int64 `json:"lastTickAgeMs"` // since the loop of the jobs last turned; null = there is none
}

// HealthSessions counts sessions.
type HealthSessions struct {
	Path   string   `json:"path"`   // which store has them: sqlite or postgres
	Count  int      `json:"count"`  // how many there are; 0 for a credential that sees its own
	Recent []string `json:"recent"` // always empty; see sessions.list
}

// HealthChannel is the state of a channel.
type HealthChannel struct {
	Configured    bool    `json:"configured"`    // it has what it needs
	Running       bool    `json:"running"`       // it works
	Connected     bool    `json:"connected"`     // its network answers
	LastPollAgeMs *int64  `json:"lastPollAgeMs"` // since it last asked for messages; null = never, or it does not ask
	LastError     *string `json:"lastError"`     // what went wrong last; null = nothing
}

// StatusResult is the result of status.
type StatusResult struct {
	OK       bool                 `json:"ok"`                             // nothing is wrong; see problems of health
	Version  string               `json:"version"`                        // of laneway
	BootID   string               `json:"bootId"`                         // of this start of the gateway
	NodeID   string               `json:"nodeId"`                         // which process answers
	UptimeMs int64                `json:"uptimeMs"`                       // since its start
	Draining bool                 `json:"draining"`                       // it is about to stop
	Clients  int                  `json:"clients"`                        // open connections
	Agents   int                  `json:"agents"`                         // how many agents there are
	Sessions StatusSessions       `json:"sessions"`                       // the sessions
	Cron     StatusCron           `json:"cron"`                           // the jobs
	Lanes    map[string]LaneCount `json:"lanes"`                          // the lanes, by name
	Nodes    []StatusNode         `json:"nodes"`                          // the live processes of this store
	Disk     string               `json:"disk,omitempty" rule:"enum=low"` // low = new messages are refused; absent = there is space
	Programs []StatusProgram      `json:"programs,omitempty"`             // the agents that keep processes; absent = no agent does
}

// StatusProgram is the processes of an agent.
type StatusProgram struct {
	Agent     string `json:"agent"`                 // its id
	Processes int    `json:"processes"`             // those that live
	Limit     int    `json:"limit"`                 // max_processes of the agent
	Memory    int64  `json:"memoryBytes,omitempty"` // what they and their children have in memory; absent = unknown
	Evicted   int64  `json:"evicted"`               // how many have ended to make room for another session
}

// StatusSessions counts sessions.
type StatusSessions struct {
	Known   int `json:"known"`   // in the store
	Running int `json:"running"` // with a run on this process
	Waiting int `json:"waiting"` // with a waiting message on this process
}

// StatusCron counts jobs.
type StatusCron struct {
	Enabled      bool   `json:"enabled"`      // jobs fire
	Jobs         int    `json:"jobs"`         // how many there are
	Running      int    `json:"running"`      // how many run
	Backlog      int    `json:"backlog"`      // fires that are due and not started
	OldestDueMs  *int64 `json:"oldestDueMs"`  // the age of the oldest of them; null = none
	NextWakeAtMs *int64 `json:"nextWakeAtMs"` // the next fire, in Unix milliseconds; null = none
}

// LaneCount counts the work of a lane.
type LaneCount struct {
	Capacity int `json:"capacity"` // its slots
	Active   int `json:"active"`   // used slots
	Waiting  int `json:"waiting"`  // sessions that wait for one
}

// StatusNode is a process.
type StatusNode struct {
	NodeID   string `json:"nodeId"`   // its id, another one after each start
	Name     string `json:"name"`     // its name, from the setting cluster.node_id
	Version  string `json:"version"`  // of laneway
	Draining bool   `json:"draining"` // it is about to stop
	LeaseMs  int64  `json:"leaseMs"`  // how long its lease lasts
}
