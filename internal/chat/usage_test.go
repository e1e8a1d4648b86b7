package chat_test

import (
	"math"
	"testing"

	"laneway/internal/chat"
)

func TestUsageIsClamped(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ reported, want chat.Usage }{
		"Plausible": {chat.Usage{InputTokens: 7, OutputTokens: 3, CachedTokens: 2, Model: "m"}, chat.Usage{InputTokens: 7, OutputTokens: 3, CachedTokens: 2, Model: "m"}},
		"Absurd":    {chat.Usage{InputTokens: 1 << 62, OutputTokens: math.MaxInt, CachedTokens: 1 << 62}, chat.Usage{InputTokens: 1e9, OutputTokens: 1e9, CachedTokens: 1e9}},
		"Negative":  {chat.Usage{InputTokens: -1, OutputTokens: math.MinInt, CachedTokens: -7}, chat.Usage{}},
		"Cached":    {chat.Usage{InputTokens: 5, CachedTokens: 9}, chat.Usage{InputTokens: 5, CachedTokens: 5}},
	} {
		if got := tt.reported.Clamped(); got != tt.want {
			t.Errorf("%s: got %+v, want %+v", name, got, tt.want)
		}
	}
	if got := chat.Tokens(1<<62, 1<<62, -5); got != chat.MaxTokens {
		t.Errorf("a sum of absurd counts: got %d, want %d", got, chat.MaxTokens)
	}
}

func TestSumsOfUsageSaturate(t *testing.T) {
	t.Parallel()
	sum := chat.Usage{InputTokens: math.MaxInt - 1, Model: "a", Provider: "p"}
	sum.Add(chat.Usage{InputTokens: 1e9, OutputTokens: 3})
	if want := (chat.Usage{InputTokens: math.MaxInt, OutputTokens: 3, Model: "a", Provider: "p"}); sum != want {
		t.Errorf("got %+v, want %+v", sum, want)
	}
}
