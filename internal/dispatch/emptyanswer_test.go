package dispatch_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"laneway/internal/agent"
	"laneway/internal/chat"
	"laneway/internal/dispatch"
)

// The agent answers nothing. The person reads that once, unless the agent has sent them a message itself. The stored answer stays empty.
func TestAnEmptyAnswerIsSaidToBeEmptyWithItsReason(t *testing.T) {
	for name, c := range map[string]struct {
		call       chat.ToolCall // that the agent makes before
		answer     agent.Result
		system     bool   // the message comes from the gateway itself
		chat, note string // the messages of the chat, and the sentence in the end of the run
	}{
		"nothing":              {answer: agent.Result{StopReason: agent.StopNormal}, chat: "(empty answer)", note: "(empty answer)"},
		"blank":                {answer: agent.Result{Text: " \n"}, chat: "(empty answer)", note: "(empty answer)"},
		"at the limit":         {answer: agent.Result{StopReason: agent.StopLength}, chat: "(empty answer: the model stopped at its length limit)", note: "(empty answer: the model stopped at its length limit)"},
		"after a message":      {call: messageCall("on my way"), chat: "on my way"},
		"after a refused call": {call: chat.ToolCall{Name: "message", Args: `{"text":" "}`}, chat: "(empty answer)", note: "(empty answer)"},
		"after another call":   {call: chat.ToolCall{Name: "sessions", Args: `{}`}, chat: "(empty answer)", note: "(empty answer)"},
		"an event":             {system: true},
		"text at the limit":    {answer: agent.Result{Text: "half", StopReason: agent.StopLength}, chat: "half"},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				h := open(t, newStore(t), withRunner(runnerFunc(func(ctx context.Context, req agent.Request, emit func(agent.Event)) (agent.Result, error) {
					if c.call.Name != "" {
						if err := req.Journal.Record(ctx, chat.Round{Number: 1, Calls: []chat.ToolCall{c.call}, Results: make([]*chat.ToolResult, 1)}); err != nil {
							return agent.Result{}, err
						}
						result := req.Tools.Call(ctx, req.IdempotencyKey+"/1/1", c.call)
						if err := req.Journal.RecordResult(ctx, 1, 0, result); err != nil {
							return agent.Result{}, err
						}
					}
					emit(agent.Event{Kind: agent.EventDelta, Text: c.answer.Text})
					return c.answer, nil
				}), dispatch.Tools{Default: true}))
				defer h.close()
				id := h.send("agent:main:own", "go", replyTo("7"), func(m *chat.Message) { m.Content.System = c.system })
				end := h.end(id)
				time.Sleep(10 * time.Second)
				want(t, "messages", strings.Join(h.box.texts("7"), " | "), c.chat)
				want(t, "answer", end.Text, c.answer.Text)
				want(t, "sentence of the end", end.Message, c.note)
				stored := h.end(id)
				want(t, "sentence of the stored end", stored.Message, c.note)
				if c.note != "" {
					want(t, "stop reason of the stored end", stored.StopReason, end.StopReason)
				}
			})
		})
	}
}
