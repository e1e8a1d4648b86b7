package gateway

import (
	"context"
	"errors"
	"maps"
	"time"

	"laneway/internal/chat"
)

// The three codes of the wire.
const (
	codeInvalid     = "INVALID_REQUEST"
	codeForbidden   = "FORBIDDEN"
	codeUnavailable = "UNAVAILABLE"
)

// wireError is an error as clients see it.
type wireError struct {
	Code         string         `json:"code"`
	Message      string         `json:"message"`
	Details      map[string]any `json:"details,omitempty"`
	Retryable    bool           `json:"retryable,omitempty"`
	RetryAfterMs int64          `json:"retryAfterMs,omitempty"`
}

// Error is the message.
func (e *wireError) Error() string { return e.Message }

// label is what metrics call it: the finer code where there is one.
func (e *wireError) label() string {
	if code, ok := e.Details["code"].(string); ok {
		return code
	}
	return e.Code
}

func invalid(message string) *wireError { return &wireError{Code: codeInvalid, Message: message} }

func unavailable(code, message string, retryAfter time.Duration) *wireError {
	return &wireError{
		Code: codeUnavailable, Message: message, Details: map[string]any{"code": code},
		Retryable: true, RetryAfterMs: retryAfter.Milliseconds(),
	}
}

func badParams(method string, err error) *wireError {
	e := invalid("invalid " + method + " params: " + err.Error())
	var p *paramError
	if errors.As(err, &p) && p.over {
		e.Details = map[string]any{"code": string(chat.CodeLimit), "field": p.field, "limit": p.limit}
	}
	return e
}

func missingScope(scope string) *wireError {
	return &wireError{
		Code: codeForbidden, Message: "missing scope: " + scope,
		Details: map[string]any{"code": string(chat.CodeForbidden), "missingScope": scope, "requiredScopes": []string{scope}},
	}
}

func draining() *wireError {
	e := unavailable(string(chat.CodeDraining), "gateway is draining", time.Second)
	e.Details["reason"] = "gateway-restarting"
	return e
}

// errRequestTimeout is the cause of a request's context when its time is over.
var errRequestTimeout = errors.New("the request took too long")

// wireCode is how one code of the house looks outside.
type wireCode struct {
	code  string
	bare  bool // details carry no code
	again time.Duration
}

// wireCodes is the one place where codes become frames.
func wireCodes(code chat.Code) (wireCode, bool) {
	switch code {
	case chat.CodeInvalid:
		return wireCode{code: codeInvalid, bare: true}, true
	case chat.CodeUnknownAgent, chat.CodeSessionNotFound, chat.CodeNotFound, chat.CodeConflict, chat.CodeKeyReused, chat.CodeLimit:
		return wireCode{code: codeInvalid}, true
	case chat.CodeForbidden:
		return wireCode{code: codeForbidden}, true
	case chat.CodeRateLimited, chat.CodeQueueFull, chat.CodeDraining, chat.CodeStoreUnavailable, chat.CodeFenced:
		return wireCode{code: codeUnavailable, again: time.Second}, true
	case chat.CodeQueueDropped, chat.CodeStale, chat.CodeCleared, chat.CodeRunFailed:
		return wireCode{code: codeUnavailable}, true
	default:
		return wireCode{}, false
	}
}

// toWire shows err to a client; ok is false when it is a defect, of which a client learns nothing.
func toWire(err error) (*wireError, bool) {
	if w, ok := errors.AsType[*wireError](err); ok {
		return w, true
	}
	if errors.Is(err, errRequestTimeout) || errors.Is(err, context.DeadlineExceeded) {
		return unavailable("REQUEST_TIMEOUT", "the request was not answered in time; send it again with the same idempotencyKey", 0), true
	}
	var e *chat.Error
	if !errors.As(err, &e) {
		return nil, false
	}
	rule, known := wireCodes(e.Code)
	if !known {
		return nil, false
	}
	return e2wire(e, rule), true
}

func e2wire(e *chat.Error, rule wireCode) *wireError {
	w := &wireError{Code: rule.code, Message: e.Message, Retryable: rule.again > 0, RetryAfterMs: rule.again.Milliseconds()}
	if e.RetryAfter > 0 {
		w.RetryAfterMs = e.RetryAfter.Milliseconds()
	}
	if w.Message == "" {
		w.Message = string(e.Code)
	}
	w.Details = maps.Clone(e.Details)
	if rule.bare {
		return w
	}
	if w.Details == nil {
		w.Details = map[string]any{}
	}
	w.Details["code"] = string(e.Code)
	switch e.Code { //nolint:exhaustive // the two with a fixed look
	case chat.CodeDraining:
		w.Details["reason"] = "gateway-restarting"
	case chat.CodeFenced: // another process took over; the next try finds it
		w.Details["code"] = string(chat.CodeStoreUnavailable)
	}
	return w
}
