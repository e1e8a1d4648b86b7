package chat

// Channel names of messages that belong to trees of sub-turns.
const (
	// ChannelTask is the channel of the messages of sub-turns, and of the announcements of their results.
	ChannelTask = "task"
)

// Task is the place of a message in a tree of sub-turns, and what its turn inherits from the message at the root.
type Task struct {
	// Root is the run at the root of the tree. Depth is 1 for a sub-turn of the root; an announcement has the depth of the turn that
	// receives it.
	Root  string `json:"root"`
	Depth int    `json:"depth"`
	// Parent is the run that requested the sub-turn; "" for an announcement. ParentSession is its session, where the result is announced.
	Parent        string `json:"parent,omitempty"`
	ParentSession string `json:"parentSession,omitempty"`
	// Announce: the parent does not wait, and the result is announced.
	Announce bool `json:"announce,omitempty"`
	// Announces is the sub-turn whose result is announced; "" = the message is not an announcement.
	Announces string `json:"announces,omitempty"`
	// Session, Channel and ReplyTo come from the message at the root. They decide where tools act, which tools exist, and where an answer
	// to an announcement in that session goes.
	Session string `json:"session"`
	Channel string `json:"channel,omitempty"`
	ReplyTo Target `json:"replyTo,omitzero"`
	// NoActs is why tools that create or send are refused in the turn, one sentence; "" = they may run. It is inherited from the parent.
	NoActs string `json:"noActs,omitempty"`
	// Asks is why a person has to allow such a tool call, as the end of a sentence; "" = no permission is needed. It is inherited from the
	// parent.
	Asks string `json:"asks,omitempty"`
	// Audience is who reads the results of the tree.
	Audience Audience `json:"audience,omitzero"`
}
