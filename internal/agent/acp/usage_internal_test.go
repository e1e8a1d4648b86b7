package acp

import (
	"math"
	"testing"

	"laneway/internal/chat"
)

func TestUsageIsClampedAndWhole(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		in   counts
		want chat.Usage
	}{
		"cached within the input":      {counts{Input: 10, Output: 4, Read: 6, Total: 14}, chat.Usage{InputTokens: 10, OutputTokens: 4, CachedTokens: 6}},
		"cached beside the input":      {counts{Input: 10, Output: 4, Read: 6, Write: 2, Total: 22}, chat.Usage{InputTokens: 18, OutputTokens: 4, CachedTokens: 6}},
		"thoughts beside the output":   {counts{Input: 10, Output: 4, Think: 5, Total: 19}, chat.Usage{InputTokens: 10, OutputTokens: 9}},
		"thoughts within the output":   {counts{Input: 10, Output: 9, Think: 5, Total: 19}, chat.Usage{InputTokens: 10, OutputTokens: 9}},
		"without a total":              {counts{Input: 10, Output: 4, Read: 6, Think: 2}, chat.Usage{InputTokens: 10, OutputTokens: 4, CachedTokens: 6}},
		"other names":                  {counts{InputTokens: 3, OutputTokens: 4}, chat.Usage{InputTokens: 3, OutputTokens: 4}},
		"negative":                     {counts{Input: -1, Output: math.MinInt, Read: -5, Total: -1}, chat.Usage{}},
		"more than any model":          {counts{Input: math.MaxInt, Output: math.MaxInt, Read: math.MaxInt, Total: math.MaxInt}, chat.Usage{InputTokens: chat.MaxTokens, OutputTokens: chat.MaxTokens, CachedTokens: chat.MaxTokens}},
		"more cached tokens than read": {counts{Input: 3, Output: 4, Read: 9, Total: 7}, chat.Usage{InputTokens: 3, OutputTokens: 4, CachedTokens: 3}},
	} {
		tt.want.Provider = "acp"
		if got := usageOf(tt.in); got != tt.want {
			t.Errorf("%s: got %+v, want %+v", name, got, tt.want)
		}
	}
}
