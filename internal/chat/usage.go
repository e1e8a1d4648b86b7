package chat

import "math"

// MaxTokens is the maximum number of tokens of one kind that count for one request, whatever its endpoint reports. It exceeds the limits of
// every model.
const MaxTokens = 1_000_000_000

// Usage is what a turn used. Zero means unknown.
type Usage struct { //nolint:recvcheck // Add changes it, the others only read it
	InputTokens  int `json:"inputTokens,omitempty"`
	OutputTokens int `json:"outputTokens,omitempty"`
	// CachedTokens is the part of InputTokens that came from the provider's cache. It is not stored with the run.
	CachedTokens int    `json:"cachedTokens,omitempty"`
	Model        string `json:"model,omitempty"`
	Provider     string `json:"provider,omitempty"`
}

// Tokens returns the sum of counts that an endpoint reports. A negative count is 0, and the sum is at most [MaxTokens].
func Tokens(counts ...int) int {
	sum := 0
	for _, n := range counts {
		sum += min(max(0, n), MaxTokens-sum)
	}
	return sum
}

// Clamped returns u with plausible values: each count is between 0 and [MaxTokens], and the cached tokens are at most the input tokens.
func (u Usage) Clamped() Usage {
	u.InputTokens, u.OutputTokens = Tokens(u.InputTokens), Tokens(u.OutputTokens)
	u.CachedTokens = min(Tokens(u.CachedTokens), u.InputTokens)
	return u
}

// Add adds the usage of another request. Sums of counts that are not negative saturate at math.MaxInt. Names of other replace those of u
// unless they are empty.
func (u *Usage) Add(other Usage) {
	u.InputTokens = saturated(u.InputTokens, other.InputTokens)
	u.OutputTokens = saturated(u.OutputTokens, other.OutputTokens)
	u.CachedTokens = saturated(u.CachedTokens, other.CachedTokens)
	if other.Model != "" {
		u.Model, u.Provider = other.Model, other.Provider
	}
}

func saturated(a, b int) int { return a + min(b, math.MaxInt-a) }
