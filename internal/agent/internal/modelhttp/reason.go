package modelhttp

import (
	"net/http"
	"strings"

	"laneway/internal/chat"
)

// statusOverloaded is sent by Anthropic in addition to 503.
const statusOverloaded = 529

// reasonFor classifies a refusal: first by words that are more specific than the status, then by the status.
func reasonFor(refusal StatusError) chat.FailReason {
	if outOfCredit(refusal) {
		return chat.FailRateLimit
	}
	if refusal.Status < http.StatusInternalServerError && tooLong(refusal) {
		return chat.FailContextLength
	}
	if refusal.Status != 0 {
		return reasonForStatus(refusal.Status)
	}
	return reasonForKind(refusal.Kind + " " + refusal.Code)
}

func reasonForStatus(status int) chat.FailReason {
	switch {
	case status == http.StatusTooManyRequests:
		return chat.FailRateLimit
	case status == http.StatusServiceUnavailable, status == statusOverloaded:
		return chat.FailOverloaded
	case status == http.StatusUnauthorized, status == http.StatusForbidden, status == http.StatusProxyAuthRequired:
		return chat.FailAuth
	case status == http.StatusRequestEntityTooLarge:
		return chat.FailContextLength
	case status == http.StatusRequestTimeout, status >= http.StatusInternalServerError:
		return chat.FailServer
	case status >= http.StatusBadRequest:
		return chat.FailBadRequest
	default: // 1xx, other 2xx, and redirects, which are not followed
		return chat.FailBadResponse
	}
}

// reasonForKind classifies an error inside a stream, which has no status. Without a known word it is a server error,
// because the server had accepted the request.
func reasonForKind(words string) chat.FailReason {
	for _, known := range []struct {
		word   string
		reason chat.FailReason
	}{
		{"overloaded", chat.FailOverloaded},
		{"rate_limit", chat.FailRateLimit},
		{"authentication", chat.FailAuth},
		{"permission", chat.FailAuth},
		{"request_too_large", chat.FailContextLength},
		{"not_found", chat.FailBadRequest},
		{"invalid_request", chat.FailBadRequest},
		{"content_filter", chat.FailRefusal},
	} {
		if strings.Contains(words, known.word) {
			return known.reason
		}
	}
	return chat.FailServer
}

// tooLong reports whether a refusal states that the input does not fit: by a fixed sign, or by words for the input, for tokens or a length, and for more
// than fits, in one sentence.
func tooLong(refusal StatusError) bool {
	words := strings.ToLower(refusal.Code + " " + refusal.Kind + " " + refusal.Message)
	if strings.Contains(words, "rate limit") || strings.Contains(words, "per minute") || strings.Contains(words, "per day") || strings.Contains(words, "quota") {
		return false
	}
	if containsAny(words, "context_length", "context length", "context window", "context size", "exceed_context", "context limit", "maximum context",
		"model token limit", "request_too_large", "request too large", "string_above_max_length", "reduce the length of the messages", "too many tokens in",
		"too many total text bytes", "truncated prompt") {
		return true
	}
	about := containsAny(words, "prompt", "input", "messages", "conversation", "request contains", "context")
	measured := containsAny(words, "token", "length", "too long", "too large", "range of input")
	beyond := containsAny(words, "exceed", "too long", "too large", "too many", "maximum", "at most", "must be <=", "greater than", "longer than", "should be [",
		"larger than", "limit of", "does not fit", "doesn't fit", "more than", "over the limit")
	return about && measured && beyond && !isOutput(words)
}

// isOutput reports a sentence about the bound of the answer, which is a parameter of the request: "max_tokens: 9000 > 8192", "supports at most 4096
// completion tokens".
func isOutput(words string) bool {
	return containsAny(words, "completion tokens", "output tokens", "max_output_tokens", "max_completion_tokens", "stop sequence", "tool_call", "function name") &&
		!containsAny(words, "prompt", "input token", "input length")
}

func containsAny(words string, signs ...string) bool {
	for _, sign := range signs {
		if strings.Contains(words, sign) {
			return true
		}
	}
	return false
}

// outOfCredit recognises refusals that look like a rate limit but do not end by waiting.
func outOfCredit(refusal StatusError) bool {
	return refusal.Status == http.StatusPaymentRequired || refusal.Code == "insufficient_quota" || refusal.Kind == "insufficient_quota" ||
		refusal.Kind == "billing_error"
}
