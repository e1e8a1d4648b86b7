package config

import (
	"net"
	"net/url"
	"strings"
)

// database requires a verified certificate when PostgreSQL is reached over a public network.
func (p *preflight) database() {
	if p.loaded.Source("database").Kind == SourceFlag && p.cfg.Database.HasPassword() {
		p.warn("arguments are visible to all users; use LANEWAY_DATABASE_URL or PGPASSFILE")
	}
	u, err := p.cfg.Database.parse()
	if err != nil {
		return
	}
	if by := p.serviceBy(u); by != "" {
		p.refuse("database: %s would take host and sslmode from a service file, which is not read here; name the host in the URL", by)
		return
	}
	if p.sslMode(u) == "verify-full" {
		return
	}
	for _, host := range p.databaseHosts(u) {
		switch hostReach(host) {
		case reachPublic:
			p.refuse("database: sslmode=verify-full is needed for %s", host)
		case reachPrivate:
			p.warn("database: the server %s is not verified; use sslmode=verify-full", host)
		case reachLocal:
		}
	}
}

// serviceBy returns the source of a connection service name, or "". Host and sslmode then come from the service file, which this package
// does not read.
func (p *preflight) serviceBy(u *url.URL) string {
	if service := u.Query().Get("service"); service != "" {
		return "service=" + service
	}
	if service, _ := p.loaded.env("PGSERVICE"); service != "" {
		return "PGSERVICE"
	}
	return ""
}

func (p *preflight) sslMode(u *url.URL) string {
	if mode := u.Query().Get("sslmode"); mode != "" {
		return mode
	}
	mode, _ := p.loaded.env("PGSSLMODE")
	return mode
}

// databaseHosts returns the hosts of the address. There may be several, separated by commas, in the query or in PGHOST.
func (p *preflight) databaseHosts(u *url.URL) []string {
	list := u.Host
	if query := u.Query().Get("host"); query != "" {
		list = query
	}
	if list == "" {
		list, _ = p.loaded.env("PGHOST")
	}
	var hosts []string
	for entry := range strings.SplitSeq(list, ",") {
		if host, _, err := net.SplitHostPort(entry); err == nil {
			entry = host
		}
		hosts = append(hosts, strings.Trim(entry, "[]"))
	}
	return hosts
}
