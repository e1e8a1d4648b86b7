// Package webhook is a channel that only sends: each reply is one POST to a URL that a person or an
// agent has chosen.
//
// # The guard
//
// Such a URL makes this host connect to an address that another person has chosen. So every
// connection passes one guard ([Channel.Check] and the dialer): http and https only, no user name
// in the URL, no proxy of the environment, no redirects. The name is resolved once, all of its
// addresses must be public, and the connection is made to a checked address, without another
// lookup. DNS rebinding therefore has no effect. The socket is checked once more before it
// connects. Hosts on the operator's list may have any address. [Public] defines which addresses are
// refused.
//
// # The request
//
// A POST proves its sender when a secret is configured: the header of package signature, made for
// each attempt. It carries `Idempotency-Key`, the same for every attempt, so that a receiver can
// recognize a second one; this is why an attempt without an answer may be repeated. 2xx is
// delivered. The outbox repeats an attempt after 408, 425, 429, 5xx or no answer; every other
// answer is final. At most a mebibyte of an answer is read and dropped.
//
// The package starts no goroutine and keeps no state between two attempts.
package webhook

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"laneway/internal/channel"
	"laneway/internal/chat"
	"laneway/internal/signature"
)

// Name is the channel's name in targets; the chat of a target is the URL.
const Name = channel.Webhook

// Bounds.
const (
	// Timeout of one attempt, from the lookup of the name to the end of the answer.
	Timeout = 10 * time.Second
	// maxURL is the longest URL, in bytes.
	maxURL = 2048
	// maxBody bounds what is sent and what is read of the answer, in bytes.
	maxBody = 1 << 20
	// maxRetryAfter bounds the wait that a receiver can ask for.
	maxRetryAfter = time.Hour
)

// Reasons of failed attempts; the set is closed.
const (
	ReasonAddress  = "bad_address" // the URL can never work, or its address is not allowed
	ReasonNetwork  = "network"
	ReasonTimeout  = "timeout"
	ReasonRedirect = "redirect"
	ReasonRefused  = "refused" // 4xx
	ReasonLimited  = "rate_limited"
	ReasonServer   = "server_error"
	ReasonTooLarge = "too_large"
)

// Config of the channel. The zero value sends to public hosts, unsigned.
type Config struct {
	// AllowedHosts may be reached although their addresses are not public. Host names or literal
	// addresses without a port.
	AllowedHosts []string
	// Secret signs each request; "" means unsigned requests. Token is sent as a bearer token over
	// https, and over http to allowed hosts only; "" if none.
	Secret, Token string
	// Lookup resolves a host and Dial connects to an address and port; nil means the system's
	// resolver, and a dialer that checks the address once more.
	Lookup func(ctx context.Context, host string) ([]netip.Addr, error)
	// trusted is true when the host is on the list.
	Dial func(ctx context.Context, network, address string, trusted bool) (net.Conn, error)
}

// String prints the configuration without its secrets.
func (c Config) String() string {
	return "webhook.Config{hosts: " + strings.Join(c.AllowedHosts, " ") + "}"
}

// GoString returns String for %#v.
func (c Config) GoString() string { return c.String() }

// LogValue returns String for structured logs.
func (c Config) LogValue() slog.Value { return slog.StringValue(c.String()) }

// Channel posts to URLs. Make it with New; it is safe for concurrent use.
type Channel struct {
	secret, token string
	guard         guard
	client        *http.Client
	transport     *http.Transport
	running       atomic.Bool
}

var _ channel.Channel = (*Channel)(nil)

// New makes a channel. It opens no connection.
func New(cfg Config) *Channel {
	if cfg.Lookup == nil {
		cfg.Lookup = resolve
	}
	if cfg.Dial == nil {
		cfg.Dial = dial
	}
	c := &Channel{secret: cfg.Secret, token: cfg.Token, guard: guard{allowed: cfg.AllowedHosts, lookup: cfg.Lookup, dial: cfg.Dial}}
	// Without keep-alive each delivery resolves and checks its own address. A nil Proxy ignores the
	// proxies of the environment.
	c.transport = &http.Transport{
		DialContext: c.guard.connect, DisableKeepAlives: true, TLSHandshakeTimeout: Timeout / 2, MaxResponseHeaderBytes: 64 << 10,
	}
	c.client = &http.Client{Transport: c.transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	return c
}

// Name returns "webhook".
func (*Channel) Name() string { return Name }

// Run receives nothing; it returns when ctx is done.
func (c *Channel) Run(ctx context.Context, _ channel.Receiver) error {
	c.running.Store(true)
	defer c.running.Store(false)
	<-ctx.Done()
	c.transport.CloseIdleConnections()
	return nil
}

// Status reports connected while the channel runs: each delivery opens its own connection.
func (c *Channel) Status() channel.Status {
	s := channel.Status{Configured: true, Running: c.running.Load(), State: "stopped", Mode: "outgoing", LastPollAge: -1}
	if s.Running {
		s.Connected, s.State = true, "connected"
	}
	return s
}

// Send makes one attempt. The receipt is the status of the answer.
func (c *Channel) Send(ctx context.Context, r chat.Reply, claim channel.Claim) (chat.Sent, error) {
	if r.Target.Channel != Name {
		return chat.Sent{}, &channel.SendError{Reason: ReasonAddress, Permanent: true}
	}
	u, err := c.guard.check(r.Target.ChatID)
	if err != nil {
		return chat.Sent{}, &channel.SendError{Reason: ReasonAddress, Permanent: true, Cause: err}
	}
	if len(r.Text) > maxBody {
		return chat.Sent{}, &channel.SendError{Reason: ReasonTooLarge, Permanent: true}
	}
	ctx, cancel := context.WithTimeoutCause(ctx, Timeout, errors.New("the webhook took too long"))
	defer cancel()
	req, err := c.request(ctx, u, r)
	if err != nil {
		return chat.Sent{}, &channel.SendError{Reason: ReasonAddress, Permanent: true}
	}
	if err := claim.Check(); err != nil {
		return chat.Sent{}, err
	}
	resp, err := c.client.Do(req)
	if err != nil {
		return chat.Sent{}, failed(ctx, err)
	}
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, maxBody)) // the status counts
	_ = resp.Body.Close()                                          // the status has been read
	return chat.Sent{ProviderID: "http-" + strconv.Itoa(resp.StatusCode)}, judge(resp)
}

// request builds the POST. The idempotency key is the same for all attempts.
func (c *Channel) request(ctx context.Context, u *url.URL, r chat.Reply) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, u.String(), strings.NewReader(r.Text))
	if err != nil {
		return nil, errors.New("the request cannot be made") // without the URL
	}
	key := cmp.Or(r.RunID, r.ID)
	h := req.Header
	h.Set("Content-Type", "application/json")
	h.Set("User-Agent", "laneway")
	h.Set("Idempotency-Key", key)
	h.Set("X-Laneway-Attempt", strconv.Itoa(r.Attempt))
	if c.secret != "" {
		h.Set(signature.Header, signature.Sign(c.secret, time.Now(), []byte(r.Text)))
	}
	if c.token != "" && (u.Scheme == "https" || c.guard.trusts(u.Hostname())) {
		h.Set("Authorization", "Bearer "+c.token)
	}
	return req, nil
}

// failed classifies an attempt without an answer. Its cause is a new error: an error of net/http
// quotes the URL, which may contain a key.
func failed(ctx context.Context, err error) error {
	out := &channel.SendError{Reason: ReasonNetwork, Cause: errors.New("the connection failed")}
	var dns *net.DNSError
	switch {
	case errors.Is(err, errRefused):
		out.Reason, out.Permanent, out.Cause = ReasonAddress, true, errRefused
	case ctx.Err() != nil:
		out.Reason, out.Cause = ReasonTimeout, context.Cause(ctx)
	case errors.As(err, &dns):
		out.Cause = errors.New("the host is not known")
	}
	return out
}

// judge classifies an answer; nil means delivered.
func judge(resp *http.Response) error {
	out := &channel.SendError{Cause: errors.New("the receiver answered " + strconv.Itoa(resp.StatusCode))}
	switch code := resp.StatusCode; {
	case code >= 200 && code < 300:
		return nil
	case code >= 300 && code < 400:
		out.Reason, out.Permanent = ReasonRedirect, true
	case code == http.StatusTooManyRequests:
		out.Reason, out.RetryAfter = ReasonLimited, retryAfter(resp)
	case code == http.StatusRequestTimeout, code == http.StatusTooEarly:
		out.Reason = ReasonServer
	case code >= 500:
		out.Reason, out.RetryAfter = ReasonServer, retryAfter(resp)
	default:
		out.Reason, out.Permanent = ReasonRefused, true
	}
	return out
}

// retryAfter returns the wait of the header Retry-After, 0 if none. The form with a date is
// ignored: it would need synchronized clocks.
func retryAfter(resp *http.Response) time.Duration {
	n, err := strconv.ParseInt(resp.Header.Get("Retry-After"), 10, 32)
	if err != nil || n <= 0 {
		return 0
	}
	return min(time.Duration(n)*time.Second, maxRetryAfter)
}

// errRefused is the guard's refusal of an address. It is final: the same URL is refused again.
var errRefused = errors.New("the address is not a public one")

// notPublic are the special ranges of IPv4: this network, private, shared (CGNAT), loopback,
// link-local with the metadata services, protocol assignments, documentation, 6to4 relays,
// benchmarks, multicast, reserved and broadcast.
func notPublic() []netip.Prefix {
	var list []netip.Prefix
	for _, s := range []string{
		"0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.0.0.0/24", "192.0.2.0/24",
		"192.88.99.0/24", "192.168.0.0/16", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4",
		// Inside 2000::/3, the only part of IPv6 that is public: special assignments with Teredo,
		// documentation, 6to4.
		"2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20",
	} {
		list = append(list, netip.MustParsePrefix(s))
	}
	return list
}

// Public reports whether an address belongs to the public internet. IPv6 forms of an IPv4 address
// (mapped, compatible, NAT64, 6to4, Teredo) are not public, whatever address they contain: a public
// host needs none of them.
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

// Check refuses a URL to which no delivery can ever succeed, judging by the URL alone: names are
// resolved with each delivery. Errors are *chat.Error.
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

// connect resolves a host once and dials one of its addresses. It refuses the host when one address
// is not public: a name with both kinds is an attack or a mistake.
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

// resolve uses the system's resolver. It unmaps IPv4 addresses: here the resolver has mapped them
// into IPv6, and not the author of the URL.
func resolve(ctx context.Context, host string) ([]netip.Addr, error) {
	addrs, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	for i := range addrs {
		addrs[i] = addrs[i].Unmap()
	}
	return addrs, err
}
