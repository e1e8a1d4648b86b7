package agent

import (
	"context"

	"laneway/internal/chat"
)

// Summary asks an agent for a summary of a conversation.
type Summary struct {
	// Session is the session of the conversation; zero means that of the turn.
	Session chat.SessionKey
	// Prompt is the system prompt; Question is the message after the conversation.
	Prompt, Question string
	Conversation     []chat.TranscriptEntry
	// Tokens is the longest summary, in tokens.
	Tokens int
}

// Summariser asks the agent of a turn for summaries, one after the other. It is for the goroutine of the turn.
type Summariser interface {
	// Room returns how many tokens a conversation to be summarised may have, and how many its summary may have.
	Room() (conversation, summary int)
	// Summarise returns the text of a summary, which is never empty. Its error is for the person; an [*Error] has the reason.
	Summarise(ctx context.Context, s Summary) (string, error)
}
