package gateway

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/netip"
	"reflect"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"laneway/internal/agent"
	"laneway/internal/chat"
	"laneway/internal/gateway/auth"
	"laneway/internal/gateway/conversation"
	"laneway/internal/gateway/hook"
	"laneway/internal/gateway/inflight"
	"laneway/internal/gateway/jobs"
	"laneway/internal/gateway/mcp"
	"laneway/internal/gateway/openai"
	"laneway/internal/gateway/pairing"
	"laneway/internal/gateway/rpc"
	"laneway/internal/gateway/socket"
	"laneway/internal/store"
	"laneway/internal/wire"
	"laneway/internal/wire/schema"
)

// Limits of the protocol. They are not configurable, because clients rely on them.
const (
	// HandshakeLimit is the largest message before hello-ok, in bytes.
	HandshakeLimit = 65_536
	// MinPayload and MaxPayload limit Config.MaxPayload.
	MinPayload = 65_536
	MaxPayload = 26_214_400

	// TickEvery is the interval of `tick` events. A client disconnects after twice that time
	// without one.
	TickEvery = 30 * time.Second

	maxInFlight = 64 // requests of one connection
	maxControl  = 16 // separate places for control methods
	maxIDBytes  = 256
)

// Config of a [Server]. The zero value of every field is its default.
type Config struct {
	// Version is shown in hello-ok and status.
	Version string

	// Credentials are valid for the life of the process; see [auth.Credential]. Sources provide
	// those that change.
	Credentials []auth.Credential
	Sources     []auth.Source

	// AllowedHosts are additional host names (without port) of this gateway. AllowedOrigins are
	// exact origins of foreign pages that may connect, such as `https://chat.example.org`.
	AllowedHosts   []string
	AllowedOrigins []string
	// TrustedProxies may state the address and scheme of a client in X-Forwarded-For and
	// X-Forwarded-Proto.
	TrustedProxies []netip.Prefix

	// MaxPayload is the largest message after hello-ok in bytes, 65,536 to 26,214,400; default 1
	// MiB.
	MaxPayload int64
	// MaxBuffered is the send buffer of one connection in bytes; default 8 MiB.
	MaxBuffered int
	// MaxSockets is the limit of open sockets (10,000). Of these, MaxUnauthenticated may be
	// unauthenticated (512), MaxUnauthenticatedPerAddr of them from one address or IPv6 /64 (32),
	// MaxUnauthenticatedShared from loopback and from each of TrustedProxies (256; at least
	// MaxUnauthenticatedPerAddr). MaxPerPrincipal is the limit of one credential (1,000). At a
	// limit of unauthenticated sockets the oldest of them is closed. Connections that are not
	// sockets are limited as well: together to MaxSockets and 1,024 more, and unauthenticated ones
	// of one address to MaxUnauthenticatedPerAddr, except from loopback and TrustedProxies.
	MaxSockets, MaxUnauthenticated, MaxUnauthenticatedPerAddr, MaxUnauthenticatedShared, MaxPerPrincipal int

	// Limits are the allowances per minute. RequestsPerSecond (200) is per connection; [auth.Off] =
	// no limit.
	auth.Limits

	RequestsPerSecond int
	// Limiter counts the calls of principals; nil = in this process. In a cluster all replicas may
	// share one.
	Limiter auth.Limiter

	// Deadlines; a zero value means the protocol's deadline. Tests shorten them.
	Deadlines Deadlines
	// HoldConnects refuses every connect with `gateway starting` until [Server.Ready] is called.
	HoldConnects bool
	// StopTimeout is how long Serve waits for connections at shutdown; default 5 s.
	StopTimeout time.Duration

	// Hooks are the webhooks whose calls become messages, by name; see [hook.Hook].
	Hooks map[string]hook.Hook

	// Webhooks handle deliveries of networks, by path. Each authenticates its callers itself, and
	// accepts every host name, because the operator gave one to the network.
	Webhooks map[string]http.Handler

	// Jobs, Pairings, Usage and Files are the parts of the core that have methods or paths of their
	// subject; nil = the gateway lacks the subject.
	Jobs     jobs.Backend
	Pairings pairing.Backend
	Usage    UsageBackend
	Files    openai.Files

	// Tools returns the tools of a principal outside of turns, and TurnTokens are the tokens with
	// which the programs of running turns call theirs. Both are served at /mcp; nil = it does not
	// exist.
	Tools      func(principal string) agent.Toolbox
	TurnTokens mcp.Turns
	// ToolServers returns the current state of the MCP servers whose tools agents call; may be nil.
	ToolServers func() []chat.ToolServer

	// Dashboard serves /dashboard and below; nil = off.
	Dashboard http.Handler
	// MetricsOnMain serves /metrics on the main listener to a read credential; may be nil.
	MetricsOnMain http.Handler
	// Metrics is where the gateway registers its metrics; nil if nobody reads them.
	Metrics prometheus.Registerer
}

// Deadlines of connections and requests. A zero value means the protocol's deadline.
type Deadlines struct {
	Header     time.Duration // request line and headers: 10 s
	Connect    time.Duration // `connect` complete after the upgrade: 15 s
	Message    time.Duration // a started message complete: 30 s
	Request    time.Duration // a request answered: 25 s
	Write      time.Duration // one write to a socket, or of a piece of an HTTP answer: 10 s
	Ping, Pong time.Duration // a ping every 20 s, its pong 25 s after it
	Slow       time.Duration // the send buffer continuously over its limit: 5 s
	Close      time.Duration // to write a close frame and to see the peer's: 1 s
	Watch      time.Duration // interval of the checks of health and credentials: 2 s
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
		Header:  cmp.Or(d.Header, 10*time.Second),
		Connect: cmp.Or(d.Connect, 15*time.Second),
		Message: cmp.Or(d.Message, 30*time.Second),
		Request: cmp.Or(d.Request, 25*time.Second),
		Write:   cmp.Or(d.Write, 10*time.Second),
		Ping:    cmp.Or(d.Ping, 20*time.Second),
		Pong:    cmp.Or(d.Pong, 25*time.Second),
		Slow:    cmp.Or(d.Slow, 5*time.Second),
		Close:   cmp.Or(d.Close, time.Second),
		Watch:   cmp.Or(d.Watch, 2*time.Second),
	}
}

func (c Config) withDefaults() Config {
	c.MaxPayload = cmp.Or(c.MaxPayload, 1<<20)
	c.MaxBuffered = orInt(c.MaxBuffered, 8<<20)
	c.MaxSockets = orInt(c.MaxSockets, 10_000)
	c.MaxUnauthenticated = orInt(c.MaxUnauthenticated, 512)
	c.MaxUnauthenticatedPerAddr = orInt(c.MaxUnauthenticatedPerAddr, 32)
	c.MaxUnauthenticatedShared = orInt(c.MaxUnauthenticatedShared, 256)
	c.MaxPerPrincipal = orInt(c.MaxPerPrincipal, 1_000)
	c.Limits = c.Limits.WithDefaults()
	c.RequestsPerSecond = orInt(c.RequestsPerSecond, 200)
	c.Deadlines = c.Deadlines.withDefaults()
	c.StopTimeout = cmp.Or(c.StopTimeout, 5*time.Second)
	if c.Limiter == nil {
		c.Limiter = auth.NewLimiter(c.Limits)
	}
	return c
}

// sockets returns the configuration of WebSocket connections.
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

// Defaults returns the configuration with all defaults.
func Defaults() Config { return Config{}.withDefaults() }

// check reports all faults of a configuration.
func (c Config) check() error {
	var faults []error
	if c.MaxPayload < MinPayload || c.MaxPayload > MaxPayload {
		faults = append(faults, fmt.Errorf("max payload %d is outside %d..%d", c.MaxPayload, MinPayload, MaxPayload))
	}
	return errors.Join(faults...)
}

// Backend is the core as the gateway uses it; package dispatch implements it. Every method returns
// *chat.Error values for errors that a caller can act on. Except for [Backend.Wait], no method
// waits for a lane, a slot or an answer.
type Backend interface {
	conversation.Backend

	// Audit adds a row to the audit log for a call that changes nothing else.
	Audit(ctx context.Context, a chat.Audit) error

	// Place finds an accepted message by its id, and BranchAt the end of a run; see [openai.Runs].
	Place(ctx context.Context, messageID string) (chat.Place, error)
	BranchAt(ctx context.Context, key chat.SessionKey, runID string) (chat.Branch, error)
	// DeleteWhole deletes the session of a run that is all of it; see [openai.Runs].
	DeleteWhole(ctx context.Context, at chat.Place, by chat.Caller) (bool, error)

	// Turns lists turns. The map has, by id, what those without an outcome wait for.
	Turns(ctx context.Context, f store.TurnFilter) ([]store.Turn, map[string]chat.Waiting, error)

	Agents() []agent.Info
	Commands() []chat.CommandInfo
	Lanes() chat.LanesStatus
	// Status works even when the database is unavailable. It is called every two seconds.
	Status(ctx context.Context) chat.SystemStatus
	// Channels returns a snapshot of the channels without their waiting messages. It does not
	// block, and is called at each handshake.
	Channels() []chat.ChannelStatus
	// Progress does not use the database.
	Progress() chat.Progress
	// Ready reports the failing check as a [*chat.NotReadyError]; nil = ready.
	Ready(ctx context.Context) error

	// Subscribe calls fn for every event of this process, in order per run, until the returned
	// function is called, and for the ends of runs and the changes of sessions of other processes.
	// Of the latter, an event with a long text is loaded only if wanted returns true for it without
	// that text. Neither function may block. A message that has to wait causes an EventQueued.
	Subscribe(fn func(chat.Event), wanted func(chat.Event) bool) (cancel func())
}

// MethodInfo describes one method for documentation and tests.
type MethodInfo struct {
	Name, Scope string
	// OwnerScope suffices for a session that the caller owns; "" = the owner needs Scope, too.
	OwnerScope string
	// Params and Result are the types of package wire.
	Params, Result *schema.Type
	// Control methods have separate places among the requests in flight.
	Control bool
	// Audited methods add one row to the audit log.
	Audited bool
	// Limit is the allowance that a call is counted in, or "".
	Limit auth.LimitClass
}

// EventInfo describes one event for documentation and tests.
type EventInfo struct {
	Name    string
	Payload *schema.Type
}

// Methods returns the table, sorted by name. `connect` is not in it; see [Server.Connect].
func (s *Server) Methods() []MethodInfo {
	out := make([]MethodInfo, 0, len(s.methods))
	for _, name := range slices.Sorted(maps.Keys(s.methods)) {
		m := s.methods[name]
		info := MethodInfo{
			Name: m.Name, Scope: m.Scope, Params: m.Params.Type(), Result: schema.Result(m.Result), Control: m.Control, Audited: m.Audited, Limit: m.Limit,
		}
		if m.Owner {
			info.OwnerScope = m.Need().Least()
		}
		out = append(out, info)
	}
	return out
}

// Connect describes the first request of every connection. It needs no scope.
func (*Server) Connect() MethodInfo {
	return MethodInfo{
		Name: wire.MethodConnect, Params: schema.Params(reflect.TypeFor[wire.ConnectParams]()), Result: schema.Result(reflect.TypeFor[wire.HelloOK]()),
	}
}

// Events lists the events that a client may receive after `hello-ok`.
func (*Server) Events() []EventInfo {
	payloads := map[string]reflect.Type{
		wire.EventAgent: reflect.TypeFor[wire.AgentEvent[wire.AgentData]](), wire.EventChat: reflect.TypeFor[wire.ChatEvent](), wire.EventCron: reflect.TypeFor[wire.CronEvent](),
		wire.EventHealth: reflect.TypeFor[wire.HealthResult](), wire.EventLanes: reflect.TypeFor[wire.LanesEvent](),
		wire.EventQuestions: reflect.TypeFor[wire.QuestionsChanged](),
		wire.EventSessions:  reflect.TypeFor[wire.SessionsChanged](), wire.EventShutdown: reflect.TypeFor[wire.Shutdown](), wire.EventTick: reflect.TypeFor[wire.Tick](),
	}
	out := make([]EventInfo, 0, len(payloads))
	for _, name := range eventNames() {
		out = append(out, EventInfo{name, schema.Result(payloads[name])})
	}
	return out
}

// Needs returns what methods require of callers, by name. The corresponding chat commands require
// the same, so one table decides about both.
func Needs() map[string]chat.Need {
	needs := map[string]chat.Need{}
	for _, m := range allMethods(nil) {
		needs[m.Name] = m.Need()
	}
	return needs
}

// allMethods returns the rows of the table. Without a server they can be listed but not called. The
// methods of jobs exist when their backend does.
func allMethods(s *Server) []*rpc.Method {
	var cfg Config
	var backend Backend
	var bootID string
	if s != nil {
		cfg, backend, bootID = s.cfg, s.backend, s.bootID
	}
	o := overview{s}
	rows := slices.Concat(o.methods(), o.lists(), o.usages(), conversation.Methods(backend, cfg.Files), pairing.Methods(pairing.Config{
		Backend: cfg.Pairings, Channels: func() []chat.ChannelStatus { return s.backend.Channels() },
	}))
	if s == nil || cfg.Jobs != nil {
		rows = append(rows, jobs.Methods(cfg.Jobs, bootID, func() chat.SystemStatus { return s.health.current.Load().status })...)
	}
	return rows
}
