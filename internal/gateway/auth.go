package gateway

import (
	"context"
	"log/slog"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	"laneway/internal/gateway/fault"

	"github.com/gorilla/websocket"
)

// authFault is a failed authentication, in the words of the protocol.
type authFault struct{ code, reason, message string }

func authFaultOf(a connectAuth) authFault {
	switch {
	case a.Token != "":
		return authFault{"AUTH_TOKEN_MISMATCH", "token_mismatch", "unauthorized: gateway token mismatch"}
	case a.Password != "":
		return authFault{"AUTH_PASSWORD_MISMATCH", "password_mismatch", "unauthorized: gateway password mismatch"}
	default:
		return authFault{"AUTH_TOKEN_MISSING", "token_missing", "unauthorized: gateway token missing"}
	}
}

func (f authFault) wire() *fault.Error {
	w := fault.Invalid(f.message)
	w.Details = map[string]any{
		"code": f.code, "authReason": f.reason, "canRetryWithDeviceToken": false, "recommendedNextStep": "update_auth_credentials",
	}
	return w
}

func lockedOut(left time.Duration) *fault.Error {
	w := fault.Unavailable("AUTH_RATE_LIMITED", "too many failed authentication attempts", left)
	w.Details["recommendedNextStep"] = "wait_then_retry"
	return w
}

// authenticate decides who a client is. The address comes first: a locked address is refused with the right secret as well.
func (s *Server) authenticate(ctx context.Context, a connectAuth, addr netip.Addr) (Credential, *refusal) {
	cred, w := s.identify(ctx, a, addr)
	if w != nil {
		return cred, &refusal{w, websocket.ClosePolicyViolation}
	}
	return cred, nil
}

func (s *Server) identify(ctx context.Context, a connectAuth, addr netip.Addr) (Credential, *fault.Error) {
	now := time.Now()
	if left := s.locks.lockedFor(addr, now); left > 0 {
		s.observer.AuthFailed("locked")
		return Credential{}, lockedOut(left)
	}
	secret := a.Token
	if secret == "" {
		secret = a.Password
	}
	cred, ok := s.keys.verify(secret, now)
	if ok {
		return cred, nil
	}
	fault := authFaultOf(a)
	label := "mismatch"
	if secret == "" { // no guess: any page can make the operator's browser send it, so it must lock no address out
		label = "missing"
	} else {
		s.locks.fail(addr, now)
		s.rejected.note(addr, fault.code, now)
	}
	s.observer.AuthFailed(label)
	s.warnings.Do(func() {
		s.log.WarnContext(ctx, "authentication failed", slog.String("addr", addr.String()), slog.String("reason", fault.reason))
	})
	return Credential{}, fault.wire()
}

// bearer authenticates an HTTP request and asks for a scope of the credential. On failure the answer is written.
func (s *Server) bearer(w http.ResponseWriter, r *http.Request, scope string) (Credential, bool) {
	secret, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !ok {
		secret = ""
	}
	cred, refused := s.identify(r.Context(), connectAuth{Token: strings.TrimSpace(secret)}, s.clientAddr(r))
	switch {
	case refused != nil && refused.Code == fault.CodeUnavailable:
		refuse(w, r, http.StatusTooManyRequests, refused)
	case refused != nil:
		w.Header().Set("WWW-Authenticate", "Bearer")
		refuse(w, r, http.StatusUnauthorized, refused)
	case levelOf(cred.Scopes) < scopeLevel(scope):
		refuse(w, r, http.StatusForbidden, fault.MissingScope(scope))
	default:
		proven(r)
		return cred, true
	}
	return cred, false
}

// clientAddr is the TCP peer, or what trusted proxies say: the rightmost address that is not one of them. Anything further left
// was written by the client.
func (s *Server) clientAddr(r *http.Request) netip.Addr {
	addr := peerAddr(r)
	if !s.trusted(addr) {
		return addr
	}
	hops := strings.Split(strings.Join(r.Header.Values("X-Forwarded-For"), ","), ",")
	for _, text := range slices.Backward(hops) {
		hop, ok := parseHop(text)
		if !ok {
			return addr
		}
		addr = hop
		if !s.trusted(hop) {
			return hop
		}
	}
	return addr
}

func parseHop(s string) (netip.Addr, bool) {
	s = strings.TrimSpace(s)
	if a, err := netip.ParseAddr(s); err == nil {
		return a.Unmap(), true
	}
	if ap, err := netip.ParseAddrPort(s); err == nil {
		return ap.Addr().Unmap(), true
	}
	return netip.Addr{}, false
}

func peerAddr(r *http.Request) netip.Addr {
	ap, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return netip.Addr{}
	}
	return ap.Addr().Unmap()
}

func (s *Server) trusted(a netip.Addr) bool {
	for _, p := range s.cfg.TrustedProxies {
		if p.Contains(a) {
			return true
		}
	}
	return false
}
