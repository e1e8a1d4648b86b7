package gateway

import (
	"net"
	"net/http"
	"slices"
	"strings"

	"laneway/internal/gateway/fault"
	"laneway/internal/gateway/httpbody"
)

// checkHost stops DNS rebinding: a foreign name that points to this address is not a name of ours.
func (s *Server) checkHost(w http.ResponseWriter, r *http.Request) bool {
	if (*s.hosts.Load())[hostOnly(r.Host)] {
		return true
	}
	refuse(w, r, http.StatusMisdirectedRequest, unknownHost())
	return false
}

func unknownHost() *fault.Error {
	return fault.Invalid("unknown host; add it to the allowed hosts if it is yours")
}

func (s *Server) setHosts(listeners []net.Listener) {
	hosts := hostsOf(s.cfg.AllowedHosts, listeners...)
	s.hosts.Store(&hosts)
}

// hostsOf are the names that a request may be addressed to: those of this machine, those that are listed, and the addresses that are bound.
func hostsOf(allowed []string, listeners ...net.Listener) map[string]bool {
	hosts := map[string]bool{"localhost": true, "127.0.0.1": true, "::1": true}
	for _, h := range allowed {
		hosts[hostOnly(h)] = true
	}
	for _, l := range listeners {
		if tcp, ok := l.Addr().(*net.TCPAddr); ok && !tcp.IP.IsUnspecified() {
			hosts[tcp.IP.String()] = true
		}
	}
	return hosts
}

// crossSite reports whether a browser says that a page of another site made the request. Programs do not say so; pages cannot hide it.
func crossSite(r *http.Request) bool {
	return slices.ContainsFunc(r.Header.Values("Sec-Fetch-Site"), func(site string) bool { return strings.EqualFold(strings.TrimSpace(site), "cross-site") })
}

func foreignSite() *fault.Error {
	return &fault.Error{Code: fault.CodeForbidden, Message: "a page of another site asked for this; open the address yourself"}
}

// Guard protects a listener for local programs, which asks for no credential, from pages in a browser on this machine: requests under a host name
// that is neither local, nor bound by l, nor in allowed get 421 (DNS rebinding), requests of pages of other origins 403.
func Guard(next http.Handler, allowed []string, l net.Listener) http.Handler {
	hosts := hostsOf(allowed, l)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch origins := r.Header.Values("Origin"); {
		case !hosts[hostOnly(r.Host)]:
			httpbody.WriteError(w, http.StatusMisdirectedRequest, unknownHost())
		case len(origins) > 1, len(origins) == 1 && !sameOrigin(origins[0], "http", r.Host), crossSite(r):
			httpbody.WriteError(w, http.StatusForbidden, foreignSite())
		default:
			next.ServeHTTP(w, r)
		}
	})
}
