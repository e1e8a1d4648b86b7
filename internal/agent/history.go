package agent

import (
	"strings"
	"unicode/utf8"

	"laneway/internal/chat"
)

// entryOverhead is the cost of a message besides its text (role, separators); providers count 3 to 5.
const entryOverhead = 6

// EstimateTokens estimates the number of tokens in text. It errs high: a token of English is about
// four bytes, of other scripts one to two characters, so the larger of bytes/3 and characters/2 is taken.
func EstimateTokens(text string) int {
	byBytes := (len(text) + 2) / 3
	byRunes := (utf8.RuneCountInString(text) + 1) / 2
	return max(byBytes, byRunes)
}

// EstimateEntry returns the estimate of one transcript entry. It does not use what a provider counted for an answer: that includes thoughts that are
// not sent again, and one [Ratio] must fit all entries.
func EstimateEntry(e chat.TranscriptEntry) int {
	n := EstimateTokens(e.Text) + entryOverhead
	if e.Origin != nil { // it is quoted below a line that names the origin
		n += EstimateTokens(e.Origin.Who()) + 2*entryOverhead + strings.Count(e.Text, "\n")
	}
	return n
}

// CutHistory returns the newest entries that fit into budget tokens, oldest first. The result never begins with an
// answer whose question was cut off. A summary before the other entries is kept if it fits alone. A budget <= 0 keeps
// nothing.
func CutHistory(history []chat.TranscriptEntry, budget int) []chat.TranscriptEntry {
	if len(history) > 0 && history[0].Covers.To > 0 {
		if left := budget - EstimateEntry(history[0]); left >= 0 {
			return append(history[:1:1], CutHistory(history[1:], left)...)
		}
	}
	start := len(history)
	for start > 0 {
		cost := EstimateEntry(history[start-1])
		if cost > budget {
			break
		}
		budget -= cost
		start--
	}
	for start > 0 && start < len(history) && history[start].Role == chat.RoleAssistant && history[start].Origin == nil {
		start++
	}
	return history[start:]
}
