package anthropic_test

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"laneway/internal/agent"
	"laneway/internal/agent/agenttest"
	"laneway/internal/agent/anthropic"
	"laneway/internal/chat"
	"laneway/internal/testmodel"
)

// box is a toolbox and a journal; it answers each call with its arguments and keeps nothing.
type box struct{}

func (box) Specs() []agent.ToolSpec {
	return []agent.ToolSpec{{Name: "set", Schema: []byte(`{"type":"object"}`)}}
}

func (box) Call(_ context.Context, _ string, call chat.ToolCall) chat.ToolResult {
	return chat.ToolResult{Text: call.Args, IsError: true}
}

func (box) Rounds() []agent.Round                                         { return nil }
func (box) Record(context.Context, chat.Round) error                      { return nil }
func (box) RecordResult(context.Context, int, int, chat.ToolResult) error { return nil }

// TestARoundGoesBackAsItCame checks the form that the API requires of a round: thoughts with their signatures first, inputs as objects, results of
// all calls in the next message.
func TestARoundGoesBackAsItCame(t *testing.T) {
	t.Parallel()
	for name, whole := range map[string]bool{"Streamed": false, "InOneDocument": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			model := testmodel.Start(t)
			model.Answer(func(call testmodel.Call) testmodel.Reply {
				if call.Number > 1 {
					return testmodel.Reply{Pieces: []string{"done"}}
				}
				return testmodel.Reply{
					Whole: whole, Thoughts: "I think so.", Pieces: []string{"Now."},
					Calls: []testmodel.ToolCall{{ID: "a", Name: "set", Args: `{"n":1}`}, {ID: "b", Name: "set", Args: `{}`}},
				}
			})
			req := agenttest.Request("please")
			req.Thinking = "low"
			req.Tools, req.Journal = box{}, box{}
			if result, err := open(t, model, anthropic.Config{}).Run(t.Context(), req, func(agent.Event) {}); err != nil || result.Text != "Now.\n\ndone" {
				t.Fatalf("got %q and %v, want the answer", result.Text, err)
			}
			var body struct {
				Messages []struct {
					Content json.RawMessage `json:"content"`
				} `json:"messages"`
			}
			if err := json.Unmarshal(model.Calls()[1].Body, &body); err != nil || len(body.Messages) != 3 {
				t.Fatalf("got %d messages and %v, want three", len(body.Messages), err)
			}
			asked := `{"text":"Now.","type":"text"},{"id":"a","input":{"n":1},"name":"set","type":"tool_use"},{"id":"b","input":{},"name":"set","type":"tool_use"}]`
			empty := `{}`
			if whole { // the model server sends no thoughts in one document, and an empty input with the call itself
				asked, empty = "["+asked, ""
			} else {
				asked = `[{"signature":"signed","thinking":"I think so.","type":"thinking"},` + asked
			}
			given := `[{"type":"tool_result","tool_use_id":"a","content":"{\"n\":1}","is_error":true},{"type":"tool_result","tool_use_id":"b","content":"` + empty + `","is_error":true}]`
			if diff := cmp.Diff([]string{asked, given}, []string{string(body.Messages[1].Content), string(body.Messages[2].Content)}); diff != "" {
				t.Errorf("messages (-want +got):\n%s", diff)
			}
		})
	}
}
