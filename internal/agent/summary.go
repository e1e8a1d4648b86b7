package agent

import (
	"context"

	"laneway/internal/chat"
)

// Summary asks an agent for a summary of a conversation.
type Summary struct {
	// Session is the session that the conversation is of; zero = that of the turn.
	Session chat.SessionKey
	// Prompt is the system prompt, Question what is asked behind the conversation.
	Prompt, Question string
	Conversation     []chat.TranscriptEntry
	// Tokens is how many the summary may have.
	Tokens int
}

// Summariser asks the agent of a turn for summaries, one after the other. It is for the goroutine of the turn.
type Summariser interface {
	// Room is how many tokens a conversation may have that is to be summarised, and how many its summary may have.
	Room() (conversation, summary int)
	// Summarise returns the text of a summary, which is never empty. Its error is for the person; an [*Error] has the reason.
	Summarise(ctx context.Context, s Summary) (string, error)
}
