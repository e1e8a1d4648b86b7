// Package httpbody reads the bodies of HTTP requests within limits, and writes the JSON answers of
// the gateway.
//
// A body has a maximum size and a time in which it must arrive. Without that time, a client could
// keep a connection for ever by sending the body of a refused request one byte at a time. A refused
// body keeps its deadline, so that the HTTP server does not wait for the rest; a complete body
// lifts it for answers that take long.
//
// The package keeps no state and starts no goroutine. It has no routes: errors below /v1 have the
// form of package openai.
package httpbody

import (
	"errors"
	"io"
	"mime"
	"net/http"
	"strconv"
	"time"

	"laneway/internal/gateway/fault"
	"laneway/internal/gateway/strictjson"
)

// Read reads a body of at most limit bytes that must arrive within the given time. Its errors are
// of type [*fault.Error].
func Read(w http.ResponseWriter, r *http.Request, limit int64, within time.Duration) ([]byte, error) {
	SetReadDeadline(w, within)
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, limit))
	if _, over := errors.AsType[*http.MaxBytesError](err); over {
		return nil, fault.Invalid("the body is too large").WithStatus(http.StatusRequestEntityTooLarge)
	}
	if err != nil {
		return nil, fault.Invalid("the body did not arrive")
	}
	SetReadDeadline(w, 0)
	return body, nil
}

// SetReadDeadline limits the reads of a request from now on; 0 lifts the limit.
func SetReadDeadline(w http.ResponseWriter, within time.Duration) {
	at := time.Time{}
	if within != 0 {
		at = time.Now().Add(within)
	}
	_ = http.NewResponseController(w).SetReadDeadline(at) // only the writers of tests have no deadlines
}

// IsJSON reports whether the body is declared as JSON.
func IsJSON(r *http.Request) bool {
	kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	return err == nil && kind == "application/json"
}

// errorBody is an error outside of /v1.
type errorBody struct {
	OK    bool         `json:"ok"`
	Error *fault.Error `json:"error"`
}

// WriteError answers with an error in the gateway's own form.
func WriteError(w http.ResponseWriter, status int, e *fault.Error) {
	SetRetryAfter(w.Header(), status, e)
	WriteJSON(w, status, errorBody{Error: e})
}

// SetRetryAfter sets Retry-After, in whole seconds of at least 1, when the error or the status asks
// the client to retry.
func SetRetryAfter(h http.Header, status int, e *fault.Error) {
	if e.RetryAfterMs > 0 || status == http.StatusServiceUnavailable || status == http.StatusTooManyRequests {
		h.Set("Retry-After", strconv.FormatInt(max(1, (e.RetryAfterMs+999)/1000), 10))
	}
}

// WriteJSON answers with a body that must not be cached.
func WriteJSON(w http.ResponseWriter, status int, body any) {
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = w.Write(append(strictjson.Encode(body), '\n')) // it fails only when the client is gone
}
