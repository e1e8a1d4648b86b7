package chat

import "math"

// MaxTokens is how many tokens of one kind count for one request to a model, whatever its endpoint reports. No model reads or writes as many.
const MaxTokens = 1_000_000_000

// Usage is what a turn used. Zero means unknown.
type Usage struct { //nolint:recvcheck // Add changes it, the others only look at it
	InputTokens  int `json:"inputTokens,omitempty"`
	OutputTokens int `json:"outputTokens,omitempty"`
	// CachedTokens are those of InputTokens that the provider had in its cache. The row of a run does not keep them.
	CachedTokens int    `json:"cachedTokens,omitempty"`
	Model        string `json:"model,omitempty"`
	Provider     string `json:"provider,omitempty"`
}

// Tokens is the sum of counts that an endpoint reports. A negative count is 0, and the sum is at most [MaxTokens].
func Tokens(counts ...int) int {
	sum := 0
	for _, n := range counts {
		sum += min(max(0, n), MaxTokens-sum)
	}
	return sum
}

// Clamped is u as far as it can be true: each count is within 0 and [MaxTokens], and the cached tokens are a part of the input.
func (u Usage) Clamped() Usage {
	u.InputTokens, u.OutputTokens = Tokens(u.InputTokens), Tokens(u.OutputTokens)
	u.CachedTokens = min(Tokens(u.CachedTokens), u.InputTokens)
	return u
}

// Add adds what another request used. Sums of counts that are not negative saturate at math.MaxInt. The names are those of the last request that has them.
func (u *Usage) Add(other Usage) {
	u.InputTokens = saturated(u.InputTokens, other.InputTokens)
	u.OutputTokens = saturated(u.OutputTokens, other.OutputTokens)
	u.CachedTokens = saturated(u.CachedTokens, other.CachedTokens)
	if other.Model != "" {
		u.Model, u.Provider = other.Model, other.Provider
	}
}

func saturated(a, b int) int { return a + min(b, math.MaxInt-a) }
