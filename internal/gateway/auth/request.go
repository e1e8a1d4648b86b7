package auth

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"

	"laneway/internal/gateway/fault"
	"laneway/internal/gateway/httpbody"
	"laneway/internal/wire"
)

// PolicyConfig of a [RequestPolicy].
type PolicyConfig struct {
	// AllowedHosts are additional host names (without port) of this gateway. AllowedOrigins are
	// exact origins of foreign pages that may connect, such as `https://chat.example.org`.
	AllowedHosts   []string
	AllowedOrigins []string
	// TrustedProxies may state the address and scheme of a client in X-Forwarded-For and
	// X-Forwarded-Proto.
	TrustedProxies []netip.Prefix
}

// RequestPolicy checks the headers of a request, before and independently of its credential. It is
// safe for concurrent use.
type RequestPolicy struct {
	cfg   PolicyConfig
	hosts atomic.Pointer[map[string]bool] // accepted host names
}

// NewRequestPolicy reports all faults of the configuration.
func NewRequestPolicy(cfg PolicyConfig) (*RequestPolicy, error) {
	var faults []error
	for _, o := range cfg.AllowedOrigins {
		faults = append(faults, checkOrigin(o))
	}
	for _, p := range cfg.TrustedProxies {
		if p.Bits() == 0 {
			faults = append(faults, fmt.Errorf("trusted proxy %s trusts every address", p))
		}
	}
	p := &RequestPolicy{cfg: cfg}
	p.Bind()
	return p, errors.Join(faults...)
}

func checkOrigin(o string) error {
	u, err := url.Parse(o)
	exact := err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != "" &&
		!strings.Contains(u.Host, "*") && o == u.Scheme+"://"+u.Host
	if !exact {
		return fmt.Errorf("allowed origin %q is not an exact origin such as https://chat.example.org", o)
	}
	return nil
}

// Bind accepts the addresses of these listeners as host names, in addition to those of the
// configuration and of this machine.
func (p *RequestPolicy) Bind(listeners ...net.Listener) {
	hosts := hostsOf(p.cfg.AllowedHosts, listeners...)
	p.hosts.Store(&hosts)
}

// CheckHost prevents DNS rebinding: a foreign name that resolves to this address is not accepted.
func (p *RequestPolicy) CheckHost(r *http.Request) *fault.Error {
	if (*p.hosts.Load())[hostOnly(r.Host)] {
		return nil
	}
	return unknownHost()
}

func unknownHost() *fault.Error {
	return fault.Invalid("unknown host; add it to the allowed hosts if it is yours").WithStatus(http.StatusMisdirectedRequest)
}

// hostsOf returns the accepted host names: those of this machine, the listed ones, and the
// addresses of the listeners.
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

// CheckOrigin refuses pages of other sites, and sets the response headers that depend on the
// origin. Programs send no Origin; they need a credential like every caller. A browser sends no
// Origin for an image or a link either, but it states whether the page belongs to another site.
func (p *RequestPolicy) CheckOrigin(answer http.Header, r *http.Request) *fault.Error {
	answer.Add("Vary", "Sec-Fetch-Site")
	answer.Add("Vary", "Origin") // even without an Origin: a cache must not serve that response to a page
	origins := r.Header.Values("Origin")
	switch {
	case len(origins) == 0 && !crossSite(r):
		return nil
	case len(origins) == 0:
		return foreignSite()
	case len(origins) == 1 && slices.Contains(p.cfg.AllowedOrigins, origins[0]):
		answer.Set("Access-Control-Allow-Origin", origins[0])
		answer.Set("Access-Control-Expose-Headers", "X-Laneway-Run-Id, X-Should-Retry, Retry-After")
		return nil
	case len(origins) == 1 && sameOrigin(origins[0], p.scheme(r), r.Host):
		return nil
	default:
		return fault.New(wire.CodeForbidden, "this origin is not allowed")
	}
}

// crossSite reports whether a browser states that a page of another site made the request. Programs
// do not send that header, and pages cannot suppress it.
func crossSite(r *http.Request) bool {
	return slices.ContainsFunc(r.Header.Values("Sec-Fetch-Site"), func(site string) bool { return strings.EqualFold(strings.TrimSpace(site), "cross-site") })
}

func foreignSite() *fault.Error {
	return fault.New(wire.CodeForbidden, "a page of another site asked for this; open the address yourself")
}

func (p *RequestPolicy) scheme(r *http.Request) string {
	proto := strings.ToLower(strings.TrimSpace(r.Header.Get("X-Forwarded-Proto")))
	if proto == "https" && p.Trusted(peerAddr(r)) {
		return "https"
	}
	return "http"
}

func sameOrigin(origin, scheme, host string) bool {
	u, err := url.Parse(origin)
	if err != nil || u.Scheme != scheme || u.Path != "" || u.User != nil {
		return false
	}
	return withPort(u.Host, scheme) == withPort(host, scheme)
}

func withPort(host, scheme string) string {
	if _, _, err := net.SplitHostPort(host); err == nil {
		return strings.ToLower(host)
	}
	port := "80"
	if scheme == "https" {
		port = "443"
	}
	return net.JoinHostPort(hostOnly(host), port)
}

func hostOnly(host string) string {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	return strings.ToLower(strings.Trim(host, "[]"))
}

// ClientAddr returns the TCP peer, or the address that trusted proxies report: the rightmost
// address that is not one of them. The client itself may have written the addresses further left.
func (p *RequestPolicy) ClientAddr(r *http.Request) netip.Addr {
	addr := peerAddr(r)
	if !p.Trusted(addr) {
		return addr
	}
	hops := strings.Split(strings.Join(r.Header.Values("X-Forwarded-For"), ","), ",")
	for _, text := range slices.Backward(hops) {
		hop, ok := parseHop(text)
		if !ok {
			return addr
		}
		addr = hop
		if !p.Trusted(hop) {
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

// Trusted reports whether an address belongs to a trusted proxy.
func (p *RequestPolicy) Trusted(a netip.Addr) bool {
	return slices.ContainsFunc(p.cfg.TrustedProxies, func(proxy netip.Prefix) bool { return proxy.Contains(a) })
}

// ProtectLocal protects a listener for local programs, which requires no credential, from web pages
// in a browser on this machine. A request is refused with 421 when its host name is not local, not
// bound by l and not in allowed (DNS rebinding). Requests of pages of other origins are refused
// with 403.
func ProtectLocal(next http.Handler, allowed []string, l net.Listener) http.Handler {
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
