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

// httpServices implements what the handlers of completions and hooks need of the server.
type httpServices struct {
	*lifecycle
	*reporter

	auth    *auth.Authenticator
	policy  *auth.RequestPolicy
	backend Backend

	inFlight *inflight.Limiter
	held     heldRequests
}

// Share returns the requests in flight of a principal; own: it sees only its own sessions.
func (h *httpServices) Share(principal string, own bool) *inflight.Share {
	return h.inFlight.Of(principal, own)
}

// Bearer identifies the client of a request, whose context ends with the credential. It answers a refused request itself.
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

// MayUse returns an error for a session that the principal may not write into.
func (h *httpServices) MayUse(ctx context.Context, cred auth.Credential, key chat.SessionKey) error {
	return conversation.MayUse(ctx, h.backend, cred, key)
}

// Verified records whether the caller of a hook was authenticated.
func (h *httpServices) Verified(r *http.Request, ok bool) {
	if !ok {
		h.observer.AuthFailed("hook")
		return
	}
	socket.Authenticated(r)
}
