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

// tooLong reports whether a refusal states that the input does not fit.
func tooLong(refusal StatusError) bool {
	words := strings.ToLower(refusal.Code + " " + refusal.Kind + " " + refusal.Message)
	for _, sign := range []string{
		"context_length", "context length", "context window", "context size", "exceed_context", "prompt is too long",
		"maximum context", "input is too long", "too many tokens in",
	} {
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
