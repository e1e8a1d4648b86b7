package openai_test

import (
	"testing"

	"laneway/internal/agent"
	"laneway/internal/agent/agenttest"
	"laneway/internal/agent/openai"
	"laneway/internal/chat"
	"laneway/internal/testmodel"
)

// TestCachedTokensAreAPartOfTheInput checks that they are counted separately too, because they have another price.
func TestCachedTokensAreAPartOfTheInput(t *testing.T) {
	t.Parallel()
	model := testmodel.Start(t)
	model.Answer(func(testmodel.Call) testmodel.Reply {
		return testmodel.Reply{Type: "application/json", Body: `{"model":"m","choices":[{"message":{"content":"x"},"finish_reason":"stop"}],"usage":{"prompt_tokens":100,"completion_tokens":7,"prompt_tokens_details":{"cached_tokens":64}}}`}
	})
	got, err := open(t, model, openai.Config{}).Run(t.Context(), agenttest.Request("hi"), func(agent.Event) {})
	want := chat.Usage{InputTokens: 100, OutputTokens: 7, CachedTokens: 64, Model: "m", Provider: "openai"}
	if err != nil || got.Usage != want {
		t.Errorf("got %+v and %v, want %+v", got.Usage, err, want)
	}
}
