package config

import (
	"net/netip"
	"strings"
)

// reach is the kind of network over which a host is reached.
type reach int

const (
	reachLocal   reach = iota // this machine: loopback, or a socket in the file system
	reachPrivate              // a private network
	reachPublic               // everything else
)

// hostReach classifies a host by its name alone. It resolves no name: the answer of a name server does not prove that the path is private,
// and a start must not wait for it. A name with dots is public unless its suffix is reserved for private use. A name without dots resolves
// only in the local network (`db`, `postgres`).
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
