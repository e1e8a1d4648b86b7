// Package fault has the errors of the gateway's protocol and the only conversion from errors of the
// core to such errors.
//
// # Ideas
//
// The protocol has three codes; details.code names the reason. An [Error] is complete: sockets send
// it unchanged, HTTP adds [Error.HTTPStatus]. [From] converts every error that a caller can act on
// to an Error. All others are defects: the caller receives a number, and the log has the error with
// this number.
//
// # What it does not do
//
// It writes and logs nothing. The table of methods, which has the limits of parameters, makes the
// errors about them. It keeps no state and starts no goroutine.
package fault

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"time"
	"unicode/utf8"

	"laneway/internal/chat"
	"laneway/internal/wire"
)

// body is the part of an error that clients see. With the alias, the name of the embedded field
// does not collide with the method Error.
type body = wire.Error

// Error is an error as clients see it, with an HTTP status.
type Error struct {
	body

	status int // if the code does not determine it
}

// New returns an error with a code of package wire and a sentence.
func New(code, message string) *Error { return &Error{body: body{Code: code, Message: message}} }

// WithStatus sets the HTTP status and returns e.
func (e *Error) WithStatus(status int) *Error {
	e.status = status
	return e
}

// Error returns the message.
func (e *Error) Error() string { return e.Message }

// Label returns the label for metrics: the detail code if there is one.
func (e *Error) Label() string {
	return cmp.Or(e.DetailCode(), e.Code)
}

// Invalid returns the error for a request that must be changed before it can succeed.
func Invalid(message string) *Error { return New(wire.CodeInvalid, message) }

// Unavailable returns the error for a request that may succeed unchanged, after retryAfter; 0 = the
// client decides when.
func Unavailable(code, message string, retryAfter time.Duration) *Error {
	return &Error{body: body{
		Code: wire.CodeUnavailable, Message: message, Details: map[string]any{"code": code}, Retryable: true, RetryAfterMs: retryAfter.Milliseconds(),
	}}
}

// MissingScope returns the error for a call that requires a scope which the caller does not have.
func MissingScope(scope string) *Error {
	return &Error{body: body{
		Code: wire.CodeForbidden, Message: "missing scope: " + scope,
		Details: map[string]any{"code": wire.DetailMissingScope, "missingScope": scope, "requiredScopes": []string{scope}},
	}}
}

// Draining returns the error for a call while this gateway is stopping.
func Draining() *Error {
	e := Unavailable(string(chat.CodeDraining), "gateway is draining", time.Second)
	e.Details["reason"] = "gateway-restarting"
	return e
}

// ErrRequestTimeout is the cause of a request's context when its time limit was exceeded.
var ErrRequestTimeout = errors.New("the request took too long")

// wireCode is the protocol form of a code of the core.
type wireCode struct {
	code  string
	bare  bool // details carry no code
	again time.Duration
}

// wireCodes maps the codes of the core; false = the code is not for clients.
func wireCodes(code chat.Code) (wireCode, bool) {
	switch code {
	case chat.CodeInvalid:
		return wireCode{code: wire.CodeInvalid, bare: true}, true
	case chat.CodeUnknownAgent, chat.CodeSessionNotFound, chat.CodeNotFound, chat.CodeConflict, chat.CodeKeyReused, chat.CodeLimit:
		return wireCode{code: wire.CodeInvalid}, true
	case chat.CodeForbidden:
		return wireCode{code: wire.CodeForbidden}, true
	case chat.CodeRateLimited, chat.CodeQueueFull, chat.CodeDraining, chat.CodeStoreUnavailable, chat.CodeFenced:
		return wireCode{code: wire.CodeUnavailable, again: time.Second}, true
	case chat.CodeQueueDropped, chat.CodeStale, chat.CodeCleared, chat.CodeRunFailed:
		return wireCode{code: wire.CodeUnavailable}, true
	default:
		return wireCode{}, false
	}
}

// From returns err as clients see it; ok is false when it is a defect, whose text clients must not
// see.
func From(err error) (*Error, bool) {
	if w, ok := errors.AsType[*Error](err); ok {
		return w, true
	}
	if errors.Is(err, ErrRequestTimeout) || errors.Is(err, context.DeadlineExceeded) {
		return Unavailable(wire.DetailRequestTimeout, "the request was not answered in time; send it again with the same idempotencyKey", 0), true
	}
	var e *chat.Error
	if !errors.As(err, &e) {
		return nil, false
	}
	rule, known := wireCodes(e.Code)
	if !known {
		return nil, false
	}
	return rule.render(e), true
}

func (rule wireCode) render(e *chat.Error) *Error {
	w := &Error{body: body{Code: rule.code, Message: e.Message, Retryable: rule.again > 0, RetryAfterMs: rule.again.Milliseconds()}}
	if e.RetryAfter > 0 {
		w.RetryAfterMs = e.RetryAfter.Milliseconds()
	}
	w.Message = cmp.Or(w.Message, string(e.Code))
	w.Details = maps.Clone(e.Details)
	if rule.bare {
		return w
	}
	if w.Details == nil {
		w.Details = map[string]any{}
	}
	w.Details["code"] = string(e.Code)
	switch e.Code {
	case chat.CodeDraining:
		w.Details["reason"] = "gateway-restarting"
	case chat.CodeFenced: // another process took over; the next attempt finds it
		w.Details["code"] = string(chat.CodeStoreUnavailable)
	default: // the two with a fixed look
	}
	return w
}

// HTTPStatus returns the status of an HTTP response: that of [Error.WithStatus], or the one of the
// code.
func (e *Error) HTTPStatus() int {
	if e.status != 0 {
		return e.status
	}
	switch chat.Code(e.Label()) {
	case chat.CodeRateLimited, chat.CodeQueueFull, chat.CodeQueueDropped, wire.DetailAuthRateLimited:
		return http.StatusTooManyRequests
	case chat.CodeUnknownAgent, chat.CodeSessionNotFound, chat.CodeNotFound:
		return http.StatusNotFound
	case chat.CodeKeyReused, chat.CodeConflict:
		return http.StatusConflict
	case chat.CodeRunFailed:
		return http.StatusBadGateway
	case chat.CodeInternal:
		return http.StatusInternalServerError
	default: // by the code of the frame
	}
	switch e.Code {
	case wire.CodeForbidden:
		return http.StatusForbidden
	case wire.CodeUnavailable:
		return http.StatusServiceUnavailable
	default:
		return http.StatusBadRequest
	}
}

// RateLimited returns the error for a call that exceeds an allowance of limit calls; after the
// duration after, one is available again.
func RateLimited(name string, limit int, after time.Duration) *Error {
	seconds := max(1, int64((after+time.Second-1)/time.Second))
	w := Unavailable(string(chat.CodeRateLimited), fmt.Sprintf("rate limit exceeded for %s; retry after %ds", CutName(name), seconds), after)
	w.RetryAfterMs = max(1, w.RetryAfterMs)
	w.Details["method"], w.Details["limit"] = CutName(name), limit
	return w
}

// Starting returns the error for a call while this gateway is not ready yet.
func Starting() *Error {
	return &Error{body: body{
		Code: wire.CodeUnavailable, Message: "gateway starting", Details: map[string]any{"reason": "startup-sidecars"}, Retryable: true, RetryAfterMs: 500,
	}}
}

// CutName cuts a name that a client chose to at most 64 bytes, for an error that quotes it.
func CutName(s string) string {
	if len(s) <= 64 {
		return s
	}
	n := 64
	for !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n] + "…"
}

// OfRun returns the error of a run that ended without an answer; nil = it has an answer, its own or
// that of the run into which its message was merged. admin: the caller is an administrator, who
// also sees the message of the agent's service.
func OfRun(end chat.RunEnd, admin bool) error {
	if end.Outcome == chat.OutcomeAnswered || end.Outcome == chat.OutcomeMerged {
		return nil
	}
	code, status := endCode(end)
	message := cmp.Or(end.Message, endSentence(end))
	if admin {
		message = WithDetail(message, end.Detail)
	}
	e := chat.Errorf(code, "%s", message).With("runId", chat.ShownRunID(end.RunID))
	if status != "" {
		e = e.With("status", status)
	}
	return e
}

// WithDetail returns a sentence with the message of the agent's service, for administrators. An
// empty detail adds nothing.
func WithDetail(message, detail string) string {
	if detail == "" {
		return message
	}
	return message + " Details: " + detail
}

func endCode(end chat.RunEnd) (code chat.Code, status string) {
	switch end.Outcome {
	case chat.OutcomeDropped:
		return chat.CodeQueueDropped, ""
	case chat.OutcomeStale:
		return chat.CodeStale, ""
	case chat.OutcomeInterrupted, chat.OutcomeDead:
		return chat.CodeRunFailed, "interrupted"
	case chat.OutcomeStopped, chat.OutcomeSuperseded:
		if end.Reason == "cleared" {
			return chat.CodeCleared, ""
		}
		return chat.CodeRunFailed, "cancelled"
	default: // outcomes with an answer do not come here
	}
	switch chat.FailReason(end.Reason) {
	case chat.FailBudget:
		return chat.CodeRateLimited, "budget"
	case chat.FailUnknownAgent:
		return chat.CodeUnknownAgent, "error"
	default: // all others are failures of the agent
	}
	if TurnTimedOut(end.Reason) {
		return chat.CodeRunFailed, "timeout"
	}
	return chat.CodeRunFailed, "error"
}

func endSentence(end chat.RunEnd) string {
	if end.Reason == "" {
		return "the run ended without an answer: " + string(end.Outcome)
	}
	return "the run ended without an answer: " + end.Reason
}

// TurnTimedOut reports whether a turn failed because it exceeded one of its time limits.
func TurnTimedOut(reason string) bool {
	switch chat.FailReason(reason) {
	case chat.FailTimeout, chat.FailFirstByte, chat.FailSilence:
		return true
	default:
		return false
	}
}
