package chat

// Channel names of messages that trees of sub-turns make.
const (
	// ChannelTask is the channel of the messages of sub-turns, and of the announcements of their ends.
	ChannelTask = "task"
)

// Task is the place of a message in a tree of sub-turns, and what its turn inherits from the message at the root.
type Task struct {
	// Root is the run at the root of the tree. Depth is 1 for a sub-turn of the root; an announcement has the depth of the turn that is to read it.
	Root  string `json:"root"`
	Depth int    `json:"depth"`
	// Parent is the run that asked for the sub-turn; "" for an announcement. ParentSession is its session, where the end is announced.
	Parent        string `json:"parent,omitempty"`
	ParentSession string `json:"parentSession,omitempty"`
	// Announce: the parent does not wait, and the end is announced.
	Announce bool `json:"announce,omitempty"`
	// Announces is the sub-turn whose end an announcement is about; "" = the message is no announcement.
	Announces string `json:"announces,omitempty"`
	// Session, Channel and ReplyTo are those of the message at the root: where tools act, which tools there are, and where an answer to an announcement
	// in that session goes.
	Session string `json:"session"`
	Channel string `json:"channel,omitempty"`
	ReplyTo Target `json:"replyTo,omitzero"`
	// NoActs is why tools that create or send are refused in the turn, one sentence; "" = they may run. It is that of the parent.
	NoActs string `json:"noActs,omitempty"`
	// Asks is why a person has to allow what such a tool does, as the end of a sentence; "" = it runs without. It is that of the parent.
	Asks string `json:"asks,omitempty"`
	// Audience is who reads what comes of the tree.
	Audience Audience `json:"audience,omitzero"`
}
