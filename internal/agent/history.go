package agent

import (
	"unicode/utf8"

	"laneway/internal/chat"
)

// entryOverhead is what a message costs besides its text (role, separators); providers count 3 to 5.
const entryOverhead = 6

// EstimateTokens guesses how many tokens a text has where no provider reported it. It errs high: a token of English is about
// four bytes, of other scripts one to two characters, so the larger of bytes/3 and characters/2 is taken.
func EstimateTokens(text string) int {
	byBytes := (len(text) + 2) / 3
	byRunes := (utf8.RuneCountInString(text) + 1) / 2
	return max(byBytes, byRunes)
}

// EstimateEntry is the estimate of one transcript line. It is of the same kind for every line, so that a [Ratio] fits the whole; what a provider counted for an
// answer includes thoughts that are not sent again.
func EstimateEntry(e chat.TranscriptEntry) int { return EstimateTokens(e.Text) + entryOverhead }

// CutHistory keeps the newest entries that fit into budget tokens, oldest first. It never begins with an answer whose
// question was cut off. A summary in front of the others stays while it fits alone. A budget <= 0 keeps nothing.
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
	for start > 0 && start < len(history) && history[start].Role == chat.RoleAssistant {
		start++
	}
	return history[start:]
}
