package client

import (
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"syscall"
	"time"

	"github.com/gorilla/websocket"

	"laneway/internal/wire"
)

// The kinds of connection errors, for errors.Is.
var (
	// ErrNoGateway: no program answers at the address, or the program is no gateway.
	ErrNoGateway = errors.New("no gateway")
	// ErrUnauthorized: the token is missing, wrong, revoked, or the address is locked out.
	ErrUnauthorized = errors.New("not authorized")
	// ErrVersion: client and gateway have no protocol version in common.
	ErrVersion = errors.New("no common protocol version")
	// ErrPlain: the token would cross a network unencrypted.
	ErrPlain = errors.New("unencrypted connection")
	// ErrUntrusted: the server's certificate does not prove that it is the gateway of this address. The token was not sent.
	ErrUntrusted = errors.New("certificate not trusted")
	// ErrClosed: the connection was lost or closed. The call may have taken effect; repeat it with the same idempotencyKey.
	ErrClosed = errors.New("connection closed")
	// ErrProtocol: the server sends something that is not a frame of the protocol. Connecting again does not help.
	ErrProtocol = errors.New("not a gateway, or one of another version")
	// ErrUnavailable: the gateway exists and cannot serve now (starting, stopping, too many connections).
	ErrUnavailable = errors.New("gateway unavailable")
)

// Error is a refusal of the gateway.
type Error struct {
	// Code is INVALID_REQUEST, FORBIDDEN or UNAVAILABLE. DetailCode is the detail code, or "".
	Code, DetailCode string
	Message          string
	Details          map[string]any
	// Retryable is true when nothing was done and the same call may succeed after RetryAfter.
	Retryable  bool
	RetryAfter time.Duration
}

// Error returns the gateway's sentence.
func (e *Error) Error() string { return e.Message }

// refusal returns the error of a frame.
func refusal(w *wire.Error) *Error {
	return &Error{
		Code: w.Code, DetailCode: w.DetailCode(), Message: w.Message, Details: w.Details, Retryable: w.Retryable,
		RetryAfter: time.Duration(w.RetryAfterMs) * time.Millisecond,
	}
}

// refusedError is a refused connect in one sentence with what to do. Its kind is a sentinel of this package. errors.As finds the answer of
// the gateway, which the sentence does not repeat.
type refusedError struct {
	kind   error
	advice string
	answer *Error
}

// Error returns the kind and the advice.
func (r *refusedError) Error() string { return r.kind.Error() + ": " + r.advice }

// Unwrap returns the kind and the gateway's refusal.
func (r *refusedError) Unwrap() []error { return []error{r.kind, r.answer} }

// connectError maps a refused connect to the sentinels.
func connectError(e *Error) error {
	switch e.DetailCode {
	case wire.DetailTokenMissing:
		return &refusedError{ErrUnauthorized, "the gateway wants a token; give --token or LANEWAY_TOKEN", e}
	case wire.DetailTokenMismatch, wire.DetailPasswordMismatch:
		return &refusedError{ErrUnauthorized, "the token is not the gateway's; check --token, LANEWAY_TOKEN or the token file", e}
	case wire.DetailAuthRateLimited:
		return &refusedError{ErrUnauthorized, "too many wrong tokens from here; wait " + e.RetryAfter.Round(time.Second).String(), e}
	case wire.DetailProtocolMismatch:
		return &refusedError{ErrVersion, "update laneway on the older side", e}
	}
	if e.Code == wire.CodeUnavailable {
		return fmt.Errorf("%w: try again in a moment: %w", ErrUnavailable, e)
	}
	return fmt.Errorf("connecting: %w", e)
}

// dialError explains why no socket was opened.
func dialError(address string, resp *http.Response, err error) error {
	if bad, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return fmt.Errorf("%w at %s: use the name that its certificate has, or put the certificate of its authority into SSL_CERT_FILE: %w", ErrUntrusted, address, bad.Err)
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) {
		return fmt.Errorf("%w: try again in a moment: what listens at %s closed the connection before it answered", ErrUnavailable, address)
	}
	if resp == nil || !errors.Is(err, websocket.ErrBadHandshake) {
		return fmt.Errorf("%w at %s: is it running? start it with: laneway serve: %w", ErrNoGateway, address, err)
	}
	var body struct {
		Error *wire.Error `json:"error"`
	}
	data, _ := io.ReadAll(io.LimitReader(resp.Body, 4096)) //nolint:errcheck // the status suffices
	if json.Unmarshal(data, &body) != nil || body.Error == nil {
		return fmt.Errorf("%w at %s: something else answers there (HTTP %d)", ErrNoGateway, address, resp.StatusCode)
	}
	refused := refusal(body.Error)
	switch resp.StatusCode {
	case http.StatusServiceUnavailable:
		return fmt.Errorf("%w: try again in a moment: %w", ErrUnavailable, refused)
	case http.StatusMisdirectedRequest:
		return fmt.Errorf("the gateway at %s does not know itself by this name; add it to LANEWAY_ALLOWED_HOSTS: %w", address, refused)
	default:
		return fmt.Errorf("opening %s: HTTP %d: %w", address, resp.StatusCode, refused)
	}
}
