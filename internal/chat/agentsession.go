package chat

// AgentSession is the session that an agent keeps for a conversation, and the process that last held it.
type AgentSession struct {
	// ID is assigned by the agent; "" = unknown.
	ID string
	// Runs are the latest turns that the agent has seen, the newest last. Seen is the number of the last entry of the transcript that it
	// has seen.
	Runs []string
	Seen int64
	// Used is the usage of the session, for agents that report it instead of the usage of a turn. Names are not stored.
	Used Usage
	// Dir is the working directory that it was made for.
	Dir string
	// Host is the machine of the process. PIDStarted distinguishes the process, and those that it started, from other processes that have
	// had the same PID.
	Host       string
	PID        int
	PIDStarted string
}

// Program is the process that works for a run. Started distinguishes it, and those that it started, from other processes that have had the same
// PID on Host.
type Program struct {
	Host    string `json:"host"`
	PID     int    `json:"pid"`
	Started string `json:"started"`
}
