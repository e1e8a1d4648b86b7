package config

import (
	"fmt"
	"log/slog"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"laneway/internal/secret"
)

// mappedBits is the length of ::ffff:0:0/96, the IPv6 form of every IPv4 address.
const mappedBits = 96

// parsePrefix parses an address or a network. The IPv6 form of an IPv4 address or network is
// converted to IPv4.
func parsePrefix(s string) (netip.Prefix, error) {
	if !strings.Contains(s, "/") {
		ip, err := netip.ParseAddr(s)
		if err != nil {
			return netip.Prefix{}, err
		}
		ip = ip.Unmap()
		return ip.Prefix(ip.BitLen())
	}
	p, err := netip.ParsePrefix(s)
	if err == nil && p.Addr().Is4In6() && p.Bits() >= mappedBits {
		return p.Addr().Unmap().Prefix(p.Bits() - mappedBits)
	}
	return p, err
}

// everyPublicAddress reports whether networks together contain every public address of IPv4 or of
// IPv6, alone or with the networks that contain no public address. It returns the entries that do
// so, or nil.
func everyPublicAddress(list []netip.Prefix) []netip.Prefix {
	parse := func(texts ...string) (all []netip.Prefix) {
		for _, t := range texts {
			all = append(all, netip.MustParsePrefix(t))
		}
		return all
	}
	four, six := []netip.Prefix{}, []netip.Prefix{}
	for _, p := range list {
		switch {
		case p.Addr().Is4():
			four = append(four, p.Masked())
		default:
			six = append(six, p.Masked())
		}
	}
	notPublic := parse("0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.168.0.0/16", "224.0.0.0/3")
	switch {
	case covers(netip.MustParsePrefix("0.0.0.0/0"), append(notPublic, four...)):
		return four
	case covers(netip.MustParsePrefix("2000::/3"), six): // all routed addresses
		return six
	}
	return nil
}

// covers reports whether the union of networks contains every address of space.
func covers(space netip.Prefix, list []netip.Prefix) bool {
	slices.SortFunc(list, func(a, b netip.Prefix) int { return a.Addr().Compare(b.Addr()) })
	next, end := space.Addr(), lastOf(space)
	for _, p := range list {
		if next.Less(p.Addr()) {
			return false
		}
		last := lastOf(p)
		if last.Less(next) {
			continue
		}
		if !last.Less(end) {
			return true
		}
		next = last.Next()
	}
	return false
}

// lastOf returns the last address of a network.
func lastOf(p netip.Prefix) netip.Addr {
	raw := p.Masked().Addr().AsSlice()
	for bit := p.Bits(); bit < len(raw)*8; bit++ {
		raw[bit/8] |= 0x80 >> (bit % 8)
	}
	last, _ := netip.AddrFromSlice(raw) // it has the length of an address
	return last
}

// numericHost parses a host like the C library: one to four numbers, decimal, octal (0…) or
// hexadecimal (0x…), the last of which fills the remaining bytes of the address. numeric is true
// for every host that ends in a number. ip is invalid when such a host is not an address.
func numericHost(host string) (ip netip.Addr, numeric bool) {
	parts := strings.Split(strings.TrimSuffix(host, "."), ".")
	if _, err := parseNumber(parts[len(parts)-1]); err != nil {
		return netip.Addr{}, false
	}
	if len(parts) > 4 {
		return netip.Addr{}, true
	}
	var value uint64
	for i, part := range parts {
		n, err := parseNumber(part)
		bits := 8
		if i == len(parts)-1 {
			bits = 8 * (4 - i)
		}
		if err != nil || n >= 1<<bits {
			return netip.Addr{}, true
		}
		value = value<<bits | n
	}
	return netip.AddrFrom4([4]byte{byte(value >> 24), byte(value >> 16), byte(value >> 8), byte(value)}), true
}

// parseNumber parses a number of such a host.
func parseNumber(s string) (uint64, error) {
	lower := strings.ToLower(s)
	if hex, is := strings.CutPrefix(lower, "0x"); is {
		if hex == "" {
			return 0, nil
		}
		return strconv.ParseUint(hex, 16, 64)
	}
	if len(lower) > 1 && lower[0] == '0' {
		return strconv.ParseUint(lower, 8, 64)
	}
	return strconv.ParseUint(lower, 10, 64)
}

// reach is the kind of network over which a host is reached.
type reach int

const (
	reachLocal   reach = iota // this machine: loopback, or a socket in the file system
	reachPrivate              // a private network
	reachPublic               // everything else
)

// hostReach classifies a host by its name alone. It resolves no name: the answer of a name server
// does not prove that the path is private, and a start must not wait for it. A name with dots is
// public unless its suffix is reserved for private use. A name without dots resolves only in the
// local network (`db`, `postgres`).
func hostReach(host string) reach {
	if host == "" || strings.HasPrefix(host, "/") || strings.HasPrefix(host, "@") || loopbackHost(host) {
		return reachLocal
	}
	ip, err := netip.ParseAddr(host)
	if err != nil {
		var numeric bool
		if ip, numeric = numericHost(host); numeric && !ip.IsValid() {
			return reachPublic
		}
	}
	if ip.IsValid() {
		return addrReach(ip.Unmap())
	}
	name := strings.TrimSuffix(strings.ToLower(host), ".")
	if !strings.Contains(name, ".") {
		return reachPrivate
	}
	for _, suffix := range []string{".localhost", ".local", ".internal", ".lan", ".home.arpa", ".svc", ".cluster.local", ".test"} {
		if strings.HasSuffix(name, suffix) {
			return reachPrivate
		}
	}
	return reachPublic
}

func addrReach(ip netip.Addr) reach {
	switch {
	case ip.IsLoopback():
		return reachLocal
	case ip.IsPrivate(), ip.IsLinkLocalUnicast():
		return reachPrivate
	default:
		return reachPublic
	}
}

// DatabaseURL is the address of the store: `sqlite:PATH` or `postgres://…`. It may contain a
// password and prints without it. The zero value means SQLite in the data directory.
type DatabaseURL struct{ text secret.Secret }

// Reveal returns the address as given, with its password.
func (d DatabaseURL) Reveal() string { return d.text.Reveal() }

// IsSet reports whether an address was given.
func (d DatabaseURL) IsSet() bool { return d.text.IsSet() }

// SQLitePath returns the path of an SQLite address; ok is false for every other address.
func (d DatabaseURL) SQLitePath() (path string, ok bool) {
	return strings.CutPrefix(d.Reveal(), "sqlite:")
}

// IsPostgres reports whether the address names a PostgreSQL database.
func (d DatabaseURL) IsPostgres() bool {
	raw := d.Reveal()
	return strings.HasPrefix(raw, "postgres://") || strings.HasPrefix(raw, "postgresql://")
}

// HasPassword reports whether the address contains a password.
func (d DatabaseURL) HasPassword() bool { return d.password().IsSet() }

func (d DatabaseURL) password() secret.Secret {
	u, err := d.parse()
	if err != nil {
		return secret.Secret{}
	}
	if password, given := u.User.Password(); given {
		return secret.New(password)
	}
	return secret.New(u.Query().Get("password"))
}

// String returns the address with its password replaced by [secret.Redacted]. An address that
// cannot be parsed is redacted as a whole.
func (d DatabaseURL) String() string {
	raw := d.Reveal()
	if !d.IsPostgres() {
		if strings.HasPrefix(raw, "sqlite:") || raw == "" {
			return raw
		}
		return secret.Redacted
	}
	u, err := d.parse()
	if err != nil {
		return secret.Redacted
	}
	return secret.URL(u)
}

// GoString returns the same as String.
func (d DatabaseURL) GoString() string { return d.String() }

// Format writes String for every verb.
func (d DatabaseURL) Format(f fmt.State, _ rune) {
	_, _ = f.Write([]byte(d.String())) // the writer keeps its own error
}

// LogValue returns the string of String.
func (d DatabaseURL) LogValue() slog.Value { return slog.StringValue(d.String()) }

// MarshalText returns the string of String.
func (d DatabaseURL) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// MarshalYAML returns the string of String.
func (d DatabaseURL) MarshalYAML() (any, error) { return d.String(), nil }

// UnmarshalText parses an address; blank text is refused.
func (d *DatabaseURL) UnmarshalText(text []byte) error { return d.text.UnmarshalText(text) }

// parse hides the error of net/url, which would contain the address and its password.
func (d DatabaseURL) parse() (*url.URL, error) {
	if !d.IsPostgres() {
		return nil, errNoPostgres
	}
	u, err := url.Parse(d.Reveal())
	if err != nil {
		return nil, errDatabaseURL
	}
	return u, nil
}
