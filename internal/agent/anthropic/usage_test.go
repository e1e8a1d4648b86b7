package anthropic_test

import (
	"testing"

	"laneway/internal/agent"
	"laneway/internal/agent/agenttest"
	"laneway/internal/agent/anthropic"
	"laneway/internal/chat"
	"laneway/internal/testmodel"
)

// TestCachedTokensAreAPartOfTheInput checks that they are counted separately too, because they have another price.
func TestCachedTokensAreAPartOfTheInput(t *testing.T) {
	t.Parallel()
	model := testmodel.Start(t)
	model.Answer(func(testmodel.Call) testmodel.Reply {
		return testmodel.Reply{Type: "application/json", Body: `{"type":"message","model":"m","content":[{"type":"text","text":"x"}],"stop_reason":"end_turn","usage":{"input_tokens":30,"output_tokens":7,"cache_creation_input_tokens":6,"cache_read_input_tokens":64}}`}
	})
	got, err := open(t, model, anthropic.Config{}).Run(t.Context(), agenttest.Request("hi"), func(agent.Event) {})
	want := chat.Usage{InputTokens: 100, OutputTokens: 7, CachedTokens: 64, Model: "m", Provider: "anthropic"}
	if err != nil || got.Usage != want {
		t.Errorf("got %+v and %v, want %+v", got.Usage, err, want)
	}
}
