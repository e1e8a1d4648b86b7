package gateway

import (
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"time"

	"laneway/internal/chat"
	"laneway/internal/gateway/auth"
	"laneway/internal/gateway/hook"
	"laneway/internal/gateway/inflight"
	"laneway/internal/gateway/mcp"
	"laneway/internal/gateway/socket"
)

// Bounds of the protocol. They are not configuration: clients rely on them.
const (
	// HandshakeLimit is the largest message before hello-ok, in bytes.
	HandshakeLimit = 65_536
	// MinPayload and MaxPayload bound Config.MaxPayload.
	MinPayload = 65_536
	MaxPayload = 26_214_400

	// TickEvery is the distance of `tick` events; clients give up after twice that silence.
	TickEvery = 30 * time.Second

	maxInFlight = 64 // requests of one connection
	maxControl  = 16 // places of their own for stopping and looking
	maxIDBytes  = 256
)

// Config of a [Server]. The zero value of every field is its default.
type Config struct {
	// Version is shown in hello-ok and status.
	Version string

	// Credentials give access as long as the gateway runs; see [auth.Credential]. Sources add those that come, change and go.
	Credentials []auth.Credential
	Sources     []auth.Source

	// AllowedHosts are further host names (without port) that a request may be addressed to. AllowedOrigins are exact origins of
	// foreign pages that may connect, such as `https://chat.example.org`.
	AllowedHosts   []string
	AllowedOrigins []string
	// TrustedProxies may state the address and scheme of a client in X-Forwarded-For and X-Forwarded-Proto.
	TrustedProxies []netip.Prefix

	// MaxPayload is the largest message after hello-ok in bytes, 65,536 to 26,214,400; default 1 MiB.
	MaxPayload int64
	// MaxBuffered is the send buffer of one connection in bytes; default 8 MiB.
	MaxBuffered int
	// MaxSockets open at once (10,000), of them MaxUnauthenticated not authenticated (512), MaxUnauthenticatedPerAddr from one address or IPv6 /64 (32),
	// MaxUnauthenticatedShared from loopback and from each of TrustedProxies (256; never less than MaxUnauthenticatedPerAddr), and MaxPerPrincipal of one
	// credential (1,000). At a limit of those that are not authenticated the oldest of them is closed. Connections that are no sockets are bounded as well:
	// all together by MaxSockets and 1,024 more, those of one address that have proven nothing by MaxUnauthenticatedPerAddr, except from loopback and
	// TrustedProxies.
	MaxSockets, MaxUnauthenticated, MaxUnauthenticatedPerAddr, MaxUnauthenticatedShared, MaxPerPrincipal int

	// Limits are the allowances a minute. RequestsPerSecond (200) is per connection; [auth.Off] = no limit.
	auth.Limits

	RequestsPerSecond int
	// Limiter counts what principals spend; nil = in this process. In a cluster it may be one that all replicas share.
	Limiter auth.Limiter

	// Deadlines; the zero value of each is the protocol's. Tests shorten them.
	Deadlines Deadlines
	// HoldConnects makes every connect be answered `gateway starting` until [Server.Ready] is called.
	HoldConnects bool
	// StopTimeout is how long Serve waits for connections when it ends; default 5 s.
	StopTimeout time.Duration

	// Hooks are the webhooks that become messages, by name; see [hook.Hook].
	Hooks map[string]hook.Hook

	// Webhooks take deliveries of networks, by path. Each of them proves its callers by itself, and is called under whatever host name the
	// network was given.
	Webhooks map[string]http.Handler

	// TurnTokens are the tokens with which the programs of running turns reach their tools at /mcp; nil = there are none.
	TurnTokens mcp.Turns
	// ToolServers are the MCP servers whose tools agents call, as they are now; nil = there are none.
	ToolServers func() []chat.ToolServer

	// Dashboard serves /dashboard and below; nil = off.
	Dashboard http.Handler
	// MetricsOnMain serves /metrics on the main listener to a read credential; nil = not there.
	MetricsOnMain http.Handler
	// Observer counts what happens; nil = nothing is counted.
	Observer Observer
}

// Deadlines of connections and requests. Zero values are the protocol's.
type Deadlines struct {
	Header     time.Duration // request line and headers: 10 s
	Connect    time.Duration // `connect` complete after the upgrade: 15 s
	Message    time.Duration // a started message complete: 30 s
	Request    time.Duration // a request answered: 25 s
	Write      time.Duration // one write to a socket, or of a piece of an HTTP answer: 10 s
	Ping, Pong time.Duration // a ping every 20 s, its pong 25 s after it
	Slow       time.Duration // the send buffer over its limit without a break: 5 s
	Close      time.Duration // to write a close frame and to see the peer's: 1 s
	Watch      time.Duration // distance at which health and credentials are looked at: 2 s
}

func orDuration(v, d time.Duration) time.Duration {
	if v > 0 {
		return v
	}
	return d
}

func orInt(v, d int) int {
	switch {
	case v == 0:
		return d
	case v < 0:
		return 0
	default:
		return v
	}
}

func (d Deadlines) withDefaults() Deadlines {
	return Deadlines{
		Header:  orDuration(d.Header, 10*time.Second),
		Connect: orDuration(d.Connect, 15*time.Second),
		Message: orDuration(d.Message, 30*time.Second),
		Request: orDuration(d.Request, 25*time.Second),
		Write:   orDuration(d.Write, 10*time.Second),
		Ping:    orDuration(d.Ping, 20*time.Second),
		Pong:    orDuration(d.Pong, 25*time.Second),
		Slow:    orDuration(d.Slow, 5*time.Second),
		Close:   orDuration(d.Close, time.Second),
		Watch:   orDuration(d.Watch, 2*time.Second),
	}
}

func (c Config) withDefaults() Config {
	if c.MaxPayload == 0 {
		c.MaxPayload = 1 << 20
	}
	c.MaxBuffered = orInt(c.MaxBuffered, 8<<20)
	c.MaxSockets = orInt(c.MaxSockets, 10_000)
	c.MaxUnauthenticated = orInt(c.MaxUnauthenticated, 512)
	c.MaxUnauthenticatedPerAddr = orInt(c.MaxUnauthenticatedPerAddr, 32)
	c.MaxUnauthenticatedShared = orInt(c.MaxUnauthenticatedShared, 256)
	c.MaxPerPrincipal = orInt(c.MaxPerPrincipal, 1_000)
	c.Limits = c.Limits.WithDefaults()
	c.RequestsPerSecond = orInt(c.RequestsPerSecond, 200)
	c.Deadlines = c.Deadlines.withDefaults()
	c.StopTimeout = orDuration(c.StopTimeout, 5*time.Second)
	if c.Observer == nil {
		c.Observer = NoObserver{}
	}
	if c.Limiter == nil {
		c.Limiter = auth.NewLimiter(c.Limits)
	}
	return c
}

// sockets is the configuration of WebSocket connections.
func (c Config) sockets() socket.Config {
	d := c.Deadlines
	return socket.Config{
		MaxHandshake: HandshakeLimit, MaxMessage: c.MaxPayload, ShortMessage: inflight.ShortMessage, MaxBuffered: c.MaxBuffered, FramesPerSecond: max(c.RequestsPerSecond, 0),
		TickEvery: TickEvery,
		Deadlines: socket.Deadlines{
			Handshake: d.Connect, Message: d.Message, Write: d.Write, Ping: d.Ping, Pong: d.Pong, Slow: d.Slow, Close: d.Close,
		},
	}
}

// Defaults is the configuration that stands for the zero value of every field.
func Defaults() Config { return Config{}.withDefaults() }

// check reports every fault of a configuration at once.
func (c Config) check() error {
	var faults []error
	if c.MaxPayload < MinPayload || c.MaxPayload > MaxPayload {
		faults = append(faults, fmt.Errorf("max payload %d is outside %d..%d", c.MaxPayload, MinPayload, MaxPayload))
	}
	return errors.Join(faults...)
}
