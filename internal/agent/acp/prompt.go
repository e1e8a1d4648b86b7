package acp

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	sdk "github.com/coder/acp-go-sdk"

	"laneway/internal/agent"
	"laneway/internal/chat"
)

// blocks are the prompt of a turn. An agent that begins new is given the system prompt of the request and the history; one that remembers the conversation is given what
// others have added to it since. When the conversation was begun anew, so is the agent's session; and when the turn is the first one of it that has tools, because an agent
// learns of them with its session.
func (p *peer) blocks(ctx context.Context, req agent.Request, access agent.ToolAccess) ([]sdk.ContentBlock, error) {
	forgotten := len(p.runs) > 0 && !remembered(req.History, p.runs[len(p.runs)-1])
	if forgotten || (access.Token != "" && !p.tools) {
		if err := p.begin(ctx, access); err != nil {
			return nil, err
		}
	}
	var blocks []sdk.ContentBlock
	fresh := len(p.runs) == 0
	if fresh && req.SystemPrompt != "" {
		blocks = append(blocks, sdk.TextBlock(req.SystemPrompt))
	}
	intro := "The conversation before this message, as JSON:\n"
	if !fresh {
		intro = "Added to the conversation meanwhile, as JSON:\n"
	}
	if unseen := p.unseen(req.History); len(unseen) > 0 {
		raw, err := json.Marshal(unseen)
		if err != nil {
			return nil, fmt.Errorf("encoding the history: %w", err)
		}
		blocks = append(blocks, sdk.TextBlock(intro+string(raw)))
	}
	return append(blocks, sdk.TextBlock(agent.Prompt(req))), nil
}

// remembered reports whether the history has entries of a run.
func remembered(history []chat.TranscriptEntry, runID string) bool {
	return slices.ContainsFunc(history, func(e chat.TranscriptEntry) bool { return e.RunID == runID })
}

// line is an entry of the transcript as the agent gets it. JSON keeps a text from ending its own entry.
type line struct {
	Role string `json:"role"`
	From string `json:"from,omitempty"`
	Text string `json:"text"`
}

// unseen are the entries that the agent has not seen: those behind the last one, but not of its own turns.
func (p *peer) unseen(history []chat.TranscriptEntry) (list []line) {
	for _, e := range history {
		if (e.Seq <= p.seen && p.seen > 0) || slices.Contains(p.runs, e.RunID) || e.Text == "" {
			continue
		}
		list = append(list, line{e.Role, e.Sender.Name, e.Text})
	}
	return list
}
