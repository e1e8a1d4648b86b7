package openai_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"laneway/internal/agent"
	"laneway/internal/agent/agenttest"
	"laneway/internal/agent/openai"
	"laneway/internal/chat"
	"laneway/internal/testmodel"
)

// box is a toolbox and a journal; it answers each call with its arguments and keeps nothing.
type box struct{}

func (box) Specs() []agent.ToolSpec {
	return []agent.ToolSpec{{Name: "set", Schema: []byte(`{"type":"object"}`)}}
}

func (box) Call(_ context.Context, _ string, call chat.ToolCall) chat.ToolResult {
	return chat.ToolResult{Text: call.Args}
}

func (box) Rounds() []agent.Round                                         { return nil }
func (box) Record(context.Context, chat.Round) error                      { return nil }
func (box) RecordResult(context.Context, int, int, chat.ToolResult) error { return nil }

// wordy is a box whose tool has a description of about a thousand tokens.
type wordy struct{ box }

func (wordy) Specs() []agent.ToolSpec {
	specs := box{}.Specs()
	specs[0].Description = strings.Repeat("word ", 800)
	return specs
}

// TestToolsCountAgainstTheWindow checks that the descriptions of tools reduce the room for history.
func TestToolsCountAgainstTheWindow(t *testing.T) {
	t.Parallel()
	messages := func(tools agent.Toolbox, journal agent.Journal) int {
		req := agenttest.Request("last")
		req.Tools, req.Journal = tools, journal
		for i := range 50 {
			req.History = append(req.History,
				chat.TranscriptEntry{Role: chat.RoleUser, Text: fmt.Sprintf("question %d", i), Tokens: 100},
				chat.TranscriptEntry{Role: chat.RoleAssistant, Text: fmt.Sprintf("answer %d", i), Tokens: 100})
		}
		return len(sent(t, openai.Config{ContextWindow: 3000, MaxTokens: 500}, req).Messages)
	}
	without, few, many := messages(nil, nil), messages(box{}, box{}), messages(wordy{}, wordy{})
	if few > without || many > few-8 || many < 3 {
		t.Errorf("%d messages without tools, %d with a small one, %d with one of a thousand tokens", without, few, many)
	}
}

// secondQuestion runs a turn whose model first answers with reply, and returns the request after the calls.
func secondQuestion(t *testing.T, reply testmodel.Reply) testmodel.Call {
	t.Helper()
	model := testmodel.Start(t)
	model.Answer(func(call testmodel.Call) testmodel.Reply {
		if call.Number == 1 {
			return reply
		}
		return testmodel.Reply{Pieces: []string{"done"}}
	})
	req := agenttest.Request("please")
	req.Tools, req.Journal = box{}, box{}
	result, err := open(t, model, openai.Config{}).Run(t.Context(), req, func(agent.Event) {})
	if err != nil || result.Text != "done" {
		t.Fatalf("got %q and %v, want the answer", result.Text, err)
	}
	return model.Calls()[1]
}

func TestCallsOfEndpointsThatDiffer(t *testing.T) {
	t.Parallel()
	event := func(delta string) string { return `data: {"choices":[{"index":0,"delta":` + delta + `}]}` + "\n\n" }
	const end = "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n"
	two := []testmodel.ToolCall{{ID: "a", Name: "set", Args: `{"n":1}`}, {ID: "b", Name: "set", Args: `{"n":2}`}}
	for name, reply := range map[string]testmodel.Reply{
		"InPieces":      {Calls: two},
		"InOneDocument": {Calls: two, Whole: true},
		"WithoutNumbers": {Type: "text/event-stream", Body: event(`{"tool_calls":[{"id":"a","function":{"name":"set","arguments":"{\"n\":1}"}}]}`) +
			event(`{"tool_calls":[{"id":"b","function":{"name":"set","arguments":"{\"n\":2}"}}]}`) + end},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			asked := secondQuestion(t, reply)
			want := []testmodel.ToolResult{{ID: "a", Text: `{"n":1}`}, {ID: "b", Text: `{"n":2}`}}
			if diff := cmp.Diff(want, asked.Results()); diff != "" {
				t.Errorf("results (-want +got):\n%s", diff)
			}
		})
	}
}

func TestThoughtsGoBackWithTheirRound(t *testing.T) {
	t.Parallel()
	asked := secondQuestion(t, testmodel.Reply{Thoughts: "I think so.", Calls: []testmodel.ToolCall{{ID: "a", Name: "set", Args: `{}`}}})
	var body struct {
		Messages []struct {
			Reasoning string `json:"reasoning_content"`
		} `json:"messages"`
	}
	if err := json.Unmarshal(asked.Body, &body); err != nil || len(body.Messages) != 3 || body.Messages[1].Reasoning != "I think so." {
		t.Errorf("got %+v and %v, want the thoughts in the message with the call", body, err)
	}
}
