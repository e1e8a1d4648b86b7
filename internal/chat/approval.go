package chat

import "time"

// MaxApprovals is how many approvals of one person are kept for a conversation. When there are more, the oldest are removed.
const MaxApprovals = 100

// Approval is what a person has allowed an agent for all turns of a conversation, until its transcript ends.
type Approval struct {
	// ID is the id of the question. The store sets ID and At.
	ID string
	// Agent is the agent that asked. Act is what the answer covers, in the words of the question. Label is the chosen option.
	Agent, Act, Label string
	At                time.Time
}
