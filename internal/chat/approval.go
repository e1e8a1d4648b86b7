package chat

import "time"

// MaxApprovals is how many approvals of one person are kept for a conversation; the oldest go.
const MaxApprovals = 100

// Approval is what a person has allowed an agent for all turns of a conversation, until its transcript ends.
type Approval struct {
	// ID is that of the question. The store sets it, and At.
	ID string
	// Agent is the one that asked, Act what it asked about, without details that differ from call to call, Label the chosen option.
	Agent, Act, Label string
	At                time.Time
}
