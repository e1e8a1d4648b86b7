package wire

import "laneway/internal/chat"

// The codes of an [Error].
const (
	CodeInvalid     = "INVALID_REQUEST" // the request must be changed before it can succeed
	CodeForbidden   = "FORBIDDEN"       // the connection lacks the permission
	CodeUnavailable = "UNAVAILABLE"     // the same request may succeed later
)

// Error is the refusal of a request.
type Error struct {
	Code         string         `json:"code" rule:"enum=INVALID_REQUEST|FORBIDDEN|UNAVAILABLE"` // what kind of refusal it is
	Message      string         `json:"message"`                                                // one sentence for a person
	Details      map[string]any `json:"details,omitempty"`                                      // values for programs; code is the detail code in the table of errors
	Retryable    bool           `json:"retryable,omitempty"`                                    // nothing was done, and the same request may succeed later
	RetryAfterMs int64          `json:"retryAfterMs,omitempty"`                                 // when to try again, in milliseconds from now
}

// DetailCode returns the detail code, or "".
func (e *Error) DetailCode() string {
	code, _ := e.Details["code"].(string) //nolint:errcheck // not every error has one
	return code
}

// The detail codes: the member code of the details of an error. The core declares the codes that it uses itself.
const (
	DetailTokenMissing       = "AUTH_TOKEN_MISSING"  //nolint:gosec // a code, no credential
	DetailTokenMismatch      = "AUTH_TOKEN_MISMATCH" //nolint:gosec // a code, no credential
	DetailPasswordMismatch   = "AUTH_PASSWORD_MISMATCH"
	DetailAuthRateLimited    = "AUTH_RATE_LIMITED"
	DetailRoleNotSupported   = "ROLE_NOT_SUPPORTED"
	DetailProtocolMismatch   = "PROTOCOL_MISMATCH"
	DetailTooManyConnections = "TOO_MANY_CONNECTIONS"
	DetailTooManyInFlight    = "TOO_MANY_IN_FLIGHT"
	DetailRequestTimeout     = "REQUEST_TIMEOUT"
	DetailMissingScope       = string(chat.CodeForbidden)
	DetailLimitExceeded      = string(chat.CodeLimit)
	DetailUnknownAgent       = string(chat.CodeUnknownAgent)
	DetailSessionNotFound    = string(chat.CodeSessionNotFound)
	DetailNotFound           = string(chat.CodeNotFound)
	DetailConflict           = string(chat.CodeConflict)
	DetailKeyReused          = string(chat.CodeKeyReused)
	DetailRateLimited        = string(chat.CodeRateLimited)
	DetailQueueFull          = string(chat.CodeQueueFull)
	DetailQueueDropped       = string(chat.CodeQueueDropped)
	DetailStale              = string(chat.CodeStale)
	DetailCleared            = string(chat.CodeCleared)
	DetailRunFailed          = string(chat.CodeRunFailed)
	DetailDraining           = string(chat.CodeDraining)
	DetailStoreUnavailable   = string(chat.CodeStoreUnavailable)
	DetailInternal           = string(chat.CodeInternal)
)
