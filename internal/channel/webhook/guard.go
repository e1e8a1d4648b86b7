package webhook

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"syscall"

	"laneway/internal/chat"
)

// errRefused is the guard's refusal of an address. It is final: the same URL is refused again.
var errRefused = errors.New("the address is not a public one")

// notPublic are the special ranges of IPv4: this network, private, shared (CGNAT), loopback, link-local with the metadata services,
// protocol assignments, documentation, 6to4 relays, benchmarks, multicast, reserved and broadcast.
func notPublic() []netip.Prefix {
	var list []netip.Prefix
	for _, s := range []string{
		"0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.0.0.0/24", "192.0.2.0/24",
		"192.88.99.0/24", "192.168.0.0/16", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4",
		// Inside 2000::/3, the only part of IPv6 that is public: special assignments with Teredo, documentation, 6to4.
		"2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20",
	} {
		list = append(list, netip.MustParsePrefix(s))
	}
	return list
}

// Public reports whether an address belongs to the public internet. IPv6 forms of an IPv4 address (mapped, compatible, NAT64, 6to4, Teredo) are not
// public, whatever address they contain: a public host needs none of them.
func Public(addr netip.Addr) bool {
	if !addr.IsValid() || addr.Zone() != "" {
		return false
	}
	if addr.Is6() && !netip.MustParsePrefix("2000::/3").Contains(addr) {
		return false
	}
	return !slices.ContainsFunc(notPublic(), func(p netip.Prefix) bool { return p.Contains(addr) })
}

// guard decides where a connection may go.
type guard struct {
	allowed []string
	lookup  func(ctx context.Context, host string) ([]netip.Addr, error)
	// dial connects to an address and port; trusted means that the address is not checked again.
	dial func(ctx context.Context, network, address string, trusted bool) (net.Conn, error)
}

func (g guard) trusts(host string) bool {
	return slices.ContainsFunc(g.allowed, func(a string) bool { return strings.EqualFold(a, strings.TrimSuffix(host, ".")) })
}

// Check refuses a URL to which no delivery can ever succeed, judging by the URL alone: names are resolved with each delivery. Errors are *chat.Error.
func (c *Channel) Check(raw string) error {
	_, err := c.guard.check(raw)
	return err
}

func (g guard) check(raw string) (*url.URL, error) {
	u, err := url.Parse(raw)
	switch {
	case err != nil, u.Scheme != "http" && u.Scheme != "https", u.Hostname() == "", u.Opaque != "":
		return nil, refuse("a webhook needs an http or https URL with a host")
	case u.User != nil:
		return nil, refuse("the URL of a webhook must not contain a user name or password")
	case len(raw) > maxURL:
		return nil, refuse("the URL of a webhook has at most %d characters", maxURL)
	case g.trusts(u.Hostname()):
		return u, nil
	case strings.EqualFold(strings.TrimSuffix(u.Hostname(), "."), "localhost"):
		return nil, refuse("webhooks to %s are not allowed; the operator can allow the host", chat.Cut(u.Hostname(), 100))
	}
	if addr, err := netip.ParseAddr(u.Hostname()); err == nil && !Public(addr) {
		return nil, refuse("webhooks to %s are not allowed; the operator can allow the host", chat.Cut(u.Hostname(), 100))
	}
	return u, nil
}

func refuse(format string, args ...any) error { return chat.Errorf(chat.CodeInvalid, format, args...) }

// connect resolves a host once and dials one of its addresses. It refuses the host when one address is not public: a name with both kinds is an attack
// or a mistake.
func (g guard) connect(ctx context.Context, network, address string) (net.Conn, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, fmt.Errorf("reading the address: %w", err)
	}
	addrs, err := g.lookup(ctx, host)
	if err != nil {
		return nil, fmt.Errorf("looking up the host: %w", err)
	}
	trusted := g.trusts(host)
	if !trusted && slices.ContainsFunc(addrs, func(a netip.Addr) bool { return !Public(a) }) {
		return nil, errRefused
	}
	err = errors.New("the host has no address")
	for _, a := range addrs {
		var conn net.Conn
		if conn, err = g.dial(ctx, network, net.JoinHostPort(a.String(), port), trusted); err == nil {
			return conn, nil
		}
	}
	return nil, fmt.Errorf("connecting: %w", err)
}

// dial checks the address once more when the socket is about to connect.
func dial(ctx context.Context, network, address string, trusted bool) (net.Conn, error) {
	d := net.Dialer{Timeout: Timeout / 2}
	if !trusted {
		d.Control = checkSocket
	}
	return d.DialContext(ctx, network, address)
}

func checkSocket(_, address string, _ syscall.RawConn) error {
	at, err := netip.ParseAddrPort(address)
	if err != nil || !Public(at.Addr()) {
		return errRefused
	}
	return nil
}

// resolve uses the system's resolver. It unmaps IPv4 addresses: here the resolver has mapped them into IPv6, and not the author of the URL.
func resolve(ctx context.Context, host string) ([]netip.Addr, error) {
	addrs, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	for i := range addrs {
		addrs[i] = addrs[i].Unmap()
	}
	return addrs, err
}
