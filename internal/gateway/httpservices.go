package gateway

import (
	"context"
	"net/http"

	"laneway/internal/chat"
	"laneway/internal/gateway/auth"
	"laneway/internal/gateway/conversation"
	"laneway/internal/gateway/inflight"
	"laneway/internal/gateway/socket"
)

// httpServices is what the handlers of completions and hooks need of the server.
type httpServices struct {
	*lifecycle
	*reporter

	auth    *auth.Authenticator
	policy  *auth.RequestPolicy
	backend Backend

	inFlight *inflight.Limiter
	held     heldRequests
}

// Share is what a principal has in flight; own: it sees its own sessions only.
func (h *httpServices) Share(principal string, own bool) *inflight.Share {
	return h.inFlight.Of(principal, own)
}

// Bearer identifies the client of a request, whose context ends with the credential. It answers a refused one itself.
func (h *httpServices) Bearer(w http.ResponseWriter, r *http.Request, scope string) (auth.Credential, bool) {
	cred, e := h.auth.Bearer(r, h.policy.ClientAddr(r), scope)
	if e == nil {
		socket.Authenticated(r)
		h.held.show(r, cred)
		return cred, true
	}
	if e.HTTPStatus() == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", "Bearer")
	}
	refuse(w, r, e)
	return cred, false
}

// MayUse refuses a session that the principal may not write into.
func (h *httpServices) MayUse(ctx context.Context, cred auth.Credential, key chat.SessionKey) error {
	return conversation.MayUse(ctx, h.backend, cred, key)
}

// Verified notes whether the caller of a hook has proven who it is.
func (h *httpServices) Verified(r *http.Request, ok bool) {
	if !ok {
		h.observer.AuthFailed("hook")
		return
	}
	socket.Authenticated(r)
}
