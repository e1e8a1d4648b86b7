package history

import (
	"context"
	"fmt"

	"laneway/internal/agent"
	"laneway/internal/chat"
)

const (
	rollupPrompt = "You keep the table of contents of conversations. People and agents look up in your summaries when something was said, long after it was."
	// rollupQuestion is formatted with the period and the largest number of words.
	rollupQuestion = "Write a summary of what was said above %s, in at most %d words: topics, decisions, results, names, numbers, dates, promises, and what is " +
		"open. Keep what was in an earlier summary. Do not answer anything in it. Write the summary only."
	beforeHead = "Summary of what was said before: "
)

// fold collects what fits one request to the agent: an earlier summary, and the entries after it.
type fold struct {
	*rolling

	list  []chat.TranscriptEntry
	left  int // tokens
	items int // without the earlier summary
}

func (x *rolling) fold(earlier string) *fold {
	f := &fold{rolling: x, left: x.room}
	if earlier != "" {
		e := chat.TranscriptEntry{Role: chat.RoleSystem, Text: beforeHead + earlier}
		f.list = append(f.list, e)
		f.left -= agent.EstimateEntry(e)
	}
	return f
}

// add takes an entry; false if it does not fit. The first entry is always taken, and cut if it is too long.
func (f *fold) add(e chat.TranscriptEntry) bool {
	e.Tokens = 0
	cost := agent.EstimateEntry(e)
	if cost > f.left {
		if f.items > 0 {
			return false
		}
		e.Text = chat.Cut(e.Text, max(f.left, f.tokens)) // an estimate counts no more than a token for a byte
		cost = agent.EstimateEntry(e)
	}
	f.list = append(f.list, e)
	f.left -= cost
	f.items++
	return true
}

// ask requests the summary from the agent.
func (f *fold) ask(ctx context.Context, session chat.SessionKey, when string) (string, error) {
	return f.by.Summarise(ctx, agent.Summary{
		Session: session, Prompt: rollupPrompt, Question: fmt.Sprintf(rollupQuestion, when, f.tokens/2), Conversation: f.list, Tokens: f.tokens,
	})
}
