package config

import (
	"net/netip"
	"strings"
)

// reach is how far away a host is.
type reach int

const (
	reachLocal   reach = iota // this machine: loopback, or a socket in the file system
	reachPrivate              // a network of our own
	reachPublic               // everything else
)

// hostReach judges a host by its name alone. No name is resolved: the answer of a name server is no proof of a private way,
// and a start must not wait for one. A name with dots is public unless it ends in one of the suffixes that are reserved for
// private use; a name without dots can only be resolved on the own network (`db`, `postgres`).
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
