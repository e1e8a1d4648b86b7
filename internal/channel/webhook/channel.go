package webhook

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
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
	// AllowedHosts may be reached although their addresses are not public. Host names or literal addresses without a port.
	AllowedHosts []string
	// Secret signs each request; "" means unsigned requests. Token is sent as a bearer token over https, and over http to allowed hosts only; "" if
	// none.
	Secret, Token string
	// Lookup resolves a host and Dial connects to an address and port; nil means the system's resolver, and a dialer that checks the address once more.
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
	// Without keep-alive each delivery resolves and checks its own address. A nil Proxy ignores the proxies of the environment.
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
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, maxBody)) //nolint:errcheck // the status counts
	_ = resp.Body.Close()                                          // the status has been read
	return chat.Sent{ProviderID: "http-" + strconv.Itoa(resp.StatusCode)}, judge(resp)
}

// request builds the POST. The idempotency key is the same for all attempts.
func (c *Channel) request(ctx context.Context, u *url.URL, r chat.Reply) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, u.String(), strings.NewReader(r.Text))
	if err != nil {
		return nil, errors.New("the request cannot be made") // without the URL
	}
	key := r.RunID
	if key == "" {
		key = r.ID
	}
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

// failed classifies an attempt without an answer. Its cause is a new error: an error of net/http quotes the URL, which may contain a key.
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

// retryAfter returns the wait of the header Retry-After, 0 if none. The form with a date is ignored: it would need synchronized clocks.
func retryAfter(resp *http.Response) time.Duration {
	n, err := strconv.ParseInt(resp.Header.Get("Retry-After"), 10, 32)
	if err != nil || n <= 0 {
		return 0
	}
	return min(time.Duration(n)*time.Second, maxRetryAfter)
}
