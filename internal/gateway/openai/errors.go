package openai

import (
	"net/http"
	"strings"

	"laneway/internal/chat"
	"laneway/internal/gateway/fault"
	"laneway/internal/gateway/httpbody"
)

// errorBody is an error in the form of OpenAI.
type errorBody struct {
	Error apiError `json:"error"`
}

type apiError struct {
	Message string  `json:"message"`
	Type    string  `json:"type"`
	Code    *string `json:"code"`
	Param   *string `json:"param"`
}

// Codes that are not the lower-case form of a code of the core.
const (
	codeModelNotFound = "model_not_found"
	codeRunTimeout    = "run_timeout"
	codeRunCancelled  = "run_cancelled"
)

func errorOf(status int, e *fault.Error) apiError {
	f := apiError{Message: e.Message, Type: typeOf(status)}
	if code, ok := e.Details["code"].(string); ok {
		code = codeOf(code)
		f.Code = &code
	}
	if param, ok := e.Details["param"].(string); ok {
		f.Param = &param
	}
	return f
}

func typeOf(status int) string {
	switch {
	case status == http.StatusUnauthorized:
		return "authentication_error"
	case status == http.StatusForbidden:
		return "permission_error"
	case status == http.StatusTooManyRequests:
		return "rate_limit_error"
	case status >= http.StatusInternalServerError:
		return "server_error"
	default:
		return "invalid_request_error"
	}
}

func codeOf(code string) string {
	switch chat.Code(code) {
	case chat.CodeUnknownAgent:
		return codeModelNotFound
	case chat.CodeQueueDropped:
		return "queue_full"
	default:
		return strings.ToLower(code)
	}
}

// WriteError answers with an error. Client libraries repeat a request automatically for many statuses. When the turn has run, a header
// forbids that, because a second turn is a second effect.
func WriteError(w http.ResponseWriter, status int, e *fault.Error) {
	if !e.Retryable {
		w.Header().Set("X-Should-Retry", "false")
	}
	httpbody.SetRetryAfter(w.Header(), status, e)
	httpbody.WriteJSON(w, status, errorBody{errorOf(status, e)})
}
