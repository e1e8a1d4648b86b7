package gateway

import (
	"context"
	"net/http"
	"sync"
	"time"

	"laneway/internal/gateway/auth"
	"laneway/internal/gateway/fault"
)

// heldRequests are the HTTP requests that have shown a credential, until their handler returns: their contexts end with it. The zero value is ready. It is safe
// for concurrent use.
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

// track gives a request a context that [heldRequests.endAll] can end.
func (h *heldRequests) track(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, end := context.WithCancelCause(r.Context())
		defer end(nil)
		held := &heldRequest{end: end}
		defer h.forget(held)
		next.ServeHTTP(w, r.WithContext(context.WithValue(ctx, heldKey{}, held)))
	})
}

// show notes the credential of a request.
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

// some reports whether there is a request.
func (h *heldRequests) some() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.all) > 0
}

// endAll ends the requests whose credential is not in force any more.
func (h *heldRequests) endAll(now time.Time, inForce func(auth.Credential) bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for held := range h.all {
		if !inForce(held.cred) {
			held.end(errEnded(held.cred, now))
		}
	}
}

// errEnded is the end of what a credential had begun that has expired, or was revoked or changed.
func errEnded(c auth.Credential, now time.Time) *fault.Error {
	text := "credential was revoked"
	if c.Expired(now) {
		text = "credential has expired"
	}
	return fault.Invalid(text).WithStatus(http.StatusUnauthorized)
}
