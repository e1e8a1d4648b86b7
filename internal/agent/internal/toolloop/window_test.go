package toolloop_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"

	"laneway/internal/agent"
	"laneway/internal/agent/internal/toolloop"
	"laneway/internal/chat"
)

// reader calls a tool in each of its first rounds, then reads what was left out of the first result, then answers.
type reader struct {
	text   *toolloop.Text
	rounds int
	most   int // tokens of the largest conversation
	read   string
}

func (m *reader) Ask(_ context.Context, talk toolloop.Conversation) (toolloop.Reply, error) {
	m.most = max(m.most, talk.Tokens())
	reply := toolloop.Reply{StopReason: agent.StopNormal}
	switch n := len(talk.Rounds); {
	case n < m.rounds:
		reply.Calls = []chat.ToolCall{{ID: fmt.Sprint("a", n), Name: "set", Args: "{}"}, {ID: fmt.Sprint("b", n), Name: "set", Args: `{"text":"` + strings.Repeat("z", 9_000) + `"}`}}
	case n == m.rounds:
		if last := talk.Tools[len(talk.Tools)-1].Name; last != "result" {
			return reply, fmt.Errorf("the last tool is %q", last)
		}
		reply.Calls = []chat.ToolCall{{ID: "r", Name: "result", Args: `{"call":"1.2","from":30000}`}}
	default:
		m.read = talk.Rounds[n-1].Results[0].Text
		return reply, m.text.Append("done")
	}
	return reply, nil
}

// The arguments of the calls are long too, as when a model writes files.
func TestResultsThatDoNotFitAreCutAndCanBeRead(t *testing.T) {
	t.Parallel()
	for _, window := range []int{2_000, 14_000, 100_000} {
		t.Run(strconv.Itoa(window), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				long := strings.Repeat("x", 30_000) + "continued at 30k" + strings.Repeat("y", 20_000)
				b := &tools{run: func(context.Context) chat.ToolResult { return chat.ToolResult{Text: long} }}
				m := &reader{rounds: 12}
				m.text = toolloop.NewText(1<<20, func(agent.Event) {})
				req := agent.Request{Tools: b, Journal: b, IdempotencyKey: "run"}
				result, err := toolloop.Run(t.Context(), req, m, m.text, toolloop.Options{Window: func() (int, agent.Ratio) { return window, 1 }})
				if err != nil || result.Text != "done" {
					t.Fatalf("the turn ended with %q, %v; want an answer", result.Text, err)
				}
				if m.most > window {
					t.Errorf("the model was given %d tokens in a window of %d", m.most, window)
				}
				if !strings.HasPrefix(m.read, "continued at 30k") {
					t.Errorf("the rest of the result is %.40q; want the text at byte 30000", m.read)
				}
				for i, result := range b.results[:24] {
					if result.Text != long {
						t.Fatalf("result %d in the journal has %d bytes; want all %d", i, len(result.Text), len(long))
					}
				}
			})
		})
	}
}

func TestResultsThatFitStayWhole(t *testing.T) {
	t.Parallel()
	b := &tools{run: func(context.Context) chat.ToolResult { return chat.ToolResult{Text: strings.Repeat("x", 9_000)} }}
	m := &model{}
	m.text = toolloop.NewText(1<<20, func(agent.Event) {})
	m.calls = []chat.ToolCall{{ID: "a", Name: "set", Args: "{}"}}
	req := agent.Request{Tools: b, Journal: b, IdempotencyKey: "run"}
	if _, err := toolloop.Run(t.Context(), req, m, m.text, toolloop.Options{Window: func() (int, agent.Ratio) { return 5_000, 1 }}); err != nil {
		t.Fatal(err)
	}
	last := m.asked[len(m.asked)-1]
	if got := len(last.Rounds[0].Results[0].Text); got != 9_000 || len(last.Tools) != 1 {
		t.Errorf("the model was given %d bytes and %d tools; want the whole result and its one tool", got, len(last.Tools))
	}
}
