package acp

import (
	"cmp"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	sdk "github.com/coder/acp-go-sdk"

	"laneway/internal/agent"
	"laneway/internal/chat"
)

const (
	// maxShown bounds arguments and results in events, maxTitle the names of calls, in bytes.
	maxShown = 16 << 10
	maxTitle = 200
	// maxCalls is how many calls of a turn are remembered.
	maxCalls = 1000
)

var errNotCancelled = errors.New("the agent did not end its turn")

// take applies one update of the agent. Its error ends the turn.
func (t *turn) take(u sdk.SessionUpdate) error {
	switch {
	case u.AgentMessageChunk != nil:
		t.besidePiece(u.AgentMessageChunk.Meta)
		return t.text(u.AgentMessageChunk.Content)
	case u.ToolCall != nil:
		t.call(u.ToolCall)
	case u.ToolCallUpdate != nil:
		t.callUpdate(u.ToolCallUpdate)
	}
	return nil
}

// text adds a piece of the answer. A tool call between two pieces starts a new paragraph.
func (t *turn) text(block sdk.ContentBlock) error {
	if block.Text == nil || block.Text.Text == "" {
		return nil
	}
	text := block.Text.Text
	if t.gap {
		t.gap = false
		first, _ := utf8.DecodeRuneInString(text)
		if t.answer.Begun() && !unicode.IsSpace(first) && !strings.HasSuffix(t.answer.Text(), "\n") {
			text = "\n\n" + text
		}
	}
	return t.answer.Append(text)
}

func (t *turn) call(c *sdk.SessionUpdateToolCall) {
	if t.known[c.ToolCallId] {
		t.callUpdate(&sdk.SessionToolCallUpdate{ToolCallId: c.ToolCallId, Title: &c.Title, Status: &c.Status, RawOutput: c.RawOutput, Content: c.Content})
		return
	}
	t.gap = true
	name := chat.Cut(chat.Printable(c.Title), maxTitle)
	if len(t.known) < maxCalls {
		t.calls[c.ToolCallId], t.known[c.ToolCallId] = name, true
	}
	t.tool(chat.ToolEvent{Phase: "start", CallID: string(c.ToolCallId), Name: name, Args: shown(c.RawInput)})
	t.ended(c.ToolCallId, c.Status, c.RawOutput, c.Content)
}

// callUpdate uses the title of an update, because some agents set it only after the call has started. The first update of an unknown call starts it, because some agents
// announce a call only by its permission request.
func (t *turn) callUpdate(c *sdk.SessionToolCallUpdate) {
	title := ""
	if c.Title != nil {
		title = *c.Title
	}
	if !t.known[c.ToolCallId] && len(t.known) < maxCalls {
		t.call(&sdk.SessionUpdateToolCall{ToolCallId: c.ToolCallId, Title: cmp.Or(title, "tool"), RawInput: c.RawInput})
	}
	status := sdk.ToolCallStatus("")
	if c.Status != nil {
		status = *c.Status
	}
	was, open := t.calls[c.ToolCallId]
	name := was
	if open && title != "" {
		name = chat.Cut(chat.Printable(title), maxTitle)
		t.calls[c.ToolCallId] = name
	}
	if t.ended(c.ToolCallId, status, c.RawOutput, c.Content) {
		return
	}
	if open && (status == sdk.ToolCallStatusInProgress || name != was) {
		t.tool(chat.ToolEvent{Phase: "update", CallID: string(c.ToolCallId), Name: name, Result: string(status)})
	}
}

// ended emits the result of a call that has completed or failed.
func (t *turn) ended(id sdk.ToolCallId, status sdk.ToolCallStatus, output any, content []sdk.ToolCallContent) bool {
	name, open := t.calls[id]
	if !open || (status != sdk.ToolCallStatusCompleted && status != sdk.ToolCallStatusFailed) {
		return false
	}
	delete(t.calls, id)
	result := shown(output)
	if output == nil {
		result = shown(textOf(content))
	}
	t.tool(chat.ToolEvent{Phase: "result", CallID: string(id), Name: name, Result: result, IsError: status == sdk.ToolCallStatusFailed})
	return true
}

// endCalls emits a result for each call that is unfinished at the end of the turn.
func (t *turn) endCalls() {
	for _, id := range slices.Sorted(maps.Keys(t.calls)) {
		t.tool(chat.ToolEvent{Phase: "result", CallID: string(id), Name: t.calls[id], Result: `"it was not finished"`, IsError: true})
	}
}

func (t *turn) tool(e chat.ToolEvent) { t.emit(agent.Event{Kind: agent.EventTool, Tool: &e}) }

func textOf(content []sdk.ToolCallContent) string {
	var parts []string
	for _, c := range content {
		if c.Content != nil && c.Content.Content.Text != nil {
			parts = append(parts, c.Content.Content.Text.Text)
		}
	}
	return strings.Join(parts, "\n")
}

// shown returns a value as JSON, cut at maxShown, and "" for nil.
func shown(value any) string {
	if value == nil {
		return ""
	}
	raw, err := json.Marshal(value)
	if err != nil {
		return ""
	}
	return chat.Cut(string(raw), maxShown)
}
