package config

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// mappedBits is the length of ::ffff:0:0/96, the IPv6 form of every IPv4 address.
const mappedBits = 96

// parsePrefix parses an address or a network. The IPv6 form of an IPv4 address or network is converted to IPv4.
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

// everyPublicAddress reports whether networks together contain every public address of IPv4 or of IPv6, alone or with the networks that
// contain no public address. It returns the entries that do so, or nil.
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

// numericHost parses a host like the C library: one to four numbers, decimal, octal (0…) or hexadecimal (0x…), the last of which fills the
// remaining bytes of the address. numeric is true for every host that ends in a number. ip is invalid when such a host is not an address.
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
