package gateway

import (
	"context"
	"net/http"
	"sync"
	"time"

	"laneway/internal/gateway/auth"
	"laneway/internal/gateway/fault"
)

// heldRequests are the authenticated HTTP requests whose handlers are running, with the functions that cancel them. The zero value is ready
// to use. It is safe for concurrent use.
type heldRequests struct {
	mu  sync.Mutex
	all map[*heldRequest]struct{}
}

// heldRequest is one request with its credential.
type heldRequest struct {
	cred auth.Credential
	end  context.CancelCauseFunc
}

type heldKey struct{}

// track gives a request a context that [heldRequests.endAll] can cancel.
func (h *heldRequests) track(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, end := context.WithCancelCause(r.Context())
		defer end(nil)
		held := &heldRequest{end: end}
		defer h.forget(held)
		next.ServeHTTP(w, r.WithContext(context.WithValue(ctx, heldKey{}, held)))
	})
}

// show records the credential of a request.
func (h *heldRequests) show(r *http.Request, cred auth.Credential) {
	held, ok := r.Context().Value(heldKey{}).(*heldRequest)
	if !ok {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.all == nil {
		h.all = map[*heldRequest]struct{}{}
	}
	held.cred = cred
	h.all[held] = struct{}{}
}

func (h *heldRequests) forget(held *heldRequest) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.all, held)
}

// some reports whether there is any request.
func (h *heldRequests) some() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.all) > 0
}

// endAll cancels the requests whose credential is no longer valid.
func (h *heldRequests) endAll(now time.Time, inForce func(auth.Credential) bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for held := range h.all {
		if !inForce(held.cred) {
			held.end(errEnded(held.cred, now))
		}
	}
}

// errEnded is the error for work that ends because its credential has expired, or was revoked or changed.
func errEnded(c auth.Credential, now time.Time) *fault.Error {
	text := "credential was revoked"
	if c.Expired(now) {
		text = "credential has expired"
	}
	return fault.Invalid(text).WithStatus(http.StatusUnauthorized)
}
