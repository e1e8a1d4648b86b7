package chat

// AgentSession is the session that an agent keeps of a conversation, and the process that had it last.
type AgentSession struct {
	// ID is the agent's; "" = none is known.
	ID string
	// Runs are the latest turns that the agent has seen, the last one at the end. Seen is the number of the last entry of the transcript that it has seen.
	Runs []string
	Seen int64
	// Used is what the session has used, of agents that report this instead of what a turn has used. Names are not stored.
	Used Usage
	// Dir is the working directory that it was made for.
	Dir string
	// Host is the machine of the process, PIDStarted identifies it, and what it has started, among those that have had its number.
	Host       string
	PID        int
	PIDStarted string
}
